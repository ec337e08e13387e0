"""Reads texts encoded by the guidelines of the Text Encoding Initiative (TEI)."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from xml.etree import ElementTree

from .files import naming_broken_file
from .passages import GAP, Dropped, Passage, common_date, find_date, find_date_in_name


ROOTS = ("TEI", "TEI.2", "teiCorpus", "teiCorpus.2")
TEXTS = ("TEI", "TEI.2")
# Elements that are a passage each, if they are not inside another one, as are others with text of their own.
PASSAGES = ("p", "ab", "lg", "u", "head", "item", "l")
# Not the text itself: notes, headers and page numbers of the print, names of speakers, descriptions, deletions.
LEFT_OUT = ("note", "fw", "speaker", "figDesc", "del", "teiHeader", "desc", "vocal", "kinesic", "incident")
# In these elements the readings of the editor stand beside others.
CHOICES, OTHER_READINGS = ("choice", "app"), ("sic", "orig", "abbr", "rdg")
BREAKS = ("lb", "pb", "cb", "gb", "milestone")
# Where the date of a text may be, the first one first. The date in `fileDesc/publicationStmt` is that of the edition.
PLACES_OF_DATES = (
    "profileDesc/creation",
    "fileDesc/sourceDesc",
    "profileDesc/settingDesc",
)
DATES = ("date", "origDate")
# A word that is divided at the end of a line.
DIVIDED = re.compile("(?<=[^\\W\\d_])[-\u00ac\u00ad\u2010]\\s*\0\\s*(?=[^\\W\\d_A-Z])")


def read_tei(path: str | Path, name: str, dropped: Dropped) -> Iterator[Passage]:
    """
    Yields the paragraphs, headings, stanzas and utterances of a TEI file (P4 or P5, plain or `.gz`), one or a corpus.

    The date is that of the creation, of the source or of the setting in the header, else that in the file's name; the
    source has author and title. Notes, running heads and deletions are left out, the editor's readings in `choice` and
    `app` are taken, and words that lines divide are joined.

    The standard library's parser is enough: it loads no other file and limits how far entities expand. Therefore an
    entity of an external DTD is an error.

    Raises a `ValueError` that names the file and line if this is not XML or not TEI.
    """
    opener = gzip.open if Path(path).suffix == ".gz" else open
    is_root, file_date, number = True, find_date_in_name(name), 0
    with naming_broken_file(path), opener(path, "rb") as file:
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
    date = file_date if header is None else read_header_date(header) or file_date
    label = "" if header is None else read_label(header)
    for content in text.findall("text"):
        for passage in each_passage(content):
            number += 1
            where = f"{name}, passage {number}"
            words = DIVIDED.sub("", "".join(each_text(passage))).replace("\0", " ")
            if words.split():
                yield Passage.of_text(date, f"{label}, {where}" if label else where, words)
            else:
                dropped.add(f"{path}, passage {number}", "empty passage", "empty passages")


def each_passage(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Yields the outermost passages below an element."""
    for child in element:
        if child.tag in LEFT_OUT:
            continue
        pieces = (child.text, *(part.tail for part in child))
        if child.tag in PASSAGES or any(piece and piece.strip() for piece in pieces):
            yield child
        else:
            yield from each_passage(child)


def each_text(element: ElementTree.Element) -> Iterator[str]:
    """Yields the pieces of a passage's text. A null character stands for the end of a line."""
    if element.tag == "gap":
        yield GAP
    elif element.tag in BREAKS:
        yield "" if element.get("break") == "no" else "\0"
    else:
        yield element.text or ""
    has_choice = element.tag in CHOICES and any(child.tag not in OTHER_READINGS for child in element)
    for child in element:
        if child.tag not in LEFT_OUT and not (has_choice and child.tag in OTHER_READINGS):
            yield from each_text(child)
        # Verses and items stand on lines of their own.
        yield f" {child.tail or ''}" if child.tag in PASSAGES else child.tail or ""


def read_header_date(header: ElementTree.Element) -> str:
    """Returns the date of a text in its header: an attribute, or a date in the words; empty if there is none."""
    for place in PLACES_OF_DATES:
        for element in header.findall(f"{place}//*"):
            if element.tag in DATES and (date := read_date_element(element)):
                return date
    return ""


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


def read_label(header: ElementTree.Element) -> str:
    """Returns author and main title of a text."""
    title = header.find("fileDesc/titleStmt/title[@type='main']")
    if title is None:
        title = header.find("fileDesc/titleStmt/title")
    parts = (header.find("fileDesc/titleStmt/author"), title)
    texts = (" ".join("".join(part.itertext()).split()).strip(" .,") for part in parts if part is not None)
    return ", ".join(shorten(text, 100, placeholder="\u2026") for text in texts if text)
