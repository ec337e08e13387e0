"""
Calibration on posts that were not trained on: how far confidence is from accuracy, a temperature, and thresholds.

    temperature = fit_temperature(logits, labels)
    probabilities = class_probabilities(logits, temperature)
    thresholds = tune_thresholds(probabilities, labels)
    model.config.calibration_temperature, model.config.decision_thresholds = temperature, thresholds
"""

import math

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F
from transformers.utils import logging

from ..decisions_tempoformer import rank_classes


logger = logging.get_logger(__name__)

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.05, 20.0
SAME_SCORE = 1e-12  # scores that differ by less are equal but for rounding


def labelled_posts(scores: np.ndarray, labels: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The scores (posts, classes), in 64 bits, and the labels of the posts that have a label; both checked."""
    scores, labels = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if scores.ndim != 2 or scores.shape[1] < 2 or labels.shape != scores.shape[:1]:
        raise ValueError(
            f"`{name}` must have the shape (posts, classes), with at least two classes, and `labels` (posts,), "
            f"got {scores.shape} and {labels.shape}."
        )
    posts = np.flatnonzero(labels != -100)
    if not posts.size:
        raise ValueError(f"None of the {len(labels)} posts has a label.")
    wrong = posts[~np.isin(labels[posts], np.arange(scores.shape[1]))]
    if wrong.size:
        raise ValueError(f"`labels`: post {wrong[0]} has {labels[wrong[0]]}, there are {scores.shape[1]} classes.")
    wrong = posts[~np.isfinite(scores[posts]).all(axis=1)]
    if wrong.size:
        raise ValueError(f"`{name}`: post {wrong[0]} has {scores[wrong[0]].tolist()}, which is not finite.")
    if name == "probabilities":
        wrong = posts[(scores[posts] < 0).any(axis=1) | (np.abs(scores[posts].sum(axis=1) - 1) > 1e-3)]
        if wrong.size:
            values = scores[wrong[0]].tolist()
            raise ValueError(f"`{name}`: post {wrong[0]} has {values}, not probabilities that sum to 1.")
    return scores[posts], labels[posts].astype(np.int64)


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray, num_bins: int = 15) -> float:
    """
    The mean distance of confidence and accuracy over bins of equal width, weighted by their posts (Guo et al., 2017,
    section 2). A post's confidence is the probability of its most probable class.

    Args:
        probabilities (`np.ndarray` of shape `(posts, classes)`): Each row sums to 1.
        labels (`np.ndarray` of shape `(posts,)`): Class ids; posts with -100 are left out.
        num_bins (`int`, *optional*, defaults to 15): A confidence on the edge of two bins is in the lower one.

    Returns:
        `float`: From 0 to 1. Raises a `ValueError` for input out of these ranges or without a labelled post.
    """
    if num_bins < 1:
        raise ValueError(f"`num_bins` must be at least 1, got {num_bins}.")
    probabilities, labels = labelled_posts(probabilities, labels, "probabilities")
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bins = np.digitize(confidence, np.linspace(0, 1, num_bins + 1)[1:-1], right=True)
    return float(np.abs(np.bincount(bins, weights=right - confidence)).sum() / len(labels))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """
    The temperature at which `softmax(logits / temperature)` gives the labels the highest likelihood (Guo et al., 2017,
    section 4.2).

    Args:
        logits (`np.ndarray` of shape `(posts, classes)`): Of posts that the model was not trained on.
        labels (`np.ndarray` of shape `(posts,)`): Class ids; posts with -100 are left out.

    Returns:
        `float`: From 0.05 to 20. An end of this range is said in a warning: where all posts are classified right, the
        lower the temperature, the higher the likelihood. Raises a `ValueError` for logits that are not finite or
        without a labelled post.
    """
    logits, labels = labelled_posts(logits, labels, "logits")
    logits, labels = torch.from_numpy(logits), torch.from_numpy(labels)

    def loss(log_temperature: float) -> float:
        return F.cross_entropy(logits / math.exp(log_temperature), labels).item()

    ends = math.log(LOWEST_TEMPERATURE), math.log(HIGHEST_TEMPERATURE)
    found = min(*ends, minimize_scalar(loss, bounds=ends, method="bounded").x, key=loss)
    temperature = math.exp(found)
    if found in ends:
        logger.warning(f"The temperature, {temperature:.3g}, is an end of its range: the labels do not bound it.")
    return temperature


def tune_thresholds(probabilities: np.ndarray, labels: np.ndarray) -> list[float]:
    """
    The thresholds with the highest macro F1, where a post gets the class of the largest probability / threshold.

    From equal thresholds, which choose the most probable class, the threshold of one class after the other is moved,
    those of the others keeping their ratios, to the best place between the posts that it divides, until none gains.
    With two classes that is exact: the threshold of the second class is the best of 0.5 and the midpoints of its
    probabilities. With more it may end at thresholds that only a move of two at once would improve. Of places that
    are equally good, that nearest to equal thresholds is taken.

    Args:
        probabilities (`np.ndarray` of shape `(posts, classes)`): Of posts that the model was not trained on,
            calibrated if they will be where the thresholds are used.
        labels (`np.ndarray` of shape `(posts,)`): Class ids; posts with -100 are left out.

    Returns:
        `list[float]`: One for each class; they sum to 1. Raises a `ValueError` where rows are not probabilities or a
        class has no labelled post.
    """
    probabilities, labels = labelled_posts(probabilities, labels, "probabilities")
    num_classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=num_classes)
    if not counts.all():
        raise ValueError(f"A class without labelled posts has no threshold; posts of each class: {counts.tolist()}.")
    thresholds = np.full(num_classes, 1 / num_classes)
    best = macro_f1(probabilities, labels, thresholds)
    gained = True
    while gained:
        gained = False
        for label in range(num_classes):
            moved = move_threshold(probabilities, labels, thresholds, label)
            score = macro_f1(probabilities, labels, moved)
            if score > best + SAME_SCORE:
                thresholds, best, gained = moved, score, True
    return thresholds.tolist()


def macro_f1(probabilities: np.ndarray, labels: np.ndarray, thresholds: np.ndarray) -> float:
    """Of the classes that the thresholds choose."""
    chosen = rank_classes(torch.from_numpy(probabilities), thresholds.tolist())[:, 0].numpy()
    counts = [np.bincount(of, minlength=len(thresholds)) for of in (labels[chosen == labels], chosen, labels)]
    return float(mean_f1(*counts))


def mean_f1(hits: np.ndarray, chosen: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """Macro F1 from counts (..., classes) of right decisions, of decisions and of labels, which every class has."""
    return (2 * hits / (chosen + actual)).mean(axis=-1)


def move_threshold(probabilities: np.ndarray, labels: np.ndarray, thresholds: np.ndarray, label: int) -> np.ndarray:
    """The thresholds, that of one class moved to where macro F1 is highest; those of the others keep their ratios."""
    num_classes = len(thresholds)
    others = np.delete(np.arange(num_classes), label)
    weights = thresholds[others] / thresholds[others].sum()
    # With thresholds t for the class and (1 - t) * weights, it is chosen where p / t > rival / (1 - t): where its
    # share p / (p + rival) is above t.
    rivals = probabilities[:, others] / weights
    shares = probabilities[:, label] / (probabilities[:, label] + rivals.max(axis=1))
    order = np.argsort(-shares, kind="stable")
    shares, actual, second = shares[order], labels[order], others[rivals.argmax(axis=1)][order]

    # Row i: counts of each class if the i posts with the largest shares are given to the class, the rest to its rival.
    to_rival = second[:, None] == np.arange(num_classes)
    chosen, hits = (
        np.vstack([of_post[::-1].cumsum(axis=0)[::-1], np.zeros((1, num_classes), dtype=np.int64)])
        for of_post in (to_rival, to_rival & (second == actual)[:, None])
    )
    chosen[:, label] = np.arange(len(order) + 1)
    hits[1:, label] = (actual == label).cumsum()
    scores = mean_f1(hits, chosen, np.bincount(labels, minlength=num_classes))

    edges = np.concatenate([[1.0], shares, [0.0]])
    cuts = (edges[:-1] + edges[1:]) / 2
    possible = (edges[:-1] > cuts) & (cuts > edges[1:])  # posts with equal shares are not divided
    best = cuts[possible & (scores >= scores[possible].max() - SAME_SCORE)]
    candidates = np.empty((len(best), num_classes))
    candidates[:, label] = best
    candidates[:, others] = np.outer(1 - best, weights)
    return candidates[np.square(candidates - 1 / num_classes).sum(axis=1).argmin()]
