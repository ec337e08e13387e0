"""
Writes a table of posts whose label says whether a change comes soon.

    tempoformer ahead posts.csv --posts 3 --output ahead.csv
    tempoformer ahead posts.csv --days 2 --output ahead.csv

All other columns stay as they are. A post has no label where the file does not say what comes after it.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from datasets import Dataset

from ..common.columns import USUAL
from ..common.command_line import check_positive, class_named, parse
from ..common.table_arguments import PostArguments, columns_of, form_of
from ..posts.labels_ahead import with_labels_ahead
from ..posts.post_splits import choose_change_step
from ..posts.reading import make_timelines
from ..posts.states import DERIVED_LABELS, no_change_class
from ..posts.surveys import survey
from ..posts.tables import load_table
from ..posts.timelines import label_names
from ..timeline_tempoformer import NO_LABEL, Timeline
from .written_tables import check_output, write_table


logger = logging.getLogger(__name__)

DAY = 86400  # seconds


@dataclass(kw_only=True)
class AheadArguments(PostArguments):
    """The posts, how far to look ahead, and the table to write."""

    posts_file: str = field(metadata={"help": "Table of posts, which may be given without this option's name."})
    output: str = field(metadata={"help": "The table to write, a .csv file."})
    posts: int | None = field(default=None, metadata={"help": "Look at this many next posts that have a label."})
    days: float | None = field(default=None, metadata={"help": "Look at all later posts in this many days."})
    changes: list[str] | None = field(
        default=None,
        metadata={
            "help": "The labels that are a change. Default: all but the one of posts whose state stays, without "
            "states all but the most frequent."
        },
    )
    change_step: float | None = field(
        default=None,
        metadata={
            "help": "Without labels: the smallest difference of two states, which are numbers, that is a change."
        },
    )

    def __post_init__(self):
        if (self.posts is None) == (self.days is None):
            raise ValueError("Give either --posts or --days.")
        check_positive(self, "posts")
        if self.days is not None and not 0 < self.days < float("inf"):
            raise ValueError(f"--days must be a number above 0, got {self.days}.")
        check_output(self.output, self.posts_file)


def main(arguments: list[str]):
    (args,) = parse([AheadArguments], arguments)
    posts = load_table(args.posts_file, **form_of(args))
    change_step = choose_change_step({"posts": posts}, args)
    names = (
        DERIVED_LABELS if change_step is not None else label_names(posts, columns_of(args)["label"] or USUAL["label"])
    )
    timelines = make_timelines({"posts": posts}, args, names, change_step)["posts"]
    changes = choose_changes(timelines, names, args.changes, change_step)
    seconds = None if args.days is None else args.days * DAY
    timelines = [with_labels_ahead(timeline, changes, args.posts, seconds) for timeline in timelines]

    labels = [names[label] for label in changes]
    logger.info("A change is a post with the label %s (--changes).", " or ".join(labels))
    reach = f"within {args.posts} post" if args.days is None else f"within {args.days:g} day"
    reach += "s" * (1 not in (args.posts, args.days))
    ahead = [f"none {reach}", f"{' or '.join(labels)} {reach}"]
    table = with_labels(posts, args, timelines, ahead)
    write_table(table.to_pandas(integer_object_nulls=True), args.output)
    report(args.output, timelines, ahead, len(posts))


def choose_changes(
    timelines: Sequence[Timeline], names: Sequence[str], changes: Sequence[str] | None, change_step: float | None
) -> list[int]:
    """
    Returns the class ids that are a change: the given `changes`; else all but [`no_change_class`], of labels that were
    derived by a `change_step` all but the first. Raises a `ValueError` if no class or each class is a change.
    """
    if changes is not None:
        chosen = {class_named(name, names, "changes") for name in changes}
    else:
        summary = survey(timelines)
        no_change = 0 if change_step is not None else no_change_class(summary.labels, summary.unchanged, len(names))
        chosen = set(range(len(names))) - {no_change}
    if not 0 < len(chosen) < len(names):
        raise ValueError(
            f"--changes must be some of the labels, and not all; the labels are: {', '.join(names) or 'none'}."
        )
    return sorted(chosen)


def with_labels(posts: Dataset, args: AheadArguments, timelines: Sequence[Timeline], names: Sequence[str]) -> pa.Table:
    """
    Returns the rows of posts that are in the timelines, with the names of their labels in the column of labels. A post
    with rows of several annotators has its first row, and no column of annotators.
    """
    columns = columns_of(args)
    rows = {
        row: None if label == NO_LABEL else names[label]
        for timeline in timelines
        for row, label in zip(timeline.input_rows, timeline.labels, strict=True)
    }
    table = posts.select(sorted(rows)).with_format("arrow")[:]
    labels = pa.array([rows[row] for row in sorted(rows)], pa.string())
    if (annotator := columns.of("annotator", table.column_names)) is not None:
        table = table.drop_columns(annotator)
    if (column := columns.of("label", table.column_names)) is None:
        return table.append_column(USUAL["label"], labels)
    return table.set_column(table.column_names.index(column), column, labels)


def report(output: str, timelines: Sequence[Timeline], names: Sequence[str], num_rows: int):
    """Prints what was written, and how many posts have no label. `num_rows` counts the rows that were read."""
    counts = Counter(label for timeline in timelines for label in timeline.labels)
    print(f"{output}: {counts.total()} posts of {len(timelines)} timelines, from {num_rows} rows.")
    print(", ".join(f"{counts[label]} {name}" for label, name in enumerate(names)) + ".")
    print(
        f"{counts[NO_LABEL]} have no label: the file does not say what comes after them, as at the end of a timeline."
    )
    print("Split the table by timeline: with --split_by date, the last labels of the training look past the date.")
    print(f'Watch for the change by: --train_file {output} --watch "{names[1]}"')
