"""
The offline demo: trains a model with the temporal rotation and one without on synthetic timelines. Loads the first one
as from the Hub, without this package, and prints a timeline with its predicted changes.
"""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
from transformers import pipeline
from transformers.utils import logging


ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "outputs" / "demo"
VARIANTS = {"temporal_rotary": "rotated by log time", "rotary": "rotated by position"}


def run(*command: str | Path, log: Path):
    """Runs a Python command. Its output goes to the file `log`, which is printed if the command fails."""
    arguments = [sys.executable, *map(str, command)]
    log.parent.mkdir(parents=True, exist_ok=True)
    # Threads slow down models as tiny as these.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("w", encoding="utf-8") as file:
        code = subprocess.run(arguments, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT).returncode
    if code:
        sys.exit(f"{log.read_text(encoding='utf-8')}\n{' '.join(arguments)} failed; its output is above and in {log}.")


def write_data(folder: Path) -> list[str]:
    """Writes synthetic timelines to `folder`. Returns the script's arguments for them."""
    run("-m", "modeling_tempoformer.posts.synthetic", folder, log=folder.with_suffix(".log"))
    return [f"--{name}_file={folder / name}.csv" for name in ("train", "validation", "test")]


def train(kind: str, files: list[str], folder: Path) -> float:
    """Trains a model with this `stream_attention`, saves it in `folder`, and returns its test macro F1."""
    overrides = json.dumps({"stream_attention": kind})
    arguments = ["--output_dir", folder, "--config_overrides", overrides]
    run("run_glue_style.py", "configuration/demo.yaml", *files, *arguments, log=folder.with_suffix(".log"))
    return json.loads((folder / "all_results.json").read_text())["test"]["macro_f1"]


def show_timeline(model: Path, file: Path):
    """Prints the first timeline of a file with a saved model's prediction for each post."""
    logging.disable_progress_bar()
    pipe = pipeline("stream-classification", model=str(model), trust_remote_code=True)
    posts = pd.read_csv(file)
    posts = posts[posts["timeline_id"] == posts["timeline_id"][0]]
    results = pipe({"text": posts["text"].tolist(), "timestamp": posts["timestamp"].tolist()}, top_k=2)
    print(f"\n{posts['timeline_id'][0]}, read by a model loaded with trust_remote_code=True\n")
    gaps = pd.to_timedelta(posts["timestamp"].diff(), unit="s")
    for post, gap, result in zip(posts.itertuples(), gaps, results, strict=True):
        when = f"{pd.Timestamp(post.timestamp, unit='s'):%d %b %Y}" if pd.isna(gap) else f"{gap} later"
        (probability,) = (answer["score"] for answer in result if answer["label"] == "Switch")
        mark = ">> SWITCH" if result[0]["label"] == "Switch" else ""
        bar = "#" * round(10 * probability)
        print(f"  {when:>22}  {post.text:<42} {bar:<10} {probability:4.0%}  {mark:<9} (label: {post.label})")


def main():
    shutil.rmtree(OUTPUT, ignore_errors=True)
    files = write_data(OUTPUT / "data")
    print(f"Training two tiny models, {' and '.join(VARIANTS.values())} ...", flush=True)
    # Each is a process with one thread.
    with ThreadPoolExecutor() as pool:
        scores = dict(zip(VARIANTS, pool.map(lambda kind: train(kind, files, OUTPUT / kind), VARIANTS), strict=True))
    print("\nMacro F1 on the test timelines (one seed):", flush=True)
    for kind, description in VARIANTS.items():
        print(f"  {description:<22} {100 * scores[kind]:5.1f}", flush=True)
    show_timeline(OUTPUT / "temporal_rotary", OUTPUT / "data" / "test.csv")


if __name__ == "__main__":
    main()
