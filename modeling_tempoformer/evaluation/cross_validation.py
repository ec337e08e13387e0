"""Runs a program for each fold, learning rate and seed, collects the scores, and compares methods in a table."""

import json
import logging
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from ..common.files import write_json
from ..times_tempoformer import to_seconds
from .method_names import method_name
from .metrics import compute_scores
from .prediction_table import PREDICTIONS as RUN_PREDICTIONS
from .prediction_table import PROBABILITY, read_predictions, to_csv
from .predictions import Predictions
from .report import NO_DIFFERENCE
from .report import RESULTS as RUN_RESULTS
from .significance import paired_bootstrap


logger = logging.getLogger(__name__)

FOLDS, RESULTS, PREDICTIONS = "folds.json", "results.json", "predictions.csv"
# Seconds after which the progress bar of a run can estimate the remaining time.
FIRST_LOOK = 60
# On Linux a run is forked from a process that has imported the libraries, which takes as long as a short training.
PROCESSES = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
# Trains and tests one fold, by a command line. Its module is importable, as it runs in another process.
Program = Callable[[list[str]], None]


@dataclass(frozen=True)
class Run:
    """One run of a cross-validation in `output_dir`. If the learning rate is None, the recipe sets it."""

    output_dir: Path
    fold: int
    learning_rate: str | None
    seed: int

    @property
    def folder(self) -> Path:
        rate = [] if self.learning_rate is None else [f"learning_rate_{self.learning_rate}"]
        return self.output_dir.joinpath(f"fold_{self.fold}", *rate, f"seed_{self.seed}")

    def results(self) -> dict[str, Any]:
        """Returns the results of each split that the program has written."""
        return json.loads((self.folder / RUN_RESULTS).read_text(encoding="utf-8"))

    def execute(
        self, program: Program, folds_file: Path, arguments: Sequence[str], inputs: dict[str, Any]
    ) -> float | None:
        """
        Trains, evaluates and predicts, and returns the seconds that this took; returns None if it was done before.
        Raises a `ValueError` for the folder of another run.
        """
        done, command = self.folder / "command.json", {"arguments": list(arguments), **inputs}
        if done.exists():
            if json.loads(done.read_text(encoding="utf-8")) != command:
                raise ValueError(
                    f"{self.folder} has a run of other arguments, recipes, posts or folds: give another --output_dir."
                )
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.glob("checkpoint-*")):
            # A resumed run reports only the time since it resumed.
            (self.folder / "resumed").touch()
        rate = [] if self.learning_rate is None else ["--learning_rate", self.learning_rate]
        command_line = [
            *(str(folds_file), str(self.fold), *arguments, *rate, "--seed", str(self.seed)),
            *("--output_dir", str(self.folder), "--do_train", "--do_eval", "--do_predict"),
            # A recipe may ask for a push, but the folder names timelines.
            *("--push_to_hub", "false"),
        ]
        log = self.folder / "run.log"
        logger.info("Running %s; its progress is in %s there.", self.folder, log.name)
        begun = time.perf_counter()
        if status := run_program(program, command_line, log):
            raise ChildProcessError(f"{self.folder} failed with exit status {status}, see {log}: {last_line(log)}")
        write_json(done, command)
        for checkpoint in self.folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
        return time.perf_counter() - begun


def run_program(program: Program, arguments: list[str], log: Path) -> int:
    """Runs a program in a process, whose output goes to the end of a log. Returns its exit status."""
    process = PROCESSES.Process(target=run_logged, args=(program, arguments, log))
    process.start()
    process.join(FIRST_LOOK)
    if process.is_alive():
        logger.info("After a minute: %s", last_line(log))
        process.join()
    return process.exitcode


def run_logged(program: Program, arguments: list[str], log: Path):
    """Runs a program in this process, whose output goes to the end of a log."""
    with log.open("a", encoding="utf-8") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    program(arguments)


def last_line(log: Path) -> str:
    """Returns the last line of a log, or the last state of a progress bar."""
    *_, last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
    return last


@dataclass(frozen=True)
class CrossValidation:
    """
    Runs of a program for each fold, learning rate and seed.

    Args:
        output_dir (`Path`): Folder of the runs.
        program (`Program`): Trains and tests one fold. Its arguments are a file of folds, the fold's number, and
            options.
        arguments (`Sequence[str]`): The options of each run.
        inputs (`dict[str, Any]`): What else a run depends on, which a finished run must have had, too.
        folds_file (`Path`): The folds.
        seeds (`Sequence[int]`): The seeds of each fold.
        learning_rates (`Sequence[str]`, *optional*): Candidates. Default: the recipe's rate.
        tune_on_first_fold (`bool`, *optional*, defaults to `False`): Use the first fold's best rate for all folds.
    """

    output_dir: Path
    program: Program
    arguments: Sequence[str]
    inputs: dict[str, Any]
    folds_file: Path
    seeds: Sequence[int]
    learning_rates: Sequence[str] = ()
    tune_on_first_fold: bool = False

    @property
    def folds(self) -> list[dict[str, list[str]]]:
        return json.loads(self.folds_file.read_text(encoding="utf-8"))

    def execute(self, fold: int, rate: str | None, seed: int) -> tuple[Run, float | None]:
        """Executes a run. Returns it and its seconds, None if it was done before."""
        run = Run(self.output_dir, fold, rate, seed)
        inputs = {**self.inputs, "fold": self.folds[fold]}
        return run, run.execute(self.program, self.folds_file, self.arguments, inputs)

    def execute_first(self) -> tuple[float | None, int]:
        """Executes the first run. Returns its seconds, None if it was done before, and the number of other runs."""
        _, seconds = self.execute(0, [*self.learning_rates, None][0], self.seeds[0])
        folds = len(self.folds)
        tuned = max(0, len(self.learning_rates) - 1) * (1 if self.tune_on_first_fold else folds)
        return seconds, folds * len(self.seeds) + tuned - 1

    def execute_all(self) -> list[Run]:
        """
        Executes every learning rate with the first seed, then every seed with the learning rate that has the best
        macro F1 on the validation split of the fold, or of the first fold. Returns one run for each fold and seed.
        """
        count = len(self.folds)
        if len(self.learning_rates) < 2:
            rates = [*self.learning_rates, None][:1] * count
        elif self.tune_on_first_fold:
            rates = [self.best_rate(0)] * count
        else:
            rates = [self.best_rate(fold) for fold in range(count)]
        plan = [(fold, rate, seed) for fold, rate in enumerate(rates) for seed in self.seeds]
        return [self.execute(*one)[0] for one in tqdm(plan, f"Runs of {self.output_dir.name}", unit="run")]

    def best_rate(self, fold: int) -> str:
        """Executes a fold with every learning rate and the first seed, and returns the best rate on validation."""
        runs = {rate: self.execute(fold, rate, self.seeds[0])[0] for rate in self.learning_rates}
        return max(runs, key=lambda rate: runs[rate].results()["validation"]["macro_f1"])


def collect(output_dir: Path, runs: Sequence[Run], names: list[str]) -> str:
    """Writes `predictions.csv` and `results.json` of all test posts. Returns a table of scores over the seeds."""
    predictions = pd.concat(
        {(run.seed, run.fold): read_predictions(run.folder / RUN_PREDICTIONS) for run in runs},
        names=["seed", "fold"],
    ).reset_index(["seed", "fold"])
    to_csv(predictions, output_dir / PREDICTIONS)
    scored = labelled(predictions)
    by_seed = pd.DataFrame(
        {seed: compute_scores(to_predictions(rows, names)) for seed, rows in scored.groupby("seed", sort=False)}
    )
    scores = by_seed.agg(["mean", "std"], axis="columns")
    reported = [run.results() for run in runs]
    uninterrupted = [
        results for run, results in zip(runs, reported, strict=True) if not (run.folder / "resumed").exists()
    ]
    seconds = [results["train"]["seconds"] for results in uninterrupted if "train" in results]
    results = {
        "labels": names,
        "seeds": list(by_seed),
        "runs": len(runs),
        "one_class_runs": int((scored.groupby(["seed", "fold"])["prediction"].nunique() == 1).sum()),
        "learning_rates": {run.fold: run.learning_rate for run in runs},
        # JSON has no NaN, which is the standard deviation of a single value.
        "scores": scores.astype(object).where(scores.notna(), None).to_dict("index"),
        "validation_macro_f1": [results.get("validation", {}).get("macro_f1") for results in reported],
        "parameters": reported[0].get("train", {}).get("parameters"),
        "train_seconds": fmean(seconds) if seconds else None,
    }
    write_json(output_dir / RESULTS, results)
    return scores.dropna(axis="columns", how="all").map("{:.4f}".format).to_string()


def compare(ours: Path, theirs: Path, names: list[str]) -> dict[str, float | tuple[float, float]]:
    """Returns [`paired_bootstrap`] over the common seeds. Raises a `ValueError` for none, or for different posts."""
    first, second = (labelled(read_predictions(folder / PREDICTIONS)) for folder in (ours, theirs))
    seeds = set(first["seed"]) & set(second["seed"])
    if not seeds:
        raise ValueError(f"{ours} and {theirs} have no seed in common.")
    # Sorted by seed and post.
    keys = ["seed", "post_id", "timeline_id", "label"]
    both = first.merge(second, how="outer", on=keys, suffixes=("", "_theirs"), indicator="where")
    both = both[both["seed"].isin(seeds)]
    if not (different := both[both["where"] != "both"]).empty:
        _, post_id, timeline, label = different.iloc[0][keys]
        raise ValueError(
            f"{ours} and {theirs} must have the same posts. Post {post_id} of timeline '{timeline}' with "
            f"label '{label}' is in one of them only."
        )
    by_seed = [rows for _, rows in both.groupby("seed")]
    return paired_bootstrap(
        label_ids(by_seed[0]["label"], names),
        [label_ids(rows["prediction"], names) for rows in by_seed],
        [label_ids(rows["prediction_theirs"], names) for rows in by_seed],
        by_seed[0]["timeline_id"].tolist(),
        len(names),
    )


def labelled(predictions: pd.DataFrame) -> pd.DataFrame:
    """Returns the rows of posts that have a label."""
    return predictions[predictions["label"].notna()]


def to_predictions(rows: pd.DataFrame, names: list[str]) -> Predictions:
    """Returns the labelled posts of a table of predictions, by timeline and in the order of time."""
    if "time" in rows:
        rows = rows.assign(time=rows["time"].map(to_seconds))
    rows = rows.sort_values([name for name in ("timeline_id", "time") if name in rows], kind="stable")
    return Predictions(
        labels=np.array(label_ids(rows["label"], names)),
        predictions=np.array(label_ids(rows["prediction"], names)),
        names=names,
        probabilities=rows[[PROBABILITY + name for name in names]].to_numpy(np.float64),
        timelines=pd.factorize(rows["timeline_id"])[0],
        times=rows["time"].to_numpy() if "time" in rows else None,
    )


def label_ids(labels: pd.Series, names: list[str]) -> list[int]:
    """Returns the class ids of label names, -1 for no label."""
    return pd.Index(names).get_indexer(labels).tolist()


class Comparison(NamedTuple):
    """
    Several cross-validations of the same posts.

    Attributes:
        rows (`pandas.DataFrame`): The scores of each method, and the first method's difference from it.
        table (`pandas.DataFrame`): The same, formatted for readers.
        caption (`str`): A sentence that describes the table.
    """

    rows: pd.DataFrame
    table: pd.DataFrame
    caption: str


def compare_all(
    output_dir: Path,
    methods: Sequence[str],
    names: list[str],
    encoder: str | None = None,
    titles: Mapping[str, str] | None = None,
) -> Comparison:
    """
    Compares the first cross-validation with the others: a difference is its macro F1 minus theirs. In the table for
    readers methods have their `titles`, by default from [`method_name`]. The caption names the `encoder`.
    """
    titles = {method: method_name(method) for method in methods} | dict(titles or {})
    first = output_dir / methods[0]
    rows: dict[str, dict[str, Any]] = {}
    for method in methods:
        results = json.loads((output_dir / method / RESULTS).read_text(encoding="utf-8"))
        scores = results["scores"]
        rows[method] = {
            **{name: score["mean"] for name, score in scores.items()},
            "macro_f1_std": scores["macro_f1"]["std"],
            **dict.fromkeys(("difference", "low", "high", "p")),
            **{name: results[name] for name in ("runs", "one_class_runs", "parameters", "train_seconds")},
        }
        if method != methods[0]:
            test = compare(first, output_dir / method, names)
            low, high = test["interval"]
            rows[method] |= {"difference": test["difference"], "low": low, "high": high, "p": test["p"]}
    table = pd.DataFrame({titles[name]: printed(row, titles[methods[0]], names) for name, row in rows.items()}).T
    tested = labelled(read_predictions(first / PREDICTIONS))
    posts, seeds = tested.drop_duplicates(["timeline_id", "post_id"]), tested["seed"].nunique()
    caption = (
        f"Macro F1 by cross-validation{f' with the encoder {encoder}' if encoder else ''}, "
        f"{f'mean ± standard deviation of {seeds} seeds' if seeds > 1 else 'with one seed'}: n = {len(posts):,} "
        f"labelled posts of {posts['timeline_id'].nunique():,} timelines. In brackets: 95 % intervals by a bootstrap "
        "over timelines."
    )
    return Comparison(pd.DataFrame.from_dict(rows, orient="index"), table, caption)


def printed(row: dict[str, Any], first: str, names: list[str]) -> dict[str, str]:
    """Returns the cells of a method. A missing standard deviation, difference or time is left out."""
    spread = "" if row["macro_f1_std"] is None else f" ± {row['macro_f1_std']:.3f}"
    difference = ""
    if row["difference"] is not None:
        difference = NO_DIFFERENCE if row["low"] <= 0 <= row["high"] else f"{row['difference']:+.3f}"
        difference += " ({low:+.3f} to {high:+.3f})".format(**row)
    return {
        "macro F1": f"{row['macro_f1']:.3f}{spread}",
        **{f"F1 {name}": f"{row[f'f1_{name}']:.3f}" for name in names},
        f"{first} above it by (95 %)": difference,
        "one class": f"{row['one_class_runs']} of {row['runs']}",
        "seconds a fold": "" if row["train_seconds"] is None else f"{row['train_seconds']:.0f}",
    }
