"""Reading and writing files."""

import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file (`.gz`: compressed) that are not blank, with their numbers, counting from 1."""
    number = 0
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\n")
    except (gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError) as problem:
        kind = "gzip-compressed UTF-8 text" if path.suffix == ".gz" else "UTF-8 text"
        raise ValueError(f"{path}, after line {number}: cannot be read as {kind} ({problem}).") from None


def write_json(path: Path, content: Any):
    """Writes a file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)
