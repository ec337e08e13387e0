"""Tables of posts or texts: CSV, TSV, JSON lines, Parquet, and datasets of the Hub."""

import csv
import glob
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset, Features, IterableDataset, Value, get_dataset_split_names, load_dataset
from datasets.exceptions import DatasetGenerationError
from pyarrow import ArrowInvalid
from pyarrow.parquet import ParquetFile


# Else a server is told of every table that is read, local ones too.
datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False


# Of a JSON file, in bytes: its reader counts them in 32 bits.
LARGEST_CHUNK = 1 << 30


def load_table(path: str, streaming: bool = False) -> Dataset | IterableDataset:
    """
    The rows of a table.

    Args:
        path (`str`): A `.csv`, `.tsv`, `.json`, `.jsonl` or `.parquet` file, UTF-8 where it is text. CSV cells are
            text, and an empty one is empty.
        streaming (`bool`, *optional*, defaults to `False`): Whether rows are read as they are needed.

    Returns:
        `Dataset` or `IterableDataset`. Raises a `ValueError` that names the file, and the line where there
        is one, for what is no such table or has no rows.
    """
    kind = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}.get(
        Path(path).suffix.lower()
    )
    if kind is None:
        raise ValueError(f"{path}: not a .csv, .tsv, .json, .jsonl or .parquet file.")
    settings = {}
    if kind == "csv":
        separator = "\t" if path.lower().endswith(".tsv") else ","
        columns = check_csv(path, separator)
        # As text, so that an id such as 007 stays what it is.
        features = Features({column: Value("string") for column in columns})
        settings = {"sep": separator, "features": features, "keep_default_na": False, "encoding": "utf-8-sig"}
    if kind == "json":
        columns = check_json(path)
        if streaming and columns:
            # A tuple, because a list would be taken for shards.
            return IterableDataset.from_generator(stream_json, gen_kwargs={"path": path, "columns": tuple(columns)})
        # Else its reader takes columns and their types from the first 10 MB, and fails on what comes later.
        settings = {"chunksize": min(Path(path).stat().st_size, LARGEST_CHUNK)}
    if kind == "parquet":
        check_parquet(path)
    try:
        # What is meant is this file, and none that its name would match as a pattern.
        return load_dataset(kind, data_files=glob.escape(path), split="train", streaming=streaming, **settings)
    except (DatasetGenerationError, ArrowInvalid) as problem:
        raise ValueError(f"{path} cannot be read as {kind}: {problem.__cause__ or problem}") from None


def check_csv(path: str, separator: str) -> list[str]:
    """
    The columns of a file. What reads it afterwards would shift cells, or take those that are missing for empty ones.
    """
    number, longest = 0, csv.field_size_limit(sys.maxsize)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            last: list[str] = []
            lines = csv.reader(keep_last(file, last), delimiter=separator, strict=True)
            columns = next(lines, [])
            check_separator(path, columns)
            for place, column in enumerate(columns):
                if not column or column in columns[:place]:
                    hint = "" if column else " The index of a pandas table? Write it by to_csv(index=False)."
                    raise ValueError(
                        f"{path}: column {place} (counting from 0) must have a name of its own: {column!r}.{hint}"
                    )
            number = lines.line_num
            has_rows = False
            for cells in lines:
                number = lines.line_num
                # A blank line is passed over.
                if cells and len(cells) != len(columns):
                    what = f"{len(cells)} cells in a table of {len(columns)} columns"
                    raise ValueError(f"{path}, line {number}: {what}.")
                if not cells and last == ["\r"]:
                    raise ValueError(f"{path}, line {number}: a blank line ends in a carriage return alone.")
                if any("\0" in cell for cell in cells):
                    raise ValueError(f"{path}, line {number}: a cell has the character NUL.")
                has_rows = has_rows or bool(cells)
    except UnicodeDecodeError:
        raise ValueError(name_bad_byte(path)) from None
    except csv.Error as problem:
        raise ValueError(f"{path}, after line {number}: {problem}.") from None
    finally:
        csv.field_size_limit(longest)
    if not has_rows:
        raise ValueError(f"{path} has no rows.")
    return columns


def keep_last(lines: Iterable[str], last: list[str]) -> Iterator[str]:
    """The same lines, of which the last one that was given out is the only entry of `last`."""
    for line in lines:
        last[:] = [line]
        yield line


def check_separator(path: str, columns: list[str]):
    """Raises a `ValueError` where a table has one column, as its cells are separated by something else."""
    for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
        if len(columns) == 1 and other in columns[0]:
            raise ValueError(
                f"{path} seems to be separated by {name}; a .csv file is read by its commas, a .tsv file by its tabs."
            )


def check_parquet(path: str):
    """Raises a `ValueError` for a table without rows, which its reader fails on."""
    try:
        num_rows = ParquetFile(path).metadata.num_rows
    except ArrowInvalid as problem:
        raise ValueError(f"{path} cannot be read as parquet: {problem}") from None
    if not num_rows:
        raise ValueError(f"{path} has no rows.")


def check_json(path: str) -> list[str]:
    """
    The columns of a file, each line of which must be an object; none, unlooked at, where the file is one list of them,
    which its reader checks.
    """
    number, has_rows = 0, False
    columns: dict[str, None] = {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.lstrip().startswith("["):
                    has_rows = "{" in line + file.read(100)
                    columns = {}
                    break
                if not line.strip():
                    continue
                has_rows = True
                if not isinstance(row := json.loads(line), dict):
                    raise ValueError(f"{path}, line {number}: {line.strip()!r:.80} is no JSON object.")
                columns |= dict.fromkeys(row)
    except UnicodeDecodeError:
        raise ValueError(name_bad_byte(path)) from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"{path}, line {number}: no JSON object ({problem}).") from None
    if not has_rows:
        raise ValueError(f"{path} has no rows.")
    return list(columns)


def stream_json(path: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The objects of a file's lines, with null in columns that one does not have."""
    with open(path, encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                row = json.loads(line)
                yield {column: row.get(column) for column in columns}


def name_bad_byte(path: str) -> str:
    """Where a file is no UTF-8 text."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as problem:
                return f"{path}, line {number}: the byte 0x{line[problem.start]:02x} is no UTF-8 text."
    return f"{path} is no UTF-8 text."


def load_hub_splits(
    name: str, config_name: str | None, streaming: bool = False, cache_dir: str | None = None, token: str | None = None
) -> dict[str, Dataset | IterableDataset]:
    """The train, validation and test splits that a dataset has; only the first is streamed."""
    present = get_dataset_split_names(name, config_name, token=token)
    wanted = ("train", "validation", "test")
    splits = {
        split: load_dataset(
            name,
            config_name,
            split=split,
            streaming=streaming and split == "train",
            cache_dir=cache_dir,
            token=token,
        )
        for split in wanted
        if split in present
    }
    if not splits:
        raise ValueError(f"{name} has the splits {', '.join(present)}; none of {', '.join(wanted)}.")
    return splits
