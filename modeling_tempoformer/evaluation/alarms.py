"""Chooses the threshold of the class to watch for a wanted precision or recall, and says what it costs."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from transformers import PreTrainedConfig

from ..timeline_tempoformer import Timeline
from ..times_tempoformer import are_since_start
from .predictions import Predictions
from .significance import bootstrap_difference


DAY = 86_400  # seconds
FEW_ALARMS = 10
# Shares that differ by less are equal up to rounding.
TOLERANCE = 1e-12


def choose_alarm(
    posts: Predictions, label: int | None, wanted: Mapping[str, float], timelines: Sequence[Timeline]
) -> dict[str, Any]:
    """
    Chooses the alarm of a calibration.

    Args:
        posts ([`Predictions`]): Labelled posts that the model was not trained on, with the numbers of their timelines,
            and with probabilities by the temperature of the calibration.
        label (`int`, *optional*): The id of the class to watch.
        wanted (`dict[str, float]`): The argument of [`choose_threshold`].
        timelines (`Sequence[Timeline]`): The timelines of the posts, with all their posts.

    Returns:
        `label`, the `threshold` of [`choose_threshold`], `wanted`, and what was `measured` on the same posts
        ([`measure_alarm`]). Raises the errors of the former, and a `ValueError` without a class.
    """
    if label is None:
        raise ValueError(
            f"--{next(iter(wanted))} is that of the class to watch, and the model has none: give --watch."
        )
    threshold = choose_threshold(posts, label, wanted)
    measured = measure_alarm(posts, label, threshold, timelines)
    return {"label": label, "threshold": threshold, "wanted": dict(wanted), "measured": measured}


def choose_threshold(posts: Predictions, label: int, wanted: Mapping[str, float]) -> float:
    """
    Returns the probability from which on a class is predicted, for a wanted precision or recall on held-out posts: of
    all with the precision, the one with the largest recall; of all with the recall, the one with the fewest alarms. It
    lies well between the probabilities of two posts, and has as few digits as that allows.

    Args:
        posts ([`Predictions`]): Labelled posts that the model was not trained on, with probabilities.
        label (`int`): The id of the class.
        wanted (`dict[str, float]`): Either `"precision"` or `"recall"`, more than 0 and at most 1.

    Raises a `ValueError` if no post has the class, and for a precision that no threshold gives, with the best one.
    """
    ((kind, least),) = wanted.items()
    scores, is_class = np.asarray(posts.probabilities, dtype=np.float64)[:, label], posts.labels == label
    if not is_class.any():
        raise ValueError(f"None of the {len(scores)} held-out posts is {posts.names[label]}: no alarm can be judged.")
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], is_class[order].cumsum()
    # Posts with equal probabilities cannot be separated: an alarm for one is an alarm for all of them.
    ends = np.flatnonzero(np.diff(scores, append=-1.0))
    shares = {"precision": hits[ends] / (ends + 1), "recall": hits[ends] / hits[-1]}
    enough = np.flatnonzero(shares[kind] >= least - TOLERANCE)
    if not len(enough):
        best = int(np.flatnonzero(shares[kind] >= shares[kind].max() - TOLERANCE)[-1])
        raise ValueError(
            f"No threshold gives {posts.names[label]} a precision of {least:g} on the {len(scores)} held-out posts: "
            f"the best is {shares['precision'][best]:.3f}, from a probability of {scores[ends[best]]:.4f} on "
            f"({ends[best] + 1} alarms, recall {shares['recall'][best]:.3f}). Want less; after a training, the same "
            "command with a lower --precision trains nothing again."
        )
    last = ends[enough[-1] if kind == "precision" else enough[0]]
    return round_between(scores[last + 1] if last + 1 < len(scores) else 0.0, scores[last])


def round_between(low: float, high: float) -> float:
    """Returns the middle of two numbers, rounded to as few digits as leave it in the middle half of the two."""
    middle, digits = (low + high) / 2, 1
    while abs(round(middle, digits) - middle) > (high - low) / 4 and digits < 17:
        digits += 1
    return float(round(middle, digits))


def measure_alarm(
    posts: Predictions, label: int, threshold: float, timelines: Sequence[Timeline]
) -> dict[str, float | tuple[float, float]]:
    """
    Measures the alarms of a threshold.

    Args:
        posts ([`Predictions`]): Labelled posts, with probabilities and the numbers of their timelines.
        label (`int`): The id of the class.
        threshold (`float`): The probability of the class from which on a post is an alarm.
        timelines (`Sequence[Timeline]`): The timelines of the posts, with all their posts.

    Returns:
        The numbers of `posts` and `timelines`, of `alarms` and `alarmed_timelines`; `precision` and `recall`, each
        with its `_interval`, of 95 %, by a bootstrap over timelines; `alarms_per_hundred_posts`; and if posts have
        dates `alarms_per_day` and `posts_per_day`, over the days on which somebody wrote, in UTC. Posts without a
        label count among the posts of a day, and have as many alarms as others. What is not defined is left out: a
        precision without an alarm, a recall without a post of the class, an interval that [`share_interval`] does not
        know.
    """
    is_alarm, is_class = posts.probabilities[:, label].astype(np.float64) >= threshold, posts.labels == label
    is_hit = is_alarm & is_class
    facts = {
        "posts": len(is_alarm),
        "timelines": len(np.unique(posts.timelines)),
        "alarms": int(is_alarm.sum()),
        "alarmed_timelines": len(np.unique(posts.timelines[is_alarm])),
    }
    for name, judged in (("precision", is_alarm), ("recall", is_class)):
        if judged.any():
            facts[name] = float(is_hit.sum() / judged.sum())
            if (interval := share_interval(is_hit, judged, posts.timelines)) is not None:
                facts[f"{name}_interval"] = interval
    facts["alarms_per_hundred_posts"] = 100 * facts["alarms"] / facts["posts"]
    times = np.array(list(chain.from_iterable(timeline.timestamps or () for timeline in timelines)))
    if len(times) and not are_since_start(times.min(), times.max()):
        facts["posts_per_day"] = len(times) / len(np.unique(times // DAY))
        facts["alarms_per_day"] = facts["posts_per_day"] * facts["alarms"] / facts["posts"]
    return facts


def share_interval(is_hit: np.ndarray, is_judged: np.ndarray, timelines: np.ndarray) -> tuple[float, float] | None:
    """
    Returns the interval of 95 % of the share of hits (posts,) among judged posts (posts,), by whole timelines; None if
    the timelines with a judged post all have the same share, as where there is only one, so that nothing is known.
    """
    numbers = np.unique(timelines, return_inverse=True)[1]
    counts = np.stack([np.bincount(numbers, weights=values) for values in (is_hit, is_judged)], axis=1)
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
    wanted = [f", for a wanted {kind} of {least:g}" for kind, least in (alarm.get("wanted") or {}).items()]
    name = config.id2label[alarm["label"]]
    rule = f"posts where {name} has a probability of {alarm['threshold']} or more"
    facts = alarm.get("measured")
    if not facts:
        return f"{rule}, a threshold that was set by hand: other scores of the model may be from before."
    shares = [share_words(facts, name) for name in ("precision", "recall") if name in facts]
    a_day = ""
    if "alarms_per_day" in facts:
        a_day = f", {facts['alarms_per_day']:.2g} a day at {facts['posts_per_day']:.3g} posts a day"
    few = f" Fewer than {FEW_ALARMS} alarms may be right by chance." if facts["alarms"] < FEW_ALARMS else ""
    return (
        f"{rule}{''.join(wanted)}. On the {facts['posts']} held-out posts of {facts['timelines']} timelines: "
        f"{', '.join(shares)}; {facts['alarms']} alarms in {facts['alarmed_timelines']} timelines, "
        f"{facts['alarms_per_hundred_posts']:.2g} of a hundred posts{a_day}.{few}"
    )


def share_words(facts: Mapping[str, Any], name: str) -> str:
    """Returns a share with its name, and its interval if there is one."""
    words = f"{name} {facts[name]:.3f}"
    if f"{name}_interval" not in facts:
        return words
    low, high = facts[f"{name}_interval"]
    return f"{words} (95 % interval {low:.3f} to {high:.3f})"
