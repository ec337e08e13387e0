"""Finds the words of a corpus that can be compared, and ranks them by the change of a few usages of each."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from modeling_tempoformer.common.files import written_whole

from .dated_sentences import DatedSentence
from .measures import ReadUsages, change_between
from .reading.passages import split_tag, untagged
from .usages import Usage, Usages, frequent_words


SEARCHED = "searched.csv"
# The numbers of usages of each word and time by which a search scores words, first all of them, then the best.
FEW_USAGES, MORE_USAGES = 10, 40
# The words that are read again, as a multiple of those that are asked for.
READ_AGAIN = 6
# A word of three letters or more, in parts with hyphens or not, between punctuation.
WORD = re.compile(r"[^\w\s]*([^\W\d_]{3,}(?:-[^\W\d_]+)*)[^\w\s]*")
# The column `left_out` of words that are not compared.
RARE, FREQUENT, FUNCTION, NAME = "rare at a time", "among the most frequent", "a function word", "a name"
# Some words of scikit-learn's list of English stop words have a meaning of their own (Nothman, Qin and Yurchak, 2018).
CONTENT = """
    amount bill bottom call cry describe detail fill find fire found front full interest mill mine move name part show
    side sincere system thick thin top
"""
# Function words of older English, which no list of today has.
OLDER = """
    canst couldst didst dost doth hadst hast hath hither hitherto mayest mightest nay oft shalt shouldst thee thence
    therein thereof thereunto thine thither thou thy thyself unto wast wert wherefore wherein whereof whither whoso
    whosoever wilt wouldst yea
"""
FUNCTION_WORDS = (ENGLISH_STOP_WORDS - set(CONTENT.split())) | set(OLDER.split())


class Searched(NamedTuple):
    """
    The words of a corpus that can be compared, and those that are left out.

    Attributes:
        forms (`dict[str, list[str]]`): The spellings of each word that can be compared. Its name is the commonest.
        usages (`Usages`): A few usages of each of these words at each time that has enough of them.
        table (`pandas.DataFrame`): A row for each word that is frequent enough at one time at least: `word`,
            `left_out` (empty, or why), and its occurrences, `count_TIME`.
        num_words (`int`): The number of all words, including rarer ones.
    """

    forms: dict[str, list[str]]
    usages: Usages
    table: pd.DataFrame
    num_words: int

    def apart_from(self, words: Mapping[str, Sequence[str]]) -> list[str]:
        """Returns the words that can be compared and share no form, in any case, with those that are given."""
        taken = {form.lower() for word, forms in words.items() for form in (word, *forms)}
        return [word for word, forms in self.forms.items() if taken.isdisjoint(map(str.lower, forms))]

    def draw(
        self, number: int, without: Mapping[str, Sequence[str]], ends: Sequence[str], seed: int
    ) -> dict[str, list[str]]:
        """
        Draws words that can be compared, in proportion to their occurrences at the end that has fewer of them.

        Args:
            number: The number of words. If there are fewer, all are returned.
            without: Words with their forms; a word that shares one with them is not drawn.
            ends: The first and the last time.
            seed: The seed of the draw.

        Raises:
            ValueError: If there is no such word.
        """
        counts = self.table.set_index("word").loc[self.apart_from(without), count_columns(ends)].min(axis=1)
        if counts.empty:
            raise ValueError("--steady draws no word: no other words of the corpora are frequent enough at both ends.")
        number, generator = min(number, len(counts)), np.random.default_rng(seed)
        drawn = generator.choice(counts.index, number, replace=False, p=counts / counts.sum())
        return {word: self.forms[word] for word in drawn}

    def describe(self, min_usages: int) -> str:
        """Tells how many words were searched and can be compared, and how many are left out and why."""
        left_out = self.table["left_out"].value_counts()
        english = f", {left_out[FUNCTION]:,} function words of English" if FUNCTION in left_out else ""
        names = f", and {left_out[NAME]:,} that mostly begin with a capital" if NAME in left_out else ""
        return (
            f"{self.num_words:,} words were searched, and {len(self.forms):,} of them can be compared. Left out: "
            f"{self.num_words - len(self.table):,} with fewer than {min_usages} usages at every time, "
            f"{left_out.get(RARE, 0):,} with fewer at the first or the last, {left_out.get(FREQUENT, 0):,} among the "
            f"most frequent ones, which make up half of the texts{english}{names}."
        )


@dataclass
class Vocabulary:
    """
    The words of a corpus. Spellings that differ in capitals are one word.

    Attributes:
        num_kept: The number of sentences that are kept for each word and time.
        counts: The occurrences, by word in lower case and time.
        spellings: The occurrences of each spelling.
        kept: For each word and time a heap of random numbers and usages, the largest number first. The sentences of a
            sample are those with the smallest numbers, so that the samples of words share sentences.
        tokens: The occurrences of each token in lower case.
    """

    num_kept: int
    counts: Counter[tuple[str, str]]
    spellings: Counter[str]
    kept: dict[tuple[str, str], list[tuple[float, Usage]]]
    tokens: Counter[str]

    @classmethod
    def of(cls, sentences: Iterable[DatedSentence], num_kept: int, seed: int = 42) -> "Vocabulary":
        """Reads a corpus without targets."""
        vocabulary = cls(num_kept, Counter(), Counter(), {}, Counter())
        generator = random.Random(seed)
        for sentence in sentences:
            vocabulary.add(sentence, generator.random())
        return vocabulary

    def add(self, sentence: DatedSentence, number: float):
        """Counts the words of a sentence, and keeps it for those words for which its random number is small enough."""
        first: dict[str, tuple[int, int]] = {}
        self.tokens.update(untagged(token).lower() for token in sentence.tokens)
        for spelling, start, end in tagged_words(sentence):
            self.spellings[spelling] += 1
            self.counts[spelling.lower(), sentence.time] += 1
            first.setdefault(spelling.lower(), (start, end))
        for word, (start, end) in first.items():
            heap = self.kept.setdefault((word, sentence.time), [])
            if len(heap) < self.num_kept:
                heappush(heap, (-number, Usage.of(sentence, start, end)))
            elif -number > heap[0][0]:
                heapreplace(heap, (-number, Usage.of(sentence, start, end)))

    def search(self, times: Sequence[str], min_usages: int, without_names: bool = False) -> Searched:
        """
        Finds the words that can be compared: those with `min_usages` occurrences at the first and at the last time
        that are not among the most frequent words nor, where "the" is one of these, function words of English. With
        `without_names` they do not begin with a capital in most of their occurrences. At other times with fewer
        occurrences they have no usages.
        """
        spellings: dict[str, Counter[str]] = {}
        for spelling, count in self.spellings.items():
            spellings.setdefault(spelling.lower(), Counter())[spelling] = count
        frequent, forms, usages, rows = frequent_words(self.tokens), {}, {}, []
        # In other languages some are words with a meaning, such as Latin "via" and German "Not".
        function_words = FUNCTION_WORDS if "the" in frequent else set()
        for word, spelled in spellings.items():
            counts = [self.counts[word, time] for time in times]
            if max(counts) < min_usages:
                continue
            # Of equal counts the first spelling in alphabetical order wins.
            name = min(spelled, key=lambda spelling: (-spelled[spelling], spelling))
            left_out = ""
            if min(counts[0], counts[-1]) < min_usages:
                left_out = RARE
            elif untagged(word) in frequent:
                left_out = FREQUENT
            elif untagged(word) in function_words:
                left_out = FUNCTION
            elif without_names and 2 * spelled[word] < spelled.total():
                left_out = NAME
            else:
                forms[name] = sorted(spelled)
                frequent_at = [time for time, count in zip(times, counts, strict=True) if count >= min_usages]
                usages[name] = {time: self.drawn(word, time) for time in frequent_at}
            rows.append({"word": name, "left_out": left_out, **dict(zip(count_columns(times), counts, strict=True))})
        table = pd.DataFrame(rows, columns=["word", "left_out", *count_columns(times)])
        return Searched(forms, usages, table, len(spellings))

    def drawn(self, word: str, time: str) -> list[Usage]:
        """Returns the kept usages of a word, in the order of their random numbers."""
        return [usage for _, usage in sorted(self.kept[word, time], key=lambda pair: -pair[0])]


def count_columns(times: Sequence[str]) -> list[str]:
    """Returns the names of the columns of occurrences."""
    return [f"count_{time}" for time in times]


def tagged_words(sentence: DatedSentence) -> Iterator[tuple[str, int, int]]:
    """Yields the words of a sentence that has no targets, with their tags, and their places in its text."""
    for token, (start, end) in zip(sentence.tokens, sentence.places, strict=True):
        word, tag = split_tag(token)
        if match := WORD.fullmatch(word):
            yield match[1] + tag, start, end


def sift(usages: Usages, number: int, read: Callable[[Usages], Mapping[str, ReadUsages]], seed: int) -> pd.DataFrame:
    """
    Scores words to find those that changed most.

    Returns a table of the words, the most changed one first, with the change by [`MORE_USAGES`] of each time, which is
    NaN but for [`READ_AGAIN`] times the `number` of words, and that by [`FEW_USAGES`], by which these were chosen: the
    order by a few usages is mostly noise.
    """
    parts = {word: {time: part[:FEW_USAGES] for time, part in by_time.items()} for word, by_time in usages.items()}
    few = rank_by_change(read(parts), seed)
    again = few.index[: READ_AGAIN * number]
    more = rank_by_change(read({word: usages[word] for word in again}), seed)
    scores = pd.DataFrame({f"change_by_{MORE_USAGES}": more, f"change_by_{FEW_USAGES}": few})
    return scores.sort_values(list(scores), ascending=False, kind="stable")


def rank_by_change(words: Mapping[str, ReadUsages], seed: int) -> pd.Series:
    """Returns the largest change of each word between two compared times, the most changed word first."""
    scores = {name: max(change_between(word, *pair, seed) for pair in word.swapped) for name, word in words.items()}
    return pd.Series(scores, dtype=float).sort_values(ascending=False, kind="stable")


def write_searched(folder: Path, searched: Searched, scores: pd.DataFrame):
    """Writes `searched.csv`: the words in the order of [`sift`], and then the words that are left out."""
    names = list(scores)
    table = searched.table.join(scores, on="word")
    table = table.sort_values([*names, "word"], ascending=[*(False for _ in names), True], kind="stable")
    columns = ["word", *names, "left_out", *(name for name in table if name.startswith("count_"))]
    with written_whole(folder / SEARCHED) as partial:
        table[columns].to_csv(partial, index=False)
