"""Arguments of the scripts that train on posts: the posts, and how they are cut into streams."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..common.arguments import DatasetArguments
from ..common.table_arguments import PostArguments


@dataclass
class DataTrainingArguments(PostArguments, DatasetArguments):
    """The posts, and how they are cut into streams."""

    roles: ClassVar[tuple[str, ...]] = (*PostArguments.roles, "group", "split")

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
    # The ids of the timelines of train, validation and test, which Python gives
    fold: dict[str, list[str]] | None = field(default=None, init=False)
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
