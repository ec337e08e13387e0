"""
Writes the posts of a file as a table with the usual columns, as every other command would read them.

    tempoformer convert export.json --output posts.csv
    tempoformer convert chats.json --records messages --columns timeline=..id --output posts.csv

Files of many tools need no option; others are described by the same options as for a training.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import pandas as pd

from ..common.columns import TIMELINE, USUAL
from ..common.command_line import parse
from ..common.table_arguments import PostArguments, columns_of, form_of
from ..evaluation.prediction_table import time_column
from ..importers.export import POST_ID
from ..posts.reading import has_no_column, make_timelines
from ..posts.tables import load_table
from ..posts.timelines import label_names
from ..timeline_tempoformer import NO_LABEL, Timeline
from .written_tables import check_output, write_table


@dataclass(kw_only=True)
class ConvertArguments(PostArguments):
    """The posts, and the table to write."""

    posts_file: str = field(metadata={"help": "File of posts, which may be given without this option's name."})
    output: str = field(metadata={"help": "The table to write, a .csv file."})

    def __post_init__(self):
        check_output(self.output, self.posts_file)


def main(arguments: list[str]):
    (args,) = parse([ConvertArguments], arguments)
    posts = load_table(args.posts_file, **form_of(args))
    columns = columns_of(args)
    if columns["id"] is None and POST_ID in posts.column_names:
        args.columns = [*args.columns, f"id={POST_ID}"]
    is_labelled = not has_no_column(posts, "label", columns)
    names = label_names(posts, columns["label"] or USUAL["label"]) if is_labelled else []
    timelines = make_timelines({"posts": posts}, args, names)["posts"]
    table = posts_table(timelines, names)
    write_table(table, args.output)
    print(f"{args.output}: {len(table)} posts of {len(timelines)} timelines, from {len(posts)} rows.")
    print(f"Columns: {', '.join(table)}.")
    if is_labelled:
        counts = table["label"].value_counts()
        print(", ".join(f"{counts.get(name, 0)} {name}" for name in names) + f"; {table['label'].isna().sum()} none.")


def posts_table(timelines: Sequence[Timeline], names: Sequence[str]) -> pd.DataFrame:
    """
    Returns a row for each post, timeline by timeline, in the order of time. `names` are the classes; without them
    there is no column of labels. There are columns of times, speakers and states if posts have some.
    """
    columns = {
        TIMELINE: [[timeline.timeline_id] * len(timeline) for timeline in timelines],
        POST_ID: [timeline.post_ids for timeline in timelines],
        "timestamp": [timeline.timestamps for timeline in timelines],
        "text": [timeline.texts for timeline in timelines],
        "label": [timeline.labels if names else None for timeline in timelines],
        "speaker": [timeline.speakers for timeline in timelines],
        "state": [timeline.states for timeline in timelines],
    }
    table = pd.DataFrame({name: list(chain(*lists)) for name, lists in columns.items() if None not in lists})
    if "timestamp" in table:
        table["timestamp"] = time_column(table["timestamp"])
    if names:
        table["label"] = table["label"].map({**dict(enumerate(names)), NO_LABEL: None})
    return table
