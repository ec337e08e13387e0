"""Scores of whole timelines: windows and coverage (Tsakalidis et al., 2022), and how late a change is flagged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np


@dataclass(frozen=True, slots=True)
class Timeline:
    """
    One timeline, its posts in order.

    Attributes:
        actual (`Sequence[int]`): A class id for each post; -100 for a post without a label, which is left out.
        predicted (`Sequence[int]`): A class id for each post.
        timestamps (`Sequence[float]`, *optional*): Seconds.
    """

    actual: Sequence[int]
    predicted: Sequence[int]
    timestamps: Sequence[float] | None = None

    def __post_init__(self):
        for name in ("predicted", "timestamps"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.actual):
                raise ValueError(f"A timeline has {len(self.actual)} posts, but {len(values)} in `{name}`.")

    def labelled(self) -> "Timeline":
        """Its labelled posts."""
        kept = [post for post, label in enumerate(self.actual) if label >= 0]
        times = None if self.timestamps is None else [self.timestamps[post] for post in kept]
        return Timeline([self.actual[p] for p in kept], [self.predicted[p] for p in kept], times)


def places_of(labels: Sequence[int], label: int) -> list[int]:
    """The posts of a class."""
    return np.flatnonzero(np.asarray(labels) == label).tolist()


def regions_of(labels: Sequence[int], label: int) -> list[set[int]]:
    """The runs of neighbouring posts of a class."""
    places = np.flatnonzero(np.asarray(labels) == label)
    return [set(run.tolist()) for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(run)]


def window_scores(timeline: Timeline, label: int, window: int = 1) -> tuple[float, float]:
    """
    Precision and recall of a class in one timeline, where a prediction up to `window` posts from a post of the class
    counts as right, and each prediction for one such post only (Tsakalidis et al., 2022, section 5).

    Returns:
        `tuple[float, float]`: Precision, NaN if the class is not predicted (and so if it is nowhere); recall, NaN if
        no post has the class.
    """
    actual, predicted = places_of(timeline.actual, label), places_of(timeline.predicted, label)
    matched, first = 0, 0
    for post in actual:
        while first < len(predicted) and predicted[first] < post - window:
            first += 1
        if first < len(predicted) and predicted[first] <= post + window:
            matched += 1
            first += 1
    return (
        matched / len(predicted) if predicted else float("nan"),
        matched / len(actual) if actual else float("nan"),
    )


def coverage_scores(timeline: Timeline, label: int) -> tuple[float, float]:
    """
    Coverage-based precision and recall of a class in one timeline: each region (run of posts of the class) counts with
    its length and its largest overlap, intersection over union, with a region on the other side (Tsakalidis et al.,
    2022, section 5).

    Returns:
        `tuple[float, float]`: Precision, over the predicted regions, and recall, over the actual ones; NaN where there
        are none.
    """
    actual, predicted = regions_of(timeline.actual, label), regions_of(timeline.predicted, label)
    return covered(predicted, actual), covered(actual, predicted)


def covered(regions: list[set[int]], others: list[set[int]]) -> float:
    """How well `others` cover `regions`."""
    overlaps = [max((len(r & other) / len(r | other) for other in others), default=0.0) for r in regions]
    total = sum(len(region) for region in regions)
    return sum(len(r) * o for r, o in zip(regions, overlaps, strict=True)) / total if regions else float("nan")


def detection_delays(timeline: Timeline, label: int) -> tuple[list[int], list[float], int]:
    """
    How late each region of a class is first flagged: from its first post to the first prediction of the class there
    or later, before the next region begins.

    Returns:
        Delays in posts, delays in seconds (empty without timestamps), and the number of regions never flagged.
    """
    starts = [min(region) for region in regions_of(timeline.actual, label)]
    predicted = places_of(timeline.predicted, label)
    posts, seconds, missed = [], [], 0
    ends = [*starts, len(timeline.actual)][1:]
    for start, end in zip(starts, ends, strict=True):
        flagged = next((post for post in predicted if start <= post < end), None)
        if flagged is None:
            missed += 1
            continue
        posts.append(flagged - start)
        if timeline.timestamps is not None:
            seconds.append(timeline.timestamps[flagged] - timeline.timestamps[start])
    return posts, seconds, missed


def timeline_scores(timelines: Iterable[Timeline], label_names: Sequence[str], window: int = 1) -> dict[str, float]:
    """
    Means over the timelines in which a score is defined, for each class.

    Args:
        timelines: Labelled posts are scored, those without a label left out.
        label_names: Names of the classes in the order of their ids.
        window: Posts, for the window scores; at least 0.

    Returns:
        For each class NAME `window_precision_NAME`, `window_recall_NAME`, `coverage_precision_NAME`,
        `coverage_recall_NAME` (NaN where no timeline has them), `median_delay_posts_NAME`,
        `median_delay_seconds_NAME` (timed only) over all regions that were flagged, and `missed_NAME`, the share of
        regions that were not. Raises a `ValueError` for a negative window.
    """
    if window < 0:
        raise ValueError(f"`window` must not be negative, got {window}.")
    timelines = [timeline.labelled() for timeline in timelines]
    scores: dict[str, float] = {}
    for label, name in enumerate(label_names):
        kinds = {
            "window": [window_scores(timeline, label, window) for timeline in timelines],
            "coverage": [coverage_scores(timeline, label) for timeline in timelines],
        }
        for kind, pairs in kinds.items():
            for side, values in zip(("precision", "recall"), zip(*pairs, strict=True), strict=True):
                defined = [value for value in values if value == value]
                scores[f"{kind}_{side}_{name}"] = fmean(defined) if defined else float("nan")
        delays = [detection_delays(timeline, label) for timeline in timelines]
        posts = [delay for of_timeline, _, _ in delays for delay in of_timeline]
        seconds = [delay for _, of_timeline, _ in delays for delay in of_timeline]
        missed = sum(count for _, _, count in delays)
        scores[f"median_delay_posts_{name}"] = float(median(posts)) if posts else float("nan")
        if seconds:
            scores[f"median_delay_seconds_{name}"] = float(median(seconds))
        scores[f"missed_{name}"] = missed / (missed + len(posts)) if missed or posts else float("nan")
    return scores
