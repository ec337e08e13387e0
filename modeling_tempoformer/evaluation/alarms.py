"""
Chooses the alarm threshold of the watched class, for a wanted precision or recall or a bounded risk, and measures
alarms.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedConfig

from ..common.rounding import round_between
from ..decisions_tempoformer import class_alarm
from ..posts.metadata import unit_of
from ..posts.states import first_of
from ..timeline_tempoformer import Timeline
from ..times_tempoformer import are_since_start
from .alarm_costs import score_costs
from .alarm_goals import AlarmGoal
from .predictions import Predictions, alarms_of, all_labels, labelled_posts, timeline_numbers
from .risk_control import (
    DAY,
    bound_words,
    edges_of,
    find_cases,
    least_units,
    measure_risk,
    risk_words,
)
from .significance import bootstrap_difference


FEW_ALARMS = 10
# Shares that differ by less are equal up to rounding.
SCORE_ROUNDING = 1e-12
ASSUMPTION = (
    "The rate asked for is of new timelines that come as these did (exchangeable) and of their labelled posts; a "
    "test of few timelines is above it or below by chance."
)
OTHER = {"precision": "recall", "recall": "precision"}
# Folds of timelines, each judged by a threshold that was chosen on the others
PARTS = 5


def choose_alarm(
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    label: int | None,
    goal: AlarmGoal,
    first_posts: str | None = None,
) -> dict[str, Any]:
    """
    Chooses the alarm of a calibration.

    Args:
        timelines (`Sequence[Timeline]`): Timelines whose labelled posts the model was not trained on.
        predictions, probabilities (`np.ndarray`): The results of [`decide_posts`] with the temperature of the
            calibration.
        names (`list[str]`): The classes in the order of their ids.
        label (`int`, *optional*): The id of the watched class.
        goal ([`AlarmGoal`]): A precision or a recall ([`choose_threshold`]), or a bound on a risk
            ([`~evaluation.risk_control.find_cases`]).
        first_posts (`str`, *optional*): The field of the model's configuration, by which first posts are no alarms.

    Returns:
        `label`, the `threshold`, the spelling of the goal (`wanted`), and if there are several folds `measured`, the
        [`measure_alarms`] on the same posts by thresholds of other folds ([`alarms_in_turn`]). Raises the errors of
        [`choose_threshold`], and a `ValueError` without a class, with fewer timelines than a bound needs, and for
        days without times.
    """
    if label is None:
        raise ValueError(f"--alarm {goal} needs a class to watch, and the model has none: give --watch.")
    posts = labelled_posts(timelines, predictions, names, probabilities)
    if goal.bounds_risk:
        check_cases(timelines, label, names[label], goal)
        threshold = find_threshold(timelines, probabilities[:, label], label, goal)
        if threshold is None:
            raise ValueError(f"No threshold has --alarm {goal}: too many posts have a probability of 0 or 1.")
    else:
        threshold = choose_threshold(posts, label, goal)
    alarm = {"label": label, "threshold": threshold, "wanted": str(goal)}
    alarms = alarms_in_turn(timelines, probabilities[:, label], label, goal)
    if alarms is not None:
        alarm["measured"] = measure_alarms(timelines, alarms, predictions >= 0, label, first_posts, goal)
    return alarm


def check_cases(timelines: Sequence[Timeline], label: int, name: str, goal: AlarmGoal):
    """
    Raises a `ValueError` if there are too few timelines to keep a bound, with what would be needed, and for days
    without times.

    Args:
        timelines (`Sequence[Timeline]`): Held-out timelines, some of whose posts have labels.
        label (`int`): The id of the class that alarms are about.
        name (`str`): Its name.
        goal ([`AlarmGoal`]): A rate, or a share of missed changes.
    """
    if goal.days is not None and timelines[0].timestamps is None:
        raise ValueError(f"--alarm {goal} counts days, and the posts have no times: leave out the days.")
    held_out = len(np.unique(find_cases(goal, timelines, label).units))
    with_out = "with" if goal.kind == "missed" else "without"
    if held_out < least_units(goal.share):
        least = replace(goal, share=math.ceil(1000 / (held_out + 1)) / 1000)
        possible = f"give --alarm {least} or more, or " if held_out else ""
        raise ValueError(
            f"--alarm {goal} needs {least_units(goal.share)} held-out timelines {with_out} {name}, and there "
            f"are {held_out}: {possible}label more timelines."
        )


def find_threshold(timelines: Sequence[Timeline], scores: np.ndarray, label: int, goal: AlarmGoal) -> float | None:
    """
    Returns the threshold for a goal on the labelled posts of timelines, None if there is none.

    Args:
        timelines (`Sequence[Timeline]`): Timelines whose labelled posts the model was not trained on.
        scores (`np.ndarray` of shape `(posts,)`): The probability of the class.
        label (`int`): The id of the class.
        goal ([`AlarmGoal`]): A precision, a recall, or a bound on a risk.
    """
    labels, scores = all_labels(timelines), scores.astype(np.float64)
    labelled = labels >= 0
    if goal.bounds_risk:
        edges = edges_of(goal, find_cases(goal, timelines, label).judge(scores), scores[labelled])
        return None if edges is None else round_between(*edges)
    is_class = labels[labelled] == label
    cuts = cut_shares(scores[labelled], is_class) if is_class.any() else None
    chosen = None if cuts is None else choose_cut(cuts, goal.kind, goal.share)
    return None if chosen is None else threshold_at(cuts, chosen)


def choose_threshold(posts: Predictions, label: int, goal: AlarmGoal) -> float:
    """
    Returns the smallest probability that makes a post an alarm, for a wanted precision or recall on held-out posts.
    Among thresholds with the precision it has the largest recall, among those with the recall the fewest alarms. It
    lies well between the probabilities of two posts, and has as few digits as that allows.

    Args:
        posts ([`Predictions`]): Labelled posts that the model was not trained on, with probabilities.
        label (`int`): The id of the class.
        goal ([`AlarmGoal`]): A precision or a recall.

    Raises a `ValueError` if no post has the class, and for a precision that no threshold gives, with the best one.
    """
    scores, is_class = np.asarray(posts.probabilities, dtype=np.float64)[:, label], posts.labels == label
    if not is_class.any():
        raise ValueError(f"None of the {len(scores)} held-out posts is {posts.names[label]}: no alarm can be judged.")
    cuts = cut_shares(scores, is_class)
    if (chosen := choose_cut(cuts, goal.kind, goal.share)) is None:
        best = int(np.flatnonzero(cuts[goal.kind] >= cuts[goal.kind].max() - SCORE_ROUNDING)[-1])
        raise ValueError(
            f"No threshold gives {posts.names[label]} a precision of {goal.share:g} on the {len(scores)} held-out "
            f"posts: the best is {cuts['precision'][best]:.3f}, from a probability of {cuts['score'][best]:.4f} on "
            f"({cuts['alarms'][best]} alarms, recall {cuts['recall'][best]:.3f}). Want less; after a training, the "
            "same command with a lower --alarm precision trains nothing again."
        )
    return threshold_at(cuts, chosen)


def alarms_in_turn(
    timelines: Sequence[Timeline], scores: np.ndarray, label: int, goal: AlarmGoal
) -> np.ndarray | None:
    """
    Returns whether each post (posts,) is an alarm by a threshold that was chosen on other timelines (cross-fitting):
    on the posts that a threshold was chosen on, the wanted share is reached in any case. The folds are the held-out
    folds of the members, or else five; each is judged by the threshold of all others, and has no alarm if these have
    no threshold. None if there is one fold only, and if the others of one are too few for a bound.

    Args:
        timelines (`Sequence[Timeline]`): Timelines whose labelled posts the model was not trained on.
        scores (`np.ndarray` of shape `(posts,)`): The probability of the class.
        label (`int`): The id of the class.
        goal ([`AlarmGoal`]): A precision, a recall, or a bound on a risk.
    """
    units, _ = pd.factorize(pd.Series(list(map(unit_of, timelines)), dtype=object))
    parts = [
        unit % PARTS if timeline.held_out is None else timeline.held_out
        for unit, timeline in zip(units, timelines, strict=True)
    ]
    if len(set(parts)) < 2:
        return None
    of_post, scores = np.repeat(parts, list(map(len, timelines))), scores.astype(np.float64)
    alarms = np.zeros(len(scores), dtype=bool)
    for part in set(parts):
        others = [timeline for timeline, fold in zip(timelines, parts, strict=True) if fold != part]
        threshold = find_threshold(others, scores[of_post != part], label, goal)
        if threshold is None and goal.bounds_risk:
            return None
        if threshold is not None:
            alarms |= (of_post == part) & (scores >= threshold)
    return alarms


def threshold_at(cuts: Mapping[str, np.ndarray], chosen: int) -> float:
    """Returns the threshold of one of [`cut_shares`]."""
    below = cuts["score"][chosen + 1] if chosen + 1 < len(cuts["score"]) else 0.0
    return round_between(below, cuts["score"][chosen])


def cut_shares(scores: np.ndarray, is_class: np.ndarray) -> dict[str, np.ndarray]:
    """
    Returns, for each distinct score of posts (posts,), from the largest on: the `score`, and of alarms for all posts
    that have as much the number (`alarms`), `precision` and `recall`.
    """
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], is_class[order].cumsum()
    # Posts with equal probabilities cannot be separated: an alarm for one is an alarm for all of them.
    ends = np.flatnonzero(np.diff(scores, append=-1.0))
    shares = {"precision": hits[ends] / (ends + 1), "recall": hits[ends] / hits[-1]}
    return {"score": scores[ends], "alarms": ends + 1, **shares}


def choose_cut(cuts: Mapping[str, np.ndarray], kind: str, least: float) -> int | None:
    """Returns the index of the best of [`cut_shares`] with a least precision or recall, None if there is none."""
    enough = np.flatnonzero(cuts[kind] >= least - SCORE_ROUNDING)
    return int(enough[-1 if kind == "precision" else 0]) if len(enough) else None


def measure_alarms(
    timelines: Sequence[Timeline],
    alarms: np.ndarray,
    is_target: np.ndarray,
    label: int,
    first_posts: str | None = None,
    goal: AlarmGoal | None = None,
    late: int = 0,
) -> dict[str, Any]:
    """
    Measures alarms.

    Args:
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        alarms (`np.ndarray` of shape `(posts,)`): Whether each post is an alarm.
        is_target (`np.ndarray` of shape `(posts,)`): Whether the model was asked about each post.
        label (`int`): The id of the class that alarms are about.
        first_posts (`str`, *optional*): The field of the model's configuration, by which first posts are no alarms.
        goal ([`AlarmGoal`], *optional*): A bound on a risk, which is measured, too.
        late (`int`, *optional*, defaults to 0): The number of labelled posts after a change in which an alarm finds
            it, for a policy that waits.

    Returns:
        The numbers of labelled `posts` and of their `timelines`, and among them of `alarms` and `alarmed_timelines`;
        `precision` and `recall`, each with its `_interval`, of 95 %, by a bootstrap over timelines;
        `alarms_per_hundred_posts`, labelled or not; and if posts have dates `alarms_per_day` and `posts_per_day`, over
        the days on which somebody wrote, in UTC; for a bound also the risk (`risk`), by
        [`~evaluation.risk_control.measure_risk`]. Posts that the model was not asked about count with the share of
        alarms among other posts, if they can be alarms. Values that are not defined are left out: a precision without
        an alarm, a recall without a post of the class, an interval that [`interval_of_share`] does not know.
    """
    labels, numbers = all_labels(timelines), timeline_numbers(timelines)
    labelled = labels >= 0
    is_alarm, is_class, of = alarms[labelled], labels[labelled] == label, numbers[labelled]
    is_hit = is_alarm & is_class
    measured = {
        "posts": len(is_alarm),
        "timelines": len(np.unique(of)),
        "alarms": int(is_alarm.sum()),
        "alarmed_timelines": len(np.unique(of[is_alarm])),
    }
    for name, judged in judged_posts(is_alarm, is_class).items():
        if judged.any():
            measured[name] = float(is_hit.sum() / judged.sum())
            if (interval := interval_of_share(is_hit, judged, of)) is not None:
                measured[f"{name}_interval"] = interval
    # Context is of another part, and of other days.
    of_part = np.concatenate([np.arange(len(timeline)) >= timeline.num_context for timeline in timelines])
    possible = of_part & ~np.concatenate([first_of(timeline, first_posts) for timeline in timelines])
    is_target = is_target & of_part
    seen = possible & is_target
    share = alarms[seen].mean() if seen.any() else 0.0
    expected = alarms[is_target].sum() + share * (possible & ~is_target).sum()
    measured["alarms_per_hundred_posts"] = float(100 * expected / of_part.sum())
    times = np.array([time for timeline in timelines for time in (timeline.timestamps or ())[timeline.num_context :]])
    # Of posts that all have the same time no day is known.
    if len(times) and times.min() < times.max() and not are_since_start(times.min(), times.max()):
        days = len(np.unique(times // DAY))
        measured |= {"posts_per_day": len(times) / days, "alarms_per_day": float(expected / days)}
    if goal is not None and goal.bounds_risk:
        measured["risk"] = measure_risk(goal, timelines, alarms, label, late)
    return measured


def judged_posts(is_alarm: np.ndarray, is_class: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the posts (posts,) among which precision and recall count the right alarms."""
    return {"precision": is_alarm, "recall": is_class}


def score_alarms(
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    config: PreTrainedConfig,
    baselines: Mapping[str, tuple[np.ndarray, dict[str, Any]]],
) -> dict[str, Any]:
    """
    Scores the alarms of a model that watches a class, beside its baselines' alarms.

    Args:
        timelines (`Sequence[Timeline]`): Timelines, some of whose posts have labels.
        predictions, probabilities (`np.ndarray`): The results of [`decide_posts`].
        config (`PreTrainedConfig`): The model's configuration.
        baselines (`dict[str, tuple[np.ndarray, dict]]`): The results of [`learn_baselines`].

    Returns:
        The values of [`measure_alarms`]; if the threshold was chosen for a goal, its spelling (`wanted`); under
        `costs` the [`score_costs`]; and `compared_with`: the [`compare_alarms`] of each baseline.
    """
    alarms = alarms_of(predictions, probabilities, config.watched, config.calibration)
    alarm = class_alarm(config.watched, config.calibration) or {}
    goal, measured = None, {}
    if "wanted" in alarm:
        goal, measured = AlarmGoal.read(alarm["wanted"]), {"wanted": alarm["wanted"]}
    measured |= measure_alarms(timelines, alarms, predictions >= 0, config.watched, config.first_posts, goal)
    measured["costs"] = score_costs(timelines, alarms, config.watched, measured, config.first_posts)
    labels = all_labels(timelines)
    labelled = labels >= 0
    is_alarm, is_class = alarms[labelled], labels[labelled] == config.watched
    judged = is_alarm, is_class, timeline_numbers(timelines)[labelled]
    comparable = is_alarm.any() and is_class.any()
    measured["compared_with"] = {
        name: described | compare_alarms(shares[:, config.watched], *judged, alarm_kind(measured))
        for name, (shares, described) in (baselines if comparable else {}).items()
    }
    return measured


def alarm_kind(measured: Mapping[str, Any]) -> str:
    """Returns the share that baselines' alarms must reach: the model's precision, or its recall if that was wanted."""
    goal = AlarmGoal.read(measured["wanted"]) if "wanted" in measured else None
    return "recall" if goal is not None and goal.kind in ("recall", "missed") else "precision"


def compare_alarms(
    scores: np.ndarray, is_alarm: np.ndarray, is_class: np.ndarray, timelines: np.ndarray, kind: str
) -> dict[str, Any]:
    """
    Compares alarms with a baseline's alarms of at least the same precision or recall.

    Args:
        scores (`np.ndarray` of shape `(posts,)`): The baseline's probabilities of the class.
        is_alarm, is_class (`np.ndarray` of shape `(posts,)`): Whether each post is an alarm of the model, and whether
            it is of the class; some are.
        timelines (`np.ndarray` of shape `(posts,)`): The number of each post's timeline.
        kind (`"precision"` or `"recall"`): The share in which the baseline must reach the model. It gets the best such
            threshold on these same posts.

    Returns:
        The baseline's number of `alarms`, `precision` (without an alarm it has none) and `recall`; the `difference`,
        the model's share of the other kind less the baseline's; and if there are several timelines its
        `difference_interval`, by a bootstrap over timelines.
    """
    ours = judged_posts(is_alarm, is_class)
    least, cuts = (is_alarm & is_class).sum() / ours[kind].sum(), cut_shares(scores, is_class)
    cut = choose_cut(cuts, kind, least)
    theirs_alarm = np.zeros_like(is_alarm) if cut is None else scores >= cuts["score"][cut]
    theirs = judged_posts(theirs_alarm, is_class)
    measured: dict[str, Any] = {"alarms": int(theirs_alarm.sum())}
    measured |= {name: float((theirs_alarm & is_class)[of].mean()) for name, of in theirs.items() if of.any()}
    counts = [
        share_counts(found & is_class, judged[OTHER[kind]], timelines)
        for found, judged in ((is_alarm, ours), (theirs_alarm, theirs))
    ]
    hits, sizes = np.stack([each.sum(axis=0) for each in counts]).T
    measured["difference"] = float(np.subtract(*(hits / sizes)))
    if len(counts[0]) > 1:
        counts = [each[None, :, :, None] for each in counts]
        measured["difference_interval"] = bootstrap_difference(*counts, undefined=math.nan)["interval"]
    return measured


def share_counts(is_hit: np.ndarray, is_judged: np.ndarray, timelines: np.ndarray) -> np.ndarray:
    """Returns the numbers (timelines, 2) of hits and of judged posts (posts,) of each timeline."""
    numbers = np.unique(timelines, return_inverse=True)[1]
    return np.stack([np.bincount(numbers, weights=values) for values in (is_hit, is_judged)], axis=1)


def interval_of_share(is_hit: np.ndarray, is_judged: np.ndarray, timelines: np.ndarray) -> tuple[float, float] | None:
    """
    Returns the interval of 95 % of the share of hits (posts,) among judged posts (posts,), by whole timelines; None if
    all timelines with a judged post have the same share, for example if there is only one.
    """
    counts = share_counts(is_hit, is_judged, timelines)
    if len(counts) < 2:
        return None
    # The share is a ratio of sums over timelines, as an F1 is. Samples without a judged post have none.
    low, high = bootstrap_difference(counts[None, :, :, None], undefined=math.nan)["interval"]
    return (low, high) if low < high else None


def alarm_sentence(config: PreTrainedConfig) -> str | None:
    """Returns a sentence on the alarm in a model's configuration, and on what it measured; None without one."""
    alarm = (getattr(config, "calibration", None) or {}).get("alarm")
    if not alarm:
        return None
    name = config.id2label[alarm["label"]]
    rule = f"posts where {name} has a probability of {alarm['threshold']} or more"
    measured = alarm.get("measured")
    if not measured and "wanted" in alarm:
        return f"{rule}{wanted_words(alarm, name)}. The held-out timelines are too few to measure it on others."
    if not measured:
        return f"{rule}, a threshold that was set by hand: the test's alarms may be of the one before."
    where = (
        f"On the {measured['posts']} held-out posts of {measured['timelines']} timelines, by thresholds of one another"
    )
    sentence = f"{rule}{wanted_words(alarm, name)}. {where}: {measured_words(measured)}"
    return f"{sentence} {ASSUMPTION}" if "risk" in measured else sentence


def wanted_words(alarm: Mapping[str, Any], name: str) -> str:
    """Returns what was wanted of an alarm of the class `name`, in words; empty without a wish."""
    if "wanted" not in alarm:
        return ""
    goal = AlarmGoal.read(alarm["wanted"])
    if goal.bounds_risk:
        return f", by risk control: {bound_words(goal, name)}"
    return f", for a wanted {goal.kind} of {goal.share:g}"


def measured_words(measured: Mapping[str, Any]) -> str:
    """Returns the values of [`measure_alarms`] in words."""
    shares = [share_words(measured, name) for name in ("precision", "recall") if name in measured]
    a_day = ""
    if "alarms_per_day" in measured:
        posts = short(measured["posts_per_day"], 3)
        a_day = f", {short(measured['alarms_per_day'])} a day at {posts} posts a day"
    kept = f"; {risk_words(measured['risk'])}" if "risk" in measured else ""
    few = f" Fewer than {FEW_ALARMS} alarms may be right by chance." if measured["alarms"] < FEW_ALARMS else ""
    return (
        f"{', '.join(shares)}; {measured['alarms']} alarms on labelled posts, in {measured['alarmed_timelines']} "
        f"timelines; {short(measured['alarms_per_hundred_posts'])} of a hundred posts{a_day}{kept}.{few}"
    )


def short(number: float, digits: int = 2) -> str:
    """Returns a number with so many significant digits, and no exponent: 100, 5, 1.2."""
    return np.format_float_positional(number, digits, unique=False, fractional=False, trim="-")


def share_words(measured: Mapping[str, Any], name: str) -> str:
    """Returns a share with its name, and its interval if there is one."""
    words = f"{name} {measured[name]:.3f}"
    if f"{name}_interval" not in measured:
        return words
    low, high = measured[f"{name}_interval"]
    return f"{words} (95 % interval {low:.3f} to {high:.3f})"
