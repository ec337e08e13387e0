"""Reads tables of JSON: objects in lines, in a list, one after the other, or in an object."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from transformers.utils import logging

from ..common.columns import plain_name
from ..common.files import ROWS_AT_ONCE, decode_json, open_text, read_lines


logger = logging.get_logger(__name__)

# Type of a JSON column in which some list has several values, and how many of these are kept: such a column is refused
# by the code that needs it, whose error shows them.
LISTS, LIST_SHOWN = pa.list_(pa.string()), 5
JSON_FORM = (
    "a JSON file must have one object for each post, in a line of its own, one after the other or in one list, as "
    "pandas writes them by to_json(path, orient='records', lines=True); posts in a list of an object are named by "
    "--records, and posts that are keyed by their ids by --records '*'"
)
JSON_HINT = f"; {JSON_FORM}, and may have been cut short"
SPACE = re.compile(r"\s*")


def columns_of_records(rows: Iterator[tuple[str, Any]], columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """
    Yields tables of objects of JSON, every value as text. The place of each object in its file stands before it.
    Raises a `ValueError` for an object in one of the `columns`; without `columns` a warning names those that have
    objects in some rows alone.
    """
    texts = text_rows(rows, columns)
    while batch := list(islice(texts, ROWS_AT_ONCE)):
        names = dict.fromkeys(chain.from_iterable(batch))
        yield pa.table({name: text_column([row.get(name) for row in batch]) for name in names})


def text_column(values: list[str | list[str] | None], as_lists: bool = False) -> pa.Array:
    """Returns a column of texts, or of lists of texts if some value is a list."""
    if not (as_lists or any(isinstance(value, list) for value in values)):
        return pa.array(values, pa.string())
    return pa.array([[value] if isinstance(value, str) else value for value in values], LISTS)


def text_rows(rows: Iterator[tuple[str, Any]], columns: Sequence[str]) -> Iterator[dict[str, str | list[str] | None]]:
    """Yields JSON objects as texts ([`to_texts`]). `rows` has each after its place; `columns` may hold no object."""
    wanted = set(map(plain_name, columns))
    # The first object of each column, and the columns with values.
    objects: dict[str, str] = {}
    valued: set[str] = set()
    for where, row in rows:
        yield (texts := to_texts(row, where, wanted))
        if not columns:
            objects.update({column: where for column in row if column not in texts and column not in objects})
            valued.update(column for column, text in texts.items() if text is not None)
    for column in objects:
        if column in valued:
            logger.warning_once(
                f"{objects[column]}: column {column!r} has an object here and values in other rows; the objects are "
                "left out."
            )


def read_values(path: str | Path) -> Iterator[tuple[str, Any]]:
    """
    Yields the place of each value of a JSON file, for errors, and the value. The file has a value in each line, one
    list of values, objects one after the other, or one object. Numbers are texts.
    """
    as_integer = partial(re.sub, r"\.0+$", "")
    settings = {"parse_int": str, "parse_float": as_integer, "parse_constant": lambda _: None}
    for count, (number, line) in enumerate(read_lines(path)):
        if count == 0 and not is_whole(line):
            with open_text(path) as file:
                content = file.read()
            if content.lstrip().startswith("["):
                rows = decode_json(content, path, hint=JSON_HINT, **settings)
                yield from ((f"{path}, entry {entry} (counting from 0)", row) for entry, row in enumerate(rows))
            else:
                values = list(each_value(content, path, settings))
                yield from values if len(values) > 1 else ((str(path), value) for _, value in values)
            return
        yield f"{path}, line {number}", decode_json(line, path, number, JSON_HINT, **settings)


def is_whole(line: str) -> bool:
    """Tells whether the first line of a file is a whole or a broken value, and not the beginning of a longer one."""
    if line.lstrip().startswith("["):
        return False
    try:
        json.loads(line)
    except json.JSONDecodeError as problem:
        return not (problem.pos >= len(line.rstrip()) or problem.msg.startswith("Extra data"))
    return True


def each_value(content: str, path: str | Path, settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the first line of each of the values that follow one another in a text, for errors, and the value."""
    decoder, line, counted, position = json.JSONDecoder(**settings), 1, 0, SPACE.match(content).end()
    while position < len(content):
        line, counted = line + content.count("\n", counted, position), position
        try:
            value, end = decoder.raw_decode(content, position)
        except json.JSONDecodeError as problem:
            where = f"{path}, line {problem.lineno}, column {problem.colno}"
            raise ValueError(f"{where}: this is not JSON ({problem.msg}){JSON_HINT}.") from None
        yield f"{path}, line {line}", value
        position = SPACE.match(content, end).end()


def to_texts(row: Any, where: str, wanted: Collection[str]) -> dict[str, str | list[str] | None]:
    """
    Returns the values of an object as text. Lists are shortened, and other nested values are left out. Raises a
    `ValueError` for one in a column that is `wanted`; these are names as [`plain_name`] returns them.
    """
    texts = {}
    for name, value in (row if isinstance(row, dict) else {}).items():
        values = value if isinstance(value, list) else [value]
        if nested := [part for part in values if isinstance(part, (dict, list))]:
            if plain_name(name) in wanted:
                keys = [f"{name}.{key}" for part in nested[:1] if isinstance(part, dict) for key in part]
                path = f", or give the path of a value if each row has such an object: {keys[0]}" if keys else ""
                shown = json.dumps(value, ensure_ascii=False)
                raise ValueError(
                    f"{where}, column {name!r}, value {shown:.80}: a cell must have one value, and not an object or a "
                    f"list: choose one for it{path}."
                )
            continue
        values = [json.dumps(part) if isinstance(part, bool) else part for part in values[:LIST_SHOWN]]
        for part in values:
            try:
                (part or "").encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"{where}, column {name!r}: {part!r:.80} has half of a surrogate pair, such as an emoji that "
                    "was cut: leave it out, in Python by text.encode('utf-8', 'ignore').decode()."
                ) from None
        texts[name] = values if len(values) > 1 else next(iter(values), None)
    if not texts:
        raise ValueError(f"{where}: expected an object with a post's values, got {row!r:.80}; {JSON_FORM}.")
    return texts
