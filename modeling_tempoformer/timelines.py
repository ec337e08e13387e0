"""From posts (one row each) to timelines to rows for the model."""

import numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .data_collator_tempoformer import tokenize_posts
from .timestamps_tempoformer import to_seconds
from .windows_tempoformer import row_bounds


logger = logging.get_logger(__name__)

Posts = Dataset | IterableDataset


class PostError(ValueError):
    """A post that cannot be read: names its row (counting from 0), the column and the value."""

    def __init__(self, row: int, column: str, value: Any, problem: str):
        super().__init__(f"Row {row} (counting from 0), column '{column}', value {value!r}: {problem}.")


def to_name(value: Any) -> str | None:
    """A label or an id as text, None where it is missing; a whole float (as in a column with gaps) as integer."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value).is_integer():
        return str(int(value))
    return str(value)


def label_names(posts: Posts, column: str = "label") -> list[str]:
    """The distinct labels of `posts`, in numeric order where all are integers, else in alphabetical order."""
    names = {name for post in posts.select_columns([column]) if (name := to_name(post[column])) is not None}
    whole = all(name.lstrip("-").isdigit() for name in names)
    return sorted(names, key=int if whole else None)


def read_posts(
    posts: Iterable[dict[str, Any]],
    labels: Sequence[str] | None,
    columns: dict[str, str],
) -> Iterator[dict[str, Any]]:
    """Checks each post and yields it as (post_id, timeline_id, timestamp in seconds, text, label as a class id)."""
    for row, post in enumerate(posts):
        for role in ("timeline_id", "text"):
            if columns[role] not in post:
                raise ValueError(f"There is no column '{columns[role]}' for the {role}; there are: {', '.join(post)}.")
        timeline_id = to_name(post[columns["timeline_id"]])
        if timeline_id is None:
            raise PostError(
                row, columns["timeline_id"], post[columns["timeline_id"]], "a timeline id must not be null"
            )
        text = post[columns["text"]]
        if not isinstance(text, str):
            raise PostError(row, columns["text"], text, "a text must be a string; an empty one is legal")
        timestamp = None
        if columns.get("timestamp") in post:
            try:
                timestamp = to_seconds(post[columns["timestamp"]])
            except ValueError as problem:
                raise PostError(row, columns["timestamp"], post[columns["timestamp"]], str(problem)) from None
        name = to_name(post.get(columns.get("label")))
        if name is not None and labels is not None and name not in labels:
            known = ", ".join(labels)
            raise PostError(row, columns["label"], post[columns["label"]], f"not one of the labels ({known})")
        if columns["id"] is not None and columns["id"] not in post:
            raise ValueError(f"There is no column '{columns['id']}' for the id; there are: {', '.join(post)}.")
        post_id = str(row) if columns["id"] is None else to_name(post[columns["id"]])
        yield {
            "row": row,
            "post_id": post_id,
            "timeline_id": timeline_id,
            "timestamp": timestamp,
            "text": text,
            "label": -100 if name is None or labels is None else labels.index(name),
        }


def make_timeline(posts: list[dict[str, Any]], columns: dict[str, str]) -> tuple[dict[str, Any], bool]:
    """One timeline of checked posts, sorted by time (ties keep their order), and whether it had to be sorted."""
    times = [post["timestamp"] for post in posts]
    is_sorted = True
    if any(time is not None for time in times):
        for post in posts:
            if post["timestamp"] is None:
                problem = f"missing, while timeline '{post['timeline_id']}' has others"
                raise PostError(post["row"], columns["timestamp"], None, problem)
        is_sorted = all(earlier <= later for earlier, later in zip(times, times[1:], strict=False))
        posts = sorted(posts, key=lambda post: post["timestamp"])
    timeline = {
        "timeline_id": posts[0]["timeline_id"],
        "post_ids": [post["post_id"] for post in posts],
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
    timestamp_column: str = "timestamp",
    text_column: str = "text",
    label_column: str = "label",
    id_column: str | None = None,
) -> Posts:
    """
    Groups posts to timelines.

    Args:
        posts (`Dataset` or `IterableDataset`): One row for each post. In a streaming dataset the posts of a timeline
            must follow each other.
        labels (`list[str]`, *optional*): The label names, in the order of their class ids; posts are unlabelled if
            omitted. A post may lack a label.
        timeline_column, timestamp_column, text_column, label_column, id_column (`str`, *optional*): Column names.
            Times may be whatever [`to_seconds`] reads; without the column timelines are untimed and keep their order.
            Without `id_column` a post's id is its row.

    Returns:
        A dataset of the same kind, one row for each timeline in the order of its first post: `timeline_id`,
        `post_ids`, `timestamps` (seconds; absent where untimed), `texts`, `labels` (class ids, -100 = none). Raises a
        [`PostError`] that names the first bad row, column and value.
    """
    columns = {"timeline_id": timeline_column, "timestamp": timestamp_column, "text": text_column}
    columns |= {"label": label_column, "id": id_column}
    if isinstance(posts, Dataset):
        groups: dict[str, list] = {}
        seen: set[str | None] = set()
        for post in read_posts(posts, labels, columns):
            if post["post_id"] in seen or post["post_id"] is None:
                problem = "a post id must be unique and not null"
                raise PostError(post["row"], id_column, post["post_id"], problem)
            seen.add(post["post_id"])
            groups.setdefault(post["timeline_id"], []).append(post)
        made = [make_timeline(group, columns) for group in groups.values()]
        if unsorted := sum(was_unsorted for _, was_unsorted in made):
            logger.warning(f"Sorted the posts of {unsorted} timelines by time.")
        timelines = [timeline for timeline, _ in made]
        if len({"timestamps" in timeline for timeline in timelines}) > 1:
            untimed = next(timeline["timeline_id"] for timeline in timelines if "timestamps" not in timeline)
            raise ValueError(f"Timeline '{untimed}' has no timestamps, others have: all must, or none.")
        return Dataset.from_list(timelines)
    # A tuple, because a list would be taken for shards.
    names = None if labels is None else tuple(labels)
    return IterableDataset.from_generator(
        stream_timelines, gen_kwargs={"posts": posts, "labels": names, "columns": columns}
    )


def stream_timelines(
    posts: IterableDataset, labels: tuple[str, ...] | None, columns: dict[str, str]
) -> Iterator[dict]:
    """Timelines of a stream of posts, each as soon as it is complete."""
    finished: set[str] = set()
    group: list[dict[str, Any]] = []
    warned = False
    for post in read_posts(posts, labels, columns):
        if group and post["timeline_id"] != group[0]["timeline_id"]:
            timeline, was_unsorted = make_timeline(group, columns)
            if was_unsorted and not warned:
                logger.warning(f"Sorting posts by time, first in timeline '{timeline['timeline_id']}'.")
                warned = True
            yield timeline
            finished.add(timeline["timeline_id"])
            group = []
        if post["timeline_id"] in finished:
            problem = "the posts of a timeline must follow each other in a streaming dataset"
            raise PostError(post["row"], columns["timeline_id"], post["timeline_id"], problem)
        group.append(post)
    if group:
        yield make_timeline(group, columns)[0]


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
        A dataset of the same kind with the columns of the tokenizer, `timestamps`, `num_context`, `labels` (one for
        each post after the context, None = not a target) and `post_ids` (of the posts after the context).
    """
    for name, value in (("window", window), ("targets_per_row", targets_per_row)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    limit = min(max_seq_length or tokenizer.model_max_length, tokenizer.model_max_length)
    if max_seq_length is not None and max_seq_length > limit:
        logger.warning(f"`max_seq_length={max_seq_length}` is more than the tokenizer's limit; using {limit}.")
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


def stream_rows(timelines: IterableDataset, **settings) -> Iterator[dict[str, Any]]:
    """Rows of a stream of timelines."""
    for timeline in timelines:
        rows = timeline_to_rows({name: [value] for name, value in timeline.items()}, **settings)
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
) -> dict[str, list]:
    """The rows of a batch of one timeline."""
    timeline = {name: values[0] for name, values in batch.items()}
    columns, cut = tokenize_posts(tokenizer, timeline["texts"], limit)
    if truncated is not None:
        truncated[0] += cut
    elif cut:
        logger.warning_once(f"Truncating posts of more than {limit} tokens.")
    if timeline.get("timestamps") is not None:
        columns["timestamps"] = timeline["timestamps"]
    labels = [None if only_labelled and label == -100 else label for label in timeline["labels"]]
    rows: dict[str, list] = {name: [] for name in (*columns, "num_context", "labels", "post_ids")}
    for start, first, last in row_bounds(len(labels), window, targets_per_row):
        if all(label is None for label in labels[first:last]):
            continue
        for name, values in columns.items():
            rows[name].append(values[start:last])
        rows["num_context"].append(first - start)
        rows["labels"].append(labels[first:last])
        rows["post_ids"].append(timeline["post_ids"][first:last])
    return rows
