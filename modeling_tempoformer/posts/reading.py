"""
Reads files to rows ([`read_file`]), and rows of posts to timelines ([`make_timelines`]). Training, prediction, the
page, the comparison and the Space read posts by these functions. Scoring, which holds no whole file in memory, reads
each piece in the same way ([`~tables.read_tables`], [`~timelines.read_posts`]).
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from datasets import Dataset, IterableDataset

from ..timeline_tempoformer import NO_LABEL, Timeline
from .arguments import PostArguments, TableArguments
from .columns import NEEDED, NO_COLUMN, ROLES, TIMELINE, USUAL, Columns, read_columns
from .metadata import describe_annotators
from .post_errors import PostError
from .states import check_step, with_changes
from .tables import find_files, load_table, stream_table
from .timelines import TimelineStream, column_names, group_posts


logger = logging.getLogger(__name__)

# Options for the files of tables
OF_FILES = {"records": "--records", "one_timeline": "--columns timeline=none", "missing": "--missing"}


def read_file(path: str, streaming: bool = False, **form: Any) -> Dataset | IterableDataset:
    """
    Reads the rows of a table, which may be streamed. `form` has the arguments of [`load_table`]: those of [`form_of`]
    for posts.
    """
    return stream_table(find_files(path), **form) if streaming else load_table(path, **form)


def columns_of(arguments: TableArguments) -> Columns:
    """Returns the names of the columns of posts."""
    columns = Columns({**dict.fromkeys(ROLES), **NEEDED, **read_columns(arguments.columns, arguments.roles)})
    if columns["timeline"] == NO_COLUMN:
        # The name of the file is written there.
        columns["timeline"] = TIMELINE
    return columns


def form_of(arguments: PostArguments) -> dict[str, Any]:
    """Returns the arguments of [`load_table`]."""
    columns = columns_of(arguments)
    return {**table_options(arguments), "columns": columns.wanted(), "label": columns["label"] or USUAL["label"]}


def table_options(arguments: TableArguments) -> dict[str, Any]:
    """Returns the arguments of [`load_table`] but the columns."""
    one_timeline = read_columns(arguments.columns, arguments.roles).get("timeline") == NO_COLUMN
    named = {name: getattr(arguments, name) for name in ("records", "drop_incomplete")}
    # A stream would be divided by a list.
    return {**named, "one_timeline": one_timeline, "missing": tuple(arguments.missing)}


def make_timelines(
    posts: Mapping[str, Dataset | IterableDataset],
    arguments: PostArguments,
    names: list[str],
    change_step: float | None = None,
) -> dict[str, list[Timeline] | TimelineStream]:
    """
    Returns the timelines of each split ([`read_timelines`]). Errors name the file, or the dataset.
    """
    timelines = {}
    for name, posts_of_split in posts.items():
        try:
            columns = columns_of(arguments)
            # Only some files may have several annotators, and only posts that are scored need a group.
            others = [rows for other, rows in posts.items() if other != name]
            if has_no_column(posts_of_split, "annotator", columns) and not all(
                has_no_column(rows, "annotator", columns) for rows in others
            ):
                columns["annotator"] = None
            if name == "train" and has_no_column(posts_of_split, "group", columns) and others:
                columns["group"] = None
            form = (change_step, name, arguments.drop_incomplete)
            timelines[name] = read_timelines(posts_of_split, columns, names, *form)
        except ValueError as problem:
            raise with_source(problem, name, arguments) from None
    return timelines


def read_timelines(
    posts: Dataset | IterableDataset,
    columns: Columns,
    names: list[str],
    change_step: float | None = None,
    split: str = "test",
    drop_incomplete: bool = False,
) -> list[Timeline] | TimelineStream:
    """
    Returns the timelines of posts. Their labels are given, or derived from states by `change_step` if posts have no
    column of labels.
    """
    derives = has_only_states(posts, columns)
    # Posts to predict need no states, even if an option names their column.
    if split != "train" and columns["state"] != NO_COLUMN and has_no_column(posts, "state", columns):
        columns = Columns(columns, state=None)
    if columns["annotator"] is not None and derives:
        raise ValueError("--columns annotator=NAME needs a column of labels: there are states alone.")
    timelines = group_posts(posts, names, columns, drop_incomplete)
    if not isinstance(timelines, list):
        if change_step is not None:
            raise ValueError("a stream needs a column of labels: changes are derived from states that are held.")
        return timelines
    if change_step is not None and derives:
        timelines = derive_labels(timelines, change_step, split)
    if columns["annotator"] is not None:
        logger.info("%s: %s", split, describe_annotators(timelines))
    return timelines


def has_only_states(posts: Dataset | IterableDataset, columns: Columns) -> bool:
    """Tells whether posts have states and no labels, so that labels are derived from states."""
    if columns["label"] not in (None, NO_COLUMN):
        return False
    return has_no_column(posts, "label", columns) and not has_no_column(posts, "state", columns)


def has_no_column(posts: Dataset | IterableDataset, role: str, columns: Columns) -> bool:
    """Tells whether posts have no column of a role."""
    return columns.of(role, column_names(posts)) is None


def derive_labels(timelines: list[Timeline], step: float, split: str) -> list[Timeline]:
    """Returns the timelines with labels derived from their states ([`with_changes`]), and logs the counts."""
    check_step(timelines, step)
    derived = [with_changes(timeline, step) for timeline in timelines]
    counts = Counter(label for timeline in derived for label in timeline.labels)
    rule = f"by at least {step:g}" if step else "at all"
    whose = "the same speaker's" if timelines[0].speakers is not None else "the timeline's"
    logger.info(
        "%s: there is no column of labels. A post is a change if its state differs %s from that of %s previous post: "
        "%d changes, %d not, %d without one of both states.",
        *(split, rule, whose, counts[1], counts[0], counts[NO_LABEL]),
    )
    return derived


def with_source(problem: ValueError, split: str, arguments: PostArguments) -> ValueError:
    """Returns the error, with the file or the dataset that it is about."""
    path, message = getattr(arguments, f"{split}_file"), str(problem)
    source = path or f"{arguments.dataset_name}, split {split}"
    if path is not None and isinstance(problem, PostError):
        files = find_files(path)
        # Without a shard, the rows of several files are counted together.
        source = path if problem.shard is None and len(files) > 1 else files[problem.shard or 0]
    # An error about a file names it already.
    return ValueError(message if message.startswith(source) else f"{source}: {message}")
