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

from modeling_tempoformer.scoring.files import WORK, find_tables, open_folder
from modeling_tempoformer.scoring.partitions import POSTS, Corpus
from modeling_tempoformer.scoring.scorer import NamedTimelines, score_partition


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
    csv.write_csv(pa.Table.from_pylist(rows, POSTS), folder / "posts.csv")
    columns = {"timeline": "timeline_id", "timestamp": "time", "text": "text", "id": "post_id"}
    tables = find_tables([str(folder / "posts.csv")], str(folder / "scored"))
    corpus = Corpus(open_folder(str(folder / "scored")), tables, columns, num_partitions=1)
    start = time.process_time()
    corpus.write_file(None, 0)
    posts = corpus.read(0)
    seconds_to_sort = time.process_time() - start
    named = NamedTimelines(model=pipe.model, tokenizer=pipe.tokenizer, device="cpu")
    seconds = []
    for _ in range(1 + REPEATS):
        start = time.process_time()
        score_partition(named, corpus, True, 1, 0)
        seconds.append(time.process_time() - start)
    tokens = pipe.tokenizer([row["text"] for row in rows])["input_ids"]
    return {
        "posts": len(rows),
        "tokens of a post": sum(map(len, tokens)) / len(rows),
        "seconds of a core to read, check and sort it": seconds_to_sort / len(rows),
        "seconds of a core to score it": min(seconds[1:]) / len(rows),
        "bytes of its text": sum(len(row["text"].encode()) for row in rows) / len(rows),
        "bytes while it is sorted": posts.nbytes / len(rows),
        "bytes in a partition, on disk": (folder / "scored" / WORK / "0.parquet").stat().st_size / len(rows),
        "bytes of its prediction, on disk": (folder / "scored" / "part-00000.parquet").stat().st_size / len(rows),
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
