"""Text and tables in Markdown."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def markdown(text: str) -> str:
    """Escapes a text, so that Markdown shows it unchanged on one line."""
    return re.sub(r"([\\`*_\[\]|#~$!])", r"\\\1", escape(" ".join(text.split()), quote=False))


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table. Floats have four significant digits; a cell of `None` stays empty."""
    lines = [header, ["---"] * len(header), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else markdown(str(value))
