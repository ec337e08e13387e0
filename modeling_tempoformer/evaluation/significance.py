"""Tests the difference of two macro F1s by a bootstrap over timelines."""

import warnings
from collections.abc import Hashable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import DegenerateDataWarning, bootstrap
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
        `difference`: macro F1 of `ours` minus `theirs`. `interval`: its percentile interval of 95 %. `p`:
        two-sided, twice the smaller share of resampled differences that are at most 0 or at least 0; never below 1 /
        `resamples`. Raises a `ValueError` for other lengths, class ids out of range, or only one timeline.
    """
    ours, theirs = np.atleast_2d(ours), np.atleast_2d(theirs)
    check_consistent_length(labels, groups, *ours, *theirs)
    labels, classes = np.asarray(labels), np.arange(num_labels)
    if wrong := np.setdiff1d(labels, classes).tolist():
        raise ValueError(f"Class ids in `labels` must be from 0 to {num_labels - 1}, got {wrong[0]}.")
    timeline_ids, timelines = pd.factorize(pd.Series(list(groups), dtype=object))
    counted = [
        np.stack([count_by_timeline(labels, each, timeline_ids, len(timelines), num_labels) for each in predictions])
        for predictions in (ours, theirs)
    ]
    return bootstrap_difference(*counted, resamples=resamples)


def count_by_timeline(
    labels: np.ndarray, predictions: np.ndarray, timelines: np.ndarray, num_timelines: int, num_labels: int
) -> np.ndarray:
    """
    Returns counts (timelines, 2, classes) from class ids (posts,) and the numbers of the posts' timelines: twice the
    hits of each class, and its labels plus its predictions. F1 is the first divided by the second, and both are sums.
    """
    classes, counts = np.arange(num_labels), np.zeros((num_timelines, 2, num_labels))
    is_label, is_predicted = ((ids[:, None] == classes).astype(np.int64) for ids in (labels, predictions))
    np.add.at(counts, timelines, np.stack([2 * is_predicted * is_label, is_predicted + is_label], axis=1))
    return counts


def bootstrap_difference(
    ours: np.ndarray, theirs: np.ndarray | None = None, undefined: float = 0.0, resamples: int = 10_000
) -> dict[str, float | tuple[float, float]]:
    """
    Bootstraps the difference of two macro F1s, each averaged over methods, by whole timelines.

    Args:
        ours, theirs (`np.ndarray` of shape `(methods, timelines, 2, classes)`): Counts of [`count_by_timeline`] for at
            least 2 timelines. Without `theirs`, the difference is the macro F1 of `ours`.
        undefined (`float`, *optional*, defaults to 0.0): The F1 of a class that is neither a label nor predicted. NaN
            leaves out samples that have such a class.
        resamples (`int`, *optional*, defaults to 10,000): Number of bootstrap samples.

    Returns the values of [`paired_bootstrap`].
    """
    counts = np.moveaxis(ours if theirs is None else np.concatenate([ours, theirs]), 1, 0)
    num_timelines = len(counts)

    def difference(sampled: np.ndarray, axis: int = -1) -> np.ndarray:
        """The differences of samples of timelines (..., timelines)."""
        multiplicity = np.apply_along_axis(np.bincount, axis, sampled, minlength=num_timelines)
        hits, sizes = np.moveaxis(np.tensordot(multiplicity, counts, axes=1), -2, 0)
        macro_f1 = np.divide(hits, sizes, out=np.full_like(hits, undefined), where=sizes > 0).mean(axis=-1)
        mean = macro_f1[..., : len(ours)].mean(axis=-1)
        return mean if theirs is None else mean - macro_f1[..., len(ours) :].mean(axis=-1)

    everything = np.arange(num_timelines)
    settings = {"n_resamples": resamples, "batch": 1000, "vectorized": True, "method": "percentile", "rng": 0}
    with warnings.catch_warnings():
        # The interval below leaves out samples without a value.
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap((everything,), difference, **settings)
    # Differences are rounded, because equal scores can differ in their last bits.
    differences = result.bootstrap_distribution[~np.isnan(result.bootstrap_distribution)]
    rounded = differences.round(12)
    p = 2 * min((rounded <= 0).mean(), (rounded >= 0).mean())
    return {
        "difference": float(difference(everything)),
        "interval": tuple(map(float, np.quantile(differences, [0.025, 0.975]))),
        "p": float(min(1.0, max(p, 1 / resamples))),
    }
