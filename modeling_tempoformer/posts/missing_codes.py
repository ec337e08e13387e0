"""Codes for missing values: leaves out those that a user names, and names those that nobody has named."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from transformers.utils import logging

from ..names_tempoformer import read_name, read_number


logger = logging.get_logger(__name__)

# What statistics programs and people write for a missing value, in lower case; as numbers where the others are numbers
USUAL = ("na", "n/a", "n.a.", "missing", ".", "-", "--", "?")
NUMBERS = {sign * number for number in (9, 88, 98, 99, 888, 998, 999, 9999) for sign in (1, -1)} | {-8.0}
# pandas and BERTopic give this class to what has none.
NO_CLASS = -1.0
# The roles that are counted. A text is counted if it is one of the usual codes alone.
ROLES = ("label", "state", "speaker", "group")
# A rare value, of at most this share of the posts, is far outside if it is so many ranges of the others away.
RARE, FAR = 0.05, 3.0
MOST_NAMES = 10_000


def without_codes(table: pa.Table, codes: Sequence[str]) -> pa.Table:
    """Returns a table in which each cell that is one of the codes (texts or numbers) is empty."""
    numbers = pa.array([number for code in codes if (number := read_number(code)) is not None], pa.float64())
    for place, field in enumerate(table.schema):
        column = table.column(place)
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            is_code = pc.is_in(pc.utf8_trim_whitespace(column), pa.array(codes, field.type))
        elif pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            is_code = pc.is_in(column.cast(pa.float64()), numbers)
        else:
            continue
        table = table.set_column(place, field, pc.if_else(is_code, pa.scalar(None, field.type), column))
    return table


class NameCounts:
    """Counts the names that posts have in some roles, up to 10,000 of each, to warn of codes for missing values."""

    def __init__(self):
        self.counts: dict[str, Counter[str]] = {role: Counter() for role in (*ROLES, "text")}

    def add(self, names: Mapping[str, str], text: str):
        """Adds the names of a post by role, and its text."""
        for role in ROLES:
            counts = self.counts[role]
            if (name := names.get(role)) and (name in counts or len(counts) < MOST_NAMES):
                counts[name] += 1
        if text.strip().casefold() in USUAL:
            self.counts["text"][text.strip()] += 1

    def warn(self):
        """Warns of names that are likely codes for missing values, with their numbers."""
        for role, counts in self.counts.items():
            found = dict(counts) if role == "text" else find_codes(counts, role)
            if found:
                told = " and ".join(f"{count} posts have the {role} {name!r}" for name, count in found.items())
                logger.warning_once(
                    f"{told}. It is read as any other {role}. If it says that a value is missing, give --missing "
                    f"{' '.join(found)}."
                )


def find_codes(counts: Mapping[str, int], role: str) -> dict[str, int]:
    """
    Returns the names, with their counts, that are likely codes for missing values: usual ones, and rare numbers
    that are far outside the others.
    """
    found = {name: count for name, count in counts.items() if name.casefold() in USUAL}
    values = {name: read_number(read_name(name)) for name in counts if name not in found}
    if None in values.values() or role not in ("label", "state"):
        return found if len(counts) > len(found) else {}
    real = [value for value in values.values() if value not in NUMBERS and (role, value) != ("label", NO_CLASS)]
    if not real:
        return {}
    low, high = min(real), max(real)
    for name, value in values.items():
        away = max(low - value, value - high)
        if value in NUMBERS and away > (high - low if value > 0 else 0) and (value > 0 or low >= 0):
            found[name] = counts[name]
        elif role == "label" and value == NO_CLASS and 0 <= low < high:
            found[name] = counts[name]
    # One value that is rare, and far from all others
    others = sorted(value for name, value in values.items() if name not in found)
    for end, neighbour, far_end in ((0, 1, -1), (-1, -2, 0)) if len(others) > 2 else ():
        name = next(name for name, value in values.items() if value == others[end])
        spread = abs(others[neighbour] - others[far_end])
        if abs(others[end] - others[neighbour]) > FAR * spread and counts[name] <= RARE * sum(counts.values()):
            found[name] = counts[name]
    return found
