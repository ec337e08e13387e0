"""The shares of the classes among the labelled training posts."""

from collections.abc import Sequence

import numpy as np

from ..evaluation.predictions import all_labels
from ..timeline_tempoformer import Timeline


def predict(train: Sequence[Timeline], timelines: Sequence[Timeline], num_labels: int) -> np.ndarray:
    """
    Returns the share of each class among the labelled posts of `train` as the probabilities (posts, num_labels) of
    each post of `timelines`.
    """
    labels = all_labels(train)
    labels = labels[labels >= 0]
    shares = np.bincount(labels, minlength=num_labels) / len(labels)
    return np.tile(shares, (sum(map(len, timelines)), 1))
