"""Scores people apart: within and between them, and those who are in the training beside those who are not."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..posts.metadata import unit_of
from ..timeline_tempoformer import Timeline
from .metrics import compute_scores
from .predictions import Predictions


NEW, LATER = "new people", "the same people later"
# A correlation of 1 or -1 has no finite z.
LARGEST = 1 - 1e-9


def score_within_and_between(given: np.ndarray, answered: np.ndarray, people: Sequence[Hashable]) -> dict[str, Any]:
    """
    Scores numbers within people and between them, as SemEval-2026 task 2 does for its first subtask.

    Args:
        given, answered (`np.ndarray` of shape `(posts,)`): What posts have, and what a model answers.
        people (`Sequence[Hashable]` of length `posts`): The person of each post.

    Returns:
        Under `within_people` the mean over people of each one's `correlation`, how many `people` have one, and the
        mean over all people of each one's `mean_absolute_error`; under `between_people` the same of the means of each
        person's posts; and the `composite_correlation` of both correlations, the mean by Fisher's z. Who has less than
        two posts, or the same number in all, has no correlation; if only the answers are all the same, it is 0. What
        is not defined is left out.
    """
    posts = pd.DataFrame({"given": given, "answered": answered})
    by_person = [person for _, person in posts.groupby(pd.factorize(np.fromiter(people, dtype=object))[0])]
    means = pd.DataFrame([person.mean() for person in by_person])
    correlations = [
        0.0 if is_constant(person.answered) else correlation(person) for person in by_person if differs(person)
    ]
    errors = [mean_absolute_error(person) for person in by_person]
    within: dict[str, Any] = {"people": len(correlations), "mean_absolute_error": float(np.mean(errors))}
    between: dict[str, Any] = {"people": len(means), "mean_absolute_error": mean_absolute_error(means)}
    if correlations:
        within["correlation"] = float(np.mean(correlations))
    if differs(means) and not is_constant(means.answered):
        between["correlation"] = correlation(means)
    scores: dict[str, Any] = {"within_people": within, "between_people": between}
    both = [kind["correlation"] for kind in (within, between) if "correlation" in kind]
    if len(both) == 2:
        z = np.arctanh(np.clip(both, -LARGEST, LARGEST))
        scores["composite_correlation"] = float(np.tanh(z.mean()))
    return scores


def is_constant(numbers: pd.Series) -> bool:
    """Tells whether all numbers are the same, as a single one is."""
    return not np.ptp(numbers)


def differs(table: pd.DataFrame) -> bool:
    """Tells whether what is given is not all the same."""
    return not is_constant(table.given)


def correlation(table: pd.DataFrame) -> float:
    """Returns Pearson's correlation of what is given and what is answered."""
    return float(np.corrcoef(table.given, table.answered)[0, 1])


def mean_absolute_error(table: pd.DataFrame) -> float:
    """Returns the mean absolute difference of what is given and what is answered."""
    return float((table.given - table.answered).abs().mean())


def split_people(
    timelines: Sequence[Timeline], train: Sequence[Timeline]
) -> dict[str, tuple[np.ndarray, list[Timeline]]]:
    """
    Divides timelines by whether their person is in the training, too. A person is what splits keep together
    ([`unit_of`]).

    Returns:
        Under `seen` and `unseen`, if there are such people, whether each post (posts,) is one of theirs, and their
        timelines.
    """
    known = {unit_of(timeline) for timeline in train}
    is_seen = np.array([unit_of(timeline) in known for timeline in timelines])
    lengths, parts = list(map(len, timelines)), {}
    for name, chosen in (("seen", is_seen), ("unseen", ~is_seen)):
        if chosen.any():
            theirs = [timeline for timeline, counts in zip(timelines, chosen, strict=True) if counts]
            parts[name] = np.repeat(chosen, lengths), theirs
    return parts


def score_people(
    posts: Predictions,
    labelled: np.ndarray,
    timelines: Sequence[Timeline],
    train: Sequence[Timeline],
    no_change: int,
) -> dict[str, Any]:
    """
    Says which question the scores of timelines answer, and scores people who are in the training, too, beside others.

    Args:
        posts ([`Predictions`]): Predictions of the labelled posts.
        labelled (`np.ndarray` of shape `(posts,)`): Whether each post of the timelines has a label.
        timelines, train (`Sequence[Timeline]`): The timelines, and the training timelines.
        no_change (`int`): The class that is no change.

    Returns:
        The number of `people`, how many of them are `in_training`, and the `question`. If some are and others are not:
        under `seen` and `unseen` the number of `people` and of labelled `posts`, and if there are such posts the
        `macro_f1` and the scores of changes.
    """
    parts = split_people(timelines, train)
    counts = {name: len(set(map(unit_of, theirs))) for name, (_, theirs) in parts.items()}
    kinds = {"seen": LATER, "unseen": NEW}
    scores: dict[str, Any] = {
        "people": sum(counts.values()),
        "in_training": counts.get("seen", 0),
        "question": ", and ".join(kinds[name] for name in parts),
    }
    if len(parts) < 2:
        return scores
    for name, (is_theirs, _) in parts.items():
        theirs = posts.of(is_theirs[labelled])
        scores[name] = {"people": counts[name], "posts": len(theirs.labels)}
        if len(theirs.labels):
            found = compute_scores(theirs, no_change)
            wanted = ("macro_f1", "change_post_f1", "change_timeline_f1", "change_f1")
            scores[name] |= {score: found[score] for score in wanted if score in found}
    return scores
