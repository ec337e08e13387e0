"""
Chooses the alarm threshold that bounds a risk of new timelines: the rate of false alarms, or of missed changes.

Conformal risk control (Angelopoulos et al., 2024, "Conformal Risk Control", theorem 1) with whole timelines as the
units: if n timelines and a new one are exchangeable, each loses between 0 and 1, and the loss can only fall as the
threshold moves one way, then the expected loss of the new one is at most `rate` by the first threshold at which the n
lose at most `rate * (n + 1) - 1` together: the new one may lose 1. That bounds the mean over trainings, about half of
which are above it. For missed changes the n together may lose less, by a standard error where that is more than 1, so
that most trainings are below (Bates et al., 2021, "Distribution-free, Risk-controlling Prediction Sets").
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from ..posts.metadata import unit_of
from ..timeline_tempoformer import Timeline
from .alarm_goals import AlarmGoal
from .metrics import change_detection


# Sums of shares that differ by less are equal up to rounding.
LOSS_ROUNDING = 1e-9
DAY = 86_400  # seconds


class Cases(NamedTuple):
    """
    The cases whose risk a goal bounds.

    Attributes:
        units (`np.ndarray` of shape `(cases,)`): The number of each case's unit ([`~posts.metadata.unit_of`]).
        posts (`list[np.ndarray]`): The positions of its labelled posts among all posts, a case after the other.
    """

    units: np.ndarray
    posts: list[np.ndarray]

    def judge(self, scores: np.ndarray) -> pd.DataFrame:
        """
        Returns a table of the cases, with the largest `score` of its posts, by which a threshold raises an alarm in it
        or not; its `unit`; and its `weight`, as the cases of a unit share a weight of 1. `scores` (posts,) are of
        all posts.
        """
        firsts = np.cumsum([0, *map(len, self.posts)])[:-1]
        scores = np.asarray(scores, dtype=np.float64)
        best = np.maximum.reduceat(scores[np.concatenate(self.posts)], firsts) if self.posts else []
        cases = pd.DataFrame({"unit": self.units, "score": best})
        return cases.assign(weight=1 / cases.groupby("unit")["score"].transform("size"))


def find_cases(goal: AlarmGoal, timelines: Sequence[Timeline], label: int, late: int = 0) -> Cases:
    """
    Finds the cases whose risk a goal bounds.

    Args:
        goal ([`AlarmGoal`]): A rate, whose cases are the timelines with labels but none of the class, or such
            stretches of some days, counted from the first post of a timeline; or a share of missed changes, whose
            cases are the changes: runs of neighbouring labelled posts of the class.
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        label (`int`): The id of the class.
        late (`int`, *optional*, defaults to 0): The number of labelled posts after a change in which an alarm finds
            it, for a policy that waits.
    """
    units, _ = pd.factorize(pd.Series(list(map(unit_of, timelines)), dtype=object))
    found, start = [], 0
    for unit, timeline in zip(units, timelines, strict=True):
        labels = np.array(timeline.labels)
        posts, is_class = start + np.flatnonzero(labels >= 0), labels[labels >= 0] == label
        start += len(labels)
        if goal.kind == "missed":
            zones = change_detection().zones_of(is_class, 0, late)
            found += [(unit, posts[first:end]) for first, _, end in zones]
            continue
        stretches = np.zeros(len(posts))
        if goal.days is not None:
            times = np.array(timeline.timestamps)
            stretches = (times[labels >= 0] - times[0]) // (goal.days * DAY)
        for stretch in np.unique(stretches):
            if not is_class[stretches == stretch].any():
                found.append((unit, posts[stretches == stretch]))
    return Cases(np.array([unit for unit, _ in found], dtype=int), [posts for _, posts in found])


def least_units(rate: float) -> int:
    """Returns the smallest number of units that can keep a bound."""
    return math.ceil(1 / rate - 1 - LOSS_ROUNDING)


def exceeds_risk(
    goal: AlarmGoal, losses: float | np.ndarray, squares: float | np.ndarray, units: int
) -> bool | np.ndarray:
    """
    Tells whether units lose more than a bound allows.

    Args:
        goal ([`AlarmGoal`]): The bound.
        losses, squares (`float` or `np.ndarray`): The sum of the losses of the units, each from 0 to 1, and of the
            squares of these losses, at one threshold or at each of several.
        units (`int`): The number of units.

    Returns:
        `bool` or `np.ndarray`: The answer at each threshold.
    """
    margin = 1.0
    if goal.kind == "missed":
        # The standard error of the sum
        margin = np.maximum(1.0, np.sqrt(np.maximum(squares - losses**2 / units, 0.0)))
    return losses + margin > goal.share * (units + 1) + LOSS_ROUNDING


def edges_of(goal: AlarmGoal, cases: pd.DataFrame, scores: np.ndarray) -> tuple[float, float] | None:
    """
    Returns two numbers between which, the larger one included, each threshold keeps the bound, with the most alarms
    for a rate and the fewest for missed changes. None with fewer units than [`least_units`], and where the case that
    decides has a probability of 1, or of 0 for missed changes.

    Args:
        goal ([`AlarmGoal`]): The bound.
        cases (`pd.DataFrame`): The result of [`Cases.judge`].
        scores (`np.ndarray` of shape `(posts,)`): The probability of the class of all labelled posts.
    """
    units = cases["unit"].nunique()
    if units < least_units(goal.share):
        return None
    # From the case that loses first as the threshold moves
    cases = cases.sort_values("score", ascending=goal.kind == "missed")
    weights, losses = cases["weight"], cases.groupby("unit")["weight"].cumsum()
    sums = {"loss": weights.cumsum(), "square": (losses**2 - (losses - weights) ** 2).cumsum()}
    # Cases with the same score are lost together.
    lost = pd.DataFrame({"score": cases["score"], **sums}).groupby("score", sort=False).last()
    kept = lost.index[exceeds_risk(goal, lost["loss"].to_numpy(), lost["square"].to_numpy(), units)]
    levels = np.unique([0.0, *scores, 1.0])
    if goal.kind == "missed":
        # At the latest the first case that must not be missed has an alarm.
        high = kept[0] if len(kept) else 1.0
        below = levels[levels < high]
        return (float(below[-1]), float(high)) if len(below) else None
    low = kept[0] if len(kept) else 0.0
    above = levels[levels > low]
    return (float(low), float(above[0])) if len(above) else None


def measure_risk(
    goal: AlarmGoal, timelines: Sequence[Timeline], alarms: np.ndarray, label: int, late: int = 0
) -> dict[str, Any]:
    """
    Measures on timelines the risk that a goal bounds.

    Args:
        goal ([`AlarmGoal`]): The bound.
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        alarms (`np.ndarray` of shape `(posts,)`): Whether each post is an alarm.
        label, late (`int`): The class, and the number of labelled posts after a change in which an alarm finds it.

    Returns:
        The number of `cases`; `lost`, how many of them have an alarm in spite of no change, or are a change without
        one; the `rate` of these, the mean over units of the mean over their cases; and the interval `rate_interval`,
        of 95 %, if each unit has one case (Clopper and Pearson, 1934). Without a case only the first.
    """
    cases = find_cases(goal, timelines, label, late).judge(alarms)
    risk: dict[str, Any] = {"cases": len(cases)}
    if len(cases):
        is_lost = (cases["score"] > 0) == (goal.kind == "rate")
        risk |= {"lost": int(is_lost.sum())}
        risk["rate"] = float((is_lost * cases["weight"]).sum() / cases["weight"].sum())
        if (cases["weight"] == 1).all():
            interval = binomtest(risk["lost"], len(cases)).proportion_ci()
            risk["rate_interval"] = (float(interval.low), float(interval.high))
    return risk


def bound_words(goal: AlarmGoal, name: str) -> str:
    """
    Returns a bound in words, and that it is of the mean of timelines where that matters.

    Args:
        goal ([`AlarmGoal`]): A rate, or a share of missed changes.
        name (`str`): The name of the class.
    """
    most, days = f"at most {100 * goal.share:g} %", goal.days
    if goal.kind == "missed":
        return f"{most} of the runs of {name} are missed, in the mean of timelines that have one"
    cases = "timelines" if days is None else f"stretches of {days:g} days"
    words = f"{most} of the {cases} without {name} have an alarm"
    return words if days is None else f"{words}, in the mean of timelines"


def risk_words(risk: Mapping[str, Any]) -> str:
    """Returns the result of [`measure_risk`] in words."""
    if "rate" not in risk:
        return "for the rate asked for, nothing here is a case"
    words = f"for the rate asked for came {100 * risk['rate']:.1f} %, {risk['lost']} of {risk['cases']} cases"
    if "rate_interval" not in risk:
        return words
    low, high = (100 * end for end in risk["rate_interval"])
    return f"{words} (95 % interval {low:.1f} to {high:.1f})"
