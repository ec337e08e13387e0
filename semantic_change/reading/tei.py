"""Reads texts encoded by the guidelines of the Text Encoding Initiative (TEI)."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple
from xml.etree import ElementTree

from modeling_tempoformer.posts.files import naming_broken_file, open_bytes

from .passages import (
    CLOSING,
    GAP,
    OPENING,
    Dropped,
    Origin,
    Passage,
    common_date,
    find_compounds,
    find_date,
    find_date_in_name,
    origin_of_file,
)


ROOTS = ("TEI", "TEI.2", "teiCorpus", "teiCorpus.2")
TEXTS = ("TEI", "TEI.2")
# Elements that are each a passage, unless they are inside another one. So are others with text of their own.
PASSAGES = ("p", "ab", "lg", "u", "sp", "head", "item", "l", "s", "cell")
# Not the text itself: notes, headers and page numbers of the print, names of speakers, descriptions, deletions, and of
# plays the directions and the list of characters.
LEFT_OUT = {"note", "fw", "speaker", "figDesc", "del", "teiHeader", "desc", "vocal", "kinesic", "incident"}
LEFT_OUT |= {"stage", "castList"}
# Stand-off annotations, which are apart from the words that they annotate.
LEFT_OUT |= {"standOff", "spanGrp", "span", "interpGrp", "interp", "linkGrp", "listAnnotation", "annotation", "fs"}
# A word and a mark of punctuation, in a text that is divided into tokens.
TOKENS = ("w", "pc")
# Elements with the readings of the editor and others, and the elements of those others.
CHOICES, OTHER_READINGS = ("choice", "app"), ("sic", "orig", "abbr", "rdg")
BREAKS = ("lb", "pb", "cb", "gb", "milestone")
DATES = ("date", "origDate")
# The parts of a header that describe a source, and kinds of them: the one whose date is the work's before others, and
# editions of today, whose date is never read. `publicationStmt` of the file is such an edition, too.
SOURCES, FIRST, OF_TODAY = ("bibl", "biblStruct", "biblFull", "msDesc"), "firstedition", ("digitalsource", "digital")
# Events in the life of a play, and kinds of its dates (DraCor), in the order in which they are read
EVENTS = ("written", "premiere", "print")
# Parts of the name of a person that are not the name
NO_NAME = {"idno", "note", "ref", "ptr", "date", "birth", "death", "affiliation"}
# Stand for the end of a line, for a break inside a word, and for no space beside a token. XML cannot have these
# characters.
LINE_END, NO_BREAK, GLUE = "\0", "\1", "\2"
# A break inside a word may stand among the ends of a line and a page.
INSIDE_WORD = re.compile("([-\u00ac\u00ad\u2010]?)[\0\\s]*\1[\0\1\\s]*(\\S?)")
NO_SPACE = re.compile("[\0\\s]*\2[\0\2\\s]*")


def read_tei(path: str | Path, name: str, dropped: Dropped) -> Iterator[Passage]:
    """
    Yields the paragraphs, headings, stanzas, speeches and utterances of a TEI file (P4 or P5, also compressed), one
    text or a corpus.

    The date is that of the creation, of the first edition or another source, or of the setting in the header, else
    that on which a play was written, performed or printed, else that in the file's name. The date of a digital edition
    is not read. The source has author and title. Notes, running heads, deletions and stand-off annotations are left
    out, the editor's readings in `choice` and `app` are taken, and words that the ends of lines and pages divide are
    joined. Tokens (`w`, `pc`) are words, with the spaces that `@join` and the file tell.

    The standard library's parser is enough: it loads no other file and limits how far entities expand. Therefore an
    entity of an external DTD is an error.

    Raises a `ValueError` that names the file and line if this is not XML or not TEI.
    """
    is_root, file_date, number = True, find_date_in_name(name), 0
    with naming_broken_file(path), open_bytes(path) as file:
        try:
            for event, element in ElementTree.iterparse(file, events=("start", "end")):
                tag = local_name(element)
                if is_root and tag not in ROOTS:
                    raise ValueError(f"{path}, line 1: expected XML of the TEI, whose root is <TEI>, got <{tag}>.")
                is_root = False
                if event == "end" and tag in TEXTS:
                    number += 1
                    for passage in read_text(element, path, name, file_date, dropped):
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


def read_text(
    text: ElementTree.Element, path: str | Path, name: str, file_date: str, dropped: Dropped
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
    date = date or file_date
    for content in text.findall("text"):
        spaces = Spaces.of(content)
        passages = [lines_of("".join(each_text(passage, spaces))) for passage in each_passage(content)]
        compounds = find_compounds(chain.from_iterable(passages))
        for lines in passages:
            number += 1
            where = f"{name}, passage {number}"
            source = f"{label}, {where}" if label else where
            passage = Passage.of_lines(date, source, lines, compounds, origin=origin)
            if passage.words:
                yield passage
            else:
                dropped.add(f"{path}, passage {number}", "empty passage", "empty passages")


def each_passage(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Yields the outermost passages below an element, without the headings of acts and scenes."""
    for child in element:
        if child.tag in LEFT_OUT or (child.tag == "head" and element.find(".//sp") is not None):
            continue
        pieces = (child.text, *(part.tail for part in child))
        has_words = any(piece and piece.strip() for piece in pieces) or any(part.tag in TOKENS for part in child)
        if child.tag in PASSAGES or has_words:
            yield child
        else:
            yield from each_passage(child)


class Spaces(NamedTuple):
    """
    How a text marks the spaces between its tokens.

    Attributes:
        are_between (`bool`): Whether a space is between any two tokens, unless `@join` denies it.
        are_guessed (`bool`): Whether punctuation tells which tokens have none.
    """

    are_between: bool
    are_guessed: bool

    @classmethod
    def of(cls, text: ElementTree.Element) -> "Spaces":
        """
        Finds the spaces of a text by `@join` if some token has it. Else they are those of the file, unless no word has
        a space after it, so that the file tells none.
        """
        has_join = any(element.tag in TOKENS and "join" in element.attrib for element in text.iter())
        words = [one for parent in text.iter() for one, other in pairwise(parent) if one.tag == other.tag == "w"]
        is_guessed = not has_join and bool(words) and not any(word.tail for word in words)
        return cls(has_join or is_guessed, is_guessed)

    def around(self, token: ElementTree.Element) -> tuple[str, str]:
        """Returns the space, or the mark of no space, before and after a token."""
        join, space = token.get("join"), " " if self.are_between else ""
        if self.are_guessed:
            word = "".join(token.itertext()).strip()
            join = "left" if CLOSING.fullmatch(word) else "right" if OPENING.fullmatch(word) else None
        return GLUE if join in ("left", "both") else space, GLUE if join in ("right", "both") else space


def each_text(element: ElementTree.Element, spaces: Spaces) -> Iterator[str]:
    """Yields the pieces of a passage's text, with characters for the ends of lines and for spaces."""
    before, after = spaces.around(element) if element.tag in TOKENS else ("", "")
    yield before
    if element.tag == "gap":
        yield GAP
    elif element.tag in BREAKS:
        yield NO_BREAK if element.get("break") == "no" else LINE_END
    else:
        yield element.text or ""
    has_choice = element.tag in CHOICES and any(child.tag not in OTHER_READINGS for child in element)
    for child in element:
        if child.tag not in LEFT_OUT and not (has_choice and child.tag in OTHER_READINGS):
            yield from each_text(child, spaces)
        # Verses and items stand on lines of their own.
        yield f" {child.tail or ''}" if child.tag in PASSAGES else child.tail or ""
    yield after


def lines_of(text: str) -> list[str]:
    """Returns the lines of a passage's text, which is joined where a break is inside a word."""

    def close(found: re.Match) -> str:
        hyphen, letter = found.groups()
        # A hyphen before a small letter may be there only for the break.
        return hyphen + (LINE_END if hyphen and letter.islower() else "") + letter

    text = NO_SPACE.sub("", INSIDE_WORD.sub(close, " ".join(text.split())))
    return text.split(LINE_END)


def read_header_date(header: ElementTree.Element) -> tuple[str, str] | None:
    """
    Returns the date of a text in its header, of its creation, its first edition, another source or its setting: an
    attribute, or a date in the words; and the place of the date. None if there is none.
    """
    for parent in ("profileDesc/creation", "fileDesc/sourceDesc", "profileDesc/settingDesc"):
        name = parent.rpartition("/")[2]
        dated = [found for part in header.findall(parent) for found in each_date(part, name)]
        for found in sorted(dated, key=rank_of_date):
            if date := read_date_element(found.element):
                return date, found.place
    return None


class Dated(NamedTuple):
    """A date in a header: its element, the kind of source that it belongs to, and its place, for people."""

    element: ElementTree.Element
    kind: str
    place: str


def each_date(element: ElementTree.Element, place: str, kind: str = "") -> Iterator[Dated]:
    """Yields the dates below an element of a header."""
    for child in element:
        is_source = child.tag in SOURCES
        own = child.get("type", kind).lower() if is_source else kind
        if child.tag in DATES and kind not in OF_TODAY:
            yield Dated(child, kind, f"{place}/{described(child)}")
        yield from each_date(child, f"{place}/{described(child)}" if is_source else place, own)


def described(element: ElementTree.Element) -> str:
    """Describes an element by its name and its type."""
    kind = element.get("type")
    return f"{element.tag}[@type='{kind}']" if kind else element.tag


def rank_of_date(found: Dated) -> tuple[bool, int]:
    """Returns the place of a date among others; equal ones stay in the order of the header."""
    event = found.element.get("type", "")
    return found.kind != FIRST, EVENTS.index(event) if event in EVENTS else len(EVENTS)


def read_events(text: ElementTree.Element) -> tuple[str, str] | None:
    """
    Returns the date on which a play was written, performed or printed, and the place of the date; None if none is
    known.
    """
    for kind in EVENTS:
        for event in text.findall(f"standOff//event[@type='{kind}']"):
            if date := read_date_element(event):
                return date, described(event)
    return None


def read_date_element(element: ElementTree.Element) -> str:
    """Returns the date in the attributes of an element, else in its words."""
    values = {name.rpartition("}")[2]: value.strip() for name, value in element.attrib.items()}
    for name in ("when", "when-iso", "when-custom", "value"):
        if values.get(name):
            return values[name]
    for first, last in (("notBefore", "notAfter"), ("from", "to")):
        if first in values and last in values:
            return common_date(values[first], values[last])
    return find_date("".join(element.itertext()))


def read_title(header: ElementTree.Element) -> str:
    """Returns the main title of a text."""
    title = header.find("fileDesc/titleStmt/title[@type='main']")
    return read_name(header.find("fileDesc/titleStmt/title") if title is None else title)


def read_author(header: ElementTree.Element) -> str:
    """Returns the name of the author of a text."""
    author = header.find("fileDesc/titleStmt/author")
    name = None if author is None else author.find(".//persName")
    return read_name(author if name is None else name)


def read_name(element: ElementTree.Element | None) -> str:
    """Returns a name or title of at most 100 characters; empty if there is no element."""
    pieces = () if element is None else each_name(element)
    return shorten(" ".join("".join(pieces).split()).strip(" .,"), 100, placeholder="\u2026")


def each_name(element: ElementTree.Element) -> Iterator[str]:
    """Yields the pieces of a name or title, without identifiers."""
    yield element.text or ""
    for child in element:
        if child.tag not in NO_NAME:
            yield from each_name(child)
        yield child.tail or ""
