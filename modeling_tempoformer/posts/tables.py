"""Reads tables of posts or texts: CSV, TSV, JSON, Parquet and spreadsheets."""

from collections.abc import Iterator, Sequence
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, IterableDataset, Value
from pyarrow import parquet

from ..common.columns import TIMELINE, find_column
from ..common.files import CELLS, EXCEL, JSON, PARQUET, TABLES, name_of_timeline, naming_broken_file, unzipped_name
from ..importers import import_file
from ..importers.export import Export, Form
from ..importers.labelling_tasks import in_order
from .column_types import cast_columns, common_features
from .csv_tables import read_rows
from .json_tables import LISTS, read_values, text_column
from .missing_codes import without_codes


# How to make a table of a file of another program, by its ending
OTHER_KINDS = {
    **dict.fromkeys((".xls", ".xlsm", ".xlsb", ".ods"), 'save the sheet as "CSV UTF-8", or as .xlsx'),
    ".sav": "from SPSS, make one by pandas.read_spss(path).to_csv('posts.csv', index=False), which needs pyreadstat",
    ".dta": "from Stata, make one by pandas.read_stata(path).to_csv('posts.csv', index=False)",
    ".rds": "from R, make one by write.csv(readRDS(path), 'posts.csv', na = '', row.names = FALSE)",
    ".vtt": (
        "of subtitles, make one for --columns timeline=none by pandas.DataFrame([(cue.start, cue.voice, cue.text) for "
        "cue in webvtt.read(path)], columns=['timestamp', 'speaker', 'text']).to_csv('posts.csv', index=False), which "
        "needs webvtt-py; a cue of several voices has the first one alone, so divide its cue.raw_text at each <v NAME>"
    ),
    ".eaf": (
        "from ELAN, make one by File > Export As > Tab-delimited Text with a line of column names, and name it .tsv"
    ),
}


def load_table(
    path: str | Path,
    records: str | None = None,
    columns: Sequence[str] = (),
    one_timeline: bool = False,
    drop_incomplete: bool = False,
    label: str | None = None,
    missing: Sequence[str] = (),
    streaming: bool = False,
) -> Dataset | IterableDataset:
    """
    Reads a table, or several.

    Args:
        path (`str` or `Path`): A `.csv`, `.tsv`, `.json`, `.jsonl`, `.ndjson`, `.xlsx` or `.parquet` file, or a
            pattern of several, such as `labelled/*.csv`. All but the last two are UTF-8, and compressed if `.gz` or
            `.zst` follows. Cells of a `.csv` or `.tsv` are separated by commas, semicolons, tabs or vertical bars,
            whichever the first line has most of, or as a line `sep=;` before it says. JSON has objects in lines or one
            after the other, one list of objects, or with `records` one object. The first sheet of a spreadsheet is
            read, by the extra `excel`.
        records (`str`, *optional*): The path of keys, joined by dots, to a list in each object of a JSON file: each of
            its objects is a row, with the fields of the objects around it. Where both have a field, the outer one is
            named `..field`. `*` stands for every key of an object; the key becomes a field `key`. By default each
            object is a row.
        columns (`Sequence[str]`, *optional*): Columns that are wanted. In JSON a dotted one, such as `author.name`, is
            the path of a value in an object.
        one_timeline (`bool`, *optional*, defaults to `False`): True to add a column `timeline_id` that has the name
            of the file, without its endings, in each row: all posts of the file are of one timeline.
        drop_incomplete (`bool`, *optional*, defaults to `False`): True to leave out objects of JSON without `records`.
        label (`str`, *optional*): The column of labels: a warning says if it stands in the objects around `records`.
        missing (`Sequence[str]`, *optional*): Codes for missing values, such as `NA` and `-99`: cells that hold one,
            as a text or a number, are empty.
        streaming (`bool`, *optional*, defaults to `False`): True to read the rows as they are needed, and not into
            memory; errors are then raised when a file is read, and all files must have the same columns.

    Returns:
        `Dataset`, or an `IterableDataset` with a shard for each file. Parquet columns keep their types, or get one
        that holds the values of all files. Cells of the other formats are text as it was written: ids such as `007` or
        18446744073709551615 keep all digits. An empty cell is an empty text. In JSON, `7.0` is read as `7`, since
        programs write integers so in a column with gaps; null, NaN and missing keys are None. A list of one value is
        read as that value, and an empty list as None. If some list has several values, all values of the column become
        lists, with at most the first five values of each. Other nested values are left out, with a warning if the
        column has values in other rows; in one of the `columns` they are an error.

        Warnings say what was left out: a column without a name, such as the row names of R, the two rows of Qualtrics
        that describe its columns, and rows that name the columns again; and which columns had texts of UTF-8 that were
        read as Latin-1, and are mended ([`~importers.garbled_texts`]).

        Raises a `ValueError` that names the file, and if possible the line, for a file that is not such a table or has
        no rows, and one that names two files whose columns cannot be put together.
    """
    form = {"records": records, "columns": columns, "one_timeline": one_timeline, "label": label}
    form |= {"drop_incomplete": drop_incomplete, "missing": missing}
    files = find_files(str(path))
    if streaming:
        return stream_table(files, **form)
    pieces = [(file, table) for file in files for table in read_tables(file, **form)]
    if not pieces:
        raise ValueError(f"{path} has no posts.")
    # Perhaps only one piece of a JSON file has lists in a column.
    lists = {field.name for _, table in pieces for field in table.schema if field.type == LISTS}
    for number, (file, table) in enumerate(pieces):
        for name in lists.intersection(table.column_names):
            if table[name].type == pa.string():
                values = text_column(table[name].to_pylist(), as_lists=True)
                table = table.set_column(table.column_names.index(name), name, values)
        pieces[number] = file, table
    features = common_features((file, table.schema) for file, table in pieces)
    tables = [cast_columns(table, features, file) for file, table in pieces]
    return Dataset(in_order(pa.concat_tables(tables, promote_options="default")))


def find_files(pattern: str) -> list[str]:
    """Returns the files that match a name or a pattern such as `posts/*.csv`, sorted by name."""
    return [pattern] if Path(pattern).exists() else sorted(glob(pattern)) or [pattern]


def stream_table(paths: list[str], **form: Any) -> IterableDataset:
    """Returns the rows of tables as a stream, with one shard for each file. `form` goes to [`read_tables`]."""
    # Only Parquet files have types.
    typed = [path for path in paths if path.lower().endswith(PARQUET) and Path(path).exists()]
    features = None
    if len(typed) == len(paths):
        features = common_features((path, read_schema(path)) for path in paths)
        if form.get("one_timeline"):
            features[TIMELINE] = Value("string")
    # A list would be divided into shards.
    form = {name: tuple(value) if isinstance(value, list) else value for name, value in form.items()}
    return IterableDataset.from_generator(read_each_row, features=features, gen_kwargs={"paths": paths, **form})


def read_schema(path: str) -> pa.Schema:
    """Returns the columns of a Parquet file."""
    with naming_broken_file(path):
        return parquet.read_schema(path)


def read_each_row(paths: list[str], **form: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of tables one by one."""
    for path in paths:
        for table in read_tables(path, **form):
            yield from table.to_pylist()


def read_tables(
    path: str | Path,
    records: str | None = None,
    columns: Sequence[str] = (),
    one_timeline: bool = False,
    drop_incomplete: bool = False,
    label: str | None = None,
    missing: Sequence[str] = (),
) -> Iterator[pa.Table]:
    """
    Reads a table in pieces, one at a time in memory.

    Args:
        path (`str` or `Path`): A file as [`load_table`] takes it.
        records, label (`str`, *optional*): The path of keys to the rows in JSON, and the column of labels.
        columns, missing (`Sequence[str]`, *optional*): Columns that are wanted, and codes for missing values.
        one_timeline, drop_incomplete (`bool`, *optional*, defaults to `False`): True to add a column `timeline_id`
            with the name of the file, and to leave out objects of JSON without `records`.

    Yields `pyarrow.Table`s, none of them empty, with cells as in [`load_table`]. The pieces of a JSON file may
    differ in their columns. Raises the errors of [`load_table`] when the file is read.
    """
    name = unzipped_name(path).lower()
    if name.endswith(JSON):
        read = partial(read_values, path)
    elif records is not None:
        raise ValueError(f"--records names a list in objects of JSON, but {path} is not a {' or '.join(JSON)} file.")
    elif name.endswith(CELLS):
        read = partial(read_rows, path)
    elif str(path).lower().endswith(EXCEL):
        read = partial(iter, ())  # An importer opens it.
    elif str(path).lower().endswith(PARQUET):
        read = partial(read_parquet, path)
    else:
        hint = OTHER_KINDS.get(Path(name).suffix)
        raise ValueError(f"{path}: not a table, which ends in {', '.join(TABLES)}{f'; {hint}' if hint else ''}.")
    is_empty = True
    with naming_broken_file(path):
        export = import_file(Export(path, Form(records, columns, one_timeline, drop_incomplete, label), read))
        for table in export.tables():
            is_empty = False
            table = without_codes(table, missing) if missing else table
            yield with_timeline(table, path) if one_timeline else table
    if is_empty and not export.has_left_out:
        raise ValueError(f"{path} has no rows.")


def read_pasted(content: str, name: str) -> Iterator[pa.Table]:
    """Yields the table in a text, as if it were a CSV file of this name."""
    return import_file(Export(name, Form(), partial(read_rows, name, content))).tables()


def read_parquet(path: str | Path) -> Iterator[pa.Table]:
    with parquet.ParquetFile(path) as file:
        yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches())


def with_timeline(table: pa.Table, path: str | Path) -> pa.Table:
    """Adds the column of a table whose posts are of one timeline. Raises a `ValueError` if it has such a column."""
    if (column := find_column(table.column_names, TIMELINE, "timeline")) is not None:
        raise ValueError(
            f"{path}: --columns timeline=none says that all posts are of one timeline, but there is a column "
            f"{column!r}: leave that out, or rename the column."
        )
    return table.append_column(TIMELINE, pa.array([name_of_timeline(path)] * len(table), pa.string()))
