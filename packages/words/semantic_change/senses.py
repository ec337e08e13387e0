"""A map of a word's usages, and their clusters as senses."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from .keywords import Keywords
from .known_senses import KnownSenses, Place, place_of
from .usages import Usage


# Chosen on the sense clusters of DWUG EN (`benchmarks/results/semantic_change.md`).
MAX_SENSES = 8
MIN_SILHOUETTE = 0.2
# A number of senses is near the best if its silhouette is at least this share of the largest one.
NEAR = 0.9
# Fewer usages for each sense tell nothing.
MIN_USAGES = 3
COMPONENTS = 20
# A usage has no known sense if it is farther from it than this share of quotations are from the others of theirs.
NEAREST_SHARE = 0.95
# It fits a sense if it is as near to it as this share of all usages are to their middle.
MIDDLE_SHARE = 0.75
NO_SENSE = "none of these"


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


class Known(NamedTuple):
    """
    How usages are assigned to known senses. The senses are numbered as in [`Senses`].

    Attributes:
        is_known (`np.ndarray` of shape `(senses,)`): Whether a sense is known, not a cluster of what fits none.
        reach (`float`): The largest distance of a usage from the middle of its known sense; infinity if no sense has
            two quotations.
        quoted (`dict[tuple[str, int], int]`): The sense of each usage that is quoted, by its place ([`place_of`]).
    """

    is_known: np.ndarray
    reach: float
    quoted: dict[Place, int]


class Senses(NamedTuple):
    """
    Senses of a word's usages: clusters, or known senses and clusters of the usages that fit none of these. Senses are
    sorted by the growth of their share of the usages from the first time with usages to the last: the first sense grew
    most, the last one shrank most. The senses of a word with usages at one time are sorted by their size. Usages are
    numbered in the order of times.

    Attributes:
        labels (`np.ndarray` of shape `(usages,)`): The sense of each usage.
        counts (`np.ndarray` of shape `(senses, times)`): The number of usages.
        nearest (`np.ndarray` of shape `(usages,)`): The usages by their distance from the middle of their sense, the
            nearest first.
        keywords (`list[list[str]]`): The words that stand beside and around the usages of each sense more often than
            around the others.
        means (`np.ndarray` of shape `(senses, components)`): The middle of each sense: the mean of a cluster, or
            of a known sense's texts.
        silhouette (`float`): How well the senses stand apart, at most 1; 0 for one sense.
        names (`list[str]`): The names of known senses, and `none of these` of clusters beside them; empty for others.
        known ([`Known`], *optional*): How usages are assigned to known senses.
    """

    labels: np.ndarray
    counts: np.ndarray
    nearest: np.ndarray
    keywords: list[list[str]]
    means: np.ndarray
    silhouette: float
    names: list[str]
    known: Known | None = None

    @property
    def num_unfitting(self) -> int:
        """The number of usages that have none of the known senses."""
        return 0 if self.known is None else int(self.counts[~self.known.is_known].sum())

    def find_nearest(self, points: np.ndarray, usages: Sequence[Usage]) -> np.ndarray:
        """Returns the sense of each of other usages, from their places in the [`SenseSpace`]."""
        return assign(points, usages, self.means, self.known)


class SenseSpace:
    """The space in which usages are clustered: the first 20 principal components of the unit vectors of a sample."""

    def __init__(self, vectors: np.ndarray):
        self.pca = fit_components(normalize(vectors.astype(np.float64)), COMPONENTS)

    def place(self, vectors: np.ndarray) -> np.ndarray:
        """Returns the components of usages, in the sample or not."""
        return self.pca.transform(normalize(vectors.astype(np.float64)))


def assign(points: np.ndarray, usages: Sequence[Usage], means: np.ndarray, known: Known | None = None) -> np.ndarray:
    """
    Returns the sense of each usage: if it is quoted, the sense it is quoted for; else the nearest known sense in
    reach, else the nearest cluster; -1 if there is no cluster.
    """
    distances = cdist(points, means)
    if known is None:
        return distances.argmin(axis=1)
    near = np.where(known.is_known & (distances <= known.reach), distances, np.inf)
    clusters = np.where(known.is_known, np.inf, distances)
    rest = -1 if known.is_known.all() else clusters.argmin(axis=1)
    labels = np.where(np.isfinite(near).any(axis=1), near.argmin(axis=1), rest)
    return np.array(
        [known.quoted.get(place_of(usage), label) for usage, label in zip(usages, labels, strict=True)], dtype=int
    )


def find_reach(quotations: np.ndarray, labels: np.ndarray, points: np.ndarray) -> float:
    """
    Returns the distance from the mean of the other quotations of its sense that 95 % of the quotations do not exceed,
    or the distance from the middle of all usages that three quarters of them do not exceed, if it is larger: a few
    quotations may be much alike. Returns infinity if no sense has two quotations.
    """
    distances = []
    for label in np.unique(labels):
        members = quotations[labels == label]
        if len(members) > 1:
            # A point is n / (n - 1) times as far from the mean of the n - 1 others as from the mean of all.
            distances.append(
                np.linalg.norm(members - members.mean(axis=0), axis=1) * len(members) / (len(members) - 1)
            )
    if not distances:
        return math.inf
    spread = np.quantile(np.linalg.norm(points - points.mean(axis=0), axis=1), MIDDLE_SHARE)
    return float(max(np.quantile(np.concatenate(distances), NEAREST_SHARE), spread))


class Clustering(NamedTuple):
    """Clusters of usages: how well they stand apart, and the cluster of each usage."""

    silhouette: float
    labels: np.ndarray


def clusterings(points: np.ndarray, seed: int) -> list[Clustering]:
    """Clusters usages by k-means into each number of senses up to 8."""
    found = [Clustering(0.0, np.zeros(len(points), dtype=int))]
    with warnings.catch_warnings():
        # Among equal usages k-means finds fewer clusters than it should.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for number in range(2, min(MAX_SENSES, len(points) // MIN_USAGES) + 1):
            labels = KMeans(number, n_init=10, random_state=seed).fit_predict(points)
            if len(np.unique(labels)) == number:
                found.append(Clustering(float(silhouette_score(points, labels)), labels))
    return found


def choose_senses(options: Sequence[Senses | Clustering]) -> int:
    """
    Returns the index of the option with the most senses whose silhouette is near the best one; the first option, one
    sense, if none stands apart.
    """
    best = max(option.silhouette for option in options)
    if best <= MIN_SILHOUETTE:
        return 0
    return max(index for index, option in enumerate(options) if option.silhouette >= NEAR * best)


class Division(NamedTuple):
    """Usages divided into senses, in any order: labels, means and names of senses, and how well these stand apart."""

    labels: np.ndarray
    means: np.ndarray
    names: list[str]
    silhouette: float
    known: Known | None = None


def divide_by_known(
    points: np.ndarray, usages: Sequence[Usage], known: KnownSenses, texts: np.ndarray, seed: int
) -> Division:
    """
    Assigns usages to known senses, and clusters those that fit none of these. `texts` has the places of the senses'
    texts.
    """
    number = len(known.names)
    means = [texts[known.labels == sense].mean(axis=0) for sense in range(number)]
    reach = find_reach(texts[known.is_quotation], known.labels[known.is_quotation], points)
    labels = assign(points, usages, np.stack(means), Known(np.full(number, True), reach, known.quoted))
    rest, names = points[labels < 0], list(known.names)
    if len(rest):
        options = clusterings(rest, seed)
        clusters = options[choose_senses(options)].labels
        means += [rest[clusters == cluster].mean(axis=0) for cluster in range(clusters.max() + 1)]
        labels[labels < 0] = number + clusters
    elif math.isfinite(reach):
        # No usage of the sample is there, but one outside it may be.
        means.append(points.mean(axis=0))
    names += [NO_SENSE] * (len(means) - number)
    present = len(np.unique(labels))
    silhouette = float(silhouette_score(points, labels)) if 1 < present < len(points) else 0.0
    is_known = np.arange(len(means)) < number
    return Division(labels, np.stack(means), names, silhouette, Known(is_known, reach, known.quoted))


def name_clusters(names: Sequence[str], is_known: np.ndarray) -> list[str]:
    """Returns the names of senses, with names for those that are not known."""
    taken = {name for name, is_one in zip(names, is_known, strict=True) if is_one}
    numbered = (f"{NO_SENSE} ({number})" for number in count(1))
    # A reader who confirms a usage of "none of these" makes it a known sense.
    alone = [NO_SENSE] if np.sum(~is_known) == 1 else []
    free = (name for name in chain(alone, numbered) if name not in taken)
    return [name if is_one else next(free) for name, is_one in zip(names, is_known, strict=True)]


def find_senses(
    usages: Mapping[str, Sequence[Usage]],
    vectors: Mapping[str, np.ndarray],
    seed: int = 0,
    frequent: Collection[str] = (),
    known: KnownSenses | None = None,
) -> list[Senses]:
    """
    Clusters a word's usages of all times together, into one sense, into two, and so on to eight; [`choose_senses`]
    chooses among them. No dictionary and no labels are used: a cluster may be a sense, a part of one, a topic or a
    construction. `frequent` has words that are no keywords.

    With `known` senses there are one sense and the known ones. A usage has the sense whose texts have the nearest
    mean, or none if it is farther from it than 95 % of the quotations from the others of their sense.
    """
    joined = np.concatenate(list(vectors.values()))
    space = SenseSpace(joined)
    points, flat = space.place(joined), [usage for part in usages.values() for usage in part]
    keywords = Keywords(flat, frequent)
    ends = np.cumsum([len(part) for part in vectors.values()])[:-1]

    def by_clusters(silhouette: float, labels: np.ndarray) -> Division:
        number = labels.max() + 1
        means = np.stack([points[labels == sense].mean(axis=0) for sense in range(number)])
        return Division(labels, means, [""] * number, silhouette)

    def describe(division: Division) -> Senses:
        number = len(division.means)
        counts = np.stack([np.bincount(part, minlength=number) for part in np.split(division.labels, ends)], axis=1)
        with_usages = counts[:, counts.any(axis=0)]
        shares = with_usages / with_usages.sum(axis=0)
        first = shares[:, 0] if shares.shape[1] > 1 else 0
        order = np.argsort(first - shares[:, -1], kind="stable")
        place = np.argsort(order)
        labels, means, known = place[division.labels], division.means[order], division.known
        if known is not None:
            quoted = {quotation: int(place[sense]) for quotation, sense in known.quoted.items()}
            known = Known(known.is_known[order], known.reach, quoted)
        names = [division.names[sense] for sense in order]
        if known is not None:
            names = name_clusters(names, known.is_known)
        return Senses(
            labels=labels,
            counts=counts[order],
            nearest=np.argsort(np.linalg.norm(points - means[labels], axis=1), kind="stable"),
            keywords=keywords.find(labels, number),
            means=means,
            silhouette=division.silhouette,
            names=names,
            known=known,
        )

    if known is None:
        return [describe(by_clusters(*found)) for found in clusterings(points, seed)]
    whole = by_clusters(0.0, np.zeros(len(points), dtype=int))
    divided = divide_by_known(points, flat, known, space.place(known.vectors), seed)
    # One known sense that all usages have stands for the word itself.
    return [describe(each) for each in ([whole, divided] if len(divided.means) > 1 else [divided])]
