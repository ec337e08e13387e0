"""
Measures `tempoformer score` on a synthetic corpus: its time, the memory of its processes, its recovery.

The posts of a timeline are spread over files of three formats in any order; one timeline has a twentieth of all posts.
After a third of the predictions a process that computes is killed (SIGKILL). After two thirds the run is stopped
(SIGTERM), and the same command resumes it. At the end the predictions of the long timeline and of a sample of others
are compared with the pipeline's.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import csv, dataset, parquet
from pyarrow import json as json_lines
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from workload import ROOT, make_pipe, show, table

from modeling_tempoformer import StreamClassificationPipeline


TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
NUM_FILES = 12
LONG = "timeline 0"
COMPARED_TIMELINES = 300
MEMORY = ("rss", "pss", "uss")
SECONDS_BETWEEN_SAMPLES = 1.0


def write_corpus(folder: Path, num_posts: int, num_timelines: int, num_words: int):
    """Writes posts of 1 to `num_words` words as Parquet, gzipped CSV and JSON lines. No two have the same time."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha())
    folder.mkdir()
    choose, numbers = random.Random(0), np.random.default_rng(0)
    times = numbers.permutation(num_posts) * 60 + 1_700_000_000
    for file, rows in enumerate(np.array_split(np.arange(num_posts), NUM_FILES)):
        # Each timeline has a post, and the first one has a twentieth of all.
        others = np.where(rows < num_timelines, rows, numbers.integers(1, num_timelines, len(rows)))
        timelines = np.where(rows % 20 == 19, 0, others)
        posts = pa.table(
            {
                "timeline_id": [f"timeline {timeline}" for timeline in timelines],
                "post_id": [f"post {row}" for row in rows],
                "timestamp": times[rows],
                "text": [" ".join(choose.choices(words, k=choose.randint(1, num_words))) for _ in rows],
            }
        )
        if file % 3 == 0:
            parquet.write_table(posts, folder / f"{file}.parquet")
        elif file % 3 == 1:
            with gzip.open(folder / f"{file}.csv.gz", "wb") as stream:
                csv.write_csv(posts, stream)
        else:
            with (folder / f"{file}.jsonl").open("w") as stream:
                posts.to_pandas().to_json(stream, orient="records", lines=True)


def role(command: list[str]) -> str:
    """Names the role of a process."""
    name = command[0]
    if name.startswith("ray::score_partition"):
        return "holds the model"
    if name.startswith(("ray::Corpus", "ray::IDLE")):
        return "reads and checks"
    if "ray::" not in name and any(word.endswith("tempoformer.py") for word in command):
        return "tempoformer score"
    return f"Ray's own: {Path(name).name.removeprefix('ray::')}"


class Run(threading.Thread):
    """Runs the script, and raises `peaks` to the largest memory of a process of each role."""

    def __init__(self, command: list[str], peaks: dict[str, dict[str, int]]):
        super().__init__(daemon=True)
        self.script = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
        self.peaks, self.largest_sum = peaks, 0
        self.start()

    def processes(self) -> dict[psutil.Process, tuple[str, Any]]:
        """Returns the role and the memory of each process."""
        running = {}
        try:
            script = psutil.Process(self.script.pid)
            for process in (script, *script.children(recursive=True)):
                # A process that is ending has no command line.
                if command := process.cmdline():
                    running[process] = role(command), process.memory_full_info()
        except psutil.Error:
            pass
        return running

    def run(self):
        while self.script.poll() is None:
            running = self.processes().values()
            for name, memory in running:
                peak = self.peaks.setdefault(name, dict.fromkeys(MEMORY, 0))
                peak.update({kind: max(peak[kind], getattr(memory, kind)) for kind in MEMORY})
            self.largest_sum = max(self.largest_sum, sum(memory.pss for _, memory in running))
            time.sleep(SECONDS_BETWEEN_SAMPLES)

    def wait_for_parts(self, output: Path, number: int) -> int:
        """Waits for `number` parts, or the end of the script. Returns the number of parts."""
        while len(parts := list(output.glob("part-*"))) < number and self.script.poll() is None:
            time.sleep(0.1)
        return len(parts)


def score(command: list[str], output: Path) -> tuple[dict[str, object], dict[str, dict[str, int]]]:
    """Runs the script, kills a process, and stops and resumes the script. Returns the figures, and memory by role."""
    peaks: dict[str, dict[str, int]] = {}
    start, first = time.perf_counter(), Run(command, peaks)
    first.wait_for_parts(output, 1)
    read_after = time.perf_counter() - start
    num_parts = sum(count > 0 for count in json.loads((output / "_begun_with.json").read_text())["posts"])
    first.wait_for_parts(output, num_parts // 3)
    killed = next(process for process, (name, _) in first.processes().items() if name == "holds the model")
    killed.kill()
    first.wait_for_parts(output, 2 * num_parts // 3)
    first.script.terminate()
    status = first.script.wait()
    before = {path.name: path.stat().st_mtime_ns for path in output.glob("part-*")}
    second = Run(command, peaks)
    assert second.script.wait() == 0
    after = {path.name: path.stat().st_mtime_ns for path in output.glob("part-*")}
    figures = {
        "seconds": time.perf_counter() - start,
        "seconds until the first part was there": read_after,
        "parts": len(after),
        "process killed": killed.pid,
        "exit status of the stopped run": status,
        "parts of the stopped run": len(before),
        "of these written again": sum(after[name] != changed for name, changed in before.items()),
        "largest sum of all processes, PSS, MB": max(first.largest_sum, second.largest_sum) / 1e6,
    }
    return figures, peaks


def compare(folder: Path, num_timelines: int) -> dict[str, object]:
    """Compares the predictions of a sample of timelines with the pipeline's."""
    chosen = random.Random(1).sample(range(1, num_timelines), min(COMPARED_TIMELINES, num_timelines - 1))
    names = pa.array([LONG, *(f"timeline {number}" for number in chosen)])
    wanted = dataset.field("timeline_id").isin(names)
    columns = ["timeline_id", "post_id", "timestamp", "text"]
    readers = {".parquet": parquet.read_table, ".gz": csv.read_csv, ".jsonl": json_lines.read_json}
    tables = [readers[path.suffix](path).select(columns).filter(wanted) for path in (folder / "posts").iterdir()]
    posts = pa.concat_tables(tables).to_pandas()
    written = dataset.dataset(str(folder / "scored"))
    ids = written.to_table(columns=["post_id"])["post_id"]
    predicted = written.to_table(filter=wanted).to_pandas().set_index("post_id")
    pipe = StreamClassificationPipeline(
        model=AutoModelForSequenceClassification.from_pretrained(folder / "model").eval(),
        tokenizer=AutoTokenizer.from_pretrained(folder / "model"),
    )
    other_labels, largest = 0, 0.0
    for _, timeline in posts.groupby("timeline_id"):
        results = pipe({"text": list(timeline["text"]), "timestamp": timeline["timestamp"].tolist()})
        for post_id, result in zip(timeline["post_id"], results, strict=True):
            row = predicted.loc[post_id]
            other_labels += row["prediction"] != result["label"]
            largest = max(largest, abs(row[f"probability_{row['prediction']}"] - result["score"]))
    return {
        "rows": len(ids),
        "different ids": len(ids.unique()),
        "posts compared": len(posts),
        "posts of the longest timeline": int((posts["timeline_id"] == LONG).sum()),
        "other labels than the pipeline's": other_labels,
        "largest difference of a score": largest,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, default=2_000_000)
    parser.add_argument("--timelines", type=int, default=50_000)
    parser.add_argument("--words", type=int, default=6, help="Words of the longest post.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_pipe("post_tempoformer", **TINY).save_pretrained(folder / "model")
        write_corpus(folder / "posts", args.posts, args.timelines, args.words)
        command = [
            sys.executable,
            str(ROOT / "tempoformer.py"),
            "score",
            "--model_name_or_path",
            str(folder / "model"),
        ]
        command += ["--input_files", str(folder / "posts"), "--output_dir", str(folder / "scored")]
        figures, peaks = score([*command, "--columns", "id=post_id"], folder / "scored")
        figures |= compare(folder, args.timelines)
    figures["posts a second"] = args.posts / figures["seconds"]
    show(benchmark="scoring", settings=vars(args), figures=figures, peaks=peaks)
    table(
        ["process, the largest of its kind", *(f"{kind.upper()}, MB" for kind in MEMORY)],
        [[name, *(f"{size / 1e6:,.0f}" for size in peak.values())] for name, peak in peaks.items()],
    )
    table(
        ["scoring", "figure"],
        [[name, f"{value:,.4g}" if isinstance(value, float) else str(value)] for name, value in figures.items()],
    )


if __name__ == "__main__":
    main()
