"""From timelines to rows for the model."""

from collections.abc import Iterator
from typing import Any

from datasets import IterableDataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..data_collator_tempoformer import tokenize_posts
from ..windows_tempoformer import row_bounds
from .timelines import Posts, check_workers


logger = logging.get_logger(__name__)


def to_rows(
    timelines: Posts,
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    targets_per_row: int = 16,
    max_seq_length: int | None = None,
    only_labelled: bool = False,
) -> Posts:
    """
    Cuts timelines to the rows that [`StreamCollator`] takes: up to `targets_per_row` consecutive target posts, and
    before them the `window - 1` posts that the first of them needs.

    Args:
        timelines (`Dataset` or `IterableDataset`): As [`to_timelines`] returns them.
        tokenizer (`PreTrainedTokenizerBase`): Of the encoder.
        window (`int`): Number of posts in a stream, at least 1.
        targets_per_row (`int`, *optional*, defaults to 16): Upper bound on the targets of a row, at least 1.
        max_seq_length (`int`, *optional*): Tokens of a post; longer posts are truncated and counted in a log line.
            At most, and if omitted, the tokenizer's `model_max_length`.
        only_labelled (`bool`, *optional*, defaults to `False`): Whether unlabelled posts are context only, as in
            training, or classified too, as in prediction.

    Returns:
        `Dataset` or `IterableDataset`, as `timelines` is: rows with the columns of the tokenizer, `timestamps`,
        `num_context`, `labels` (one for each post after the context, None = not a target) and `post_ids` (of the posts
        after the context). Raises a `ValueError` for an argument outside its range.
    """
    for name, value in (("window", window), ("targets_per_row", targets_per_row)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    limit = tokenizer.model_max_length
    if max_seq_length is not None:
        smallest = tokenizer.num_special_tokens_to_add() + 1
        if max_seq_length < smallest:
            raise ValueError(f"`max_seq_length` must be at least {smallest}, got {max_seq_length}.")
        if max_seq_length > limit:
            logger.warning(f"`max_seq_length={max_seq_length}` is more than the tokenizer's limit; using {limit}.")
        limit = min(limit, max_seq_length)
    settings = {
        "tokenizer": tokenizer,
        "window": window,
        "targets_per_row": targets_per_row,
        "limit": limit,
        "only_labelled": only_labelled,
    }
    if isinstance(timelines, IterableDataset):
        return IterableDataset.from_generator(stream_rows, gen_kwargs={"timelines": timelines, **settings})
    truncated = [0]
    rows = timelines.map(
        lambda batch: timeline_to_rows(batch, truncated=truncated, **settings),
        batched=True,
        batch_size=1,
        remove_columns=timelines.column_names,
        desc="Tokenizing timelines",
        load_from_cache_file=False,
    )
    if truncated[0]:
        logger.warning(f"Truncated {truncated[0]} posts to {limit} tokens.")
    return rows


def stream_rows(timelines: IterableDataset, window: int, **settings) -> Iterator[dict[str, Any]]:
    """Rows of a stream of timelines, of which long ones come in pieces."""
    check_workers(timelines)
    before: dict[str, Any] = {}
    for timeline in timelines:
        num_context = 0
        if before.get("timeline_id") == timeline["timeline_id"]:
            num_context = len(before["texts"])
            timeline = {
                name: before[name] + values if isinstance(values, list) else values
                for name, values in timeline.items()
            }
        first = max(0, len(timeline["texts"]) - window + 1)
        before = {name: values[first:] if isinstance(values, list) else values for name, values in timeline.items()}
        rows = timeline_to_rows(
            {name: [value] for name, value in timeline.items()}, window=window, num_context=num_context, **settings
        )
        for values in zip(*rows.values(), strict=True):
            yield dict(zip(rows, values, strict=True))


def timeline_to_rows(
    batch: dict[str, list],
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    targets_per_row: int,
    limit: int,
    only_labelled: bool,
    truncated: list[int] | None = None,
    num_context: int = 0,
) -> dict[str, list]:
    """The rows of a batch of one timeline, the first `num_context` posts of which are context only."""
    timeline = {name: values[0] for name, values in batch.items()}
    try:
        columns, cut = tokenize_posts(tokenizer, timeline["texts"], limit, timeline.get("timestamps"))
    except ValueError as problem:
        raise ValueError(f"Timeline {timeline['timeline_id']!r}, {problem}") from None
    if truncated is not None:
        truncated[0] += cut
    elif cut:
        logger.warning_once(f"Truncating posts of more than {limit} tokens.")
    if timeline.get("timestamps") is not None:
        columns["timestamps"] = timeline["timestamps"]
    labels = [None if only_labelled and label == -100 else label for label in timeline["labels"]]
    rows: dict[str, list] = {name: [] for name in (*columns, "num_context", "labels", "post_ids")}
    for start, first, last in row_bounds(len(labels), window, targets_per_row, num_context):
        if all(label is None for label in labels[first:last]):
            continue
        for name, values in columns.items():
            rows[name].append(values[start:last])
        rows["num_context"].append(first - start)
        rows["labels"].append(labels[first:last])
        rows["post_ids"].append(timeline["post_ids"][first:last])
    return rows
