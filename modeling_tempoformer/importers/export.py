"""A file of another tool while it is made a table of posts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from transformers.utils import logging

from ..common.columns import TIMELINE, USUAL
from ..posts.csv_tables import to_tables
from ..posts.json_tables import columns_of_records


logger = logging.get_logger(__name__)

# The columns of a table of posts
TEXT, POST_ID = "text", "post_id"
OURS = {TIMELINE, TEXT, POST_ID, *USUAL.values()}


class Form(NamedTuple):
    """
    Facts that a user states of a file.

    Attributes:
        records (`str`, *optional*): The path of keys, joined by dots, to the list of posts in each object of a file.
        columns (`Sequence[str]`): Columns that are wanted; in JSON, `author.name` is the path of a value.
        one_timeline (`bool`): Whether the file is one timeline, named after it.
        drop_incomplete (`bool`): Whether objects of JSON without `records` are left out.
        label (`str`, *optional*): The column of labels.
    """

    records: str | None = None
    columns: Sequence[str] = ()
    one_timeline: bool = False
    drop_incomplete: bool = False
    label: str | None = None


class Export:
    """
    The contents of a file, as far as it was read.

    Args:
        path (`str` or `Path`): The file.
        form ([`Form`]): What the user says of it.
        read (`Callable[[], Iterable]`): Reads it from the beginning. Its items are rows of cells, the first of them
            the names of the columns (`list[str]`); or values of JSON, each after its place in the file
            (`tuple[str, Any]`); or tables (`pa.Table`).
        before ([`Export`], *optional*): What an importer has made these items of.
    """

    def __init__(
        self, path: str | Path, form: Form, read: Callable[[], Iterable[Any]], before: "Export | None" = None
    ):
        self.path, self.form, self.read, self.before = path, form, read, before
        # The number of items that were no posts
        self.num_left_out = 0
        # The items that were looked at before, and those that follow them
        self.first: list[Any] = []
        self.rest: Iterator[Any] | None = None

    def begin(self, number: int = 1) -> list[Any]:
        """Returns the first items, fewer if there are no more."""
        if self.rest is None:
            self.first, self.rest = [], iter(self.read())
        self.first += islice(self.rest, max(0, number - len(self.first)))
        return self.first[:number]

    def items(self) -> Iterator[Any]:
        """Returns all items. The second call reads the file again."""
        self.begin()
        first, rest, self.rest = self.first, self.rest, None
        return chain(first, rest)

    @property
    def cells(self) -> list[list[str]]:
        """The first three rows of cells; empty for another kind of file."""
        return self.begin(3) if any(isinstance(item, list) for item in self.begin()) else []

    @property
    def place(self) -> str | None:
        """The place of the first value of JSON; None for another kind of file."""
        item = next(iter(self.begin()), None)
        return item[0] if isinstance(item, tuple) else None

    @property
    def value(self) -> Any:
        """The first value of JSON, if no importer has read it; None for another kind of file."""
        return None if self.place is None or self.before else self.begin()[0][1]

    @property
    def has_left_out(self) -> bool:
        """Tells whether an importer has found items that are no posts."""
        return self.num_left_out > 0 or (self.before is not None and self.before.has_left_out)

    @property
    def is_described(self) -> bool:
        """Tells whether the user says where the posts of the file and their values are."""
        return self.form.records is not None or not OURS.issuperset(self.form.columns)

    def tables(self) -> Iterator[pa.Table]:
        """Yields the file as tables, none of them empty."""
        first = next(iter(self.begin()), None)
        if isinstance(first, tuple):
            return columns_of_records(self.items(), self.form.columns)
        return to_tables(self.items(), self.path) if isinstance(first, list) else self.items()


def tell_left_out(export: Export, number: int, what: str):
    """Warns of items of a file that are no posts. `what` is their plural."""
    export.num_left_out = number
    if number:
        logger.warning_once(f"{export.path}: left out {number} {what}.")
