"""Arguments of the scripts that describe the posts or texts that they read."""

import math
from dataclasses import dataclass, field
from typing import Literal

from ..common.arguments import DatasetArguments


@dataclass
class TableArguments:
    """The place of the posts in a table, and its columns."""

    records: str | None = field(
        default=None,
        metadata={
            "help": "Where objects of JSON hold lists of posts: the path of these (messages, chats.list.messages; '*' "
            "for posts that are keyed by their ids)."
        },
    )
    one_timeline: bool = field(
        default=False, metadata={"help": "All posts of a file are of one timeline, which is named after the file."}
    )
    drop_incomplete: bool = field(
        default=False,
        metadata={
            "help": "Leave out rows without text, time or id, and objects of JSON without --records, and count."
        },
    )
    missing: list[str] = field(
        default_factory=list,
        metadata={"help": "Codes for missing values (NA -99): cells that hold one are read as empty ones."},
    )
    timeline_column: str = "timeline_id"
    timestamp_column: str | None = field(
        default=None,
        metadata={"help": "Default: 'timestamp', if it exists. Two columns: date+time. 'none': posts have no times."},
    )
    text_column: str = "text"


@dataclass
class PostArguments(TableArguments):
    """The form of a file of posts."""

    label_column: str | None = field(
        default=None, metadata={"help": "Default: 'label', if it exists; 'none' leaves that out."}
    )
    id_column: str | None = None
    speaker_column: str | None = field(
        default=None, metadata={"help": "Writers of posts. Default: 'speaker', if it exists; 'none' leaves that out."}
    )
    state_column: str | None = field(
        default=None,
        metadata={
            "help": "States of posts (a mood, a score), whose change is asked. Default: 'state', if it exists; 'none' "
            "leaves that out."
        },
    )
    annotator_column: str | None = field(
        default=None,
        metadata={
            "help": "Annotators, if posts have a row for each one's label: a post gets the label that most of them "
            "gave, and the model is scored beside them."
        },
    )


@dataclass
class DataTrainingArguments(PostArguments, DatasetArguments):
    """The posts, and how they are cut into streams."""

    train_file: str | None = field(
        default=None,
        metadata={"help": "Table of posts: CSV, TSV, JSON lines or Parquet; or a pattern of several (posts/*.csv)."},
    )
    validation_file: str | None = None
    test_file: str | None = None
    validation_fraction: float = field(
        default=0.25,
        metadata={
            "help": "Share of --train_file to validate on, after the test split is taken. Not used with a frozen "
            "encoder: each member of the ensemble is validated on its held-out fold of the training posts."
        },
    )
    test_fraction: float = field(
        default=0.2, metadata={"help": "Share of --train_file to test on, if no other file is given."}
    )
    split_by: Literal["timeline", "date"] = field(
        default="timeline",
        metadata={
            "help": "What divides --train_file into parts: 'timeline' for a test on new people, 'date' for one on all "
            "posts after a date, also of people who are in the training."
        },
    )
    split_seed: int | None = field(
        default=None, metadata={"help": "Seed by which --train_file is split into parts. Default: --seed."}
    )
    folds_file: str | None = field(
        default=None,
        metadata={
            "help": "Splits of --train_file by timeline: a list of objects with train, validation and test ids."
        },
    )
    fold: int = field(default=0, metadata={"help": "Which fold of --folds_file, counting from 0."})
    group_column: str | None = field(
        default=None,
        metadata={"help": "Groups of posts (platform, gender, speaker, season), each with its own scores."},
    )
    split_column: str | None = field(
        default=None,
        metadata={
            "help": "Families, clinics or episodes: timelines with the same value are in the same split, and in the "
            "held-out fold of the same member."
        },
    )
    change_step: float | None = field(
        default=None,
        metadata={
            "help": "Without labels: the smallest difference of two states, which are numbers, that is a change."
        },
    )
    no_change_label: str | None = field(
        default=None,
        metadata={
            "help": "The class of first posts, where none of them has a label in training. Default: the one where the "
            "state stays, else the largest."
        },
    )
    known_states: bool = field(
        default=False,
        metadata={
            "help": "Read each post with the states of earlier posts, where they are known when the post arrives, as "
            "in a diary with ratings."
        },
    )
    labels: list[str] | None = field(default=None, metadata={"help": "Label names. Default: those in the posts."})
    window: int | None = field(default=None, metadata={"help": "Posts in a stream. Default: the checkpoint's, or 20."})
    targets_per_row: int = field(
        default=16, metadata={"help": "Number of posts that one row of a training batch classifies."}
    )
    max_seq_length: int | None = field(
        default=None, metadata={"help": "Maximum number of tokens in a post. Default: the checkpoint's, or 128."}
    )
    no_text: bool = field(default=False, metadata={"help": "Leave the texts of posts out of the predictions."})

    def __post_init__(self):
        super().__post_init__()
        if self.change_step is not None and not 0 <= self.change_step < math.inf:
            raise ValueError(f"--change_step must be a number of at least 0, got {self.change_step}.")
