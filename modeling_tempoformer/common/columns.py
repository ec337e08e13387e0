"""Names and finds the columns of posts by options, by usual names and by nearly the same names."""

import json
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from datasets import Dataset, IterableDataset
from transformers.utils import logging

from .files import decode_json


logger = logging.get_logger(__name__)

# The usual column of timelines
TIMELINE = "timeline_id"
# What a column may be of a post, and the columns of roles that each table has
ROLES = ("timeline", "timestamp", "text", "label", "id", "speaker", "state", "annotator", "group", "split")
NEEDED = {"timeline": TIMELINE, "text": "text"}
# Roles whose column is read by default, if the table has it, and the name that leaves such a column out
USUAL = {"timestamp": "timestamp", "label": "label", "speaker": "speaker", "state": "state"}
NO_COLUMN = "none"
# Joins the names of a column of dates and a column of times of day.
PLUS = "+"
# Programs write a date as its midnight.
MIDNIGHT = re.compile(r"[ T]00:00(?::00(?:\.0+)?)?$")
HOUR_OF_ONE_DIGIT = re.compile(r"\d:")
# Stands before the name of a field of the object around a record, where the record has a field of that name, too.
AROUND = ".."
ONE_TIMELINE = " If all posts of a file are of one timeline, give --columns timeline=none."


def naming(role: str) -> str:
    """Returns the option that names the column of a role, and the same in Python."""
    return f"--columns {role}=NAME (in Python `columns={{'{role}': NAME}}`)"


def read_columns(given: Mapping[str, str] | Sequence[str], roles: Collection[str] = ROLES) -> dict[str, str]:
    """
    Reads the option `--columns`.

    Args:
        given (`Mapping[str, str]` or `Sequence[str]`): The names of columns by role, or words such as `text=body` and
            objects of JSON, as recipes hold them; the later of two for one role wins.
        roles (`Collection[str]`, *optional*): The roles that may be named.

    Returns:
        The names by role. Raises a `ValueError` for other words and roles.
    """
    named: dict[str, str] = {}
    for word in [json.dumps(given)] if isinstance(given, Mapping) else given:
        role, _, name = word.partition("=")
        named |= decode_json(word, "--columns") if word.startswith("{") else {role: name}
    for role, name in named.items():
        if role not in roles or not name or not isinstance(name, str):
            raise ValueError(f"--columns names {', '.join(roles)}, as in --columns text=body; got '{role}={name}'.")
    return named


@lru_cache(4096)
def plain_name(name: str) -> str:
    """Returns a key that is equal for names that are nearly the same: their letters and digits, without case."""
    around = AROUND if name.startswith(AROUND) else ""
    characters = unicodedata.normalize("NFKC", name).casefold()
    return around + "".join(char for char in characters if unicodedata.category(char)[0] in "LMN")


def find_column(present: Collection[str], name: str, role: str, option: str | None = None) -> str | None:
    """
    Returns the column of a name, else with a warning the only one whose name is nearly the same, else None. `role`
    says what the column is, and `option` which option names it, by default `--columns`. Raises a `ValueError` if
    several are nearly the same.
    """
    if name in present:
        return name
    close = [column for column in present if plain_name(column) == plain_name(name)]
    leave_out = f", or leave it out by --columns {role}={NO_COLUMN}" if role in USUAL else ""
    if len(close) > 1:
        raise ValueError(
            f"The columns {', '.join(map(repr, close))} all have nearly the name {name!r}: name the {role}'s by "
            f"{option or naming(role)}{leave_out}."
        )
    for column in close:
        logger.warning_once(
            f"The column {column!r} is read as the {role}, as its name is nearly {name!r}. Name another one by "
            f"{option or naming(role)}{leave_out}."
        )
    return next(iter(close), None)


def require_column(present: Collection[str], name: str, role: str, hint: str = "", option: str | None = None) -> str:
    """Returns the column that [`find_column`] finds. Raises a `ValueError`, which ends in `hint`, if there is none."""
    if (column := find_column(present, name, role, option)) is None:
        raise ValueError(
            f"There is no column '{name}' for the {role}; the columns are {', '.join(present)}. Name yours by "
            f"{option or naming(role)}.{hint}"
        )
    return column


def parts_of(present: Collection[str], role: str, name: str) -> list[str]:
    """Returns the names of the one or two columns that a name stands for: `date+time` names two of times."""
    return name.split(PLUS, 1) if role == "timestamp" and name not in present else [name]


def column_of_role(present: Collection[str], role: str, name: str | None) -> str | None:
    """
    Returns the column that is read for a role, None if there is none.

    Args:
        present (`Collection[str]`): The columns of the table.
        role (`str`): "timeline", "timestamp", "text", "label" and so on.
        name (`str`, *optional*): The name that is given. By default the one in [`USUAL`], if there is one. "none"
            leaves the role out. A timestamp may have two columns, of dates and of times of day, joined by a plus here
            and in the result.

    Raises a `ValueError` for several columns that have nearly that name, and for "none" where a column has that name.
    """
    if name == NO_COLUMN and role in USUAL:
        if any(plain_name(column) == NO_COLUMN for column in present):
            raise ValueError(
                f"--columns {role}={NO_COLUMN} says that no column is read, but there is a column of that name: "
                "rename it."
            )
        return None
    name = name or USUAL.get(role)
    if name is None:
        return None
    found = [find_column(present, part, role) for part in parts_of(present, role, name)]
    return None if None in found else PLUS.join(found)


class Columns(dict[str, str | None]):
    """
    The names of the columns of posts by role, which are `timeline`, `timestamp`, `text`, `label`, `id`, `speaker`,
    `state`, `annotator`, `group` and `split`. Each name is as [`column_of_role`] takes it. A role that has no entry is
    not read.
    """

    def of(self, role: str, present: Collection[str]) -> str | None:
        """Returns the column of a role, if it is `present` in a table, else None ([`column_of_role`])."""
        return column_of_role(present, role, self[role])

    def find(self, present: Collection[str], earlier: "Columns | None" = None, hint: str = "") -> "Columns":
        """
        Returns the column of each role, None if there is none.

        Args:
            present (`Collection[str]`): The columns of the table.
            earlier ([`Columns`], *optional*): The result for an earlier piece of the table. Pieces of JSON lack
                columns in which none of their rows has a value.
            hint (`str`, *optional*): Ends the error.

        Raises the errors of [`column_of_role`]. Raises a `ValueError` for a column that is named and not in the first
        piece, and for one whose name changes.
        """
        found = Columns()
        for role, name in self.items():
            column = self.of(role, present)
            before = earlier and earlier[role]
            if column and before and column != before:
                raise ValueError(
                    f"The column of the {role} is named {before!r} in some rows, and {column!r} in others."
                )
            is_left_out = name is None or (name == NO_COLUMN and role in USUAL)
            if column is None and earlier is None and not is_left_out:
                for part in parts_of(present, role, name):
                    require_column(present, part, role, (ONE_TIMELINE if role == "timeline" else "") + hint)
            found[role] = column or before
        return found

    def wanted(self) -> list[str]:
        """Returns the names of the columns that are read if the table has them."""
        names = [column or USUAL[role] for role, column in self.items() if column or role in USUAL]
        parts = (self["timestamp"] or "").split(PLUS)
        return [*(name for name in names if name != NO_COLUMN), *(parts if len(parts) == 2 else ())]

    def warn_of_times(self, present: Collection[str], has_times: bool):
        """
        Warns, once a run, of posts without times although nobody has asked for that, and of a column of times of day
        that is not read beside one of dates. `present` has the columns of the table.
        """
        column = self.of("timestamp", present)
        if not has_times and self["timestamp"] != NO_COLUMN:
            why = "there is no column 'timestamp'" if column is None else f"the column {column!r} is empty"
            logger.warning_once(
                f"The posts are read without times, in the order of the file: {why}. --columns timestamp=NAME names "
                f"another column; --columns timestamp={NO_COLUMN} says that there is none."
            )
        if column is None or column not in present:
            return
        sibling = plain_name(column).replace("date", "time")
        for other in present:
            if other != column and plain_name(other) == sibling:
                logger.warning_once(
                    f"Times are read from the column {column!r} alone, and not from {other!r}. If that is the time of "
                    f"day, give both: --columns 'timestamp={column}{PLUS}{other}'."
                )


def column_names(posts: Dataset | IterableDataset) -> list[str]:
    """Returns the columns of a table, or of the first row of a stream without column names."""
    return posts.column_names or list(next(iter(posts), {}))


def cells_of(batch: Mapping[str, list], column: str | None, num_rows: int) -> list[Any]:
    """
    Returns the cells of a column that [`Columns.find`] has found, None for each row of a table without it. Two columns
    of times are joined.
    """
    missing = [None] * num_rows
    if column is None or column in batch or PLUS not in column:
        return batch.get(column, missing)
    dates, times = (batch.get(part, missing) for part in column.split(PLUS, 1))
    return list(map(join_time, dates, times))


def join_time(date: Any, time: Any) -> str | None:
    """Returns a date and a time of day as one text, None if one of them is missing."""
    date, time = ("" if is_missing(cell) else str(cell).strip() for cell in (date, time))
    if not (date and time):
        return None
    return f"{MIDNIGHT.sub('', date)} {'0' if HOUR_OF_ONE_DIGIT.match(time) else ''}{time}"


def is_missing(cell: Any) -> bool:
    """Tells whether a cell has nothing: None, NaN, NaT, an empty list or a text without a visible character."""
    if cell is None or type(cell).__name__ == "NAType":  # of pandas, which compares as neither true nor false
        return True
    return cell != cell or cell == [] or (isinstance(cell, str) and not cell.strip())
