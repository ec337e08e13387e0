"""A map of a word's usages, and their clusters as senses."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from itertools import chain, count
from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import binom
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from .keywords import Keywords
from .known_senses import KnownSenses, Place, place_of
from .measures import LEVEL, shuffled_shares
from .usages import Usage, number_documents


# Silhouettes were chosen on the sense clusters of DWUG EN (`benchmarks/results/semantic_change.md`).
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
# The sense of a usage is well supported if this share of its nearest usages has it.
NUM_NEIGHBOURS, SUPPORTED = 10, 0.8


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
    Assignment of usages to known senses, and how right it is. Known senses are the first of the [`Senses`].

    Attributes:
        outcomes (`np.ndarray` of shape `(known, known + 1)`): For each sense, how many of its quotations have each
            sense, or none (the last column), if each is assigned by the other texts. A quotation without another text
            of its sense is not among them.
        reach (`float`): The largest distance of a usage from the middle of its known sense; infinity if no quotation
            has another text of its sense.
        quoted (`dict[tuple[str, int], int]`): The sense of each usage that is quoted, by its place ([`place_of`]).
        supported (`tuple[int, int]`): Of these quotations, how many are right, and how many there are, whose nearest
            ten usages in the sample mostly (eight or more) have the sense that they are assigned.
    """

    outcomes: np.ndarray
    reach: float
    quoted: dict[Place, int]
    supported: tuple[int, int] = (0, 0)

    @property
    def share_right(self) -> float:
        """The share of the quotations that have their sense by the other texts (leave-one-out), NaN without any."""
        total = self.outcomes.sum()
        return float(np.trace(self.outcomes) / total) if total else math.nan

    @property
    def tells_senses(self) -> bool:
        """
        Tells whether more quotations have their sense than by chance: than if each had the sense with most quotations
        (binomial test).
        """
        by_sense = self.outcomes.sum(axis=1)
        total = by_sense.sum()
        return bool(total and binom.sf(np.trace(self.outcomes) - 1, total, by_sense.max() / total) < LEVEL)


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
        names (`list[str]`): The names of known senses, and `none of these` for the usages that fit none, which come
            last; empty for clusters.
        p (`float`): Of two clusters, the share of random assignments of whole documents to the first and the last time
            in which their shares change at least as much (permutation test); NaN for others, and with too few
            documents.
        known ([`Known`], *optional*): How usages are assigned to known senses.
    """

    labels: np.ndarray
    counts: np.ndarray
    nearest: np.ndarray
    keywords: list[list[str]]
    means: np.ndarray
    silhouette: float
    names: list[str]
    p: float = math.nan
    known: Known | None = None

    @property
    def num_unfitting(self) -> int:
        """The number of usages that have none of the known senses."""
        return 0 if self.known is None else int(self.counts[len(self.known.outcomes) :].sum())

    def are_quoted(self, usages: Sequence[Usage]) -> np.ndarray:
        """Tells which usages are quotations of a known sense."""
        quoted = {} if self.known is None else self.known.quoted
        return np.array([place_of(usage) in quoted for usage in usages] if quoted else [False] * len(usages))

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
    Returns the sense of each usage: the nearest one; or, with `known` senses, the sense for which it is quoted, else
    the nearest known sense in reach, else none, the number after theirs.
    """
    if known is None:
        return cdist(points, means).argmin(axis=1)
    number = len(known.outcomes)
    distances = cdist(points, means[:number])
    labels = np.where(distances.min(axis=1) <= known.reach, distances.argmin(axis=1), number)
    return np.array(
        [known.quoted.get(place_of(usage), label) for usage, label in zip(usages, labels, strict=True)], dtype=int
    )


def distances_by_others(texts: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """
    Returns the distance of each text from the mean of each sense (texts, senses); from its own sense's mean without
    itself, infinity if it has no other text.
    """
    sizes = np.bincount(labels)
    distances = cdist(texts, np.stack([texts[labels == sense].mean(axis=0) for sense in range(len(sizes))]))
    own, size = (np.arange(len(texts)), labels), sizes[labels]
    # A point is n / (n - 1) times as far from the mean of the n - 1 others as from the mean of all.
    distances[own] = np.where(size > 1, distances[own] * size / np.maximum(size - 1, 1), np.inf)
    return distances


def assign_by_others(
    texts: np.ndarray, labels: np.ndarray, is_quotation: np.ndarray, reach: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the quotations that have another text of their sense, and the sense of each by the other texts."""
    distances = distances_by_others(texts, labels)
    tested = np.flatnonzero(is_quotation & np.isfinite(distances[np.arange(len(texts)), labels]))
    is_near = distances[tested].min(axis=1) <= reach
    return tested, np.where(is_near, distances[tested].argmin(axis=1), distances.shape[1])


def count_supported(
    texts: np.ndarray, labels: np.ndarray, found: np.ndarray, points: np.ndarray, senses: np.ndarray
) -> tuple[int, int]:
    """
    Counts the quotations whose nearest usages mostly have the sense that they are assigned: the right ones, and all.

    Args:
        texts, labels, found: The places of quotations, their senses, and those that they are assigned.
        points, senses: The places of usages, and the senses that these are assigned.
    """
    distances = cdist(texts, points)
    # A quotation that is in the sample is no neighbour of its own.
    distances[distances < 1e-9] = np.inf
    near = np.argsort(distances, axis=1, kind="stable")[:, :NUM_NEIGHBOURS]
    is_supported = (senses[near] == found[:, None]).mean(axis=1) >= SUPPORTED
    return int((is_supported & (found == labels)).sum()), int(is_supported.sum())


def learn_known(
    texts: np.ndarray, labels: np.ndarray, is_quotation: np.ndarray, points: np.ndarray, quoted: dict[Place, int]
) -> Known:
    """
    Learns from the quotations how far is too far, and how right they are.

    The reach is the distance from the mean of the other texts of its sense that 95 % of the quotations do not exceed,
    or the distance from the middle of all usages that three quarters of them do not exceed, if it is larger: a few
    quotations may be much alike.

    Args:
        texts, labels, is_quotation: The places of the texts in the [`SenseSpace`], their senses, and whether they are
            quotations.
        points: The places of the sampled usages.
        quoted: The sense of each usage that is quoted.
    """
    own = distances_by_others(texts, labels)[np.arange(len(texts)), labels]
    is_tested, number = is_quotation & np.isfinite(own), labels.max() + 1
    outcomes, reach = np.zeros((number, number + 1), dtype=int), math.inf
    if is_tested.any():
        spread = np.quantile(np.linalg.norm(points - points.mean(axis=0), axis=1), MIDDLE_SHARE)
        reach = float(max(np.quantile(own[is_tested], NEAREST_SHARE), spread))
        tested, found = assign_by_others(texts, labels, is_quotation, reach)
        np.add.at(outcomes, (labels[tested], found), 1)
    return Known(outcomes, reach, quoted)


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


def choose_senses(options: Sequence[Senses]) -> int:
    """
    Returns the index of the option with the most senses whose silhouette is near the best one; the first option, one
    sense, if none stands apart.
    """
    best = max(option.silhouette for option in options)
    if best <= MIN_SILHOUETTE:
        return 0
    return max(index for index, option in enumerate(options) if option.silhouette >= NEAR * best)


class Division(NamedTuple):
    """
    Usages divided into senses: labels, means and names of senses, and how well these stand apart. Known senses come
    first, and what fits none of them last; clusters are in any order.
    """

    labels: np.ndarray
    means: np.ndarray
    names: list[str]
    silhouette: float
    known: Known | None = None


def divide_by_known(points: np.ndarray, usages: Sequence[Usage], known: KnownSenses, texts: np.ndarray) -> Division:
    """Assigns usages to known senses. `texts` has the places of the senses' texts."""
    number = len(known.names)
    means = [texts[known.labels == sense].mean(axis=0) for sense in range(number)]
    learned = learn_known(texts, known.labels, known.is_quotation, points, known.quoted)
    labels, names = assign(points, usages, np.stack(means), learned), list(known.names)
    tested, found = assign_by_others(texts, known.labels, known.is_quotation, learned.reach)
    supported = count_supported(texts[tested], known.labels[tested], found, points, labels)
    learned = learned._replace(supported=supported)
    if math.isfinite(learned.reach):
        # Usages outside the sample may fit no sense, although all usages in it fit one.
        rest = points[labels == number] if (labels == number).any() else points
        means.append(rest.mean(axis=0))
        # A reader who confirms a usage of "none of these" makes it a known sense.
        free = chain([NO_SENSE], (f"{NO_SENSE} ({again})" for again in count(2)))
        names.append(next(name for name in free if name not in known.names))
    present = len(np.unique(labels))
    silhouette = float(silhouette_score(points, labels)) if 1 < present < len(points) else 0.0
    return Division(labels, np.stack(means), names, silhouette, learned)


def p_of_split(labels: np.ndarray, usages: Mapping[str, Sequence[Usage]], seed: int) -> float:
    """Returns the p-value of the change of the share of one of two senses from the first time to the last."""
    ends = np.cumsum([len(part) for part in usages.values()])[:-1]
    present = [
        (part == 0, number_documents(own))
        for part, own in zip(np.split(labels, ends), usages.values(), strict=True)
        if len(part)
    ]
    (before, first), (after, last) = present[0], present[-1]
    return shuffled_shares(before, after, (first, last), seed) if len(present) > 1 else math.nan


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
    mean, or none if it is too far from it ([`learn_known`]).
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
        known = division.known
        growth = shares[:, -1] - (shares[:, 0] if shares.shape[1] > 1 else 0)
        if known is not None:
            # What fits no known sense comes last.
            growth[len(known.outcomes) :] = -np.inf
        order = np.argsort(-growth, kind="stable")
        place = np.argsort(order)
        labels, means = place[division.labels], division.means[order]
        if known is not None:
            senses, quoted = order[: len(known.outcomes)], known.quoted.items()
            # The last column, none, stays the last.
            outcomes = known.outcomes[np.ix_(senses, [*senses, len(senses)])]
            placed = {quotation: int(place[sense]) for quotation, sense in quoted}
            known = known._replace(outcomes=outcomes, quoted=placed)
        return Senses(
            labels=labels,
            counts=counts[order],
            nearest=np.argsort(np.linalg.norm(points - means[labels], axis=1), kind="stable"),
            keywords=keywords.find(labels, number),
            means=means,
            silhouette=division.silhouette,
            names=[division.names[sense] for sense in order],
            p=p_of_split(labels, usages, seed) if known is None and number == 2 else math.nan,
            known=known,
        )

    if known is None:
        return [describe(by_clusters(*found)) for found in clusterings(points, seed)]
    whole = by_clusters(0.0, np.zeros(len(points), dtype=int))
    divided = divide_by_known(points, flat, known, space.place(known.vectors))
    # One known sense that all usages have stands for the word itself.
    return [describe(each) for each in ([whole, divided] if len(divided.means) > 1 else [divided])]
