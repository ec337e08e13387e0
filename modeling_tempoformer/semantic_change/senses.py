"""A map of a word's usages, and their clusters as senses."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import chi2
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from .usages import Usage, context


# Chosen on the sense clusters of DWUG EN (`docs/results.md`).
MAX_SENSES = 8
MIN_SILHOUETTE = 0.2
MAX_KEYWORDS = 5


def principal_components(vectors: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
    """
    Returns the first principal components of usages, and the share of the variance of each (0 if all vectors are the
    same).
    """
    pca = PCA(min(number, *vectors.shape), svd_solver="full")
    with np.errstate(invalid="ignore"):
        coordinates = pca.fit_transform(vectors.astype(np.float64))
    return coordinates, np.nan_to_num(pca.explained_variance_ratio_)


class Senses(NamedTuple):
    """
    Clusters of a word's usages. Senses are sorted by the growth of their share of the usages from the first time to
    the last: the first sense grew most, the last one shrank most. Usages are numbered in the order of times.

    Attributes:
        labels (`np.ndarray` of shape `(usages,)`): The sense of each usage.
        counts (`np.ndarray` of shape `(senses, times)`): The number of usages.
        nearest (`np.ndarray` of shape `(usages,)`): The usages by their distance from the mean of their sense, the
            nearest first.
        keywords (`list[list[str]]`): The words that the contexts of each sense have more often than the others.
    """

    labels: np.ndarray
    counts: np.ndarray
    nearest: np.ndarray
    keywords: list[list[str]]


def cluster(vectors: np.ndarray, seed: int) -> np.ndarray:
    """Clusters usages by k-means. The number of clusters has the largest silhouette; it is 1 if none is large."""
    best_score, best_labels = MIN_SILHOUETTE, np.zeros(len(vectors), dtype=int)
    with warnings.catch_warnings():
        # Among equal usages k-means finds fewer clusters than it should.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number in range(2, min(MAX_SENSES, len(vectors) - 1) + 1):
            labels = KMeans(number, n_init=10, random_state=seed).fit_predict(vectors)
            if len(np.unique(labels)) == number and (score := silhouette_score(vectors, labels)) > best_score:
                best_score, best_labels = score, labels
    return best_labels


def keywords(contexts: Sequence[str], labels: np.ndarray) -> list[list[str]]:
    """
    Finds for each label the words that its contexts have more often than the others, the largest chi-squared first.
    Words that all contexts share have a small one, so no list of stop words is needed.
    """
    counter = CountVectorizer(binary=True, token_pattern=r"(?u)\b[^\W\d_]{3,}\b")
    keywords_by_label: list[list[str]] = [[] for _ in range(labels.max() + 1)]
    try:
        present = counter.fit_transform(contexts)
    except ValueError:  # No context has a word.
        return keywords_by_label
    words = counter.get_feature_names_out()
    for label, label_keywords in enumerate(keywords_by_label):
        is_inside = labels == label
        inside, outside = present[is_inside].sum(axis=0).A1, present[~is_inside].sum(axis=0).A1
        is_keyword = (inside >= 3) & (inside * np.sum(~is_inside) > outside * np.sum(is_inside))
        scores = np.where(is_keyword, chi2(present, is_inside)[0] if is_keyword.any() else 0, -1)
        order = np.argsort(-scores, kind="stable")[:MAX_KEYWORDS]
        label_keywords += [words[index] for index in order if is_keyword[index]]
    return keywords_by_label


def find_senses(usages: Mapping[str, Sequence[Usage]], vectors: Mapping[str, np.ndarray], seed: int = 0) -> Senses:
    """
    Clusters a word's usages of all times together, on the first 20 principal components of their unit vectors. No
    dictionary and no labels are used: a cluster may be a sense, a part of one, a topic or a construction.
    """
    joined, _ = principal_components(normalize(np.concatenate(list(vectors.values())).astype(np.float64)), 20)
    clusters = cluster(joined, seed)
    ends = np.cumsum([len(part) for part in vectors.values()])[:-1]
    counts = np.stack([np.bincount(part, minlength=clusters.max() + 1) for part in np.split(clusters, ends)], axis=1)
    shares = counts / counts.sum(axis=0)
    order = np.argsort(shares[:, 0] - shares[:, -1], kind="stable")
    labels = np.argsort(order)[clusters]
    means = np.stack([joined[labels == sense].mean(axis=0) for sense in range(len(order))])
    return Senses(
        labels=labels,
        counts=counts[order],
        nearest=np.argsort(np.linalg.norm(joined - means[labels], axis=1), kind="stable"),
        keywords=keywords([context(usage) for part in usages.values() for usage in part], labels),
    )
