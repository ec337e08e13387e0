"""Scores a model on groups of posts, each beside all others: who is it worse for?"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .predictions import Predictions
from .significance import bootstrap_difference, count_by_timeline


# The largest groups have scores of their own. Their names are in the model card and in `all_results.json`.
MOST_GROUPS = 20
# A bootstrap over fewer timelines is too sure: those that were not seen may be quite different.
LEAST_TIMELINES = 10
NO_GROUP, SMALL_GROUPS = "(none)", "({} smaller groups)"


def score_groups(posts: Predictions, groups: Sequence[str]) -> dict[str, dict[str, Any]]:
    """
    Scores groups of posts.

    Args:
        posts ([`Predictions`]): Predictions of labelled posts, with the numbers of their timelines.
        groups (`Sequence[str]`): The group of each post; empty if it is missing, which is called "(none)", and if a
            group has this name "((none))".

    Returns:
        For each group, largest first: its number of `posts` and `timelines`; `macro_f1` and `difference`, the macro F1
        of the group minus all other posts', both over the classes that have labels on both sides;
        `macro_f1_interval` and `difference_interval`, over timelines; and `missing_classes`, the classes that are left
        out, if there are any. An interval is left out if one of its sides has fewer than ten timelines. Scores and
        differences are left out if both sides have no class in common. With more than 20 groups, the smallest ones
        are merged.
    """
    missing = unlike(NO_GROUP, groups)
    names = np.array([group or missing for group in groups], dtype=object)
    counts = Counter(names).most_common()
    if len(counts) > MOST_GROUPS:
        small = [name for name, _ in counts[MOST_GROUPS - 1 :]]
        names[np.isin(names, small)] = unlike(SMALL_GROUPS.format(len(small)), groups)
    return {name: score_group(posts, names == name) for name, _ in Counter(names).most_common()}


def unlike(name: str, taken: Sequence[str]) -> str:
    """Returns a name that is not `taken`, with as many brackets as that needs."""
    return unlike(f"({name})", taken) if name in taken else name


def score_group(posts: Predictions, is_inside: np.ndarray) -> dict[str, Any]:
    """Scores the posts of a group (posts,) beside all others, as [`score_groups`] describes it."""
    sides = [is_inside, ~is_inside] if not is_inside.all() else [is_inside]
    timelines = [np.unique(posts.timelines[side]) for side in sides]
    scores: dict[str, Any] = {"posts": int(is_inside.sum()), "timelines": len(timelines[0])}
    labelled = [set(posts.labels[side].tolist()) for side in sides]
    classes = sorted(set.intersection(*labelled))
    if missing := [name for label, name in enumerate(posts.names) if label not in classes]:
        scores["missing_classes"] = missing
    if not classes:
        return scores
    num_timelines = int(posts.timelines.max()) + 1
    counts = [
        count_by_timeline(
            posts.labels[side], posts.predictions[side], posts.timelines[side], num_timelines, len(posts.names)
        )[None, ..., classes]
        for side in sides
    ]
    # Timelines without a labelled post cannot be sampled.
    present = np.unique(posts.timelines)
    counts = [side[:, present] for side in counts]
    hits, sizes = np.moveaxis(np.stack([side.sum(axis=(0, 1)) for side in counts]), 1, 0)
    macro_f1 = (hits / sizes).mean(axis=-1)
    scores["macro_f1"] = float(macro_f1[0])
    if len(timelines[0]) >= LEAST_TIMELINES:
        scores["macro_f1_interval"] = bootstrap_difference(counts[0], undefined=np.nan)["interval"]
    if len(sides) > 1:
        scores["difference"] = float(macro_f1[0] - macro_f1[1])
        if min(map(len, timelines)) >= LEAST_TIMELINES:
            scores["difference_interval"] = bootstrap_difference(*counts, undefined=np.nan)["interval"]
    return scores
