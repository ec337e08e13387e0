"""How sure a macro F1 or a difference of two is, given the chance of which timelines were sampled."""

from collections.abc import Callable, Hashable, Sequence

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
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, float | tuple[float, float]]:
    """
    Compares the macro F1 of two methods on the same posts by a paired percentile bootstrap. It resamples whole
    timelines, because the posts of a timeline depend on each other.

    Args:
        labels (`Sequence[int]`): The class id of each post, from 0 to `num_labels` - 1.
        ours, theirs (`Sequence[int]` or `Sequence[Sequence[int]]`): The predicted class id of each post, or one such
            sequence for each seed: macro F1 is averaged over the seeds. -1 means no prediction, which is always wrong.
        groups (`Sequence[Hashable]`): The timeline of each post; at least 2 different ones.
        num_labels (`int`): Number of classes. A class that is neither a label nor predicted has an F1 of 0.
        resamples (`int`, *optional*, defaults to 10,000): Number of bootstrap samples.
        level (`float`, *optional*, defaults to 0.95): Confidence level of the interval.
        seed (`int`, *optional*, defaults to 0): Seed of the resampling.

    Returns:
        `difference`: macro F1 of `ours` minus macro F1 of `theirs` on all posts. `interval`: its percentile interval.
        `p`: the two-sided p-value, which is twice the smaller share of resampled differences that are at most 0 or at
        least 0; never below 1 / `resamples`. Raises a `ValueError` if the lengths differ, if a class id in `labels` is
        out of range, or if there is only one timeline.
    """
    methods = [np.atleast_2d(predictions) for predictions in (ours, theirs)]

    def difference(macro_f1: np.ndarray) -> np.ndarray:
        our_f1, their_f1 = np.split(macro_f1, [len(methods[0])], axis=-1)
        return our_f1.mean(axis=-1) - their_f1.mean(axis=-1)

    value, interval, sampled = bootstrap_macro_f1(
        difference, labels, np.concatenate(methods), groups, num_labels, resamples, level, seed
    )
    # Rounded, because equal scores can differ in their last bits.
    differences = sampled.round(12)
    p = 2 * min((differences <= 0).mean(), (differences >= 0).mean())
    return {
        "difference": value,
        "interval": interval,
        "p": float(min(1.0, max(p, 1 / resamples))),
    }


def macro_f1_interval(
    labels: Sequence[int],
    predictions: Sequence[int],
    groups: Sequence[Hashable],
    num_labels: int,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """
    The percentile interval of a method's macro F1, by a bootstrap over whole timelines.

    Args:
        predictions (`Sequence[int]`): The predicted class id of each post; -1 means no prediction, which is always
            wrong.
        labels, groups, num_labels, resamples, level, seed: As in [`paired_bootstrap`].

    Returns:
        `tuple[float, float]`: Its ends, from 0 to 1. Raises a `ValueError` as [`paired_bootstrap`] does.
    """
    _, interval, _ = bootstrap_macro_f1(
        lambda scores: scores[..., 0], labels, np.atleast_2d(predictions), groups, num_labels, resamples, level, seed
    )
    return interval


def bootstrap_macro_f1(
    statistic: Callable[[np.ndarray], np.ndarray],
    labels: Sequence[int],
    methods: np.ndarray,
    groups: Sequence[Hashable],
    num_labels: int,
    resamples: int,
    level: float,
    seed: int,
) -> tuple[float, tuple[float, float], np.ndarray]:
    """
    A statistic of the macro F1 of several methods: its value on all posts, its interval, and its values on samples of
    timelines, shape (resamples,). `methods` has the class ids that each method predicts, shape (methods, posts);
    `statistic` takes the macro F1 of each method in each sample, shape (..., methods).
    """
    check_consistent_length(labels, groups, *methods)
    labels, classes = np.asarray(labels), np.arange(num_labels)
    if wrong := np.setdiff1d(labels, classes).tolist():
        raise ValueError(f"Class ids in `labels` must be from 0 to {num_labels - 1}, got {wrong[0]}.")
    timeline_ids, timelines = pd.factorize(pd.Series(list(groups), dtype=object))

    # F1 is 2 * hits / (predictions + labels). Both terms are sums over posts, so each timeline is counted only once.
    is_label = (labels[:, None] == classes).astype(np.int64)
    is_predicted = (methods[..., None] == classes).astype(np.int64)
    counts_of_post = np.stack([2 * is_predicted * is_label, is_predicted + is_label])
    counts = np.zeros((len(timelines), *counts_of_post.shape[:2], num_labels))
    np.add.at(counts, timeline_ids, np.moveaxis(counts_of_post, 2, 0))

    def of_sample(sampled: np.ndarray, axis: int = -1) -> np.ndarray:
        """The statistic of samples of timelines, shape (..., timelines)."""
        multiplicity = np.apply_along_axis(np.bincount, axis, sampled, minlength=len(timelines))
        hits, sizes = np.moveaxis(np.tensordot(multiplicity, counts, axes=1), -3, 0)
        return statistic(np.divide(hits, sizes, out=np.zeros_like(hits), where=sizes > 0).mean(axis=-1))

    everything = np.arange(len(timelines))
    result = bootstrap(
        (everything,),
        of_sample,
        n_resamples=resamples,
        batch=1000,
        vectorized=True,
        confidence_level=level,
        method="percentile",
        rng=seed,
    )
    interval = tuple(map(float, result.confidence_interval))
    return float(of_sample(everything)), interval, result.bootstrap_distribution
