"""
Makes timelines of the rows that [`load_table`] reads ([`make_timelines`]). Training, prediction, the page, the
comparison and the Space read posts so. Scoring, which holds no whole file in memory, reads
each piece in the same way ([`~tables.read_tables`], [`~timelines.read_posts`]).
"""

import logging
from collections import Counter
from collections.abc import Mapping

from datasets import Dataset, IterableDataset

from ..common.columns import NO_COLUMN, Columns, column_names
from ..common.table_arguments import PostArguments, columns_of
from ..timeline_tempoformer import NO_LABEL, Timeline
from .metadata import describe_annotators
from .post_errors import PostError
from .states import check_step, with_changes
from .tables import find_files
from .timelines import TimelineStream, group_posts


logger = logging.getLogger(__name__)


def make_timelines(
    posts: Mapping[str, Dataset | IterableDataset],
    arguments: PostArguments,
    names: list[str],
    change_step: float | None = None,
) -> dict[str, list[Timeline] | TimelineStream]:
    """
    Makes timelines as a training does.

    Args:
        posts (`Mapping[str, Dataset | IterableDataset]`): The posts of each split, one row for each.
        arguments (`PostArguments`): The columns, and whether incomplete rows are left out.
        names (`list[str]`): The classes, in the order of their ids.
        change_step (`float`, *optional*): Where posts have states and no labels: a post is a change if its state
            differs from the one before by so much or more; 0 for states that are classes, if it is another.

    Returns:
        `dict[str, list[Timeline] | TimelineStream]`: The timelines of each split. Raises a `ValueError` that names the
        file, or the dataset, for what [`to_timelines`] refuses.
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
        "%s: there is no column of labels. A post is a change if its state differs %s from the state of %s previous "
        "post: %d changes, %d not, %d without one of both states.",
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
