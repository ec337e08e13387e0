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
    """A baseline's model and data, ready for the Trainer; `items` and `post_ids` have an entry for each part."""

    model: nn.Module
    items: dict[str, Any]
    # For each item the ids of the posts that it classifies.
    post_ids: dict[str, list[list[str]]]
    collator: Callable
    tokenizer: PreTrainedTokenizerBase | None = None
    # The loss, where the model does not compute it.
    compute_loss: Callable | None = None


@dataclass
class BaselineSettings:
    """
    The settings that all baselines share.

    `names` are the classes in the order of their ids, `class_weights` their weights in the focal loss, `window` the
    number of posts in a stream, and `config_overrides` fields of the model's configuration. Without `max_seq_length`
    a sequence has at most the encoder's limit of tokens, or 128 for frozen embeddings.
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
        return {"id2label": dict(enumerate(self.names)), "label2id": {n: i for i, n in enumerate(self.names)}}


def prepare_sequences(timelines: dict[str, Dataset], settings: BaselineSettings) -> Prepared:
    """The stock sequence classifier on each post and its history (`window - 1` posts) in one sequence."""
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
    return Prepared(
        model=model,
        items={name: part.remove_columns("post_id") for name, part in items.items()},
        post_ids={name: [[post_id] for post_id in part["post_id"]] for name, part in items.items()},
        collator=DataCollatorWithPadding(tokenizer),
        tokenizer=tokenizer,
        compute_loss=partial(focal_loss_of_output, class_weights=settings.class_weights),
    )


def focal_loss_of_output(
    outputs, labels: torch.Tensor, num_items_in_batch=None, class_weights: list[float] | None = None
) -> torch.Tensor:
    """The focal loss of a stock model, for the Trainer's `compute_loss_func`."""
    return focal_loss(outputs["logits"], labels, class_weights=class_weights, num_items_in_batch=num_items_in_batch)


def prepare_history(architecture: str, timelines: dict[str, Dataset], settings: BaselineSettings) -> Prepared:
    """A small network over frozen embeddings of the posts of a stream."""
    check_overrides(settings.config_overrides, HistoryConfig)
    texts = {name: [text for posts in part["texts"] for text in posts] for name, part in timelines.items()}
    # All posts at once, so that every fold of a cross-validation finds the same cache.
    everything = sorted({text for part in texts.values() for text in part})
    embeddings = embed_texts(
        everything,
        settings.model_name_or_path,
        128 if settings.max_seq_length is None else settings.max_seq_length,
        download_settings=settings.download_settings,
    )
    place = {text: index for index, text in enumerate(everything)}
    items = {
        name: EmbeddedStreams(
            part, embeddings[[place[text] for text in texts[name]]], settings.window, only_labelled=name != "test"
        )
        for name, part in timelines.items()
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


def prepare(method: str, timelines: dict[str, Dataset], settings: BaselineSettings) -> Prepared:
    """Prepares the trained baseline that `--method` names."""
    if method == "post":
        return prepare_sequences(timelines, replace(settings, window=1))
    if method == "concatenated":
        return prepare_sequences(timelines, settings)
    return prepare_history(method, timelines, settings)
