"""Joined files: tables that were put one after the other, so that rows in between name the columns again."""

from collections.abc import Iterator

from transformers.utils import logging

from .export import Export


logger = logging.get_logger(__name__)


def is_mine(export: Export) -> bool:
    """Tells that any table of several columns may be of joined files: whether it is shows while it is read."""
    return len(next(iter(export.cells), [])) > 1


def as_table(export: Export) -> Iterator[list[str]]:
    """
    Yields the rows of cells without those that are the header again, which a warning counts. Raises a `ValueError` for
    a row that has the names of the columns in another order.
    """
    rows, number, repeated = export.items(), 0, []
    names = next(rows)
    yield names
    for cells in rows:
        # A file may begin with a byte-order mark, which then stands before the quote of the first name.
        words = [cells[0].removeprefix("\ufeff").strip('"'), *cells[1:]]
        if words == names:
            repeated.append(number)
        elif sorted(words) == sorted(names):
            raise ValueError(
                f"{export.path}, before row {number} (counting from 0): the columns are named again, in another order "
                "than in the first line: give each order a file of its own."
            )
        else:
            yield cells
            number += 1
    if repeated:
        logger.warning_once(
            f"{export.path}: left out {len(repeated)} rows that name the columns again, the first before row "
            f"{repeated[0]} (counting from 0)."
        )
