"""Cuts timelines to rows for the model."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

from datasets import Dataset, IterableDataset
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from ..timeline_tempoformer import NO_LABEL, Timeline, cut_rows
from .timelines import TimelineStream


logger = logging.get_logger(__name__)


def to_rows(
    timelines: Sequence[Timeline] | TimelineStream,
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    targets_per_row: int = 16,
    max_seq_length: int | None = None,
    only_labelled: bool = False,
    reads_speakers: bool = False,
    part: str = "posts",
    states_config: PreTrainedConfig | None = None,
) -> Dataset | IterableDataset:
    """
    Cuts timelines to the rows that [`StreamCollator`] takes. A row has up to `targets_per_row` consecutive target
    posts, and before them the `window - 1` posts that the first target needs.

    Args:
        timelines (`list[Timeline]` or [`TimelineStream`]): As [`to_timelines`] returns them.
        tokenizer (`PreTrainedTokenizerBase`): Tokenizer of the encoder.
        window (`int`): Number of posts in a stream.
        targets_per_row (`int`, *optional*, defaults to 16): Maximum number of targets in a row.
        max_seq_length (`int`, *optional*): Maximum number of tokens in a post, by default and at most the
            tokenizer's `model_max_length`. Longer posts are truncated. A warning says how many (in a stream, that
            there are some).
        only_labelled (`bool`, *optional*, defaults to `False`): If True, only labelled posts are targets, as in
            training. In prediction all posts are.
        reads_speakers (`bool`, *optional*, defaults to `False`): As in the model's configuration. If True,
            timelines must have speakers.
        part (`str`, *optional*, defaults to `"posts"`): The name of the timelines in the warning, such as their split.
        states_config (`PreTrainedConfig`, *optional*): The configuration of a model that `reads_known_states`. Its
            rows have `earlier_states` of each post, and with `only_labelled` also `thinned_states`, as if each state
            were known by chance.

    Returns:
        `Dataset`, for a stream `IterableDataset`: Rows in the order of the timelines, with the tokenizer's columns,
        `timestamps` and `start_time` if there are times, `num_context`, `num_before`, `labels` (one for each post
        after the context, -100 = none), with `only_labelled` `is_target` (for each of these posts), `states` and
        `held_out` if the timelines have them, `speaker_posts` and `num_older` for a model that reads speakers, and,
        for a list of timelines, the index `timeline`. Raises a `ValueError` for an argument outside its range.
    """
    for name, value in (("window", window), ("targets_per_row", targets_per_row)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    limit = tokenizer.model_max_length
    if max_seq_length is not None:
        if max_seq_length > limit:
            logger.warning(f"`max_seq_length={max_seq_length}` is more than the tokenizer's limit; using {limit}.")
        limit = min(limit, max_seq_length)
    # The tokenizer's own limit, which the scripts set, may be too small as well.
    smallest = tokenizer.num_special_tokens_to_add() + 1
    if limit < smallest:
        raise ValueError(
            f"`max_seq_length` must be at least {smallest}, for the special tokens and one of the text; got {limit}."
        )
    settings = {"tokenizer": tokenizer, "window": window, "targets_per_row": targets_per_row, "limit": limit}
    settings |= {"only_labelled": only_labelled, "reads_speakers": reads_speakers}
    settings |= {"states_config": states_config}
    if isinstance(timelines, TimelineStream):
        # Datasets divides lists among workers and processes, so `shards` must be the only list.
        given = {"shards": timelines.shards, "stream": timelines, "part": part, **settings}
        return IterableDataset.from_generator(stream_rows, gen_kwargs=given)
    truncated: list[int] = []
    rows = Dataset.from_dict({"timeline": range(len(timelines))}).map(
        partial(batch_rows, timelines=timelines, truncated=truncated, **settings),
        batched=True,
        batch_size=1,
        desc="Tokenizing timelines",
        load_from_cache_file=False,
        # A random one: nothing is read from a cache, so that the posts need not be hashed.
        new_fingerprint=uuid4().hex,
    )
    if sum(truncated):
        count = sum(map(len, timelines))
        logger.warning(
            f"{part}: {sum(truncated)} of {count} posts are truncated to {limit} tokens. `--max_seq_length` sets how "
            "many a training reads."
        )
    return rows


def batch_rows(
    batch: dict[str, list[int]], timelines: Sequence[Timeline], truncated: list[int], **settings: Any
) -> dict[str, list]:
    """Returns the rows of one timeline as columns. Appends the number of truncated posts to `truncated`."""
    (number,) = batch["timeline"]
    rows, num_cut = timeline_to_rows(timelines[number], **settings)
    truncated.append(num_cut)
    columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ["num_context"])}
    return {**columns, "timeline": [number] * len(rows)}


def stream_rows(
    shards: list[tuple[int | None, IterableDataset]], stream: TimelineStream, part: str, **settings: Any
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the timelines in some shards of a stream."""
    for timeline in stream.read(shards):
        rows, num_cut = timeline_to_rows(timeline, **settings)
        if num_cut:
            logger.warning_once(f"{part}: posts that are longer are truncated to {settings['limit']} tokens.")
        yield from rows


def thin(timeline: Timeline) -> Timeline:
    """Returns a timeline with each state left out by a chance of one half; the same ones for the same texts."""
    generator = random.Random("\n".join(timeline.texts))
    states = timeline.states or [""] * len(timeline)
    return replace(timeline, states=[state if generator.random() < 0.5 else "" for state in states])


def timeline_to_rows(
    timeline: Timeline,
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    targets_per_row: int,
    limit: int,
    only_labelled: bool,
    reads_speakers: bool,
    states_config: PreTrainedConfig | None,
) -> tuple[list[dict[str, Any]], int]:
    """Returns the rows of a timeline, and the number of truncated posts."""
    columns, num_cut = timeline.tokenize(tokenizer, limit)
    columns["labels"] = timeline.labels
    if timeline.states is not None:
        columns["states"] = timeline.states
    if states_config is not None:
        columns["earlier_states"] = timeline.earlier_states(states_config).tolist()
        if only_labelled:
            columns["thinned_states"] = thin(timeline).earlier_states(states_config).tolist()
    rows = []
    speaker_posts = timeline.speaker_posts() if reads_speakers else None
    for row in cut_rows(columns, window, targets_per_row, speaker_posts):
        row["labels"] = labels = row["labels"][row["num_context"] :]
        if timeline.held_out is not None:
            row["held_out"] = timeline.held_out
        if only_labelled:
            posts = enumerate(labels, row["num_before"] + row["num_context"])
            row["is_target"] = [post >= timeline.num_context and label != NO_LABEL for post, label in posts]
        if any(row.get("is_target", [True])):
            rows.append(row)
    return rows, num_cut
