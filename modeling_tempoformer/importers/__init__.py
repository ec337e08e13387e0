"""
Makes tables of the files of other tools. Each tool or layout is a module with the same two functions of an [`Export`]:
`is_mine` tells whether the file is of this kind, as far as the modules before have brought it; `as_table` yields the
items of the table, which are rows of cells, objects of JSON, or tables.
"""

from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

from . import (
    chat_messages,
    convokit,
    discord,
    garbled_texts,
    joined_files,
    labelling_tasks,
    messenger,
    nested_json,
    prodigy,
    qualtrics,
    reddit,
    row_names,
    slack,
    spreadsheets,
    teams,
    telegram,
    twitter,
)
from .export import Export


# In the order in which they are asked
IMPORTERS = (
    *(spreadsheets, joined_files, labelling_tasks, chat_messages),
    *(discord, slack, teams, telegram, messenger, twitter, reddit, convokit, prodigy),
    *(nested_json, qualtrics, row_names, garbled_texts),
)


def import_file(export: Export) -> Export:
    """Returns a file as a table. Each importer is asked in turn, and goes on from what those before it have made."""
    for importer in IMPORTERS:
        if importer.is_mine(export):
            export = Export(export.path, export.form, partial(read_items, importer, export), export)
    return export


def read_items(importer: ModuleType, export: Export) -> Iterator[Any]:
    """Yields the items that an importer makes. Raises a `ValueError` if the file lacks what its tool writes."""
    try:
        yield from importer.as_table(export)
    except KeyError as missing:
        tool = importer.__name__.rpartition(".")[2]
        raise ValueError(
            f"{export.path} is read as a file of {tool}, and something in it has no {missing}: say by --records "
            "and --columns where its posts are."
        ) from None
