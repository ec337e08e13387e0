"""The form into which every corpus is read: passages, with a date, a source and words."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from transformers.utils import logging

from modeling_tempoformer import read_date


logger = logging.get_logger(__name__)

# Parts of speech after words, as SemEval-2020, Universal Dependencies (spaCy's `pos_`) and the Penn Treebank (spaCy's
# `tag_`) name them, and CLAWS 7 (COHA), for nouns, verbs, adjectives and adverbs.
TAG = re.compile(
    r"(?<=.)_(?:nn|vb"
    "|ADJ|ADP|ADV|AUX|CCONJ|CONJ|DET|INTJ|NOUN|NUM|PART|PRON|PROPN|PUNCT|SCONJ|SPACE|SYM|VERB|X"
    r"|CC|CD|DT|EX|FW|IN|JJ[RS]?|LS|MD|NNP?S?|PDT|POS|PRP\$?|RB[RS]?|RP|TO|UH|VB[DGNPZ]?|WDT|WP\$?|WRB|HYPH"
    r"|n(?:n[abltou]?|p[dm]?)[12]?|v(?:v|b|d|h)[0dgimnrz]|jj[rt]?|r[rlt]|-LRB-|-RRB-|[.,:]|``|''"
    ")$"
)
# A year, a month or a day, without a letter or a digit right before or after it.
DATE = re.compile(r"(?<![^\W_])(?:1\d|20)\d\d(?:-(?:0[1-9]|1[0-2])(?:-[0-3]\d)?)?(?![^\W_])")
# The place of a date in the table of files, where a text has none of its own
IN_NAME = "file's name"
SPAN_OF_YEARS = re.compile(r"(?<!\d)\d{4} ?[-\u2013/] ?\d{4}(?!\d)")
# Stands where words were taken out of a text.
GAP = "[\u2026]"
# Punctuation and clitics without a space before them, and brackets without a space after them, for corpora that do not
# mark spaces.
CLOSING = re.compile(r"""[.,;:!?%)\]}\u2019\u201d\u2026]+|n['\u2019]t|['\u2019](?:s|m|d|ll|re|ve)""", re.IGNORECASE)
OPENING = re.compile(r"[(\[{\u201c\u00bf\u00a1]+")
# Characters that differ in print but not in the word: apostrophes, hyphens, the long s, the round r, the small e above
# a vowel that became an umlaut, and ligatures; and invisible ones: soft hyphens, spaces without a width, joiners and
# marks of direction.
APOSTROPHES = "\u2018\u2019\u201b\u02bc\u00b4\uff07"
HYPHENS = "\u2010\u2011\u2e17\ufe63\uff0d"
LIGATURES = "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06"
UNSEEN = "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"
OLD_LETTERS = str.maketrans("\u017f\ua75b\u0364", "sr\u0308")
# An encoder reads a soft hyphen as a piece of its own, or leaves it out.
READ = str.maketrans({**OLD_LETTERS, "\u00ad": None})
PRINTED = str.maketrans(
    {
        **OLD_LETTERS,
        **dict.fromkeys(APOSTROPHES, "'"),
        **dict.fromkeys(HYPHENS, "-"),
        **dict.fromkeys(UNSEEN),
        **{char: unicodedata.normalize("NFKC", char) for char in LIGATURES},
    }
)
# Stand between two words without spaces, as editions of novels print them.
DASHES = re.compile("(?:[\u2013-\u2015]|--+)+")
# Marks at the end of a line that divide a word and are never part of one; a hyphen may be.
DIVISIONS = "\u00ac\u00ad"
# Old German print divides by a double hyphen ("Hau=" and "ses").
LINE_HYPHENS = f"-={HYPHENS}{DIVISIONS}"
# The second half of "pre- and post-war" is no part of a word.
CONJUNCTIONS = {"and", "or", "und", "oder"}
# A word between punctuation, with its hyphens and apostrophes.
LETTERS = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")


class TextColumns(NamedTuple):
    """
    The columns of a table of texts, or the names of these values in a corpus. A table may lack dates and sources if
    their columns have the default names. `search` names the columns in which target words are looked up, in a
    corpus with a token on each line; several are joined by underscores.
    """

    text: str = "text"
    time: str = "date"
    source: str = "source"
    search: Sequence[str] = ("word",)


class Origin(NamedTuple):
    """
    The file of a text by its name in the corpus, the place where its date was found, its author and its title; empty
    if the corpus does not tell them.
    """

    file: str = ""
    date_found: str = ""
    author: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Passage:
    """
    A text of a corpus.

    Attributes:
        date, source (`str`): Its date as it is written, and its source; empty if the corpus does not tell them.
        words (`list[str]`): Its words, with composed accents.
        keys (`list[str]`): The texts that target words are compared with, for example the lemma of each word. The same
            list as `words` in running text.
        glued (`Collection[int]`): The indices of words without a space before them.
        document (`str`): The document of the passage, by a name that is unique in the corpus; empty if the corpus does
            not mark where documents begin.
        origin ([`Origin`]): The file and the work that the passage is from.
        places (`Sequence[tuple[int, str]]`): The indices of words from which on the source is another page or line,
            and that source.
    """

    date: str
    source: str
    words: list[str]
    keys: list[str]
    glued: Collection[int] = frozenset()
    document: str = ""
    origin: Origin = Origin()
    places: Sequence[tuple[int, str]] = ()

    @classmethod
    def of_text(cls, date: str, source: str, text: str, document: str = "", origin: Origin = Origin()) -> "Passage":
        """Makes a passage of running text, whose words are separated by white space or divided by ends of lines."""
        lines = text.splitlines()
        compounds = find_compounds(lines) if len(lines) > 1 else ()
        return cls.of_lines(date, source, lines, compounds, document, origin)

    @classmethod
    def of_lines(
        cls,
        date: str,
        source: str,
        lines: Iterable[str],
        compounds: Collection[str],
        document: str = "",
        origin: Origin = Origin(),
    ) -> "Passage":
        """Makes a passage of the lines of running text, with [`find_compounds`] of the whole text."""
        words, glued = split_at_dashes(join_lines(lines, compounds))
        return cls(date, source, words, words, glued, document, origin)

    def join(self, first: int = 0, end: int | None = None) -> str:
        """Joins some of the words to a text."""
        words = enumerate(self.words[first:end], first)
        return "".join(word if index == first or index in self.glued else f" {word}" for index, word in words)


@dataclass
class Dropped:
    """Counts the parts that were left out of a corpus, by their description in the singular and in the plural."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    first: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, where: str, one: str, many: str):
        self.counts[one, many] += 1
        self.first.setdefault((one, many), where)

    def say(self, path: object):
        """Warns once with the numbers, and the place of the first of each."""
        if self.counts:
            parts = (
                f"{count:,} {name[count > 1]} ({'the first in' if count > 1 else 'in'} {self.first[name]})"
                for name, count in self.counts.items()
            )
            logger.warning_once(f"{path}: left out {', '.join(parts)}.")


def compose_accents(text: str) -> str:
    """Joins accents and their letters (NFC): corpora, file names and lists of words may write them separately."""
    return unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    """
    Returns the key of a word or text: typographic apostrophes and hyphens become `'` and `-`; ligatures, long
    s, round r and a small e above a vowel become the letters of today; accents are composed; soft hyphens and other
    characters that are not seen are left out. Words are compared and counted by their keys. Quotations keep the
    characters of the text.
    """
    return text if text.isascii() else compose_accents(text.translate(PRINTED))


def find_compounds(lines: Iterable[str]) -> set[str]:
    """Returns the keys of the words with a hyphen inside a line of a text, in lower case."""
    keys = (fold(line).lower() for line in lines)
    return {word for key in keys if "-" in key for word in LETTERS.findall(key) if "-" in word}


def join_lines(lines: Iterable[str], compounds: Collection[str]) -> list[str]:
    """Returns the words of lines of running text, with composed accents and joined where a line divides them."""
    words: list[str] = []
    for line in lines:
        following = compose_accents(line).split()
        if words and following and (whole := join_divided(words[-1], following[0], compounds)):
            words[-1:], following = [whole], following[1:]
        words += following
    return words


def split_at_dashes(words: Iterable[str]) -> tuple[list[str], set[int]]:
    """
    Divides words after the dashes inside them, if letters stand on both sides, and returns the indices of those that
    then have no space before them.
    """
    parts: list[str] = []
    glued: set[int] = set()
    for word in words:
        start = 0
        for dash in DASHES.finditer(word):
            if LETTERS.search(word, start, dash.start()) and LETTERS.search(word, dash.end()):
                parts.append(word[start : dash.end()])
                glued.add(len(parts))
                start = dash.end()
        parts.append(word[start:])
    return parts, glued


def join_divided(before: str, after: str, compounds: Collection[str]) -> str | None:
    """
    Returns the word that the end of a line divides, None if it divides none. A small letter follows the hyphen. The
    word keeps its hyphen if the text has the same word with a hyphen inside a line (`compounds`), such as "to-day".
    """
    mark = before[-1]
    if mark not in LINE_HYPHENS:
        return None
    first, second = fold(before[:-1]).lower(), fold(after).lower()
    if not (first[-1:].isalpha() and second[:1].isalpha()):
        return None
    if mark in DIVISIONS:
        return before[:-1] + after
    second = LETTERS.match(second)[0]
    if f"{LETTERS.findall(first)[-1]}-{second}" in compounds:
        return before + after
    return None if after[0].isupper() or second in CONJUNCTIONS else before[:-1] + after


def split_tag(word: str) -> tuple[str, str]:
    """Returns a word, and the part of speech after it from its underscore on; empty if there is none."""
    match = TAG.search(word) if "_" in word else None
    return (word[: match.start()], match[0]) if match else (word, "")


def untagged(word: str) -> str:
    """Removes the part of speech after a word."""
    return split_tag(word)[0]


def find_date(text: str) -> str:
    """
    Finds the date in a note such as "Anno Dom. 1641." or in a name: the text itself if [`read_date`] reads it, else
    the first year from 1000 to 2099, or month or day of such a year. Empty if there is none, or a span of years.
    """
    text = text.strip()
    # A short number may count files.
    if not (text.isdigit() and len(text) < 8) and read_date(text):
        return text
    found = DATE.search(text)
    return found[0] if found and not SPAN_OF_YEARS.search(text) else ""


def find_date_in_name(file: str | Path) -> str:
    """Finds the date in the name of a file, without its ending ([`find_date`])."""
    return find_date(Path(file).name.partition(".")[0])


def origin_of_file(name: str, author: str = "", title: str = "") -> Origin:
    """Returns the origin of texts whose date is that in their file's name, if there is one."""
    return Origin(name, IN_NAME if find_date_in_name(name) else "", author, title)


def common_date(first: str, last: str) -> str:
    """Returns the year, the month or the day that two dates share; both dates, divided by a slash, if none."""
    starts, ends = read_date(first), read_date(last)
    if not starts or not ends or starts[0] != ends[0]:
        return f"{first}/{last}"
    size = next((size for size, (start, end) in enumerate(zip(starts, ends, strict=False)) if start != end), None)
    return "-".join(f"{part:02}" for part in starts[:size])


def glue(words: list[str]) -> set[int]:
    """Returns the indices of the words of a sentence without a space before them, by their punctuation."""
    return {
        index
        for index, word in enumerate(words)
        if index and (CLOSING.fullmatch(word) or OPENING.fullmatch(words[index - 1]))
    }
