"""
The scores of predictions: one function and one row of [`METRICS`] each.

A new one needs no more. It is then in `all_results.json`, in every evaluation of a training (unless it needs more than
labels and predictions) and so open to `--metric_for_best_model`, and in the files of a cross-validation; with a title
also in the table at the end of a run and on the model card.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import f1_score, precision_score, recall_score
from transformers import EvalPrediction

from . import timeline_metrics
from .calibration import expected_calibration_error
from .predictions import Predictions


@dataclass(frozen=True)
class Metric:
    """
    A row of [`METRICS`].

    Args:
        name (`str`): In `all_results.json`. Of a class, the Trainer's name for it is `NAME_CLASS`.
        compute (`Callable`): From [`Predictions`] to the score, with `of_class` from them and a class id; NaN where it
            is not defined.
        title (`str`, *optional*): Its name where a person reads it. Without one it is in files only.
        of_class (`bool`, *optional*, defaults to `False`): Whether there is one score for each class. With a title
            their mean is a score, too: `macro_NAME`.
        needs (`str`, *optional*): A field of [`Predictions`] that is not always there.
    """

    name: str
    compute: Callable[..., float]
    title: str | None = None
    of_class: bool = False
    needs: str | None = None


def of_each_class(score: Callable[..., float]) -> Callable[[Predictions, int], float]:
    """A metric from a score of scikit-learn. A class that is neither a label nor predicted has 0."""
    return lambda posts, label: score(posts.labels == label, posts.predictions == label, zero_division=0.0)


OF_TIMELINES = (
    timeline_metrics.timeline_f1,
    timeline_metrics.timelines_of_half,
    timeline_metrics.window_precision,
    timeline_metrics.window_recall,
    timeline_metrics.coverage_precision,
    timeline_metrics.coverage_recall,
    timeline_metrics.median_delay_posts,
    timeline_metrics.median_delay_seconds,
    timeline_metrics.missed,
)
METRICS = (
    Metric("precision", of_each_class(precision_score), "precision", of_class=True),
    Metric("recall", of_each_class(recall_score), "recall", of_class=True),
    Metric("f1", of_each_class(f1_score), "F1", of_class=True),
    Metric("support", lambda posts, label: (posts.labels == label).sum(), of_class=True),
    *(Metric(compute.__name__, compute, of_class=True, needs="timelines") for compute in OF_TIMELINES),
    Metric(
        "expected_calibration_error",
        lambda posts: expected_calibration_error(posts.probabilities, posts.labels),
        "calibration error",
        needs="probabilities",
    ),
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
        if metric.needs and getattr(posts, metric.needs) is None:
            continue
        if not metric.of_class:
            scores[metric.name] = metric.compute(posts)
            continue
        of_classes = [metric.compute(posts, label) for label in range(len(posts.names))]
        if metric.title:
            means[f"macro_{metric.name}"] = np.mean(of_classes)
        scores |= {f"{metric.name}_{name}": score for name, score in zip(posts.names, of_classes, strict=True)}
    # Numbers of Python, for JSON.
    scores = {name: np.asarray(score).item() for name, score in (means | scores).items()}
    return {name: score for name, score in scores.items() if not math.isnan(score)}


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
        without a label, to the scores of [`compute_scores`] that need labels and predictions alone: precision, recall
        and F1 (`macro_f1`, `f1_NAME`), and `support_NAME` of each class. Empty if no post has a label.
    """

    def score(prediction: EvalPrediction) -> dict[str, float]:
        labelled = prediction.label_ids != -100
        if not labelled.any():
            return {}
        predictions = prediction.predictions.argmax(-1)[labelled]
        return compute_scores(Predictions(prediction.label_ids[labelled], predictions, label_names))

    return score
