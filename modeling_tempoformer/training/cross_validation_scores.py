"""The scores of a cross-validation, and their difference to those of another one."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd

from ..data.files import write_json, written_whole
from ..evaluation.metrics import compute_scores
from ..evaluation.predictions import Predictions
from ..evaluation.significance import paired_bootstrap
from .cross_validation import Run


PREDICTIONS, RESULTS = "predictions.csv", "results.json"


def collect(output_dir: Path, runs: Sequence[Run], names: list[str]) -> str:
    """
    Writes `predictions.csv`, every test post without its text under every seed, and `results.json`: for each seed the
    scores of the test posts of all folds ([`compute_scores`]), their mean and standard deviation over the seeds, how
    many runs ended at one class (all scored posts of the fold have the same prediction), the chosen learning rates,
    how many parameters are trained, and seconds of training a fold. Returns a table of means and standard deviations
    to print.
    """
    predictions = pd.concat(
        {(run.seed, run.fold): read_predictions(run.folder / "_predictions.csv") for run in runs},
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
        "dev_macro_f1": [results.get("validation", {}).get("macro_f1") for results in reported],
        "parameters": reported[0].get("train", {}).get("parameters"),
        "train_seconds": fmean(seconds) if seconds else None,
    }
    write_json(output_dir / RESULTS, results)
    return summary.dropna(axis="columns", how="all").to_string(float_format="{:.4f}".format)


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
