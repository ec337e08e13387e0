"""Base classes of networks that classify streams of frozen post embeddings."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from modeling_tempoformer.baselines.methods import DEFAULT_LENGTH, load_embedder
from modeling_tempoformer.checks_tempoformer import CheckedFields, at_least_1, dropout, not_negative
from modeling_tempoformer.common.command_line import check_overrides
from modeling_tempoformer.configuration_streams_tempoformer import StreamFields
from modeling_tempoformer.data_collator_tempoformer import StreamCollator
from modeling_tempoformer.modeling_streams_tempoformer import focal_loss
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.model_fields import choose_class_weights
from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.surveys import survey
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.training.fine_tuning import DEFAULT_WINDOW
from modeling_tempoformer.training.frozen_encoder import embed_rows

from .base import Prepared, TrainedBaseline, class_fields


@strict
class HistoryConfig(CheckedFields, PreTrainedConfig):
    """Configuration of all [`HistoryModel`]s."""

    embedding_size: int = 384
    window: int = at_least_1(default=20)
    # If True, networks over signatures read the seconds between posts. Otherwise posts count as evenly spaced.
    timed: bool = True
    # The widths of the classifier's hidden layers.
    hidden_sizes: list[int] | tuple[int, ...] = ()
    dropout: float | int = dropout(default=0.1)
    focal_gamma: float | int = not_negative(default=2.0)
    class_weights: list[float | int] | None = None
    calibration: dict[str, Any] | None = None

    # The loss is the same as in stream models, with the same fields.
    validate_classes = StreamFields.validate_classes


class HistoryModel(PreTrainedModel, ABC):
    """Classifies the newest post of a stream from frozen embeddings of its posts. Subclasses implement `score`."""

    config: HistoryConfig
    main_input_name = "embeddings"
    # The loss divides by `num_items_in_batch`.
    accepts_loss_kwargs = True

    def _init_weights(self, module: nn.Module):
        """Keeps PyTorch's initial values."""

    @abstractmethod
    def score(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        """Returns logits (streams, classes). Shapes are as in `forward`; `embeddings` are 0 where `mask` is False."""

    def forward(
        self,
        embeddings: torch.FloatTensor,
        mask: torch.BoolTensor,
        elapsed: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> SequenceClassifierOutput:
        """
        Returns logits (streams, classes), and the loss if `labels` (streams,) are given, -100 for none. `embeddings`
        (streams, window, width) are posts, oldest first, padded on the left, where `mask` (streams, window) is False.
        `elapsed` (streams, window), the seconds to the newest post, is given if and only if `config.timed`.
        """
        # Padding may hold any value, even NaN.
        logits = self.score(embeddings.masked_fill(~mask.unsqueeze(-1), 0), mask, elapsed)
        loss = None
        if labels is not None:
            loss = focal_loss(logits, labels, self.config.focal_gamma, self.config.class_weights, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def make_classifier(config: HistoryConfig, width: int) -> nn.Sequential:
    """Returns a feed-forward classifier of `width` features; without hidden layers, dropout and a linear layer."""
    layers: list[nn.Module] = []
    for hidden_width in config.hidden_sizes:
        layers += [nn.Linear(width, hidden_width), nn.ReLU(), nn.Dropout(config.dropout)]
        width = hidden_width
    return nn.Sequential(*(layers or [nn.Dropout(config.dropout)]), nn.Linear(width, config.num_labels))


def bilstm_final_state(lstm: nn.LSTM, states: torch.Tensor, mask: torch.BoolTensor) -> torch.Tensor:
    """Returns the sum (streams, hidden) of the final states of both directions, as in the published code of SWNU."""
    # Packing expects padding on the right. Flipped sequences only swap the two directions.
    packed = pack_padded_sequence(states.flip(1), mask.sum(-1).cpu(), batch_first=True, enforce_sorted=False)
    _, (final, _) = lstm(packed)
    return final.sum(0)


def collate_streams(collator: StreamCollator, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Returns a batch for a [`HistoryModel`] from embedded rows of one target each."""
    batch = collator(rows)
    index = batch["stream_index"].squeeze(1)
    embeddings = batch["post_embeds"][torch.arange(len(rows)).unsqueeze(-1), index.clamp_min(0)]
    streams = {"embeddings": embeddings, "mask": index >= 0}
    return streams | {name: batch[name].squeeze(1) for name in ("elapsed", "labels") if name in batch}


@dataclass(kw_only=True)
class HistoryBaseline(TrainedBaseline):
    """Trains a [`HistoryModel`] over frozen embeddings from any encoder. Subclasses set `model_class`."""

    model_class: ClassVar[type[HistoryModel]]

    def prepare(self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments) -> Prepared:
        config_class, window = self.model_class.config_class, data.window or DEFAULT_WINDOW
        check_overrides(self.config_overrides, config_class)
        embedder, tokenizer = load_embedder(self.model_name_or_path, self.download_settings)
        length = min(data.max_seq_length or DEFAULT_LENGTH, tokenizer.model_max_length)
        rows = {
            name: to_rows(part, tokenizer, window, 1, length, only_labelled=name != "test", part=name)
            for name, part in timelines.items()
        }
        summary = survey(timelines["train"])
        config = config_class(
            embedding_size=embedder.config.encoder_config.hidden_size,
            window=window,
            timed=summary.timed,
            class_weights=choose_class_weights(summary.labels, names),
            **class_fields(names),
            **(self.config_overrides or {}),
        )
        return Prepared(
            model=self.model_class(config),
            items=embed_rows(rows, embedder, tokenizer),
            collator=partial(collate_streams, StreamCollator(tokenizer, window, timed=summary.timed)),
        )
