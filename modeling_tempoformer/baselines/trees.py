"""Boosted trees on the vectors of a post and of the one before it, on position and times."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

from ..timeline_tempoformer import Timeline
from .features import fit_and_predict, post_features


# Number of principal components of a post's vector that trees read
COMPONENTS = 48


def predict(
    train: Sequence[Timeline],
    timelines: Sequence[Timeline],
    num_labels: int,
    vectors: tuple[np.ndarray, np.ndarray],
    seed: int = 0,
) -> np.ndarray:
    """
    Returns the probabilities (posts, num_labels) that trees, which read the vectors of a post and of the one before
    it, give to posts.

    Args:
        train (`Sequence[Timeline]`): The timelines from which they learn.
        timelines (`Sequence[Timeline]`): The timelines whose posts they classify. Posts that are `held_out` in
            training are classified by trees that have not learned from them.
        num_labels (`int`): Number of classes.
        vectors (`tuple[np.ndarray, np.ndarray]`): The vectors (posts, hidden) of the posts of `train`, 0 for a post
            that no row classifies, and of `timelines`.
        seed (`int`, *optional*, defaults to 0): Seed of the components and of the trees.
    """
    train_vectors, test_vectors = vectors
    present = train_vectors[train_vectors.any(axis=1)]
    components = PCA(min(COMPONENTS, *present.shape), random_state=seed).fit(present)
    train_features = pair_features(train, train_vectors, components)
    features = pair_features(timelines, test_vectors, components)
    return fit_and_predict(train, timelines, train_features, features, num_labels, random_state=seed)


def pair_features(timelines: Sequence[Timeline], vectors: np.ndarray, components: PCA) -> np.ndarray:
    """
    Returns the features of each post and the previous one: the principal components of both vectors, their difference,
    the cosine of the vector with the previous one and with the mean of all earlier ones, position and times. They are
    NaN where there is no previous post.
    """
    position_and_times = post_features(timelines)
    is_first = (position_and_times["position"] == 0).to_numpy()
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    sums = pd.DataFrame(units).groupby(is_first.cumsum()).cumsum().to_numpy() - units
    before = np.roll(units, 1, axis=0)
    cosines = [(units * before).sum(1), (units * sums).sum(1) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)]
    newest = components.transform(vectors)
    previous = np.roll(newest, 1, axis=0)
    steps = np.column_stack((previous, newest - previous, *cosines))
    steps[is_first] = np.nan
    return np.column_stack((newest, steps, position_and_times))
