"""From posts (one row each) to timelines to rows for the model."""

import numbers
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from itertools import groupby, islice
from typing import Any

from datasets import ClassLabel, Dataset, IterableDataset
from torch.utils.data import get_worker_info
from transformers.utils import logging

from ..timestamps_tempoformer import looks_cut_short, other_reading, to_seconds


logger = logging.get_logger(__name__)

Posts = Dataset | IterableDataset
NO_LABEL = -100
# Of a longer streamed timeline only so many posts are held at a time.
POSTS_AT_ONCE = 10_000
YEARS = range(1000, 3000)


class PostError(ValueError):
    """
    A post that cannot be read.

    Args:
        row (`int`): Of the post, counting from 0.
        column (`str`): That could not be read.
        value: What it holds.
        problem (`str`): What is wrong with it.
    """

    def __init__(self, row: int, column: str, value: Any, problem: str):
        super().__init__(f"Row {row} (counting from 0), column '{column}', value {value!r}: {problem}.")


def to_name(value: Any) -> str | None:
    """A label or an id as text, None where it is missing; a whole float (as in a column with gaps) as integer."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and value % 1 == 0:
        return str(int(value))
    if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
        # What reads JSON takes 2024-05-01 for a moment.
        return value.date().isoformat()
    return str(value)


def to_label(value: Any) -> str | None:
    """A label without the white space around it, None where there is none: it is missing, or -100 (also as -100.0)."""
    name = to_name(value.strip() if isinstance(value, str) else value)
    try:
        return None if name is None or float(name) == NO_LABEL else name
    except ValueError:
        return name


def class_label(posts: Posts, column: str) -> ClassLabel | None:
    """The names that the dataset itself has for the integers of a column, if any."""
    feature = (posts.features or {}).get(column)
    return feature if isinstance(feature, ClassLabel) else None


def label_names(posts: Posts, column: str = "label") -> list[str]:
    """
    The names of the classes.

    Args:
        posts (`Dataset` or `IterableDataset`): One row for each post; all of them are looked at.
        column (`str`, *optional*, defaults to `"label"`): Of the labels.

    Returns:
        `list[str]`: The names of a `ClassLabel` column in their order; else the distinct labels, in numeric order
        where all are integers, and in alphabetical order otherwise. White space around them does not count; empty
        cells and -100 are no labels. Raises a `ValueError` where there is no such column.
    """
    present = posts.column_names or list(next(iter(posts), ()))
    if column not in present:
        raise ValueError(f"There is no column '{column}' for the label; there are: {', '.join(present)}.")
    if named := class_label(posts, column):
        return list(named.names)
    names = {name for post in posts.select_columns([column]) if (name := to_label(post[column])) is not None}
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=int if whole else None)


def read_posts(posts: Posts, labels: Sequence[str] | None, columns: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    """
    Checks each post and yields it as (row, post_id, timeline_id, timestamp in seconds, text, label as a class id).

    `columns` names the column of each role; None for a timestamp or label takes the usual name, if it is there.
    """
    usual = {"timestamp": "timestamp", "label": "label"}
    named = class_label(posts, columns["label"] or "label")
    newest, are_years = None, None
    readings: set[str | None] = set()
    known = labels if labels is None or named is not None else [to_label(label) for label in labels]
    for row, post in enumerate(posts):
        for role, column in columns.items():
            if column is not None and column not in post:
                raise ValueError(f"There is no column '{column}' for the {role}; there are: {', '.join(post)}.")
        at = {role: column or usual.get(role) for role, column in columns.items()}
        timeline_id = to_name(post[at["timeline_id"]])
        if timeline_id is None:
            raise PostError(row, at["timeline_id"], post[at["timeline_id"]], "a timeline id must not be null")
        for column in (at["timeline_id"], at["id"]):
            if column is not None and looks_cut_short(post[column]):
                problem = "the last digits of this id are missing, as where a spreadsheet shortens numbers"
                raise PostError(row, column, post[column], problem)
        text = post[at["text"]]
        if not isinstance(text, str):
            raise PostError(row, at["text"], text, "a text must be a string; an empty one is legal")
        timestamp = None
        if at["timestamp"] in post:
            try:
                timestamp = to_seconds(post[at["timestamp"]])
            except ValueError as problem:
                raise PostError(row, at["timestamp"], post[at["timestamp"]], str(problem)) from None
            if timestamp is not None:
                are_years = are_years is not False and timestamp in YEARS
                if None not in readings:
                    newest = row, at["timestamp"], post[at["timestamp"]]
                    readings.add(other_reading(newest[-1]))
        label = post.get(at["label"])
        if named is not None and label is not None:
            if label >= len(named.names):
                raise PostError(row, at["label"], label, f"not one of the {len(named.names)} labels of the dataset")
            name = named.names[label] if label >= 0 else None
        else:
            name = to_label(label)
        if name is not None and known is not None and name not in known:
            raise PostError(row, at["label"], post[at["label"]], f"not one of the labels ({', '.join(labels)})")
        yield {
            "row": row,
            "post_id": str(row) if at["id"] is None else to_name(post[at["id"]]),
            "timeline_id": timeline_id,
            "timestamp": timestamp,
            "text": text,
            "label": -100 if name is None or known is None else known.index(name),
        }
    # One of them may be a number of seconds, all of them hardly.
    if len(readings) == 1 and None not in readings:
        raise PostError(*newest, f"it and all others would be seconds; {readings.pop()}")
    if are_years:
        logger.warning("All times are whole numbers as years are, and read as seconds; a year is written 2024-01-01.")


def make_timeline(posts: list[dict[str, Any]], columns: dict[str, str]) -> tuple[dict[str, Any], bool]:
    """One timeline of checked posts, sorted by time (ties keep their order), and whether it had to be sorted."""
    times = [post["timestamp"] for post in posts]
    is_sorted = True
    if any(time is not None for time in times):
        for post in posts:
            if post["timestamp"] is None:
                problem = f"missing, while timeline {post['timeline_id']!r} has others"
                raise PostError(post["row"], columns["timestamp"] or "timestamp", None, problem)
        is_sorted = all(earlier <= later for earlier, later in zip(times, times[1:], strict=False))
        posts = sorted(posts, key=lambda post: post["timestamp"])
    timeline = {
        "timeline_id": posts[0]["timeline_id"],
        "post_ids": [post["post_id"] for post in posts],
        "post_rows": [post["row"] for post in posts],
        "texts": [post["text"] for post in posts],
        "labels": [post["label"] for post in posts],
    }
    if times[0] is not None:
        timeline["timestamps"] = [post["timestamp"] for post in posts]
    return timeline, not is_sorted


def to_timelines(
    posts: Posts,
    labels: list[str] | None = None,
    timeline_column: str = "timeline_id",
    timestamp_column: str | None = None,
    text_column: str = "text",
    label_column: str | None = None,
    id_column: str | None = None,
) -> Posts:
    """
    Groups posts to timelines.

    Args:
        posts (`Dataset` or `IterableDataset`): One row for each post. In a streaming dataset the posts of a timeline
            must follow each other, and be in order of time where there are more than 10,000.
        labels (`list[str]`, *optional*): The label names, in the order of their class ids; posts are unlabelled if
            omitted. A post may lack a label.
        timeline_column, timestamp_column, text_column, label_column, id_column (`str`, *optional*): Column names.
            A column that is named must be there. Where none is named, times are taken from a column "timestamp" and
            labels from a column "label" if there is one. Times may be whatever [`to_seconds`] reads; without them
            timelines are untimed and keep their order. Without `id_column` a post's id is its row; ids must be unique
            (in a streaming dataset among 10,000 posts of a timeline, as no more are held).

    Returns:
        `Dataset` or `IterableDataset`, as `posts` is: one row for each timeline in the order of its first post, with
        `timeline_id`, `post_ids`, `post_rows` (in `posts`), `timestamps` (seconds; absent where untimed), `texts`,
        `labels` (class ids, -100 = none). A streamed timeline of more than 10,000 posts comes in several rows. Raises
        a [`PostError`] that names the first bad row, column and value, and a `ValueError` where several workers of a
        DataLoader read a stream of several shards.
    """
    columns = {"timeline_id": timeline_column, "timestamp": timestamp_column, "text": text_column}
    columns |= {"label": label_column, "id": id_column}
    if isinstance(posts, Dataset):
        groups: dict[str, list] = {}
        seen: set[str | None] = set()
        for post in read_posts(posts, labels, columns):
            check_id(post, seen, id_column)
            groups.setdefault(post["timeline_id"], []).append(post)
        made = [make_timeline(group, columns) for group in groups.values()]
        if unsorted := sum(was_unsorted for _, was_unsorted in made):
            logger.warning(f"Sorted the posts of {unsorted} timelines by time.")
        timelines = [timeline for timeline, _ in made]
        if len({"timestamps" in timeline for timeline in timelines}) > 1:
            untimed = next(timeline["timeline_id"] for timeline in timelines if "timestamps" not in timeline)
            raise ValueError(f"Timeline {untimed!r} has no timestamps, others have: all must, or none.")
        return Dataset.from_list(timelines)
    # A tuple, because a list would be taken for shards.
    names = None if labels is None else tuple(labels)
    return IterableDataset.from_generator(
        stream_timelines, gen_kwargs={"posts": posts, "labels": names, "columns": columns}
    )


def check_id(post: dict[str, Any], seen: set[str], column: str | None):
    """Adds the id of a post to those that were seen. Raises a [`PostError`] if it was, or where there is none."""
    if post["post_id"] in seen or post["post_id"] is None:
        raise PostError(post["row"], column, post["post_id"], "a post id must be unique and not null")
    seen.add(post["post_id"])


def check_workers(stream: IterableDataset):
    """Raises a `ValueError` where a worker would be given only its share of what it alone goes through."""
    worker = get_worker_info()
    if worker is not None and worker.num_workers > 1 and stream.num_shards > 1:
        raise ValueError(
            f"A stream of {stream.num_shards} shards cannot be read with `num_workers={worker.num_workers}` of the "
            "DataLoader, which would lose posts: at most 1 (`--dataloader_num_workers`)."
        )


def stream_timelines(
    posts: IterableDataset, labels: tuple[str, ...] | None, columns: dict[str, str | None]
) -> Iterator[dict]:
    """Timelines of a stream of posts, each as soon as it is complete or has `POSTS_AT_ONCE` posts."""
    check_workers(posts)
    finished: set[str] = set()
    warned, timed = False, None
    for timeline_id, group in groupby(read_posts(posts, labels, columns), key=lambda post: post["timeline_id"]):
        newest = None
        while members := list(islice(group, POSTS_AT_ONCE)):
            if timeline_id in finished:
                problem = "the posts of a timeline must follow each other in a streaming dataset"
                raise PostError(members[0]["row"], columns["timeline_id"], timeline_id, problem)
            seen: set[str] = set()
            for post in members:
                check_id(post, seen, columns["id"])
            timeline, was_unsorted = make_timeline(members, columns)
            if timed is not None and timed != ("timestamps" in timeline):
                has = "has no timestamps, others have" if timed else "has timestamps, others have none"
                raise ValueError(f"Timeline {timeline_id!r} {has}: all must, or none.")
            timed = "timestamps" in timeline
            if timed and newest is not None and timeline["timestamps"][0] < newest:
                problem = f"earlier than {newest}; so long a timeline must be in order of time in a streaming dataset"
                column = columns["timestamp"] or "timestamp"
                raise PostError(timeline["post_rows"][0], column, timeline["timestamps"][0], problem)
            newest = timeline["timestamps"][-1] if timed else None
            if was_unsorted and not warned:
                logger.warning(f"Sorting posts by time, first in timeline {timeline_id!r}.")
                warned = True
            yield timeline
        finished.add(timeline_id)
