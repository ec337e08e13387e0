"""Random labels, drawn by the class prior."""

import numpy as np
from datasets import Dataset

from ..evaluation.predictions import labels_of


def class_prior_predictions(
    train: Dataset, test: Dataset, num_labels: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """
    Draws a class for each post, with the probability that the class has among the labelled training posts (TempoFormer
    paper, section 5.2).

    Args:
        train, test (`Dataset`): From [`to_timelines`].
        num_labels (`int`): Number of classes.
        seed (`int`, *optional*, defaults to 0): Seed of the draw.

    Returns:
        Class ids of shape `(posts,)`, in the order of the timelines, and the same probabilities for each post, of
        shape `(posts, num_labels)`. Raises a `ValueError` if no training post has a label.
    """
    labels = labels_of(train)
    labels = labels[labels >= 0]
    if not len(labels):
        raise ValueError("No training post has a label.")
    shares = np.bincount(labels, minlength=num_labels) / len(labels)
    count = len(labels_of(test))
    drawn = np.random.default_rng(seed).choice(num_labels, size=count, p=shares)
    return drawn, np.tile(shares, (count, 1))
