"""Calibrates a model on posts that it was not trained on: a temperature, thresholds, the calibration error."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import f1_score
from sklearn.utils import check_X_y
from transformers import PreTrainedConfig
from transformers.utils import logging

from ..decisions_tempoformer import class_names, decide
from ..timeline_tempoformer import Timeline
from .alarm_goals import AlarmGoal
from .alarms import SCORE_ROUNDING, choose_alarm
from .metrics import change_detection
from .predictions import all_labels, decide_posts


logger = logging.get_logger(__name__)


def fit_calibration(
    timelines: Sequence[Timeline], config: PreTrainedConfig, goal: AlarmGoal | None = None
) -> dict[str, Any]:
    """
    Fits the `calibration` of a model's configuration to timelines that it was not trained on.

    Args:
        timelines (`Sequence[Timeline]`): The timelines, with the model's logits ([`attach_logits`]) and labels.
        config (`PreTrainedConfig`): The model's configuration.
        goal ([`AlarmGoal`], *optional*): What alarms of the class that the model watches are to reach. Labels are then
            the most probable classes; without it thresholds are fitted, by which labels maximise macro F1.

    Returns:
        `dict`: `temperature`, and `thresholds` or `alarm`. Raises the errors of [`choose_alarm`].
    """
    labels = all_labels(timelines)
    labelled, logits = labels >= 0, torch.cat([timeline.logits for timeline in timelines])
    logits = logits[torch.from_numpy(labelled)]
    calibration: dict[str, Any] = {"temperature": fit_temperature(logits.numpy(), labels[labelled])}
    if goal is not None:
        names = class_names(config)
        rule = names, config.watched, goal, config.first_posts
        return calibration | {"alarm": choose_alarm(timelines, *decide_posts(timelines, calibration), *rule)}
    probabilities, _ = decide(logits, calibration)
    return calibration | {"thresholds": tune_thresholds(probabilities.numpy(), labels[labelled])}


def with_label(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The scores and the labels of the posts with a label."""
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    return check_X_y(scores[labels != -100], labels[labels != -100])


def labelled_probabilities(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities and the labels of the posts with a label. Each row of probabilities must sum to 1."""
    probabilities, labels = with_label(probabilities, labels)
    if (probabilities < 0).any() or not np.allclose(probabilities.sum(axis=1), 1, atol=1e-3):
        raise ValueError("`probabilities` must not be negative, and every row must sum to 1. Are they logits?")
    return probabilities, labels


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """
    The mean distance between confidence, the probability of the most probable class, and accuracy (Guo et al., 2017,
    section 2), by the metric `change_detection`.

    Args:
        probabilities (`np.ndarray` of shape `(posts, classes)`): Each row sums to 1.
        labels (`np.ndarray` of shape `(posts,)`): Class ids; posts with -100 are left out.

    Returns:
        `float`: The error, from 0 to 1. Raises a `ValueError` if no post has a label, or if rows are not
        probabilities.
    """
    probabilities, labels = labelled_probabilities(probabilities, labels)
    return float(change_detection().expected_calibration_error(probabilities, labels))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """
    The temperature that maximises the likelihood of the labels under `softmax(logits / temperature)` (Guo et al.,
    2017, section 4.2).

    Args:
        logits (`np.ndarray` of shape `(posts, classes)`): Logits of posts that the model was not trained on.
        labels (`np.ndarray` of shape `(posts,)`): Class ids; posts with -100 are left out.

    Returns:
        `float`: The temperature, from 0.05 to 20. At an end of this range a warning is logged, for example if every
        post is classified correctly. Raises a `ValueError` if no post has a label, or if a logit is not finite.
    """
    logits, labels = with_label(logits, labels)

    def loss(log_temperature: float) -> float:
        log_probabilities = log_softmax(logits / math.exp(log_temperature), axis=1)
        return -np.take_along_axis(log_probabilities, labels[:, None], axis=1).mean()

    ends = math.log(0.05), math.log(20)
    best = min(*ends, minimize_scalar(loss, bounds=ends, method="bounded").x, key=loss)
    if best == ends[0]:
        logger.warning(
            f"The temperature {math.exp(best):.3g} is the lower end of its range, as nearly all of the {len(labels)} "
            "posts that it is fitted to are classified right: calibrate on more posts, some of them hard, or leave "
            "--calibrate out; until then do not trust a probability close to 0 or 1."
        )
    elif best == ends[1]:
        logger.warning(
            f"The temperature {math.exp(best):.3g} is the upper end of its range, as on the {len(labels)} posts that "
            "it is fitted to the model is no better than guessing: train it longer or on more posts; no threshold "
            "makes up for that."
        )
    return math.exp(best)


def tune_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> list[float]:
    """
    The thresholds with the highest macro F1, where a post gets the class with the largest probability / threshold.

    A coordinate search begins with equal thresholds. It moves one threshold at a time to its best value, or to the one
    closest to equal thresholds if there are several, while the others keep their ratios, until no move improves macro
    F1. The result is optimal for two classes. For more, moving two thresholds at once may still help.

    Args:
        probabilities (`np.ndarray` of shape `(posts, classes)`): Probabilities of posts that the model was not trained
            on. They are calibrated if the thresholds will be used on calibrated ones.
        labels (`np.ndarray` of shape `(posts,)`): Class ids; posts with -100 are left out.

    Returns:
        `list[float]`: One threshold for each class; they sum to 1. Raises a `ValueError` if rows are not probabilities
        or a class has no labelled post.
    """
    probabilities, labels = labelled_probabilities(probabilities, labels)
    num_classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=num_classes)
    if not counts.all():
        raise ValueError(f"Every class needs labelled posts to tune its threshold, got {counts.tolist()} posts.")

    def macro_f1(thresholds: np.ndarray) -> float:
        return f1_score(labels, (probabilities / thresholds).argmax(axis=1), average="macro")

    thresholds = np.full(num_classes, 1 / num_classes)
    best, improved = macro_f1(thresholds), True
    while improved:
        improved = False
        for label in range(num_classes):
            moved = move_threshold(probabilities, labels, thresholds, label)
            if (score := macro_f1(moved)) > best + SCORE_ROUNDING:
                thresholds, best, improved = moved, score, True
    return thresholds.tolist()


def move_threshold(probabilities: np.ndarray, labels: np.ndarray, thresholds: np.ndarray, label: int) -> np.ndarray:
    """Moves the threshold of one class to its best value."""
    num_classes = probabilities.shape[1]
    others = np.delete(np.arange(num_classes), label)
    weights = thresholds[others] / thresholds[others].sum()
    # Let the class have the threshold t and the others (1 - t) * weights. A post gets the class if
    # p / t > best / (1 - t), that is, if its share p / (p + best) is above t.
    ratios = probabilities[:, others] / weights
    shares = probabilities[:, label] / (probabilities[:, label] + ratios.max(axis=1))
    order = np.argsort(-shares, kind="stable")
    shares, ordered, other_classes = shares[order], labels[order], others[ratios.argmax(axis=1)][order]

    # Row i counts, for each class, the decisions and the hits if the first i posts get the class and the rest the
    # best other one.
    one_hot = np.eye(num_classes)
    before, change = one_hot[other_classes], one_hot[label] - one_hot[other_classes]
    is_label = one_hot[ordered]
    decisions = np.vstack([before.sum(axis=0), change]).cumsum(axis=0)
    hits = np.vstack([(before * is_label).sum(axis=0), change * is_label]).cumsum(axis=0)
    scores = (2 * hits / (decisions + is_label.sum(axis=0))).mean(axis=1)

    edges = np.concatenate([[1.0], shares, [0.0]])
    cuts = (edges[:-1] + edges[1:]) / 2
    is_possible = (edges[:-1] > cuts) & (cuts > edges[1:])  # Posts with equal shares cannot be separated.
    best = cuts[is_possible & (scores >= scores[is_possible].max() - SCORE_ROUNDING)]
    candidates = np.insert(np.outer(1 - best, weights), label, best, axis=1)
    return candidates[np.square(candidates - 1 / num_classes).sum(axis=1).argmin()]
