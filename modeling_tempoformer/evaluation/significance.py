"""Tests the difference of two macro F1s against the chance of which timelines were sampled."""

from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import bootstrap
from sklearn.utils import check_consistent_length


def paired_bootstrap(
    labels: Sequence[int],
    ours: Sequence[int] | Sequence[Sequence[int]],
    theirs: Sequence[int] | Sequence[Sequence[int]],
    groups: Sequence[Hashable],
    num_labels: int,
    resamples: int = 10_000,
) -> dict[str, float | tuple[float, float]]:
    """
    Compares the macro F1 of two methods on the same posts by a paired percentile bootstrap. It resamples whole
    timelines, because the posts of a timeline depend on each other.

    Args:
        labels (`Sequence[int]`): The class id of each post, from 0 to `num_labels` - 1.
        ours, theirs (`Sequence[int]` or `Sequence[Sequence[int]]`): The predicted class id of each post, or one such
            sequence for each seed: macro F1 is averaged over the seeds. -1 means no prediction, which is always wrong.
            If `theirs` has nothing else, the difference is the macro F1 of `ours`.
        groups (`Sequence[Hashable]`): The timeline of each post; at least 2 different ones.
        num_labels (`int`): Number of classes. A class that is neither a label nor predicted has an F1 of 0.
        resamples (`int`, *optional*, defaults to 10,000): Number of bootstrap samples.

    Returns:
        `difference`: macro F1 of `ours` minus that of `theirs`. `interval`: its percentile interval of 95 %. `p`:
        two-sided, twice the smaller share of resampled differences that are at most 0 or at least 0; never below 1 /
        `resamples`. Raises a `ValueError` for other lengths, class ids out of range, or only one timeline.
    """
    ours, theirs = np.atleast_2d(ours), np.atleast_2d(theirs)
    check_consistent_length(labels, groups, *ours, *theirs)
    labels, classes = np.asarray(labels), np.arange(num_labels)
    if wrong := np.setdiff1d(labels, classes).tolist():
        raise ValueError(f"Class ids in `labels` must be from 0 to {num_labels - 1}, got {wrong[0]}.")
    timeline_ids, timelines = pd.factorize(pd.Series(list(groups), dtype=object))

    # F1 is 2 * hits / (predictions + labels). Both terms are sums over posts, so that each timeline is counted once.
    is_label = (labels[:, None] == classes).astype(np.int64)
    is_predicted = (np.concatenate([ours, theirs])[..., None] == classes).astype(np.int64)
    counts_of_post = np.stack([2 * is_predicted * is_label, is_predicted + is_label])
    counts = np.zeros((len(timelines), *counts_of_post.shape[:2], num_labels))
    np.add.at(counts, timeline_ids, np.moveaxis(counts_of_post, 2, 0))

    def difference(sampled: np.ndarray, axis: int = -1) -> np.ndarray:
        """The differences of samples of timelines (..., timelines)."""
        multiplicity = np.apply_along_axis(np.bincount, axis, sampled, minlength=len(timelines))
        hits, sizes = np.moveaxis(np.tensordot(multiplicity, counts, axes=1), -3, 0)
        macro_f1 = np.divide(hits, sizes, out=np.zeros_like(hits), where=sizes > 0).mean(axis=-1)
        return macro_f1[..., : len(ours)].mean(axis=-1) - macro_f1[..., len(ours) :].mean(axis=-1)

    everything = np.arange(len(timelines))
    result = bootstrap(
        (everything,), difference, n_resamples=resamples, batch=1000, vectorized=True, method="percentile", rng=0
    )
    # Differences are rounded, because equal scores can differ in their last bits.
    differences = result.bootstrap_distribution.round(12)
    p = 2 * min((differences <= 0).mean(), (differences >= 0).mean())
    return {
        "difference": float(difference(everything)),
        "interval": tuple(map(float, result.confidence_interval)),
        "p": float(min(1.0, max(p, 1 / resamples))),
    }
