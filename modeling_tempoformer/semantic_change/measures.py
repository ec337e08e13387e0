"""How much a word changed, from the vectors of its usages; and how well such scores agree with gold scores."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import DegenerateDataWarning, bootstrap, pearsonr, rankdata
from sklearn.metrics.pairwise import cosine_distances
from sklearn.preprocessing import normalize


# Two words always have a correlation of 1 or -1.
MIN_WORDS = 3


def prototype_distance(before: np.ndarray, after: np.ndarray) -> float:
    """
    Cosine distance (0 to 2) between the mean vectors of two sets of usages. This is PRT of Kutuzov and Giulianelli
    (2020), but as a distance instead of an inverted similarity, and Algorithm 1 of Rosin and Radinsky (2022).

    Args:
        before, after (`np.ndarray` of shape `(usages, width)`): The vectors of a word's usages at two time points.

    Raises a `ValueError` if one of them is empty, if the widths differ, or if a vector is not finite.
    """
    # Sums of many usages overflow in 16 bits.
    prototypes = (np.mean(vectors, axis=0, dtype=np.float64, keepdims=True) for vectors in (before, after))
    return cosine_distances(*prototypes).item()


def shuffled_prototypes(
    at_first: np.ndarray, at_last: np.ndarray, num_before: int, seed: int = 0, resamples: int = 4999
) -> tuple[float, float]:
    """
    The mean [`prototype_distance`] of usages that are spread over the two time points by chance (Dubossarsky et al.,
    2017), and the p-value of the real one (permutation test of Liu, Medlar and Glowacka, 2021). `at_first` and
    `at_last` are the vectors of all usages, those before first, read at the first and at the last time point.
    """
    is_before = np.arange(len(at_first)) < num_before
    shuffles = np.random.default_rng(seed).permuted(np.tile(is_before, (resamples, 1)), axis=1)
    members = np.vstack([is_before, shuffles]).astype(np.float64)
    before, after = normalize(members @ at_first), normalize((1 - members) @ at_last)
    distance, *by_chance = 1 - (before * after).sum(axis=1)
    # Shuffles that change nothing have the real distance up to rounding.
    as_large = np.sum(np.array(by_chance) >= distance - 1e-12)
    return float(np.mean(by_chance)), float((1 + as_large) / (1 + resamples))


def average_pairwise_distance(before: np.ndarray, after: np.ndarray) -> float:
    """
    Mean cosine distance (0 to 2) over all pairs of a usage before and a usage after (APD, Giulianelli et al., 2020).

    Args:
        before, after: As for [`prototype_distance`], also where it raises a `ValueError`.
    """
    # The mean of all products is the product of the means.
    old, new = (normalize(np.asarray(vectors, dtype=np.float64)).mean(axis=0) for vectors in (before, after))
    return float(1 - old @ new)


def change_score(apd: float, prt_corrected: float) -> float:
    """
    How much a word changed, from 0 to 100: the geometric mean of its [`average_pairwise_distance`] and of its
    [`prototype_distance`] less the distance by chance (0 if that is negative), times 100. Alone the first is large for
    words of many steady senses, and the second for rare words (Kutuzov, Velldal and Ovrelid, 2022).
    """
    return 100 * math.sqrt(max(apd, 0) * max(prt_corrected, 0))


def prototype_deviations(
    before: np.ndarray, after: np.ndarray, seed: int = 0, resamples: int = 1999
) -> tuple[float, float]:
    """
    How far the sample of usages can move the [`prototype_distance`]: the 2.5 % and 97.5 % quantiles of its bootstrap
    distribution less their mean, which is too large itself: means of resampled usages lie further apart.
    """
    rng, means = np.random.default_rng(seed), []
    for part in (before, after):
        weights = rng.multinomial(len(part), np.full(len(part), 1 / len(part)), resamples)
        means.append(normalize(weights.astype(np.float64) @ part))
    distances = 1 - (means[0] * means[1]).sum(axis=1)
    low, high = np.quantile(distances, (0.025, 0.975)) - distances.mean()
    return float(low), float(high)


def agreement(
    scores: Mapping[str, float], truth: Mapping[str, float], seed: int = 0, resamples: int = 1000
) -> dict[str, Any]:
    """
    Pearson and Spearman correlations of scores, where they are not NaN, with gold scores; and their 95 %
    percentile-bootstrap intervals over words, without samples whose scores or gold scores are all the same.
    """
    gold = pd.Series(truth, dtype=float)
    both = pd.DataFrame({"score": pd.Series(scores, dtype=float).reindex(gold.index), "gold score": gold}).dropna()
    if len(both) < MIN_WORDS or (both.nunique() == 1).any():
        raise ValueError(
            f"A correlation needs {MIN_WORDS} words with a score and a gold score, and scores and gold scores that "
            f"differ; these words have both: {', '.join(both.index) or 'none'}."
        )

    def correlations(ours: np.ndarray, gold: np.ndarray, axis: int = -1) -> np.ndarray:
        """Pearson and Spearman, NaN where all values are the same."""
        ranks = rankdata(ours, axis=axis), rankdata(gold, axis=axis)
        return np.stack([pearsonr(ours, gold, axis=axis).statistic, pearsonr(*ranks, axis=axis).statistic])

    pairs = both.to_numpy().T
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap(pairs, correlations, n_resamples=resamples, paired=True, method="percentile", rng=seed)
    intervals = np.nanpercentile(result.bootstrap_distribution, (2.5, 97.5), axis=-1).T.tolist()
    found: dict[str, Any] = {"num_words": len(both)}
    for name, value, interval in zip(("pearson", "spearman"), correlations(*pairs), intervals, strict=True):
        found |= {name: float(value), f"{name}_interval": tuple(interval)}
    return found
