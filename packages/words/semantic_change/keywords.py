"""Words around a word: the keywords of its senses, and its collocates at each time."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import chi2

from .reading.passages import fold
from .usages import Usage, context


MAX_KEYWORDS = 5
# At most so many keywords stand right beside the word.
MAX_BESIDE = 3
MIN_COUNT = 3
# A neighbour's window, in words on each side.
NEAR = 3
# With the end of English "didn't", which is no "didn".
WORD = r"[^\W\d_]{3,}(?:'t(?!\w))?"
WORDS = re.compile(rf"\b{WORD}\b")
# Words of any length, with what they are contracted with.
BESIDE = r"[^\W\d_]+(?:'[^\W\d_]+)*"
BEFORE, AFTER = re.compile(rf"\b({BESIDE})[\s-]$"), re.compile(rf"^[\s-]({BESIDE})\b")
# Stands for the word beside its neighbours, as in dictionaries.
SWUNG_DASH = "~"


class Collocate(NamedTuple):
    """
    A word that usages of one kind have around them more often than the others.

    Attributes:
        word (`str`): The word.
        count (`int`): The number of these usages with the word around them.
        strength (`float`): The share of these usages with the word, divided by the others' share. Both counts are
            smoothed by a half, so that the ratio is finite.
    """

    word: str
    count: int
    strength: float


class WordsAround:
    """
    The words around usages.

    Args:
        words (`Sequence[Iterable[str]]`): The words of each usage, such as [`content_words`] yields.
    """

    def __init__(self, words: Sequence[Iterable[str]]):
        counter = CountVectorizer(binary=True, analyzer=list)
        try:
            self.present = counter.fit_transform(words)
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


def content_words(text: str, frequent: Collection[str] = ()) -> list[str]:
    """Returns the keys of the words of a text, without frequent words, numbers and words of one or two letters."""
    return [word for word in WORDS.findall(fold(text).lower()) if word not in frequent]


def words_beside(usage: Usage) -> Iterator[str]:
    """
    Yields the words right before and after a usage, with a swung dash for it ("solar ~"). Frequent words are among
    them, because they tell the grammar of a word ("in ~", "to ~", "thou ~").
    """
    if before := BEFORE.search(fold(usage.text[: usage.start]).lower()):
        yield f"{before[1]} {SWUNG_DASH}"
    if after := AFTER.search(fold(usage.text[usage.end :]).lower()):
        yield f"{SWUNG_DASH} {after[1]}"


class Keywords:
    """
    Finds keywords of senses, and collocates of times, as dictionaries give them. `frequent` has words that are none
    unless they stand right beside the word.
    """

    def __init__(self, usages: Sequence[Usage], frequent: Collection[str] = ()):
        self.beside = WordsAround([list(words_beside(usage)) for usage in usages])
        self.near, self.around = (
            WordsAround([content_words(context(usage, *window), frequent) for usage in usages])
            for window in ((NEAR,), ())
        )

    def find(self, labels: np.ndarray, number: int) -> list[list[str]]:
        """
        Finds at most five keywords of each of a number of labels: three words that stand right beside its usages more
        often than beside the others, then such words within three words of them, then within ten.
        """
        found = self.merge((self.beside, self.near, self.around), labels, number)
        return [[collocate.word for collocate in chosen] for chosen in found]

    def collocates(self, labels: np.ndarray, number: int) -> list[list[Collocate]]:
        """Finds at most five collocates of each of a number of labels: three words right beside, then within ten."""
        return self.merge((self.beside, self.around), labels, number)

    @staticmethod
    def merge(places: Sequence[WordsAround], labels: np.ndarray, number: int) -> list[list[Collocate]]:
        """Joins the collocates of each label at several places. The first place has those right beside the word."""
        merged = []
        for beside, *further in zip(*(place.collocates(labels, number) for place in places), strict=True):
            # By the bare word, so that none is there twice.
            chosen: dict[str, Collocate] = {}
            for collocate in chain(beside[:MAX_BESIDE], *further):
                chosen.setdefault(collocate.word.strip(f"{SWUNG_DASH} "), collocate)
            merged.append(list(chosen.values())[:MAX_KEYWORDS])
        return merged
