"""Reads books of Project Gutenberg without its licence, and texts whose lines are wrapped, as paragraphs."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from .passages import IN_NAME, Origin, Passage, find_compounds, find_date_in_name, join_divided


Lines = Iterator[tuple[int, str]]

# A book names the project within this many lines that are not blank.
NUM_TITLE_LINES = 10
PROJECT = re.compile(r"Project Gutenberg", re.IGNORECASE)
START = re.compile(r"\s*\**\s*START OF (?:THE |THIS )?(?:COPYRIGHTED )?PROJECT GUTENBERG", re.IGNORECASE)
# Ended the licence that stood before the text, until about 2003.
SMALL_PRINT_END = re.compile(r"\s*\*?END ?\*? ?THE SMALL PRINT", re.IGNORECASE)
END = re.compile(r"\s*\**\s*END OF (?:THE |THIS )?(?:COPYRIGHTED )?PROJECT GUTENBERG", re.IGNORECASE)
# The first line of a book.
BOOK = re.compile(r"\W*(?:The |This is the )?Project Gutenberg(?:['\u2019]s)? E-?(?:book|text)\b", re.IGNORECASE)
FIELD = re.compile(r"(Title|Author): +(\S.*)")
# Such as `pg1342.txt`, `1342-0.txt` and `1342-h`: the number of a book is no year.
BOOK_NUMBER = re.compile(r"(?:pg)?\d+(?:-(?:\d|h|images))?", re.IGNORECASE)
CREDITS = re.compile(r"(?:(?:this )?e-?text (?:was )?)?(?:produced|prepared|transcribed) (?:by|from)\b", re.IGNORECASE)
# The most characters of a line of wrapped text, and the fewest of a full line inside a paragraph.
LONGEST_LINE, FULL_LINE = 90, 45
# A larger share of lines that divide a word: narrow print, not verse.
DIVIDED_SHARE = 0.03


def is_gutenberg(lines: Sequence[str]) -> bool:
    """Tells whether a text names Project Gutenberg in its first lines."""
    return any(map(PROJECT.search, [line for line in lines if line.strip()][:NUM_TITLE_LINES]))


def are_wrapped(lines: Sequence[str]) -> bool:
    """
    Tells whether paragraphs are wrapped to short lines, with blank lines between them: nearly all lines that another
    one follows are full or some divide a word, most of them do not end a sentence, and no line is long.
    """
    pairs = list(pairwise(lines))
    inside = [(line.rstrip(), following) for line, following in pairs if line.strip() and following.strip()]
    followed = [line for line, _ in inside]
    breaks = sum(bool(line.strip()) and not following.strip() for line, following in pairs)
    if breaks < 2 or len(followed) < breaks or max(map(len, lines)) > LONGEST_LINE:
        return False
    full = sum(len(line) >= FULL_LINE for line in followed)
    ended = sum(line.endswith((".", "!", "?")) for line in followed)
    divided = sum(join_divided(line.split()[-1], following.split()[0], ()) is not None for line, following in inside)
    is_filled = full >= 0.8 * len(followed) or divided > DIVIDED_SHARE * len(followed)
    return is_filled and ended <= 0.4 * len(followed)


def read_paragraphs(
    lines: Lines, label: str, date: str, origin: Origin, compounds: Collection[str]
) -> Iterator[Passage]:
    """
    Yields the paragraphs of wrapped text, which blank lines divide. Words that the ends of lines divide are joined;
    `compounds` are the words of the whole text with a hyphen ([`find_compounds`]).
    """
    first, parts = 0, []
    for number, line in (*lines, (0, "")):
        if line.strip():
            first = first or number
            parts.append(line)
        elif parts:
            where = f"{origin.file}, line {first}"
            yield Passage.of_lines(date, f"{label}, {where}" if label else where, parts, compounds, origin=origin)
            first, parts = 0, []


def read_gutenberg(lines: Lines, path: str, name: str) -> Iterator[Passage]:
    """
    Yields the paragraphs of a book of Project Gutenberg, or of several in one file, between the lines `*** START OF
    ...` and `*** END OF ...`, in old books between the end of the small print and `End of Project Gutenberg's ...`. A
    book that no line ends is read up to the line in which the next one names the project. The source has author and
    title. A book does not tell when it was written, so the date is one in the file's name (`1813_pride.txt`).

    Raises a `ValueError` if no book has a line where it starts.
    """
    stem = name.rpartition("/")[2].partition(".")[0]
    date = "" if BOOK_NUMBER.fullmatch(stem) else find_date_in_name(name)
    fields: dict[str, str] = {}
    book: list[tuple[int, str]] | None = None
    has_start = is_marker = is_whole = False
    for number, line in lines:
        is_start, is_small_print = bool(START.match(line)), bool(SMALL_PRINT_END.match(line))
        if END.match(line) and book is not None:
            yield from read_book(book, name, fields, date)
            book, fields = None, {}
        elif is_start or (is_small_print and book is None):
            # Lines between the small print and the start are credits, unless another book begins among them.
            begins = [index for index, (_, other) in enumerate(book or ()) if is_whole and BOOK.match(other)]
            if begins:
                yield from read_book(book[: begins[0]], name, fields, date)
                fields = dict(found.groups() for _, other in book[begins[0] :] if (found := FIELD.match(other)))
            book, has_start, is_whole, is_marker = [], True, is_start, not line.rstrip().endswith("*")
        elif is_marker:
            # A marker of several lines ends with asterisks.
            is_marker = bool(line.strip()) and not line.rstrip().endswith("*")
        elif book is not None:
            book.append((number, line))
        elif found := FIELD.match(line):
            fields.setdefault(*found.groups())
    if not has_start:
        raise ValueError(
            f"{path} is of Project Gutenberg, but no line begins with '*** START OF THE PROJECT GUTENBERG EBOOK': put "
            "one before the text, or delete the lines that name the project."
        )
    if book:
        yield from read_book(book, name, fields, date)


def read_book(lines: list[tuple[int, str]], name: str, fields: dict[str, str], date: str) -> Iterator[Passage]:
    """Yields the paragraphs of one book. The first one is left out if it names who made the file."""
    author, title = (fields.get(field, "").strip() for field in ("Author", "Title"))
    label = ", ".join(filter(None, (author, title)))
    origin = Origin(name, IN_NAME if date else "", author, title)
    compounds = find_compounds(line for _, line in lines)
    for index, passage in enumerate(read_paragraphs(iter(lines), label, date, origin, compounds)):
        if index > 0 or not CREDITS.match(" ".join(passage.words[:6])):
            yield replace(passage, document=f"{name}, line {lines[0][0]}")
