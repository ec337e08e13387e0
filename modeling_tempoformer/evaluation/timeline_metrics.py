"""Scores of whole timelines: windows and coverage (Tsakalidis et al., 2022), and how late a change is detected."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd


@dataclass(frozen=True, slots=True)
class Timeline:
    """
    One timeline with its posts in order.

    Attributes:
        actual (`Sequence[int]`): The class id of each post; -100 for a post without a label, which is left out.
        predicted (`Sequence[int]`): The predicted class id of each post.
        timestamps (`Sequence[float]`, *optional*): Seconds.
    """

    actual: Sequence[int]
    predicted: Sequence[int]
    timestamps: Sequence[float] | None = None

    def labelled(self) -> "Timeline":
        """The timeline without the posts that have no label."""
        is_labelled = np.asarray(self.actual) >= 0
        columns = (self.actual, self.predicted, self.timestamps)
        return Timeline(*(None if column is None else np.asarray(column)[is_labelled] for column in columns))


def positions_of(labels: Sequence[int], label: int) -> np.ndarray:
    """The positions of the posts with a class."""
    return np.flatnonzero(np.asarray(labels) == label)


def regions_of(labels: Sequence[int], label: int) -> list[set[int]]:
    """The positions of each region, a run of neighbouring posts with a class."""
    positions = positions_of(labels, label)
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [set(run.tolist()) for run in runs if len(run)]


def window_scores(timeline: Timeline, label: int, window: int) -> tuple[float, float]:
    """
    Precision and recall, NaN if undefined. A prediction is correct if it is at most `window` posts away from a post of
    the class, and each prediction matches at most one post (Tsakalidis et al., 2022, section 5).
    """
    actual, predicted = positions_of(timeline.actual, label), positions_of(timeline.predicted, label)
    unmatched = predicted.tolist()
    for position in actual:
        # The earliest one, which leaves the later ones for later posts.
        match = next((other for other in unmatched if abs(other - position) <= window), None)
        if match is not None:
            unmatched.remove(match)
    matches = len(predicted) - len(unmatched)
    precision, recall = (matches / len(found) if len(found) else math.nan for found in (predicted, actual))
    return precision, recall


def coverage(regions: list[set[int]], others: list[set[int]]) -> float:
    """
    How well `others` cover `regions`, from 0 to 1; NaN without regions. A region counts with its length times its
    largest overlap (intersection over union) with one of the others (Tsakalidis et al., 2022, section 5).
    """
    if not regions:
        return math.nan
    overlaps = [max((len(r & other) / len(r | other) for other in others), default=0.0) for r in regions]
    return float(np.average(overlaps, weights=[len(region) for region in regions]))


def detection_delays(timeline: Timeline, label: int) -> list[tuple[float, float]]:
    """
    The delay of each region in posts and seconds: from its first post to the first prediction of the class at or after
    it, but before the next region starts. NaN if it is missed, and for seconds without timestamps.
    """
    starts = [min(region) for region in regions_of(timeline.actual, label)]
    predicted = positions_of(timeline.predicted, label)
    times = np.full(len(timeline.actual), math.nan) if timeline.timestamps is None else timeline.timestamps
    delays = []
    for start, end in zip(starts, [*starts[1:], len(timeline.actual)], strict=False):
        detection = next((post for post in predicted.tolist() if start <= post < end), None)
        missed = detection is None
        delays.append((math.nan, math.nan) if missed else (detection - start, times[detection] - times[start]))
    return delays


def timeline_scores(timelines: Iterable[Timeline], label_names: Sequence[str], window: int = 1) -> dict[str, float]:
    """
    Scores of each class, averaged over the timelines in which a score is defined.

    Args:
        timelines: Posts without a label are left out.
        label_names: Names of the classes in the order of their ids.
        window: Window of the window scores, in posts.

    Returns:
        For each class NAME `window_precision_NAME`, `window_recall_NAME`, `coverage_precision_NAME`,
        `coverage_recall_NAME`; over all detected regions `median_delay_posts_NAME` and, with timestamps,
        `median_delay_seconds_NAME`; and `missed_NAME`, the share of missed regions. NaN where nothing is defined.
    """
    timelines = [timeline.labelled() for timeline in timelines]
    scores: dict[str, float] = {}
    for label, name in enumerate(label_names):
        rows, delays = [], []
        for timeline in timelines:
            actual, predicted = (regions_of(labels, label) for labels in (timeline.actual, timeline.predicted))
            covered = coverage(predicted, actual), coverage(actual, predicted)
            rows.append((*window_scores(timeline, label, window), *covered))
            delays += detection_delays(timeline, label)
        kinds = ["window_precision", "window_recall", "coverage_precision", "coverage_recall"]
        means = pd.DataFrame(rows, columns=kinds, dtype=float).mean()
        regions = pd.DataFrame(delays, columns=["posts", "seconds"], dtype=float)
        medians = regions.median().add_prefix("median_delay_")
        if regions["seconds"].isna().all():
            del medians["median_delay_seconds"]
        found = {**means, **medians, "missed": regions["posts"].isna().mean()}
        scores |= {f"{kind}_{name}": float(value) for kind, value in found.items()}
    return scores
