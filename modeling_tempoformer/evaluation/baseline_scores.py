"""Compares a model with baselines on the same posts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from transformers import PreTrainedConfig

from ..baselines import history, position_and_time, predicted_states, trees, words
from ..baselines.features import post_features
from ..baselines.position_and_time import shared_features
from ..posts.states import StateNames
from ..timeline_tempoformer import Timeline
from .metrics import compute_scores
from .predictions import Predictions, all_labels
from .significance import paired_bootstrap


# Threads of a BLAS wait for each other longer than they compute these small products.
@threadpool_limits.wrap(limits=1, user_api="blas")
def learn_baselines(
    timelines: Sequence[Timeline],
    num_labels: int,
    train: Sequence[Timeline] | None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
    config: PreTrainedConfig | None = None,
) -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """
    Trains baselines.

    Args:
        timelines (`Sequence[Timeline]`): The timelines that they predict.
        num_labels (`int`): Number of classes.
        train (`Sequence[Timeline]`, *optional*): The training timelines; without them there are none.
        vectors (`tuple[np.ndarray, np.ndarray]`, *optional*): Vectors (posts, hidden) of the posts of `train` and of
            `timelines`, which boosted trees read, and predicted states.
        config (`PreTrainedConfig`, *optional*): The model's. If it has learned states, one more baseline predicts
            them from the vectors; if it reads known states, so does another one.

    Returns the probabilities (posts, num_labels) of the labelled posts, and a description, of each baseline by name.
    """
    if train is None or len(set(all_labels(train)) - {-100}) < 2:
        return {}
    labelled = all_labels(timelines) >= 0
    features = shared_features(train, post_features(train), post_features(timelines))
    probabilities = position_and_time.predict(train, timelines, num_labels)
    baselines = {"position_and_time": (probabilities[labelled], {"features": features})}
    # The later timelines of a stream keep no texts.
    with_texts = [timeline for timeline in train if timeline.texts]
    if len(set(all_labels(with_texts)) - {-100}) > 1:
        baselines["words"] = words.predict(with_texts, timelines, num_labels)[labelled], {}
    if getattr(config, "reads_known_states", False):
        baselines["history"] = history.predict(train, timelines, num_labels, config)[labelled], {}
    if vectors is not None:
        baselines["trees"] = trees.predict(train, timelines, num_labels, vectors)[labelled], {}
    if vectors is not None and (names := getattr(config, "states", None)):
        states = StateNames(names, config.state_values)
        found = predicted_states.predict(train, timelines, num_labels, vectors, states)
        baselines["predicted_states"] = found[labelled], {}
    return baselines


def compare_with_baselines(
    posts: Predictions, baselines: Mapping[str, tuple[np.ndarray, dict[str, Any]]]
) -> dict[str, Any]:
    """
    Compares the macro F1 of predictions and of baselines, each by its most probable class.

    Args:
        posts ([`Predictions`]): Predictions of labelled posts.
        baselines (`dict[str, tuple[np.ndarray, dict]]`): The results of [`learn_baselines`] for the same posts.

    Returns:
        `macro_f1_interval`, and `compared_with`: of the larger class and of each baseline the macro F1, its difference
        from the model's, and the interval of the difference. Intervals are over timelines, and are left out if only
        one timeline has labels.
    """
    larger = np.bincount(posts.labels).argmax()
    against = {
        "larger_class": {"class": posts.names[larger], **compare_with(posts, np.full(len(posts.labels), larger))}
    }
    against |= {name: about | compare_with(posts, shares.argmax(-1)) for name, (shares, about) in baselines.items()}
    # Without any prediction macro F1 is 0, so that the difference is the model's own score.
    alone = compare_with(posts, np.full(len(posts.labels), -1)).get("difference_interval")
    return ({} if alone is None else {"macro_f1_interval": alone}) | {"compared_with": against}


def compare_with(posts: Predictions, ids: np.ndarray) -> dict[str, Any]:
    """
    Returns the `macro_f1` of other class ids (posts,) of the same posts, the `difference` of the predictions' own
    from it, and, if several timelines have labels, the `difference_interval` over timelines.
    """
    ours, theirs = (
        compute_scores(Predictions(posts.labels, each, posts.names))["macro_f1"] for each in (posts.predictions, ids)
    )
    scores = {"macro_f1": theirs, "difference": ours - theirs}
    if len(set(posts.timelines)) > 1:
        test = paired_bootstrap(posts.labels, posts.predictions, ids, posts.timelines, len(posts.names))
        scores["difference_interval"] = test["interval"]
    return scores
