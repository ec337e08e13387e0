"""Reads and writes files."""

import errno
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from filelock import FileLock, Timeout


PACKAGE = Path(__file__).parents[1]
# Rows of a table in memory while it is read
ROWS_AT_ONCE = 1000
# Endings of compressed files, which are decompressed while they are read.
ZIPPED = (".gz", ".zst")
# Endings of tables of text, which may be compressed, and of all tables.
JSON, CELLS, PARQUET, EXCEL = (".json", ".jsonl", ".ndjson"), (".csv", ".tsv"), ".parquet", ".xlsx"
TABLES = tuple(kind + zipped for kind in (*CELLS, *JSON) for zipped in ("", *ZIPPED)) + (EXCEL, PARQUET)
SEPARATORS = ",;\t|"
IN_QUOTES = re.compile(r'"[^"]*(?:"|$)')
# Files whose names begin with an underscore are never pushed.
LOCK = "_lock"
# Beginnings of files that are not of the kind that their names say, and advice.
OTHER_KINDS = (
    (
        re.compile(rb"version https://git-lfs\.github\.com/spec/"),
        "a pointer of Git LFS, which stands for the file: get the file by git lfs pull",
    ),
    (
        re.compile(rb"(?:<\?xml[^>]*>|<!--.*?-->|\s)*<(?:!doctype\s+)?html\b", re.IGNORECASE | re.DOTALL),
        "an HTML page, perhaps one that asks for a login in the place of a download: download the file in a browser "
        "where you are logged in, or save the texts of the page as plain text",
    ),
    (re.compile(rb"\{\\rtf"), "RTF, of a word processor: save it as plain text in UTF-8"),
    (re.compile(rb"%PDF-"), "a PDF: convert it to plain text in UTF-8, by pdftotext for example"),
    (
        re.compile(rb"@(?:UTF8|Begin)\s*[\r\n]"),
        "a CHAT transcript: write its utterances, without codes, one on each line of a text file or to a table "
        "with a column of dates, by pylangacq for example, whose words have full stops among them",
    ),
)
# The messages, without an error number, of safetensors, PyTorch and NumPy when they cannot write a whole file.
CUT_SHORT = re.compile(r"Error while serializing|enforce fail at inline_container\.cc|\d+ requested and \d+ written")


def open_bytes(path: str | Path) -> IO[bytes]:
    """Opens a file to read. Decompresses a file that ends in `.gz` or `.zst`."""
    suffix = Path(path).suffix.lower()
    if suffix == ".zst":
        return pa.input_stream(str(path), compression="zstd")
    return gzip.open(path) if suffix == ".gz" else open(path, "rb")


def open_text(path: str | Path, newline: str | None = None, errors: str | None = None) -> IO[str]:
    """
    Opens a UTF-8 file to read, with or without a byte-order mark, and perhaps compressed ([`open_bytes`]). `newline`
    and `errors` are arguments of Python's `open`.
    """
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors=errors, newline=newline)


def unzipped_name(path: str | Path) -> str:
    """Returns the name of a file without the ending of its compression."""
    path = Path(path)
    return path.stem if path.suffix.lower() in ZIPPED else path.name


def name_of_timeline(path: str | Path) -> str:
    """Returns the name of a file without its endings, which is the id of its timeline if it has only one."""
    return Path(unzipped_name(path)).stem


def read_lines(path: str | Path, keep_blank: bool = False) -> Iterator[tuple[int, str]]:
    """
    Yields the lines of a file, with their numbers from 1, without blank ones unless `keep_blank`. The file may be
    compressed ([`open_text`]).
    """
    with naming_broken_file(path), open_text(path) as file:
        for number, line in enumerate(file, 1):
            if keep_blank or line.strip():
                yield number, line.rstrip("\n")


def find_separator(header: str) -> str:
    """
    Returns the separator of a table: the comma, semicolon, tab or vertical bar, whichever its first line has most of
    outside of quotes.
    """
    return max(SEPARATORS, key=IN_QUOTES.sub("", header).count)


def decode_json(text: str, path: str | Path, line: int = 1, hint: str = "", **settings: Any) -> Any:
    """
    Decodes JSON that begins in a line of a file; `settings` are arguments of `json.loads`. Raises a `ValueError` that
    names file, line and column of a mistake, with a hint.
    """
    try:
        return json.loads(text, **settings)
    except json.JSONDecodeError as problem:
        where = f"{path}, line {line + problem.lineno - 1}, column {problem.colno}"
        raise ValueError(f"{where}: this is not JSON ({problem.msg}){hint}.") from None


def refuse_other_kind(path: str | Path):
    """Raises a `ValueError` with advice for a file that begins as one of another kind than its name says."""
    # A pipe can be read only once.
    if not Path(path).is_file():
        return
    with open(path, "rb") as file:
        start = file.read(1000)
    if start.startswith(b"\x1f\x8b"):
        with gzip.open(path) as file:
            start = file.read(1000)
    for begins, kind in OTHER_KINDS:
        if begins.match(start.removeprefix(b"\xef\xbb\xbf").lstrip()):
            raise ValueError(f"{path} is {kind}.")


@contextmanager
def naming_broken_file(path: str | Path) -> Iterator[None]:
    """
    Turns the errors of a damaged or wrongly named file into a `ValueError` that names the file. Refuses files of other
    kinds.
    """
    try:
        refuse_other_kind(path)
        yield
    except UnicodeDecodeError as problem:
        raise ValueError(
            f'{path} is not UTF-8 ({problem}): save it as UTF-8, which spreadsheets call "CSV UTF-8".'
        ) from None
    except (OSError, EOFError, zlib.error, pa.ArrowInvalid) as problem:
        if getattr(problem, "errno", None) is not None:  # such as a missing file
            raise
        # The dumps of Reddit need more memory than pyarrow grants.
        hint = "; if it is whole, unpack it by zstd -d --long=31" if Path(path).suffix.lower() == ".zst" else ""
        raise ValueError(f"{path} cannot be read, it may have been cut short: {problem}{hint}") from None


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yields a temporary path, and renames it to `path` at the end: the file is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Keeps the ending, which decides on a format. Names that begin with an underscore are never pushed.
    partial = path.with_name(f"_{os.getpid()}_{path.name}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, content: Any):
    """Writes a JSON file, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def data_folder(name: str) -> Path:
    """Returns a folder of the project that holds no code: inside the installed package, beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


@contextmanager
def lock_folder(folder: str | Path, is_main_process: bool = True) -> Iterator[None]:
    """
    Creates an output folder and locks it for one run. Raises a `ValueError` if another run has locked it, and an
    `OSError` with advice if the disk is full.
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
    except Exception as problem:
        is_full = getattr(problem, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if not is_full and not CUT_SHORT.search(str(problem)):
            raise
        raise OSError(
            f"A file could not be written to its end ({problem}): make room on the disks of {folder} and of the "
            "cache, and give the same command again, which goes on from the last whole checkpoint."
        ) from problem
    finally:
        lock.release()
