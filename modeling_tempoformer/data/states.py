"""States of posts: their names, their numbers, and the changes that follow from them."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from datasets import Dataset

from ..timeline_tempoformer import NO_LABEL, Timeline
from .timelines import to_label


logger = logging.getLogger(__name__)

# Classes of labels that are derived from states
DERIVED_LABELS = ["No-Change", "Change"]
# Numbers with more distinct values than this are cut into quantiles.
MOST_GRADES, QUANTILES = 10, 5
MOST_CLASSES = 50
# The smallest share of labels that must be a change of a column, for it to be recognised as their state
LEAST_AGREEMENT = 0.99
# The probability with which first posts would all be without a label by chance, below which it is a rule
LEAST_CHANCE = 1e-3


class StateNames(NamedTuple):
    """The states of a model: their `names`, and for numbers the `values` that they stand for."""

    names: list[str]
    values: list[float] | None


def choose_states(timelines: Sequence[Timeline]) -> StateNames | None:
    """
    Returns the states of training timelines, sorted; None if no post has one. Numbers of at most ten different values
    are grades, others are cut into five quantiles, each named by its mean. Raises a `ValueError` for a single state,
    and for more than 50 classes.
    """
    counts = Counter(state for timeline in timelines for state in timeline.states or () if state)
    if not counts:
        return None
    if len(counts) < 2:
        raise ValueError(f"The posts have one state only, {next(iter(counts))!r}: there is nothing to learn.")
    values = to_numbers(counts)
    if values is None:
        if len(counts) > MOST_CLASSES:
            raise ValueError(
                f"The posts have {len(counts)} states, such as {next(iter(counts))!r}: a state is a number, or one "
                f"of at most {MOST_CLASSES} classes."
            )
        return StateNames(sorted(counts), None)
    if len(set(values)) > MOST_GRADES:
        every = np.repeat(values, list(counts.values()))
        edges = np.unique(np.quantile(every, np.linspace(0, 1, QUANTILES + 1)[1:-1]))
        groups = np.searchsorted(edges, every, side="right")
        values = sorted(float(every[groups == group].mean()) for group in np.unique(groups))
        # A tenth of the smallest distance is as much as a reader needs.
        decimals = max(0, 1 - math.floor(math.log10(min(np.diff(values)))))
        return StateNames([f"{round(value, decimals) + 0.0:.{decimals}f}" for value in values], values)
    values = sorted(set(map(float, values)))
    return StateNames([f"{value:.4g}" for value in values], values)


def to_numbers(states: Iterable[str]) -> list[float] | None:
    """Returns states as numbers, None if one of them is not a finite number."""
    try:
        values = [float(state) for state in states]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def state_ids(states: Sequence[str], names: Sequence[str], values: Sequence[float] | None) -> np.ndarray:
    """Returns the number of each state (posts,), -1 for one that is missing or is not among the names."""
    if values is None:
        return np.array([names.index(state) if state in names else -1 for state in states], dtype=int)
    numbers = [(to_numbers([state]) or [math.nan])[0] if state else math.nan for state in states]
    nearest = np.abs(np.subtract.outer(numbers, values))
    return np.where(np.isnan(numbers), -1, np.nan_to_num(nearest).argmin(-1))


def all_states(timelines: Iterable[Timeline]) -> list[str]:
    """Returns the states of all posts, in the order of the timelines, empty where there is none."""
    return [state for timeline in timelines for state in timeline.states or [""] * len(timeline)]


def compared_posts(timeline: Timeline) -> list[int]:
    """Returns the position of the post that each post is compared with: its speaker's last, else the one before it."""
    if timeline.speakers is None:
        return list(range(-1, len(timeline) - 1))
    return [post for (post,) in timeline.speaker_posts()]


def check_step(timelines: Iterable[Timeline], step: float):
    """Raises a `ValueError` for a step of states that are not numbers, and for numbers without a step (0)."""
    states = {state for state in all_states(timelines) if state}
    are_numbers = to_numbers(states) is not None
    if states and are_numbers and not step:
        raise ValueError(
            "The posts have no labels, and states that are numbers: say by --change_step which difference between two "
            "posts is a change."
        )
    if states and not are_numbers and step:
        raise ValueError("--change_step is a difference of numbers, but the states are classes.")


def with_changes(timeline: Timeline, step: float) -> Timeline:
    """
    Returns a timeline whose labels are derived from its states: 1 where the state differs from that of the post that
    it is compared with ([`compared_posts`]), numbers by at least `step`, else 0; none where one of both is missing.
    `step` is 0 for classes.
    """
    labels = []
    if timeline.states is None:
        return timeline
    for state, post in zip(timeline.states, compared_posts(timeline), strict=True):
        previous = timeline.states[post] if post >= 0 else ""
        if not (state and previous):
            labels.append(NO_LABEL)
        else:
            labels.append(int(abs(float(state) - float(previous)) >= step if step else state != previous))
    return replace(timeline, labels=labels)


def find_state_column(posts: Dataset, timelines: Sequence[Timeline], read: Iterable[str]) -> tuple[str, float] | None:
    """
    Looks among the columns that are not `read` for one whose changes are the labels. Returns its name, and for numbers
    the smallest step that is a change (else 0); None if there is none.
    """
    order = [timeline.input_rows for timeline in timelines]
    labels = np.concatenate([timeline.labels for timeline in timelines])
    compared = [compared_posts(timeline) for timeline in timelines]
    for column in sorted(set(posts.column_names) - set(read)):
        cells = posts[column]
        if not all(cell is None or isinstance(cell, (str, int, float)) for cell in cells):
            continue
        # In the order of the timelines.
        states = [[to_label(cells[row]) or "" for row in rows] for rows in order]
        distinct = {state for timeline in states for state in timeline if state}
        numbers = to_numbers(distinct)
        if len(distinct) < 2 or (numbers is None and len(distinct) > MOST_CLASSES):
            continue
        pairs = [
            (timeline[post], state) if post >= 0 and state and timeline[post] else None
            for timeline, posts_of in zip(states, compared, strict=True)
            for state, post in zip(timeline, posts_of, strict=True)
        ]
        judged = np.array([pair is not None for pair in pairs]) & (labels >= 0)
        if judged.sum() < LEAST_AGREEMENT * (labels >= 0).sum():
            continue
        chosen = [pair for pair, counts in zip(pairs, judged, strict=True) if counts]
        sizes = np.array(
            [before != after if numbers is None else abs(float(after) - float(before)) for before, after in chosen]
        )
        if (step := dividing_step(sizes, labels[judged])) is not None:
            return column, 0.0 if numbers is None else step
    return None


def dividing_step(sizes: np.ndarray, labels: np.ndarray) -> float | None:
    """Returns the smallest size of the changes of one class, if the others are all smaller; None if they are not."""
    for label in np.unique(labels):
        is_change = labels == label
        if is_change.all():
            return None
        step = np.quantile(sizes[is_change], 1 - LEAST_AGREEMENT, method="lower")
        if step > 0 and ((sizes >= step) == is_change).mean() >= LEAST_AGREEMENT:
            return float(step)
    return None


def first_posts_rule(first_posts: Mapping[str, Counter[tuple[bool, bool]]], by_speaker: bool) -> str | None:
    """
    Returns "speaker" or "timeline" if the first posts of each never have a label, although so many without one would
    be an accident at the share of labelled posts. None if some have one. `first_posts` are those of a
    [`~surveys.Survey`].
    """
    for rule, applies in (("speaker", by_speaker), ("timeline", True)):
        counts = first_posts[rule]
        share = counts[False, True] / max(1, counts[False, True] + counts[False, False])
        if applies and not counts[True, True] and (1 - share) ** counts[True, False] < LEAST_CHANCE:
            return rule
    return None


def no_change_class(labels: Counter[int], unchanged: Counter[int], num_labels: int) -> int:
    """
    Returns the class of posts that are no change: the one that most posts have whose state is that of the post that
    they are compared with (`unchanged`); without states the largest. Both counts are those of a [`~surveys.Survey`].
    """
    return max(range(num_labels), key=(unchanged or labels).__getitem__)
