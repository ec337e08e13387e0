r"""What the README's commands learn on real posts: small and whole corpora, three seeds, each with parts of its own.

    python benchmarks/first_evening.py --model_name_or_path M --lrs threads.jsonl.gz --topic_shift conversations \
        --annomi annomi_full.csv.gz --output_dir outputs/first_evening

A fifth of the timelines is held out, another one for each seed. Of the others so many are drawn as a row of the table
says; the commands split them into training and validation posts. Each run is a process of its own, and its seconds are
those of the whole command, from start to predictions. Every TempoFormer run also scores position and time alone.
Finished runs are not repeated.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import Dataset
from sklearn.metrics import f1_score

from modeling_tempoformer.data.splits import cut
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.training.parts import load_file


ROOT = Path(__file__).parents[1]
FOLDS, FOLD_SEED = 5, 0
# How many timelines to train on; None for all that are not held out.
SIZES = {"lrs": (30, 70, None), "topic_shift": (20, None), "annomi": (40, None), "synthetic": (60,)}
SYNTHETIC_TIMELINES = 200
COMMANDS = {
    "TempoFormer": "run_glue_style.py --do_train --do_eval --do_predict",
    "BiLSTM": "run_baseline.py --method bilstm",
    "post alone": "run_baseline.py --method post",
    "class prior": "run_baseline.py --method class_prior",
}
WITHOUT_ENCODER = ("class prior",)


@dataclass(frozen=True)
class Run:
    """One command, on some timelines of a corpus."""

    method: str
    corpus: str
    size: int | None
    seed: int

    @property
    def name(self) -> str:
        return "-".join(map(str, (self.corpus, self.size or "all", self.method.replace(" ", "_"), self.seed)))

    def execute(self, folder: Path, posts: pd.DataFrame, timelines: Dataset, names: list[str], encoder: str):
        """Writes the posts of the run, runs the command, and keeps its score and its seconds in a file."""
        done = folder / f"{self.name}.json"
        if done.exists():
            return
        files = self.write_posts(folder, posts, timelines)
        output = folder / self.name
        model = [] if self.method in WITHOUT_ENCODER else ["--model_name_or_path", encoder]
        script, *arguments = shlex.split(COMMANDS[self.method])
        command = [sys.executable, ROOT / script, *arguments, *model, *files, "--labels", *names]
        start = time.perf_counter()
        with output.with_suffix(".log").open("w", encoding="utf-8") as log:
            subprocess.run(
                [*command, "--seed", str(self.seed), "--output_dir", output], stdout=log, stderr=log, check=True
            )
        seconds = time.perf_counter() - start
        table = pd.read_csv(output / "_predictions.csv", dtype=str, keep_default_na=False)
        table = table[table["label"] != ""]
        score = f1_score(table["label"], table["prediction"], labels=names, average="macro", zero_division=0)
        one_class = table["prediction"].nunique() == 1
        found = {"macro_f1": score, "one_class": one_class, "seconds": seconds}
        if self.method == "TempoFormer":
            results = json.loads((output / "all_results.json").read_text(encoding="utf-8"))
            found["position_and_time"] = results["test"]["compared_with"]["position_and_time"]["macro_f1"]
        done.write_text(json.dumps(found) + "\n", encoding="utf-8")

    def write_posts(self, folder: Path, posts: pd.DataFrame, timelines: Dataset) -> list[str]:
        """The arguments that name the run's files."""
        rest, held_out = cut(timelines, FOLDS, FOLD_SEED)[self.seed % FOLDS]
        drawn = np.random.default_rng(self.seed).permutation(rest)[: self.size]
        ids = np.array(timelines["timeline_id"])
        arguments = []
        for option, chosen in (("train_file", drawn), ("test_file", held_out)):
            path = folder / f"{self.corpus}-{self.size or 'all'}-{self.seed}-{option}.csv"
            posts[posts["timeline_id"].isin(ids[chosen])].to_csv(path, index=False)
            arguments += [f"--{option}", str(path)]
        return arguments


def read_posts(corpus: str, path: str | None) -> Dataset:
    if corpus == "synthetic":
        return Dataset.from_list(list(synthetic_posts(SYNTHETIC_TIMELINES, seed=0)))
    return load_file(path, corpus)


def plan(corpora: list[str], methods: list[str], seeds: list[int]) -> Iterator[Run]:
    for seed in seeds:
        for corpus in corpora:
            for size in SIZES[corpus]:
                for method in methods:
                    yield Run(method, corpus, size, seed)


def make_table(folder: Path, runs: list[Run]) -> pd.DataFrame:
    """A row for each corpus, size and method that has a finished run."""
    rows = []
    for run in runs:
        if (done := folder / f"{run.name}.json").exists():
            found = json.loads(done.read_text(encoding="utf-8"))
            place = {**vars(run), "size": run.size or "all"}
            rows.append({**place, **found})
            if "position_and_time" in found:
                free = {"macro_f1": found["position_and_time"], "one_class": False, "seconds": 0}
                rows.append({**place, "method": "position and time", **free})
    grouped = pd.DataFrame(rows).groupby(["corpus", "size", "method"], sort=False)
    table = grouped.agg(
        macro_f1=("macro_f1", "mean"),
        worst=("macro_f1", "min"),
        one_class=("one_class", "sum"),
        runs=("seed", "count"),
        seconds=("seconds", "median"),
    )
    return table.assign(macro_f1=100 * table["macro_f1"], worst=100 * table["worst"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name_or_path", required=True, help="An encoder.")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--lrs", help="RumourEval-2017's threads; left out if not given.")
    parser.add_argument("--topic_shift", help="The folder of Topic Shift-MI's conversations; left out if not given.")
    parser.add_argument("--annomi", help="AnnoMI's table; left out if not given.")
    parser.add_argument("--methods", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    paths = {corpus: getattr(args, corpus, None) for corpus in SIZES}
    corpora = [corpus for corpus in SIZES if paths[corpus] or corpus == "synthetic"]
    runs = list(plan(corpora, args.methods, args.seeds))
    for corpus in corpora:
        posts = read_posts(corpus, paths[corpus])
        names = label_names(posts)
        timelines = to_timelines(posts, names)
        for run in runs:
            if run.corpus == corpus:
                run.execute(args.output_dir, posts.to_pandas(), timelines, names, args.model_name_or_path)
    table = make_table(args.output_dir, runs)
    table.to_csv(args.output_dir / "table.csv")
    print(table.to_string(float_format="{:.1f}".format))


if __name__ == "__main__":
    main()
