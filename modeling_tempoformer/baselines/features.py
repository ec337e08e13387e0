"""Features that the trees of several baselines read of a post besides its text, and their settings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from ..evaluation.predictions import all_labels
from ..timeline_tempoformer import Timeline


DAY, HOUR = 86_400, 3_600  # seconds
# The member of timelines that are in no held-out fold
NOT_HELD_OUT = -1
# Levels of a feature, as many as scikit-learn's trees tell apart
NUM_LEVELS = 255
# With more posts, a regression would take longer than the training of the model
MOST_POSTS = 20_000


def fit_and_predict(
    train: Sequence[Timeline],
    timelines: Sequence[Timeline],
    train_features: pd.DataFrame | np.ndarray,
    features: pd.DataFrame | np.ndarray,
    num_labels: int,
    **settings: Any,
) -> np.ndarray:
    """
    Returns the probabilities (posts, num_labels) that trees give to posts. Posts that are `held_out` in training are
    classified by trees that have not learned from them.

    Args:
        train (`Sequence[Timeline]`): The timelines from which they learn.
        timelines (`Sequence[Timeline]`): The timelines whose posts they classify.
        train_features, features (`pd.DataFrame` or `np.ndarray`): The features (posts, features) of both.
        num_labels (`int`): Number of classes.
        settings: Arguments of `HistGradientBoostingClassifier`.
    """
    labels, train_members, members = all_labels(train), held_out_posts(train), held_out_posts(timelines)
    probabilities = np.zeros((len(features), num_labels))
    train_features, features = to_levels(np.asarray(train_features), np.asarray(features))
    for member in np.unique(members):
        is_held_out = members == member
        learned = (labels >= 0) & ((train_members != member) | (member == NOT_HELD_OUT))
        trees = HistGradientBoostingClassifier(class_weight="balanced", **settings)
        trees.fit(train_features[learned], labels[learned])
        # For a single class, scikit-learn returns two columns: that class, and an empty one.
        found = trees.predict_proba(features[is_held_out])[:, : len(trees.classes_)]
        probabilities[np.ix_(is_held_out, trees.classes_)] = found
    return probabilities


def to_levels(train_features: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    Returns the levels of features: the number of quantiles of `train_features` below each value. Classes are weighted,
    and scikit-learn would compute weighted quantiles for each member, which takes longer than the trees.
    """
    shares = np.linspace(0, 1, NUM_LEVELS + 1)[1:-1]
    quantiles = pd.DataFrame(train_features).quantile(shares).to_numpy()

    def place(values: np.ndarray) -> np.ndarray:
        levels = map(np.searchsorted, quantiles.T, values.T)
        return np.where(np.isnan(values), np.nan, np.column_stack(list(levels)))

    return place(train_features), place(features)


def at_most(posts: np.ndarray, most: int = MOST_POSTS) -> np.ndarray:
    """Returns the indices of posts (posts,), or `most` of them, drawn by chance, if there are more."""
    return posts if len(posts) <= most else np.random.default_rng(0).choice(posts, most, replace=False)


def held_out_posts(timelines: Sequence[Timeline]) -> np.ndarray:
    """The member that does not learn from each post (posts,), or [`NOT_HELD_OUT`]."""
    members = [NOT_HELD_OUT if timeline.held_out is None else timeline.held_out for timeline in timelines]
    return np.repeat(members, list(map(len, timelines)))


def post_features(timelines: Sequence[Timeline]) -> pd.DataFrame:
    """The features of each post without its text: `position`, and with times seconds and `hour` of the day (UTC)."""
    timed = timelines[0].timestamps is not None
    values = [timeline.timestamps if timed else timeline.labels for timeline in timelines]
    posts = pd.Series(values).explode().astype(np.float64)
    by_timeline = posts.groupby(level=0)
    features = pd.DataFrame({"position": by_timeline.cumcount()})
    if timed:
        features["seconds_since_previous"] = by_timeline.diff()
        features["seconds_since_first"] = posts - by_timeline.transform("first")
        features["hour"] = posts % DAY / HOUR
    return features.reset_index(drop=True)
