"""Reads tables of posts or texts: CSV, TSV, JSON and Parquet."""

import csv
import io
import json
import re
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from glob import glob
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, Features, IterableDataset
from pyarrow import parquet
from transformers.utils import logging

from .files import decode_json, naming_broken_file, open_text, read_lines
from .nested_json import Flattener, each_record


logger = logging.get_logger(__name__)

ROWS_AT_ONCE = 1000
# Type of a JSON column in which some list has several values, and how many of these are kept: such a column is refused
# by the code that needs it, whose error shows them.
LISTS, LIST_SHOWN = pa.list_(pa.string()), 5
# All CSV readers of a process share one limit of the size of a cell.
CELL_LIMIT = threading.Lock()
QUOTED = (
    "a text with the separator, a quote or a line break must be quoted and its quotes doubled, not put after a "
    "backslash; or the file was cut short"
)
ROW_NAMES = "R leaves out its row names by row.names = FALSE, in write.csv and write.table"
# Begins each cell of the third row of a CSV file from Qualtrics. The second row has the questions.
QUALTRICS = '{"ImportId"'
JSON_FORM = (
    "a JSON file must have one object for each post, in a line of its own or in one list, as pandas writes them by "
    "to_json(path, orient='records', lines=True); posts in a list of an object are named by --records"
)
JSON_HINT = f"; {JSON_FORM}, and may have been cut short"


def load_table(path: str | Path, records: str | None = None, columns: Sequence[str] = ()) -> Dataset:
    """
    Reads a table into memory.

    Args:
        path (`str` or `Path`): A `.csv`, `.tsv`, `.json`, `.jsonl` or `.parquet` file. All but Parquet are UTF-8, and
            gzipped if `.gz` follows. Cells of a `.csv` or `.tsv` are separated by commas, semicolons or tabs,
            whichever the first line has most of. A `.jsonl` or `.json` file has one object in each line, or is one
            list of objects, or with `records` one object.
        records (`str`, *optional*): The path of keys, joined by dots, to a list in each object of a JSON file: each of
            its objects is a row, with the fields of the objects around it. Where both have a field, the outer one is
            named `..field`. By default each object is a row.
        columns (`Sequence[str]`, *optional*): Columns that are wanted. In JSON a dotted one, such as `author.name`, is
            the path of a value in an object.

    Returns:
        `Dataset`: Parquet columns keep their types. Cells of the other formats are text as it was written: ids such
        as `007` or 18446744073709551615 keep all digits. An empty CSV cell is an empty text. In JSON, `7.0` is read as
        `7`, since programs write integers so in a column with gaps; null, NaN and missing keys are None. A list of one
        value is read as that value, and an empty list as None. If some list has several values, all values of the
        column become lists, with at most the first five values of each. Other nested values are left out, but for
        those that `columns` names. A column without a name, such as the row names of R, and the two rows of Qualtrics
        that describe its columns are left out with a warning.

        Raises a `ValueError` that names the file, and if possible the line, for a file that is not such a table or has
        no rows.
    """
    tables = list(read_tables(path, records, columns))
    # Perhaps only one piece of a JSON file has lists in a column.
    lists = {field.name for table in tables for field in table.schema if field.type == LISTS}
    for number, table in enumerate(tables):
        for name in lists.intersection(table.column_names):
            if table[name].type != LISTS:
                values = text_column(table[name].to_pylist(), as_lists=True)
                table = table.set_column(table.column_names.index(name), name, values)
        tables[number] = table
    return Dataset(pa.concat_tables(tables, promote_options="default"))


def find_files(pattern: str) -> list[str]:
    """Returns the files that match a name or a pattern such as `posts/*.csv`, sorted by name."""
    return [pattern] if Path(pattern).exists() else sorted(glob(pattern)) or [pattern]


def stream_table(paths: list[str], records: str | None = None, columns: Sequence[str] = ()) -> IterableDataset:
    """
    Reads tables as a stream, with one shard for each file.

    Args:
        paths (`list[str]`): Files as [`load_table`] takes them. All have the same columns.
        records, columns: The arguments of [`load_table`].

    Returns:
        `IterableDataset`: The rows that [`load_table`] returns. Its errors are raised when a file is read.
    """
    # Only Parquet files have types.
    typed = paths[0].lower().endswith(".parquet") and Path(paths[0]).exists()
    with naming_broken_file(paths[0]):
        features = Features.from_arrow_schema(parquet.read_schema(paths[0])) if typed else None
    # A list would be divided into shards.
    arguments = {"paths": paths, "records": records, "columns": tuple(columns)}
    return IterableDataset.from_generator(read_each_row, features=features, gen_kwargs=arguments)


def read_each_row(paths: list[str], records: str | None, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of tables one by one."""
    for path in paths:
        for table in read_tables(path, records, columns):
            yield from table.to_pylist()


def read_tables(path: str | Path, records: str | None = None, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """
    Yields a table in pieces, none of them empty. The pieces of a JSON file may differ in their columns. `records` and
    `columns` are arguments of [`load_table`].
    """
    name = str(path).lower().removesuffix(".gz")
    if name.endswith((".json", ".jsonl")):
        tables = read_json(path, records, columns)
    elif records is not None:
        raise ValueError(f"--records names a list in objects of JSON, but {path} is not a .json or .jsonl file.")
    elif name.endswith((".csv", ".tsv")):
        tables = read_csv(path)
    elif str(path).lower().endswith(".parquet"):
        tables = read_parquet(path)
    else:
        raise ValueError(f"{path}: not a .csv, .tsv, .json, .jsonl or .parquet file.")
    is_empty = True
    with naming_broken_file(path):
        for table in tables:
            is_empty = False
            yield table
    if is_empty:
        raise ValueError(f"{path} has no rows.")


def read_parquet(path: str | Path) -> Iterator[pa.Table]:
    with parquet.ParquetFile(path) as file:
        yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches())


def read_csv(path: str | Path, content: str | None = None) -> Iterator[pa.Table]:
    """Yields the rows of a CSV file, every cell as text. `content`, if given, is read instead of the file."""
    rows = read_rows(path, content)
    with cells_of_any_length():
        names, *first = list(islice(rows, 3)) or [[]]
    if len(first) == 2 and first[1][0].startswith(QUALTRICS):
        logger.warning_once(
            f"{path} is from Qualtrics: left out the two rows below the names, which describe the columns."
        )
        first = []
    unnamed = int(len(names) > 1 and names[0] == "")
    if unnamed:
        logger.warning_once(f"{path}: left out the first column, which has no name, such as the row names of R.")
    columns = names[unnamed:]
    if "" in columns or len(set(columns)) < len(columns):
        raise ValueError(
            f"{path}: the first line must name each column, and each differently (pandas leaves out its index by "
            f"to_csv(path, index=False); {ROW_NAMES}); got {names}."
        )
    while True:
        with cells_of_any_length():
            cells = first + list(islice(rows, ROWS_AT_ONCE - len(first)))
        if not cells:
            return
        first = []
        table = [pa.array(column, pa.string()) for column in zip(*cells, strict=True)]
        yield pa.table(table[unnamed:], names=columns)


@contextmanager
def cells_of_any_length() -> Iterator[None]:
    """
    Lifts the limit of Python's CSV reader, by default 131,072 characters in a cell, which a post may exceed. Restores
    it afterwards, because other code in the process shares it.
    """
    with CELL_LIMIT:
        limit = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(limit)


def find_separator(header: str) -> str:
    """Returns the separator of a table: the comma, semicolon or tab, whichever its first line has most of."""
    return max(",;\t", key=header.count)


def read_rows(path: str | Path, content: str | None) -> Iterator[list[str]]:
    """Yields the rows of a CSV file, its header first. Raises a `ValueError` for the first bad row."""
    number, num_columns = 0, None
    with open_text(path, newline="") if content is None else io.StringIO(content, newline="") as file:
        header = file.readline()
        lines = csv.reader(chain([header], file), delimiter=find_separator(header), strict=True)
        try:
            for cells in lines:
                if cells:
                    num_columns = num_columns or len(cells)
                    if len(cells) != num_columns:
                        is_named = len(cells) == num_columns + 1 and cells[0] == "1"
                        hint = f" ({ROW_NAMES})" if is_named else ""
                        raise csv.Error(f"{len(cells)} cells in a table of {num_columns} columns{hint}")
                    yield cells
                number = lines.line_num
        except csv.Error as problem:
            raise ValueError(f"{path}, line {number + 1}: {problem}; {QUOTED}.") from None


def read_json(path: str | Path, records: str | None = None, columns: Sequence[str] = ()) -> Iterator[pa.Table]:
    """Yields the rows of a JSON file in tables, every value as text."""
    rows = read_objects(path, records, columns)
    while batch := list(islice(rows, ROWS_AT_ONCE)):
        names = dict.fromkeys(chain.from_iterable(batch))
        yield pa.table({name: text_column([row.get(name) for row in batch]) for name in names})


def text_column(values: list[str | list[str] | None], as_lists: bool = False) -> pa.Array:
    """Returns a column of texts, or of lists of texts if some value is a list."""
    if not (as_lists or any(isinstance(value, list) for value in values)):
        return pa.array(values, pa.string())
    return pa.array([[value] if isinstance(value, str) else value for value in values], LISTS)


def read_objects(
    path: str | Path, records: str | None, columns: Sequence[str]
) -> Iterator[dict[str, str | list[str] | None]]:
    """Yields the rows of a JSON file, every value as text."""
    keys = records.split(".") if records else []
    flattener = Flattener(columns)
    is_nested = bool(keys) or any("." in column for column in columns)
    for where, value in read_values(path):
        if not keys and where == str(path):
            lists = ", ".join(name for name, part in value.items() if isinstance(part, list)) or "none"
            raise ValueError(
                f"{path} is one object: name the list of posts in it by --records; its lists are {lists}."
            )
        for number, (record, *around) in enumerate(each_record(value, keys, where) if keys else [(value,)]):
            name = f"{where}, record {number} (counting from 0)" if keys else where
            is_row = is_nested and isinstance(record, dict)
            yield to_texts(flattener.row(record, around, name) if is_row else record, name)
    flattener.warn(str(path))


def read_values(path: str | Path) -> Iterator[tuple[str, Any]]:
    """
    Yields where they stand, and the values of a JSON file: one in each line, those of one list, or one object whose
    first line is its brace. Numbers are texts.
    """
    as_integer = partial(re.sub, r"\.0+$", "")
    settings = {"parse_int": str, "parse_float": as_integer, "parse_constant": lambda _: None, "hint": JSON_HINT}
    for number, line in read_lines(path):
        if number == 1 and (line.lstrip().startswith("[") or line.strip() == "{"):
            with open_text(path) as file:
                content = decode_json(file.read(), path, **settings)
            if isinstance(content, dict):
                yield str(path), content
            else:
                yield from ((f"{path}, entry {entry} (counting from 0)", row) for entry, row in enumerate(content))
            return
        yield f"{path}, line {number}", decode_json(line, path, number, **settings)


def to_texts(row: Any, where: str) -> dict[str, str | list[str] | None]:
    """Returns the values of an object as text. Lists are shortened, and other nested values are left out."""
    texts = {}
    for name, value in (row if isinstance(row, dict) else {}).items():
        values = value if isinstance(value, list) else [value]
        if any(isinstance(part, (dict, list)) for part in values):
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


def check_column(present: Collection[str], column: str, role: str, hint: str = ""):
    """
    Raises a `ValueError` if a table has no column of this name; `role` names the option that renames it, and `hint` is
    added to the message.
    """
    if column not in present:
        raise ValueError(
            f"There is no column '{column}' for the {role}; the columns are {', '.join(present)}. Name yours by "
            f"--{role}_column (in Python `{role}_column=`).{hint}"
        )
