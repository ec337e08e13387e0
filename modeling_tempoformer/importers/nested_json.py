"""Nested JSON: posts in other objects, and values by dotted names, also those that Label Studio exports."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers.utils import logging

from ..common.columns import AROUND, TIMELINE, find_column, plain_name
from ..common.files import name_of_timeline
from .export import Export


logger = logging.get_logger(__name__)

# In a path, `*` stands for every key of an object; the key becomes the field "key" around the record.
EACH, KEY = "*", "key"
# True in an annotation of Label Studio that somebody began and skipped: it has no valid label.
CANCELLED = "was_cancelled"
# The first and the last message of a region of a dialogue in Label Studio, and a field that only regions have, which
# number their messages from 0.
FIRST, LAST, OFFSET = "start", "end", "startOffset"


def is_mine(export: Export) -> bool:
    """Tells whether a file of JSON has posts in other objects, or values in objects of posts."""
    if export.place is None:
        return False
    return is_one_object(export) or export.form.records is not None or any("." in name for name in export.form.columns)


def as_table(export: Export) -> Iterator[tuple[str, Any]]:
    """
    Yields each post as a flat object after its place in the file. If `drop_incomplete`, objects without the records
    are left out with a warning that counts them. Unless all posts are of one timeline, and if the usual column of
    timelines is wanted, which no object has, each list of records is a timeline. Raises a `ValueError` for a file that
    is one object, if the user names no records.
    """
    path, form = export.path, export.form
    keys = form.records.split(".") if form.records else []
    if not keys and is_one_object(export):
        refuse_one_object(path, export.value)
    flattener = Flattener(form.columns, form.label)
    missing: list[str] = []
    # Posts that are keyed by their ids lie in no list.
    numbers_timelines = bool(keys) and keys[-1] != EACH and TIMELINE in form.columns and not form.one_timeline
    nearest, num_objects = None, 0
    for where, value in export.items():
        found = each_record(value, keys, where, (), missing if form.drop_incomplete else None) if keys else [(value,)]
        for number, (record, *around) in enumerate(found):
            name = f"{where}, record {number} (counting from 0)" if keys else where
            if not isinstance(record, dict):
                yield name, record
                continue
            row = flattener.row(record, around, name)
            if numbers_timelines:
                if (column := find_column(list(row), TIMELINE, "timeline")) is None:
                    num_objects += around[0] is not nearest
                    nearest = around[0]
                    row[TIMELINE] = f"{name_of_timeline(path)}-{num_objects - 1}"
                elif num_objects:
                    raise ValueError(
                        f"{name} has a {column!r}, and records before it have none: give all one, or none."
                    )
                else:
                    numbers_timelines = False
            yield name, row
    flattener.warn(str(path))
    if num_objects:
        logger.warning(
            f"{path}: no object has a {TIMELINE!r}, so that each list of {form.records!r} is a timeline, "
            f"{num_objects} in all. Where a field has their ids, name it by --columns timeline=NAME."
        )
    if missing:
        logger.warning_once(
            f"{path}: left out {len(missing)} objects without the records {form.records!r}, the first at {missing[0]}."
        )


def is_one_object(export: Export) -> bool:
    """Tells whether a file of JSON is one object: its place is the file alone."""
    return export.before is None and export.place == str(export.path)


def refuse_one_object(path: str | Path, value: dict[str, Any]):
    """Raises a `ValueError` for a file that is one object, with the names of the lists or objects in it."""
    parts = {kind: [name for name, part in value.items() if isinstance(part, kind)] for kind in (list, dict)}
    if len(parts[dict]) == len(value) > 0:
        raise ValueError(
            f"{path} is one object of objects, such as {parts[dict][0]!r}: if each is a post, give --records "
            f"'{EACH}', and its key is the column '{KEY}'."
        )
    raise ValueError(
        f"{path} is one object: name the list of posts in it by --records; its lists are "
        f"{', '.join(parts[list]) or 'none'}."
    )


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
        label (`str`, *optional*): The column of labels.
    """

    def __init__(self, columns: Sequence[str], label: str | None = None):
        self.label = label and plain_name(label)
        self.paths = {column: split_path(column) for column in columns}
        # A column is also found by nearly its name.
        self.wanted = set(map(plain_name, [*self.paths, *(name for name, _ in self.paths.values())]))
        # The level of the object that has a field of this name: 0 for the record, then the objects around it.
        self.levels: dict[str, int] = {}
        self.num_cancelled = 0
        # The nearest object around the last record, and the number of the record in it.
        self.nearest, self.number = None, 0
        # The number of records that have the label of an object around them.
        self.num_shared = 0

    def row(self, record: dict[str, Any], around: Sequence[dict], where: str) -> dict[str, Any]:
        """
        Returns the fields of a record and of the objects around it, the nearest first. A name that is in the row gets
        [`AROUND`] before it. Raises a `ValueError` that begins with `where` for a wanted name (for any if none is
        wanted) that was at another level before, and for a path that leads through a text. Values in an object that
        was [`CANCELLED`] are left out, and such objects counted. Of what people have said about single messages of a
        dialogue, a record gets what was said about it.
        """
        nearest = around[0] if around else None
        self.number = self.number + 1 if nearest is not None and nearest is self.nearest else 0
        self.nearest = nearest
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
                number = self.number if self.levels[name] else None
                try:
                    found = [] if is_cancelled(fields, cancelled) else find_values(row[name], path, cancelled, number)
                except ValueError as problem:
                    raise ValueError(f"{where}, column {column!r}, {problem}") from None
                row[column] = found
        self.num_cancelled += len({id(fields) for fields in cancelled})
        self.num_shared += bool(around) and any(self.shares(row, column) for column in row)
        return row

    def shares(self, row: dict[str, Any], column: str) -> bool:
        """Tells whether a column has the labels, and the label is of a whole object around the record."""
        if plain_name(column) != self.label:
            return False
        name, path = self.paths.get(column, (column, []))
        # No message of a dialogue has the number -1.
        return bool(self.levels.get(name)) and any(find_values(row[name], path, [], -1))

    def warn(self, where: str):
        """Warns of labels of the objects around records, and of objects that were cancelled."""
        if self.num_shared:
            logger.warning_once(
                f"{where}: the label stands in an object around a list of posts, and all posts of the list get it, "
                f"{self.num_shared} in all. If it was given to the conversation as a whole, it is no label of a post: "
                "--columns label=none leaves it out."
            )
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


def find_values(value: Any, path: Sequence[str], cancelled: list[dict], number: int | None = None) -> list[Any]:
    """
    Returns all values at a path of keys, through all values of lists, but not in objects that were cancelled, and not
    in those that are about other messages than the one of this number. Raises a `ValueError` for a text before the end
    of the path.
    """
    if isinstance(value, list):
        return [found for part in value for found in find_values(part, path, cancelled, number)]
    if not path:
        return [value]
    if isinstance(value, str) and value.strip():
        raise ValueError(
            f"value {value!r:.80}: this is a text, and has no {path[0]!r}: write the same form in all rows, a text or "
            "an object."
        )
    if is_cancelled(value, cancelled) or not (isinstance(value, dict) and path[0] in value):
        return []
    if number is not None and is_region(value) and not int(value[FIRST]) <= number <= int(value[LAST]):
        return []
    return find_values(value[path[0]], path[1:], cancelled, number)


def is_region(value: dict[str, Any]) -> bool:
    """Tells whether an object of Label Studio says something about some messages of a dialogue."""
    return OFFSET in value and all(isinstance(value.get(end), str) and value[end].isdecimal() for end in (FIRST, LAST))
