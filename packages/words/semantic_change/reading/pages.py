"""Reads the paragraphs of volumes whose pages are files, as in HathiTrust."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from modeling_tempoformer.common.files import unzipped_name

from .gutenberg import read_paragraphs
from .passages import Dropped, Passage, find_compounds, find_date_in_name, join_divided, origin_of_file


# The names of pages, after the volume's name: `00000001.txt` and `39002088672754_000001.txt` of HathiTrust, and
# `page_1.txt`. Other numbers may count letters or articles.
PAGE = re.compile(
    r"(.*?)(?:(?<![^\W_])page[-_. ]?|(?<!\d)(?=0\d{7}\.)|(?<=\d{9}_)(?=0\d{5}\.))(\d+)\.txt", re.IGNORECASE
)
# A running head is among this many first lines, on this many pages or more, and no line of text stands before it.
NUM_HEAD_LINES, FEWEST_HEADS = 2, 3
NOT_A_LETTER = re.compile(r"[\W\d_]+")


class Page(NamedTuple):
    """A page: its file, its name in the corpus, and its lines with their numbers."""

    path: Path
    name: str
    lines: list[tuple[int, str]]


def find_volumes(files: Iterable[tuple[Path, str]]) -> list[tuple[str, list[tuple[Path, str]]]]:
    """
    Groups files and their names in the corpus: the pages of each volume in their order, and every other file alone,
    each group with the name of its document.
    """
    volumes: dict[str, list[tuple[int, Path, str]]] = {}
    for file, name in files:
        page = PAGE.fullmatch(unzipped_name(file))
        document = (Path(name).parent / f"{page[1]}pages").as_posix() if page else name
        volumes.setdefault(document, []).append((int(page[2]) if page else 0, file, name))
    return [(document, [page[1:] for page in sorted(pages)]) for document, pages in volumes.items()]


def letters_of(line: str) -> str:
    """Returns the letters of a line, in lower case, which are the same in a running head with any page number."""
    return NOT_A_LETTER.sub("", line).lower()


def first_lines(page: Page) -> list[tuple[int, str]]:
    """Returns the first lines of a page that are not blank, with their numbers."""
    return [(number, line) for number, line in page.lines if line.strip()][:NUM_HEAD_LINES]


def take_heads(page: Page, heads: Collection[str], dropped: Dropped) -> list[tuple[int, str]]:
    """Returns the lines of a page without running heads and page numbers, which are counted."""
    left_out = set()
    for number, line in first_lines(page):
        has_number = any(map(str.isdigit, line))
        # A refrain has small letters and no page number.
        is_head = letters_of(line) in heads and (has_number or line == line.upper())
        if not (is_head or (has_number and not letters_of(line))):
            break
        left_out.add(number)
    last = next(((number, line) for number, line in reversed(page.lines) if line.strip()), (0, ""))
    if any(map(str.isdigit, last[1])) and not letters_of(last[1]):
        left_out.add(last[0])
    for number in sorted(left_out):
        dropped.add(
            f"{page.path}, line {number}", "running head or page number", "running heads and page numbers of pages"
        )
    return [(number, line) for number, line in page.lines if number not in left_out]


def read_pages(pages: Sequence[Page], document: str, dropped: Dropped) -> Iterator[Passage]:
    """
    Yields the paragraphs of a volume. A page ends a paragraph, but a word that it divides is joined, and belongs to
    the page on which it begins.
    """
    counts = Counter(chain.from_iterable({letters_of(line) for _, line in first_lines(page)} for page in pages))
    heads = {letters for letters, count in counts.items() if letters and count >= FEWEST_HEADS}
    compounds = find_compounds(line for page in pages for _, line in page.lines)
    before = None
    for page in pages:
        origin, date, is_first = origin_of_file(page.name), find_date_in_name(page.name), True
        lines = iter(take_heads(page, heads, dropped))
        for passage in read_paragraphs(lines, "", date, origin, compounds):
            words = passage.words
            if before is not None:
                if is_first and (whole := join_divided(before.words[-1], words[0], compounds)):
                    before, words = with_words(before, [*before.words[:-1], whole]), words[1:]
                yield before
            is_first = False
            before = replace(with_words(passage, words), document=document) if words else None
    if before is not None:
        yield before


def with_words(passage: Passage, words: list[str]) -> Passage:
    """Returns a passage of running text with other words."""
    return replace(passage, words=words, keys=words)
