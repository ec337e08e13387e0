"""Compares policies of alarms on held-out posts, each with the threshold that bounds its risk."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from modeling_tempoformer import (
    AlarmGoal,
    Timeline,
    bound_words,
    exceeds_risk,
    find_cases,
    measure_alarms,
    score_costs,
    unit_of,
)
from modeling_tempoformer.common.data_frames import split_values
from modeling_tempoformer.common.rounding import round_between

from .policy import RAISED, SECONDS, AlarmState, check_policy, follow, lag_of


DAY = 86_400  # seconds
# Sums of shares that differ by less are equal up to rounding.
LOSS_ROUNDING = 1e-9
# Folds of timelines, each measured by a threshold that was chosen on the others
PARTS = 5
# The most thresholds that are tried before the search halves the step between two of them
MOST_LEVELS = 120
# Without times, policies that count seconds are left out. An alarm ends below the `end_share` of its threshold.
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"mean_of": 2},
    {"mean_of": 3},
    {"wait_posts": 1},
    {"cooldown_posts": 3},
    {"cooldown_posts": 10},
    {"cooldown_seconds": DAY},
    {"cooldown_seconds": 7 * DAY},
    {"end_share": 0.5},
    {"mean_of": 2, "cooldown_posts": 3},
    {"wait_posts": 1, "cooldown_posts": 3},
)


class Rule(NamedTuple):
    """A policy and the threshold that it has."""

    threshold: float
    policy: dict[str, Any]


def at_threshold(policy: Mapping[str, Any], threshold: float) -> Rule:
    """Returns a policy with its threshold, its `end_share` as a probability."""
    policy = dict(policy)
    if (share := policy.pop("end_share", None)) is not None:
        policy["end_below"] = min(float(f"{share * threshold:.4g}"), threshold)
    return Rule(threshold, policy)


def check_candidate(policy: Mapping[str, Any], timed: bool):
    """Raises a `ValueError` for a policy of [`compare_policies`] that cannot be."""
    share = policy.get("end_share", 1.0)
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"`end_share` must be more than 0 and at most 1, got {share!r}.")
    if {"end_share", "end_below"} <= set(policy):
        raise ValueError("`end_share` and `end_below` are two ways to say one thing: give one of them.")
    check_policy({name: value for name, value in policy.items() if name != "end_share"}, 1.0, timed)


def follow_all(timelines: Sequence[Timeline], scores: np.ndarray, rule: Rule) -> np.ndarray:
    """Returns the events (posts,) of the labelled posts of timelines ([`follow`]), 0 of others."""
    events = []
    for timeline, values in zip(timelines, split_values(timelines, scores), strict=True):
        labelled = np.array(timeline.labels) >= 0
        times = None if timeline.timestamps is None else np.array(timeline.timestamps)[labelled].tolist()
        events.append(np.zeros(len(timeline), dtype=np.int64))
        events[-1][labelled] = follow(values[labelled].tolist(), times, *rule, AlarmState())
    return np.concatenate(events)


def compare_policies(
    timelines: Sequence[Timeline],
    scores: np.ndarray,
    label: int,
    goal: AlarmGoal,
    policies: Sequence[Mapping[str, Any]] = POLICIES,
    early: int = 0,
) -> list[dict[str, Any]]:
    """
    Compares policies that all keep the same bound on a risk.

    Args:
        timelines (`Sequence[Timeline]`): Timelines whose labelled posts the model was not trained on.
        scores (`np.ndarray` of shape `(posts,)`): The probability of the class.
        label (`int`): The id of the class.
        goal ([`AlarmGoal`]): A rate, or a share of missed changes.
        policies (`Sequence[dict]`, *optional*): Fields of [`~tempoformer_live.policy.follow`], or `end_share` in the
            place of `end_below`. Those that count seconds are left out where there are no times.
        early (`int`, *optional*, defaults to 0): The number of posts before a change in which an alarm is early.

    Returns:
        For each `policy` a dict of its `rule` ([`Rule`]), whose threshold all timelines have chosen, None if none
        keeps the bound: with too few timelines, or because the policy silences alarms that would find changes; and
        `measured`, the result of [`~evaluation.alarms.measure_alarms`] for thresholds of other timelines, five folds
        in turn (None with too few others), with the [`score_costs`] under `costs`.
    """
    timed = timelines[0].timestamps is not None
    units, _ = pd.factorize(pd.Series(list(map(unit_of, timelines)), dtype=object))
    labelled = np.concatenate([np.array(timeline.labels) >= 0 for timeline in timelines])
    found = []
    for policy in policies:
        if not timed and set(policy) & set(SECONDS) and policy in POLICIES:
            continue
        check_candidate(policy, timed)
        levels = [level for level in levels_of(scores[labelled]) if level >= policy.get("end_below", 0.0)]
        if not levels:
            raise ValueError(f"`end_below` {policy['end_below']} is more than any probability here.")
        late = lag_of(policy)
        judge = find_cases(goal, timelines, label, late).judge

        @cache
        def events_at(level: float, policy: Mapping[str, Any] = policy) -> np.ndarray:
            return follow_all(timelines, scores, at_threshold(policy, level))

        @cache
        def losses_at(level: float, judge: Callable = judge, events_at: Callable = events_at) -> np.ndarray:
            return unit_losses(judge(events_at(level) == RAISED), goal.kind, units.max() + 1)

        chosen = keeping(losses_at, levels, goal)
        rule = None if chosen is None else at_threshold(policy, chosen)
        row = {"policy": policy, "rule": rule, "measured": None}
        if chosen is not None:
            parts = np.repeat(units % PARTS, list(map(len, timelines)))
            of_unit = np.arange(units.max() + 1) % PARTS
            in_turn = {part: keeping(losses_at, levels, goal, of_unit != part) for part in set(parts)}
            if None not in in_turn.values() and len(in_turn) > 1:
                alarms, held_back = np.zeros((2, len(scores)), dtype=bool)
                for part, level in in_turn.items():
                    of_part = parts == part
                    alarms[of_part] = events_at(level)[of_part] == RAISED
                    held_back[of_part] = labelled[of_part] & (scores[of_part] >= level) & ~alarms[of_part]
                measured = measure_alarms(timelines, alarms, labelled, label, None, goal, late)
                costs = score_costs(timelines, alarms, label, measured, None, early, late, held_back)
                row["measured"] = measured | {"costs": costs}
        found.append(row)
    return found


def levels_of(scores: np.ndarray) -> list[float]:
    """Returns the thresholds between the scores (posts,) of posts, the largest first."""
    values = np.unique([0.0, *scores, 1.0])[::-1]
    return [round_between(low, high) for high, low in pairwise(values)]


def last_before(breaks: Callable[[float], bool], levels: Sequence[float]) -> int | None:
    """
    Returns the number of the last level before the first one that breaks, None if the first of all does. A grid finds
    it within a step, and halving the step exactly.
    """
    low, high = -1, len(levels)
    for high in np.unique(np.linspace(0, len(levels) - 1, MOST_LEVELS).astype(int)).tolist():
        if breaks(levels[high]):
            break
        low = high
    else:
        return low
    while low >= 0 and high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if breaks(levels[middle]) else (middle, high)
    return None if low < 0 else low


def unit_losses(judged: pd.DataFrame, kind: str, num_units: int) -> np.ndarray:
    """
    Returns the loss (units,) of each unit of timelines, NaN for one without a case. The cases are
    `judged` by their alarms.
    """
    broken = (judged["score"] > 0) == (kind == "rate")
    sums = np.bincount(judged["unit"], broken * judged["weight"], num_units)
    return np.where(np.isin(np.arange(num_units), judged["unit"]), sums, np.nan)


def keeping(
    losses_at: Callable[[float], np.ndarray],
    levels: Sequence[float],
    goal: AlarmGoal,
    units: np.ndarray | None = None,
) -> float | None:
    """
    Returns the last threshold that keeps a bound, None if there is none.

    Args:
        losses_at (`Callable[[float], np.ndarray]`): Returns the loss (units,) of each unit at a threshold, NaN for
            none.
        levels (`Sequence[float]`): The thresholds, the largest first.
        goal ([`AlarmGoal`]): The bound.
        units (`np.ndarray` of shape `(units,)`, *optional*): Which units count. All by default.

    A loss need not fall with each step of the threshold, as an alarm may silence the next one. So the threshold moves
    from the side without any loss, and stops before the first one that breaks the bound (Angelopoulos et al., 2024,
    section 2.3: the largest loss so far takes the place of the loss).
    """
    order = levels if goal.kind == "rate" else levels[::-1]
    is_counted = ~np.isnan(losses_at(order[0])) & (True if units is None else units)
    worst = np.zeros(is_counted.sum())

    def breaks(level: float) -> bool:
        nonlocal worst
        largest = np.maximum(worst, losses_at(level)[is_counted])
        if exceeds_risk(goal, largest.sum(), (largest**2).sum(), len(largest)):
            return True
        worst = largest
        return False

    number = last_before(breaks, order)
    return None if number is None else order[number]


def best_of(rows: Sequence[Mapping[str, Any]], goal: AlarmGoal) -> int | None:
    """
    Returns the number of the row of [`compare_policies`] with the best policy that kept the bound on other timelines:
    for a rate it finds most changes, for missed changes it has the fewest false alarms; of equal ones the first. None
    if no policy kept it.
    """
    measured = {number: row["measured"] for number, row in enumerate(rows) if row["measured"]}
    kept = [
        number for number, values in measured.items() if values["risk"].get("rate", 1.0) <= goal.share + LOSS_ROUNDING
    ]
    if goal.kind == "rate":
        return max(kept, key=lambda number: measured[number]["costs"].get("found_changes", 0.0), default=None)
    return min(kept, key=lambda number: measured[number]["costs"]["false_alarms"], default=None)


def policies_table(
    rows: Sequence[Mapping[str, Any]], timelines: Sequence[Timeline], name: str, goal: AlarmGoal
) -> str:
    """Returns the [`compare_policies`] of a class as a table, below a sentence on what was bounded and measured."""
    lines = {}
    for number, row in enumerate(rows, 1):
        rule, measured = row["rule"], row["measured"]
        if rule is None:
            # One that silences alarms misses changes at any threshold.
            lines[number] = {"policy": json.dumps(row["policy"]), "threshold": "none keeps it"}
            continue
        if measured is None:
            lines[number] = {"policy": json.dumps(rule.policy), "threshold": f"{rule.threshold:g}"}
            continue
        costs = measured["costs"]
        risk = measured["risk"]
        a_day = "false_alarms_per_day" in costs
        lines[number] = {
            "policy": json.dumps(rule.policy),
            "threshold": f"{rule.threshold:g}",
            "runs found": share_text(costs, "found_changes"),
            f"false alarms {'a day' if a_day else 'of 100 posts'}": share_text(
                costs, "false_alarms_per_day" if a_day else "false_alarms_per_hundred_posts", 2
            ),
            "delay, posts": share_text(costs, "median_alarm_delay_posts", 0),
            "rightly held back": share_text(costs, "recovery", 2),
            "lost cases": f"{risk['lost']} of {risk['cases']}" if "lost" in risk else "",
        }
    table = pd.DataFrame.from_dict(lines, orient="index").fillna("").to_string()
    posts = sum(label >= 0 for timeline in timelines for label in timeline.labels)
    where = f"{posts} held-out posts of {len(timelines)} timelines"
    words = f"Asked for: {bound_words(goal, name)}. Measured on the {where}, by thresholds of others:"
    words = f"{words}\n\n{table}\n\n"
    unlabelled = sum(map(len, timelines)) - posts
    if unlabelled:
        words += f"{unlabelled} posts without a label are passed over, but a policy in use counts them, too. "
    return f"{words}The best of several is chosen by what it is measured by: expect a little less of it."


def share_text(costs: Mapping[str, Any], name: str, digits: int = 3) -> str:
    """Returns a score with some decimals; empty where it is not defined."""
    return f"{costs[name]:.{digits}f}" if name in costs else ""
