"""From timelines to rows for the model."""

from functools import partial
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..data_collator_tempoformer import cut_rows, tokenize_posts
from .timelines import NO_LABEL, TIMELINE_COLUMNS


logger = logging.get_logger(__name__)


def to_rows(
    timelines: Dataset | IterableDataset,
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    targets_per_row: int = 16,
    max_seq_length: int | None = None,
    only_labelled: bool = False,
) -> Dataset | IterableDataset:
    """
    Cuts timelines to the rows that [`StreamCollator`] takes: up to `targets_per_row` consecutive target posts, and
    before them the `window - 1` posts that the first of them needs.

    Args:
        timelines (`Dataset` or `IterableDataset`): As [`to_timelines`] returns them.
        tokenizer (`PreTrainedTokenizerBase`): Tokenizer of the encoder.
        window (`int`): Number of posts in a stream.
        targets_per_row (`int`, *optional*, defaults to 16): Most targets in a row.
        max_seq_length (`int`, *optional*): Most tokens in a post, by default and at most the tokenizer's
            `model_max_length`. Longer posts are truncated, and counted in a log line (in a stream only mentioned).
        only_labelled (`bool`, *optional*, defaults to `False`): Whether unlabelled posts are context only, as in
            training, or targets too, as in prediction.

    Returns:
        `Dataset` or `IterableDataset`, as `timelines`: Rows with the columns of the tokenizer, `timestamps`,
        `num_context`, `labels` (one for each post after the context, None = not a target), `post_ids` (of the posts
        after the context), and `held_out` if the timelines have it. Raises a `ValueError` for an argument outside its
        range.
    """
    for name, value in (("window", window), ("targets_per_row", targets_per_row)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    limit = tokenizer.model_max_length
    if max_seq_length is not None:
        if max_seq_length > limit:
            logger.warning(f"`max_seq_length={max_seq_length}` is more than the tokenizer's limit; using {limit}.")
        limit = min(limit, max_seq_length)
    # A script sets the tokenizer's.
    smallest = tokenizer.num_special_tokens_to_add() + 1
    if limit < smallest:
        raise ValueError(
            f"`max_seq_length` must be at least {smallest}, for the special tokens and one of the text; got {limit}."
        )
    settings = (tokenizer, window, targets_per_row, limit, only_labelled)
    one_by_one = {"batched": True, "batch_size": 1}
    if isinstance(timelines, IterableDataset):
        return timelines.map(partial(convert, settings=settings), **one_by_one, remove_columns=list(TIMELINE_COLUMNS))
    truncated: list[int] = []
    rows = timelines.map(
        partial(convert, settings=settings, truncated=truncated),
        **one_by_one,
        remove_columns=timelines.column_names,
        desc="Tokenizing timelines",
        load_from_cache_file=False,
    )
    if sum(truncated):
        logger.warning(f"Truncated {sum(truncated)} posts to {limit} tokens.")
    return rows


def convert(batch: dict[str, list], settings: tuple, truncated: list[int] | None = None) -> dict[str, list]:
    """The rows of a batch of one timeline. `truncated` gets the number of posts that were cut; without it the log."""
    timeline = {name: values[0] for name, values in batch.items()}
    rows, cut = timeline_to_rows(timeline, *settings)
    if truncated is not None:
        truncated.append(cut)
    elif cut:
        logger.warning_once("Truncating posts that are longer than the limit of tokens.")
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ["num_context"])}


def timeline_to_rows(
    timeline: dict[str, Any],
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    targets_per_row: int,
    limit: int,
    only_labelled: bool,
) -> tuple[list[dict[str, Any]], int]:
    """The rows of a timeline, and how many posts were cut."""
    try:
        columns, cut = tokenize_posts(tokenizer, timeline["texts"], limit)
    except ValueError as problem:
        raise ValueError(f"Timeline {timeline['timeline_id']!r}, {problem}") from None
    if timeline.get("timestamps") is not None:
        columns["timestamps"] = timeline["timestamps"]
    columns["labels"] = [None if only_labelled and label == NO_LABEL else label for label in timeline["labels"]]
    columns["post_ids"] = timeline["post_ids"]
    rows = []
    for row in cut_rows(columns, window, targets_per_row):
        targets = {name: row[name][row["num_context"] :] for name in ("labels", "post_ids")}
        if "held_out" in timeline:
            targets["held_out"] = timeline["held_out"]
        if any(label is not None for label in targets["labels"]):
            rows.append(row | targets)
    return rows, cut
