"""Timestamps as users write them, to seconds."""

import math
import numbers
import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from .input_checks_tempoformer import narrow_float


# From the year 1 to the year 5138, in UTC. Python's dates begin with the first, and larger numbers are milliseconds.
FIRST_SECONDS, END_SECONDS = -62135596800.0, 1e11
END_OF_1970 = 365 * 86400
START_OF_1990 = 631152000
# As a number of seconds it is in August or September 1970.
BARE_DATE = re.compile("(19|20)[0-9][0-9](0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")
# An offset from some start, or a time of day without its date.
CLOCK = re.compile(r"[+-]?\d+:\d\d(:\d\d(\.\d+)?)?")
SHORTENED = re.compile(r"[+-]?\d(?:\.(\d*))?[eE]\+(\d+)")


def to_seconds(value: Any) -> float | None:
    """
    Seconds since 1970-01-01 UTC, in float64.

    Args:
        value: An ISO-8601 string, a `datetime` or a `date` (UTC where they have no zone), or seconds as a number or
            numeric string. A numeric string is always seconds: a date needs its dashes.

    Returns:
        `float`, or `None` for a missing value: `None`, an empty string or `pandas.NaT`. Raises a `ValueError` for
        anything else, including NaN, infinite numbers, floats of fewer than 64 bits, which are off by minutes, and
        numbers that a spreadsheet has shortened (`"1.71455E+09"`).
    """
    return read_time(value)[1]


def read_time(value: Any) -> tuple[str, float | None]:
    """How a time is written ("a number", "a date" or "missing"), and its seconds."""
    if isinstance(value, str):
        value = read_text(value.strip())
    if value is None or type(value).__name__ == "NaTType":
        return "missing", None
    kind, seconds = "a number", value
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        kind, seconds = "a date", (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    elif dtype := narrow_float(value):
        raise ValueError(f"{dtype} is too coarse for seconds since 1970; give Python numbers or float64")
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"a {type(value).__name__} is not a time")
    # Also false of a NaN.
    if not FIRST_SECONDS <= seconds < END_SECONDS:
        raise ValueError(
            "a time must lie within the years 1 to 5138 (UTC), and a number must be seconds, not milliseconds"
        )
    return kind, float(seconds)


def read_text(text: str) -> float | datetime | None:
    """A numeric string as a number, any other as an ISO-8601 date, an empty one as None."""
    if looks_shortened(text):
        raise ValueError("a spreadsheet has shortened this number; export the column again, formatted as text")
    try:
        # Python reads 2024_05_01 as a number.
        return float(text if "_" not in text else "")
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        if CLOCK.fullmatch(text):
            raise ValueError(
                "a time without a date; convert a column of offsets from a start (00:01:30) to seconds by "
                "pd.to_timedelta(column).dt.total_seconds(), and put the date before a time of day"
            ) from None
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
    of another kind than the values before it is an error. So is a date without dashes among seconds of 1990 or later.
    """

    def __init__(self):
        self.first: tuple[str, Any, Any] | None = None  # kind, place and value
        self.bare_date: tuple[Any, Any] | None = None  # place and value, as of the next
        self.recent: tuple[Any, Any] | None = None
        self.smallest, self.largest = math.inf, -math.inf

    def read(self, place: Any, value: Any) -> float | None:
        """[`to_seconds`]. Raises a `ValueError` that names the first `place`, such as "row 0", if the kinds differ."""
        kind, seconds = read_time(value)
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
            if seconds >= START_OF_1990:
                self.recent = self.recent or (place, value)
            elif BARE_DATE.fullmatch(f"{seconds:.15g}"):
                self.bare_date = self.bare_date or (place, value)
            if self.recent and self.bare_date:
                raise ValueError(
                    f"{self.bare_date[0]} has {self.bare_date[1]!r}, which looks like a date without dashes and would "
                    f"be in 1970, while {self.recent[0]} has seconds ({self.recent[1]!r}); write all times alike"
                )
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
