"""Qualtrics: surveys as CSV, with two rows below the names that describe the columns."""

from collections.abc import Iterator
from itertools import islice

from transformers.utils import logging

from .export import Export


logger = logging.get_logger(__name__)

# Begins each cell of the third row. The second row has the questions.
IMPORT_ID = '{"ImportId"'


def is_mine(export: Export) -> bool:
    """Tells whether the third row of a table describes columns to Qualtrics."""
    return len(export.cells) == 3 and export.cells[2][0].startswith(IMPORT_ID)


def as_table(export: Export) -> Iterator[list[str]]:
    """Yields the rows of cells, without the two that describe the columns."""
    logger.warning_once(
        f"{export.path} is from Qualtrics: left out the two rows below the names, which describe the columns."
    )
    rows = export.items()
    yield next(rows)
    yield from islice(rows, 2, None)
