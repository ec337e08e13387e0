"""From files of posts to shards: files that hold whole timelines, sorted, each small enough for one process."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import tqdm

from ..data.tables import load_table
from ..data.timelines import Post, PostError, read_posts
from ..data_collator_tempoformer import TimeColumn, to_date
from .folders import Folder, Table, on_this_machine


logger = logging.getLogger(__name__)

# Bytes of posts in a shard, and how many more bytes compressed posts have when they are read.
SHARD, EXPANDS = 1 << 26, 4
# So that a small corpus keeps several processes busy too, and its progress shows.
LEAST_SHARDS = 16
POSTS_AT_ONCE = 10_000
# The order of posts within a shard: posts of the same time keep the order of the input.
ORDER = ("timeline_id", "time", "file", "row")
POSTS = pa.schema(
    {
        **{"timeline_id": pa.string(), "time": pa.float64(), "text": pa.string(), "post_id": pa.string()},
        **{"file": pa.int32(), "row": pa.int64()},
    }
)
SHARDS, PROBLEM = "shards.json", "problem.json"


class Shard(NamedTuple):
    """The name of a file of sorted posts, their number, and the name of the file that their predictions go to."""

    name: str
    posts: int
    part: str


@dataclass(frozen=True)
class Corpus:
    """
    Sorted posts.

    Args:
        shards (`list[Shard]`): The largest first, so that no long one is left at the end.
        timed (`bool`): Whether posts have times.
        has_ids (`bool`): Whether posts have ids of their own.
    """

    shards: list[Shard]
    timed: bool
    has_ids: bool

    @property
    def posts(self) -> int:
        """How many posts there are."""
        return sum(shard.posts for shard in self.shards)

    def without(self, parts: Mapping[str, int]) -> "Corpus":
        """What is left to score: shards without a file of as many predictions as they have posts."""
        return replace(self, shards=[shard for shard in self.shards if parts.get(shard.part) != shard.posts])


def count_shards(tables: list[Table]) -> int:
    """How many shards the files are cut to."""
    sizes = (table.size * (EXPANDS if table.name.lower().endswith((".gz", ".parquet")) else 1) for table in tables)
    return max(LEAST_SHARDS, -(-sum(sizes) // SHARD))


def make_shards(
    tables: list[Table],
    columns: dict[str, str | None],
    work: Folder,
    tokenizer: PreTrainedTokenizerBase | None = None,
):
    """
    Reads and checks all posts, writes them by timeline to files in `work`, and at the end what [`read_shards`] reads.
    `columns` names the columns of the timeline, the time, the text and the id as [`to_timelines`] takes them; a
    `tokenizer` of dated texts must know the times. Raises a `ValueError` that names the file, the row, the column and
    the value of a post that cannot be read or scored.
    """
    import ray.data  # Only here, because it reads settings that [`started_ray`] makes.

    num_shards, size = count_shards(tables), sum(table.size for table in tables)
    logger.info("Sorting the posts of %d files (%.1f MB) by timeline.", len(tables), size / 1e6)
    files = [{"file": number, "name": table.name, "place": table.place} for number, table in enumerate(tables)]
    settings = {"columns": {**columns, "label": None}, "work": work, "tokenizer": tokenizer}
    written = (
        ray.data.from_items(files, override_num_blocks=len(files))
        .map_batches(read_files, batch_size=1, batch_format="pyarrow", fn_kwargs=settings)
        # One block for each shard.
        .repartition(num_shards, keys=["timeline_id"])
        .map_batches(write_shard, batch_size=None, batch_format="pyarrow", fn_kwargs={"work": work})
    )
    with told_in_one_sentence(work), tqdm(total=num_shards, desc="Writing sorted posts", unit="shard") as bar:
        found = []
        for shard in written.iter_rows():
            found.append((shard["posts"], shard["name"]))
            bar.update()
    shards = [
        {"name": name, "posts": posts, "part": f"part-{number:05}.parquet"}
        for number, (posts, name) in enumerate(sorted(found, reverse=True))
    ]
    has_ids = columns["id"] is not None
    work.write_json(SHARDS, {"shards": shards, "timed": check_times(tables, work), "has_ids": has_ids})


def read_shards(work: Folder) -> Corpus:
    """What [`make_shards`] has written."""
    content = work.read_json(SHARDS)
    return Corpus(**{**content, "shards": [Shard(**shard) for shard in content["shards"]]})


def read_files(
    batch: pa.Table, columns: dict[str, str | None], work: Folder, tokenizer: PreTrainedTokenizerBase | None = None
) -> Iterator[pa.Table]:
    """The posts of files, and for each file a JSON file about its times, which [`check_times`] reads."""
    with told_to(work):
        for file in batch.to_pylist():
            times = TimeColumn()
            with on_this_machine(file["place"]) as path:
                try:
                    posts = read_posts(load_table(path, streaming=True), None, columns, times)
                    rows = (
                        {
                            **{"timeline_id": post.timeline_id, "text": post.text},
                            **{"time": check_time(post, columns["timestamp"] or "timestamp", tokenizer)},
                            **{"post_id": post.post_id if columns["id"] else None},
                            **{"file": file["file"], "row": post.row},
                        }
                        for post in posts
                    )
                    while part := list(islice(rows, POSTS_AT_ONCE)):
                        yield pa.Table.from_pylist(part, POSTS)
                except ValueError as problem:
                    said = str(problem).removeprefix(f"{path}: ").replace(path, file["name"])
                    raise ValueError(f"{file['name']}: {said}") from None
            kind, _, value = times.first
            marks = [(place, str(value)) for place, value in filter(None, (times.bare_date, times.recent))]
            said = {"kind": kind, "value": str(value), "warning": times.warning, "marks": marks}
            (work / "read").write_json(f"{file['file']}.json", said)


def check_time(post: Post, column: str, tokenizer: PreTrainedTokenizerBase | None) -> float | None:
    """The time of a post. Raises a [`PostError`] for one that a tokenizer of dated texts does not know."""
    if tokenizer is not None:
        try:
            tokenizer.time_id(None if post.timestamp is None else to_date(post.timestamp))
        except ValueError as problem:
            raise PostError(post.row, column, post.timestamp, str(problem).rstrip(".")) from None
    return post.timestamp


def write_shard(posts: pa.Table, work: Folder) -> Iterator[pa.Table]:
    """Writes posts in order, and says where. Raises a `ValueError` for a post id that a timeline has twice."""
    if posts.num_rows:
        with told_to(work):
            check_ids(posts)
        name = f"{uuid4().hex}.parquet"
        with (work / "shards").written_whole(name) as stream:
            ordered = posts.sort_by([(column, "ascending") for column in ORDER])
            parquet.write_table(ordered, stream, row_group_size=POSTS_AT_ONCE, compression="zstd")
        yield pa.table({"name": [name], "posts": [posts.num_rows]})


def check_ids(posts: pa.Table):
    """Raises a `ValueError` for a post id that a timeline has twice, of those that are given."""
    ids = posts.select(["timeline_id", "post_id"]).filter(pc.field("post_id").is_valid())
    counts = ids.group_by(ids.column_names).aggregate([([], "count_all")])
    for twice in counts.filter(pc.field("count_all") > 1).slice(0, 1).to_pylist():
        raise ValueError(f"Timeline {twice['timeline_id']!r} has two posts of the id {twice['post_id']!r}.")


def check_times(tables: list[Table], work: Folder) -> bool:
    """
    Whether the posts have times. Raises a `ValueError` that names two files whose times are of different kinds, or of
    which one has seconds and the other one dates without dashes.
    """
    first, together = None, TimeColumn()
    for number, table in enumerate(tables):
        times = (work / "read").read_json(f"{number}.json")
        if times["warning"]:
            logger.warning("%s: %s", table.name, times["warning"])
        first = first or (table.name, times)
        if times["kind"] != first[1]["kind"]:
            was, now = (f"{times['kind']} ({times['value']})" for times in (first[1], times))
            raise ValueError(
                f"The times of {first[0]} are {was}, those of {table.name} are {now}; the times of a corpus must be "
                "all ISO-8601 dates (2024-05-01), all numbers of seconds, or all missing."
            )
        for place, value in times["marks"]:
            together.read(f"{place} of {table.name}", value)
    return first[1]["kind"] != "missing"


@contextmanager
def told_to(work: Folder) -> Iterator[None]:
    """Writes a user's error down, because Ray makes a traceback of it."""
    try:
        yield
    except (ValueError, OSError) as problem:
        work.write_json(PROBLEM, str(problem))
        raise


@contextmanager
def told_in_one_sentence(work: Folder) -> Iterator[None]:
    """Raises a user's error that a process of Ray has written down as what it was."""
    import ray  # Only here, because it reads settings that [`started_ray`] makes.

    # That of an earlier run.
    work.write_json(PROBLEM, None)
    try:
        yield
    except ray.exceptions.RayError:
        if problem := work.read_json(PROBLEM):
            raise ValueError(problem) from None
        raise
