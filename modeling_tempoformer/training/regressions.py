"""Fits a logistic regression for each member of a model, which does not learn from the member's held-out fold."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight


# The logit of a class that a member has not seen
NEVER = -30.0


def fit_regressions(
    inputs: np.ndarray | csr_matrix,
    ids: np.ndarray,
    held_out: np.ndarray,
    num_members: int,
    num_classes: int,
    strengths: Sequence[float],
    class_weight: str | None = None,
    **settings: float,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Returns slopes (members, inputs, classes) and intercepts (members, classes), by the penalty with the largest
    likelihood of the held-out folds. A member that has seen one class alone has zeros.

    Args:
        inputs (`np.ndarray` or `csr_matrix` of shape `(posts, inputs)`): What is read of each post.
        ids (`np.ndarray` of shape `(posts,)`): The class of each post.
        held_out (`np.ndarray` of shape `(posts,)`): The member that has each post in its held-out fold.
        num_members, num_classes (`int`): Their numbers.
        strengths (`Sequence[float]`): Inverse L2 penalties to choose from.
        class_weight (`str`, *optional*): As scikit-learn takes it, also for the likelihood.
        settings: Other arguments of `LogisticRegression`.
    """
    counts, best, chosen = compute_sample_weight(class_weight, ids), np.inf, None
    for strength in strengths:
        slopes = np.zeros((num_members, inputs.shape[1], num_classes))
        intercepts, losses = np.zeros((num_members, num_classes)), np.zeros(len(ids))
        for member in range(num_members):
            part = held_out != member
            if len(np.unique(ids[part])) > 1:
                regression = LogisticRegression(C=strength, class_weight=class_weight, **settings)
                slopes[member], intercepts[member] = by_class(regression.fit(inputs[part], ids[part]), num_classes)
            log_p = log_softmax(inputs[~part] @ slopes[member] + intercepts[member], axis=-1)
            losses[~part] = -log_p[np.arange(len(log_p)), ids[~part]]
        loss = np.average(losses, weights=counts)
        if loss < best:
            best, chosen = loss, (slopes, intercepts)
    return chosen


def by_class(fit: LogisticRegression, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns slopes (inputs, classes) and intercepts (classes,) of a regression, also for classes not seen in it."""
    slopes, intercepts = fit.coef_, fit.intercept_
    if len(fit.classes_) == 2:
        slopes, intercepts = np.outer([-0.5, 0.5], slopes), np.outer([-0.5, 0.5], intercepts)[:, 0]
    every_slope, every_intercept = np.zeros((slopes.shape[1], num_classes)), np.full(num_classes, NEVER)
    every_slope[:, fit.classes_], every_intercept[fit.classes_] = slopes.T, intercepts
    return every_slope, every_intercept
