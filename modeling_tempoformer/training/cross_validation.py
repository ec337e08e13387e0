"""Cross-validation: one run of a training script for each fold, learning rate and seed, and the scores of all runs."""

import json
import logging
import math
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from safetensors import safe_open

from ..data.files import write_json
from ..evaluation.metrics import StreamClassificationMetric
from ..evaluation.significance import paired_bootstrap


logger = logging.getLogger(__name__)

FOLDS, PREDICTIONS, RESULTS = "folds.json", "predictions.csv", "results.json"
# Test scores that are averaged over the folds. All others are computed over the test posts of all folds together.
AVERAGED = r"^predict_(?=window_|coverage_|median_delay_|missed_|ece|unparsable_share)"


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

    def scores(self) -> dict[str, float]:
        """All scores that the script has reported."""
        return json.loads((self.folder / "all_results.json").read_text(encoding="utf-8"))

    def execute(self, script: Path, arguments: Sequence[str], inputs: dict[str, Any]):
        """
        Trains, evaluates and predicts, unless the folder has the results of this run. The script itself resumes an
        interrupted run from its last checkpoint. Checkpoints are deleted at the end; the best model stays.

        Args:
            script (`Path`): Takes the arguments of `run_glue_style.py`; its output goes to `run.log`.
            arguments (`Sequence[str]`): All arguments that do not differ from run to run.
            inputs (`dict[str, Any]`): What else the results depend on, such as fingerprints of files.

        Raises:
            `ValueError` for results of other arguments or inputs, `ChildProcessError` if the script fails.
        """
        done, command = self.folder / "command.json", {"arguments": list(arguments), **inputs}
        if done.exists():
            before = json.loads(done.read_text(encoding="utf-8"))
            if changed := [name for name, value in command.items() if before.get(name) != value]:
                raise ValueError(f"{done} is of a run with other {', '.join(changed)}: give another --output_dir.")
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if any(self.folder.glob("checkpoint-*")):
            # The script then reports the training time of the last part alone.
            (self.folder / "resumed").touch()
        rate = [] if self.learning_rate is None else ["--learning_rate", self.learning_rate]
        whole_command = [
            *(sys.executable, script, *arguments, *rate, "--seed", str(self.seed)),
            *("--folds_file", self.output_dir / FOLDS, "--fold", str(self.fold)),
            *("--output_dir", self.folder, "--do_train", "--do_eval", "--do_predict"),
        ]
        log = self.folder / "run.log"
        logger.info("Running %s; its output goes to %s.", self.folder, log.name)
        with log.open("a", encoding="utf-8") as file:
            status = subprocess.run(whole_command, stdout=file, stderr=subprocess.STDOUT).returncode
        if status:
            *_, last_line = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or [""]
            raise ChildProcessError(f"{self.folder} failed with exit status {status}, see {log}: {last_line}")
        write_json(done, command)
        for checkpoint in self.folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)


def cross_validate(
    output_dir: Path,
    script: Path,
    arguments: Sequence[str],
    inputs: dict[str, Any],
    folds: list[dict[str, list[str]]],
    seeds: Sequence[int],
    learning_rates: Sequence[str] = (),
    tune_on_first_fold: bool = False,
) -> list[Run]:
    """
    Runs every learning rate with the first seed, then every seed with the learning rate that has the best macro F1 on
    the validation part: of each fold, or of the first one for all folds.

    Args:
        output_dir (`Path`): Folder of all runs. The folds are written to `folds.json` there.
        script, arguments, inputs: As [`Run.execute`] takes them.
        folds (`list[dict[str, list[str]]]`): As [`make_folds`] returns them.

    Returns:
        One run for each fold and seed. Raises a `ValueError` if the folder has other folds.
    """
    folds_file = output_dir / FOLDS
    if folds_file.exists() and json.loads(folds_file.read_text(encoding="utf-8")) != folds:
        raise ValueError(f"{folds_file} has other folds than the posts and arguments give: give another --output_dir.")
    write_json(folds_file, folds)

    def execute(fold: int, rate: str | None, seed: int) -> Run:
        run = Run(output_dir, fold, rate, seed)
        run.execute(script, arguments, {**inputs, "fold": folds[fold]})
        return run

    def best_rate(fold: int) -> str:
        return max(learning_rates, key=lambda rate: execute(fold, rate, seeds[0]).scores()["eval_macro_f1"])

    if len(learning_rates) < 2:
        rates = [*learning_rates, None][:1] * len(folds)
    elif tune_on_first_fold:
        rates = [best_rate(0)] * len(folds)
    else:
        rates = [best_rate(fold) for fold in range(len(folds))]
    return [execute(fold, rate, seed) for fold, rate in enumerate(rates) for seed in seeds]


def collect(output_dir: Path, runs: Sequence[Run], names: list[str]) -> str:
    """
    Writes `predictions.csv`, every test post under every seed, and `results.json`: for each seed the test scores over
    the posts of all folds (scores of whole timelines and of probabilities are means of the folds), their mean and
    standard deviation over the seeds, the chosen learning rates, parameters, and seconds of training a fold.

    Returns:
        A table of means and standard deviations to print.
    """
    predictions = pd.concat(
        {(run.seed, run.fold): read_predictions(run.folder / "_predictions.csv") for run in runs},
        names=["seed", "fold"],
    ).reset_index(["seed", "fold"])
    predictions.to_csv(output_dir / PREDICTIONS, index=False)
    reported = [run.scores() for run in runs]
    averaged = pd.DataFrame(reported, index=[run.seed for run in runs]).filter(regex=AVERAGED)
    averaged = averaged.rename(columns=lambda name: name.removeprefix("predict_"))
    pooled = {
        seed: StreamClassificationMetric().compute(
            predictions=label_ids(rows["prediction"], names),
            references=label_ids(rows["label"], names),
            label_names=names,
        )
        for seed, rows in predictions[predictions["label"] != ""].groupby("seed", sort=False)
    }
    of_seeds = pd.DataFrame.from_dict(pooled, orient="index").join(averaged.groupby(level=0).mean())
    # JSON has no NaN, which is the standard deviation of a single value.
    spread = of_seeds.std().astype(object).where(of_seeds.count() > 1, None)
    summary = {name: {"mean": mean, "std": spread[name]} for name, mean in of_seeds.mean().items()}
    whole = [scores for run, scores in zip(runs, reported, strict=True) if not (run.folder / "resumed").exists()]
    seconds = [scores["train_runtime"] for scores in whole if "train_runtime" in scores]
    results = {
        "labels": names,
        "folds": len({run.fold for run in runs}),
        "seeds": list(pooled),
        "learning_rates": {run.fold: run.learning_rate for run in runs},
        "scores": summary,
        "scores_of_seeds": {seed: scores.dropna().to_dict() for seed, scores in of_seeds.iterrows()},
        "dev_macro_f1": [scores.get("eval_macro_f1") for scores in reported],
        "parameters": count_parameters(runs[0].folder / "model.safetensors"),
        "train_seconds": fmean(seconds) if seconds else None,
    }
    write_json(output_dir / RESULTS, results)
    lines = [f"{name:40} {of_seeds[name].mean():8.4f}" for name in of_seeds]
    if len(pooled) > 1:
        lines = [f"{line} ± {of_seeds[name].std():.4f}" for line, name in zip(lines, of_seeds, strict=True)]
    return "\n".join(lines)


def compare(ours: Path, theirs: Path, names: list[str]) -> dict[str, float | tuple[float, float]]:
    """
    The paired difference in macro F1 of two cross-validations, over the seeds that both have.

    Args:
        ours, theirs (`Path`): Their output folders.
        names (`list[str]`): Of the classes.

    Returns:
        As [`paired_bootstrap`], by timeline. Raises a `ValueError` if they have no seed in common, or if a post is in
        one of them only or has another timeline or label there.
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
    """A file of predictions. Everything is text: an id keeps its zeros, and a label may be called "None"."""
    return pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")


def label_ids(labels: pd.Series, names: list[str]) -> list[int]:
    """Class ids of label names; -1 for no label."""
    return pd.Index(names).get_indexer(labels).tolist()


def count_parameters(path: Path) -> int | None:
    """The number of parameters in a safetensors file; None if there is no such file."""
    if not path.exists():
        return None
    with safe_open(path, "pt") as tensors:
        return sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())
