"""
Scores of predicted changes and of alarms in timelines of posts.

A score is a function and a row of [`SCORES`]. The README in this folder has the formulas and their sources.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import Any, NamedTuple

import datasets
import evaluate
import numpy as np
import pandas as pd


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
DAY = 86_400  # seconds
# Integers would cut a probability to 0 before it can be refused.
CLASS_ID = datasets.Value("float64")


class Posts(NamedTuple):
    """
    Posts in the order of time, with the labels and predictions of one class.

    Attributes:
        labels (`np.ndarray` of shape `(posts,)`): True for posts of the class.
        predictions (`np.ndarray` of shape `(posts,)`): True for posts that are predicted as the class.
        times (`np.ndarray` of shape `(posts,)`): Seconds, NaN if they are unknown.
    """

    labels: np.ndarray
    predictions: np.ndarray
    times: np.ndarray


def share(part: float, whole: float, default: float = math.nan) -> float:
    """Returns `part / whole`, or the default if `whole` is 0."""
    return part / whole if whole else default


# Scores of all posts.


def precision(posts: Posts) -> float:
    """The share of the predictions that are right; 0 without predictions."""
    return share((posts.labels & posts.predictions).sum(), posts.predictions.sum(), 0.0)


def recall(posts: Posts) -> float:
    """The share of the posts of the class that are predicted as it; 0 without posts of the class."""
    return share((posts.labels & posts.predictions).sum(), posts.labels.sum(), 0.0)


def f1(posts: Posts, default: float = 0.0) -> float:
    """The harmonic mean of precision and recall; by default 0 without posts and predictions of the class."""
    hits = (posts.labels & posts.predictions).sum()
    return share(2 * hits, posts.labels.sum() + posts.predictions.sum(), default)


def support(posts: Posts) -> int:
    """The number of posts of the class."""
    return posts.labels.sum()


# Scores of one timeline. Their mean is taken over the timelines where they are defined.


def timeline_f1(posts: Posts) -> float:
    """F1 of a timeline; 1 without posts and predictions of the class (CLPsych 2026, task 2)."""
    return f1(posts, default=1.0)


def num_matches(posts: Posts) -> int:
    """
    Counts the predictions at most one post away from a post of the class. Each prediction matches at most one post
    (Tsakalidis et al., 2022, section 5).
    """
    predicted = np.flatnonzero(posts.predictions).tolist()
    unmatched = list(predicted)
    for position in np.flatnonzero(posts.labels):
        # The earliest prediction, which leaves later ones for later posts.
        match = next((other for other in unmatched if abs(other - position) <= 1), None)
        if match is not None:
            unmatched.remove(match)
    return len(predicted) - len(unmatched)


def window_precision(posts: Posts) -> float:
    """Precision that accepts a distance of one post."""
    return share(num_matches(posts), posts.predictions.sum())


def window_recall(posts: Posts) -> float:
    """Recall that accepts a distance of one post."""
    return share(num_matches(posts), posts.labels.sum())


def runs_of(is_class: np.ndarray) -> list[set[int]]:
    """Returns the positions of each run of neighbouring posts of a class."""
    positions = np.flatnonzero(is_class)
    runs = np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1)
    return [set(run.tolist()) for run in runs if len(run)]


def coverage(runs: list[set[int]], others: list[set[int]]) -> float:
    """
    Returns how well `others` cover `runs`: the mean over `runs` of the largest overlap (intersection over union) with
    one of the others, weighted by length (Tsakalidis et al., 2022, section 5). NaN without runs.
    """
    if not runs:
        return math.nan
    overlaps = [max((len(run & other) / len(run | other) for other in others), default=0.0) for run in runs]
    return np.average(overlaps, weights=[len(run) for run in runs])


def coverage_precision(posts: Posts) -> float:
    """The coverage of the predicted runs by the runs of the class."""
    return coverage(runs_of(posts.predictions), runs_of(posts.labels))


def coverage_recall(posts: Posts) -> float:
    """The coverage of the runs of the class by the predicted runs."""
    return coverage(runs_of(posts.labels), runs_of(posts.predictions))


# Scores of all timelines together.


def timelines_of_half(timelines: list[Posts]) -> float:
    """The smallest number of timelines that have half of the posts of the class; NaN without posts of the class."""
    counts = np.array([posts.labels.sum() for posts in timelines])
    cumulative = np.sort(counts)[::-1].cumsum()
    return np.searchsorted(cumulative, counts.sum() / 2) + 1.0 if counts.any() else math.nan


def timelines_without(timelines: list[Posts]) -> int:
    """The number of timelines without posts and predictions of the class, in which [`timeline_f1`] is 1."""
    return sum(not (posts.labels.any() or posts.predictions.any()) for posts in timelines)


def delays_of(timelines: list[Posts]) -> np.ndarray:
    """
    Returns the delays (runs, 2) of all runs in posts and seconds, from the first post of a run to the first prediction
    in it ([`judge_alarms`]); NaN for a run without one.
    """
    return all_delays([judge_alarms(posts) for posts in timelines])


def median(values: np.ndarray) -> float:
    """Returns the median of the values that are not NaN; NaN without such values."""
    defined = values[~np.isnan(values)]
    return np.median(defined) if len(defined) else math.nan


def median_delay_posts(timelines: list[Posts]) -> float:
    """The median delay in posts over the detected runs."""
    return median(delays_of(timelines)[:, 0])


def median_delay_seconds(timelines: list[Posts]) -> float:
    """The median delay in seconds over the detected runs."""
    return median(delays_of(timelines)[:, 1])


def missed(timelines: list[Posts]) -> float:
    """The share of the runs in which no post is predicted as the class."""
    return missed_changes([judge_alarms(posts) for posts in timelines])


# Scores of all classes but no change.


class Change(NamedTuple):
    """
    A class that is a change.

    Attributes:
        posts ([`Posts`]): All posts.
        timelines (`list[Posts]`): The posts of each timeline.
    """

    posts: Posts
    timelines: list[Posts]


def change_post_f1(changes: list[Change]) -> float:
    """The mean over the changes of F1 over all posts."""
    return share(sum(f1(change.posts) for change in changes), len(changes))


def change_timeline_f1(changes: list[Change]) -> float:
    """The mean over the changes of [`timeline_f1`], itself a mean over timelines."""
    return share(sum(np.mean(list(map(timeline_f1, change.timelines))) for change in changes), len(changes))


def change_f1(changes: list[Change]) -> float:
    """The mean of [`change_post_f1`] and [`change_timeline_f1`], by which CLPsych 2026, task 2, ranks."""
    return (change_post_f1(changes) + change_timeline_f1(changes)) / 2


# Scores of the alarms about one class. A change is a run of its posts.


class Alarms(NamedTuple):
    """
    The alarms in a timeline, as [`judge_alarms`] judges them.

    Attributes:
        delays (`np.ndarray` of shape `(changes, 2)`): From the first post of each change to the first alarm that finds
            it, in posts and seconds. They are negative for an early alarm, and NaN for a missed change.
        is_false (`np.ndarray` of shape `(posts,)`): True for alarms that find no change.
        has_alarm (`bool`): Whether there is any alarm.
        latency (`float`): The number of posts that are read from the first post of the first change to the first alarm
            that finds a change, both included, and at least 1; NaN without such an alarm.
        times (`np.ndarray` of shape `(posts,)`): Seconds, NaN if they are unknown.
        num_held_back (`int`): The number of posts whose alarm was held back.
        num_recovered (`int`): How many of them would be false alarms, less those that would find a missed change.
    """

    delays: np.ndarray
    is_false: np.ndarray
    has_alarm: bool
    latency: float
    times: np.ndarray
    num_held_back: int
    num_recovered: int


def zones_of(is_class: np.ndarray, early: int = 0, late: int = 0) -> list[tuple[int, int, int]]:
    """
    Returns for each change in a timeline the positions of the first post whose alarm finds it, up to `early` posts
    before it; of its own first post; and after the last post whose alarm finds it, up to `late` posts after it. A post
    between two changes that is late for one is not early for the next.
    """
    runs, zones, free = runs_of(is_class), [], 0
    starts = [*map(min, runs), len(is_class)]
    for start, following, run in zip(starts, starts[1:], runs, strict=False):
        end = min(max(run) + 1 + late, following)
        zones.append((max(free, start - early), start, end))
        free = end
    return zones


def judge_alarms(posts: Posts, early: int = 0, late: int = 0, held_back: np.ndarray | None = None) -> Alarms:
    """
    Judges the alarms in a timeline.

    Args:
        posts ([`Posts`]): The labelled posts of the timeline, with alarms as predictions.
        early, late (`int`, *optional*, defaults to 0): The numbers of posts before and after a change in which an
            alarm finds it.
        held_back (`np.ndarray` of shape `(posts,)`, *optional*): Whether each alarm was held back.
    """
    held_back = np.zeros(len(posts.labels), bool) if held_back is None else held_back
    is_false, recovers = posts.predictions.copy(), held_back.astype(int)
    zones, delays, latency = zones_of(posts.labels, early, late), [], math.nan
    for first, start, end in zones:
        alarms = first + np.flatnonzero(posts.predictions[first:end])
        is_false[first:end] = False
        recovers[first:end] *= 0 if len(alarms) else -1
        delays.append(
            (alarms[0] - start, posts.times[alarms[0]] - posts.times[start]) if len(alarms) else [math.nan] * 2
        )
        if len(alarms) and math.isnan(latency):
            latency = max(alarms[0] - zones[0][1] + 1, 1)
    delays = np.array(delays, dtype=float).reshape(-1, 2)
    counts = held_back.sum(), recovers.sum()
    return Alarms(delays, is_false, posts.predictions.any(), latency, posts.times, *counts)


def all_delays(timelines: list[Alarms]) -> np.ndarray:
    """Returns the delays (changes, 2) of all changes in posts and seconds."""
    return np.concatenate([alarms.delays for alarms in timelines])


def num_changes(timelines: list[Alarms]) -> int:
    """The number of changes."""
    return len(all_delays(timelines))


def found_changes(timelines: list[Alarms]) -> float:
    """The share of the changes that an alarm finds, in them, early or late."""
    return 1 - missed_changes(timelines)


def missed_changes(timelines: list[Alarms]) -> float:
    """The share of the changes that no alarm finds."""
    delays = all_delays(timelines)[:, 0]
    return share(np.isnan(delays).sum(), len(delays))


def false_alarms(timelines: list[Alarms]) -> int:
    """The number of alarms that find no change."""
    return sum(alarms.is_false.sum() for alarms in timelines)


def false_alarms_per_timeline(timelines: list[Alarms]) -> float:
    """The mean number of false alarms in a timeline."""
    return false_alarms(timelines) / len(timelines)


def false_alarms_per_day(timelines: list[Alarms]) -> float:
    """The number of false alarms divided by the number of days, in UTC, of all posts; NaN without times."""
    times = np.concatenate([alarms.times for alarms in timelines])
    return math.nan if np.isnan(times).any() else false_alarms(timelines) / len(np.unique(times // DAY))


def found_timelines(timelines: list[Alarms]) -> float:
    """The share of the timelines with a change in which an alarm finds one."""
    changed = [not math.isnan(alarms.latency) for alarms in timelines if len(alarms.delays)]
    return share(sum(changed), len(changed))


def falsely_alarmed_timelines(timelines: list[Alarms]) -> float:
    """The share of the timelines without a change in which there is an alarm."""
    calm = [alarms.has_alarm for alarms in timelines if not len(alarms.delays)]
    return share(sum(calm), len(calm))


def median_alarm_delay_posts(timelines: list[Alarms]) -> float:
    """The median over the found changes of the delay in posts."""
    return median(all_delays(timelines)[:, 0])


def median_alarm_delay_seconds(timelines: list[Alarms]) -> float:
    """The median over the found changes of the delay in seconds."""
    return median(all_delays(timelines)[:, 1])


def median_advance_posts(timelines: list[Alarms]) -> float:
    """The median over the changes that are found early of the number of posts from the alarm to the change."""
    delays = all_delays(timelines)[:, 0]
    return median(-delays[delays < 0])


def latency_f1(timelines: list[Alarms]) -> float:
    """
    F1 of timelines with a change, multiplied by the speed: 1 less the median penalty of the latencies, which is 0 for
    one post, and 0.5 for as many posts as the median timeline has (Sadeque et al., 2018; Losada et al., 2019). NaN
    without changes and alarms.
    """
    latencies = np.array([alarms.latency for alarms in timelines])
    hits = np.isfinite(latencies).sum()
    changed = sum(len(alarms.delays) > 0 for alarms in timelines)
    alarmed = hits + sum(alarms.has_alarm and not len(alarms.delays) for alarms in timelines)
    if not hits:
        return share(0, changed + alarmed)
    size = np.median([len(alarms.times) for alarms in timelines])
    rate = math.log(3) / (size - 1) if size > 1 else 0.0
    penalties = 2 / (1 + np.exp(-rate * (latencies - 1))) - 1
    return 2 * hits / (changed + alarmed) * (1 - median(penalties))


def recovery(timelines: list[Alarms]) -> float:
    """The held-back alarms that would be false, less those that would find a missed change, as a share of all."""
    counts = [(alarms.num_recovered, alarms.num_held_back) for alarms in timelines]
    return share(*np.sum(counts, axis=0))


# The score of probabilities.


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """
    The mean distance between confidence and accuracy over 15 bins of equal width, weighted by their number of posts
    (Guo et al., 2017, section 2). Confidence is the largest probability. An edge belongs to the lower bin.

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
        compute (`Callable`): The function. It returns NaN if the score is undefined.
        of (`str`): The input of the function: `"posts"`, the [`Posts`] of all timelines; `"timeline"`, the posts of
            one timeline, where the score is the mean over the timelines in which it is defined; `"timelines"`, a list
            with the posts of each timeline; for one score of all classes `"changes"`, the list of [`Change`] but
            without the class that is no change, `"alarms"` or `"held_back"`, a list with the [`Alarms`] of each
            timeline, or `"probabilities"`, probabilities and labels.
        title (`str`, *optional*): Name in tables. With a title, `macro_NAME` is the mean over the classes.
    """

    compute: Callable[..., float]
    of: str
    title: str | None = None

    @property
    def name(self) -> str:
        return self.compute.__name__

    @property
    def by_class(self) -> bool:
        """Returns whether there is one score for each class."""
        return self.of in ("posts", "timeline", "timelines")

    @property
    def needs(self) -> tuple[str, ...]:
        """The inputs that the score needs besides labels and predictions."""
        alarms = ("timelines", "alarms", "watched")
        kinds = {"timeline": ("timelines",), "posts": (), "changes": ("timelines", "no_change")}
        kinds |= {"alarms": alarms, "held_back": (*alarms, "held_back")}
        return kinds.get(self.of, (self.of,))

    def of_class(self, posts: Posts, timelines: list[Posts]) -> float:
        """Returns the score of a class, from all posts or from the posts of each timeline."""
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
    Score(timelines_without, "timelines"),
    Score(timelines_of_half, "timelines"),
    Score(window_precision, "timeline"),
    Score(window_recall, "timeline"),
    Score(coverage_precision, "timeline"),
    Score(coverage_recall, "timeline"),
    Score(median_delay_posts, "timelines"),
    Score(median_delay_seconds, "timelines"),
    Score(missed, "timelines"),
    Score(change_post_f1, "changes"),
    Score(change_timeline_f1, "changes"),
    Score(change_f1, "changes", title="F1 of changes"),
    Score(num_changes, "alarms"),
    Score(found_changes, "alarms"),
    Score(missed_changes, "alarms"),
    Score(false_alarms, "alarms"),
    Score(false_alarms_per_timeline, "alarms"),
    Score(false_alarms_per_day, "alarms"),
    Score(found_timelines, "alarms"),
    Score(falsely_alarmed_timelines, "alarms"),
    Score(median_alarm_delay_posts, "alarms"),
    Score(median_alarm_delay_seconds, "alarms"),
    Score(median_advance_posts, "alarms"),
    Score(latency_f1, "alarms"),
    Score(recovery, "held_back"),
    Score(expected_calibration_error, "probabilities", title="calibration error"),
)


class ChangeDetection(evaluate.Metric):
    """
    Computes the scores of [`SCORES`].

    Args of `compute`, with one value for each post:
        predictions (`list[int]` or `list[list[int]]`): Predicted class ids, in one list or in rows. -1 means
            no prediction, which is wrong for every class.
        references (`list[int]` or `list[list[int]]`): Class ids. Posts with -100 have no label and are left out.
        timelines (`list`, *optional*): The timeline that each post is in, a number or a text. The posts of a timeline
            are in the order of time. Scores of timelines need it.
        times (`list`, *optional*): Seconds since any moment, or dates: `datetime`, pandas' or NumPy's, in UTC where
            they have no zone. The posts of a timeline may then be in any order.
        probabilities (`list[list[float]]`, *optional*): The probability of each class. The calibration error needs it.
        label_names (`list[str]` or `dict`, *optional*): Names of the classes in the order of their ids, or by their
            ids, as `id2label` has them. Defaults to the ids.
        no_change (`str` or `int`, *optional*): The class that is no change, by its name in `label_names`. Scores of
            changes need it, and `timelines`.
        alarms (`list[bool]`, *optional*): Whether an alarm was raised at the post, which need not be predicted as the
            class. Scores of alarms need it, `timelines` and `watched`.
        watched (`str` or `int`, *optional*): The class that alarms are about, by its name in `label_names`.
        early, late (`int`, *optional*, defaults to 0): The numbers of posts before and after a change in which an
            alarm still finds it, and is not false.
        held_back (`list[bool]`, *optional*): Whether no alarm was raised at the post although its probability was
            large enough. The score `recovery` needs it.

    After `add_batch` with predictions and references, `compute` takes the other inputs, of all posts.

    Returns:
        `dict[str, float]`: Each score of a class as `NAME_CLASS`, the means of precision, recall and F1 over the
        classes as `macro_NAME`, `change_post_f1`, `change_timeline_f1` and their mean `change_f1`, the scores of
        alarms, and `expected_calibration_error`. Undefined scores are left out: all of them if no post has a label.
        Raises a `ValueError` for no posts, lists or rows of different lengths, numbers that are ids of no class, times
        that are neither numbers nor dates, names that are not one for each class, a `no_change` or `watched` that is
        none of them, alarms that are neither True nor False, an `early` or `late` below 0, and probabilities that do
        not sum to 1.

    Example:
        >>> import evaluate
        >>> metric = evaluate.load("metrics/change_detection")
        >>> scores = metric.compute(
        ...     predictions=[0, 0, 1, 0, 1, 0],
        ...     references=[0, 1, 0, 0, 1, 1],
        ...     timelines=["a", "a", "a", "b", "b", "b"],
        ...     times=[0, 60, 90, 0, 30, 600],
        ...     label_names=["No", "Change"],
        ... )
        >>> [round(scores[f"{name}_Change"], 3) for name in ("f1", "window_recall", "coverage_recall", "missed")]
        [0.4, 0.75, 0.25, 0.5]
        >>> scores["median_delay_posts_Change"], scores["median_delay_seconds_Change"]
        (0.0, 0.0)
    """

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Scores of predicted changes in timelines of posts.",
            citation=CITATION,
            inputs_description=inspect.getdoc(type(self)),
            features=[
                datasets.Features(predictions=ids, references=ids) for ids in (datasets.List(CLASS_ID), CLASS_ID)
            ],
            reference_urls=[
                "https://arxiv.org/abs/2205.05593",
                "https://arxiv.org/abs/1706.04599",
                "https://doi.org/10.1145/3159652.3159725",
                "https://github.com/Maria-Liakata-NLP-Group/CLPsych-2026",
            ],
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None, **kwargs):
        """Collects posts as the library does, which finds their form in the first one. Refuses an empty batch."""
        if predictions is not None and len(predictions) == 0:
            raise ValueError("There are no posts to score: `predictions` is empty.")
        super().add_batch(predictions=predictions, references=references, **kwargs)

    def _compute(
        self,
        predictions: list[float] | list[list[float]],
        references: list[float] | list[list[float]],
        timelines: Sequence[Any] | None = None,
        times: Sequence[Any] | None = None,
        probabilities: Sequence[Sequence[float]] | None = None,
        label_names: Sequence[str] | Mapping[int | str, str] | None = None,
        no_change: str | int | None = None,
        alarms: Sequence[bool] | None = None,
        watched: str | int | None = None,
        early: int = 0,
        late: int = 0,
        held_back: Sequence[bool] | None = None,
    ) -> dict[str, float]:
        check_rows(predictions, references)
        columns = {"predictions": flat("predictions", predictions), "references": flat("references", references)}
        columns |= {"timelines": timelines, "times": None if times is None else to_seconds(times)}
        columns |= {"probabilities": probabilities, "alarms": alarms, "held_back": held_back}
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
        label_names = in_order(label_names)
        for name, chosen in (("no_change", no_change), ("watched", watched)):
            if chosen is not None and chosen not in label_names:
                raise ValueError(f"`{name}` must be one of the classes {label_names}, got {chosen!r}.")
        for name, number in (("early", early), ("late", late)):
            if number < 0:
                raise ValueError(f"`{name}` is a number of posts, 0 or more, got {number}.")
        check(columns, labelled, len(label_names))

        columns = {name: values[labelled] for name, values in columns.items()}
        predictions, labels = columns["predictions"], columns["references"]
        seconds = columns.get("times", np.full(len(labels), math.nan))
        groups = by_timeline(columns["timelines"], seconds) if "timelines" in columns else []
        all_posts = [Posts(labels == label, predictions == label, seconds) for label in range(len(label_names))]
        by_group = [[Posts(*(values[group] for values in posts)) for group in groups] for posts in all_posts]
        changes = [
            Change(*of_class)
            for name, *of_class in zip(label_names, all_posts, by_group, strict=True)
            if name != no_change
        ]
        judged = []
        if "alarms" in columns and watched is not None:
            watch = Posts(labels == label_names.index(watched), columns["alarms"].astype(bool), seconds)
            held_back = columns.get("held_back", np.zeros(len(labels))).astype(bool)
            judged = [
                judge_alarms(Posts(*(v[group] for v in watch)), early, late, held_back[group]) for group in groups
            ]
        options = {"no_change": no_change, "watched": watched}
        given = {*columns, *(name for name, chosen in options.items() if chosen is not None)}
        means, scores = {}, {}
        for score in SCORES:
            if not given.issuperset(score.needs):
                continue
            if not score.by_class:
                inputs = {"changes": (changes,), "alarms": (judged,), "held_back": (judged,)}
                scores[score.name] = score.compute(*inputs.get(score.of, (columns.get("probabilities"), labels)))
                continue
            class_scores = list(map(score.of_class, all_posts, by_group))
            if score.title:
                means[f"macro_{score.name}"] = np.mean(class_scores)
            scores |= {f"{score.name}_{name}": value for name, value in zip(label_names, class_scores, strict=True)}
        # Python numbers, for JSON.
        scores = {name: np.asarray(score).item() for name, score in (means | scores).items()}
        return {name: score for name, score in scores.items() if not math.isnan(score)}


def check_rows(predictions: list[float] | list[list[float]], references: list[float] | list[list[float]]):
    """Raises a `ValueError` without posts, and for rows of different lengths, if posts are in rows."""
    in_rows = isinstance(references[0], list)
    for row, (given, wanted) in enumerate(zip(predictions, references, strict=True) if in_rows else ()):
        if len(given) != len(wanted):
            raise ValueError(f"`predictions[{row}]` has {len(given)} values for {len(wanted)} posts of its row.")
    if in_rows and not any(map(len, references)):
        raise ValueError("There are no posts to score: all rows are empty.")


def flat(name: str, ids: list[float] | list[list[float]]) -> np.ndarray:
    """
    Returns the ids of all posts in one array, row by row if they are in rows. Raises a `ValueError` for numbers that
    are not whole, such as probabilities.
    """
    numbers = np.array(list(chain.from_iterable(ids)) if isinstance(ids[0], list) else ids, dtype=np.float64)
    for post in np.flatnonzero(~(numbers % 1 == 0))[:1]:
        raise ValueError(
            f"`{name}[{post}]` is {numbers[post]:g}, which is no class id. Are these probabilities? Give the id of "
            "the class that is chosen, and probabilities as `probabilities`."
        )
    return numbers.astype(np.int64)


def to_seconds(times: Sequence[Any]) -> np.ndarray:
    """Returns times in seconds (posts,). Raises a `ValueError` for times that are neither numbers nor dates."""
    values = np.asarray(times)
    if values.dtype.kind == "O" and all(isinstance(time, date | np.datetime64) for time in values):
        # All in UTC: without a zone Python would take the clock of this machine.
        values = pd.to_datetime(values, utc=True).tz_localize(None).to_numpy()
    if values.dtype.kind == "M":
        values = values - np.datetime64(0, "s")
    if values.dtype.kind == "m":
        values = values / np.timedelta64(1, "s")
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`times` must be numbers of seconds, or dates as `datetime`, got {values[0]!r}.") from None


def in_order(label_names: Sequence[str] | Mapping[int | str, str]) -> list[str]:
    """Returns the names of the classes in the order of their ids. Raises a `ValueError` unless each class has one."""
    names = list(label_names)
    if isinstance(label_names, Mapping):
        # JSON has ids as texts.
        by_id = {str(label): name for label, name in label_names.items()}
        names = [by_id.get(str(label)) for label in range(len(label_names))]
    if None in names or len(set(names)) < len(names):
        raise ValueError(f"`label_names` must be a different name for each class id from 0, got {label_names}.")
    return names


def check(columns: dict[str, np.ndarray], labelled: np.ndarray, num_labels: int):
    """
    Raises a `ValueError` for the id of no class, missing times, alarms that are neither true nor false, and values
    that are not probabilities of the classes.
    """
    for name, none in (("references", NO_LABEL), ("predictions", NO_PREDICTION)):
        ids = columns[name]
        for post in np.flatnonzero((ids != none) & ((ids < 0) | (ids >= num_labels)))[:1]:
            raise ValueError(f"`{name}[{post}]` is {ids[post]}: give a class from 0 to {num_labels - 1}, or {none}.")
    if "times" in columns:
        for post in np.flatnonzero(labelled & ~np.isfinite(columns["times"]))[:1]:
            raise ValueError(f"`times[{post}]` is missing or infinite: give all posts a time, or none.")
    for name in {"alarms", "held_back"} & set(columns):
        for post in np.flatnonzero(~np.isin(columns[name], [0, 1]))[:1]:
            raise ValueError(f"`{name}[{post}]` is {columns[name][post]!r}: give True or False.")
    if "probabilities" in columns:
        probabilities = columns["probabilities"]
        if probabilities.shape[1:] != (num_labels,):
            raise ValueError(f"`probabilities` has shape {probabilities.shape}: give {num_labels} for each post.")
        valid = (probabilities >= 0).all(axis=1) & np.isclose(probabilities.sum(axis=1), 1, atol=1e-3)
        for post in np.flatnonzero(labelled & ~valid)[:1]:
            raise ValueError(f"`probabilities[{post}]` are negative or do not sum to 1. Are they logits?")


def by_timeline(timelines: np.ndarray, times: np.ndarray) -> list[np.ndarray]:
    """Returns the positions of the posts of each timeline, sorted by time. Equal times keep their order."""
    _, numbers = np.unique(timelines, return_inverse=True)
    order = np.lexsort((times, numbers))
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
