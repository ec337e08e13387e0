"""Checks that a file, read in the layout that was guessed, gives running texts and nothing else."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import shorten

from transformers.utils import logging

from modeling_tempoformer.common.markup import ODD_SHARE, has_markup

from .passages import LINE_HYPHENS, Passage


logger = logging.get_logger(__name__)

# Fewer texts say little about their layout. Small files are judged together.
FEWEST_TEXTS = 20
# A file is judged after this many texts, so that a wrong stream ends early, and again at its end.
FIRST_TEXTS = 1000
# Words have fewer characters on average, in any language with spaces between them.
LONGEST_MEAN_WORD = 12
# The share of the texts that begin within a word where lines are wrapped.
DIVIDED_SHARE = 0.01
# The share of the texts that end with a comma where lines are verses: measured 0.12 to 0.4 in plays and poems, 0.06 in
# a play in prose, 0.001 in paragraphs.
CUT_SHARE = 0.1
# The share of the texts that go on in small letters where lines are wrapped without blank lines: measured 0.55 to 0.74
# in novels, at most 0.3 in others. Of texts without any ends of sentences it tells nothing.
CONTINUED_SHARE, ENDED_SHARE = 0.4, 0.05
# A word of the Brown corpus or of a tagger (The/at).
TAGGED = re.compile(r"\S/[A-Za-z][A-Za-z$*+-]*$")
LETTER = re.compile(r"[^\W\d_]")
# What a warning says of texts that are doubtful, by what was counted.
DOUBTS = {
    "unspaced": (
        "{read}. There seem to be no spaces between words, as in Chinese, Japanese or Thai. Words are found between "
        "spaces: put some there by a segmenter (jieba, MeCab, PyThaiNLP)."
    ),
    "divided": (
        "{count:,} texts begin within a word, which is not found because the end of the text before divides it: "
        "{read}. Put blank lines between paragraphs, so that wrapped lines are joined."
    ),
    "continued": (
        "{count:,} texts begin with a small letter after one that ends no sentence, so lines seem to be wrapped: "
        "{read}. The encoder and citations need whole sentences: put blank lines between paragraphs, so that wrapped "
        "lines are joined."
    ),
    "cut": (
        "{count:,} texts end with a comma, so they seem to be parts of sentences, such as verses: {read}. The encoder "
        "and citations need whole sentences: put a stanza or a speech on each line, or give TEI, whose verses are "
        "joined."
    ),
}
ADVICE = (
    "Give running text without tags, one sentence or paragraph on each line or in each row. A file with a token on "
    "each line is named by its layout: .vrt with the word in the first column, or .conllup with a first line such as "
    "'# global.columns = ID FORM LEMMA'"
)


class WhatWasRead:
    """
    Counts the texts that were read from a file, and their properties.

    Args:
        path (`str` or `Path`): The file, or the folder of small files.
        layout (`str`): The layout that was guessed, as an error names it.
    """

    def __init__(self, path: str | Path, layout: str):
        self.path, self.layout = path, layout
        self.counts: Counter[str] = Counter()
        self.sizes: Counter[int] = Counter()
        self.examples: list[str] = []
        self.number, self.last_word = 0, ""

    def add(self, passage: Passage):
        """Counts a text that has words."""
        words, counts = passage.words, self.counts
        first, size = words[0], len(words)
        counts["texts"] += 1
        counts["words"] += size
        counts["letters"] += sum(map(len, words))
        self.sizes[size] += 1
        # A text of one word in a script without capitals may be a sentence.
        counts["single"] += size == 1 and first.lower() != first.upper()
        counts["wordless"] += not any(map(LETTER.search, words))
        counts["markup"] += has_markup(first, words[-1])
        counts["tagged"] += 2 * sum(TAGGED.search(word) is not None for word in words) > size
        number = int(first) if first.isdecimal() and len(first) < 10 else 0
        counts["numbered"] += number == 1 or number == self.number + 1
        counts["divided"] += (
            first[0].islower() and self.last_word[-2:-1].isalpha() and self.last_word[-1] in LINE_HYPHENS
        )
        counts["continued"] += first[0].islower() and self.last_word[-1:].isalpha()
        counts["ended"] += words[-1].endswith((".", "!", "?"))
        counts["cut"] += words[-1].endswith(",")
        self.number, self.last_word = number, words[-1]
        if len(self.examples) < 3:
            self.examples.append(shorten(passage.join(), 40, placeholder="\u2026"))

    def include(self, other: "WhatWasRead"):
        """Adds the counts of another file."""
        self.counts.update(other.counts)
        self.sizes.update(other.sizes)
        self.examples = [*self.examples, *other.examples][:3]

    def describe(self) -> str:
        """Describes the texts that were read, for an error or a warning."""
        texts, words = self.counts["texts"], self.counts["words"]
        return (
            f"read as {self.layout}, it has {texts:,} texts of {words / texts:.1f} words, and words of "
            f"{self.counts['letters'] / words:.1f} characters, on average; the first texts are "
            f"{', '.join(map(repr, self.examples))}"
        )

    def check(self):
        """Raises a `ValueError` if the texts are not running texts."""
        counts, texts = self.counts, self.counts["texts"]
        if texts < FEWEST_TEXTS:
            return
        wrong = ""
        if counts["markup"] > ODD_SHARE * texts:
            wrong = f"{counts['markup']:,} texts have tags or are objects of JSON"
        elif counts["words"] < 2 * texts and 2 * counts["single"] > texts:
            wrong = "most texts are one word, such as a token"
        elif counts["wordless"] > ODD_SHARE * texts:
            wrong = f"{counts['wordless']:,} texts have no letter, such as numbers of tokens or of subtitles"
        elif counts["tagged"] > ODD_SHARE * texts:
            wrong = (
                f"{counts['tagged']:,} texts have a part of speech after a slash behind most words (sed -E "
                r"'s:/[^/[:space:]]+([[:space:]]|$):\1:g' takes it off)"
            )
        elif counts["numbered"] > 0.9 * texts and 2 * max(self.sizes.values()) > texts:
            wrong = "texts of equal length begin with numbers that count up, such as lines of tokens"
        if wrong:
            raise ValueError(f"{self.path}: {wrong}: {self.describe()}. {ADVICE}.")

    @property
    def are_continued(self) -> bool:
        """Tells whether most texts go on in the next one, although some end a sentence."""
        counts, texts = self.counts, self.counts["texts"]
        return counts["continued"] > CONTINUED_SHARE * texts and counts["ended"] > ENDED_SHARE * texts

    def find_faults(self) -> Iterator[str]:
        """Yields what is doubtful in the texts: words that cannot be found, and parts of sentences ([`DOUBTS`])."""
        counts, texts = self.counts, self.counts["texts"]
        if counts["letters"] > LONGEST_MEAN_WORD * counts["words"]:
            yield "unspaced"
        if texts >= FEWEST_TEXTS and counts["divided"] > DIVIDED_SHARE * texts:
            yield "divided"
        elif texts >= FEWEST_TEXTS and self.are_continued:
            yield "continued"
        if texts >= FEWEST_TEXTS and counts["cut"] > CUT_SHARE * texts:
            yield "cut"


class Judged:
    """
    Judges the files of a corpus: each alone if it has enough texts, the others together. There is one warning of a
    kind, which counts over all files that have it.

    Args:
        path (`str` or `Path`): The corpus.
    """

    def __init__(self, path: str | Path):
        self.small = WhatWasRead(path, "small files")
        self.doubtful: dict[str, list[WhatWasRead]] = {}

    def add(self, read: WhatWasRead):
        """Judges a file that was read. Raises a `ValueError` if it has no running texts."""
        if read.counts["texts"] < FEWEST_TEXTS:
            self.small.include(read)
        else:
            self.judge(read)

    def judge(self, read: WhatWasRead):
        """Judges texts, and notes what is doubtful."""
        read.check()
        for doubt in read.find_faults():
            self.doubtful.setdefault(doubt, []).append(read)

    def end(self):
        """Judges the small files, and warns of what is doubtful."""
        self.judge(self.small)
        for doubt, (first, *others) in self.doubtful.items():
            where = name_files([first.path, *(read.path for read in others)])
            for read in others:
                first.include(read)
            text = DOUBTS[doubt].format(count=first.counts[doubt], read=first.describe())
            logger.warning_once(f"{where}: {text}")


def checked(passages: Iterable[Passage], read: WhatWasRead, judged: Judged) -> Iterator[Passage]:
    """
    Yields the passages of a file that have words. Raises a `ValueError` if these are no running texts.
    """
    for passage in passages:
        if passage.words:
            read.add(passage)
            if read.counts["texts"] == FIRST_TEXTS:
                read.check()
            yield passage
    judged.add(read)


def name_files(paths: Sequence[str | Path]) -> str:
    """Names the first of some files, and the number of the others."""
    return f"{paths[0]} and {len(paths) - 1:,} more" if len(paths) > 1 else str(paths[0])
