"""Reads the date, the author and the title of a text from the header of a TEI file."""

import re
from collections.abc import Iterator
from textwrap import shorten
from typing import NamedTuple
from xml.etree import ElementTree

from .passages import common_date, find_date


DATES = ("date", "origDate")
# The parts of a header that describe a source, and kinds of them: the one whose date is the work's before others, and
# editions of today, whose date is never read. `publicationStmt` of the file is such an edition, too.
SOURCES, FIRST, OF_TODAY = ("bibl", "biblStruct", "biblFull", "msDesc"), "firstedition", ("digitalsource", "digital")
# Events in the life of a play, and kinds of its dates (DraCor), in the order in which they are read
EVENTS = ("written", "premiere", "print")
# What the European Literary Text Collection adds to the title of a novel
EDITION = re.compile(r"\s*:\s*ELTeC edition$", re.IGNORECASE)
# Parts of the name of a person that are not the name
NO_NAME = {"idno", "note", "ref", "ptr", "date", "birth", "death", "affiliation"}


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
        date_kind = child.get("type", kind).lower() if is_source else kind
        if child.tag in DATES and kind not in OF_TODAY:
            yield Dated(child, kind, f"{place}/{described(child)}")
        yield from each_date(child, f"{place}/{described(child)}" if is_source else place, date_kind)


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
    name = read_element_name(header.find("fileDesc/titleStmt/title") if title is None else title)
    return EDITION.sub("", name)


def read_author(header: ElementTree.Element) -> str:
    """Returns the name of the author of a text."""
    author = header.find("fileDesc/titleStmt/author")
    name = None if author is None else author.find(".//persName")
    return read_element_name(author if name is None else name)


def read_element_name(element: ElementTree.Element | None) -> str:
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
