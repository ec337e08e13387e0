"""Reads the words of a passage of a TEI file, across the ends of lines and pages, with the spaces between tokens."""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from .passages import CLOSING, GAP, OPENING, Dropped, split_at_dashes
from .tei_places import KEY, LINE, PAGE, Mark, take_marks, write_mark
from .token_lines import OTHER_NAMES


# Elements that are each a passage, unless they are inside another one. So are others with text of their own.
PASSAGES = ("p", "ab", "lg", "u", "sp", "head", "item", "l", "s", "cell")
# Not the text itself: notes, headers and page numbers of the print, names of speakers, descriptions, deletions, and of
# plays the directions and the list of characters.
LEFT_OUT = {"note", "fw", "speaker", "figDesc", "del", "teiHeader", "desc", "vocal", "kinesic", "incident"}
LEFT_OUT |= {"stage", "castList"}
# Stand-off annotations, which are apart from the words that they annotate.
LEFT_OUT |= {"standOff", "spanGrp", "span", "interpGrp", "interp", "linkGrp", "listAnnotation", "annotation", "fs"}
BREAKS = ("lb", "pb", "cb", "gb", "milestone")
# A word and a mark of punctuation, in a text that is divided into tokens.
TOKENS = ("w", "pc")
# Elements with the readings of the editor and others, and the elements of those others.
CHOICES, OTHER_READINGS = ("choice", "app"), ("sic", "orig", "abbr", "rdg")
# Stand for the end of a line, for a break inside a word, for no space beside a token, and for the beginning and the
# end of a token that is looked up by its attributes. XML cannot have these characters.
LINE_END, NO_BREAK, GLUE, TOKEN = "\0", "\1", "\2", "\4"
# A break inside a word may stand among the ends of a line and a page.
INSIDE_WORD = re.compile("([-\u00ac\u00ad\u2010]?)[\0\\s]*\1[\0\1\\s]*(\\S?)")
NO_SPACE = re.compile("[\0\\s]*\2[\0\2\\s]*")


class Spaces(NamedTuple):
    """
    How a text marks the spaces between its tokens.

    Attributes:
        are_between (`bool`): Whether a space is between any two tokens, unless `@join` denies it.
        are_guessed (`bool`): Whether punctuation tells which tokens have none.
        are_marked (`bool`): Whether spaces are elements (`<c> </c>`), so that other white space is layout only.
    """

    are_between: bool
    are_guessed: bool
    are_marked: bool = False

    @classmethod
    def of(cls, text: ElementTree.Element) -> "Spaces":
        """
        Returns how a text marks spaces: by `<c>`, else by `@join` if some token has it, else by white space, or if no
        word has white space after it, by punctuation.
        """
        if any(space.text and space.text.isspace() for space in text.iter("c")):
            return cls(False, False, True)
        has_join = any(element.tag in TOKENS and "join" in element.attrib for element in text.iter())
        words = [one for parent in text.iter() for one, other in pairwise(parent) if one.tag == other.tag == "w"]
        is_guessed = not has_join and bool(words) and not any(word.tail for word in words)
        return cls(has_join or is_guessed, is_guessed)

    def between(self, text: str | None) -> str:
        """Returns the text before the first or after any element, without the spaces of layout."""
        return "" if not text or (self.are_marked and text.isspace()) else text

    def around(self, token: ElementTree.Element) -> tuple[str, str]:
        """Returns the space, or the mark of no space, before and after a token."""
        join, space = token.get("join"), " " if self.are_between else ""
        if self.are_guessed:
            word = "".join(token.itertext()).strip()
            join = "left" if CLOSING.fullmatch(word) else "right" if OPENING.fullmatch(word) else None
        return GLUE if join in ("left", "both") else space, GLUE if join in ("right", "both") else space


class TokenReader(NamedTuple):
    """
    Reads the passages of a text.

    Attributes:
        spaces ([`Spaces`]): The spaces between tokens.
        search (`Sequence[str]`): The attributes of tokens that are looked up in place of words; none for words.
    """

    spaces: Spaces
    search: Sequence[str]

    @classmethod
    def of(
        cls, text: ElementTree.Element, search: Sequence[str], path: str | Path, dropped: Dropped
    ) -> "TokenReader | None":
        """
        Makes the reader of a text, whose tokens are looked up by `search`: names of attributes, or `word`. A text
        without tokens is read as running text. Returns None if no token has one of the attributes, and counts the text
        as left out: its words would be looked up in another way than in other texts.
        """
        spaces, known = Spaces.of(text), {name for token in text.iter("w") for name in token.attrib}
        if tuple(search) == ("word",) or text.find(".//w") is None:
            return cls(spaces, ())
        names = []
        for name in search:
            others = (name, *OTHER_NAMES.get(name, ()), *(("ana",) if name == "pos" else ()))
            names.append(next((other for other in others if other in known), name))
            if name != "word" and names[-1] not in known:
                listed = ", ".join(sorted(other for other in known if not other.startswith("{"))) or "none"
                lacking = f"without the attribute '{name}' in <w> (--search_columns)"
                dropped.add(f"{path}, whose attributes are {listed}", f"text {lacking}", f"texts {lacking}")
                return None
        return cls(spaces, names)

    def read(self, passage: ElementTree.Element) -> tuple[list[str], list[Mark]]:
        """Returns the lines of a passage, and the marks of pages, lines and tokens."""
        text, marks = take_marks("".join(text_pieces(passage, self.spaces, self.search)))
        return lines_of(text), marks


def key_of(token: ElementTree.Element, search: Sequence[str]) -> str:
    """
    Returns the attributes of a token that are looked up, joined by underscores, and pointers in `@ana` without their
    sign. A token without the first of them is looked up as it is written, or by the keys of the tokens inside it. A
    token of several words (`it|will`) has a key for each, separated by spaces.
    """
    values = [token.get(name) if name != "word" else "".join(token.itertext()) for name in search]
    values = [
        value and value.replace("#", "") if name == "ana" else value
        for name, value in zip(search, values, strict=True)
    ]
    if not values[0]:
        inner = " ".join(key_of(part, search) for part in token if part.tag in TOKENS)
        if inner:
            return inner
        values[0] = "".join(token.itertext())
    columns = [[part.strip() for part in value.split("|")] for value in values if value]
    if all(map(all, columns)) and len(set(map(len, columns))) == 1:
        return " ".join(map("_".join, zip(*columns, strict=True)))
    return "_".join(value.strip() for value in values if value)


def split_tokens(words: list[str], marks: Sequence[Mark]) -> tuple[list[str], list[str], Collection[int]]:
    """
    Divides words into their tokens. Returns these, their keys (the same list if tokens are not looked up by
    attributes), and the indices of those without a space before them.
    """
    keys = [mark.value for mark in marks if mark.kind == KEY]
    if not keys:
        words, glued = split_at_dashes(words)
        return words, words, glued
    tokens, token_keys, glued = [], [], set()
    # Borders of tokens so far, and whether the token that is open has begun
    borders, has_begun = 0, False
    for word in words:
        is_first = True
        for number, piece in enumerate(word.split(TOKEN)):
            if number:
                borders, has_begun = borders + 1, False
            if not piece:
                continue
            if has_begun:
                # A token with a space in it
                tokens[-1] += f" {piece}"
            else:
                if not is_first:
                    glued.add(len(tokens))
                has_begun = borders % 2 == 1
                tokens.append(piece)
                token_keys.append(keys[borders // 2] if has_begun else piece)
            is_first = False
    return tokens, token_keys, glued


def text_pieces(element: ElementTree.Element, spaces: Spaces, search: Sequence[str] = ()) -> Iterator[str]:
    """Yields the pieces of a passage's text, with marks, and characters for the ends of lines, spaces and tokens."""
    is_token, number = element.tag in TOKENS, element.get("n", "")
    before, after = spaces.around(element) if is_token else ("", "")
    yield before
    if is_token and search:
        yield write_mark(KEY, key_of(element, search))
        yield TOKEN
    if element.tag == "pb":
        yield write_mark(PAGE, number)
    elif element.tag == "lb" or (element.tag == "l" and number):
        yield write_mark(LINE, number)
    if element.tag == "gap":
        yield GAP
    elif element.tag in BREAKS:
        yield NO_BREAK if element.get("break") == "no" else LINE_END
    else:
        yield element.text or "" if element.tag == "c" else spaces.between(element.text)
    has_choice = element.tag in CHOICES and any(child.tag not in OTHER_READINGS for child in element)
    for child in element:
        if child.tag not in LEFT_OUT and not (has_choice and child.tag in OTHER_READINGS):
            yield from text_pieces(child, spaces, () if is_token else search)
        # Verses and items stand on lines of their own.
        tail = spaces.between(child.tail)
        yield f" {tail}" if child.tag in PASSAGES else tail
    if element.tag == "l" and number:
        yield write_mark(LINE, "")
    if is_token and search:
        yield TOKEN
    yield after


def lines_of(text: str) -> list[str]:
    """Returns the lines of a passage's text, which is joined where a break is inside a word."""

    def close(found: re.Match) -> str:
        hyphen, letter = found.groups()
        # A hyphen before a small letter may be there only for the break.
        return hyphen + (LINE_END if hyphen and letter.islower() else "") + letter

    text = NO_SPACE.sub("", INSIDE_WORD.sub(close, " ".join(text.split())))
    return text.split(LINE_END)
