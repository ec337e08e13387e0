"""Timestamps as users write them, to seconds."""

import math
import numbers
import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any


# Seconds of the year 5138: larger numbers are milliseconds.
LARGEST_SECONDS = 1e11
# The years 1 to 9999, which are all that Python's dates can hold.
FIRST_SECONDS, END_SECONDS = -62135596800.0, 253402300800.0
END_OF_1970 = 365 * 86400
SHORTENED = re.compile(r"[+-]?\d(?:\.(\d*))?[eE]\+(\d+)")


def to_seconds(value: Any) -> float | None:
    """
    Seconds since 1970-01-01 UTC, in float64.

    Args:
        value: An ISO-8601 string, a `datetime` or a `date` (UTC where they have no zone), or seconds as a number or
            numeric string. A numeric string is always seconds: a date needs its dashes.

    Returns:
        `float`, or `None` for a missing value: `None`, an empty string or `pandas.NaT`. Raises a `ValueError` for
        anything else, including NaN, infinite numbers, and numbers that a spreadsheet has shortened
        (`"1.71455E+09"`).
    """
    return in_seconds(parse_time(value))


def in_seconds(parsed: float | datetime | None) -> float | None:
    """Seconds of a parsed time. Raises a `ValueError` if Python's dates cannot hold it."""
    if parsed is None:
        return None
    seconds = parsed.timestamp() if isinstance(parsed, datetime) else parsed
    if not FIRST_SECONDS <= seconds < END_SECONDS:
        raise ValueError("the time is outside the years 1 to 9999")
    return seconds


def parse_time(value: Any) -> float | datetime | None:
    """A time as a number of seconds or a `datetime` with a zone, whichever it was written as; None if missing."""
    if value is None or type(value).__name__ == "NaTType":
        return None
    if isinstance(value, str):
        value = value.strip()
        if not value:
            return None
        value = parse_text(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"a {type(value).__name__} is not a time")
    # `math.isfinite` fails on integers that no float can hold.
    if value != value or abs(value) == math.inf:
        raise ValueError("the time must be finite")
    if abs(value) >= LARGEST_SECONDS:
        raise ValueError("the number is too large for seconds; divide milliseconds by 1000")
    return float(value)


def parse_text(text: str) -> float | datetime:
    """A numeric string as a number, any other as an ISO-8601 date."""
    if looks_shortened(text):
        raise ValueError("a spreadsheet has shortened this number; export the column again, formatted as text")
    try:
        # Python reads 2024_05_01 as a number.
        return float(text if "_" not in text else "")
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "the time must be ISO-8601 (2024-05-01T09:00:00Z) or a number of seconds; convert a column of other dates "
            "by pd.to_datetime(column), with dayfirst=True if the day comes before the month"
        ) from None


def looks_shortened(value: Any) -> bool:
    """Whether a text is a number without its last digits, as spreadsheets write long ones: 1.71455E+09."""
    match = SHORTENED.fullmatch(value.strip()) if isinstance(value, str) else None
    return match is not None and len(match[1] or "") < int(match[2])


class TimeColumn:
    """
    Reads the times of one column: all ISO-8601, all numbers of seconds, or all missing.

    A bare number among dates (`20240502` among `2024-05-01`) would be a moment in 1970, so the first value that is
    of another kind than the values before it is an error.
    """

    def __init__(self):
        self.first: tuple[str, Any, Any] | None = None  # kind, place and value
        self.smallest, self.largest = math.inf, -math.inf

    def read(self, place: Any, value: Any) -> float | None:
        """
        Seconds of a time, or `None` if it is missing.

        Args:
            place: Names the value in errors about later ones, such as `"row 3"`.
            value: As [`to_seconds`] takes it.

        Raises the `ValueError`s of [`to_seconds`], and one that names the first place if the kinds differ.
        """
        parsed = parse_time(value)
        seconds = in_seconds(parsed)
        kind = "missing" if parsed is None else "a number" if isinstance(parsed, float) else "a date"
        if self.first is None:
            self.first = kind, place, value
        elif self.first[0] != kind:
            was, where, other = self.first
            raise ValueError(
                f"the time is {kind}, while {where} is {was} ({other!r}); the times of a column must be all ISO-8601 "
                "dates (2024-05-01), all numbers of seconds, or all missing"
            )
        if kind == "a number":
            self.smallest, self.largest = min(self.smallest, seconds), max(self.largest, seconds)
        return seconds

    @property
    def warning(self) -> str | None:
        """What to tell the user about the numbers read so far; `None` where they look like seconds since 1970."""
        if not 0 <= self.smallest <= self.largest < END_OF_1970:
            return None
        return (
            f"The times are numbers from {self.smallest:g} to {self.largest:g}, read as seconds: all lie in 1970. "
            "Nothing is wrong if they count seconds from some start. If they are milliseconds, minutes, days of a "
            "spreadsheet, years or dates without dashes (20240501), convert the column by pd.to_datetime first."
        )


def to_date(seconds: float) -> datetime:
    """The moment of `seconds` since 1970-01-01, in UTC. `datetime.fromtimestamp` fails for early years."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
