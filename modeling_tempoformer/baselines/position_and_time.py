"""Small trees that read the position of a post and the times around it, and no text."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..evaluation.predictions import all_labels
from ..timeline_tempoformer import Timeline
from .features import fit_and_predict, post_features


def predict(train: Sequence[Timeline], timelines: Sequence[Timeline], num_labels: int) -> np.ndarray:
    """
    Returns the probabilities (posts, num_labels) that small trees, which do not read texts, give to posts.

    Args:
        train (`Sequence[Timeline]`): The timelines from which they learn.
        timelines (`Sequence[Timeline]`): The timelines whose posts they classify. Posts that are `held_out` in
            training are classified by trees that have not learned from them.
        num_labels (`int`): Number of classes.
    """
    return by_members(train, timelines, post_features(train), post_features(timelines), num_labels)


def shared_features(train: Sequence[Timeline], train_features: pd.DataFrame, features: pd.DataFrame) -> list[str]:
    """
    Returns the names of the features that labelled training posts have, and the other posts, too. If each timeline is
    a single post, none has a previous one.
    """
    present = train_features[all_labels(train) >= 0].dropna(axis="columns", how="all").columns
    return [name for name in features if name in present]


def by_members(
    train: Sequence[Timeline],
    timelines: Sequence[Timeline],
    train_features: pd.DataFrame,
    features: pd.DataFrame,
    num_labels: int,
) -> np.ndarray:
    """
    Returns the probabilities of [`predict`] by trees that read given features (posts, features) of the posts of
    `train` and of `timelines`.
    """
    names = shared_features(train, train_features, features)
    settings = {"max_depth": 2, "max_iter": 40, "random_state": 0}
    return fit_and_predict(train, timelines, train_features[names], features[names], num_labels, **settings)
