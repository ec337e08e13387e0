"""Shares of senses at times or decades, with their intervals, and what became of each sense."""

import math

import numpy as np

from .measures import design_effects, interval_of_change
from .senses import Senses


# The draws of an interval, and the steps of expectation maximisation for each.
DRAWS, STEPS = 400, 200
# Added to each count before it is drawn again (Jeffreys, 1946): ten of ten quotations do not show that all are right.
SMOOTHING = 0.5
# A sense is absent if its share may be as small as the first number, and is not above the second.
ABSENT, NEARLY_ABSENT = 0.01, 0.1
# A sense is kept if the whole interval of its change lies within this.
LITTLE = 0.15
VERDICTS = GAINED, LOST, MORE, LESS, KEPT, UNTOLD = "gained", "lost", "more", "less", "kept", "cannot be told"


class Groups:
    """
    The usages of a word in groups, such as times, and by document in each.

    Args:
        groups (`np.ndarray` of shape `(usages,)`): The group of each usage, from 0.
        documents (`np.ndarray` of shape `(usages,)`): The document of each usage.
        number (`int`): The number of groups.
    """

    def __init__(self, groups: np.ndarray, documents: np.ndarray, number: int):
        self.places = [np.unique(documents[groups == group], return_inverse=True)[1] for group in range(number)]
        self.members = [np.flatnonzero(groups == group) for group in range(number)]
        self.sizes = [np.bincount(place) for place in self.places]

    def by_document(self, is_inside: np.ndarray) -> list[np.ndarray]:
        """Returns for each group the number of some usages in each document."""
        return [
            np.bincount(place[is_inside[own]], minlength=len(sizes))
            for place, own, sizes in zip(self.places, self.members, self.sizes, strict=True)
        ]

    def count(self, is_inside: np.ndarray) -> list[dict[str, int]]:
        """Returns for each group the number of some usages, of their documents, and of all usages."""
        return [
            {"usages": int(part.sum()), "documents": np.count_nonzero(part), "total": int(sizes.sum())}
            for part, sizes in zip(self.by_document(is_inside), self.sizes, strict=True)
        ]

    def shares(self, is_inside: np.ndarray) -> np.ndarray:
        """Returns the share of some usages in each group, and its 95 % interval: an array of shape `(groups, 3)`."""
        parts = self.by_document(is_inside)
        return np.array(
            [
                interval_of_change(part.sum(), sizes.sum(), effect) if len(sizes) else [math.nan] * 3
                for part, sizes, effect in zip(parts, self.sizes, design_effects(parts, self.sizes), strict=True)
            ]
        ).reshape(-1, 3)


def shares_of_senses(senses: Senses, labels: np.ndarray, is_quoted: np.ndarray, groups: Groups) -> np.ndarray:
    """
    Returns the share of each sense in each group and its 95 % interval, an array of shape `(senses, groups, 3)`: of
    clusters as they are counted; of known senses corrected by their quotations. Shares that hold by construction or
    cannot be counted are NaN: the share of one sense, shares of known senses whose quotations are not right more often
    than by chance, and of usages that fit none, because quotations do not tell how many of these seem to fit.

    Args:
        senses: The senses of a word.
        labels (`np.ndarray` of shape `(usages,)`): The sense of each usage.
        is_quoted (`np.ndarray` of shape `(usages,)`): Whether a usage has its sense as a quotation of it.
        groups: The groups of these usages.
    """
    shares = np.full((len(senses.counts), len(groups.sizes), 3), math.nan)
    if senses.known is None:
        if len(shares) > 1:
            shares[:] = [groups.shares(labels == sense) for sense in range(len(shares))]
    elif senses.known.tells_senses:
        number = len(senses.known.outcomes)
        shares[:number] = corrected_shares(labels, is_quoted, groups, senses.known.outcomes)[:number]
    return shares


def corrected_shares(
    labels: np.ndarray, is_quoted: np.ndarray, groups: Groups, outcomes: np.ndarray, seed: int = 0
) -> np.ndarray:
    """
    Corrects the shares of known senses by what happens to their quotations (adjusted counting; Forman, 2008): the
    shares are those that make the counted ones most likely, if usages of each sense are assigned as its quotations
    are. Both are drawn again 400 times, which gives the interval; the share is the mean of the draws. Usages that fit
    none of the senses are a sense of its own, of which all fit none.

    Args:
        labels (`np.ndarray` of shape `(usages,)`): The sense of each usage; none has the last number.
        is_quoted (`np.ndarray` of shape `(usages,)`): Whether a usage is quoted, so that its sense is known.
        groups: The groups of the usages.
        outcomes (`np.ndarray` of shape `(senses, senses + 1)`): The outcomes of quotations ([`Known`]).
        seed: Seed of the draws.

    Returns:
        Shares and the ends of their 95 % intervals, of shape `(senses + 1, groups, 3)`. All are NaN in a group
        without usages, and ends are NaN where each group has one document.
    """
    rng, number = np.random.default_rng(seed), len(outcomes) + 1

    def draw(counts: np.ndarray) -> np.ndarray:
        """Draws shares from a Dirichlet distribution, along the last axis."""
        drawn = rng.standard_gamma(np.broadcast_to(counts + SMOOTHING, (DRAWS, *counts.shape)))
        return drawn / drawn.sum(axis=-1, keepdims=True)

    confusion = np.zeros((DRAWS, number, number))
    confusion[:, :-1], confusion[:, -1, -1] = draw(outcomes), 1
    # Usages in one document are alike. The commonest sense tells how much.
    commonest = labels == np.bincount(labels, minlength=number).argmax()
    effects = design_effects(groups.by_document(commonest), groups.sizes)
    result = np.full((number, len(groups.sizes), 3), math.nan)
    for group, (own, effect) in enumerate(zip(groups.members, effects, strict=True)):
        if not len(own):
            continue
        quoted = np.bincount(labels[own][is_quoted[own]], minlength=number)
        counts = np.bincount(labels[own][~is_quoted[own]], minlength=number)
        counted = draw(counts / (1 if math.isnan(effect) else effect))
        shares = np.full((DRAWS, number), 1 / number)
        for _ in range(STEPS):
            likely = shares[:, :, None] * confusion
            shares = (likely / likely.sum(axis=1, keepdims=True) @ counted[:, :, None])[..., 0]
        shares = (shares * counts.sum() + quoted) / len(own)
        ends = np.full((2, number), math.nan) if math.isnan(effect) else np.quantile(shares, (0.025, 0.975), axis=0)
        result[:, group] = np.stack([shares.mean(axis=0), *ends], axis=1)
    return result


def interval_of_difference(first: np.ndarray, last: np.ndarray) -> tuple[float, float]:
    """
    Returns the 95 % interval of the difference of two shares, from each share and the ends of its interval (Newcombe,
    1998).
    """
    (one, one_low, one_high), (other, other_low, other_high) = first, last
    change = other - one
    return (
        change - math.hypot(other - other_low, one_high - one),
        change + math.hypot(other_high - other, one - one_low),
    )


def judge_sense(first: np.ndarray, last: np.ndarray) -> str:
    """
    Tells what became of a sense, from its share and the ends of its interval at the first and at the last time: gained
    or lost, if it may have been absent at one of them and its share certainly changed; more or less, if its share
    certainly changed; kept, if it certainly changed by less than 15 points; or that it cannot be told.
    """
    low, high = interval_of_difference(first, last)

    def is_absent(share: np.ndarray) -> bool:
        return bool(share[1] <= ABSENT and share[0] <= NEARLY_ABSENT)

    if math.isnan(low) or math.isnan(high):
        return UNTOLD
    if low > 0:
        return GAINED if is_absent(first) else MORE
    if high < 0:
        return LOST if is_absent(last) else LESS
    return KEPT if -LITTLE < low and high < LITTLE else UNTOLD
