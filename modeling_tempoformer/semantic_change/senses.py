"""What a word's usages look like: a map of them, and their clusters as senses."""

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
    """The first components of usages, and the share of the variance that each has: 0 if all vectors are the same."""
    pca = PCA(min(number, *vectors.shape), svd_solver="full")
    with np.errstate(invalid="ignore"):
        coordinates = pca.fit_transform(vectors.astype(np.float64))
    return coordinates, np.nan_to_num(pca.explained_variance_ratio_)


class Senses(NamedTuple):
    """
    Clusters of a word's usages, which are numbered from time to time. The first sense is the one whose share of the
    usages grew most from the first time to the last; the last is the one whose share shrank most.

    `labels` has the sense of each usage, `counts` their number (senses, times), `nearest` the usages from the one
    nearest to the mean of its sense to the farthest, and `keywords` for each sense the words that stand near the word
    more than in the others.
    """

    labels: np.ndarray
    counts: np.ndarray
    nearest: np.ndarray
    keywords: list[list[str]]


def cluster(vectors: np.ndarray, seed: int) -> np.ndarray:
    """The cluster of each usage: as many clusters as have the largest silhouette, and one if it is small for all."""
    best, found = MIN_SILHOUETTE, np.zeros(len(vectors), dtype=int)
    with warnings.catch_warnings():
        # Usages that are all the same have fewer clusters than asked for.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number in range(2, min(MAX_SENSES, len(vectors) - 1) + 1):
            labels = KMeans(number, n_init=10, random_state=seed).fit_predict(vectors)
            if len(np.unique(labels)) == number and (score := silhouette_score(vectors, labels)) > best:
                best, found = score, labels
    return found


def keywords(contexts: Sequence[str], labels: np.ndarray) -> list[list[str]]:
    """
    For each label the words that its contexts have more often than the others, by chi-squared, the most telling first.
    Words that all contexts share say nothing, so no list of stop words is needed.
    """
    counter = CountVectorizer(binary=True, token_pattern=r"(?u)\b[^\W\d_]{3,}\b")
    found: list[list[str]] = [[] for _ in range(labels.max() + 1)]
    try:
        present = counter.fit_transform(contexts)
    except ValueError:  # No context has a word.
        return found
    words = counter.get_feature_names_out()
    for label, telling_words in enumerate(found):
        own = labels == label
        inside, outside = present[own].sum(axis=0).A1, present[~own].sum(axis=0).A1
        telling = (inside >= 3) & (inside * np.sum(~own) > outside * np.sum(own))
        scores = np.where(telling, chi2(present, own)[0] if telling.any() else 0, -1)
        order = np.argsort(-scores, kind="stable")[:MAX_KEYWORDS]
        telling_words += [words[index] for index in order if telling[index]]
    return found


def find_senses(usages: Mapping[str, Sequence[Usage]], vectors: Mapping[str, np.ndarray], seed: int = 0) -> Senses:
    """
    Clusters a word's usages of all times together: the first 20 principal components of their directions, by k-means.
    No dictionary and no labels are used: a cluster may be a sense, a part of one, a topic or a construction.
    """
    joined, _ = principal_components(normalize(np.concatenate(list(vectors.values())).astype(np.float64)), 20)
    found = cluster(joined, seed)
    ends = np.cumsum([len(of_time) for of_time in vectors.values()])[:-1]
    counts = np.stack([np.bincount(part, minlength=found.max() + 1) for part in np.split(found, ends)], axis=1)
    shares = counts / counts.sum(axis=0)
    order = np.argsort(shares[:, 0] - shares[:, -1], kind="stable")
    labels = np.argsort(order)[found]
    means = np.stack([joined[labels == sense].mean(axis=0) for sense in range(len(order))])
    return Senses(
        labels=labels,
        counts=counts[order],
        nearest=np.argsort(np.linalg.norm(joined - means[labels], axis=1), kind="stable"),
        keywords=keywords([context(usage) for of_time in usages.values() for usage in of_time], labels),
    )
