"""Arguments of the scripts that read tables of posts."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from .columns import NEEDED, NO_COLUMN, ROLES, TIMELINE, USUAL, Columns, read_columns


@dataclass
class TableArguments:
    """The place of the posts in a table, and its columns."""

    # The columns that may be named
    roles: ClassVar[tuple[str, ...]] = ("timeline", "timestamp", "text", "id", "speaker", "state")

    records: str | None = field(
        default=None,
        metadata={
            "help": "Where objects of JSON hold lists of posts: the path of these (messages, chats.list.messages; '*' "
            "for posts that are keyed by their ids)."
        },
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
    columns: list[str] = field(
        default_factory=list,
        metadata={
            "action": "extend",
            "help": "Which column is what, where it has not the usual name: timeline=person timestamp=date+time "
            "text=entry label=change id=number speaker=author; state=mood, whose change is asked; annotator=coder, "
            "if posts have a row for each one's label, and get the label that most gave; group=platform, "
            "whose values have scores of their own; split=family, whose values stay in one split, and in the held-out "
            "fold of one member. 'none' leaves out a column that would be read; timeline=none says that all posts of "
            "a file are of one timeline, which is named after the file.",
        },
    )


@dataclass
class PostArguments(TableArguments):
    """The form of a file of posts."""

    roles: ClassVar[tuple[str, ...]] = (*TableArguments.roles, "label", "annotator")


def columns_of(arguments: TableArguments) -> Columns:
    """Returns the names of the columns of posts."""
    columns = Columns({**dict.fromkeys(ROLES), **NEEDED, **read_columns(arguments.columns, arguments.roles)})
    if columns["timeline"] == NO_COLUMN:
        # The name of the file is written there.
        columns["timeline"] = TIMELINE
    return columns


def form_of(arguments: PostArguments) -> dict[str, Any]:
    """Returns the keyword arguments with which [`load_table`] reads posts."""
    columns = columns_of(arguments)
    return {**table_options(arguments), "columns": columns.wanted(), "label": columns["label"] or USUAL["label"]}


def table_options(arguments: TableArguments) -> dict[str, Any]:
    """Returns the keyword arguments for [`load_table`] but `columns` and `label`."""
    one_timeline = read_columns(arguments.columns, arguments.roles).get("timeline") == NO_COLUMN
    named = {name: getattr(arguments, name) for name in ("records", "drop_incomplete")}
    # A stream would be divided by a list.
    return {**named, "one_timeline": one_timeline, "missing": tuple(arguments.missing)}
