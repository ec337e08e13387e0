"""Partitions of the posts of many files. Each holds whole timelines and is small enough for one process."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from glob import escape, glob
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
from pyarrow import parquet

from modeling_tempoformer import PostError, TimeColumn, UnknownPeople, are_since_start, read_posts, read_tables
from modeling_tempoformer.common.columns import Columns
from modeling_tempoformer.common.files import TABLES, name_of_timeline, naming_broken_file, written_whole


# Folder in the output folder, deleted at the end. Readers of Parquet skip names that begin with an underscore.
WORK = "_work"
# Prefix of the names of kept columns in a partition.
KEPT = "kept."
# Posts in memory while a file is read.
POSTS_AT_ONCE = 100_000
POSTS = pa.schema(
    {
        **dict.fromkeys(("timeline_id", "post_id", "text", "speaker", "state"), pa.string()),
        **{"time": pa.float64(), "file": pa.int32(), "row": pa.int64()},
    }
)


def find_tables(names: list[str], output: Path) -> list[str]:
    """
    Returns the tables among the named files and in the named folders, at every depth, each once, sorted by path. In a
    folder, names that begin with `_` or `.` are skipped.
    """
    tables: dict[str, str] = {}
    for name in map(os.path.abspath, names):
        if output.resolve().is_relative_to(Path(name).resolve()):
            raise ValueError(f"--output_dir {output} is in --input_files {name}: give a folder outside of it.")
        if not os.path.exists(name):
            raise ValueError(f"--input_files: there is no {name}.")
        # `glob` skips names that begin with a dot.
        inside = glob(os.path.join(escape(name), "**"), recursive=True) if os.path.isdir(name) else [name]
        for table in filter(os.path.isfile, inside):
            if any(part.startswith("_") for part in table.removeprefix(name).split(os.sep)):
                continue
            if not table.lower().endswith(TABLES):
                raise ValueError(f"--input_files: {table} is not a table of posts ({', '.join(TABLES)}).")
            tables.setdefault(os.path.realpath(table), table)
    if not tables:
        raise ValueError(f"--input_files: no table of posts ({', '.join(TABLES)}) in {', '.join(names)}.")
    return sorted(tables.values())


def check_names(tables: list[str]):
    """Raises a `ValueError` for two files of one name, whose posts would be one timeline with `timeline=none`."""
    named: dict[str, str] = {}
    for table in tables:
        if (first := named.setdefault(name_of_timeline(table), table)) != table:
            raise ValueError(
                f"--columns timeline=none names a timeline after its file, but {first} and {table} have the same "
                "name: rename one of them."
            )


@dataclass(frozen=True)
class Corpus:
    """
    The posts of all input files, partitioned by a hash of the timeline id. The posts of each input file are in one
    Parquet file in `WORK`. With n partitions, its row groups k, n + k, 2n + k and so on belong to partition k.
    `columns` names the columns of the timeline, the timestamp, the text, the id and the speaker, and of the state for
    a model that reads known ones. `records` is the path to the list of posts in an object of JSON, `one_timeline`
    says that a file is one timeline, `drop_incomplete` that rows without an id, time or text are left out, and
    `missing` has codes for missing values. `kept` names columns that stand beside the predictions, as texts.
    """

    output: Path
    tables: list[str]
    columns: Columns
    num_partitions: int
    records: str | None = None
    kept: tuple[str, ...] = ()
    one_timeline: bool = False
    drop_incomplete: bool = False
    missing: Sequence[str] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of a partition. The names of kept ones begin with [`KEPT`]."""
        return pa.schema([*POSTS, *(pa.field(KEPT + name, pa.string()) for name in self.kept)])

    def write_file(self, number: int) -> tuple[int, TimeColumn, list[int], UnknownPeople]:
        """
        Reads a file, checks its posts and writes them by partition. Returns the file's number, its times, the number
        of posts in each partition, and the number of posts under each id that means an unknown person.
        """
        table, times, counts, nobody = self.tables[number], TimeColumn(), [0] * self.num_partitions, UnknownPeople()
        with (
            written_whole(self.output / WORK / f"{number}.parquet") as path,
            parquet.ParquetWriter(path, self.schema, compression="zstd") as writer,
        ):
            try:
                wanted = [*self.columns.wanted(), *self.kept]
                form = (self.one_timeline, self.drop_incomplete, None, self.missing)
                rows = read_tables(table, self.records, wanted, *form)
                kept: deque[tuple[int, dict[str, str | None]]] = deque()
                posts = read_posts(
                    self.keep(rows, kept), None, self.columns, times, drop_incomplete=self.drop_incomplete
                )
                while batch := list(islice(posts, POSTS_AT_ONCE)):
                    partitions: list[list[dict]] = [[] for _ in counts]
                    for timeline_id, post in batch:
                        row = {"timeline_id": timeline_id, "text": post.text, "time": post.timestamp}
                        row |= {"speaker": post.speaker or "", "state": post.state or ""}
                        row["post_id"] = post.post_id if self.columns["id"] else f"{table}:{post.row}"
                        partition = crc32(timeline_id.encode()) % self.num_partitions
                        row |= {**cells_of_row(kept, post.row), "file": number, "row": post.row}
                        partitions[partition].append(row)
                        nobody.add(timeline_id)
                    for partition, rows in enumerate(partitions):
                        writer.write_table(pa.Table.from_pylist(rows, self.schema))
                        counts[partition] += len(rows)
            except ValueError as problem:
                # An error about a line of the file names it already.
                named = str(problem).startswith((f"{table}: ", f"{table}, "))
                raise ValueError(str(problem) if named else f"{table}: {problem}") from None
        return number, times, counts, nobody

    def keep(self, tables: Iterable[pa.Table], kept: deque[tuple[int, dict[str, str | None]]]) -> Iterator[pa.Table]:
        """
        Yields tables unchanged, and appends each row's number, and its kept columns as texts, to `kept`. Raises a
        `ValueError` for a column that the first table lacks.
        """
        first = 0
        for number, table in enumerate(tables):
            missing = [name for name in self.kept if name not in table.column_names]
            # A later piece of JSON lacks a column in which none of its rows has a value.
            if missing and number == 0:
                present = ", ".join(table.column_names)
                raise ValueError(f"--keep_columns: there is no column {missing[0]!r}; the columns are {present}.")
            nothing = [None] * len(table)
            cells = {name: nothing if name in missing else table[name].to_pylist() for name in self.kept}
            kept.extend(
                (first + row, {KEPT + name: cell_to_text(cells[name][row]) for name in self.kept})
                for row in range(len(table))
            )
            first += len(table)
            yield table

    def read(self, partition: int) -> pa.Table:
        """Returns the posts of a partition by timeline, sorted by time. Equal times keep the order of the input."""
        tables = []
        for number in range(len(self.tables)):
            path = self.output / WORK / f"{number}.parquet"
            with naming_broken_file(path), parquet.ParquetFile(path) as file:
                groups = range(partition, file.num_row_groups, self.num_partitions)
                tables.append(file.read_row_groups(list(groups)))
        order = ("timeline_id", "time", "file", "row")
        return pa.concat_tables(tables).sort_by([(column, "ascending") for column in order])

    def check_ids(self, partition: int):
        """Raises a `ValueError` for a post id that is twice in a timeline."""
        posts = self.read(partition).to_pandas().sort_values(["file", "row"])
        for post in posts[posts.duplicated(["timeline_id", "post_id"])].itertuples():
            problem = PostError(post.row, self.columns["id"], post.post_id, "a post id must be unique in its timeline")
            raise ValueError(f"{self.tables[post.file]}: {problem}")


def cells_of_row(kept: deque[tuple[int, dict[str, str | None]]], row: int) -> dict[str, str | None]:
    """Returns the cells of a row. Removes them from `kept`, and the rows before it, which were left out."""
    while kept:
        number, cells = kept.popleft()
        if number == row:
            return cells
    raise IndexError(row)


def cell_to_text(cell: Any) -> str | None:
    """Returns the text of a cell; None for an empty one."""
    return None if cell is None else str(cell)


def check_times(tables: list[str], times_by_table: list[TimeColumn]) -> str | None:
    """
    Returns the form in which times are written: "dates", or "seconds" if they are [`are_since_start`]; None without
    times. Raises a `ValueError` for a file whose times are unlike those before it.
    """
    merged = TimeColumn()
    for table, times in zip(tables, times_by_table, strict=True):
        times.warn()
        _, row, value = times.first
        try:
            merged.read(f"{row} of {table}", value)
        except ValueError as problem:
            raise ValueError(f"{table}, {row}, value {value!r}: {problem}.") from None
    if merged.first[0] == "missing":
        return None
    ends = min(times.smallest for times in times_by_table), max(times.largest for times in times_by_table)
    return "seconds" if are_since_start(*ends) else "dates"
