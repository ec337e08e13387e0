"""Spreadsheets: the first sheet of a file of Excel (`.xlsx`) that has cells."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas as pd
from transformers.utils import logging

from ..common.files import EXCEL
from .export import Export


logger = logging.get_logger(__name__)

# The number of digits that a spreadsheet keeps.
DIGITS_OF_EXCEL = 15


def is_mine(export: Export) -> bool:
    """Tells whether a file is a spreadsheet."""
    return str(export.path).lower().endswith(EXCEL)


def as_table(export: Export) -> Iterator[list[str]]:
    """Yields the rows of the sheet, every cell as text."""
    return read_sheet(export.path)


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
