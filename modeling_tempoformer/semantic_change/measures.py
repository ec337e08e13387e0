"""Measures of a word's change, from the vectors of its usages, and the agreement of scores with gold scores."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import DegenerateDataWarning, binomtest, bootstrap, pearsonr, rankdata
from sklearn.metrics.pairwise import cosine_distances
from sklearn.preprocessing import normalize


# The correlation of two words is always 1 or -1.
MIN_WORDS = 3


def prototype_distance(before: np.ndarray, after: np.ndarray) -> float:
    """
    Cosine distance (0 to 2) between the mean vectors of two sets of usages. This is Algorithm 1 of Rosin and Radinsky
    (2022), and PRT of Kutuzov and Giulianelli (2020) as a distance instead of an inverted similarity.

    Args:
        before, after (`np.ndarray` of shape `(usages, width)`): The vectors of a word's usages at two time points.

    Raises a `ValueError` if one of them is empty, if the widths differ, or if a vector is not finite.
    """
    # A sum of many usages overflows in 16 bits.
    prototypes = (np.mean(vectors, axis=0, dtype=np.float64, keepdims=True) for vectors in (before, after))
    return cosine_distances(*prototypes).item()


def standardiser(parts: Iterable[np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    """
    Returns a function that gives each dimension the mean 0 and the standard deviation 1 over the usages of all words.
    A dimension in which all usages are equal stays 0.

    Args:
        parts (`Iterable[np.ndarray]` of shape `(usages, width)`): The vectors of all usages.
    """
    joined = np.concatenate(list(parts)).astype(np.float64)
    mean, deviation = joined.mean(axis=0), joined.std(axis=0)
    # Rounding leaves a tiny deviation where all are equal.
    deviation[deviation <= 1e-6 * deviation.max()] = np.inf
    return lambda part: (part - mean) / deviation


def shuffled_prototypes(
    at_first: np.ndarray, at_last: np.ndarray, num_before: int, seed: int = 0, resamples: int = 4999
) -> tuple[float, float]:
    """
    Assigns usages to the two time points at random. Returns the mean [`prototype_distance`] of these assignments
    (Dubossarsky et al., 2017), and the p-value of the real distance (permutation test of Liu, Medlar and Glowacka,
    2021).

    Args:
        at_first, at_last (`np.ndarray` of shape `(usages, width)`): The vectors of all usages, those of the first time
            point first, as the model reads them at the first and at the last time point.
        num_before (`int`): The number of usages of the first time point.
    """
    is_before = np.arange(len(at_first)) < num_before
    shuffles = np.random.default_rng(seed).permuted(np.tile(is_before, (resamples, 1)), axis=1)
    members = np.vstack([is_before, shuffles]).astype(np.float64)
    before, after = normalize(members @ at_first), normalize((1 - members) @ at_last)
    distance, *by_chance = 1 - (before * after).sum(axis=1)
    # A shuffle may be the real assignment, whose distance is the same up to rounding.
    num_as_large = np.sum(np.array(by_chance) >= distance - 1e-12)
    return float(np.mean(by_chance)), float((1 + num_as_large) / (1 + resamples))


def average_pairwise_distance(before: np.ndarray, after: np.ndarray) -> float:
    """
    Mean cosine distance (0 to 2) over all pairs of a usage before and a usage after (APD, Giulianelli et al., 2020).

    Args:
        before, after: See [`prototype_distance`], which also raises a `ValueError` for the same vectors.
    """
    # The mean of the products of all pairs is the product of the means.
    old, new = (normalize(np.asarray(vectors, dtype=np.float64)).mean(axis=0) for vectors in (before, after))
    return float(1 - old @ new)


def change_score(apd: float, prt_corrected: float) -> float:
    """
    Score of a word's change, from 0 to 100: 100 times the geometric mean of its [`average_pairwise_distance`] and of
    its [`prototype_distance`] less the mean distance by chance (at least 0). The first alone is large for words of
    many senses that do not change, the second alone for rare words (Kutuzov, Velldal and Ovrelid, 2022).
    """
    return 100 * math.sqrt(max(apd, 0) * max(prt_corrected, 0))


def prototype_deviations(
    before: np.ndarray, after: np.ndarray, seed: int = 0, resamples: int = 1999
) -> tuple[float, float]:
    """
    Returns the 2.5 % and 97.5 % quantiles of the bootstrap distribution of the [`prototype_distance`] over usages,
    less its mean. The mean is too large itself, because means of resampled usages lie further apart.
    """
    rng, means = np.random.default_rng(seed), []
    for part in (before, after):
        weights = rng.multinomial(len(part), np.full(len(part), 1 / len(part)), resamples)
        means.append(normalize(weights.astype(np.float64) @ part))
    distances = 1 - (means[0] * means[1]).sum(axis=1)
    low, high = np.quantile(distances, (0.025, 0.975)) - distances.mean()
    return float(low), float(high)


def share_interval(count: int, total: int) -> list[float]:
    """Returns a share, and the ends of its 95 % interval (Wilson)."""
    ends = binomtest(int(count), int(total)).proportion_ci(method="wilson")
    return [count / total, float(ends.low), float(ends.high)]


def agreement(
    scores: Mapping[str, float], truth: Mapping[str, float], seed: int = 0, resamples: int = 1000
) -> dict[str, Any]:
    """
    Computes the Pearson and Spearman correlations of scores with gold scores, and their 95 % percentile-bootstrap
    intervals over words. Words without a score or gold score (NaN) are skipped, and so are bootstrap samples in which
    all scores or all gold scores are the same.
    """
    gold = pd.Series(truth, dtype=float)
    both = pd.DataFrame({"score": pd.Series(scores, dtype=float).reindex(gold.index), "gold score": gold}).dropna()
    if len(both) < MIN_WORDS or (both.nunique() == 1).any():
        raise ValueError(
            f"A correlation needs {MIN_WORDS} words with a score and a gold score, and scores and gold scores that "
            f"differ; these words have both: {', '.join(both.index) or 'none'}."
        )

    def correlations(ours: np.ndarray, gold: np.ndarray, axis: int = -1) -> np.ndarray:
        """Pearson and Spearman correlation, NaN if all values are the same."""
        ranks = rankdata(ours, axis=axis), rankdata(gold, axis=axis)
        return np.stack([pearsonr(ours, gold, axis=axis).statistic, pearsonr(*ranks, axis=axis).statistic])

    pairs = both.to_numpy().T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap(pairs, correlations, n_resamples=resamples, paired=True, method="percentile", rng=seed)
    intervals = np.nanpercentile(result.bootstrap_distribution, (2.5, 97.5), axis=-1).T.tolist()
    figures: dict[str, Any] = {"num_words": len(both)}
    for name, value, interval in zip(("pearson", "spearman"), correlations(*pairs), intervals, strict=True):
        figures |= {name: float(value), f"{name}_interval": tuple(interval)}
    return figures
