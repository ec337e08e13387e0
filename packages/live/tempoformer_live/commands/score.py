"""
Scores a corpus of posts that does not fit in memory, on one machine or on many.

    tempoformer score --model_name_or_path outputs/mine --input_files posts/ --output_dir scored
"""

import logging
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.utils import tqdm

from modeling_tempoformer import UnknownPeople, class_names, load_pipeline, recall_columns
from modeling_tempoformer.common.arguments import DownloadArguments
from modeling_tempoformer.common.columns import NO_COLUMN, Columns, read_columns
from modeling_tempoformer.common.command_line import check_positive, check_read, parse
from modeling_tempoformer.common.files import write_json
from modeling_tempoformer.common.table_arguments import TableArguments, columns_of, table_options

from ..cluster import run_tasks, started_ray
from ..corpus import WORK, Corpus, check_names, check_times, find_tables
from ..policy import read_alarm, use_alarm
from ..scorer import (
    RECORD,
    CountingPipeline,
    check_kept,
    check_record,
    make_record,
    read_json_if_any,
    read_parts,
    score_partition,
)


logger = logging.getLogger(__name__)

SCORED = "_scored.json"  # Written last.
# Bytes of input for each partition, and the least number of partitions, which keeps several processes busy.
PARTITION_BYTES, MIN_PARTITIONS = 1 << 25, 16


@dataclass(kw_only=True)
class ScoringArguments(DownloadArguments, TableArguments):
    """The model, the posts, and the folder of the predictions."""

    model_name_or_path: str = field(metadata={"help": "A TempoFormer: a folder or a Hub id."})
    input_files: list[str] = field(
        metadata={"help": "Tables of posts, or folders of them: CSV, TSV, JSON lines or Parquet."}
    )
    output_dir: str = field(metadata={"help": "Folder for the predictions, which all machines can reach."})
    keep_columns: list[str] = field(
        default_factory=list,
        metadata={"help": "Columns of the input that are written beside the predictions, such as text and speaker."},
    )
    cores_per_process: int = field(
        default=1, metadata={"help": "Cores of each process. Each process also takes a GPU if there is any."}
    )

    def __post_init__(self):
        check_positive(self, "cores_per_process")


def main(arguments: list[str]):
    (args,) = parse([ScoringArguments], arguments)
    # Absolute, because processes on other machines have other working folders.
    output = Path(args.output_dir).absolute()
    tables = find_tables(args.input_files, output)
    # `auto` is the precision in which the model was saved.
    loaded = load_pipeline(args.model_name_or_path, dtype="auto", **args.downloads)
    pipe = CountingPipeline(model=loaded.model, tokenizer=loaded.tokenizer, device="cpu")
    config, named = pipe.model.config, read_columns(args.columns, args.roles)
    reads_speakers, reads_states = config.reads_speakers, config.reads_known_states
    unread = "by this model, which does not know who speaks (--keep_columns writes a column beside the predictions)"
    reads = {"columns speaker": (reads_speakers, unread)}
    reads["columns state"] = (reads_states, "by this model, which reads no known states")
    check_read({f"columns {role}" for role in named}, reads)
    if named.get("speaker") == NO_COLUMN:
        raise ValueError(f"--columns speaker={NO_COLUMN} cannot be given with this model, which reads who speaks.")
    recall_columns(args, args.model_name_or_path, tables[0])
    # Labels are not read.
    roles = ["timeline", "timestamp", "text", "id", "speaker"] + ["state"] * reads_states
    columns = Columns({role: columns_of(args)[role] for role in roles})
    # A table without it is refused, as one without texts is.
    columns["speaker"] = columns["speaker"] or ("speaker" if reads_speakers else None)
    check_kept(args.keep_columns, class_names(pipe.model.config))
    num_partitions = max(MIN_PARTITIONS, sum(os.path.getsize(table) for table in tables) // PARTITION_BYTES)
    corpus = Corpus(output, tables, columns, num_partitions, kept=tuple(args.keep_columns), **table_options(args))
    if corpus.one_timeline:
        check_names(tables)
    alarm = read_alarm(args.model_name_or_path, pipe.model.config)
    use_alarm(pipe.model.config, alarm)
    record = make_record(pipe, corpus, alarm)
    begun, parts = check_record(output, record), read_parts(output)
    try:
        if begun is None or open_partitions(begun, parts):
            with started_ray():
                # A finished run has deleted its partitions, so they are written again.
                if begun is None or read_json_if_any(output / SCORED) is not None:
                    begun = {**record, **write_partitions(corpus)}
                    write_json(output / RECORD, begun)
                left, shared = (
                    open_partitions(begun, parts),
                    (pipe, corpus, begun["times"], args.cores_per_process, alarm),
                )
                done = sum(begun["posts"]) - sum(left.values())
                with tqdm(total=sum(begun["posts"]), initial=done, desc="Scoring", unit="post") as bar:
                    for num_posts in run_tasks(score_partition, shared, left, args.cores_per_process, on_gpus=True):
                        bar.update(num_posts)
    except KeyboardInterrupt:
        sys.exit("Stopped. The same command continues with the rest.")
    num_posts, num_truncated = (sum(counts) for counts in zip(*read_parts(output).values(), strict=True))
    write_json(output / SCORED, {"posts": num_posts, "truncated_posts": num_truncated})
    shutil.rmtree(output / WORK, ignore_errors=True)
    # Processes that were killed have left these.
    for partial in output.glob("_*_part-*.parquet"):
        partial.unlink()
    logger.info("%d posts of %d files are scored: %s", num_posts, len(tables), args.output_dir)
    if num_truncated:
        logger.warning("%d posts were longer than the model reads, and were truncated.", num_truncated)


def open_partitions(begun: dict[str, Any], parts: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Returns the number of posts of each partition without a complete file of predictions, largest first."""
    left = {number: count for number, count in enumerate(begun["posts"]) if parts.get(number, [0])[0] != count}
    return dict(sorted(left.items(), key=lambda item: -item[1]))


def write_partitions(corpus: Corpus) -> dict[str, Any]:
    """Reads, checks and partitions all posts. Returns the form of their times, and the size of each partition."""
    # A run that was stopped while reading has left this.
    shutil.rmtree(corpus.output / WORK, ignore_errors=True)
    files = range(len(corpus.tables))
    results = run_tasks(Corpus.write_file, (corpus,), files)
    _, times, posts, nobody = zip(*sorted(tqdm(results, total=len(files), desc="Reading", unit="file")), strict=True)
    form = check_times(corpus.tables, times)
    unknown = UnknownPeople()
    for of_file in nobody:
        unknown.update(of_file)
    unknown.warn()
    if corpus.columns["id"]:
        list(run_tasks(Corpus.check_ids, (corpus,), range(corpus.num_partitions)))
    return {"times": form, "posts": [sum(counts) for counts in zip(*posts, strict=True)]}
