"""
Scores of predicted changes in timelines of posts.

A score is one function and one row of [`SCORES`]. The README beside this file has the formulas and their sources.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import datasets
import evaluate
import numpy as np


CITATION = """\
@inproceedings{tsakalidis-etal-2022-identifying,
  title = {Identifying Moments of Change from Longitudinal User Text},
  author = {Tsakalidis, Adam and Nanni, Federico and Hills, Anthony and Chim, Jenny and Song, Jiayu and
            Liakata, Maria},
  booktitle = {Proceedings of the 60th Annual Meeting of the Association for Computational Linguistics},
  year = {2022}
}
"""
NO_LABEL, NO_PREDICTION = -100, -1
NUM_BINS = 15
CLASS_ID = datasets.Value("int64")


class Posts(NamedTuple):
    """
    Posts in the order of time, as one class sees them.

    Attributes:
        labels (`np.ndarray` of shape `(posts,)`): Whether a post has the class.
        predictions (`np.ndarray` of shape `(posts,)`): Whether the class is predicted for it.
        times (`np.ndarray` of shape `(posts,)`): Seconds; NaN if they are not known.
    """

    labels: np.ndarray
    predictions: np.ndarray
    times: np.ndarray


def share(part: float, whole: float, of_nothing: float = math.nan) -> float:
    """A share, and what it is of nothing."""
    return part / whole if whole else of_nothing


# Scores of all posts.


def precision(posts: Posts) -> float:
    """The share of the predictions that are right; 0 without any."""
    return share((posts.labels & posts.predictions).sum(), posts.predictions.sum(), 0.0)


def recall(posts: Posts) -> float:
    """The share of the posts of the class that are found; 0 without any."""
    return share((posts.labels & posts.predictions).sum(), posts.labels.sum(), 0.0)


def f1(posts: Posts, of_nothing: float = 0.0) -> float:
    """The harmonic mean of precision and recall; 0 where no post has the class and none is predicted as it."""
    hits = (posts.labels & posts.predictions).sum()
    return share(2 * hits, posts.labels.sum() + posts.predictions.sum(), of_nothing)


def support(posts: Posts) -> int:
    """The number of posts of the class."""
    return posts.labels.sum()


# Scores of one timeline, of which the mean is taken over the timelines where they are defined.


def timeline_f1(posts: Posts) -> float:
    """F1; 1 where no post has the class and none is predicted as it (CLPsych 2026, task 2)."""
    return f1(posts, of_nothing=1.0)


def num_matches(posts: Posts) -> int:
    """
    How many predictions are at most one post away from a post of the class, where each prediction matches at most one
    post (Tsakalidis et al., 2022, section 5).
    """
    found = np.flatnonzero(posts.predictions).tolist()
    unmatched = list(found)
    for position in np.flatnonzero(posts.labels):
        # The earliest one, which leaves the later ones for later posts.
        match = next((other for other in unmatched if abs(other - position) <= 1), None)
        if match is not None:
            unmatched.remove(match)
    return len(found) - len(unmatched)


def window_precision(posts: Posts) -> float:
    """Precision where one post beside counts."""
    return share(num_matches(posts), posts.predictions.sum())


def window_recall(posts: Posts) -> float:
    """Recall where one post beside counts."""
    return share(num_matches(posts), posts.labels.sum())


def runs_of(is_class: np.ndarray) -> list[set[int]]:
    """The positions of each run of neighbouring posts with a class."""
    positions = np.flatnonzero(is_class)
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [set(run.tolist()) for run in runs if len(run)]


def coverage(runs: list[set[int]], others: list[set[int]]) -> float:
    """
    How well `others` cover `runs`; NaN without runs. A run counts with its length times its largest overlap
    (intersection over union) with one of the others (Tsakalidis et al., 2022, section 5).
    """
    if not runs:
        return math.nan
    overlaps = [max((len(run & other) / len(run | other) for other in others), default=0.0) for run in runs]
    return np.average(overlaps, weights=[len(run) for run in runs])


def coverage_precision(posts: Posts) -> float:
    """How well the runs of the class cover those that are predicted."""
    return coverage(runs_of(posts.predictions), runs_of(posts.labels))


def coverage_recall(posts: Posts) -> float:
    """How well the predicted runs cover those of the class."""
    return coverage(runs_of(posts.labels), runs_of(posts.predictions))


# Scores of all timelines together.


def timelines_of_half(timelines: list[Posts]) -> float:
    """How few timelines have half of the posts of the class among them; NaN if no post has it."""
    counts = np.array([posts.labels.sum() for posts in timelines])
    together = np.sort(counts)[::-1].cumsum()
    return np.searchsorted(together, counts.sum() / 2) + 1.0 if counts.any() else math.nan


def detection_delays(posts: Posts) -> list[tuple[float, float]]:
    """
    The delay of each run of the class in posts and seconds: from its first post to the first prediction of the class
    at or after it, but before the next run starts. NaN if it is missed.
    """
    starts = [min(run) for run in runs_of(posts.labels)]
    delays = []
    for start, end in zip(starts, [*starts[1:], len(posts.labels)], strict=False):
        late = next(iter(np.flatnonzero(posts.predictions[start:end])), None)
        seconds = math.nan if late is None else posts.times[start + late] - posts.times[start]
        delays.append((math.nan if late is None else late, seconds))
    return delays


def delays_of(timelines: list[Posts]) -> np.ndarray:
    """The delays of all runs in posts and seconds, shape (runs, 2)."""
    return np.array([delay for posts in timelines for delay in detection_delays(posts)], dtype=float).reshape(-1, 2)


def median(values: np.ndarray) -> float:
    """The median of the values that are defined; NaN without any."""
    defined = values[~np.isnan(values)]
    return np.median(defined) if len(defined) else math.nan


def median_delay_posts(timelines: list[Posts]) -> float:
    """The median delay in posts. Runs that are not found do not count."""
    return median(delays_of(timelines)[:, 0])


def median_delay_seconds(timelines: list[Posts]) -> float:
    """The median delay in seconds. Runs that are not found do not count."""
    return median(delays_of(timelines)[:, 1])


def missed(timelines: list[Posts]) -> float:
    """The share of the runs that are not found before the next one starts."""
    delays = delays_of(timelines)[:, 0]
    return share(np.isnan(delays).sum(), len(delays))


# The score of probabilities.


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """
    The mean distance between confidence, the probability of the most probable class, and accuracy over 15 bins of
    equal width, weighted by their posts (Guo et al., 2017, section 2). The edge of two bins is in the lower one.

    Args:
        probabilities (`np.ndarray` of shape `(posts, classes)`): Each row sums to 1.
        labels (`np.ndarray` of shape `(posts,)`): Class ids.
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bins = np.digitize(confidence, np.linspace(0, 1, NUM_BINS + 1)[1:-1], right=True)
    return np.abs(np.bincount(bins, weights=is_right - confidence)).sum() / len(labels)


@dataclass(frozen=True)
class Score:
    """
    A row of [`SCORES`]. The score has the name of its function.

    Args:
        compute (`Callable`): The function. NaN means that the score is not defined.
        of (`str`): What the function takes: `"posts"`, all posts as a class sees them; `"timeline"`, those of one
            timeline, and the score is the mean over the timelines in which it is defined; `"timelines"`, a list of
            all; `"probabilities"`, probabilities and labels, and there is one score for all classes.
        title (`str`, *optional*): Its name in tables. The mean over the classes is then another score, `macro_NAME`.
    """

    compute: Callable[..., float]
    of: str
    title: str | None = None

    @property
    def name(self) -> str:
        return self.compute.__name__

    @property
    def by_class(self) -> bool:
        """Whether there is one score for each class."""
        return self.of != "probabilities"

    @property
    def needs(self) -> str | None:
        """The input without which there is no such score."""
        return {"timeline": "timelines", "posts": None}.get(self.of, self.of)

    def of_class(self, posts: Posts, timelines: list[Posts]) -> float:
        """The score of a class, from all posts as it sees them and from those of each timeline."""
        if self.of == "timeline":
            scores = np.array([self.compute(timeline) for timeline in timelines])
            return share(np.nansum(scores), np.isfinite(scores).sum())
        return self.compute(posts if self.of == "posts" else timelines)


SCORES = (
    Score(precision, "posts", title="precision"),
    Score(recall, "posts", title="recall"),
    Score(f1, "posts", title="F1"),
    Score(support, "posts"),
    Score(timeline_f1, "timeline"),
    Score(timelines_of_half, "timelines"),
    Score(window_precision, "timeline"),
    Score(window_recall, "timeline"),
    Score(coverage_precision, "timeline"),
    Score(coverage_recall, "timeline"),
    Score(median_delay_posts, "timelines"),
    Score(median_delay_seconds, "timelines"),
    Score(missed, "timelines"),
    Score(expected_calibration_error, "probabilities", title="calibration error"),
)


class ChangeDetection(evaluate.Metric):
    """
    Args of `compute`, with one value for each post:
        predictions (`list[int]` or `list[list[int]]`): Predicted class ids, in one list or in rows. -1 is no
            prediction, which is wrong for every class.
        references (`list[int]` or `list[list[int]]`): Class ids. Posts with -100 have no label and are left out.
        timelines (`list`, *optional*): The timeline that each post is in, a number or a text. The posts of a timeline
            are in the order of time. Scores of timelines need it.
        times (`list[float]`, *optional*): Seconds since any moment. The posts of a timeline may then be in any order.
        probabilities (`list[list[float]]`, *optional*): The probability of each class. The calibration error needs it.
        label_names (`list[str]`, *optional*): Names of the classes in the order of their ids. Defaults to the ids.

    Where predictions and references come by `add_batch`, `compute` takes the others, of all posts.

    Returns:
        `dict[str, float]`: Each score of a class as `NAME_CLASS`, the means of precision, recall and F1 over the
        classes as `macro_NAME`, and `expected_calibration_error`. A score that is not defined is left out, all of them
        if no post has a label. Raises a `ValueError` for lists of other lengths, ids of no class, and probabilities
        that do not sum to 1.

    Example:
        >>> import evaluate
        >>> metric = evaluate.load("hub_cards/change_detection")
        >>> scores = metric.compute(
        ...     predictions=[0, 0, 1, 0, 1, 0],
        ...     references=[0, 1, 0, 0, 1, 1],
        ...     timelines=["a", "a", "a", "b", "b", "b"],
        ...     times=[0, 60, 90, 0, 30, 600],
        ...     label_names=["No", "Change"],
        ... )
        >>> [round(scores[f"{name}_Change"], 3) for name in ("f1", "window_recall", "coverage_recall", "missed")]
        [0.4, 0.75, 0.25, 0.0]
        >>> scores["median_delay_posts_Change"], scores["median_delay_seconds_Change"]
        (0.5, 15.0)
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Scores of predicted changes in timelines of posts.",
            citation=CITATION,
            inputs_description=inspect.getdoc(type(self)),
            features=[
                datasets.Features(predictions=ids, references=ids) for ids in (datasets.List(CLASS_ID), CLASS_ID)
            ],
            reference_urls=["https://arxiv.org/abs/2205.05593", "https://arxiv.org/abs/1706.04599"],
        )

    def _compute(
        self,
        predictions: list[int] | list[list[int]],
        references: list[int] | list[list[int]],
        timelines: Sequence[Any] | None = None,
        times: Sequence[float] | None = None,
        probabilities: Sequence[Sequence[float]] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> dict[str, float]:
        columns = {"predictions": flat(predictions), "references": flat(references)}
        columns |= {"timelines": timelines, "times": times, "probabilities": probabilities}
        columns = {name: np.asarray(values) for name, values in columns.items() if values is not None}
        labelled = columns["references"] != NO_LABEL
        for name, values in columns.items():
            if len(values) != len(labelled):
                raise ValueError(f"`{name}` has {len(values)} values for {len(labelled)} posts.")
        if not labelled.any():
            return {}
        if label_names is None:
            largest = max(columns["predictions"].max(), columns["references"].max())
            label_names = range(largest + 1 if probabilities is None else columns["probabilities"].shape[-1])
        check(columns, labelled, len(label_names))

        columns = {name: values[labelled] for name, values in columns.items()}
        predictions, labels = columns["predictions"], columns["references"]
        seconds = columns.get("times", np.full(len(labels), math.nan)).astype(np.float64)
        groups = by_timeline(columns["timelines"], seconds) if "timelines" in columns else []
        of_all = [Posts(labels == label, predictions == label, seconds) for label in range(len(label_names))]
        of_timelines = [[Posts(*(values[group] for values in posts)) for group in groups] for posts in of_all]
        means, scores = {}, {}
        for score in SCORES:
            if score.needs and score.needs not in columns:
                continue
            if not score.by_class:
                scores[score.name] = score.compute(columns["probabilities"], labels)
                continue
            of_classes = list(map(score.of_class, of_all, of_timelines))
            if score.title:
                means[f"macro_{score.name}"] = np.mean(of_classes)
            scores |= {f"{score.name}_{name}": value for name, value in zip(label_names, of_classes, strict=True)}
        # Numbers of Python, for JSON.
        scores = {name: np.asarray(score).item() for name, score in (means | scores).items()}
        return {name: score for name, score in scores.items() if not math.isnan(score)}


def flat(ids: list[int] | list[list[int]]) -> np.ndarray:
    """The ids of all posts, one row after the other if they come in rows."""
    in_rows = len(ids) and isinstance(ids[0], list)
    return np.array(list(chain.from_iterable(ids)) if in_rows else ids, dtype=np.int64)


def check(columns: dict[str, np.ndarray], labelled: np.ndarray, num_labels: int):
    """Raises a `ValueError` for a class that there is not, and for what are no probabilities of the classes."""
    for name, none in (("references", NO_LABEL), ("predictions", NO_PREDICTION)):
        ids = columns[name]
        for post in np.flatnonzero((ids != none) & ((ids < 0) | (ids >= num_labels)))[:1]:
            raise ValueError(f"`{name}[{post}]` is {ids[post]}: give a class from 0 to {num_labels - 1}, or {none}.")
    if "probabilities" in columns:
        probabilities = columns["probabilities"]
        if probabilities.shape[1:] != (num_labels,):
            raise ValueError(f"`probabilities` has shape {probabilities.shape}: give {num_labels} for each post.")
        are = (probabilities >= 0).all(axis=1) & np.isclose(probabilities.sum(axis=1), 1, atol=1e-3)
        for post in np.flatnonzero(labelled & ~are)[:1]:
            raise ValueError(f"`probabilities[{post}]` are negative or do not sum to 1. Are they logits?")


def by_timeline(timelines: np.ndarray, times: np.ndarray) -> list[np.ndarray]:
    """The places of the posts of each timeline, in the order of time; those of the same time as they are given."""
    _, numbers = np.unique(timelines, return_inverse=True)
    order = np.lexsort((times, numbers))
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
