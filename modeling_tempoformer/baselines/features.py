"""What the trees of several baselines read of a post besides its text, and how they learn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier

from ..timeline_tempoformer import Timeline


DAY, HOUR = 86_400, 3_600  # seconds
# The member of timelines that are in no held-out fold
NOT_HELD_OUT = -1


def fit_and_predict(
    train_features: Any, labels: np.ndarray, features: Any, num_labels: int, **settings: Any
) -> np.ndarray:
    """The probabilities (posts, num_labels) from trees that learn from the labelled training posts."""
    trees = HistGradientBoostingClassifier(class_weight="balanced", **settings)
    trees.fit(train_features[labels >= 0], labels[labels >= 0])
    probabilities = np.zeros((len(features), num_labels))
    # For a single class, scikit-learn returns two columns: that class, and an empty one.
    probabilities[:, trees.classes_] = trees.predict_proba(features)[:, : len(trees.classes_)]
    return probabilities


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
