"""Finds the posts in nested objects of JSON: records in other objects, and values by dotted names."""

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from transformers.utils import logging


logger = logging.get_logger(__name__)

# In a path, `*` stands for every key of an object; the key becomes the field "key" around the record.
EACH, KEY = "*", "key"
# True in an annotation of Label Studio that somebody began and skipped: it has no valid label.
CANCELLED = "was_cancelled"
# Stands before the name of a field of the object around a record, where the record has a field of that name, too.
AROUND = ".."


@lru_cache(4096)
def plain_name(name: str) -> str:
    """Returns a key that is equal for names that are nearly the same: their letters and digits, without case."""
    around = AROUND if name.startswith(AROUND) else ""
    characters = unicodedata.normalize("NFKC", name).casefold()
    return around + "".join(char for char in characters if unicodedata.category(char)[0] in "LMN")


def each_record(
    value: Any, path: Sequence[str], where: str, around: tuple[dict, ...] = (), missing: list[str] | None = None
) -> Iterator[tuple]:
    """
    Yields each record at a path of keys, and the objects around it, the nearest first. The path goes through all
    values of a list, and at [`EACH`] of an object. The place of an object without the next key is added to `missing`;
    without that list, such an object raises a `ValueError` that begins with `where`.
    """
    if isinstance(value, list):
        for part in value:
            yield from each_record(part, path, where, around, missing)
    elif not path:
        yield value, *around
    elif isinstance(value, dict) and path[0] == EACH and EACH not in value:
        for key, part in value.items():
            yield from each_record(part, path[1:], where, ({KEY: key}, *around), missing)
    elif not isinstance(value, dict) or path[0] not in value:
        if missing is not None:
            missing.append(where)
            return
        keys = f"its keys are {', '.join(value)}" if isinstance(value, dict) else f"it is {value!r:.80}"
        raise ValueError(
            f"{where}: an object has no {path[0]!r}, which --records names; {keys}. If it has no posts, "
            "--drop_incomplete leaves such objects out."
        )
    else:
        name, *rest = path
        others = {key: part for key, part in value.items() if key != name}
        inner = [] if value[name] is None else value[name]
        yield from each_record(inner, rest, where, (others, *around), missing)


class Flattener:
    """
    Makes rows of the records of one file.

    Args:
        columns (`Sequence[str]`): Names of the columns that are wanted. A dotted one, such as `author.name`, is the
            path of a value in an object; its cells are lists of all values that are found.
    """

    def __init__(self, columns: Sequence[str]):
        self.paths = {column: split_path(column) for column in columns}
        # A column is also found by nearly its name.
        self.wanted = set(map(plain_name, [*self.paths, *(name for name, _ in self.paths.values())]))
        # The level of the object that has a field of this name: 0 for the record, then the objects around it.
        self.levels: dict[str, int] = {}
        self.num_cancelled = 0

    def row(self, record: dict[str, Any], around: Sequence[dict], where: str) -> dict[str, Any]:
        """
        Returns the fields of a record and of the objects around it, the nearest first. A name that is in the row gets
        [`AROUND`] before it. Raises a `ValueError` that begins with `where` for a wanted name (for any if none is
        wanted) that was at another level before. Values in an object that was [`CANCELLED`] are left out, and such
        objects counted.
        """
        cancelled: list[dict] = []
        row: dict[str, Any] = {}
        for level, fields in enumerate((record, *around)):
            for name, value in fields.items():
                while name in row:
                    name = AROUND + name
                is_wanted = not self.wanted or plain_name(name) in self.wanted
                if is_wanted and self.levels.setdefault(name, level) != level:
                    raise ValueError(
                        f"{where}: {name!r} is a field of some records, and of the objects around others, and a "
                        "column cannot mix both: give all records the field, or none."
                    )
                row[name] = value
        for column, (name, path) in self.paths.items():
            if path and column not in row and name in row:
                fields = (record, *around)[self.levels[name]]
                row[column] = [] if is_cancelled(fields, cancelled) else find_values(row[name], path, cancelled)
        self.num_cancelled += len({id(fields) for fields in cancelled})
        return row

    def warn(self, where: str):
        """Warns of objects that were cancelled."""
        if self.num_cancelled:
            logger.warning(f"{where}: {self.num_cancelled} cancelled annotations ({CANCELLED!r}) are not read.")


def split_path(column: str) -> tuple[str, list[str]]:
    """Returns the name of a field, with [`AROUND`] before it, and the path of a value in the field."""
    first, *path = column.lstrip(".").split(".")
    return "." * (len(column) - len(column.lstrip("."))) + first, path


def is_cancelled(value: Any, cancelled: list[dict]) -> bool:
    """Tells whether an object was cancelled, and then adds it to the list."""
    if not (isinstance(value, dict) and value.get(CANCELLED) is True):
        return False
    cancelled.append(value)
    return True


def find_values(value: Any, path: Sequence[str], cancelled: list[dict]) -> list[Any]:
    """Returns all values at a path of keys, through all values of lists, but not in objects that were cancelled."""
    if isinstance(value, list):
        return [found for part in value for found in find_values(part, path, cancelled)]
    if not path:
        return [value]
    if is_cancelled(value, cancelled) or not (isinstance(value, dict) and path[0] in value):
        return []
    return find_values(value[path[0]], path[1:], cancelled)
