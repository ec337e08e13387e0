"""How much a word changed, from the vectors of its usages; and how well such scores agree with gold scores."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import jensenshannon
from scipy.stats import pearsonr, rankdata, spearmanr
from sklearn.cluster import AffinityPropagation, KMeans
from sklearn.exceptions import ConvergenceWarning
from transformers.utils import logging


logger = logging.get_logger(__name__)

# Of a correlation: of two words it is always 1 or -1.
FEWEST_WORDS = 3


def check_usages(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Both as float64; None if one of them is empty."""
    if np.size(before) == 0 or np.size(after) == 0:
        return None
    checked = []
    for name, vectors in (("before", before), ("after", after)):
        vectors = np.asarray(vectors, dtype=np.float64)
        if vectors.ndim != 2:
            raise ValueError(f"`{name}` must have the shape (usages, width), got {vectors.shape}.")
        infinite = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if infinite.size:
            raise ValueError(f"`{name}`: the vector of usage {infinite[0]} (counting from 0) is not finite.")
        checked.append(vectors)
    if checked[0].shape[1] != checked[1].shape[1]:
        raise ValueError(f"`before` has the width {checked[0].shape[1]}, `after` {checked[1].shape[1]}.")
    return checked[0], checked[1]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors (..., width) of length 1; NaN where the length is 0."""
    with np.errstate(invalid="ignore"):
        return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def prototype_distance(before: np.ndarray, after: np.ndarray) -> float:
    """
    Cosine distance (0 to 2) between the mean vectors of two sets of usages: PRT of Kutuzov and Giulianelli (2020), as
    a distance where they invert the similarity; Algorithm 1 of Rosin and Radinsky (2022).

    Args:
        before, after (`np.ndarray` of shape `(usages, width)`): The vectors of a word's usages at two time points.

    Returns:
        NaN if one of them is empty or its mean is 0. Raises a `ValueError` if the widths differ or a vector is not
        finite.
    """
    usages = check_usages(before, after)
    if usages is None:
        return math.nan
    old, new = (unit(vectors.mean(axis=0)) for vectors in usages)
    return float(1 - old @ new)


def average_pairwise_distance(before: np.ndarray, after: np.ndarray) -> float:
    """
    Mean cosine distance (0 to 2) over all pairs of a usage before and a usage after (APD, Giulianelli et al., 2020).

    Args:
        before, after (`np.ndarray` of shape `(usages, width)`): The vectors of a word's usages at two time points.

    Returns:
        NaN if one of them is empty or has a vector that is 0. Raises a `ValueError` if the widths differ or a vector
        is not finite.
    """
    usages = check_usages(before, after)
    if usages is None:
        return math.nan
    # The mean of all products is the product of the means.
    old, new = (unit(vectors).mean(axis=0) for vectors in usages)
    return float(1 - old @ new)


def trajectory(vectors_by_time: list[np.ndarray]) -> list[float]:
    """
    The [`prototype_distance`] between each time point and the next.

    Args:
        vectors_by_time (`list[np.ndarray]`): The vectors of a word's usages (usages, width), in the order of time.

    Returns:
        One distance less than there are time points; NaN beside a time point without usages.
    """
    return [prototype_distance(*pair) for pair in zip(vectors_by_time, vectors_by_time[1:], strict=False)]


def cluster_distances(before: np.ndarray, after: np.ndarray, seed: int = 0, num_clusters: int = 5) -> dict[str, float]:
    """
    Clusters a word's usages of two time points together, and compares how the two are spread over the clusters, as
    Martinc et al. (2020) and Montariol et al. (2021) do.

    Args:
        before, after (`np.ndarray` of shape `(usages, width)`): The vectors of a word's usages at two time points.
            Affinity propagation takes memory and time in the square of their number: sample very frequent words.
        seed (`int`, *optional*, defaults to 0): Of both clusterings.
        num_clusters (`int`, *optional*, defaults to 5): Of k-means. Affinity propagation finds their number itself.

    Returns:
        Where NAME is `affinity_propagation` or `k_means`, `NAME_jensen_shannon`, the Jensen-Shannon distance (the root
        of the divergence, base 2, 0 to 1) between the two distributions over clusters, and `NAME_wasserstein`, the
        least cost of moving the one distribution to the other, where the cost between two clusters is the cosine
        distance of the means of their usages before and after.
        All are NaN if there are no usages before or after; those of a clustering are NaN, and a warning says so, if
        affinity propagation does not converge or there are fewer usages than `num_clusters`. Raises a `ValueError` if
        the widths differ or a vector is not finite.
    """
    names = ("affinity_propagation", "k_means")
    distances = {f"{name}_{kind}": math.nan for name in names for kind in ("jensen_shannon", "wasserstein")}
    usages = check_usages(before, after)
    if usages is None:
        return distances
    vectors = np.concatenate(usages)
    for name, labels in zip(names, (propagate(vectors, seed), k_means(vectors, seed, num_clusters)), strict=True):
        if labels is not None:
            parts = np.split(labels, [len(usages[0])])
            counts = [np.bincount(part, minlength=labels.max() + 1) for part in parts]
            distances[f"{name}_jensen_shannon"] = float(jensenshannon(*counts, base=2))
            distances[f"{name}_wasserstein"] = move_clusters(usages, parts)
    return distances


def propagate(vectors: np.ndarray, seed: int) -> np.ndarray | None:
    """The cluster of each vector by affinity propagation; None if it does not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return AffinityPropagation(random_state=seed).fit(vectors).labels_
        except ConvergenceWarning:
            logger.warning(f"Affinity propagation of {len(vectors)} usages did not converge: no distance.")
            return None


def k_means(vectors: np.ndarray, seed: int, num_clusters: int) -> np.ndarray | None:
    """The cluster of each vector by k-means; None if there are too few."""
    if len(vectors) < num_clusters:
        logger.warning(f"{len(vectors)} usages cannot form {num_clusters} clusters: no distance.")
        return None
    return KMeans(num_clusters, n_init=10, random_state=seed).fit(vectors).labels_


def move_clusters(usages: tuple[np.ndarray, np.ndarray], labels: list[np.ndarray]) -> float:
    """Wasserstein distance between the clusters before and after; a cluster is the mean of its usages there."""
    try:
        import ot
    except ImportError as problem:
        raise ImportError('Wasserstein distances need POT: pip install "modeling-tempoformer[change]".') from problem
    means, shares = [], []
    for vectors, part in zip(usages, labels, strict=True):
        clusters, counts = np.unique(part, return_counts=True)
        means.append(unit(np.stack([vectors[part == cluster].mean(axis=0) for cluster in clusters])))
        shares.append(counts / len(part))
    costs = 1 - means[0] @ means[1].T
    return float(ot.emd2(*shares, costs)) if np.isfinite(costs).all() else math.nan


@dataclass(frozen=True, slots=True)
class Agreement:
    """
    How well scores agree with gold scores, over the words that have both.

    Attributes:
        pearson (`float`): The correlation of scores.
        pearson_p (`float`): Its two-sided p-value.
        pearson_interval (`tuple[float, float]`): Its 95 % percentile-bootstrap interval over words.
        spearman (`float`): The correlation of ranks.
        spearman_p (`float`): Its two-sided p-value.
        spearman_interval (`tuple[float, float]`): Its 95 % percentile-bootstrap interval over words.
        num_words (`int`): How many words have both.
        missing (`tuple[str, ...]`): Words with a gold score, but without a score or with a score that is NaN.
        extra (`tuple[str, ...]`): Words with a score (also NaN), but without a gold score.
        skipped_resamples (`int`): Resamples without a correlation, as all their scores or gold scores were the same.
    """

    pearson: float
    pearson_p: float
    pearson_interval: tuple[float, float]
    spearman: float
    spearman_p: float
    spearman_interval: tuple[float, float]
    num_words: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    skipped_resamples: int


def agreement(scores: dict[str, float], truth: dict[str, float], seed: int = 0, resamples: int = 1000) -> Agreement:
    """
    Correlates scores with gold scores.

    Args:
        scores, truth (`dict[str, float]`): By word. NaN in `scores` means that a word has no score.
        seed (`int`, *optional*, defaults to 0): Of the bootstrap.
        resamples (`int`, *optional*, defaults to 1000): Of the bootstrap.

    Returns:
        An [`Agreement`]. Raises a `ValueError` if fewer than 3 words have both, a score is infinite, a gold score is
        not finite, or all scores or all gold scores are the same.
    """
    words = [word for word in truth if not math.isnan(scores.get(word, math.nan))]
    missing = tuple(word for word in truth if word not in words)
    extra = tuple(word for word in scores if word not in truth)
    if len(words) < FEWEST_WORDS:
        raise ValueError(
            f"A correlation needs {FEWEST_WORDS} words with score and gold score, got {len(words)}. Without score: "
            f"{', '.join(missing) or 'none'}; without gold score: {', '.join(extra) or 'none'}."
        )
    if resamples < 1:
        raise ValueError(f"`resamples` must be at least 1, got {resamples}.")
    both = []
    for name, values in (("scores", scores), ("truth", truth)):
        for word in words:
            if not math.isfinite(values[word]):
                raise ValueError(f"`{name}`: the score {values[word]} of '{word}' is not finite.")
        both.append(np.array([values[word] for word in words], dtype=np.float64))
        if np.ptp(both[-1]) == 0:
            raise ValueError(f"`{name}`: all {len(words)} words have the score {both[-1][0]}: no correlation.")
    pearson, spearman = pearsonr(*both), spearmanr(*both)
    chosen = np.random.default_rng(seed).integers(len(words), size=(resamples, len(words)))
    drawn = [values[chosen] for values in both]
    varied = (np.ptp(drawn[0], axis=1) > 0) & (np.ptp(drawn[1], axis=1) > 0)
    if not varied.any():
        raise ValueError(f"In each of {resamples} resamples all scores or all gold scores are the same.")
    drawn = [values[varied] for values in drawn]
    ranks = [rankdata(values, axis=1) for values in drawn]
    return Agreement(
        pearson=float(pearson.statistic),
        pearson_p=float(pearson.pvalue),
        pearson_interval=interval(pearsonr(*drawn, axis=1).statistic),
        spearman=float(spearman.statistic),
        spearman_p=float(spearman.pvalue),
        spearman_interval=interval(pearsonr(*ranks, axis=1).statistic),
        num_words=len(words),
        missing=missing,
        extra=extra,
        skipped_resamples=int((~varied).sum()),
    )


def interval(statistics: np.ndarray) -> tuple[float, float]:
    """The middle 95 %."""
    low, high = np.percentile(statistics, (2.5, 97.5))
    return float(low), float(high)
