"""Scores people against each other, and the model beside them: is it as good as a second person?"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..posts.agreement import krippendorff_alpha
from .significance import bootstrap_difference, count_by_timeline


# The annotators with the most posts have scores of their own. Their names are in `all_results.json`.
MOST_ANNOTATORS = 20
MISSING = -1


def score_annotators(
    labels: Sequence[Mapping[str, int]], predictions: np.ndarray, timelines: np.ndarray, num_labels: int
) -> dict[str, Any]:
    """
    Scores each annotator, and the model, against the majority of the other annotators.

    Args:
        labels (`Sequence[dict[str, int]]`): The class id that each annotator gave each post.
        predictions (`np.ndarray` of shape `(posts,)`):
            The model's class ids, -1 for posts that it was not asked about, which are left out.
        timelines (`np.ndarray` of shape `(posts,)`): The number of each post's timeline.
        num_labels (`int`): Number of classes.

    Returns:
        The number of `annotators`; of `posts` that have several labels, and of `ties`, those on which no label has
        more votes than the others; Krippendorff's `alpha` of the labels, if it is defined; `together`; and, under
        `each`, by name the annotators with the most posts. They have `posts`, on which the others agree on a majority;
        `macro_f1`, the annotator's own; `model_macro_f1`, the model's; `difference`, the model's minus the
        annotator's, and its `difference_interval` over timelines, if there are several. `together` counts a post once
        for each annotator. Macro F1 is over the classes that the majorities have. Empty if no post has several labels.
    """
    names = sorted({name for given in labels for name in given})
    table = np.array([[given.get(name, MISSING) for name in names] for given in labels]).reshape(len(labels), -1)
    votes = (table[..., None] == np.arange(num_labels)).sum(axis=1)
    several = votes.sum(axis=-1) > 1
    if not several.any():
        return {}
    scores: dict[str, Any] = {
        "annotators": len(names),
        "posts": int(several.sum()),
        "ties": int((majorities(votes[several]) == MISSING).sum()),
    }
    if (alpha := krippendorff_alpha(votes)) is not None:
        scores["alpha"] = alpha
    pairs = []
    for number in range(len(names)):
        theirs = table[:, number]
        others = majorities(votes - (theirs[:, None] == np.arange(num_labels)))
        both = (theirs != MISSING) & (others != MISSING) & (predictions != MISSING)
        pairs.append(np.stack([others, theirs, predictions, timelines])[:, both])
    together = np.concatenate(pairs, axis=1)
    if not together.size:
        return scores
    scores["together"] = score_beside_people(*together, num_labels)
    most = sorted((number for number in range(len(names)) if pairs[number].size), key=lambda n: -pairs[n].shape[1])
    scores["each"] = {names[n]: score_beside_people(*pairs[n], num_labels) for n in most[:MOST_ANNOTATORS]}
    return scores


def score_beside_people(
    labels: np.ndarray, people: np.ndarray, predictions: np.ndarray, timelines: np.ndarray, num_labels: int
) -> dict[str, Any]:
    """Returns the scores of people's class ids (posts,) and of the model's, as [`score_annotators`] describes them."""
    present, numbers = np.unique(timelines, return_inverse=True)
    classes = np.unique(labels)
    model, person = (
        count_by_timeline(labels, ids, numbers, len(present), num_labels)[None, ..., classes]
        for ids in (predictions, people)
    )
    hits, sizes = np.moveaxis(np.stack([counts.sum(axis=(0, 1)) for counts in (model, person)]), 1, 0)
    model_f1, person_f1 = map(float, (hits / sizes).mean(axis=-1))
    scores = {
        "posts": len(labels),
        "macro_f1": person_f1,
        "model_macro_f1": model_f1,
        "difference": model_f1 - person_f1,
    }
    if len(present) > 1:
        scores["difference_interval"] = bootstrap_difference(model, person, undefined=np.nan)["interval"]
    return scores


def majorities(votes: np.ndarray) -> np.ndarray:
    """Returns the class (posts,) with the most of the votes (posts, classes), -1 without votes and for ties."""
    most = votes.max(axis=-1)
    is_clear = (votes == most[:, None]).sum(axis=-1) == 1
    return np.where(is_clear, votes.argmax(axis=-1), MISSING)
