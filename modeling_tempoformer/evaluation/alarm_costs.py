"""Scores alarms by the changes that they find and by what they cost, as `metrics/change_detection` does."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..common.data_frames import split_values
from ..posts.states import first_of
from ..timeline_tempoformer import Timeline
from .metrics import change_detection
from .significance import bootstrap_difference


PER_DAY, PER_HUNDRED = "false_alarms_per_day", "false_alarms_per_hundred_posts"


def score_costs(
    timelines: Sequence[Timeline],
    alarms: np.ndarray,
    label: int,
    measured: Mapping[str, Any],
    first_posts: str | None = None,
    early: int = 0,
    late: int = 0,
    held_back: np.ndarray | None = None,
) -> dict[str, Any]:
    """
    Scores alarms by changes, the runs of neighbouring labelled posts of a class, and by timelines.

    Args:
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        alarms (`np.ndarray` of shape `(posts,)`): Whether each post is an alarm.
        label (`int`): The id of the class that alarms are about.
        measured (`dict[str, Any]`): The [`measure_alarms`] of the same timelines.
        first_posts (`str`, *optional*): The field of the model's configuration, by which first posts are no alarms.
        early, late (`int`, *optional*, defaults to 0): The numbers of labelled posts before and after a change in
            which an alarm finds it.
        held_back (`np.ndarray` of shape `(posts,)`, *optional*): Whether the alarm of each post was held back.

    Returns:
        The scores of alarms of the metric, by name. The false alarms of a day, and of a hundred posts, also
        count posts without a label, as if they alarmed as often as the others, but not first posts that cannot be an
        alarm. `found_changes` and these two have an interval of 95 % (`NAME_interval`), by a bootstrap over timelines,
        unless all samples are equal. Values that are not defined are left out; all of them without a labelled post.
    """
    judged, sizes = [], []
    held_back = None if held_back is None else split_values(timelines, held_back)
    for number, (timeline, raised) in enumerate(zip(timelines, split_values(timelines, alarms), strict=True)):
        labels = np.array(timeline.labels)
        labelled = labels >= 0
        if labelled.any():
            times = np.full(len(labels), math.nan) if timeline.timestamps is None else np.array(timeline.timestamps)
            posts = change_detection().Posts(labels[labelled] == label, raised[labelled], times[labelled])
            back = None if held_back is None else held_back[number][labelled]
            judged.append(change_detection().judge_alarms(posts, early, late, back))
            sizes.append(labelled.sum())
    if not judged:
        return {}
    kinds = ("alarms",) if held_back is None else ("alarms", "held_back")
    costs = {score.name: score.compute(judged) for score in change_detection().SCORES if score.of in kinds}
    costs.pop(PER_DAY)
    found = [[np.isfinite(each.delays[:, 0]).sum(), len(each.delays)] for each in judged]
    costs["found_changes_interval"] = ratio_interval(found)
    false = [[each.is_false.sum(), size] for each, size in zip(judged, sizes, strict=True)]
    ends = ratio_interval(false)
    for name, rate in false_alarm_rates(timelines, measured, first_posts).items():
        costs[name] = costs["false_alarms"] * rate
        costs[f"{name}_interval"] = ends and tuple(float(end * sum(sizes) * rate) for end in ends)
    plain = {name: value if isinstance(value, tuple) else np.asarray(value).item() for name, value in costs.items()}
    return {name: value for name, value in plain.items() if value is not None and np.isfinite(value).all()}


def false_alarm_rates(
    timelines: Sequence[Timeline], measured: Mapping[str, Any], first_posts: str | None
) -> dict[str, float]:
    """
    Returns how many false alarms of a hundred posts, and with dates of a day, one false alarm among the labelled posts
    stands for. A day, in UTC, counts if somebody wrote on it. `measured` is the [`measure_alarms`] of the timelines,
    and `first_posts` the field of the model's configuration, by which first posts are no alarms.
    """
    can_alarm = [~first_of(timeline, first_posts)[timeline.num_context :] for timeline in timelines]
    share = np.concatenate(can_alarm).mean() / measured["posts"]
    rates = {PER_HUNDRED: 100 * share}
    if "posts_per_day" in measured:
        rates[PER_DAY] = measured["posts_per_day"] * share
    return {name: float(rate) for name, rate in rates.items()}


def ratio_interval(counts: Sequence[Sequence[int]]) -> tuple[float, float] | None:
    """
    Returns the interval of 95 % of a ratio of sums over timelines, by a bootstrap; None if all samples are equal. Each
    timeline has two `counts`.
    """
    if len(counts) < 2 or not np.any(counts, axis=0).all():
        return None
    pairs = np.array(counts, dtype=float)[None, :, :, None]
    low, high = bootstrap_difference(pairs, undefined=math.nan)["interval"]
    return (low, high) if low < high else None


def alarm_curve(
    timelines: Sequence[Timeline], scores: np.ndarray, label: int, early: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """
    Returns the number of false alarms (points,) and the share of changes found (points,) for alarms from each
    threshold on, from no alarm to the first threshold that finds all changes. There is at least one change.

    Args:
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        scores (`np.ndarray` of shape `(posts,)`): The probability of the class.
        label (`int`): The id of the class.
        early (`int`, *optional*, defaults to 0): The number of labelled posts before a change in which an alarm finds
            it.
    """
    best, others = [], []
    for timeline, scores_of in zip(timelines, split_values(timelines, scores), strict=True):
        labels = np.array(timeline.labels)
        scores_of, is_class = scores_of[labels >= 0], labels[labels >= 0] == label
        outside = np.ones(len(scores_of), dtype=bool)
        for first, _, end in change_detection().zones_of(is_class, early):
            # A change is found from the largest probability in it on.
            best.append(scores_of[first:end].max())
            outside[first:end] = False
        others.append(scores_of[outside])
    best, others = np.sort(best), np.sort(np.concatenate(others))
    thresholds = np.unique(np.concatenate([best, others[others >= best[0]]]))[::-1]
    found, false = (len(values) - np.searchsorted(values, thresholds) for values in (best, others))
    return np.append(0, false), np.append(0.0, found / len(best))
