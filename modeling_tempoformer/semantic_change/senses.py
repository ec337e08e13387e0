"""What a word's usages look like: a map of them, and their clusters as senses."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binomtest
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import chi2
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from .measures import k_means


# Chosen on the sense clusters of DWUG EN (`docs/results.md`).
MAX_SENSES = 8
MIN_SILHOUETTE = 0.2
MAX_KEYWORDS = 5


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


def cluster(joined: np.ndarray, seed: int) -> np.ndarray:
    """
    The cluster of each usage, by k-means: of 2 to [`MAX_SENSES`] clusters as many as have the largest silhouette, and
    one if none reaches [`MIN_SILHOUETTE`].
    """
    best, found = MIN_SILHOUETTE, np.zeros(len(joined), dtype=int)
    with warnings.catch_warnings():
        # Usages that are all the same have fewer clusters than asked for.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number in range(2, min(MAX_SENSES, len(joined) - 1) + 1):
            labels = k_means(number, seed).fit_predict(joined)
            if len(np.unique(labels)) == number and (score := silhouette_score(joined, labels)) > best:
                best, found = score, labels
    return found


def keywords(contexts: Sequence[str], labels: np.ndarray) -> list[list[str]]:
    """
    For each label the words that its contexts have more often than the others, by chi-squared; at most
    [`MAX_KEYWORDS`], the most telling first, each in three of its contexts at least. Words that all contexts share say
    nothing, so no list of stop words is needed.

    Args:
        contexts: The text around each usage.
        labels: The label of each, from 0.
    """
    counter = CountVectorizer(binary=True, token_pattern=r"(?u)\b[^\W\d_]{3,}\b")
    try:
        present = counter.fit_transform(contexts)
    except ValueError:
        # No context has a word.
        return [[] for _ in range(labels.max() + 1)]
    words = counter.get_feature_names_out()
    found = []
    for label in range(labels.max() + 1):
        own = labels == label
        inside, outside = present[own].sum(axis=0).A1, present[~own].sum(axis=0).A1
        telling = (inside >= 3) & (inside * np.sum(~own) > outside * np.sum(own))
        scores = np.where(telling, chi2(present, own)[0] if telling.any() else 0, -1)
        order = np.argsort(-scores, kind="stable")[:MAX_KEYWORDS]
        found.append([words[index] for index in order if telling[index]])
    return found


def find_senses(vectors: Sequence[np.ndarray], contexts: Sequence[Sequence[str]], seed: int = 0) -> Senses:
    """
    Clusters the usages of all times together: the first 20 principal components of their directions, by k-means. No
    dictionary and no labels are used: a cluster may be a sense, a part of one, a topic or a construction.

    Args:
        vectors: For each time an array (usages, width).
        contexts: For each time the text around each usage, without the word.
        seed (`int`, *optional*, defaults to 0): Seed of k-means.
    """
    joined = normalize(np.concatenate(vectors).astype(np.float64))
    # Vectors that are all the same have no variance to divide by.
    with np.errstate(invalid="ignore"):
        joined = PCA(min(20, *joined.shape), svd_solver="full").fit_transform(joined)
    clusters, found = np.unique(cluster(joined, seed), return_inverse=True)
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
        keywords=keywords([context for of_time in contexts for context in of_time], labels),
    )
