"""From shards to files of predictions."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from transformers.utils import logging

from ..data_collator_tempoformer import to_date
from ..pipeline_tempoformer import StreamClassificationPipeline
from .folders import Folder
from .shards import POSTS_AT_ONCE, Corpus, Shard, told_in_one_sentence, told_to


TRUNCATED = b"truncated_posts"


class NamedTimelines(StreamClassificationPipeline):
    """The pipeline for pairs of a timeline's id, which errors name, and the timeline. Counts the posts that it cut."""

    truncated = 0

    def preprocess(self, timeline: tuple[str, dict[str, list]], number: int = 0, **settings) -> dict[str, Any]:
        entry = super().preprocess(timeline[1], number=repr(timeline[0]), **settings)
        self.truncated += entry["truncated"]
        return entry


class ShardScorer:
    """
    Turns files of sorted posts into files of predictions.

    Args:
        pipe (`NamedTimelines`): The model.
        corpus (`Corpus`): What is scored.
        files (`list[str]`): The names of the files that it came from.
        work, output (`Folder`): Where the sorted posts are, and where the predictions go.
    """

    def __init__(self, pipe: NamedTimelines, corpus: Corpus, files: list[str], work: Folder, output: Folder):
        self.pipe, self.corpus, self.files, self.work, self.output = pipe, corpus, files, work, output
        names = pipe.model.config.id2label
        self.classes = [names[label] for label in range(len(names))]
        self.schema = pa.schema(
            {
                **{"timeline_id": pa.string(), "post_id": pa.string()},
                **({"time": pa.timestamp("us", "UTC")} if corpus.timed else {}),
                **{"prediction": pa.string()},
                **{f"probability_{name}": pa.float64() for name in self.classes},
            }
        )

    def score(self, shard: Shard) -> int:
        """Writes the predictions of a shard; returns how many."""
        self.pipe.truncated, num_posts = 0, 0
        with (
            (self.work / "shards").open(shard.name) as posts,
            self.work.written_whole(shard.part, into=self.output) as stream,
            parquet.ParquetWriter(stream, self.schema, compression="zstd") as writer,
        ):
            waiting: list[dict[str, Any]] = []
            for timeline, results in self.classify(read_timelines(posts)):
                num_posts += len(timeline)
                waiting.extend(self.to_row(post, ranked) for post, ranked in zip(timeline, results, strict=True))
                while len(waiting) >= POSTS_AT_ONCE:
                    writer.write_table(pa.Table.from_pylist(waiting[:POSTS_AT_ONCE], self.schema))
                    del waiting[:POSTS_AT_ONCE]
            writer.write_table(pa.Table.from_pylist(waiting, self.schema))
            writer.add_key_value_metadata({TRUNCATED: str(self.pipe.truncated)})
        return num_posts

    def classify(self, timelines: Iterable[list[dict]]) -> Iterator[tuple[list[dict], list[list[dict]]]]:
        """Each timeline with the pipeline's results, which come later than the timelines are read."""
        waiting: deque[list[dict]] = deque()

        def read() -> Iterator[tuple[str, dict[str, list]]]:
            for posts in timelines:
                waiting.append(posts)
                columns = {"text": [post.pop("text") for post in posts]}
                if self.corpus.timed:
                    # Numbers would be checked for dates without dashes, which these are not.
                    columns["timestamp"] = [to_date(post["time"]) for post in posts]
                yield posts[0]["timeline_id"], columns

        for results in self.pipe(read(), top_k=len(self.classes)):
            yield waiting.popleft(), results

    def to_row(self, post: dict[str, Any], ranked: list[dict]) -> dict[str, Any]:
        """A row of the output."""
        row = {
            "timeline_id": post["timeline_id"],
            "post_id": post["post_id"] if self.corpus.has_ids else f"{self.files[post['file']]}:{post['row']}",
            "prediction": ranked[0]["label"],
            **{f"probability_{answer['label']}": answer["score"] for answer in ranked},
        }
        return {**row, "time": round(post["time"] * 1e6)} if self.corpus.timed else row


class ScoringProcess:
    """
    A process of Ray that holds the model.

    Args:
        pipe (`list[ObjectRef]`): One [`NamedTimelines`], as Ray keeps it.
        corpus, files, work, output: As [`ShardScorer`] takes them.
        num_threads (`int`): On how many cores it computes.
    """

    def __init__(
        self,
        pipe: list[Any],
        corpus: Corpus,
        files: list[str],
        work: Folder,
        output: Folder,
        num_threads: int,
    ):
        torch.set_num_threads(num_threads)
        # There may be a process for each core, and oneDNN's own cache would take a gigabyte in each.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
        # What the pipeline says of single timelines is counted instead.
        logging.set_verbosity_error()
        import ray  # Only here, because it reads settings that [`started_ray`] makes.

        (kept,) = ray.get(pipe)
        kept.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        kept.model.to(kept.device)
        self.scorer = ShardScorer(kept, corpus, files, work, output)

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list]:
        """Scores shards, which are given by their places in the corpus; says how many posts they have."""
        with told_to(self.scorer.work):
            return {"posts": [self.scorer.score(self.scorer.corpus.shards[place]) for place in batch["item"]]}


def read_timelines(shard: Any) -> Iterator[list[dict[str, Any]]]:
    """The timelines of a shard."""
    batches = parquet.ParquetFile(shard).iter_batches(POSTS_AT_ONCE)
    rows = (row for batch in batches for row in batch.to_pylist())
    for _, posts in groupby(rows, key=lambda row: row["timeline_id"]):
        yield list(posts)


def score_shards(
    pipe: NamedTimelines,
    corpus: Corpus,
    files: list[str],
    work: Folder,
    output: Folder,
    num_workers: int | None = None,
) -> Iterator[int]:
    """
    Scores all shards; yields the number of posts of each as soon as its file is there.

    Args:
        pipe, corpus, files, work, output: As [`ShardScorer`] takes them.
        num_workers (`int`, *optional*): How many processes hold the model, on all cores together. One for each GPU by
            default, or for each core if there is none.
    """
    import ray.data  # Only here, because it reads settings that [`started_ray`] makes.

    if not corpus.shards:
        return
    kept, resources = ray.put(pipe), ray.cluster_resources()
    device = "GPU" if resources.get("GPU") else "CPU"
    size = min(num_workers or int(resources[device]), len(corpus.shards))
    # A process must fit on every machine.
    machines = [cores for node in ray.nodes() if node["Alive"] and (cores := node["Resources"].get("CPU"))]
    num_threads = max(1, int(min(resources["CPU"] // size, *machines)))
    places = ray.data.from_items(list(range(len(corpus.shards))), override_num_blocks=len(corpus.shards))
    scored = places.map_batches(
        ScoringProcess,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=size),
        fn_constructor_args=([kept], corpus, files, work, output, num_threads),
        **({"num_gpus": 1} if device == "GPU" else {"num_cpus": num_threads}),
    )
    with told_in_one_sentence(work):
        yield from (row["posts"] for row in scored.iter_rows())


def count_posts(output: Folder) -> dict[str, int]:
    """The files of predictions that are whole, and how many posts each has."""
    posts = {}
    for name in output.files():
        if name.startswith("part-"):
            with suppress(pa.ArrowInvalid), output.open(name) as file:
                posts[name] = parquet.read_metadata(file).num_rows
    return posts


def check_whole(output: Folder, posts: dict[str, int]):
    """Raises a `ValueError` that names a file of predictions that is gone, or has not as many posts as it had."""
    present = count_posts(output)
    for name, count in posts.items():
        if present.get(name) != count:
            raise ValueError(
                f"--output_dir {output.name} was finished, and since then {name} is gone or was cut short: put it "
                "back, or delete the folder to start anew."
            )


def count_truncated(output: Folder, corpus: Corpus) -> int:
    """How many posts were cut to the model's length."""
    total = 0
    for shard in corpus.shards:
        with output.open(shard.part) as file:
            total += int(parquet.read_metadata(file).metadata[TRUNCATED])
    return total
