"""Random by class prior."""

import numpy as np
from datasets import Dataset

from ..evaluation.predictions import labels_of


def class_prior_predictions(
    train: Dataset, test: Dataset, num_labels: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """
    A class for each post, drawn by the classes' shares of the labelled training posts (paper, section 5.2).

    Args:
        train, test (`Dataset`): As [`to_timelines`] returns them.
        num_labels (`int`): Number of classes.
        seed (`int`, *optional*, defaults to 0): Of the draw.

    Returns:
        Class ids of shape `(posts,)`, in the order of the timelines, and the shares for each, `(posts, num_labels)`.
        Raises a `ValueError` where no training post has a label.
    """
    labels = labels_of(train)
    labels = labels[labels >= 0]
    if not len(labels):
        raise ValueError("No training post has a label.")
    shares = np.bincount(labels, minlength=num_labels) / len(labels)
    count = len(labels_of(test))
    drawn = np.random.default_rng(seed).choice(num_labels, size=count, p=shares)
    return drawn, np.tile(shares, (count, 1))
