"""From partitions to files of predictions, and what decides whether a run may go on."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from pyarrow import parquet
from pyarrow.fs import FileSelector, FileSystem
from transformers.utils import logging

from ..data_collator_tempoformer import to_date
from ..pipeline_tempoformer import StreamClassificationPipeline
from .files import Table, read_json, written_whole
from .partitions import Corpus


RECORD, TRUNCATED = "_begun_with.json", b"truncated_posts"


class NamedTimelines(StreamClassificationPipeline):
    """The pipeline for pairs of a timeline's id, which errors name, and the timeline. Counts the posts that it cut."""

    truncated = 0

    def preprocess(self, timeline: tuple[str, dict[str, list]], number: int = 0, **settings) -> dict[str, Any]:
        entry = super().preprocess(timeline[1], number=repr(timeline[0]), **settings)
        self.truncated += entry["truncated"]
        return entry


def make_record(pipe: NamedTimelines, tables: list[Table], columns: dict[str, str | None]) -> dict[str, Any]:
    """All that decides which predictions come out: the model as SHA-256, the columns' names, and the input files."""
    digest = hashlib.sha256()
    with TemporaryDirectory() as folder:
        pipe.model.config.save_pretrained(folder)
        pipe.tokenizer.save_pretrained(folder)
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
    for name, weight in sorted(pipe.model.state_dict().items()):
        digest.update(name.encode() + weight.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    files = [[table.name, table.size, table.changed] for table in tables]
    settings = {f"--{role}_column": column for role, column in columns.items()}
    return {"model": digest.hexdigest(), **settings, "list of input files": files}


def check_record(output: FileSystem, record: dict[str, Any]) -> dict[str, Any] | None:
    """
    What the folder was begun with; None if it is new: it has no record before all posts are read. Raises a
    `ValueError` if it was begun with another record, or has other files.
    """
    before = read_json(output, RECORD)
    if before is None:
        files = output.get_file_info(FileSelector("", allow_not_found=True))
        if present := sorted(info.base_name for info in files if not info.base_name.startswith("_")):
            raise ValueError(f"--output_dir has other files ({present[0]}): give a new one.")
    elif changed := [name for name, value in record.items() if before[name] != value]:
        said = f"was begun with another {' and another '.join(changed)}"
        raise ValueError(f"--output_dir {said}: give a new one, or delete it to start anew.")
    return before


def score_partition(pipe: NamedTimelines, corpus: Corpus, timed: bool, num_threads: int, partition: int) -> int:
    """
    Writes the predictions of a partition, in the order of [`Corpus.read`]; returns how many.

    Args:
        pipe (`NamedTimelines`): The model.
        corpus (`Corpus`): All its files are written.
        timed (`bool`): Whether posts have times.
        num_threads (`int`): On how many cores this process computes.
        partition (`int`): Its number.
    """
    torch.set_num_threads(num_threads)
    # There may be a process for each core, and oneDNN's own cache would take a gigabyte in each.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    # What the pipeline says of single timelines is counted instead.
    logging.set_verbosity_error()
    pipe.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pipe.model.to(pipe.device)
    pipe.truncated = 0
    posts, names = corpus.read(partition), pipe.model.config.id2label
    labels, scores = [], {names[label]: [] for label in range(len(names))}
    for results in pipe(each_timeline(posts, timed), top_k=len(names)):
        for ranked in results:
            labels.append(ranked[0]["label"])
            for answer in ranked:
                scores[answer["label"]].append(answer["score"])
    columns = {"timeline_id": posts["timeline_id"], "post_id": posts["post_id"]}
    if timed:
        microseconds = pc.round(pc.multiply(posts["time"], 1e6)).cast(pa.int64())
        columns["time"] = microseconds.cast(pa.timestamp("us", "UTC"))
    columns["prediction"] = pa.array(labels, pa.string())
    columns |= {f"probability_{name}": pa.array(values, pa.float64()) for name, values in scores.items()}
    with written_whole(corpus.output, f"part-{partition:05}.parquet") as stream:
        parquet.write_table(pa.table(columns, metadata={TRUNCATED: str(pipe.truncated)}), stream, compression="zstd")
    return posts.num_rows


def each_timeline(posts: pa.Table, timed: bool) -> Iterator[tuple[str, dict[str, list]]]:
    """The timelines of sorted posts, with their ids."""
    runs, start = pc.run_end_encode(posts["timeline_id"].combine_chunks()), 0
    for timeline_id, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        timeline = posts.slice(start, end - start)
        start = end
        columns = {"text": timeline["text"].to_pylist()}
        if timed:
            # Numbers would be checked for dates without dashes, which these are not.
            columns["timestamp"] = [to_date(seconds) for seconds in timeline["time"].to_pylist()]
        yield timeline_id, columns


def read_parts(output: FileSystem) -> dict[int, tuple[int, int]]:
    """
    The partitions whose file of predictions is whole: how many posts each has, and how many of these were cut to the
    model's length.
    """
    parts = {}
    for info in output.get_file_info(FileSelector("", allow_not_found=True)):
        if number := re.fullmatch(r"part-(\d+)\.parquet", info.base_name):
            with suppress(pa.ArrowInvalid, OSError), output.open_input_file(info.path) as file:
                metadata = parquet.read_metadata(file)
                if TRUNCATED in (metadata.metadata or {}):
                    parts[int(number[1])] = metadata.num_rows, int(metadata.metadata[TRUNCATED])
    return parts
