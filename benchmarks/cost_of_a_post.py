"""
What a post costs when a corpus is scored: tokens, seconds of one core, and bytes, in both forms of stream layers.

Timelines of 40 posts of a real distribution of lengths, from sorted posts to predictions as a process of
run_scoring.py does it, in one thread. The seconds are those of the processor: other work on the machine hardly counts.
"""

import argparse
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import torch
from live import FORMS, WINDOW, make_pipe, make_timelines
from pyarrow import csv
from workload import show, table

from modeling_tempoformer.scoring.folders import Folder
from modeling_tempoformer.scoring.scorer import NamedTimelines, ShardScorer
from modeling_tempoformer.scoring.shards import POSTS, Corpus, Shard, read_files, write_shard


POSTS_OF_A_TIMELINE = 40
REPEATS = 3


def cost(encoder: str | None, form: str, num_timelines: int, folder: Path) -> dict[str, float]:
    """The figures of one form; the seconds are the least of several runs after one to warm up."""
    pipe = make_pipe(encoder, form)
    timelines = make_timelines(pipe.tokenizer, num_timelines, POSTS_OF_A_TIMELINE)
    rows = [
        {"timeline_id": name, "time": seconds, "text": text, "post_id": f"{name} {place}", "file": 0, "row": place}
        for name, timeline in timelines.items()
        for place, (text, seconds) in enumerate(zip(timeline["text"], timeline["timestamp"], strict=True))
    ]
    work, output, table_of_posts = Folder(str(folder / "work")), Folder(str(folder)), folder / "posts.csv"
    csv.write_csv(pa.Table.from_pylist(rows, POSTS), table_of_posts)
    columns = {"timeline": "timeline_id", "timestamp": "time", "text": "text", "label": None, "id": "post_id"}
    start = time.process_time()
    file = pa.table({"file": [0], "name": [str(table_of_posts)]})
    posts = pa.concat_tables(read_files(file, columns, work))
    (written,) = write_shard(posts, work)
    seconds_to_sort = time.process_time() - start
    shard = Shard(written["name"][0].as_py(), len(rows), f"{form}.parquet")
    scorer = ShardScorer(
        NamedTimelines(model=pipe.model, tokenizer=pipe.tokenizer, device="cpu"),
        Corpus([shard], timed=True, has_ids=True),
        [],
        work,
        output,
    )
    seconds = []
    for _ in range(1 + REPEATS):
        start = time.process_time()
        scorer.score(shard)
        seconds.append(time.process_time() - start)
    tokens = pipe.tokenizer([row["text"] for row in rows])["input_ids"]
    return {
        "posts": len(rows),
        "tokens of a post": sum(map(len, tokens)) / len(rows),
        "seconds of a core to read, check and sort it": seconds_to_sort / len(rows),
        "seconds of a core to score it": min(seconds[1:]) / len(rows),
        "bytes of its text": sum(len(row["text"].encode()) for row in rows) / len(rows),
        "bytes in the shuffle": posts.nbytes / len(rows),
        "bytes sorted, on disk": (folder / "work" / "shards" / shard.name).stat().st_size / len(rows),
        "bytes of its prediction, on disk": (folder / shard.part).stat().st_size / len(rows),
        "bytes of the model": pipe.model.get_memory_footprint(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", help="folder or Hub id; by default a tiny one without training")
    parser.add_argument("--timelines", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    figures = {}
    for form in FORMS:
        with tempfile.TemporaryDirectory() as folder:
            figures[form] = cost(args.encoder, form, args.timelines, Path(folder))
    show(benchmark="cost of a post", settings=vars(args), window=WINDOW, figures=figures)
    table(
        ["cost", *(f"{form} form" for form in FORMS)],
        [[name, *(f"{figures[form][name]:,.4g}" for form in FORMS)] for name in next(iter(figures.values()))],
    )


if __name__ == "__main__":
    main()
