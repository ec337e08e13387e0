"""Row names: a first column without a name, as R and pandas write it."""

from collections.abc import Iterator

from transformers.utils import logging

from .export import Export


logger = logging.get_logger(__name__)


def is_mine(export: Export) -> bool:
    """Tells whether the first of several columns has no name."""
    names = next(iter(export.cells), [])
    return len(names) > 1 and names[0] == ""


def as_table(export: Export) -> Iterator[list[str]]:
    """Yields the rows of cells without the first cell of each."""
    logger.warning_once(f"{export.path}: left out the first column, which has no name, such as the row names of R.")
    for _, *cells in export.items():
        yield cells
