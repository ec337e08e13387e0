"""Scores of whole timelines: windows and coverage (Tsakalidis et al., 2022), and how late a change is detected."""

import math
from collections.abc import Callable
from functools import wraps

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score

from .predictions import Predictions


def mean_over_timelines(score: Callable[[np.ndarray, np.ndarray], float]) -> Callable[[Predictions, int], float]:
    """Makes a metric of a score of one timeline: the mean over the timelines in which it is defined."""

    @wraps(score)
    def mean(posts: Predictions, label: int) -> float:
        return pd.Series([score(labels, predictions) for labels, predictions, _ in posts.of_timelines(label)]).mean()

    return mean


@mean_over_timelines
def timeline_f1(labels: np.ndarray, predictions: np.ndarray) -> float:
    """F1; 1 where no post has the class and none is predicted as it (CLPsych 2026, task 2)."""
    return f1_score(labels, predictions, zero_division=1.0)


def num_matches(labels: np.ndarray, predictions: np.ndarray) -> int:
    """
    How many predictions of a class are at most one post away from a post of the class, where each prediction matches
    at most one post (Tsakalidis et al., 2022, section 5).
    """
    found = np.flatnonzero(predictions)
    unmatched = found.tolist()
    for position in np.flatnonzero(labels):
        # The earliest one, which leaves the later ones for later posts.
        match = next((other for other in unmatched if abs(other - position) <= 1), None)
        if match is not None:
            unmatched.remove(match)
    return len(found) - len(unmatched)


def share(part: int, whole: int) -> float:
    """A share, NaN of nothing."""
    return part / whole if whole else math.nan


@mean_over_timelines
def window_precision(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Precision where one post beside counts."""
    return share(num_matches(labels, predictions), predictions.sum())


@mean_over_timelines
def window_recall(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Recall where one post beside counts."""
    return share(num_matches(labels, predictions), labels.sum())


def runs_of(is_class: np.ndarray) -> list[set[int]]:
    """The positions of each run of neighbouring posts with a class."""
    positions = np.flatnonzero(is_class)
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [set(run.tolist()) for run in runs if len(run)]


def coverage(runs: list[set[int]], others: list[set[int]]) -> float:
    """
    How well `others` cover `runs`, from 0 to 1; NaN without runs. A run counts with its length times its largest
    overlap (intersection over union) with one of the others (Tsakalidis et al., 2022, section 5).
    """
    if not runs:
        return math.nan
    overlaps = [max((len(run & other) / len(run | other) for other in others), default=0.0) for run in runs]
    return float(np.average(overlaps, weights=[len(run) for run in runs]))


@mean_over_timelines
def coverage_precision(labels: np.ndarray, predictions: np.ndarray) -> float:
    """How well the runs of a class cover those that are predicted."""
    return coverage(runs_of(predictions), runs_of(labels))


@mean_over_timelines
def coverage_recall(labels: np.ndarray, predictions: np.ndarray) -> float:
    """How well the predicted runs of a class cover its runs."""
    return coverage(runs_of(labels), runs_of(predictions))


def detection_delays(
    labels: np.ndarray, predictions: np.ndarray, times: np.ndarray | None = None
) -> list[tuple[float, float]]:
    """
    The delay of each run of a class in posts and seconds: from its first post to the first prediction of the class at
    or after it, but before the next run starts. NaN if it is missed, and for seconds without times.
    """
    starts = [min(run) for run in runs_of(labels)]
    times = np.full(len(labels), math.nan) if times is None else times
    delays = []
    for start, end in zip(starts, [*starts[1:], len(labels)], strict=False):
        found = np.flatnonzero(predictions[start:end])
        delay = (found[0], times[start + found[0]] - times[start]) if len(found) else (math.nan, math.nan)
        delays.append(delay)
    return delays


def delays_of(posts: Predictions, label: int) -> pd.DataFrame:
    """The delays of all runs of a class ([`detection_delays`]), with the columns `posts` and `seconds`."""
    delays = [delay for timeline in posts.of_timelines(label) for delay in detection_delays(*timeline)]
    return pd.DataFrame(delays, columns=["posts", "seconds"], dtype=float)


def median_delay_posts(posts: Predictions, label: int) -> float:
    """The median delay in posts. Runs that are not found do not count."""
    return delays_of(posts, label)["posts"].median()


def median_delay_seconds(posts: Predictions, label: int) -> float:
    """The median delay in seconds. Runs that are not found do not count."""
    return delays_of(posts, label)["seconds"].median()


def missed(posts: Predictions, label: int) -> float:
    """The share of the runs that are not found before the next one starts."""
    return delays_of(posts, label)["posts"].isna().mean()


def timelines_of_half(posts: Predictions, label: int) -> float:
    """How few timelines have half of the posts of a class among them; NaN for a class that no post has."""
    _, counts = np.unique(posts.timelines[posts.labels == label], return_counts=True)
    together = np.sort(counts)[::-1].cumsum()
    return np.searchsorted(together, counts.sum() / 2) + 1.0 if len(counts) else math.nan
