"""Measures how far annotators agree."""

import numpy as np


def krippendorff_alpha(votes: np.ndarray) -> float | None:
    """
    Measures the agreement of annotators by Krippendorff's alpha for classes without an order.

    Args:
        votes (`np.ndarray` of shape `(posts, classes)`): How many annotators gave each class.

    Returns 1 for full agreement, 0 for agreement by chance, and None if posts with several labels have one class only.
    """
    several = votes[votes.sum(axis=-1) > 1]
    numbers, totals = several.sum(axis=-1), several.sum(axis=0)
    # Pairs of different labels: within posts, each weighing as many labels as it has, and among all labels.
    observed = ((numbers**2 - (several**2).sum(axis=-1)) / (numbers - 1)).sum()
    expected = (totals.sum() ** 2 - (totals**2).sum()) / (totals.sum() - 1)
    return None if expected == 0 else float(1 - observed / expected)
