"""Spreadsheets: the first sheet of a file of Excel (`.xlsx`) that has cells."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import pandas as pd
from transformers.utils import logging

from ..common.files import EXCEL
from .export import Export


logger = logging.get_logger(__name__)

# The number of digits that a spreadsheet keeps.
DIGITS_OF_EXCEL = 15
# A character that XML cannot hold, as a spreadsheet writes it: a carriage return is _x000D_.
ESCAPED = re.compile("_x([0-9A-Fa-f]{4})_")


def is_mine(export: Export) -> bool:
    """Tells whether a file is a spreadsheet."""
    return str(export.path).lower().endswith(EXCEL)


def as_table(export: Export) -> Iterator[list[str]]:
    """Yields the rows of the sheet, every cell as text."""
    return read_sheet(export.path)


def read_sheet(path: str | Path) -> Iterator[list[str]]:
    """Yields the rows of the first sheet that has cells, as texts. A warning names others."""
    try:
        sheets = read_sheets(path)
    except ImportError:
        raise ValueError(
            f"{path}: to read a spreadsheet needs openpyxl: install the extra `excel`, or save the sheet as "
            '"CSV UTF-8" and give that file.'
        ) from None
    except BadZipFile as problem:
        raise ValueError(f"{path} is not a spreadsheet, or was cut short: {problem}.") from None
    sheets = {name: sheet.replace("", None) for name, sheet in sheets.items()}
    filled = {name: sheet.dropna(how="all").dropna(how="all", axis="columns") for name, sheet in sheets.items()}
    first, *others = [name for name, sheet in filled.items() if not sheet.empty] or [None]
    if others:
        logger.warning_once(f"{path}: read the sheet {first!r}, and left out {', '.join(map(repr, others))}.")
    for row in filled[first].itertuples(index=False) if first is not None else ():
        yield ["" if pd.isna(cell) else cell_text(cell) for cell in row]


def read_sheets(path: str | Path) -> dict[str, pd.DataFrame]:
    """
    Returns the cells of each sheet, an empty one as "". A formula that no program has computed, which is what a
    library makes of the post `=) slept well`, is the text that was written; a warning counts them.
    """
    options = {"sheet_name": None, "header": None, "dtype": object, "keep_default_na": False, "engine": "openpyxl"}
    sheets = pd.read_excel(path, **options)
    with ZipFile(path) as archive:
        parts = [archive.read(name) for name in archive.namelist() if name.startswith("xl/worksheets/")]
    if not any(b"<f>" in part or b"<f " in part for part in parts):
        return sheets
    for name, written in pd.read_excel(path, **options, engine_kwargs={"data_only": False}).items():
        values = sheets[name].reindex(index=written.index, columns=written.columns, fill_value="")
        unknown = values.eq("") & written.ne("")
        sheets[name] = values.mask(unknown, written)
        if unknown.to_numpy().any():
            first = written.to_numpy()[unknown.to_numpy()][0]
            logger.warning_once(
                f"{path}, sheet {name!r}: {unknown.to_numpy().sum()} formulas without a value, such as {first!r}, are "
                "read as they are written. If they are no texts, save the file in a spreadsheet program first."
            )
    return sheets


def cell_text(cell: Any) -> str:
    """Returns the text of a spreadsheet's cell. A number that has lost its last digits is written as shortened."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        if abs(cell) >= 10**DIGITS_OF_EXCEL:
            return f"{cell:.{DIGITS_OF_EXCEL - 1}E}"
        return str(int(cell)) if cell % 1 == 0 else repr(cell)
    if isinstance(cell, datetime):
        return str(cell).removesuffix(" 00:00:00")
    return ESCAPED.sub(lambda match: chr(int(match[1], 16)), str(cell))
