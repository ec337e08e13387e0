"""Tables of posts or texts: CSV, TSV, JSON, Parquet, and datasets of the Hub."""

import csv
import json
import re
import zlib
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, Features, IterableDataset, get_dataset_split_names, load_dataset
from pyarrow.parquet import ParquetFile

from .files import cells_of_any_length, name_bad_byte, open_text, read_lines


ROWS_AT_ONCE = 1000
QUOTED = (
    "a text that holds the separator, a quote or a line break must be quoted and its quotes doubled, not put after "
    "a backslash (Spark needs option(\"escape\", '\"'), MySQL ESCAPED BY '\"'); or the file was cut short"
)
JSON_FORM = (
    "a JSON file must have one object for each post, in a line of its own or in one list, as pandas writes them by "
    "to_json(path, orient='records', lines=True)"
)


def load_table(path: str | Path, streaming: bool = False) -> Dataset | IterableDataset:
    """
    The rows of a table. Nothing is kept in a cache on disk.

    Args:
        path (`str` or `Path`): A `.csv`, `.tsv`, `.json`, `.jsonl` or `.parquet` file. All but Parquet are UTF-8, and
            gzipped if `.gz` follows. The first line of a `.csv` or `.tsv` shows what separates its cells: commas,
            semicolons or tabs. A `.jsonl` or `.json` file has one object in each line, or is one list of them.
        streaming (`bool`, *optional*, defaults to `False`): Whether rows are read as they are needed. The file is
            read through once before, to check it.

    Returns:
        `Dataset` or `IterableDataset`. Parquet columns keep their types. Cells of the other formats are text as it was
        written: ids such as `007` or 18446744073709551615 keep all digits. An empty CSV cell is an empty text. In JSON
        `7.0` is read as `7`, since programs write the integers of a column with gaps so; null, NaN and missing keys
        are None, and nested values are left out.

        Raises a `ValueError` that names the file, and the line where there is one, for a file that is not such a table
        or has no rows.
    """
    tables = (table for table in read_tables(str(path)) if table.num_rows)
    if streaming:
        schemas = [table.schema for table in tables]
        if schemas:
            features = Features.from_arrow_schema(pa.unify_schemas(schemas))
            return IterableDataset.from_generator(streamed_rows, features=features, gen_kwargs={"path": str(path)})
    elif whole := list(tables):
        return Dataset(pa.concat_tables(whole, promote_options="default"))
    raise ValueError(f"{path} has no rows.")


def streamed_rows(path: str) -> Iterator[dict[str, Any]]:
    """The rows of a table that [`load_table`] has checked."""
    for table in read_tables(path):
        for batch in table.to_batches(ROWS_AT_ONCE):
            yield from batch.to_pylist()


def read_tables(path: str) -> Iterator[pa.Table]:
    """A table piece by piece. The pieces of a JSON file may differ in their columns."""
    name = path.lower().removesuffix(".gz")
    try:
        if name.endswith((".csv", ".tsv")):
            yield from read_csv(path)
        elif name.endswith((".json", ".jsonl")):
            rows = read_objects(path)
            while some := list(islice(rows, ROWS_AT_ONCE)):
                columns = dict.fromkeys(column for row in some for column in row)
                yield pa.table({name: pa.array([row.get(name) for row in some], pa.string()) for name in columns})
        elif path.lower().endswith(".parquet"):
            with ParquetFile(path) as file:
                yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches())
        else:
            raise ValueError(f"{path}: not a .csv, .tsv, .json, .jsonl or .parquet file.")
    except UnicodeDecodeError:
        raise ValueError(name_bad_byte(path)) from None
    except UnicodeEncodeError as problem:
        raise ValueError(f"{path}: {problem.object!r:.80} has half of a surrogate pair, as of an emoji.") from None
    except (pa.ArrowInvalid, EOFError, OSError, zlib.error) as problem:
        if getattr(problem, "errno", None) is not None:  # such as a file that is not there
            raise
        raise ValueError(f"{path} cannot be read, it may have been cut short: {problem}") from None


def read_csv(path: str) -> Iterator[pa.Table]:
    """The rows of a CSV file, every cell as text."""
    rows = read_rows(path)
    (columns,) = take(rows, 1) or [[]]
    check_header(path, columns)
    while cells := take(rows, ROWS_AT_ONCE):
        yield pa.table([pa.array(column, pa.string()) for column in zip(*cells, strict=True)], names=columns)


def take(rows: Iterator[list[str]], count: int) -> list[list[str]]:
    """The next rows of a CSV file, at most `count`."""
    with cells_of_any_length():
        return list(islice(rows, count))


def find_separator(header: str, usual: str = ",") -> str:
    """What separates the names in the first line of a table: the comma, semicolon or tab that it has most of."""
    return max((usual, *",;\t"), key=header.count)


def read_rows(path: str) -> Iterator[list[str]]:
    """
    The rows of a CSV file, its header first. Raises a `ValueError` that names the line where the first bad row begins:
    one of more or fewer cells than the header, or with quotes that RFC 4180 does not allow.
    """
    number, num_columns = 0, None
    usual = "\t" if ".tsv" in path.lower() else ","
    with open_text(path, newline="") as file:
        header = file.readline()
        lines = csv.reader(chain([header], file), delimiter=find_separator(header, usual), strict=True)
        try:
            for cells in lines:
                if cells:
                    num_columns = num_columns or len(cells)
                    if len(cells) != num_columns:
                        raise csv.Error(f"{len(cells)} cells in a table of {num_columns} columns")
                    yield cells
                number = lines.line_num
        except csv.Error as problem:
            raise ValueError(f"{path}, line {number + 1}: {problem}; {QUOTED}.") from None


def check_header(path: str, columns: list[str]):
    """Raises a `ValueError` if the first line of a CSV file is not a header of names that differ."""
    for index, column in enumerate(columns):
        if not column:
            raise ValueError(
                f"{path}: column {index} (counting from 0) has no name. pandas writes its index so: leave it out by "
                "to_csv(path, index=False)."
            )
        if column in columns[:index]:
            raise ValueError(f"{path}: column {index} (counting from 0) has the name of another: {column!r}.")


def read_objects(path: str) -> Iterator[dict[str, str | None]]:
    """The objects of a JSON file, their values as text."""
    as_integer = partial(re.sub, r"\.0+$", "")
    decode = partial(json.loads, parse_int=str, parse_float=as_integer, parse_constant=lambda _: None)
    lines = read_lines(path)
    number, first = next(lines, (0, ""))
    is_list = first.lstrip().startswith("[")
    try:
        if is_list:
            with open_text(path) as file:
                number, rows = 1, decode(file.read())
            for index, row in enumerate(rows):
                yield to_texts(row, f"{path}, entry {index} (counting from 0)")
            return
        for number, line in chain([(number, first)], lines) if first else ():
            yield to_texts(decode(line), f"{path}, line {number}")
    except json.JSONDecodeError as problem:
        line = number + problem.lineno - 1
        raise ValueError(f"{path}, line {line}: {problem.msg}; {JSON_FORM}, and may have been cut short.") from None
    except RecursionError:
        raise ValueError(f"{path}, line {number}: what begins here is nested too deep to be read.") from None


def to_texts(row: Any, where: str) -> dict[str, str | None]:
    """The values of an object as text, without nested ones."""
    values = row if isinstance(row, dict) else {}
    texts = {
        name: json.dumps(value) if isinstance(value, bool) else value
        for name, value in values.items()
        if not isinstance(value, (dict, list))
    }
    if not texts:
        raise ValueError(f"{where}: expected an object with a post's values, got {row!r:.80}; {JSON_FORM}.")
    return texts


def check_column(present: Collection[str], column: str, role: str):
    """Raises a `ValueError` if a table has no column of this name; `role` names the option that renames it."""
    if column not in present:
        raise ValueError(
            f"There is no column '{column}' for the {role}; the columns are {', '.join(present)}. Name yours by "
            f"--{role}_column (in Python `{role}_column=`)."
        )


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
