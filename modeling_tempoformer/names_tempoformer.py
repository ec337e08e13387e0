"""
Reads the names of timelines, speakers, labels, states, groups and annotators as users write them, and numbers among
them.
"""

import math
import numbers
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any


# Texts that programs write for a missing value, in lower case. "None" and "NA" may be names.
NOTHING = ("nan", "null", "<na>", "#n/a")
# Characters that cannot be seen: control characters, soft hyphen, zero-width space, marks of direction and byte order.
HIDDEN = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
)
# Joiners, which Persian words and combined emojis have inside.
JOINERS = "\u200c\u200d"
INVISIBLE = re.compile(f"[{HIDDEN}]")
# The last range, variation selectors, chooses between two pictures of a character.
NOT_COMPARED = re.compile(rf"[\s{HIDDEN}{JOINERS}\ufe00-\ufe0f]")
ALIKE = "differ at most in case, width, white space or characters that cannot be seen"
# An integer in a column with gaps, as programs write it. Three zeros may be thousands.
WHOLE = re.compile(r"(-?[0-9]+)(?:\.0+|,00?)")
NUMBER = re.compile(r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
SHORTENED = re.compile(r"[+-]?\d+(?:[.,](\d*)[eE]\+?|[eE]\+)(\d+)")
# Larger integers may differ and still be the same float.
LARGEST_EXACT_FLOAT = 2**53


def read_name(value: Any) -> str:
    """
    Returns a name as a text in one spelling.

    Args:
        value: A text, a number, a date or None. White space at the ends and characters that cannot be seen are left
            out, white space inside is one space, and accents are composed (NFC). `7.0` becomes "7", because columns
            with gaps hold floats.

    Returns:
        `str`, empty for a missing value: None, NaN, an empty text, and nan, null, `<NA>` and `#N/A` as text. Raises a
        `ValueError`, which does not repeat the value, for a value of another type, and for a text with half of a
        surrogate pair.
    """
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return ""
    if isinstance(value, str):
        name = clean(value)
    elif isinstance(value, (numbers.Real, Decimal, date, time, timedelta)):
        if value != value:
            return ""
        is_whole = isinstance(value, (float, Decimal)) and math.isfinite(value) and value == int(value)
        name = str(int(value) if is_whole else value)
    else:
        raise ValueError(f"a name must be a text or a number, and not of the type {type(value).__name__}")
    if name.casefold() in NOTHING:
        return ""
    whole = WHOLE.fullmatch(name)
    return whole[1] if whole else name


def read_id(value: Any) -> str:
    """
    Returns a name that stands for a person or a thing.

    Args:
        value: A text, a number, a date or None, which [`read_name`] spells in one way.

    Returns:
        `str`: The result of [`read_name`]. Raises its errors, and a `ValueError` for an id that has lost digits: in
        a spreadsheet, which shortens long numbers, or as a float that is too large to be exact.
    """
    name = read_name(value)
    if looks_shortened(name) or (isinstance(value, float) and abs(value) > LARGEST_EXACT_FLOAT):
        raise ValueError("an id has lost its last digits, in a spreadsheet or as a float: export the column as text")
    return name


def clean(text: str) -> str:
    """
    Returns a text without white space at its ends and characters that cannot be seen, with one space for white space
    inside, in NFC. Raises a `ValueError` for half of a surrogate pair.
    """
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a surrogate pair, as of an emoji that was cut") from None
    return unicodedata.normalize("NFC", " ".join(INVISIBLE.sub("", text).split()).strip(f" {JOINERS}"))


def appearance(name: str) -> str:
    """Returns a key that is the same for names that look alike: without case, width and white space."""
    folded = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return unicodedata.normalize("NFKC", NOT_COMPARED.sub("", folded.casefold()))


def look_alike(names: Iterable[str]) -> list[list[str]]:
    """Returns groups of names that look alike ([`appearance`]), each in the order of the names."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(appearance(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def looks_shortened(text: str) -> bool:
    """
    Returns whether a clean text is a number without its last digits, as spreadsheets write long ones: 1.71455E+09, in
    some countries 1,71455E+09.
    """
    match = SHORTENED.fullmatch(text)
    return match is not None and len(match[1] or "") < int(match[2])


def read_number(text: str) -> float | None:
    """Returns a clean text as a number, with a decimal point or a decimal comma; None if it is no finite number."""
    text = text.replace("\N{MINUS SIGN}", "-")
    number = float(text.replace(",", ".")) if NUMBER.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


def may_be_thousands(texts: Iterable[str]) -> bool:
    """Tells whether clean texts of numbers have commas, and all may divide thousands (1,234) as well as decimals."""
    with_comma = [text for text in texts if "," in text]
    return bool(with_comma) and all(THOUSANDS.fullmatch(text) for text in with_comma)


def distance(one: float, other: float) -> float:
    """Returns the distance of two numbers in decimals: 0.2 for 0.5 and 0.7, and not 0.19999999999999996."""
    return float(abs(Decimal(repr(one)) - Decimal(repr(other))))


def state_ids(states: Iterable[str], names: Iterable[str], values: Sequence[float] | None) -> list[int]:
    """
    Returns the index of each state among a model's `names`, or for numbers the index of the nearest of its `values`;
    -1 for a state that is missing or that the model does not know.
    """
    if values is None:
        known = {name: number for number, name in enumerate(map(read_name, names))}
        return [known.get(state, -1) for state in states]
    numbers_of = map(read_number, states)
    # Halves, because the distance of two large numbers may be too large for a float.
    return [
        -1 if number is None else min(range(len(values)), key=lambda at: abs(number / 2 - values[at] / 2))
        for number in numbers_of
    ]
