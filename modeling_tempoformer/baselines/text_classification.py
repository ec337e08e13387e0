"""A stock sequence classifier on posts: alone, or with their history in one sequence."""

import logging
from dataclasses import dataclass
from functools import partial
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

from ..data.arguments import DataTrainingArguments
from ..data.post_splits import choose_class_weights
from ..data_collator_tempoformer import row_bounds
from ..modeling_post_tempoformer import focal_loss, longest_input
from .base import DEFAULT_WINDOW, Prepared, TrainedBaseline, class_fields


logger = logging.getLogger(__name__)


def to_sequences(
    timelines: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    max_seq_length: int | None = None,
    only_labelled: bool = False,
) -> Dataset:
    """
    The target posts as a stock sequence classifier reads them: the columns of the tokenizer, `labels` and `post_id`,
    in one row for each. Where the window is larger than 1, the `window - 1` posts before a post are the second text of
    a pair, with separator tokens between them. Sequences of more than `max_seq_length` tokens (at most, and by
    default, the tokenizer's limit) lose the oldest tokens of the history, then the last tokens of the post, and are
    counted in a log line.
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
    for timeline in timelines:
        texts, labels = timeline["texts"], timeline["labels"]
        for start, post, _ in row_bounds(len(texts), window, targets_per_row=1):
            if labels[post] >= 0 or not only_labelled:
                tokens = tokenize(texts[post], separator.join(texts[start:post]) or None)
                rows.append({**tokens, "labels": labels[post], "post_id": timeline["post_ids"][post]})
    tokenizer.truncation_side = side
    if num_truncated:
        logger.warning("Truncated %d of %d sequences to %d tokens.", num_truncated, len(rows), limit)
    return Dataset.from_list(rows)


def focal_loss_of_output(
    outputs: Any, labels: torch.Tensor, num_items_in_batch=None, *, class_weights: list[float]
) -> torch.Tensor:
    """The focal loss of a stock model, for the Trainer's `compute_loss_func`."""
    return focal_loss(outputs["logits"], labels, class_weights=class_weights, num_items_in_batch=num_items_in_batch)


@dataclass(kw_only=True)
class SequenceBaseline(TrainedBaseline):
    """A stock sequence classifier on each post and its history (`window - 1` posts) in one sequence."""

    refused: ClassVar[tuple[str, ...]] = (*TrainedBaseline.refused, "calibrate")
    is_stock: ClassVar[bool] = True

    def prepare(self, timelines: dict[str, Dataset], names: list[str], data: DataTrainingArguments) -> Prepared:
        config = AutoConfig.from_pretrained(self.model_name_or_path, **self.download_settings)
        if unknown := sorted(name for name in self.config_overrides or {} if not hasattr(config, name)):
            raise ValueError(
                f"--config_overrides has fields that a '{config.model_type}' lacks: {', '.join(unknown)}."
            )
        tokenizer = AutoTokenizer.from_pretrained(self.model_name_or_path, **self.download_settings)
        model = AutoModelForSequenceClassification.from_pretrained(
            self.model_name_or_path,
            use_safetensors=True,
            dtype=torch.float32,
            **class_fields(names),
            **(self.config_overrides or {}),
            **self.download_settings,
        )
        longest = longest_input(model)
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
        items = {
            name: to_sequences(
                part, tokenizer, self.window_of(data), data.max_seq_length, only_labelled=name != "test"
            )
            for name, part in timelines.items()
        }
        return Prepared(
            model=model,
            items={name: part.remove_columns("post_id") for name, part in items.items()},
            post_ids={name: [[post_id] for post_id in part["post_id"]] for name, part in items.items()},
            collator=DataCollatorWithPadding(tokenizer),
            tokenizer=tokenizer,
            compute_loss=partial(focal_loss_of_output, class_weights=choose_class_weights(timelines["train"], names)),
        )

    def window_of(self, data: DataTrainingArguments) -> int:
        """How many posts a sequence has."""
        return data.window or DEFAULT_WINDOW
