"""
The scores of predictions: one function and one row of [`METRICS`] each.

To add one, write a function that takes [`Predictions`] and returns a number, or with `of_class` one for each class,
and give it a row in `METRICS`. It is then in `all_results.json` with its text, in every evaluation of a training
(unless it needs more than labels and predictions) and so open to `--metric_for_best_model`, in the results of a
cross-validation and in `comparison.csv`; with a title also in the table at the end of a run and on the model card.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from sklearn.metrics import f1_score, precision_score, recall_score
from transformers import EvalPrediction

from .calibration import expected_calibration_error
from .predictions import Predictions
from .timeline_metrics import (
    coverage_precision,
    coverage_recall,
    median_delay_posts,
    median_delay_seconds,
    missed,
    timeline_f1,
    timelines_of_half,
    window_precision,
    window_recall,
)


@dataclass(frozen=True)
class Metric:
    """
    A row of [`METRICS`].

    Args:
        name (`str`): In `all_results.json`. Of a class, the Trainer's name for it is `NAME_CLASS`.
        compute (`Callable`): From [`Predictions`] to the score; NaN where it is not defined.
        text (`str`): What it says, in a sentence.
        title (`str`, *optional*): Its name where a person reads it. Without one it is in files only.
        of_class (`bool`, *optional*, defaults to `False`): Whether there is one score for each class.
        has_mean (`bool`, *optional*, defaults to `False`): Whether the mean over the classes is a score, too:
            `macro_NAME`.
        needs (`tuple[str, ...]`, *optional*): Fields of [`Predictions`] that are not always there.
    """

    name: str
    compute: Callable[[Predictions], float | Sequence[float] | np.ndarray]
    text: str
    title: str | None = None
    of_class: bool = False
    has_mean: bool = False
    needs: tuple[str, ...] = ()


def of_each_class(score: Callable[..., np.ndarray], posts: Predictions) -> np.ndarray:
    """A score of scikit-learn. A class that is neither a label nor predicted has 0."""
    return score(posts.labels, posts.predictions, labels=range(len(posts.names)), average=None, zero_division=0.0)


def support(posts: Predictions) -> np.ndarray:
    """How many posts have each class as their label."""
    return np.bincount(posts.labels, minlength=len(posts.names))


def calibration_error(posts: Predictions) -> float:
    """[`expected_calibration_error`] of the posts."""
    return expected_calibration_error(posts.probabilities, posts.labels)


MEAN = "a mean over timelines (Tsakalidis et al., 2022)"
DELAY = "from the start of a run of the class to its first prediction, a median of the runs that are found"
PRECISION = "Of the posts that are predicted as the class, the share that has it."
RECALL = "Of the posts that have the class, the share that is predicted as it."
ERROR = "Mean distance between how sure predictions are and how many are right (0 to 1)."
MISSED = "Share of the runs of the class that are not found before the next one starts."
TIMELINE_F1 = (
    "Mean over timelines of F1; 1 where no post has the class and none is predicted as it (CLPsych 2026, task 2)."
)
OF_HALF = "How few of the timelines have half of the posts of the class; where it is one or two, the score is of them."


def of_timelines(name: str, compute: Callable[[Predictions], list[float]], text: str, *needs: str) -> Metric:
    """A score of each class that is computed from whole timelines."""
    return Metric(name, compute, text, of_class=True, needs=("timelines", *needs))


METRICS = (
    Metric("precision", partial(of_each_class, precision_score), PRECISION, "precision", of_class=True, has_mean=True),
    Metric("recall", partial(of_each_class, recall_score), RECALL, "recall", of_class=True, has_mean=True),
    Metric(
        "f1",
        partial(of_each_class, f1_score),
        "Harmonic mean of precision and recall.",
        "F1",
        of_class=True,
        has_mean=True,
    ),
    Metric("support", support, "Number of posts that have the class as their label.", of_class=True),
    of_timelines("timeline_f1", timeline_f1, TIMELINE_F1),
    of_timelines("timelines_of_half", timelines_of_half, OF_HALF),
    of_timelines("window_precision", window_precision, f"Precision where one post beside counts, {MEAN}."),
    of_timelines("window_recall", window_recall, f"Recall where one post beside counts, {MEAN}."),
    of_timelines("coverage_precision", coverage_precision, f"How well labels cover predicted runs (0 to 1), {MEAN}."),
    of_timelines("coverage_recall", coverage_recall, f"How well predictions cover labelled runs (0 to 1), {MEAN}."),
    of_timelines("median_delay_posts", median_delay_posts, f"Posts {DELAY}."),
    of_timelines("median_delay_seconds", median_delay_seconds, f"Seconds {DELAY}.", "times"),
    of_timelines("missed", missed, MISSED),
    Metric("expected_calibration_error", calibration_error, ERROR, "calibration error", needs=("probabilities",)),
)


def compute_scores(posts: Predictions) -> dict[str, float]:
    """
    Scores predictions.

    Args:
        posts ([`Predictions`]): At least one post.

    Returns:
        The scores of [`METRICS`] by name: the means over the classes are `macro_NAME`, those of each class
        `NAME_CLASS`. Scores that are not defined, or that need what is not there, are left out.
    """
    means, scores = {}, {}
    for metric in METRICS:
        if any(getattr(posts, field) is None for field in metric.needs):
            continue
        # Numbers of Python, for JSON.
        found = np.asarray(metric.compute(posts))
        if metric.has_mean:
            means[f"macro_{metric.name}"] = found.mean().item()
        names = [f"{metric.name}_{name}" for name in posts.names] if metric.of_class else [metric.name]
        scores |= dict(zip(names, found.ravel().tolist(), strict=True))
    return {name: score for name, score in (means | scores).items() if not math.isnan(score)}


def score_names(label_names: Sequence[str]) -> list[str]:
    """The names of the scores that [`compute_metrics`] computes."""
    return list(compute_scores(Predictions(np.array([0]), np.array([0]), list(label_names))))


def card_titles() -> dict[str, str]:
    """The titles of the scores on a model card, by name."""
    return {metric.name: metric.title[0].upper() + metric.title[1:] for metric in METRICS if metric.title}


def compute_metrics(label_names: list[str]) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    Makes the argument `compute_metrics` of the Trainer, which scores the posts that have a label.

    Args:
        label_names (`list[str]`): Names of the classes in the order of their ids.

    Returns:
        A function from an `EvalPrediction` with logits (rows, streams, classes) and labels (rows, streams), -100
        without a label, to the scores of [`compute_scores`] that need labels and predictions alone: `macro_f1`,
        `macro_precision`, `macro_recall`, and `f1_NAME`, `precision_NAME`, `recall_NAME` and `support_NAME` of each
        class. Empty if no post has a label.
    """

    def score(prediction: EvalPrediction) -> dict[str, float]:
        labelled = prediction.label_ids != -100
        if not labelled.any():
            return {}
        predictions = prediction.predictions.argmax(-1)[labelled]
        return compute_scores(Predictions(prediction.label_ids[labelled], predictions, label_names))

    return score
