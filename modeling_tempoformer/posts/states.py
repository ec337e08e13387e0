"""States of posts: their names, their numbers, and the changes that follow from them."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedConfig

from ..names_tempoformer import ALIKE, appearance, distance, may_be_thousands, read_name, read_number
from ..timeline_tempoformer import NO_LABEL, Timeline


logger = logging.getLogger(__name__)

LEFT_OUT = "A column that is no state is left out by --columns state=none."
# Classes of labels that are derived from states
DERIVED_LABELS = ["No-Change", "Change"]
# The most digits before or after the point in the name of a number; a float has no more that are exact.
MOST_DECIMALS = 15
# Numbers with more distinct values than this are binned into quantiles.
MOST_GRADES, QUANTILES = 10, 5
MOST_CLASSES = 50
# If first posts would all be without a label by chance with a lower probability than this, it is a rule.
LEAST_CHANCE = 1e-3


class StateNames(NamedTuple):
    """The states of a model: their `names`, and for numbers the `values` that they stand for."""

    names: list[str]
    values: list[float] | None


def choose_states(timelines: Sequence[Timeline]) -> StateNames | None:
    """
    Returns the states of training timelines, sorted; None if no post has one. Numbers of at most ten different values
    are grades, others form about five groups of similar numbers of posts ([`cut_values`]), each named by its mean.
    Raises a `ValueError` for a single state, for more than 50 classes, and for numbers of two spellings.
    """
    counts = Counter(state for timeline in timelines for state in timeline.states or () if state)
    if not counts:
        return None
    if len(counts) < 2:
        raise ValueError(
            f"The posts have one state only, {next(iter(counts))!r}: there is nothing to learn. {LEFT_OUT}"
        )
    if (numbers_of := to_numbers(counts)) is None:
        if len(counts) > MOST_CLASSES:
            raise ValueError(
                f"The posts have {len(counts)} states, such as {next(iter(counts))!r}: a state is a number, or one "
                f"of at most {MOST_CLASSES} classes. {LEFT_OUT}"
            )
        return StateNames(sorted(counts), None)
    check_decimals(counts)
    posts: Counter[float] = Counter()
    for number, count in zip(numbers_of, counts.values(), strict=True):
        posts[number] += count
    if len(posts) < 2:
        raise ValueError(
            f"The posts have one state only, {next(iter(counts))!r}: there is nothing to learn. {LEFT_OUT}"
        )
    values = sorted(posts)
    if len(values) <= MOST_GRADES:
        return StateNames(name_numbers(values), values)
    means = []
    for group in cut_values(posts):
        # Fractions, so that no sum is too large for a float, and no mean lies outside of its group.
        total = sum(Fraction(value) * posts[value] for value in group)
        means.append(float(total / sum(posts[value] for value in group)))
    # A tenth of the smallest distance is as much as a reader needs.
    decimals = 1 - math.floor(math.log10(min(map(distance, means, means[1:]))))
    if decimals > MOST_DECIMALS or max(map(abs, means)) >= 10**MOST_DECIMALS:
        return StateNames(name_numbers(means), means)
    decimals = max(0, decimals)
    return StateNames([f"{round(value, decimals) + 0.0:.{decimals}f}" for value in means], means)


def cut_values(posts: Mapping[float, int]) -> list[list[float]]:
    """
    Bins values into about five groups of neighbours with similar numbers of `posts` (quantiles). A value that has more
    posts than a group's share is a group of its own, and the other groups share the posts that remain.
    """
    values = sorted(posts)
    counts = np.array([posts[value] for value in values], dtype=float)
    alone = np.zeros(len(values), dtype=bool)
    while True:
        share = counts[~alone].sum() / (QUANTILES - alone.sum())
        if not (larger := ~alone & (counts > share)).any():
            break
        alone |= larger
    # A group of its own is a run of one value.
    groups: list[list[float]] = []
    for _, run in groupby(range(len(values)), lambda index: index if alone[index] else -1):
        run = list(run)
        ends = counts[run].cumsum()
        number = 1 if alone[run[0]] else max(1, round(ends[-1] / share))
        # A value belongs to the group in which the middle of its posts lies.
        parts = ((ends - counts[run] / 2) * number / ends[-1]).astype(int)
        groups += [[values[run[at]] for at in np.flatnonzero(parts == part)] for part in np.unique(parts)]
    return groups


def name_numbers(values: Sequence[float]) -> list[str]:
    """Returns names of different numbers: integers in full, others with as many digits as tell all apart."""
    for digits in range(4, 18):
        names = [
            f"{value:.0f}" if value.is_integer() and abs(value) < 10**MOST_DECIMALS else f"{value:.{digits}g}"
            for value in values
        ]
        if len(set(names)) == len(values):
            break
    return names


def check_decimals(states: Iterable[str]):
    """
    Raises a `ValueError` for numbers with decimal points among numbers with decimal commas. Warns of commas that may
    divide thousands.
    """
    commas, points = ([state for state in states if mark in state] for mark in ",.")
    if commas and points:
        raise ValueError(
            f"The states {commas[0]!r} and {points[0]!r} are numbers with a decimal comma and with a decimal point: "
            "write them alike."
        )
    if may_be_thousands(commas):
        logger.warning(
            "States such as %r are read as numbers with a decimal comma, %g. If the comma divides thousands, leave it "
            "out.",
            *(commas[0], read_number(commas[0])),
        )


def to_numbers(states: Iterable[str]) -> list[float] | None:
    """Returns states as numbers ([`read_number`]), None if one of them is not a finite number."""
    values = list(map(read_number, states))
    return None if None in values else values


def check_states(timelines: Sequence[Timeline], config: PreTrainedConfig):
    """
    Raises a `ValueError` for a state that a model with this configuration has not learned, if it reads known states
    ([`Timeline.earlier_states`]), and for any model, if it looks like one of the model's and is spelt differently.
    """
    names, values = (getattr(config, name, None) for name in ("states", "state_values"))
    if getattr(config, "reads_known_states", False):
        for timeline in timelines:
            timeline.earlier_states(config)
    names = [] if names is None or values is not None else list(map(read_name, names))
    looks = {appearance(name): name for name in names}
    for state in sorted(set(all_states(timelines)) - set(names)) if names else ():
        if (name := looks.get(appearance(state))) is not None:
            raise ValueError(f"The state {state!r} and the model's state {name!r} {ALIKE}: write them alike.")


def all_states(timelines: Iterable[Timeline]) -> list[str]:
    """Returns the states of all posts, in the order of the timelines, empty where there is none."""
    return [state for timeline in timelines for state in timeline.states or [""] * len(timeline)]


def check_step(timelines: Iterable[Timeline], step: float):
    """Raises a `ValueError` for a `change_step` of states that are not numbers, and for numbers without one (0)."""
    states = {state for state in all_states(timelines) if state}
    are_numbers = to_numbers(states) is not None
    if are_numbers:
        check_decimals(states)
    if states and are_numbers and not step:
        raise ValueError(
            "The posts have no labels, and states that are numbers: say by --change_step which difference between two "
            f"posts is a change. {LEFT_OUT}"
        )
    if states and not are_numbers and step:
        raise ValueError(f"--change_step is a difference of numbers, but the states are classes. {LEFT_OUT}")


def with_changes(timeline: Timeline, step: float) -> Timeline:
    """
    Returns a timeline whose labels are derived from its states: 1 where a post and the post that it is compared with
    ([`Timeline.compared_posts`]) differ in their states, numbers by at least `step`, else 0; -100 if one of the states
    is missing. `step` is the `change_step`, 0 for classes.
    """
    labels = []
    if timeline.states is None:
        return timeline
    for state, post in zip(timeline.states, timeline.compared_posts(), strict=True):
        previous = timeline.states[post] if post >= 0 else ""
        if not (state and previous):
            labels.append(NO_LABEL)
        elif step:
            labels.append(int(distance(read_number(state), read_number(previous)) >= step))
        else:
            labels.append(int(state != previous))
    return replace(timeline, labels=labels)


def count_changes(pairs: np.ndarray, num_states: int, num_labels: int) -> np.ndarray:
    """
    Returns the probability of each class (states + 1, states, classes), given the earlier state (the last one stands
    for no earlier post) and the newest state. It is the class's share of the labelled posts with this pair of states,
    smoothed by one post that has the shares of all pairs. `pairs` (labelled posts, 3) are the state of the post that
    each labelled one is compared with, the number of states where there is no such post; its own state; and its label.
    A state that is missing is -1.
    """
    counted = pairs[(pairs[:, :2] >= 0).all(-1)]
    counts = np.zeros((num_states + 1, num_states, num_labels))
    np.add.at(counts, tuple(counted.T), 1)
    # The held-out folds of two members may be all posts, so that none is left.
    shares = np.bincount(pairs[:, 2], minlength=num_labels) / max(1, len(pairs))
    counts += shares if len(pairs) else 1 / num_labels
    return counts / counts.sum(-1, keepdims=True)


def compared_places(timelines: Sequence[Timeline]) -> np.ndarray:
    """
    Returns for each post (posts,) the place among all posts of the one that it is compared with
    ([`Timeline.compared_posts`]); -1 where there is none.
    """
    starts = np.cumsum([0, *map(len, timelines)])
    places = [np.array(timeline.compared_posts(), dtype=int) for timeline in timelines]
    return np.concatenate(
        [np.where(found < 0, -1, found + start) for found, start in zip(places, starts, strict=False)]
    )


def first_of(timeline: Timeline, rule: str | None) -> np.ndarray:
    """Returns a mask (posts,) of the first posts of a "timeline" or of its "speaker"s; none if the rule is None."""
    if rule == "speaker":
        return np.array([post < 0 for post in timeline.compared_posts()], dtype=bool)
    return (np.arange(len(timeline)) == 0) & (rule is not None)


def same_state(one: str, other: str) -> bool:
    """Tells whether two states are the same. The number 1,50 is 1,5."""
    number = read_number(one)
    return one == other or (number is not None and number == read_number(other))


def first_posts_rule(first_posts: Mapping[str, Counter[tuple[bool, bool]]], by_speaker: bool) -> str | None:
    """
    Returns "speaker" or "timeline" if the first posts of each never have a label, and are so many that this is hardly
    by chance, given the share of labelled posts; else None. `first_posts` are from a [`~surveys.Survey`].
    """
    for rule, applies in (("speaker", by_speaker), ("timeline", True)):
        counts = first_posts[rule]
        share = counts[False, True] / max(1, counts[False, True] + counts[False, False])
        if applies and not counts[True, True] and (1 - share) ** counts[True, False] < LEAST_CHANCE:
            return rule
    return None


def no_change_class(labels: Counter[int], unchanged: Counter[int], num_labels: int) -> int:
    """
    Returns the class of posts that are no change: the most frequent class of posts with the same state as the post
    that they are compared with (`unchanged`); without states the largest class. Both counts are from a
    [`~surveys.Survey`].
    """
    return max(range(num_labels), key=(unchanged or labels).__getitem__)
