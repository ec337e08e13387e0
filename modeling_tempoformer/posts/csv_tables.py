"""Reads tables of cells: CSV, TSV, and the sheets of spreadsheets."""

import csv
import io
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import pandas as pd
import pyarrow as pa
from transformers.utils import logging

from ..common.files import ROWS_AT_ONCE, open_text
from .csv_shapes import LOOKED_AT, ROW_NAMES, explain, find_separator


logger = logging.get_logger(__name__)

# All CSV readers of a process share one limit of the size of a cell.
CELL_LIMIT = threading.Lock()
# A first line that tells Excel the separator
NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?\s*')
# Begins each cell of the third row of a CSV file from Qualtrics. The second row has the questions.
QUALTRICS = '{"ImportId"'
# The number of digits that a spreadsheet keeps.
DIGITS_OF_EXCEL = 15


def read_csv(path: str | Path, content: str | None = None) -> Iterator[pa.Table]:
    """Yields the rows of a CSV file, every cell as text. `content`, if given, is read instead of the file."""
    return to_tables(read_rows(path, content), path)


def read_excel(path: str | Path) -> Iterator[pa.Table]:
    """Yields the rows of the first sheet of a spreadsheet that has cells, every cell as text."""
    return to_tables(read_sheet(path), path)


def to_tables(rows: Iterator[list[str]], path: str | Path) -> Iterator[pa.Table]:
    """Yields tables of rows of cells, the first of which name the columns."""
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
    if columns[1:] and columns[-1] == "" not in columns[:-1]:
        raise ValueError(
            f"{path}: the last column has no name, as where each line ends with a separator: name the column, or "
            "delete the separators at the ends of the lines."
        )
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


def read_rows(path: str | Path, content: str | None) -> Iterator[list[str]]:
    """
    Yields the rows of a CSV file, its header first. Leaves out lines that repeat the header, as where files were put
    one after the other, and counts them in a warning. Raises a `ValueError` for the first bad row.
    """
    number, names, repeated = 0, [], []
    with open_cells(path, content) as file:
        header = file.readline()
        if named := NAMED_SEPARATOR.fullmatch(header):
            number, header = 1, file.readline()
        separator, before = named[1] if named else find_separator(header), number
        lines = csv.reader(chain([header], file), delimiter=separator, strict=True)
        try:
            for cells in lines:
                names = names or cells
                if cells is not names and names_again(cells, names, f"{path}, line {number + 1}"):
                    repeated.append(number + 1)
                elif cells:
                    if len(cells) != len(names):
                        raise csv.Error(f"{len(cells)} cells in a table of {len(names)} columns")
                    yield cells
                number = before + lines.line_num
        except csv.Error as problem:
            with open_cells(path, content) as again:
                first = list(islice(again, before, LOOKED_AT))
            raise ValueError(f"{path}, line {number + 1}: {problem}; {explain(first, separator, before)}.") from None
    if repeated:
        logger.warning_once(
            f"{path}: left out {len(repeated)} lines that name the columns again, the first in line {repeated[0]}."
        )


def open_cells(path: str | Path, content: str | None) -> IO[str]:
    """Opens a CSV file, or its `content` if it is given, with its line breaks."""
    return open_text(path, newline="") if content is None else io.StringIO(content, newline="")


def names_again(cells: list[str], names: list[str], where: str) -> bool:
    """
    Tells whether a row is the header again, with or without a byte-order mark. Raises a `ValueError` that begins with
    `where` for the same names in another order.
    """
    if len(names) < 2 or len(cells) != len(names):
        return False
    cells = [cells[0].removeprefix("\ufeff").strip('"'), *cells[1:]]
    if cells != names and sorted(cells) == sorted(names):
        raise ValueError(
            f"{where}: the columns are named again, in another order than in the first line: give each order a file "
            "of its own."
        )
    return cells == names


def read_sheet(path: str | Path) -> Iterator[list[str]]:
    """Yields the rows of the first sheet that has cells, as texts. A warning names others."""
    try:
        sheets = pd.read_excel(path, sheet_name=None, header=None, dtype=object, engine="openpyxl")
    except ImportError:
        raise ValueError(
            f"{path}: to read a spreadsheet needs openpyxl: install the extra `excel`, or save the sheet as "
            '"CSV UTF-8" and give that file.'
        ) from None
    except BadZipFile as problem:
        raise ValueError(f"{path} is not a spreadsheet, or was cut short: {problem}.") from None
    filled = {name: sheet.dropna(how="all").dropna(how="all", axis="columns") for name, sheet in sheets.items()}
    first, *others = [name for name, sheet in filled.items() if not sheet.empty] or [None]
    if others:
        logger.warning_once(f"{path}: read the sheet {first!r}, and left out {', '.join(map(repr, others))}.")
    for row in filled[first].itertuples(index=False) if first is not None else ():
        yield ["" if pd.isna(cell) else cell_text(cell) for cell in row]


def cell_text(cell: Any) -> str:
    """Returns the text of a spreadsheet's cell. A number that has lost its last digits is written as shortened."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        if abs(cell) >= 10**DIGITS_OF_EXCEL:
            return f"{cell:.{DIGITS_OF_EXCEL - 1}E}"
        return str(int(cell)) if cell % 1 == 0 else repr(cell)
    if isinstance(cell, datetime):
        return str(cell).removesuffix(" 00:00:00")
    return str(cell)
