"""Tells where words stand in a TEI file, as citations do: act and scene, chapter, page and line."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from .passages import compose_accents


# Stands around what is known from a place of a text on. XML cannot have this character.
BORDER = "\3"
# Kinds of marks: the number of a page, the number of a line (empty at its end), and the key of a token.
PAGE, LINE, KEY = "p", "l", "k"
OTHERS = re.compile(r"[\W_]+")
# Longer values of `@n` are identifiers.
LONGEST_NUMBER = 12
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII")


class Mark(NamedTuple):
    """A mark in a text, and the number of letters and digits before it, which joining of lines does not change."""

    before: int
    kind: str
    value: str


def write_mark(kind: str, value: str) -> str:
    """Returns a mark for [`take_marks`]."""
    return f"{BORDER}{kind}{' '.join(value.split())}{BORDER}"


def take_marks(text: str) -> tuple[str, list[Mark]]:
    """Returns a text without its marks, and the marks."""
    if BORDER not in text:
        return text, []
    pieces = compose_accents(text).split(BORDER)
    if all(mark == LINE for mark in pieces[1::2]):
        # No line has a number.
        return "".join(pieces[::2]), []
    before = accumulate(map(count_letters, pieces[::2]))
    marks = [Mark(number, mark[0], mark[1:]) for number, mark in zip(before, pieces[1::2], strict=False)]
    return "".join(pieces[::2]), marks


def count_letters(text: str) -> int:
    """Returns the number of letters and digits."""
    # Spaces first, because a regular expression is slow.
    text = "".join(text.split())
    return len(text) if text.isalnum() else len(OTHERS.sub("", text))


class Divisions:
    """
    The parts of a text around a passage, from the outermost.

    Args:
        parts (`Sequence[tuple[str, str]]`): The type and number of each: `("act", "3"), ("scene", "1")`.
    """

    def __init__(self, parts: Sequence[tuple[str, str]] = ()):
        self.parts = parts

    def within(self, kind: str | None, number: str | None) -> "Divisions":
        """Returns the divisions of a part inside this one; the same ones if it has no type or no number."""
        number = self.number_here(number or "")
        if not kind or not 0 < len(number) <= LONGEST_NUMBER:
            return self
        return Divisions([*self.parts, (kind.lower(), number)])

    def number_here(self, number: str) -> str:
        """Returns the number of a part or line inside the divisions around it, such as 56 for 3.1.56."""
        return number.strip().removeprefix("".join(f"{outer}." for _, outer in self.parts))

    def describe(self) -> str:
        """Describes the divisions as a citation does: "III.1", "Act III", "chapter 5"."""
        numbers, described = dict(self.parts), []
        for kind, number in self.parts:
            if kind == "act":
                act = ROMAN[int(number) - 1] if number in map(str, range(1, len(ROMAN) + 1)) else number
                described.append(f"{act}.{numbers['scene']}" if "scene" in numbers else f"Act {act}")
            elif kind != "scene" or "act" not in numbers:
                described.append(f"{kind} {number}")
        return ", ".join(described)

    def places_of(self, words: Sequence[str], page: str, marks: Sequence[Mark]) -> Iterator[tuple[int, str]]:
        """
        Yields the index of each word at which the page or line changes, with the place from there on. A line has its
        page only if no division numbers it. `page` is the page at the beginning.
        """
        starts = list(accumulate(map(count_letters, words), initial=0))[:-1]
        line, places = "", {}
        for mark in (Mark(0, PAGE, page), *marks):
            if mark.kind == PAGE:
                page = mark.value
            elif mark.kind == LINE:
                line = mark.value and f"l. {self.number_here(mark.value)}"
            on_page = page and not (line and self.parts) and f"p. {page}"
            places[bisect_left(starts, mark.before)] = ", ".join(filter(None, (on_page, line)))
        if any(places.values()):
            yield from ((index, place) for index, place in places.items() if index < len(words))
