"""A map of a word's usages, and their clusters as senses."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from .keywords import WordsAround
from .usages import Usage, context


# Chosen on the sense clusters of DWUG EN (`benchmarks/results/semantic_change.md`).
MAX_SENSES = 8
MIN_SILHOUETTE = 0.2
# A number of senses is near the best if its silhouette is at least this share of the largest one.
NEAR = 0.9
# Fewer usages for each sense tell nothing.
MIN_USAGES = 3
COMPONENTS = 20


def fit_components(vectors: np.ndarray, number: int) -> PCA:
    """Fits the first principal components of usages."""
    with np.errstate(invalid="ignore"):
        return PCA(min(number, *vectors.shape), svd_solver="full").fit(vectors.astype(np.float64))


def principal_components(vectors: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """
    Returns the first principal components of usages, and the share of the variance of each (0 if all vectors are the
    same).
    """
    pca = fit_components(vectors, number)
    return pca.transform(vectors.astype(np.float64)), np.nan_to_num(pca.explained_variance_ratio_)


class Senses(NamedTuple):
    """
    Clusters of a word's usages. Senses are sorted by the growth of their share of the usages from the first time with
    usages to the last: the first sense grew most, the last one shrank most. The senses of a word with usages at one
    time are sorted by their size. Usages are numbered in the order of times.

    Attributes:
        labels (`np.ndarray` of shape `(usages,)`): The sense of each usage.
        counts (`np.ndarray` of shape `(senses, times)`): The number of usages.
        nearest (`np.ndarray` of shape `(usages,)`): The usages by their distance from the mean of their sense, the
            nearest first.
        keywords (`list[list[str]]`): The words that the contexts of each sense have more often than the others.
        means (`np.ndarray` of shape `(senses, components)`): The middle of each sense.
        silhouette (`float`): How well the senses stand apart, at most 1; 0 for one sense.
    """

    labels: np.ndarray
    counts: np.ndarray
    nearest: np.ndarray
    keywords: list[list[str]]
    means: np.ndarray
    silhouette: float

    def find_nearest(self, points: np.ndarray) -> np.ndarray:
        """Returns the sense whose middle is nearest to each of other usages, from their [`SenseSpace`]."""
        return cdist(points, self.means).argmin(axis=1)


class SenseSpace:
    """The space in which usages are clustered: the first 20 principal components of the unit vectors of a sample."""

    def __init__(self, vectors: np.ndarray):
        self.pca = fit_components(normalize(vectors.astype(np.float64)), COMPONENTS)

    def place(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the components of usages, in the sample or not."""
        return self.pca.transform(normalize(vectors.astype(np.float64)))


def clusterings(points: np.ndarray, seed: int) -> list[tuple[float, np.ndarray]]:
    """Clusters usages by k-means into each number of senses up to 8. Returns silhouettes and labels."""
    found = [(0.0, np.zeros(len(points), dtype=int))]
    with warnings.catch_warnings():
        # Among equal usages k-means finds fewer clusters than it should.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number in range(2, min(MAX_SENSES, len(points) // MIN_USAGES) + 1):
            labels = KMeans(number, n_init=10, random_state=seed).fit_predict(points)
            if len(np.unique(labels)) == number:
                found.append((float(silhouette_score(points, labels)), labels))
    return found


def choose_senses(options: Sequence[Senses]) -> int:
    """
    Returns the index of the largest number of senses whose silhouette is near the best one; that of one sense if none
    stands apart.
    """
    best = max(option.silhouette for option in options)
    if best <= MIN_SILHOUETTE:
        return 0
    return max(index for index, option in enumerate(options) if option.silhouette >= NEAR * best)


def find_senses(
    usages: Mapping[str, Sequence[Usage]],
    vectors: Mapping[str, np.ndarray],
    seed: int = 0,
    frequent: Collection[str] = (),
) -> list[Senses]:
    """
    Clusters a word's usages of all times together, into one sense, into two, and so on to eight; [`choose_senses`]
    chooses among them. No dictionary and no labels are used: a cluster may be a sense, a part of one, a topic or a
    construction. `frequent` has words that are no keywords.
    """
    joined = np.concatenate(list(vectors.values()))
    points = SenseSpace(joined).place(joined)
    around = WordsAround([context(usage) for part in usages.values() for usage in part], frequent)
    ends = np.cumsum([len(part) for part in vectors.values()])[:-1]

    def describe(silhouette: float, clusters: np.ndarray) -> Senses:
        counts = np.stack(
            [np.bincount(part, minlength=clusters.max() + 1) for part in np.split(clusters, ends)], axis=1
        )
        with_usages = counts[:, counts.any(axis=0)]
        shares = with_usages / with_usages.sum(axis=0)
        first = shares[:, 0] if shares.shape[1] > 1 else 0
        order = np.argsort(first - shares[:, -1], kind="stable")
        labels = np.argsort(order)[clusters]
        means = np.stack([points[labels == sense].mean(axis=0) for sense in range(len(order))])
        return Senses(
            labels=labels,
            counts=counts[order],
            nearest=np.argsort(np.linalg.norm(points - means[labels], axis=1), kind="stable"),
            keywords=around.keywords(labels),
            means=means,
            silhouette=silhouette,
        )

    return [describe(*found) for found in clusterings(points, seed)]
