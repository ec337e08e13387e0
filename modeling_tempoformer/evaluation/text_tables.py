"""Tables as plain text."""

from collections.abc import Iterable

import pandas as pd


def escape_control_characters(text: str) -> str:
    """Writes out characters that are not printable: a newline breaks a table, and a terminal obeys escape codes."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def format_table(rows: pd.DataFrame | Iterable[dict]) -> str:
    """A table in aligned columns. Numbers have three digits, missing values are blank."""
    table = pd.DataFrame(rows).rename(columns=escape_control_characters)
    table = table.map(lambda cell: escape_control_characters(cell) if isinstance(cell, str) else cell)
    return table.to_string(index=False, na_rep="", float_format="{:.3f}".format)
