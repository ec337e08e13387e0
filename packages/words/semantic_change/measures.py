"""Measures of a word's change, from the vectors of its usages, and the agreement of scores with gold scores."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array
from scipy.stats import DegenerateDataWarning, bootstrap, norm, pearsonr, rankdata, t
from sklearn.metrics.pairwise import cosine_distances
from sklearn.preprocessing import normalize


# The correlation of two words is always 1 or -1.
MIN_WORDS = 3
# A word changed more than chance if its adjusted p-value is below this level.
LEVEL = 0.05
# The normal quantile of a 95 % interval.
Z = float(norm.ppf(0.975))
# The shuffles where only their mean is used.
FEW_RESAMPLES = 499

# The usages of one word at each time, of shape `(usages, width)`.
Vectors = dict[str, np.ndarray]


class ReadUsages(NamedTuple):
    """
    The usages of one word, as a model reads them.

    Attributes:
        vectors (`Vectors`): Their vectors at each time that has enough of them.
        swapped (`dict[tuple[str, str], Vectors]`): The vectors that the usages of two times have with the times
            swapped, by the two times: a temporal model reads one text differently at two times.
        documents (`dict[str, np.ndarray]`): The document of each usage at each time, as a number from 0.
    """

    vectors: Vectors
    swapped: dict[tuple[str, str], Vectors]
    documents: dict[str, np.ndarray]

    def scaled(self, scale: Callable[[np.ndarray], np.ndarray]) -> "ReadUsages":
        """Returns the usages with other vectors."""
        swapped = {
            pair: {time: scale(part) for time, part in by_time.items()} for pair, by_time in self.swapped.items()
        }
        return ReadUsages({time: scale(part) for time, part in self.vectors.items()}, swapped, self.documents)


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


def can_be_tested(num_before: int, num_after: int) -> bool:
    """
    Tells whether documents are enough for a p-value below [`LEVEL`], from their numbers at two time points: at least
    two at each, and so many ways to assign them that the smallest p-value is below it. With as many documents at both,
    an assignment and its reverse have the same distance.
    """
    ways = math.comb(num_before + num_after, num_before)
    return min(num_before, num_after) > 1 and (1 + (num_before == num_after)) / ways < LEVEL


def sum_by_document(vectors: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Returns the sum of the vectors of each document, of shape `(documents, width)`."""
    members = csr_array((np.ones(len(documents)), (documents, np.arange(len(documents)))))
    return members @ vectors


def shuffled_prototypes(
    at_first: np.ndarray,
    at_last: np.ndarray,
    documents: tuple[np.ndarray, np.ndarray],
    seed: int = 0,
    resamples: int = 4999,
) -> tuple[float, float]:
    """
    Assigns documents to the two time points at random (permutation), each with all its usages, so that each time point
    keeps its number of documents. Usages in one document are alike, so that single usages assigned at random would
    differ less than different documents of one time do.

    Returns the mean [`prototype_distance`] of these assignments (Dubossarsky et al., 2017), and the p-value of the
    real distance (permutation test of Liu, Medlar and Glowacka, 2021). If the documents are too few
    ([`can_be_tested`]), the p-value is NaN, and usages are assigned one by one, for the mean.

    Args:
        at_first, at_last (`np.ndarray` of shape `(usages, width)`): The vectors of all usages, from the first time
            point and then from the last, as the model reads them at the first and at the last time point.
        documents (two `np.ndarray` of shape `(usages,)`): The document of each usage of the first and of the last time
            point, as a number from 0.
    """
    before, after = documents
    is_tested = can_be_tested(before.max() + 1, after.max() + 1)
    if not is_tested:
        before, after = np.arange(len(before)), np.arange(len(after))
    joined = np.concatenate([before, before.max() + 1 + after])
    is_before = np.arange(joined.max() + 1) <= before.max()
    shuffles = np.random.default_rng(seed).permuted(np.tile(is_before, (resamples, 1)), axis=1)
    members = np.vstack([is_before, shuffles]).astype(np.float64)
    firsts = normalize(members @ sum_by_document(at_first, joined))
    lasts = normalize((1 - members) @ sum_by_document(at_last, joined))
    distance, *by_chance = 1 - (firsts * lasts).sum(axis=1)
    # A shuffle may be the real assignment, whose distance is the same up to rounding.
    num_as_large = np.sum(np.array(by_chance) >= distance - 1e-12)
    p = float((1 + num_as_large) / (1 + resamples)) if is_tested else math.nan
    return float(np.mean(by_chance)), p


def shuffled_shares(
    before: np.ndarray,
    after: np.ndarray,
    documents: tuple[np.ndarray, np.ndarray],
    seed: int = 0,
    resamples: int = 999,
) -> float:
    """
    Returns the p-value of the change of a share between two times: the share of random assignments of whole documents
    to the times in which it changes at least as much. NaN if the documents are too few ([`can_be_tested`]).

    Args:
        before, after (`np.ndarray` of shape `(usages,)`): Whether each usage is one of those that are counted.
        documents (two `np.ndarray` of shape `(usages,)`): The document of each usage, as a number from 0.
    """
    firsts, lasts = (part.max() + 1 for part in documents)
    if not can_be_tested(firsts, lasts):
        return math.nan
    numbers = np.concatenate([documents[0], firsts + documents[1]])
    inside, sizes = np.bincount(numbers, np.concatenate([before, after])), np.bincount(numbers)
    is_before = np.arange(firsts + lasts) < firsts
    shuffles = np.random.default_rng(seed).permuted(np.tile(is_before, (resamples, 1)), axis=1)
    members = np.vstack([is_before, shuffles]).astype(float)
    change, *by_chance = np.abs(
        members @ inside / (members @ sizes) - (1 - members) @ inside / ((1 - members) @ sizes)
    )
    return float((1 + np.sum(np.array(by_chance) >= change - 1e-12)) / (1 + resamples))


def average_pairwise_distance(before: np.ndarray, after: np.ndarray) -> float:
    """
    Mean cosine distance (0 to 2) over all pairs of a usage before and a usage after (APD, Giulianelli et al., 2020).

    Args:
        before, after (`np.ndarray` of shape `(usages, width)`): The vectors of a word's usages at two time points.

    Raises a `ValueError` if one of them is empty, if the widths differ, or if a vector is not finite.
    """
    # The mean of the products of all pairs is the product of the means.
    old, new = (normalize(np.asarray(vectors, dtype=np.float64)).mean(axis=0) for vectors in (before, after))
    return float(1 - old @ new)


def change_score(apd: float, prt_corrected: float) -> float:
    """
    Score of a word's change, from 0 to 100: 100 times the geometric mean of its [`average_pairwise_distance`] and of
    its [`prototype_distance`] minus the mean distance by chance (at least 0). The first alone is large for words of
    many senses that do not change, the second alone for rare words (Kutuzov, Velldal and Ovrelid, 2022).
    """
    return 100 * math.sqrt(max(apd, 0) * max(prt_corrected, 0))


def prototype_deviations(
    before: np.ndarray,
    after: np.ndarray,
    documents: tuple[np.ndarray, np.ndarray],
    seed: int = 0,
    resamples: int = 1999,
) -> tuple[float, float]:
    """
    Returns the 2.5 % and 97.5 % quantiles of the bootstrap distribution of the [`prototype_distance`] over documents,
    minus its mean. The mean itself is biased upwards, because means of resampled usages lie further apart. Both are
    NaN if the documents are too few ([`can_be_tested`]). `documents` has the number of each usage's document.
    """
    numbers = [part.max() + 1 for part in documents]
    if not can_be_tested(*numbers):
        return math.nan, math.nan
    rng, means = np.random.default_rng(seed), []
    for part, numbering, number in zip((before, after), documents, numbers, strict=True):
        weights = rng.multinomial(number, np.full(number, 1 / number), resamples)
        means.append(normalize(weights.astype(np.float64) @ sum_by_document(part, numbering)))
    distances = 1 - (means[0] * means[1]).sum(axis=1)
    low, high = np.quantile(distances, (0.025, 0.975)) - distances.mean()
    return float(low), float(high)


def compare_with_chance(
    word: ReadUsages, one: str, other: str, seed: int, resamples: int = 4999
) -> tuple[float, float, float]:
    """Returns the prt of two times, its mean by chance, and p, which is NaN if documents are too few."""
    vectors, swapped = word.vectors, word.swapped[one, other]
    prt = prototype_distance(vectors[one], vectors[other])
    at_one = np.concatenate([vectors[one], swapped[one]])
    at_other = np.concatenate([swapped[other], vectors[other]])
    owners = word.documents[one], word.documents[other]
    return prt, *shuffled_prototypes(at_one, at_other, owners, seed, resamples)


def change_between(word: ReadUsages, one: str, other: str, seed: int) -> float:
    """Returns the [`change_score`] between two times, without an interval."""
    apd = average_pairwise_distance(word.vectors[one], word.vectors[other])
    prt, by_chance, _ = compare_with_chance(word, one, other, seed, FEW_RESAMPLES)
    return change_score(apd, prt - by_chance)


def largest_step(word: ReadUsages, times: Sequence[str], seed: int) -> dict[str, float | str]:
    """
    Returns the largest change between neighbouring times and these times, if there are more than two. It is NaN if no
    two neighbours are compared, because the times between the ends have too few usages.
    """
    if len(times) == 2:
        return {}
    pairs = [pair for pair in pairwise(times) if pair in word.swapped]
    changes = {f"{one} to {other}": change_between(word, one, other, seed) for one, other in pairs} or {"": math.nan}
    step = max(changes, key=changes.get)
    return {"change_step": changes[step], "step": step}


def score_apd(word: ReadUsages, times: Sequence[str], seed: int) -> dict[str, float]:
    """Returns the [`average_pairwise_distance`] between the first and the last time."""
    return {"apd": average_pairwise_distance(word.vectors[times[0]], word.vectors[times[-1]])}


def score_prt(word: ReadUsages, times: Sequence[str], seed: int) -> dict[str, float]:
    """Returns the [`prototype_distance`] between the first and the last time, and how far it is from chance."""
    prt, by_chance, p = compare_with_chance(word, times[0], times[-1], seed)
    vectors, steps = word.vectors, pairwise(times) if len(times) > 2 else ()
    path = {
        f"prt {one} to {other}": prototype_distance(vectors[one], vectors[other])
        for one, other in steps
        if one in vectors and other in vectors
    }
    # Without a p-value, single usages were shuffled, which differ less than documents do.
    times_chance = prt / by_chance if by_chance > 0 and not np.isnan(p) else np.nan
    return {"prt": prt, "prt_corrected": prt - by_chance, **path, "times_chance": times_chance, "p": p}


def score_change(word: ReadUsages, times: Sequence[str], seed: int) -> dict[str, float | str]:
    """Returns the [`change_score`] between the first and the last time with its interval, its step and its parts."""
    scores = score_apd(word, times, seed) | score_prt(word, times, seed)
    ends = times[0], times[-1]
    before, after = (word.vectors[time] for time in ends)
    owners = tuple(word.documents[time] for time in ends)
    deviations = (0, *prototype_deviations(before, after, owners, seed))
    # A basic bootstrap interval: deviations are subtracted, and were centred because the bootstrap is biased.
    change, high, low = (change_score(scores["apd"], scores["prt_corrected"] - deviation) for deviation in deviations)
    return {"change": change, **largest_step(word, times, seed), "change_low": low, "change_high": high, **scores}


def score_texts(texts: Mapping[str, ReadUsages], times: Sequence[str], seed: int) -> dict[str, dict[str, float]]:
    """
    Computes the column `change_of_texts`, a baseline: the [`change_score`] of whole texts with a word, from the first
    to the last time, by the vectors of texts in the place of usages.
    """
    return {"change_of_texts": {name: change_between(text, times[0], times[-1], seed) for name, text in texts.items()}}


# Each computes the columns of one word from its usages, the times in their order, and a seed.
MEASURES = {"change": score_change, "apd": score_apd, "prt": score_prt}


def score_words(
    words: Mapping[str, ReadUsages], names: Sequence[str], times: Sequence[str], seed: int, standardise: bool = False
) -> dict[str, dict[str, float]]:
    """
    Computes the columns of a table of words.

    Args:
        words (`Mapping[str, ReadUsages]`): The usages of each word.
        names (`Sequence[str]`): Some of [`MEASURES`].
        times (`Sequence[str]`): The times, in their order.
        seed (`int`): The seed of shuffles and resamples.
        standardise (`bool`, *optional*, defaults to `False`): Score vectors of [`standardiser`].
    """
    if standardise:
        scale = standardiser(part for word in words.values() for part in word.vectors.values())
        words = {name: word.scaled(scale) for name, word in words.items()}
    columns: dict[str, dict[str, float]] = {}
    for measure in names:
        rows = {name: MEASURES[measure](word, times, seed) for name, word in words.items()}
        columns |= pd.DataFrame.from_dict(rows, orient="index").to_dict()
    return columns


def design_effects(counts: Sequence[np.ndarray], totals: Sequence[np.ndarray]) -> list[float]:
    """
    Returns for each time the design effect (Kish, 1965): the variance of a share divided by its variance for
    independent usages, which is smaller because usages in one document are alike. The intraclass correlation is
    estimated from the documents of all times by the residuals of their counts; it is 1 if the share is 0 or 1 at each
    time. Because it is uncertain with few documents, the effect is multiplied by the ratio of the squared quantiles of
    the t and the normal distribution. NaN if each time has one document.

    Args:
        counts (`np.ndarray` of shape `(documents,)` for each time): The usages of a kind in each document.
        totals (`np.ndarray` of shape `(documents,)` for each time): All usages in each document.
    """
    squares = variance = pairs = 0.0
    for part, sizes in zip(counts, totals, strict=True):
        if len(sizes) > 1:
            share = part.sum() / sizes.sum()
            squares += len(sizes) / (len(sizes) - 1) * np.sum((part - share * sizes) ** 2)
            variance += share * (1 - share) * sizes.sum()
            pairs += share * (1 - share) * np.sum(sizes * (sizes - 1.0))
    freedom = sum(max(len(sizes) - 1, 0) for sizes in totals)
    likeness = 1.0 if variance == 0 else min(max((squares - variance) / pairs, 0.0), 1.0) if pairs else 0.0
    factor = (t.ppf(0.975, freedom) / Z) ** 2 if freedom else math.nan
    return [float(factor * (1 + likeness * np.sum(sizes * (sizes - 1.0)) / max(sizes.sum(), 1))) for sizes in totals]


def interval_of_change(count: int, total: int, design_effect: float = 1) -> list[float]:
    """
    Returns a share, and the ends of its 95 % interval (Wilson) for the effective sample size, the total divided by the
    [`design_effects`]. The ends are NaN if the effect is not known.
    """
    share, size = count / total, total / design_effect
    middle, half = share + Z**2 / (2 * size), Z * math.sqrt(share * (1 - share) / size + (Z / (2 * size)) ** 2)
    ends = [(middle - half) / (1 + Z**2 / size), (middle + half) / (1 + Z**2 / size)]
    return [share, *(float(np.clip(end, 0, 1)) for end in ends)]


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
