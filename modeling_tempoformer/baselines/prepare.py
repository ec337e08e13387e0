"""Prepares each trained baseline for the Trainer."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    default_data_collator,
)

from ..loss_tempoformer import focal_loss
from ..modeling_tempoformer_encoders import get_encoder_adapter
from ..training.recipes import check_overrides
from .configuration_history import HistoryConfig
from .frozen_embeddings import EmbeddedStreams, embed_texts
from .modeling_history import HistoryForStreamClassification
from .text_classification import to_sequences


@dataclass
class Prepared:
    """
    A baseline's model and data, ready for the Trainer.

    Attributes:
        model (`nn.Module`): The model to train.
        items (`dict[str, Dataset]`): For each part, a dataset with one item for each post to classify.
        post_ids (`dict[str, list[list[str]]]`): For each part, the ids of the posts that each item classifies.
        collator (`Callable`): Makes batches of items.
        tokenizer (`PreTrainedTokenizerBase`, *optional*): Saved with the model.
        compute_loss (`Callable`, *optional*): The loss, where the model does not compute it.
    """

    model: nn.Module
    items: dict[str, Any]
    post_ids: dict[str, list[list[str]]]
    collator: Callable
    tokenizer: PreTrainedTokenizerBase | None = None
    compute_loss: Callable | None = None


@dataclass
class BaselineSettings:
    """
    The settings that all baselines share.

    Attributes:
        model_name_or_path (`str`): Folder or Hub id of the encoder.
        names (`list[str]`): Names of the classes, in the order of their ids.
        class_weights (`list[float]`): Class weights of the focal loss.
        window (`int`): Number of posts in a stream.
        timed (`bool`): Whether the posts have times.
        max_seq_length (`int`, *optional*): Maximum tokens of a sequence. Default: the encoder's limit, or 128 for
            frozen embeddings.
        config_overrides (`dict`, *optional*): Fields of the model's configuration.
        download_settings (`dict`, *optional*): `cache_dir`, `revision`, `token` and `trust_remote_code` for
            `from_pretrained`.
    """

    model_name_or_path: str
    names: list[str]
    class_weights: list[float]
    window: int
    timed: bool
    max_seq_length: int | None = None
    config_overrides: dict[str, Any] | None = None
    download_settings: dict[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, dict]:
        """The classes as fields of a configuration."""
        return {
            "id2label": dict(enumerate(self.names)),
            "label2id": {name: label for label, name in enumerate(self.names)},
        }


def prepare_sequences(timelines: dict[str, Dataset], settings: BaselineSettings) -> Prepared:
    """The stock sequence classifier on each post and its history in one sequence."""
    config = AutoConfig.from_pretrained(settings.model_name_or_path, **settings.download_settings)
    if unknown := sorted(name for name in settings.config_overrides or {} if not hasattr(config, name)):
        raise ValueError(f"--config_overrides has fields that a '{config.model_type}' lacks: {', '.join(unknown)}.")
    tokenizer = AutoTokenizer.from_pretrained(settings.model_name_or_path, **settings.download_settings)
    model = AutoModelForSequenceClassification.from_pretrained(
        settings.model_name_or_path,
        use_safetensors=True,
        dtype=torch.float32,
        **settings.labels,
        **(settings.config_overrides or {}),
        **settings.download_settings,
    )
    longest = get_encoder_adapter(model.config).max_tokens(model.config)
    tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    items = {
        name: to_sequences(part, tokenizer, settings.window, settings.max_seq_length, only_labelled=name != "test")
        for name, part in timelines.items()
    }
    post_ids = {name: [[post_id] for post_id in part["post_id"]] for name, part in items.items()}
    return Prepared(
        model=model,
        items={name: part.remove_columns("post_id") for name, part in items.items()},
        post_ids=post_ids,
        collator=DataCollatorWithPadding(tokenizer),
        tokenizer=tokenizer,
        compute_loss=partial(focal_loss_of_output, class_weights=settings.class_weights),
    )


def focal_loss_of_output(
    outputs, labels: torch.Tensor, num_items_in_batch=None, class_weights: list[float] | None = None
) -> torch.Tensor:
    """The focal loss of a stock model, for the Trainer's `compute_loss_func`."""
    return focal_loss(outputs["logits"], labels, class_weights=class_weights, num_items_in_batch=num_items_in_batch)


def prepare_posts(timelines: dict[str, Dataset], settings: BaselineSettings) -> Prepared:
    """The stock sequence classifier on each post alone."""
    return prepare_sequences(timelines, replace(settings, window=1))


def prepare_history(architecture: str, timelines: dict[str, Dataset], settings: BaselineSettings) -> Prepared:
    """A small network over frozen embeddings of the posts of a stream."""
    check_overrides(settings.config_overrides, HistoryConfig)
    names = list(timelines)
    texts = {name: [text for posts in timelines[name]["texts"] for text in posts] for name in names}
    # All posts at once, so that every fold of a cross-validation finds the same cache.
    everything = sorted({text for part in texts.values() for text in part})
    limit = {} if settings.max_seq_length is None else {"max_seq_length": settings.max_seq_length}
    embeddings = embed_texts(
        everything, settings.model_name_or_path, download_settings=settings.download_settings, **limit
    )
    place = {text: index for index, text in enumerate(everything)}
    items = {
        name: EmbeddedStreams(
            timelines[name],
            embeddings[[place[text] for text in texts[name]]],
            settings.window,
            only_labelled=name != "test",
        )
        for name in names
    }
    config = HistoryConfig(
        architecture=architecture,
        embedding_size=embeddings.shape[1],
        window=settings.window,
        timed=settings.timed,
        class_weights=settings.class_weights,
        **settings.labels,
        **(settings.config_overrides or {}),
    )
    return Prepared(
        model=HistoryForStreamClassification(config),
        items=items,
        post_ids={name: [[post_id] for post_id in part.post_ids] for name, part in items.items()},
        collator=default_data_collator,
    )


# For each trained baseline the function that prepares it.
BASELINES: dict[str, Callable[[dict[str, Dataset], BaselineSettings], Prepared]] = {
    "post": prepare_posts,
    "concatenated": prepare_sequences,
    **{name: partial(prepare_history, name) for name in ("ffn_history", "bilstm", "swnu", "seq_sig_net")},
}
