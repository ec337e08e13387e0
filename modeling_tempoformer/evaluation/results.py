"""`all_results.json`: the scores of every part of a run, nested and explained."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..data.files import write_json
from .predictions import labels_of, score_posts
from .references import compare


RESULTS = "all_results.json"
# Metrics of one class are named KIND_CLASS.
CLASS_KINDS = (
    *("precision", "recall", "f1", "support", "window_precision", "window_recall"),
    *("coverage_precision", "coverage_recall", "median_delay_posts", "median_delay_seconds", "missed"),
)
# Names in the file, where they are not those of the metrics.
RENAMED = {"support": "posts", "runtime": "seconds", "epoch": "epochs", "samples_per_second": "rows_per_second"}
MEAN = "a mean over timelines (Tsakalidis et al., 2022)"
DELAY = "from the start of a run of the class to its first prediction, a median of the runs that are found"
EXPLAINED = {
    "posts": "Number of posts; of a class, the posts that have it as their label.",
    "labelled_posts": "Number of posts that have a label. Scores are of these.",
    "timelines": "Number of timelines.",
    "macro_f1": "Mean of the classes' F1: a rare class counts as much as a frequent one.",
    "macro_precision": "Mean of the classes' precision.",
    "macro_recall": "Mean of the classes' recall.",
    "classes": "Scores of each class.",
    "precision": "Of the posts that are predicted as the class, the share that has it.",
    "recall": "Of the posts that have the class, the share that is predicted as it.",
    "f1": "Harmonic mean of precision and recall.",
    "window_precision": f"Precision where a prediction one post beside a post of the class counts, {MEAN}.",
    "window_recall": f"Recall where a prediction one post beside a post of the class counts, {MEAN}.",
    "coverage_precision": f"How well actual runs of the class cover predicted ones (0 to 1), {MEAN}.",
    "coverage_recall": f"How well predicted runs of the class cover actual ones (0 to 1), {MEAN}.",
    "median_delay_posts": f"Posts {DELAY}.",
    "median_delay_seconds": f"Seconds {DELAY}.",
    "missed": "Share of the runs of the class that are not found before the next one starts.",
    "expected_calibration_error": "Mean distance between how sure predictions are and how many are right (0 to 1).",
    "macro_f1_interval": "95 % interval of macro F1, by a bootstrap that resamples whole timelines.",
    "compared_with": "Macro F1, on the same posts, of what costs nothing.",
    "larger_class": "The class that most of these posts have, for every post.",
    "position_and_time": "Small boosted trees over the `features` of a post, without its text; learned in training.",
    "class": "Its name.",
    "features": "What is known of a post: its place in the timeline from 0, times in seconds, and the hour in UTC.",
    "difference": "Macro F1 of the method less this one.",
    "difference_interval": "95 % interval of the difference, by a paired bootstrap that resamples whole timelines.",
    "loss": "Mean loss of a labelled post, focal and weighted by class; of the training, the mean over its steps.",
    "seconds": "How long it took. A training that was resumed counts from there.",
    "posts_per_second": "Posts that were classified in a second.",
    "embedded_posts_per_second": "Posts that were classified in a second, after a frozen encoder had embedded them.",
    "rows_per_second": "Rows, which are chunks of timelines, in a second.",
    "steps_per_second": "Batches in a second.",
    "model_preparation_time": "Seconds in which the model was moved to its device.",
    "epochs": "Passes over the training posts.",
    "parameters": "Number of parameters that are trained.",
    "total_flos": "Floating-point operations of the training, as the Trainer estimates them.",
    "unparsable": "Answers of the language model that name no class.",
    "unparsable_share": "Share of the answers of the language model that name no class.",
}


def score_part(
    timelines: Dataset,
    predicted: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    train: Dataset | None = None,
) -> dict[str, Any]:
    """
    All that is known of the predictions of a part, by name: how many posts, labelled posts and timelines there are,
    and if any post has a label the scores of [`score_posts`] and what [`compare`] finds. Arguments as theirs.
    """
    labelled = int((labels_of(timelines) >= 0).sum())
    counts = {"posts": len(predicted), "labelled_posts": labelled, "timelines": len(timelines)}
    if not labelled:
        return counts
    scores = score_posts(timelines, predicted, probabilities, names)
    return counts | scores | compare(timelines, predicted, names, train)


def nest(metrics: Mapping[str, Any], prefix: str, names: list[str]) -> dict[str, Any]:
    """
    The metrics of a part as [`write_results`] takes them: those of a class in a dict of its own.

    Args:
        metrics (`dict[str, Any]`): By name, with or without the prefix; those of a class end with its name.
        prefix (`str`): `"train"`, `"eval"` or `"predict"`.
        names (`list[str]`): Names of the classes.
    """
    of_class = {f"{kind}_{name}": (name, kind) for name in names for kind in CLASS_KINDS}
    nested: dict[str, Any] = {}
    for metric, value in metrics.items():
        metric = metric.removeprefix(f"{prefix}_")
        if metric in of_class:
            name, kind = of_class[metric]
            nested.setdefault("classes", {}).setdefault(name, {})[RENAMED.get(kind, kind)] = value
        else:
            nested[RENAMED.get(metric, metric)] = value
    return nested


def flatten(part: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a part without their nesting: those of a class are named KIND_CLASS."""
    classes = part.get("classes", {}).items()
    return {**part, **{f"{kind}_{name}": value for name, scores in classes for kind, value in scores.items()}}


def write_results(output_dir: str | Path, parts: Mapping[str, Mapping[str, Any]]):
    """Writes the results of all parts of a run, and a sentence for each name in them, in the place of older ones."""
    names = set(all_names(parts))
    explained = {name: sentence for name, sentence in EXPLAINED.items() if name in names}
    write_json(Path(output_dir) / RESULTS, {**parts, "explained": explained})


def all_names(values: Any) -> list[str]:
    """The names in nested dicts."""
    if not isinstance(values, Mapping):
        return []
    return [*values, *(name for value in values.values() for name in all_names(value))]
