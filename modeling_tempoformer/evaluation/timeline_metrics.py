"""Scores of whole timelines: windows and coverage (Tsakalidis et al., 2022), and how late a change is detected."""

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


def window_scores(timeline: Timeline, label: int, window: int = 1) -> tuple[float, float]:
    """
    Precision and recall of a class in one timeline, where a prediction is correct if it is at most `window` posts away
    from a post of the class, and each prediction matches at most one post (Tsakalidis et al., 2022, section 5).

    Returns:
        `tuple[float, float]`: Precision, NaN if the class is never predicted; recall, NaN if no post has the class.
    """
    actual, predicted = positions_of(timeline.actual, label), positions_of(timeline.predicted, label)
    unmatched, matches = predicted.tolist(), 0
    for position in actual:
        # The earliest one, which leaves the later ones for later posts.
        match = next((other for other in unmatched if abs(other - position) <= window), None)
        if match is not None:
            unmatched.remove(match)
            matches += 1
    return (
        matches / len(predicted) if len(predicted) else float("nan"),
        matches / len(actual) if len(actual) else float("nan"),
    )


def coverage_scores(timeline: Timeline, label: int) -> tuple[float, float]:
    """
    Coverage-based precision and recall of a class in one timeline. Each region counts with its length times its
    largest overlap (intersection over union) with a region of the other side (Tsakalidis et al., 2022, section 5).

    Returns:
        `tuple[float, float]`: Precision, over the predicted regions, and recall, over the actual regions; NaN if there
        are none.
    """
    actual, predicted = regions_of(timeline.actual, label), regions_of(timeline.predicted, label)
    return coverage(predicted, actual), coverage(actual, predicted)


def coverage(regions: list[set[int]], others: list[set[int]]) -> float:
    """How well `others` cover `regions`, from 0 to 1."""
    if not regions:
        return float("nan")
    overlaps = [max((len(r & other) / len(r | other) for other in others), default=0.0) for r in regions]
    return float(np.average(overlaps, weights=[len(region) for region in regions]))


def detection_delays(timeline: Timeline, label: int) -> tuple[list[int], list[float], int]:
    """
    How late each region of a class is detected: the delay from its first post to the first prediction of the class at
    or after it, but before the next region starts.

    Returns:
        Delays in posts, delays in seconds (empty without timestamps), and the number of missed regions.
    """
    starts = [min(region) for region in regions_of(timeline.actual, label)]
    predicted = positions_of(timeline.predicted, label)
    posts, seconds = [], []
    for start, end in zip(starts, [*starts[1:], len(timeline.actual)], strict=False):
        detections = predicted[(start <= predicted) & (predicted < end)]
        if len(detections):
            posts.append(int(detections[0]) - start)
            if timeline.timestamps is not None:
                seconds.append(timeline.timestamps[detections[0]] - timeline.timestamps[start])
    return posts, seconds, len(starts) - len(posts)


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
        for kind, pairs in (
            ("window", [window_scores(timeline, label, window) for timeline in timelines]),
            ("coverage", [coverage_scores(timeline, label) for timeline in timelines]),
        ):
            precision, recall = pd.DataFrame(pairs, columns=["precision", "recall"]).mean()
            scores |= {f"{kind}_precision_{name}": float(precision), f"{kind}_recall_{name}": float(recall)}
        delays = [detection_delays(timeline, label) for timeline in timelines]
        posts = pd.Series([delay for found, _, _ in delays for delay in found], dtype=float)
        seconds = pd.Series([delay for _, found, _ in delays for delay in found], dtype=float)
        missed = sum(count for _, _, count in delays)
        scores[f"median_delay_posts_{name}"] = float(posts.median())
        if len(seconds):
            scores[f"median_delay_seconds_{name}"] = float(seconds.median())
        scores[f"missed_{name}"] = missed / (missed + len(posts)) if missed or len(posts) else float("nan")
    return scores
