"""Cross-validation: a run of a script for each fold, learning rate and seed, their scores, and a table of methods."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from ..cards.markdown import table as markdown_table
from ..data.files import write_json, written_whole
from ..evaluation.metrics import compute_scores
from ..evaluation.predictions import PREDICTIONS as RUN_PREDICTIONS
from ..evaluation.predictions import Predictions
from ..evaluation.results import RESULTS as RUN_RESULTS
from ..evaluation.significance import paired_bootstrap


logger = logging.getLogger(__name__)

FOLDS, RESULTS, PREDICTIONS, COMPARISON = "folds.json", "results.json", "predictions.csv", "comparison"
# Seconds after which the progress bar of a run knows how long it will take.
FIRST_LOOK = 60


@dataclass(frozen=True)
class Run:
    """One run of a cross-validation in `output_dir`. A learning rate of None is that of the recipe."""

    output_dir: Path
    fold: int
    learning_rate: str | None
    seed: int

    @property
    def folder(self) -> Path:
        rate = [] if self.learning_rate is None else [f"learning_rate_{self.learning_rate}"]
        return self.output_dir.joinpath(f"fold_{self.fold}", *rate, f"seed_{self.seed}")

    def results(self) -> dict[str, Any]:
        """What the script has reported of each split."""
        return json.loads((self.folder / RUN_RESULTS).read_text(encoding="utf-8"))

    def execute(self, script: Path, folds_file: Path, arguments: Sequence[str], inputs: dict[str, Any]):
        """
        Trains, evaluates and predicts, unless the folder has the results of this run. The script itself resumes an
        interrupted run from its last checkpoint. Checkpoints are deleted at the end; the best model stays.

        `arguments` are those that do not differ from run to run; `inputs` is what else the results depend on, such as
        fingerprints of files. After a minute a run says how far it is, and how long it will take. Raises a
        `ValueError` for results of other ones, a `ChildProcessError` if the script fails.
        """
        done, command = self.folder / "command.json", {"arguments": list(arguments), **inputs}
        if done.exists():
            before = json.loads(done.read_text(encoding="utf-8"))
            if changed := [name for name, value in command.items() if before.get(name) != value]:
                raise ValueError(f"{done} is of a run with other {', '.join(changed)}: give another --output_dir.")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.glob("checkpoint-*")):
            # A resumed run reports only the time since it resumed.
            (self.folder / "resumed").touch()
        rate = [] if self.learning_rate is None else ["--learning_rate", self.learning_rate]
        whole_command = [
            *(sys.executable, script, *arguments, *rate, "--seed", str(self.seed)),
            *("--folds_file", folds_file, "--fold", str(self.fold)),
            *("--output_dir", self.folder, "--do_train", "--do_eval", "--do_predict"),
        ]
        log = self.folder / "run.log"
        logger.info("Running %s; %s in it says how far it is.", self.folder, log.name)
        with (
            log.open("a", encoding="utf-8") as file,
            subprocess.Popen(whole_command, stdout=file, stderr=subprocess.STDOUT) as script_run,
        ):
            try:
                status = script_run.wait(FIRST_LOOK)
            except subprocess.TimeoutExpired:
                logger.info("After a minute: %s", last_line(log))
                status = script_run.wait()
        if status:
            raise ChildProcessError(f"{self.folder} failed with exit status {status}, see {log}: {last_line(log)}")
        write_json(done, command)
        for checkpoint in self.folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)


def last_line(log: Path) -> str:
    """The last line of a log; of a progress bar its last state."""
    *_, last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
    return last


def write_folds(output_dir: Path, folds: list[dict[str, list[str]]]) -> Path:
    """Writes `folds.json`, and returns its path. Raises a `ValueError` if it is there with other folds."""
    path = output_dir / FOLDS
    if path.exists() and json.loads(path.read_text(encoding="utf-8")) != folds:
        raise ValueError(f"{path} has other folds than the posts and arguments give: give another --output_dir.")
    write_json(path, folds)
    return path


def cross_validate(
    output_dir: Path,
    script: Path,
    arguments: Sequence[str],
    inputs: dict[str, Any],
    folds_file: Path,
    seeds: Sequence[int],
    learning_rates: Sequence[str] = (),
    tune_on_first_fold: bool = False,
) -> list[Run]:
    """
    Runs every learning rate with the first seed, then every seed with the learning rate that has the best macro F1 on
    the validation split: of each fold, or of the first one for all folds.

    Returns one run for each fold and seed.
    """
    folds = json.loads(folds_file.read_text(encoding="utf-8"))

    def execute(fold: int, rate: str | None, seed: int) -> Run:
        run = Run(output_dir, fold, rate, seed)
        run.execute(script, folds_file, arguments, {**inputs, "fold": folds[fold]})
        return run

    def best_rate(fold: int) -> str:
        return max(learning_rates, key=lambda rate: execute(fold, rate, seeds[0]).results()["validation"]["macro_f1"])

    if len(learning_rates) < 2:
        rates = [*learning_rates, None][:1] * len(folds)
    elif tune_on_first_fold:
        rates = [best_rate(0)] * len(folds)
    else:
        rates = [best_rate(fold) for fold in range(len(folds))]
    return [execute(fold, rate, seed) for fold, rate in enumerate(rates) for seed in seeds]


def collect(output_dir: Path, runs: Sequence[Run], names: list[str]) -> str:
    """
    Writes `predictions.csv`, every test post without its text under every seed, and `results.json`: for each seed the
    scores of the test posts of all folds ([`compute_scores`]), their mean and standard deviation over the seeds, how
    many runs ended at one class (all scored posts of the fold have the same prediction), the chosen learning rates,
    how many parameters are trained, and seconds of training a fold. Returns a table of means and standard deviations
    to print, which `results.md` and `results.tex` have, too.
    """
    predictions = pd.concat(
        {(run.seed, run.fold): read_predictions(run.folder / RUN_PREDICTIONS) for run in runs},
        names=["seed", "fold"],
    ).reset_index(["seed", "fold"])
    scored = predictions[predictions["label"] != ""]
    classes_of_runs = scored.groupby(["seed", "fold"])["prediction"].nunique()
    with written_whole(output_dir / PREDICTIONS) as partial:
        predictions.to_csv(partial, index=False)
    reported = [run.results() for run in runs]
    of_seeds = pd.DataFrame.from_dict(
        {seed: compute_scores(to_predictions(rows, names)) for seed, rows in scored.groupby("seed", sort=False)},
        orient="index",
    )
    summary = of_seeds.agg(["mean", "std"]).T
    whole = [results for run, results in zip(runs, reported, strict=True) if not (run.folder / "resumed").exists()]
    seconds = [results["train"]["seconds"] for results in whole if "train" in results]
    results = {
        "labels": names,
        "folds": len({run.fold for run in runs}),
        "seeds": list(of_seeds.index),
        "runs": len(runs),
        "one_class_runs": int((classes_of_runs == 1).sum()),
        "learning_rates": {run.fold: run.learning_rate for run in runs},
        # JSON has no NaN, which is the standard deviation of a single value.
        "scores": summary.astype(object).where(summary.notna(), None).to_dict("index"),
        "scores_of_seeds": {seed: scores.dropna().to_dict() for seed, scores in of_seeds.iterrows()},
        "validation_macro_f1": [results.get("validation", {}).get("macro_f1") for results in reported],
        "parameters": reported[0].get("train", {}).get("parameters"),
        "train_seconds": fmean(seconds) if seconds else None,
    }
    write_json(output_dir / RESULTS, results)
    shown = summary.dropna(axis="columns", how="all").map("{:.4f}".format)
    write_for_paper(shown, output_dir / "results")
    return shown.to_string()


def write_for_paper(table: pd.DataFrame, path: Path):
    """Writes a table of texts as Markdown and as LaTeX, `path` with .md and .tex."""
    rows = ([name, *cells] for name, cells in zip(table.index, table.to_numpy(), strict=True))
    with written_whole(path.with_suffix(".md")) as partial:
        partial.write_text(markdown_table(["", *table.columns], rows) + "\n", encoding="utf-8")
    with written_whole(path.with_suffix(".tex")) as partial:
        table.to_latex(partial, escape=True, encoding="utf-8")


def compare(ours: Path, theirs: Path, names: list[str]) -> dict[str, float | tuple[float, float]]:
    """
    The paired difference in macro F1 of two cross-validations, over the seeds that both have.

    Returns what [`paired_bootstrap`] finds, by timeline. Raises a `ValueError` if the folders have no seed in common,
    or if a post is in one of them only or has another timeline or label there.
    """
    first, second = (read_predictions(folder / PREDICTIONS).query("label != ''") for folder in (ours, theirs))
    seeds = set(first["seed"]) & set(second["seed"])
    if not seeds:
        raise ValueError(f"{ours} and {theirs} have no seed in common.")
    # Sorted by seed and post.
    both = first.merge(second, how="outer", on=["seed", "post_id"], suffixes=("", "_theirs")).fillna("missing")
    both = both[both["seed"].isin(seeds)]
    for column in ("timeline_id", "label"):
        different = both[both[column] != both[f"{column}_theirs"]]
        for post_id, first_value, second_value in different[["post_id", column, f"{column}_theirs"]].to_numpy()[:1]:
            raise ValueError(
                f"Post {post_id} must have the same {column} in both, got '{first_value}' in {ours} and "
                f"'{second_value}' in {theirs}."
            )
    of_seeds = [rows for _, rows in both.groupby("seed")]
    return paired_bootstrap(
        label_ids(of_seeds[0]["label"], names),
        [label_ids(rows["prediction"], names) for rows in of_seeds],
        [label_ids(rows["prediction_theirs"], names) for rows in of_seeds],
        of_seeds[0]["timeline_id"].tolist(),
        len(names),
    )


def read_predictions(path: Path) -> pd.DataFrame:
    """
    A file of predictions, without the posts' texts, which every seed would repeat. All cells are text: an id keeps its
    zeros, and a label may be called "None".
    """
    return pd.read_csv(
        path, usecols=lambda column: column != "text", dtype=str, keep_default_na=False, encoding="utf-8"
    )


def to_predictions(rows: pd.DataFrame, names: list[str]) -> Predictions:
    """The labelled posts of a file of predictions, timeline after timeline, each in the order of time."""
    is_timed = "time" in rows
    rows = rows.sort_values(["timeline_id", "time"] if is_timed else "timeline_id", kind="stable")
    times = None
    if is_timed:
        times = rows["time"].str.removesuffix("Z").to_numpy("datetime64[us]").astype(np.int64) / 1e6
    return Predictions(
        labels=np.array(label_ids(rows["label"], names)),
        predictions=np.array(label_ids(rows["prediction"], names)),
        names=names,
        probabilities=rows[[f"probability_{name}" for name in names]].to_numpy(np.float64),
        timelines=pd.factorize(rows["timeline_id"])[0],
        times=times,
    )


def label_ids(labels: pd.Series, names: list[str]) -> list[int]:
    """Class ids of label names; -1 for no label."""
    return pd.Index(names).get_indexer(labels).tolist()


def compare_methods(output_dir: Path, methods: Sequence[str], names: list[str]) -> str:
    """
    Compares cross-validations, each in a folder of its own in `output_dir`, with the first of them. Returns a table.

    Writes the table as `comparison.md` and `comparison.tex`, and `comparison.json` and `comparison.csv`. For each
    method these two have all scores over the test posts of all folds (means over the seeds, and the standard deviation
    of macro F1), the difference in macro F1 to the first method with its 95 % interval and p-value
    ([`paired_bootstrap`] by timeline), the number of runs and of those that ended at one class, how many
    parameters are trained, and seconds of training a fold.
    """
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
            found = compare(output_dir / method, first, names)
            low, high = found["interval"]
            rows[method] |= {"difference": found["difference"], "low": low, "high": high, "p": found["p"]}
    write_json(output_dir / f"{COMPARISON}.json", {"compared_with": methods[0], "methods": rows})
    with written_whole(output_dir / f"{COMPARISON}.csv") as partial:
        pd.DataFrame.from_dict(rows, orient="index").to_csv(partial, index_label="method")
    table = pd.DataFrame({method: printed(row, methods[0], names) for method, row in rows.items()}).T
    write_for_paper(table, output_dir / COMPARISON)
    return table.to_string()


def printed(row: dict[str, Any], first: str, names: list[str]) -> dict[str, str]:
    """The cells of a method. A standard deviation, a difference or a time that there is none of is left out."""
    spread = "" if row["macro_f1_std"] is None else f" ± {row['macro_f1_std']:.3f}"
    shown = "" if row["difference"] is None else "{difference:+.3f} ({low:+.3f} to {high:+.3f})".format(**row)
    return {
        "macro F1": f"{row['macro_f1']:.3f}{spread}",
        **{f"F1 {name}": f"{row[f'f1_{name}']:.3f}" for name in names},
        f"less {first} (95 %)": shown,
        "one class": f"{row['one_class_runs']} of {row['runs']}",
        "seconds a fold": "" if row["train_seconds"] is None else f"{row['train_seconds']:.0f}",
    }
