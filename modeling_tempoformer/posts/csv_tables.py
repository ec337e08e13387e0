"""Reads tables of cells: CSV and TSV."""

import csv
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO

import pyarrow as pa

from ..common.files import ROWS_AT_ONCE, find_separator, open_text
from .csv_problems import LOOKED_AT, ROW_NAMES, explain


# All CSV readers of a process share one limit of the size of a cell.
CELL_LIMIT = threading.Lock()
# A first line that tells Excel the separator
NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?\s*')


def read_csv(path: str | Path, content: str | None = None) -> Iterator[pa.Table]:
    """Yields the rows of a CSV file, every cell as text. `content`, if given, is read instead of the file."""
    return to_tables(read_rows(path, content), path)


def to_tables(rows: Iterator[list[str]], path: str | Path) -> Iterator[pa.Table]:
    """Yields tables of rows of cells; the first row names the columns."""
    names = next(rows, [])
    if names[1:] and names[-1] == "" not in names[:-1]:
        raise ValueError(
            f"{path}: the last column has no name, as where each line ends with a separator: name the column, or "
            "delete the separators at the ends of the lines."
        )
    if "" in names or len(set(names)) < len(names):
        raise ValueError(
            f"{path}: the first line must name each column, and each differently (pandas leaves out its index by "
            f"to_csv(path, index=False); {ROW_NAMES}); got {names}."
        )
    while cells := list(islice(rows, ROWS_AT_ONCE)):
        yield pa.table([pa.array(column, pa.string()) for column in zip(*cells, strict=True)], names=names)


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


def read_rows(path: str | Path, content: str | None = None) -> Iterator[list[str]]:
    """Yields the rows of a CSV file, or of its `content` if it is given, its header first ([`read_csv_rows`])."""
    rows = read_csv_rows(path, content)
    while True:
        with cells_of_any_length():
            cells = list(islice(rows, ROWS_AT_ONCE))
        if not cells:
            return
        yield from cells


def read_csv_rows(path: str | Path, content: str | None) -> Iterator[list[str]]:
    """Yields the rows of a CSV file, its header first. Raises a `ValueError` for the first bad row."""
    number, names = 0, []
    with open_cells(path, content) as file:
        header = file.readline()
        if named := NAMED_SEPARATOR.fullmatch(header):
            number, header = 1, file.readline()
        separator, before = named[1] if named else find_separator(header), number
        lines = csv.reader(chain([header], file), delimiter=separator, strict=True)
        try:
            for cells in lines:
                names = names or cells
                if cells:
                    if len(cells) != len(names):
                        raise csv.Error(f"{len(cells)} cells in a table of {len(names)} columns")
                    yield cells
                number = before + lines.line_num
        except csv.Error as problem:
            with open_cells(path, content) as again:
                first = list(islice(again, before, LOOKED_AT))
            raise ValueError(f"{path}, line {number + 1}: {problem}; {explain(first, separator, before)}.") from None


def open_cells(path: str | Path, content: str | None) -> IO[str]:
    """Opens a CSV file, or its `content` if it is given, with its line breaks."""
    return open_text(path, newline="") if content is None else io.StringIO(content, newline="")
