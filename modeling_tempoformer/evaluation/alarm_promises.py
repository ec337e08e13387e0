"""
Chooses the alarm threshold that keeps a promise about new timelines: the rate of false alarms, or of missed changes.

Conformal risk control (Angelopoulos et al., 2024, "Conformal Risk Control", theorem 1) with whole timelines as the
units: if n timelines and a new one are exchangeable, each loses between 0 and 1, and the loss can only fall as the
threshold moves one way, then the expected loss of the new one is at most `rate` by the first threshold at which the n
lose at most `rate * (n + 1) - 1` together.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from ..posts.facts import unit_of
from ..timeline_tempoformer import Timeline
from .predictions import all_labels, timeline_numbers


# Sums of shares that differ by less are equal up to rounding.
TOLERANCE = 1e-9
PROMISES = ("alarm_rate", "miss_rate")
DAY = 86_400  # seconds


def judged_cases(
    kind: str, timelines: Sequence[Timeline], scores: np.ndarray, label: int, days: float | None = None
) -> pd.DataFrame:
    """
    Lists the cases that a promise is about.

    Args:
        kind (`str`): `"alarm_rate"`, whose cases are the timelines with labels none of which is the class, or such
            stretches of some days; or `"miss_rate"`, whose cases are the changes: runs of neighbouring labelled posts
            of the class.
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        scores (`np.ndarray` of shape `(posts,)`): The probability of the class.
        label (`int`): The id of the class.
        days (`float`, *optional*): The length of the stretches that an alarm rate is about, counted from the first
            post of a timeline. By default they are whole timelines.

    Returns:
        `pd.DataFrame`: A row for each case, with the largest `score` of its labelled posts, by which a threshold
        raises an alarm in it or not; its `unit`, whose cases share a weight of 1 ([`~posts.facts.unit_of`]); and its
        `weight`.
    """
    labels, numbers = all_labels(timelines), timeline_numbers(timelines)
    units, _ = pd.factorize(pd.Series(list(map(unit_of, timelines)), dtype=object))
    posts = pd.DataFrame({"unit": units[numbers], "timeline": numbers, "score": np.asarray(scores, dtype=np.float64)})
    posts["stretch"] = 0
    if days is not None:
        posts["stretch"] = np.concatenate(
            [(np.array(own.timestamps) - own.timestamps[0]) // (days * DAY) for own in timelines]
        )
    posts["is_class"] = labels == label
    posts = posts[labels >= 0]
    if kind == "alarm_rate":
        cases = posts.groupby(["unit", "timeline", "stretch"], as_index=False).agg(
            score=("score", "max"), is_class=("is_class", "any")
        )
        cases = cases[~cases["is_class"]]
    else:
        neighbours = (posts["is_class"] != posts["is_class"].shift()) | (
            posts["timeline"] != posts["timeline"].shift()
        )
        runs = posts.assign(run=neighbours.cumsum())[posts["is_class"]]
        cases = runs.groupby(["unit", "run"], as_index=False).agg(score=("score", "max"))
    cases = cases[["unit", "score"]].reset_index(drop=True)
    return cases.assign(weight=1 / cases.groupby("unit")["score"].transform("size"))


def least_units(rate: float) -> int:
    """Returns the smallest number of units that can keep a promise."""
    return math.ceil(1 / rate - 1 - TOLERANCE)


def edges_of(kind: str, cases: pd.DataFrame, scores: np.ndarray, rate: float) -> tuple[float, float] | None:
    """
    Returns two numbers between which, the larger one included, each threshold keeps a promise; of all that do, those
    that raise the most alarms for an alarm rate and the fewest for a miss rate. None with fewer units than
    [`least_units`], and where all posts of a case have a probability of 1.

    Args:
        kind (`str`), cases (`pd.DataFrame`): The argument and the result of [`judged_cases`].
        scores (`np.ndarray` of shape `(posts,)`): The probability of the class of all labelled posts.
        rate (`float`): The promised rate, more than 0 and less than 1.
    """
    budget = rate * (cases["unit"].nunique() + 1) - 1
    if budget < -TOLERANCE:
        return None
    # From the case that loses first as the threshold moves
    lost = cases.groupby("score")["weight"].sum().sort_index(ascending=kind == "miss_rate")
    kept = lost.index[lost.cumsum() > budget + TOLERANCE]
    levels = np.unique([0.0, *scores, 1.0])
    if kind == "miss_rate":
        # At the latest the first case that must not be missed has an alarm.
        high = kept[0] if len(kept) else 1.0
        return float(levels[levels < high][-1]), float(high)
    low = kept[0] if len(kept) else 0.0
    above = levels[levels > low]
    return (float(low), float(above[0])) if len(above) else None


def promise_facts(
    kind: str, timelines: Sequence[Timeline], alarms: np.ndarray, label: int, days: float | None = None
) -> dict[str, Any]:
    """
    Measures on timelines what was promised.

    Args:
        kind, timelines, label, days: Arguments of [`judged_cases`].
        alarms (`np.ndarray` of shape `(posts,)`): Whether each post is an alarm.

    Returns:
        `promised_of`, the number of cases; `broken`, how many of them have an alarm in spite of no change, or are a
        change without one; the `rate` of these, the mean over units of the mean over their cases; and the interval
        `rate_interval`, of 95 %, if each unit has one case (Clopper and Pearson, 1934). Without a case only the
        first.
    """
    cases = judged_cases(kind, timelines, alarms, label, days)
    facts: dict[str, Any] = {"promised_of": len(cases)}
    if len(cases):
        is_broken = (cases["score"] > 0) == (kind == "alarm_rate")
        facts |= {"broken": int(is_broken.sum())}
        facts["rate"] = float((is_broken * cases["weight"]).sum() / cases["weight"].sum())
        if (cases["weight"] == 1).all():
            interval = binomtest(facts["broken"], len(cases)).proportion_ci()
            facts["rate_interval"] = (float(interval.low), float(interval.high))
    return facts


def promise_words(kind: str, rate: float, name: str, days: float | None = None) -> str:
    """Returns in words a promise about the class `name`, and that it is of people's mean where that matters."""
    if kind == "miss_rate":
        return f"at most {100 * rate:g} % of the runs of {name} are missed, in the mean of timelines that have one"
    cases = "timelines" if days is None else f"stretches of {days:g} days"
    return f"at most {100 * rate:g} % of the {cases} without {name} have an alarm"


def kept_words(facts: Mapping[str, Any]) -> str:
    """Returns in words what came of a promise, from [`promise_facts`]."""
    if "rate" not in facts:
        return "there is none here"
    words = f"here {facts['broken']} of {facts['promised_of']}, {100 * facts['rate']:.1f} %"
    if "rate_interval" not in facts:
        return words
    low, high = (100 * end for end in facts["rate_interval"])
    return f"{words} (95 % interval {low:.1f} to {high:.1f})"
