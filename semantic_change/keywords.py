"""Words around a word: the keywords of its senses, and its collocates at each time."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import chi2

from .reading.passages import fold


MAX_KEYWORDS = 5
MIN_COUNT = 3


class Collocate(NamedTuple):
    """
    A word that usages of one kind have around them more often than the others.

    Attributes:
        word (`str`): The word.
        count (`int`): The number of these usages with the word around them.
        strength (`float`): The share of these usages with the word, divided by that of the others. Both counts are
            smoothed by a half, so that the ratio is finite.
    """

    word: str
    count: int
    strength: float


class WordsAround:
    """
    The words around usages, without numbers and words of one or two letters.

    Args:
        contexts (`Sequence[str]`): The words near each usage.
        frequent (`Collection[str]`, *optional*): Words that are left out, such as function words.
    """

    def __init__(self, contexts: Sequence[str], frequent: Collection[str] = ()):
        counter = CountVectorizer(
            binary=True,
            preprocessor=lambda text: fold(text).lower(),
            token_pattern=r"(?u)\b[^\W\d_]{3,}\b",
            # The pattern finds no shorter words.
            stop_words=[word for word in frequent if len(word) > 2] or None,
        )
        try:
            self.present = counter.fit_transform(contexts)
            self.words = counter.get_feature_names_out()
        except ValueError:  # No context has a word.
            self.present, self.words = None, []

    def collocates(self, labels: np.ndarray, number: int) -> list[list[Collocate]]:
        """
        Finds for each of a number of labels the words that its usages have around them more often than the others, the
        largest chi-squared first.
        """
        if self.present is None:
            return [[] for _ in range(number)]
        return [self.collocates_of(labels == label) for label in range(number)]

    def collocates_of(self, is_inside: np.ndarray) -> list[Collocate]:
        """Finds the collocates of some of the usages."""
        num_inside, num_outside = np.sum(is_inside), np.sum(~is_inside)
        inside, outside = (self.present[part].sum(axis=0).A1 for part in (is_inside, ~is_inside))
        candidates = np.flatnonzero((inside >= MIN_COUNT) & (inside * num_outside > outside * num_inside))
        if not len(candidates):
            return []
        scores = chi2(self.present[:, candidates], is_inside)[0]
        best = candidates[np.argsort(-scores, kind="stable")[:MAX_KEYWORDS]]
        return [
            Collocate(
                str(self.words[word]),
                int(inside[word]),
                float((inside[word] + 0.5) / (num_inside + 0.5) / ((outside[word] + 0.5) / (num_outside + 0.5))),
            )
            for word in best
        ]

    def keywords(self, labels: np.ndarray, number: int) -> list[list[str]]:
        """Finds the words of [`collocates`] for each of a number of labels."""
        return [[collocate.word for collocate in found] for found in self.collocates(labels, number)]
