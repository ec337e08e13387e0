"""
Makes tables of the files of other tools. Each tool or layout is a module with the same two functions of an [`Export`]:
`is_mine` tells whether the file is of this kind, as far as the modules before have brought it; `as_table` yields the
items of the table, which are rows of cells, objects of JSON, or tables.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from . import (
    garbled_texts,
    labelling_tasks,
    nested_json,
    qualtrics,
    row_names,
    spreadsheets,
)
from .export import Export, Form


# In the order in which they are asked
IMPORTERS = (spreadsheets, labelling_tasks, nested_json, qualtrics, row_names, garbled_texts)


def import_tables(path: str | Path, form: Form, read: Callable[[], Iterable[Any]]) -> Iterator[pa.Table]:
    """
    Yields a file as tables, none of them empty. Each importer is asked in turn, and goes on from what those before it
    have made. The arguments are those of [`Export`].
    """
    export = Export(path, form, read)
    for importer in IMPORTERS:
        if importer.is_mine(export):
            export = Export(path, form, partial(importer.as_table, export), importer.__name__)
    return export.tables()
