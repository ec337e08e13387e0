"""Reads texts encoded by the guidelines of the Text Encoding Initiative (TEI)."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from modeling_tempoformer.common.files import naming_broken_file, open_bytes

from .passages import Dropped, Origin, Passage, find_compounds, find_date_in_name, join_lines, origin_of_file
from .tei_header import read_author, read_events, read_header_date, read_title
from .tei_places import Divisions
from .tei_words import BREAKS, LEFT_OUT, PASSAGES, TOKENS, TokenReader, split_tokens


ROOTS = ("TEI", "TEI.2", "teiCorpus", "teiCorpus.2")
TEXTS = ("TEI", "TEI.2")
CHAPTER = "chapter"
# Verses outside of stanzas are joined up to the first end of a sentence after this many.
FEWEST_VERSES = 8
SENTENCE_END = re.compile(r"[.!?\u2026][\"'\u201d\u2019\u00bb)\]]*\s*$")


def read_tei(path: str | Path, name: str, search: Sequence[str], dropped: Dropped) -> Iterator[Passage]:
    """
    Yields the paragraphs, headings, stanzas, speeches and utterances of a TEI file (P4 or P5, also compressed), one
    text or a corpus.

    The header dates the text by its creation, by its first edition or another source, or by its setting; else a play
    is dated by when it was written, performed or printed; else the file's name has the date. The date of a digital
    edition is not read. The source has author and title, and the place of each word, if parts, pages or lines have
    numbers. Notes, running heads, deletions and stand-off annotations are left out, the editor's readings in `choice`
    and `app` are taken, and words that the ends of lines and pages divide are joined. Tokens (`w`, `pc`) are words,
    with the spaces that `@join` and the file tell; `search` names the attributes that are looked up in their place,
    `word` for the token itself.

    The standard library's parser is enough: it loads no other file and limits how far entities expand. Therefore an
    entity of an external DTD is an error.

    Raises a `ValueError` that names the file and line if this is not XML or not TEI.
    """
    is_root, number = True, 0
    with naming_broken_file(path), open_bytes(path) as file:
        try:
            for event, element in ElementTree.iterparse(file, events=("start", "end")):
                tag = local_name(element)
                if is_root and tag not in ROOTS:
                    raise ValueError(f"{path}, line 1: expected XML of the TEI, whose root is <TEI>, got <{tag}>.")
                is_root = False
                if event == "end" and tag in TEXTS:
                    number += 1
                    for passage in read_tei_text(element, path, name, search, dropped):
                        yield replace(passage, document=f"{name}, text {number}")
                    element.clear()
        except ElementTree.ParseError as problem:
            line, column = problem.position
            raise ValueError(
                f"{path}, line {line}, column {column}: {str(problem).partition(':')[0]}; the XML cannot be read. "
                "Entities of a DTD must be replaced by their characters."
            ) from None


def local_name(element: ElementTree.Element) -> str:
    """Returns the name of an element without its namespace."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def read_tei_text(
    text: ElementTree.Element, path: str | Path, name: str, search: Sequence[str], dropped: Dropped
) -> Iterator[Passage]:
    """Yields the passages of one text."""
    for element in text.iter():
        element.tag = local_name(element)
    header, number = text.find("teiHeader"), 0
    date = place = ""
    names = ("", "")
    if header is not None:
        date, place = read_header_date(header) or read_events(text) or ("", "")
        names = read_author(header), read_title(header)
    label = ", ".join(filter(None, names))
    origin = Origin(name, place, *names) if date else origin_of_file(name, *names)
    date = date or find_date_in_name(name)
    for content in text.findall("text"):
        reader = TokenReader.of(content, search, path, dropped)
        if reader is None:
            continue
        passages = [(found, *reader.read(found.element)) for found in PassageFinder().find(content)]
        compounds = find_compounds(chain.from_iterable(lines for _, lines, _ in passages))
        for found, lines, marks in passages:
            number += 1
            words, keys, glued = split_tokens(join_lines(lines, compounds), marks)
            if not words:
                dropped.add(f"{path}, passage {number}", "empty passage", "empty passages")
                continue
            cited = ", ".join(filter(None, (label or name, found.divisions.describe())))
            source = cited
            if not found.divisions.parts:
                source = ", ".join(filter(None, (label, f"{name}, passage {number}")))
            places = tuple(
                (index, f"{cited}, {place}" if place else source)
                for index, place in found.divisions.places_of(words, found.page, marks)
            )
            yield Passage(date, source, words, keys, glued, origin=origin, places=places)


class FoundText(NamedTuple):
    """A passage: its element, the divisions around it, and the number of the page on which it begins."""

    element: ElementTree.Element
    divisions: Divisions
    page: str


class PassageFinder:
    """Finds the passages of a text in their order."""

    def __init__(self):
        self.page = ""

    def turn_page(self, element: ElementTree.Element):
        """Reads the number of the last page that begins in an element."""
        for page in element.iter("pb"):
            self.page = page.get("n", "").strip()

    def locate(self, element: ElementTree.Element, divisions: Divisions) -> FoundText:
        """Returns a passage."""
        found = FoundText(element, divisions, self.page)
        self.turn_page(element)
        return found

    def find(self, element: ElementTree.Element, divisions: Divisions = Divisions()) -> Iterator[FoundText]:
        """
        Yields the outermost passages below an element, without the headings of acts and scenes. Stanzas are passages,
        not the poem around them. Verses outside of stanzas are joined, up to the end of a sentence. Chapters without a
        number are counted in the part around them.
        """
        verses, chapters = ElementTree.Element("lg"), 0
        for child in element:
            if child.tag == "l" or (len(verses) and child.tag in BREAKS):
                verses.append(child)
                if child.tag == "l" and len(verses) >= FEWEST_VERSES and ends_sentence(child):
                    yield self.locate(verses, divisions)
                    verses = ElementTree.Element("lg")
            elif child.tag in LEFT_OUT or child.tag == "pb" or (child.tag == "head" and has(element, "sp")):
                self.turn_page(child)
            else:
                if len(verses):
                    yield self.locate(verses, divisions)
                    verses = ElementTree.Element("lg")
                inner = divisions
                if is_division(child):
                    chapters += (kind := child.get("type", "")).lower() == CHAPTER
                    number = str(chapters) if kind.lower() == CHAPTER else None
                    inner = divisions.within(kind, child.get("n") or number)
                if is_passage(child):
                    yield self.locate(child, divisions)
                else:
                    yield from self.find(child, inner)
        if len(verses):
            yield self.locate(verses, divisions)


def has(element: ElementTree.Element, tag: str) -> bool:
    """Tells whether an element is somewhere in another one."""
    return element.find(f".//{tag}") is not None


def is_passage(element: ElementTree.Element) -> bool:
    """Tells whether an element is a passage, by its name or by text of its own."""
    pieces = (element.text, *(part.tail for part in element))
    has_words = any(piece and piece.strip() for piece in pieces) or any(part.tag in TOKENS for part in element)
    return has_words or (element.tag in PASSAGES and not (element.tag == "lg" and has(element, "lg")))


def is_division(element: ElementTree.Element) -> bool:
    """Tells whether an element is a part of a text (`div`, `div1`, ...) or of a poem."""
    return element.tag.startswith("div") or element.tag == "lg"


def ends_sentence(verse: ElementTree.Element) -> bool:
    """Tells whether a verse ends a sentence."""
    return SENTENCE_END.search("".join(verse.itertext())) is not None
