"""Writes texts and tables in Markdown."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def escape_control_characters(text: str) -> str:
    """Writes out unprintable characters, which may break a table, reverse a text, or control a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def markdown(text: str) -> str:
    """Escapes a text, so that Markdown shows it unchanged on one line."""
    visible = escape_control_characters(" ".join(text.split()))
    return re.sub(r"([\\`*_\[\]|#~$!])", r"\\\1", escape(visible, quote=False))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table. Floats have four significant digits; a cell of `None` stays empty."""
    lines = [header, ["---"] * len(header), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(value: Any) -> str:
    """The text of a cell."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else markdown(str(value))
