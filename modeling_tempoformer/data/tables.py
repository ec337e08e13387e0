"""Tables of posts or texts: CSV, TSV, JSON, Parquet, and datasets of the Hub."""

import csv
import json
import re
import zlib
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Features, IterableDataset, get_dataset_split_names, load_dataset
from pyarrow.parquet import ParquetFile

from .files import cells_of_any_length, name_bad_byte, open_text, read_lines


ROWS_AT_ONCE = 1000
# In a cell of CSV whose writer protects quotes by backslashes: the quote is there, or was taken for the cell's end.
PROTECTED_QUOTE = r'\\("|$)'
DOUBLED = (
    'a quote in a text must be doubled and not written after a backslash: in Spark by option("escape", \'"\'), in '
    "MySQL by ESCAPED BY '\"'"
)


def load_table(path: str | Path, streaming: bool = False) -> Dataset | IterableDataset:
    """
    The rows of a table. Nothing is kept in a cache on disk.

    Args:
        path (`str` or `Path`): A `.csv`, `.tsv`, `.json`, `.jsonl` or `.parquet` file. All but Parquet are UTF-8, and
            gzipped if `.gz` follows. A `.jsonl` or `.json` file has one object in each line, or is one list of them.
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
            return IterableDataset.from_generator(stream_rows, features=features, gen_kwargs={"path": str(path)})
    elif whole := list(tables):
        return Dataset(pa.concat_tables(whole, promote_options="default"))
    raise ValueError(f"{path} has no rows.")


def stream_rows(path: str) -> Iterator[dict[str, Any]]:
    """The rows of a table that [`load_table`] has checked."""
    for table in read_tables(path):
        for batch in table.to_batches(ROWS_AT_ONCE):
            yield from batch.to_pylist()


def read_tables(path: str) -> Iterator[pa.Table]:
    """A table piece by piece. The pieces of a JSON file may differ in their columns."""
    name = path.lower().removesuffix(".gz")
    try:
        if name.endswith((".csv", ".tsv")):
            yield from read_csv(path, "," if name.endswith(".csv") else "\t")
        elif name.endswith((".json", ".jsonl")):
            rows = read_objects(path)
            while part := list(islice(rows, ROWS_AT_ONCE)):
                columns = dict.fromkeys(column for row in part for column in row)
                yield pa.table({name: pa.array([row.get(name) for row in part], pa.string()) for name in columns})
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


def read_csv(path: str, separator: str) -> Iterator[pa.Table]:
    """The rows of a CSV file, every cell as text."""
    rows = read_rows(path, separator)
    (columns,) = take(rows, 1) or [[]]
    check_header(path, columns)
    is_suspect = False
    while part := take(rows, ROWS_AT_ONCE):
        table = pa.table([pa.array(cells, pa.string()) for cells in zip(*part, strict=True)], names=columns)
        is_suspect |= any(pc.any(pc.match_substring_regex(cells, PROTECTED_QUOTE)).as_py() for cells in table.columns)
        yield table
    if is_suspect:
        check_backslashes(path, separator)


def take(rows: Iterator[list[str]], count: int) -> list[list[str]]:
    """The next rows of a CSV file, at most `count`."""
    with cells_of_any_length():
        return list(islice(rows, count))


def read_rows(path: str, separator: str, **dialect: str) -> Iterator[list[str]]:
    """
    The rows of a CSV file, its header first. Raises a `ValueError` that names the line where the first bad row begins:
    one of more or fewer cells than the header, with quotes that RFC 4180 does not allow, or with a NUL.
    """
    end, number, num_columns = find_line_end(path), 0, None
    with open_text(path, newline=end) as file:
        lines = csv.reader(file, delimiter=separator, strict=True, **dialect)
        try:
            for cells in lines:
                if cells:
                    num_columns = num_columns or len(cells)
                    if len(cells) != num_columns:
                        raise csv.Error(f"{len(cells)} cells in a table of {num_columns} columns")
                    if "\0" in "".join(cells):
                        raise csv.Error("a NUL character")
                    yield cells
                number = lines.line_num
        except csv.Error as problem:
            with open_text(path, newline=end) as again:
                row = "".join(islice(again, number, lines.line_num))
            raise ValueError(f"{path}, line {number + 1}: {explain(str(problem), row)}.") from None


def find_line_end(path: str) -> str:
    """The last character of the lines of a CSV file. Old programs write a carriage return alone."""
    with open_text(path, newline="") as file:
        end = re.search("\r*\n|\r", file.read(1 << 16))
    return end[0][-1] if end else "\n"


def explain(problem: str, row: str) -> str:
    """What is wrong with a row of a CSV file, and what to do about it."""
    if problem.startswith("new-line character"):
        return (
            "a carriage return or line feed outside quotes that is not the end of a line; cells that have one must be "
            "quoted, as pandas does by to_csv(path, index=False, quoting=csv.QUOTE_ALL)"
        )
    if "\0" in row:
        return "the character NUL; is the file UTF-16?"
    if '\\"' in row:
        return f"{problem}; {DOUBLED}"
    hint = "text that holds the separator or quotes must be quoted, its quotes doubled"
    return f"{problem}; {hint}, or the file was cut short"


def check_backslashes(path: str, separator: str):
    """
    Raises a `ValueError` if a CSV file is a table also if backslashes protect quotes, and has other cells then: it is
    unknown which of both was written.
    """
    differs = None
    both = zip_longest(read_rows(path, separator), read_rows(path, separator, escapechar="\\"), fillvalue=())
    try:
        with cells_of_any_length():
            for row, readings in enumerate(both, -1):
                plain, protected = ([cell.replace("\\", "") for cell in cells] for cells in readings)
                if differs is None and plain != protected:
                    differs = row
    except ValueError:
        return
    if differs is not None:
        raise ValueError(
            f"{path}, row {differs} (counting from 0): a quote after a backslash, which may be text or the end of a "
            f"cell; {DOUBLED}."
        )


def check_header(path: str, columns: list[str]):
    """Raises a `ValueError` if the first line of a CSV file is not a header of names that differ."""
    if len(columns) == 1:
        for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
            if other in columns[0]:
                raise ValueError(
                    f"{path} seems to be separated by {name}: save it with commas as .csv, or with tabs as .tsv."
                )
    for place, column in enumerate(columns):
        if not column:
            raise ValueError(
                f"{path}: column {place} (counting from 0) has no name. pandas writes its index so: leave it out by "
                "to_csv(path, index=False)."
            )
        if column in columns[:place]:
            raise ValueError(f"{path}: column {place} (counting from 0) has the name of another: {column!r}.")


def read_objects(path: str) -> Iterator[dict[str, str | None]]:
    """The objects of a JSON file, their values as text."""
    as_integer = partial(re.sub, r"\.0+$", "")
    decode = partial(json.loads, parse_int=str, parse_float=as_integer, parse_constant=lambda _: None)
    lines = read_lines(path)
    number, first = start = next(lines, (0, ""))
    try:
        if first.lstrip().startswith("["):
            number = 1
            for place, row in enumerate(decode(read_whole(path))):
                yield to_texts(row, f"{path}, entry {place} (counting from 0)")
            return
        for number, line in chain([start], lines) if first else ():
            yield to_texts(decode(line), f"{path}, line {number}")
    except json.JSONDecodeError as problem:
        if number == start[0]:
            check_object(path)
        line = number + problem.lineno - 1
        what = "a JSON file must have one object in each line, or be one list of objects"
        raise ValueError(f"{path}, line {line}: {problem.msg}; {what}, and may have been cut short.") from None
    except RecursionError:
        raise ValueError(f"{path}, line {number}: what begins here is nested too deep to be read.") from None


def read_whole(path: str) -> str:
    """The text of a file."""
    with open_text(path) as file:
        return file.read()


def check_object(path: str):
    """Raises a `ValueError` for a JSON file that is one object over several lines."""
    try:
        whole = json.loads(read_whole(path))
    except (json.JSONDecodeError, RecursionError):
        return
    raise no_post(f"{path}: the file is one object over several lines", whole)


def no_post(problem: str, content: dict) -> ValueError:
    """The error of an object that is no post."""
    lists = [name for name, value in content.items() if isinstance(value, list)]
    hint = f"if the posts are in {lists[0]!r}, save that list alone" if lists else "give one object for each post"
    return ValueError(f"{problem}; {hint}, as pandas does by to_json(path, orient='records', lines=True).")


def to_texts(row: Any, place: str) -> dict[str, str | None]:
    """The values of an object as text, without nested ones."""
    if not isinstance(row, dict):
        raise ValueError(f"{place}: expected a JSON object, got {row!r:.80}.")
    texts = {
        name: json.dumps(value) if isinstance(value, bool) else value
        for name, value in row.items()
        if not isinstance(value, (dict, list))
    }
    if not texts:
        raise no_post(f"{place}: the object has no values of its own", row)
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
