"""From files of posts to partitions: each holds whole timelines, and is small enough for one process."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any
from zlib import crc32

import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import FileSystem
from transformers import PreTrainedTokenizerBase

from ..data.tables import read_tables
from ..data.timelines import Post, PostError, read_posts
from ..data_collator_tempoformer import TimeColumn, to_date
from .files import WORK, Table, on_this_machine, written_whole


logger = logging.getLogger(__name__)

# Posts that are held while a file is read.
POSTS_AT_ONCE = 100_000
POSTS = pa.schema(
    [
        *((name, pa.string()) for name in ("timeline_id", "post_id", "text")),
        *(("time", pa.float64()), ("file", pa.int32()), ("row", pa.int64())),
    ]
)
# Within a partition: posts of the same time keep the order of the input.
ORDER = ("timeline_id", "time", "file", "row")


@dataclass(frozen=True)
class Corpus:
    """
    The posts of all input files, by a hash of their timelines' ids. The posts of a file are one file of Parquet in
    `WORK`; of n partitions, its row groups k, n + k, 2n + k and so on are those of partition k.

    Args:
        output (`FileSystem`): The output folder.
        tables (`list[Table]`): The input files.
        columns (`dict[str, str | None]`): The columns of the timeline, the timestamp, the text and the id.
        num_partitions (`int`): n.
    """

    output: FileSystem
    tables: list[Table]
    columns: dict[str, str | None]
    num_partitions: int

    def write_file(self, tokenizer: PreTrainedTokenizerBase | None, number: int) -> tuple[int, TimeColumn, list[int]]:
        """
        Reads a file and checks its posts; a `tokenizer` of dated texts must know their times. Returns the file's
        number, what is known of its times, and the number of posts of each partition. Raises a `ValueError` that names
        the file, the row, the column and the value of a post that cannot be read or scored.
        """
        table, times, counts = self.tables[number], TimeColumn(), [0] * self.num_partitions
        with (
            on_this_machine(table) as path,
            written_whole(self.output, f"{WORK}/{number}.parquet") as stream,
            parquet.ParquetWriter(stream, POSTS, compression="zstd") as writer,
        ):
            try:
                posts = read_posts(read_tables(path), None, {**self.columns, "label": None}, times)
                while piece := list(islice(posts, POSTS_AT_ONCE)):
                    partitions: list[list[dict]] = [[] for _ in counts]
                    for post in piece:
                        row = self.to_row(number, post, tokenizer)
                        partitions[crc32(post.timeline_id.encode()) % self.num_partitions].append(row)
                    for partition, rows in enumerate(partitions):
                        writer.write_table(pa.Table.from_pylist(rows, POSTS))
                        counts[partition] += len(rows)
            except ValueError as problem:
                said = str(problem).removeprefix(f"{path}: ").replace(path, table.name)
                raise ValueError(f"{table.name}: {said}") from None
        return number, times, counts

    def to_row(self, number: int, post: Post, tokenizer: PreTrainedTokenizerBase | None) -> dict[str, Any]:
        """A row of `POSTS`. Raises a [`PostError`] for a time that a tokenizer of dated texts does not know."""
        if tokenizer is not None:
            try:
                tokenizer.time_id(None if post.timestamp is None else to_date(post.timestamp))
            except ValueError as problem:
                column = self.columns["timestamp"] or "timestamp"
                raise PostError(post.row, column, post.timestamp, str(problem).rstrip(".")) from None
        post_id = post.post_id if self.columns["id"] else f"{self.tables[number].name}:{post.row}"
        row = {"timeline_id": post.timeline_id, "time": post.timestamp, "text": post.text, "post_id": post_id}
        return {**row, "file": number, "row": post.row}

    def read(self, partition: int, columns: Iterable[str] = tuple(POSTS.names)) -> pa.Table:
        """The posts of a partition by timeline, in order of time."""
        found = []
        for number in range(len(self.tables)):
            with self.output.open_input_file(f"{WORK}/{number}.parquet") as stream:
                file = parquet.ParquetFile(stream)
                groups = range(partition, file.num_row_groups, self.num_partitions)
                found.append(file.read_row_groups(list(groups), list(columns)))
        return pa.concat_tables(found).sort_by([(column, "ascending") for column in ORDER if column in columns])

    def check_ids(self, partition: int):
        """Raises a `ValueError` for a post id that a timeline has twice."""
        posts = self.read(partition, ["timeline_id", "post_id", "file", "row"]).to_pandas()
        for post in posts[posts.duplicated(["timeline_id", "post_id"])].itertuples():
            problem = PostError(post.row, self.columns["id"], post.post_id, "a post id must be unique in its timeline")
            raise ValueError(f"{self.tables[post.file].name}: {problem}")


def check_times(tables: list[Table], of_files: list[TimeColumn]) -> bool:
    """
    Whether the posts have times. Raises a `ValueError` that names two files whose times are of different kinds.
    """
    together = TimeColumn()
    for table, times in zip(tables, of_files, strict=True):
        if times.warning:
            logger.warning("%s: %s", table.name, times.warning)
        _, place, value = times.first
        try:
            together.read(f"{place} of {table.name}", value)
        except ValueError as problem:
            raise ValueError(f"{table.name}, {place}, value {value!r}: {problem}.") from None
    return together.first[0] != "missing"
