"""Scores the partitions of a corpus, and checks whether a stopped run may go on."""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from pyarrow import parquet
from transformers.utils import logging

from modeling_tempoformer import (
    Post,
    StreamClassificationPipeline,
    Timeline,
    class_names,
    decide_posts,
    is_prediction_column,
    prediction_rows,
)
from modeling_tempoformer.common.data_frames import split_values, to_arrow
from modeling_tempoformer.common.files import decode_json, written_whole

from .corpus import KEPT, Corpus
from .policy import EVENTS, RAISED, Alarm
from .stepping import Stepper


logger = logging.get_logger(__name__)

RECORD, TRUNCATED = "_begun_with.json", b"truncated_posts"
# The column of what a policy of alarms makes of a post
EVENT = "alarm_event"


class CountingPipeline(StreamClassificationPipeline):
    """Counts the posts that the pipeline truncates."""

    truncated = 0

    def preprocess(self, timeline: Timeline, number: int = 0, **settings) -> dict[str, Any]:
        entry = super().preprocess(timeline, number, **settings)
        self.truncated += entry["truncated"]
        return entry


def make_record(pipe: CountingPipeline, corpus: Corpus, alarm: Alarm | None = None) -> dict[str, Any]:
    """Returns all that the predictions depend on: the model's SHA-256, the names of columns, and the input files."""
    digest = hashlib.sha256(Stepper(pipe.model).fingerprint.encode())
    digest.update(b"" if alarm is None else alarm.rule.encode())
    with TemporaryDirectory() as folder:
        pipe.model.config.save_pretrained(folder)
        pipe.tokenizer.save_pretrained(folder)
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
    files = [[table, Path(table).stat().st_size, Path(table).stat().st_mtime_ns] for table in corpus.tables]
    settings = {f"--columns {role}": column for role, column in corpus.columns.items()} | {"--records": corpus.records}
    # None if not given, as in records of runs from before these options existed.
    settings["--keep_columns"] = list(corpus.kept) or None
    settings["--columns timeline=none"] = corpus.one_timeline or None
    settings |= {f"--{name}": getattr(corpus, name) or None for name in ("drop_incomplete", "missing")}
    return {"model": digest.hexdigest(), **settings, "list of input files": files}


def check_record(output: Path, record: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the record of a folder, None for a new one. Raises a `ValueError` for another record, or other files."""
    begun = read_json_if_any(output / RECORD)
    if begun is None:
        if present := sorted(path.name for path in output.glob("[!_]*")):
            raise ValueError(f"--output_dir has other files ({present[0]}): give a new one.")
    elif changed := [name for name, value in record.items() if begun.get(name) != value]:
        problem = f"was begun with another {' and another '.join(changed)}"
        raise ValueError(f"--output_dir {problem}: give a new one, or delete it to start anew.")
    return begun


def score_partition(
    pipe: CountingPipeline,
    corpus: Corpus,
    times: str | None,
    num_threads: int,
    alarm: Alarm | None,
    partition: int,
) -> int:
    """
    Writes the predictions of a partition, in the order of [`Corpus.read`], with times in the form that [`check_times`]
    returned, and with the events of an alarm if it has a policy. Returns their number.
    """
    torch.set_num_threads(num_threads)
    # There may be a process for each core, and oneDNN's cache would take a gigabyte in each.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    # The pipeline's warnings about single timelines are counted instead.
    logging.set_verbosity_error()
    pipe.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pipe.model.to(pipe.device)
    pipe.truncated = 0
    posts, config = corpus.read(partition), pipe.model.config
    timelines = list(each_timeline(posts, times is not None))
    for _ in pipe(iter(timelines)):
        pass  # The answers are attached to the timelines.
    names = class_names(config)
    decided = decide_posts(timelines, config.calibration)
    rows = prediction_rows(timelines, *decided, names, (), config, has_dates=times == "dates")
    if alarm is not None:
        rows = with_events(rows, timelines, decided[1], alarm)
    table = to_arrow(rows)
    for name in corpus.kept:
        table = table.append_column(name, posts[KEPT + name])
    table = table.replace_schema_metadata({TRUNCATED: str(pipe.truncated)})
    with written_whole(corpus.output / f"part-{partition:05}.parquet") as path:
        parquet.write_table(table, path, compression="zstd")
    return posts.num_rows


def with_events(
    rows: pd.DataFrame, timelines: Sequence[Timeline], probabilities: np.ndarray, alarm: Alarm
) -> pd.DataFrame:
    """
    Returns a table of predictions whose alarms are by a policy, with the column `alarm_event`.

    Args:
        rows (`pd.DataFrame`): The predictions (posts,), in the order of the input.
        timelines (`Sequence[Timeline]`): The timelines.
        probabilities (`np.ndarray` of shape `(posts, classes)`): Their probabilities, in the order of the timelines.
        alarm ([`Alarm`]): The alarm.
    """
    events = np.zeros(len(rows), dtype=np.int64)
    for timeline, values in zip(timelines, split_values(timelines, probabilities), strict=True):
        events[timeline.input_rows] = alarm.find_events(torch.from_numpy(values), timeline.timestamps)
    place = rows.columns.get_loc("alarm")
    rows = rows.assign(alarm=pd.Series(events == RAISED, dtype="boolean"))
    rows.insert(place + 1, EVENT, pd.Series(events).map(EVENTS).astype("string"))
    return rows


def check_kept(kept: Sequence[str], names: Sequence[str]):
    """Raises a `ValueError` for a column to keep that has the name of a column of predictions, or is named twice."""
    for number, name in enumerate(kept):
        if name == EVENT or is_prediction_column(name, names):
            raise ValueError(f"--keep_columns {name}: predictions have a column of that name, so rename yours.")
        if name in kept[:number]:
            raise ValueError(f"--keep_columns names {name} twice.")


def each_timeline(posts: pa.Table, timed: bool) -> Iterator[Timeline]:
    """Yields the timelines of sorted posts one by one."""
    for timeline_id, table in posts.to_pandas().groupby("timeline_id", sort=False):
        times = table["time"].tolist() if timed else [None] * len(table)
        columns = (table[name] for name in ("text", "post_id", "speaker", "state"))
        rows = [
            Post(row, text, time, post_id, speaker=speaker, state=state)
            for row, time, text, post_id, speaker, state in zip(table.index.tolist(), times, *columns, strict=True)
        ]
        yield Timeline.from_posts(timeline_id, rows)


def read_parts(output: Path) -> dict[int, tuple[int, int]]:
    """
    Returns the numbers of posts and of truncated posts of each partition with a complete file of predictions. Warns of
    a file that cannot be read, whose partition is then scored anew. Raises a `ValueError` for a file that is not of a
    partition, because readers of the folder would take it for predictions.
    """
    parts = {}
    for path in sorted(output.glob("part-*.parquet")):
        if not re.fullmatch("part-[0-9]{5,}", path.stem):
            raise ValueError(f"--output_dir has {path.name}, which no run has written: take it out of {output}.")
        try:
            metadata = parquet.read_metadata(path)
            counts = metadata.metadata or {}
            problem = None if TRUNCATED in counts else "it does not say that it is whole"
        except (pa.ArrowException, OSError) as error:
            problem = error
        if problem is None:
            parts[int(path.stem[5:])] = metadata.num_rows, int(counts[TRUNCATED])
        else:
            logger.warning(f"{path} cannot be read ({problem}): its posts are scored again.")
    return parts


def read_json_if_any(path: Path) -> Any:
    """Returns the content of a JSON file, None if there is none. Raises a `ValueError` that names a damaged one."""
    return decode_json(path.read_text(encoding="utf-8"), path) if path.exists() else None
