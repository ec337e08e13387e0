r"""Scores a corpus of posts that does not fit in memory, on one machine or on many.

    python run_scoring.py --model_name_or_path outputs/mine --input_files posts/ --output_dir scored
    RAY_ADDRESS=10.0.0.1:6379 python run_scoring.py --model_name_or_path me/my-model \
        --input_files s3://corpus/posts --output_dir s3://corpus/scored

The posts of a timeline may stand in any order and in several files. Ray Data sorts them into shards of whole
timelines, and each process scores one shard after the other. After a stop the same command goes on with what is left.
"""

import logging
import sys
from dataclasses import dataclass, field
from typing import Any

from transformers import AutoConfig, AutoTokenizer
from transformers.utils.logging import tqdm

from modeling_tempoformer import TempoFormerConfig, TempoFormerForStreamClassification
from modeling_tempoformer.data.arguments import check_positive
from modeling_tempoformer.scoring.cluster import started_ray
from modeling_tempoformer.scoring.folders import Folder, Table, absolute, check_apart, find_tables
from modeling_tempoformer.scoring.record import RECORD, check_record, make_record
from modeling_tempoformer.scoring.scorer import (
    NamedTimelines,
    check_whole,
    count_posts,
    count_truncated,
    score_shards,
)
from modeling_tempoformer.scoring.shards import make_shards, read_shards
from modeling_tempoformer.training.recipes import parse, run_script


logger = logging.getLogger(__name__)

# Sorted posts, which are deleted at the end; and what is written last. Readers of Parquet leave out such names.
WORK, SCORED = "_work", "_scored.json"


@dataclass(kw_only=True)
class ScoringArguments:
    """Which model, which posts, and where the predictions go."""

    model_name_or_path: str = field(metadata={"help": "A TempoFormer: a folder or a Hub id."})
    input_files: list[str] = field(
        metadata={"help": "Tables of posts, or folders of them: CSV, TSV, JSON lines or Parquet; paths or URIs."}
    )
    output_dir: str = field(metadata={"help": "Folder for the predictions: a path or a URI that all machines reach."})
    timeline_column: str = "timeline_id"
    timestamp_column: str | None = field(default=None, metadata={"help": "Default: 'timestamp', if it exists."})
    text_column: str = "text"
    id_column: str | None = field(default=None, metadata={"help": "Default: a post's id is its file and its row."})
    num_workers: int | None = field(
        default=None,
        metadata={"help": "Processes that hold the model. Default: one a GPU, else one a core."},
    )
    cache_dir: str | None = field(default=None, metadata={"help": "Folder for downloads from the Hub."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the model on the Hub."})
    token: str | None = field(default=None, repr=False, metadata={"help": "Token for downloads from the Hub."})

    def __post_init__(self):
        check_positive(self, "num_workers")


def main(arguments: list[str]):
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    (args,) = parse([ScoringArguments], arguments)
    pipe = load_pipeline(args)
    output = Folder(absolute(args.output_dir))
    check_apart(args.input_files, output)
    tables = find_tables(args.input_files)
    columns = {role: getattr(args, f"{role}_column") for role in ("timeline", "timestamp", "text", "id")}
    record = make_record(pipe.model, pipe.tokenizer, tables, columns)
    is_new = check_record(output, record)
    if (scored := None if is_new else output.read_json(SCORED)) is None:
        try:
            scored = score(pipe, tables, columns, record if is_new else None, output, args.num_workers)
        except KeyboardInterrupt:
            sys.exit("Stopped. The same command goes on with what is left.")
    else:
        check_whole(output, scored["files"])
    (output / WORK).delete()
    logger.info("%d posts of %d files are scored: %s", scored["posts"], len(tables), output.name)
    if scored["truncated_posts"]:
        logger.warning("%d posts were longer than the model reads, and were cut.", scored["truncated_posts"])


def load_pipeline(args: ScoringArguments) -> NamedTimelines:
    """The model with its tokenizer, in the precision in which it was saved."""
    downloads = {"cache_dir": args.cache_dir, "revision": args.model_revision, "token": args.token}
    config = AutoConfig.from_pretrained(args.model_name_or_path, **downloads)
    if config.model_type != TempoFormerConfig.model_type:
        raise ValueError(f"{args.model_name_or_path} is a '{config.model_type}' and not a TempoFormer.")
    model = TempoFormerForStreamClassification.from_pretrained(args.model_name_or_path, **downloads).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path, **downloads)
    return NamedTimelines(model=model, tokenizer=tokenizer, device="cpu")


def score(
    pipe: NamedTimelines,
    tables: list[Table],
    columns: dict[str, str | None],
    new_record: dict[str, Any] | None,
    output: Folder,
    num_workers: int | None,
) -> dict[str, Any]:
    """Sorts the posts if the run is new, scores the shards that are left, and counts."""
    work = output / WORK
    with started_ray(pipe.model.get_memory_footprint()):
        if new_record is not None:
            # Of a run that was stopped while it sorted.
            work.delete()
            is_dated = "time_ids" in pipe.tokenizer.model_input_names
            make_shards(tables, columns, work, pipe.tokenizer if is_dated else None)
            output.write_json(RECORD, new_record)
        corpus = read_shards(work)
        left = corpus.without(count_posts(output))
        with tqdm(total=corpus.posts, initial=corpus.posts - left.posts, desc="Scoring", unit="post") as bar:
            for num_posts in score_shards(pipe, left, [table.name for table in tables], work, output, num_workers):
                bar.update(num_posts)
    files = {shard.part: shard.posts for shard in corpus.shards}
    scored = {"posts": corpus.posts, "truncated_posts": count_truncated(output, corpus), "files": files}
    output.write_json(SCORED, scored)
    return scored


if __name__ == "__main__":
    run_script(main)
