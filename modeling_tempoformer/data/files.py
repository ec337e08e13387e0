"""Reading and writing files."""

import csv
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, Any

from filelock import FileLock, Timeout


PACKAGE = Path(__file__).parents[1]
CSV_LIMIT = Lock()
# Files whose names begin with an underscore are never pushed.
LOCK = "_lock"


@contextmanager
def cells_of_any_length() -> Iterator[None]:
    """
    Python's CSV reader without its limit of 131,072 characters to a cell, since a post may be longer. The limit is the
    whole process's and not ours, so it is back when the block ends.
    """
    with CSV_LIMIT:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def open_text(path: str | Path, newline: str | None = None) -> IO[str]:
    """Opens a UTF-8 file to read, with or without a byte-order mark; one that ends in `.gz` is decompressed."""
    opener = gzip.open if Path(path).suffix == ".gz" else open
    return opener(path, "rt", encoding="utf-8-sig", newline=newline)


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers, counting from 1; the file may be gzipped."""
    number = 0
    try:
        with open_text(path) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\n")
    except UnicodeDecodeError:
        raise ValueError(name_bad_byte(path)) from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as problem:
        raise ValueError(
            f"{path}, after line {number}: cannot be read as gzip, it may have been cut short ({problem})."
        ) from None


def name_bad_byte(path: str | Path) -> str:
    """The first line of a file that is not UTF-8, and what to do about it."""
    with (gzip.open if Path(path).suffix == ".gz" else open)(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as problem:
                guess = "utf-16" if number == 1 and line[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252"
                return (
                    f"{path}, line {number}: the byte 0x{line[problem.start]:02x} is not UTF-8. Save the file as "
                    f'UTF-8 (in a spreadsheet: "CSV UTF-8"), or convert it, perhaps by '
                    f'`Path(new).write_text(Path(old).read_text("{guess}"), "utf-8")`.'
                )
    return f"{path} is not UTF-8."


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """
    A path beside `path` to write to, whose file takes the place of `path` at the end: a file is there whole or not at
    all, also where the writing is interrupted. The folder is made if it does not exist.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # It keeps the ending, which decides on a format, and is never pushed.
    partial = path.with_name(f"_{os.getpid()}_{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Any):
    """Writes a file that is there whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def data_folder(name: str) -> Path:
    """A folder of the project that holds no code: it is inside the installed package, and beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


@contextmanager
def lock_folder(folder: str | Path, is_main_process: bool = True) -> Iterator[None]:
    """
    Holds an output folder for one run, and makes it if it does not exist. Only the main process of a run takes the
    lock. Raises a `ValueError` at once if another run holds the folder, or if nothing can be written to it.
    """
    folder = Path(folder)
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if is_main_process:
            lock.acquire(blocking=False)
    except Timeout:
        raise ValueError(f"Another run is using {folder}: wait for it, or give another --output_dir.") from None
    except OSError as problem:
        raise ValueError(f"Nothing can be written to {folder} ({problem}): give another --output_dir.") from None
    try:
        yield
    finally:
        lock.release()
