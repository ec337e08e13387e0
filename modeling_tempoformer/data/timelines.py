"""From posts (one row each) to timelines."""

import numbers
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from datasets import ClassLabel, Dataset, IterableDataset
from torch.utils.data import get_worker_info
from transformers.utils import logging

from ..data_collator_tempoformer import TimeColumn, looks_shortened
from .tables import check_column


logger = logging.get_logger(__name__)

Posts = Dataset | IterableDataset
NO_LABEL = -100
# What programs write where there is nothing, in lower case. "None" and "NA" may be the name of a class.
NOTHING = ("nan", "null", "<na>")
WHOLE_FLOAT = re.compile(r"(-?[0-9]+)\.0+")
# Larger whole numbers may differ and be the same float.
LARGEST_EXACT_FLOAT = 2**53
JOINERS = dict.fromkeys((0x200C, 0x200D))
# Columns that are read without being named, if the table has them.
USUAL = {"timestamp": "timestamp", "label": "label", "speaker": "speaker"}


class PostError(ValueError):
    """
    A post that cannot be read.

    Args:
        row (`int`): Row of the post, counting from 0.
        column (`str`): Column that cannot be read.
        value: What it holds.
        problem (`str`): What is wrong with it.
    """

    def __init__(self, row: int, column: str, value: Any, problem: str):
        super().__init__(f"Row {row} (counting from 0), column '{column}', value {value!r}: {problem}.")


class Post(NamedTuple):
    """A checked post. Times are seconds, labels class ids; `speaker` is None without such a column."""

    row: int
    post_id: str
    timeline_id: str
    timestamp: float | None
    text: str
    label: int
    speaker: str | None


def to_name(value: Any) -> str | None:
    """
    A label or an id as text without white space around it, None if it is missing. Whole floats become integers, since
    tables make floats of the integers of a column with gaps.
    """
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and value % 1 == 0:
        return str(int(value))
    return str(value)


def without_zeros(name: str) -> str:
    """`7` for the text `7.0`, any other text as it is."""
    match = WHOLE_FLOAT.fullmatch(name)
    return match[1] if match else name


def to_label(value: Any) -> str | None:
    """A label as [`to_name`] gives it, with `1` for `1.0`; None for -100, NaN, null and `<NA>`, also as text."""
    name = to_name(value)
    if name is None or name.lower() in NOTHING:
        return None
    name = without_zeros(name)
    return None if name == str(NO_LABEL) else name


def is_visible(name: str) -> bool:
    """Whether a name can be told from others by its look. Persian and emojis need joiners, which cannot be seen."""
    return name.translate(JOINERS).isprintable()


def check_labels(names: Iterable[str]):
    """
    Raises a `ValueError` for names that differ at most in case or white space, that mean no label, or that have
    control characters or others that cannot be seen.
    """
    names = list(names)
    if hidden := [name for name in names if not is_visible(name)]:
        raise ValueError(f"Labels have characters that cannot be seen: {', '.join(map(repr, hidden))}. Replace them.")
    alike: dict[str, list[str]] = {}
    for name in names:
        if (label := to_label(name)) is None:
            raise ValueError(f"A class cannot be named {name!r}, which means that a post has no label: rename it.")
        alike.setdefault("".join(label.casefold().split()), []).append(name)
    if same := [", ".join(map(repr, group)) for group in alike.values() if len(group) > 1]:
        raise ValueError(
            f"Labels that differ at most in case or white space are two classes: {'; '.join(same)}. Write them alike "
            "in all files, and name each once in --labels."
        )


def class_label(posts: Posts, column: str) -> ClassLabel | None:
    """The dataset's own names for the integers of a column, if it has any."""
    feature = (posts.features or {}).get(column)
    return feature if isinstance(feature, ClassLabel) else None


def label_names(posts: Posts, column: str = "label") -> list[str]:
    """
    The names of the classes.

    Args:
        posts (`Dataset` or `IterableDataset`): One row for each post; all rows are read.
        column (`str`, *optional*, defaults to `"label"`): The column of labels.

    Returns:
        `list[str]`: The names of a `ClassLabel` column in their order; else the distinct labels, in numeric order
        if all are integers, and in alphabetical order otherwise. White space around labels does not count, and `1.0`
        is `1`; empty cells, -100, NaN and null are no labels, also as text. Raises a `ValueError` if there is no such
        column, or if labels differ only in case or white space.
    """
    check_column(posts.column_names or list(next(iter(posts), ())), column, "label")
    if named := class_label(posts, column):
        return list(named.names)
    cells = (value for batch in posts.select_columns([column]).iter(1000) for value in batch[column])
    names = {to_label(value) for value in cells} - {None}
    check_labels(sorted(names))
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name), name) if whole else name)


def read_posts(
    posts: Posts, labels: Sequence[str] | None, columns: dict[str, str | None], times: TimeColumn | None = None
) -> Iterator[Post]:
    """
    Checks the posts one by one. `columns` names the column of each role; where it has None for the timestamp or the
    label, the usual column is read if there is one. `times`, if given, reads the times, and knows their kind then.
    """
    required = {role: column for role, column in columns.items() if column is not None}
    columns = {**USUAL, **required, "id": columns["id"]}
    named = class_label(posts, columns["label"])
    known = {name if named else to_label(name): label for label, name in enumerate(labels or ())}
    for role in ("timeline", "id", "timestamp"):
        dtype = getattr((posts.features or {}).get(columns[role]), "dtype", None)
        if dtype in ("float16", "float32"):
            raise ValueError(f"Column '{columns[role]}' is in {dtype}, which is too coarse: save it in 64 bits.")
    times, row, timeline_id, seen = times or TimeColumn(), -1, None, set()
    for batch in posts.iter(1000):
        for role, column in required.items():
            check_column(batch, column, role)
        missing = [None] * len(batch[columns["text"]])
        for values in zip(*(batch.get(column, missing) for column in columns.values()), strict=True):
            row += 1
            post = dict(zip(columns, values, strict=True))
            for role in ("timeline", "id"):
                if lost_digits(post[role]):
                    problem = "the id has lost digits, as in a spreadsheet or in floats; export the column as text"
                    raise PostError(row, columns[role], post[role], problem)
            previous, timeline_id = timeline_id, to_name(post["timeline"])
            if timeline_id is None:
                raise PostError(row, columns["timeline"], post["timeline"], "a timeline id must not be missing")
            if columns["id"] is None:
                post_id = str(row)
            else:
                post_id = to_name(post["id"])
                if timeline_id != previous and isinstance(posts, IterableDataset):
                    seen.clear()  # The ids of all streamed posts would fill the memory.
                if post_id in seen or post_id is None:
                    raise PostError(row, columns["id"], post["id"], "a post id must be unique and not missing")
                seen.add(post_id)
            if not isinstance(post["text"], str):
                raise PostError(row, columns["text"], post["text"], "a text must be a string; it may be empty")
            try:
                timestamp = times.read(f"row {row}", post["timestamp"])
            except ValueError as problem:
                raise PostError(row, columns["timestamp"], post["timestamp"], str(problem)) from None
            label = post["label"]
            if named is None or label is None:
                label = to_label(label)
            else:
                if label >= len(named.names):
                    problem = f"the dataset names only the labels 0 to {len(named.names) - 1}"
                    raise PostError(row, columns["label"], label, problem)
                label = named.names[label] if label >= 0 else None
            if labels is not None and label is not None and label not in known:
                problem = f"the label is not one of {', '.join(labels)}"
                raise PostError(row, columns["label"], post["label"], problem)
            speaker = (to_name(post["speaker"]) or "") if columns["speaker"] in batch else None
            yield Post(row, post_id, timeline_id, timestamp, post["text"], known.get(label, NO_LABEL), speaker)
    if times.warning is not None:
        logger.warning_once(f"Column '{columns['timestamp']}': {times.warning}")


def lost_digits(value: Any) -> bool:
    """Whether a number was shortened, or is a float too large to hold all its digits: different ids may be equal."""
    return looks_shortened(value) or (isinstance(value, float) and abs(value) > LARGEST_EXACT_FLOAT)


def make_timelines(posts: Iterable[Post], columns: dict[str, str | None]) -> Iterator[dict[str, Any]]:
    """Timelines of posts that follow each other."""
    finished: set[str] = set()
    for timeline_id, group in groupby(posts, key=lambda post: post.timeline_id):
        of_timeline = list(group)
        if timeline_id in finished:
            problem = "the posts of a timeline must follow each other in a streaming dataset; sort the file by it"
            raise PostError(of_timeline[0].row, columns["timeline"], timeline_id, problem)
        finished.add(timeline_id)
        timed = of_timeline[0].timestamp is not None
        ordered = sorted(of_timeline, key=lambda post: post.timestamp) if timed else of_timeline
        if ordered != of_timeline:
            logger.warning_once("Sorting the posts of timelines by time.")
        timeline = {
            "timeline_id": timeline_id,
            "post_ids": [post.post_id for post in ordered],
            "post_rows": [post.row for post in ordered],
            "texts": [post.text for post in ordered],
            "labels": [post.label for post in ordered],
        }
        if timed:
            timeline["timestamps"] = [post.timestamp for post in ordered]
        if of_timeline[0].speaker is not None:
            timeline["speakers"] = [post.speaker for post in ordered]
        yield timeline


def to_timelines(
    posts: Posts,
    labels: list[str] | None = None,
    timeline_column: str = "timeline_id",
    timestamp_column: str | None = None,
    text_column: str = "text",
    label_column: str | None = None,
    id_column: str | None = None,
    speaker_column: str | None = None,
) -> Posts:
    """
    Groups posts to timelines.

    Args:
        posts (`Dataset` or `IterableDataset`): One row for each post. In a streaming dataset the posts of a timeline
            must follow each other.
        labels (`list[str]`, *optional*): The label names, in the order of their class ids. All posts are unlabelled
            if omitted; single posts may be.
        timeline_column, timestamp_column, text_column, label_column, id_column, speaker_column (`str`, *optional*):
            Column names. By default, times are read from a column "timestamp", labels from a column "label", and the
            names of speakers, which people read and models do not, from a column "speaker", if there is one. Times are
            all ISO-8601, all numbers of seconds, or all missing (see [`to_seconds`]); without them, timelines keep
            the order of their posts. Without `id_column` a post's id is its row; ids must be unique (in a streaming
            dataset within each timeline).

    Returns:
        `Dataset` or `IterableDataset`, as `posts` is: one row for each timeline in the order of its first post, with
        `timeline_id`, `post_ids`, `post_rows` (in `posts`), `timestamps` (seconds; absent without times), `texts`,
        `labels` (class ids, -100 = none), `speakers` (absent without their column). Raises a [`PostError`] that names
        the first bad row, column and value, and a `ValueError` for the `labels` that [`check_labels`] refuses, for
        times or ids in floats of fewer than 64 bits, and if several workers of a DataLoader read a streamed dataset of
        several shards.
    """
    check_labels(labels or ())
    columns = {"timeline": timeline_column, "timestamp": timestamp_column, "text": text_column}
    columns |= {"label": label_column, "id": id_column, "speaker": speaker_column}
    if isinstance(posts, IterableDataset):
        # A tuple, because a list would be taken for shards.
        names = None if labels is None else tuple(labels)
        settings = {"posts": posts, "labels": names, "columns": columns}
        return IterableDataset.from_generator(streamed_timelines, gen_kwargs=settings)
    groups: dict[str, list[Post]] = {}
    for post in read_posts(posts, labels, columns):
        groups.setdefault(post.timeline_id, []).append(post)
    return Dataset.from_list(list(make_timelines(chain.from_iterable(groups.values()), columns)))


def check_workers(streamed: IterableDataset):
    """Raises a `ValueError` if a worker would be given only a share of what must be read whole."""
    worker = get_worker_info()
    if worker is not None and worker.num_workers > 1 and streamed.num_shards > 1:
        raise ValueError(
            f"{streamed.num_shards} shards of streamed posts cannot be read with `num_workers={worker.num_workers}` "
            "of the DataLoader, which would lose posts: at most 1 (`--dataloader_num_workers`)."
        )


def streamed_timelines(
    posts: IterableDataset, labels: tuple[str, ...] | None, columns: dict[str, str | None]
) -> Iterator[dict[str, Any]]:
    """Timelines of streamed posts, each as soon as it is complete."""
    check_workers(posts)
    yield from make_timelines(read_posts(posts, labels, columns), columns)
