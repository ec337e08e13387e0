"""What a word's usages look like: a map of them, their clusters as senses, and the distance from the first time."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from .measures import average_pairwise_distance, k_means, pairwise_distance_interval


def split_by_time(joined: np.ndarray, vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What belongs to each time, of values for the usages of all times."""
    return np.split(joined, np.cumsum([len(part) for part in vectors])[:-1])


def project(vectors: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """
    A map of a word's usages: the first two principal components of the usages of all times together.

    Args:
        vectors: For each time an array (usages, width); two usages at least, and a width of at least two.

    Returns:
        For each time the coordinates (usages, 2), and the share of the variance that each of the two components has: 0
        if all vectors are the same.
    """
    joined = np.concatenate(vectors).astype(np.float64)
    pca = PCA(n_components=2, svd_solver="full")
    with np.errstate(invalid="ignore"):
        coordinates = pca.fit_transform(joined)
    return split_by_time(coordinates, vectors), np.nan_to_num(pca.explained_variance_ratio_)


@dataclass(frozen=True, slots=True)
class Senses:
    """
    Clusters of a word's usages. The first is the one whose share of the usages grew most from the first time to the
    last; the last is the one whose share shrank most.

    Attributes:
        labels (`list[np.ndarray]`): For each time the sense of each usage, from 0.
        counts (`np.ndarray` of shape `(senses, times)`): Number of usages.
        nearest (`list[list[np.ndarray]]`): For each sense and time the indices of its usages at that time, from the
            one nearest to the mean of the sense to the farthest, by Euclidean distance, as k-means has it.
        keywords (`list[list[str]]`): For each sense up to five words that stand near the word in this sense more than
            in the others, the most telling first. Empty lists if there is one sense.
    """

    labels: list[np.ndarray]
    counts: np.ndarray
    nearest: list[list[np.ndarray]]
    keywords: list[list[str]]

    @property
    def shares(self) -> np.ndarray:
        """The share of each sense in the usages of each time, shape `(senses, times)`; 0 at a time without usages."""
        return self.counts / np.maximum(self.counts.sum(axis=0), 1)

    @property
    def intervals(self) -> np.ndarray:
        """The 95 % intervals (Wilson) of the shares, shape `(senses, times, 2)`; NaN at a time without usages."""
        ends = np.full((*self.counts.shape, 2), np.nan)
        for (sense, time), count in np.ndenumerate(self.counts):
            if total := self.counts[:, time].sum():
                found = binomtest(int(count), int(total)).proportion_ci(method="wilson")
                ends[sense, time] = found.low, found.high
        return ends


def find_senses(vectors: Sequence[np.ndarray], num_clusters: int = 5, seed: int = 0) -> Senses:
    """
    Clusters the usages of all times together by k-means. With two times these are the clusters of
    [`cluster_distances`]. No dictionary and no labels are used: a cluster may be a sense, a part of one, a topic or a
    construction.

    Args:
        vectors: For each time an array (usages, width).
        num_clusters (`int`, *optional*, defaults to 5): Number of clusters; fewer if there are fewer usages.
        seed (`int`, *optional*, defaults to 0): Seed of k-means.
    """
    joined = np.concatenate(vectors).astype(np.float64)
    with warnings.catch_warnings():
        # Usages that are all the same have fewer clusters, which the result shows.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = k_means(min(num_clusters, len(joined)), seed).fit_predict(joined)
    # Without gaps, also where a cluster is empty.
    clusters, found = np.unique(found, return_inverse=True)
    counts = [np.bincount(part, minlength=len(clusters)) for part in split_by_time(found, vectors)]
    shares = np.stack([of_time / max(of_time.sum(), 1) for of_time in counts], axis=1)
    order = np.argsort(shares[:, 0] - shares[:, -1], kind="stable")
    labels = np.argsort(order)[found]
    means = np.stack([joined[labels == sense].mean(axis=0) for sense in range(len(order))])
    by_time = split_by_time(labels, vectors)
    nearest = [
        np.argsort(far, kind="stable")
        for far in split_by_time(np.linalg.norm(joined - means[labels], axis=1), vectors)
    ]
    return Senses(
        labels=by_time,
        counts=np.stack(counts, axis=1)[order],
        nearest=[
            [near[part[near] == sense] for near, part in zip(nearest, by_time, strict=True)]
            for sense in range(len(order))
        ],
        keywords=[[] for _ in order],
    )


def distances_from_first(vectors: Sequence[np.ndarray], seed: int = 0) -> list[tuple[float, float, float]]:
    """
    The [`average_pairwise_distance`] between the first time and each later one, with its 95 % interval. At the first
    time it is the mean distance of two different usages of that time, which is what a word without change has later
    too; it has no interval.

    Args:
        vectors: For each time an array (usages, width).
        seed (`int`): Seed of the bootstrap.

    Returns:
        For each time the distance and the ends of its interval, NaN if the first or that time has a single usage.
    """
    first, *later = vectors
    # A usage is at distance 0 from itself.
    pairs = len(first) / (len(first) - 1) if len(first) > 1 else math.nan
    within = average_pairwise_distance(first, first) * pairs
    return [
        (within, math.nan, math.nan),
        *((average_pairwise_distance(first, part), *pairwise_distance_interval(first, part, seed)) for part in later),
    ]
