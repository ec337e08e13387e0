"""Classifies the post and its history in one sequence with a stock sequence classifier."""

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from datasets import Dataset
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
)

from modeling_tempoformer.checks_tempoformer import longest_input
from modeling_tempoformer.common.command_line import check_overrides
from modeling_tempoformer.modeling_streams_tempoformer import focal_loss
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.model_fields import choose_class_weights
from modeling_tempoformer.posts.surveys import survey
from modeling_tempoformer.timeline_tempoformer import Timeline, row_bounds
from modeling_tempoformer.training.fine_tuning import DEFAULT_WINDOW

from .base import Prepared, TrainedBaseline, class_fields


logger = logging.getLogger(__name__)


def to_sequences(
    timelines: list[Timeline],
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    max_seq_length: int | None = None,
    only_labelled: bool = False,
) -> Dataset:
    """
    Returns a row for each target post: the tokenizer's columns, `labels`, and the columns by which [`attach_logits`]
    identifies the post. The `window - 1` posts before it, if any, are the second text of a pair, joined by separator
    tokens. Truncation first removes the oldest tokens of the history, and then the last tokens of the post.
    """
    limit = min(tokenizer.model_max_length, max_seq_length or tokenizer.model_max_length)
    num_truncated = 0

    def tokenize(text: str, history: str | None) -> dict[str, list]:
        nonlocal num_truncated
        tokens = tokenizer(text, history, verbose=False)
        if len(tokens["input_ids"]) <= limit:
            return dict(tokens)
        num_truncated += 1
        text_length = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if history is None or text_length + tokenizer.num_special_tokens_to_add(pair=True) >= limit:
            tokenizer.truncation_side = "right"
            return dict(tokenizer(text, truncation=True, max_length=limit))
        tokenizer.truncation_side = "left"
        return dict(tokenizer(text, history, truncation="only_second", max_length=limit))

    side, separator, rows = tokenizer.truncation_side, f" {tokenizer.sep_token or ''} ", []
    for number, timeline in enumerate(timelines):
        texts, labels = timeline.texts, timeline.labels
        for start, post, _ in row_bounds(len(texts), window, targets_per_row=1):
            if post >= timeline.num_context and (labels[post] >= 0 or not only_labelled):
                tokens = tokenize(texts[post], separator.join(texts[start:post]) or None)
                index = {"timeline": number, "num_before": post, "num_context": 0}
                rows.append({**tokens, "labels": labels[post], **index})
    tokenizer.truncation_side = side
    if num_truncated:
        logger.warning("Truncated %d of %d sequences to %d tokens.", num_truncated, len(rows), limit)
    return Dataset.from_list(rows)


@dataclass(kw_only=True)
class Method(TrainedBaseline):
    """Classifies a post together with its history."""

    refused: ClassVar[tuple[str, ...]] = (*TrainedBaseline.refused, "calibrate")
    is_stock: ClassVar[bool] = True

    def prepare(self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments) -> Prepared:
        source, overrides = self.model_name_or_path, self.config_overrides or {}
        check_overrides(overrides, type(AutoConfig.from_pretrained(source, **self.download_settings)))
        tokenizer = AutoTokenizer.from_pretrained(source, **self.download_settings)
        model = AutoModelForSequenceClassification.from_pretrained(
            source,
            use_safetensors=True,
            dtype=torch.float32,
            **class_fields(names),
            **overrides,
            **self.download_settings,
        )
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest_input(model))
        items = {
            name: to_sequences(
                part, tokenizer, self.window_of(data), data.max_seq_length, only_labelled=name != "test"
            )
            for name, part in timelines.items()
        }
        # The collator would pass other columns to the model.
        read = [name for name in items["train"].column_names if name in (*tokenizer.model_input_names, "labels")]
        class_weights = choose_class_weights(survey(timelines["train"]).labels, names)

        def compute_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
            logits = outputs["logits"]
            return focal_loss(logits, labels, class_weights=class_weights, num_items_in_batch=num_items_in_batch)

        return Prepared(
            model=model,
            items={name: part.with_format(columns=read) for name, part in items.items()},
            collator=DataCollatorWithPadding(tokenizer),
            tokenizer=tokenizer,
            compute_loss=compute_loss,
        )

    def window_of(self, data: DataTrainingArguments) -> int:
        """Returns the number of posts in a sequence."""
        return data.window or DEFAULT_WINDOW
