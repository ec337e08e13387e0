"""Reads times as users write them, as seconds since 1970-01-01 UTC or since some start."""

import math
import numbers
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from transformers.utils import logging

from .checks_tempoformer import narrow_float
from .names_tempoformer import clean, looks_shortened, may_be_thousands, read_number


logger = logging.get_logger(__name__)

# The years 1 to 5138, in UTC. Python's dates begin with the first, and larger numbers are milliseconds.
FIRST_SECONDS, END_SECONDS = -62135596800.0, 1e11
DAY, END_OF_1970, START_OF_1990, START_OF_2100 = 86_400, 365 * 86400, 631_152_000, 4_102_444_800
# The moments that programs write for no time: Go and .NET, spreadsheets, Unix; the last two may be days of real posts.
YEAR_ONE, NO_MOMENTS = datetime(1, 1, 1), (datetime(1899, 12, 30), datetime(1970, 1, 1))
# Day, month and year, as much of Europe writes them.
DOTTED = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})(.*)")
# Hours, minutes and seconds, with a comma as in subtitles, and after days as in pandas.
DURATION = re.compile(r"(?:(\d{1,6}) days?,? )?(\d{1,6}):([0-5]\d):([0-5]\d(?:[.,]\d+)?)")


NO_TIME = "the time must be ISO-8601 (2024-05-01T09:00:00Z), a number of seconds or a duration (00:01:30)"


class ReadTime(NamedTuple):
    """
    A time that was read.

    Attributes:
        kind (`str`): "a number", "a date", "a duration" or "missing".
        seconds (`float`, *optional*): Seconds since 1970-01-01 UTC, or of a duration; None for a missing time.
        zoned (`bool`, *optional*): Whether a date has a zone; None for other kinds.
    """

    kind: str
    seconds: float | None
    zoned: bool | None = None


def to_seconds(value: Any) -> float | None:
    """
    Returns the seconds since 1970-01-01 UTC, or of a duration, in float64.

    Args:
        value: An ISO-8601 string, also with a date as 31.12.2024, a `datetime`, a `date` or a `numpy.datetime64` (UTC
            where they have no zone); seconds as a number, a `Decimal` or a numeric string, also with a decimal comma
            (a date needs its dashes); a duration since some start, as `00:16:16,059`, `0 days 00:09:34`, a `timedelta`
            or a `numpy.timedelta64`.

    Returns:
        `float`, or `None` for a missing value: `None`, an empty string or `pandas.NaT`. Raises a `ValueError` for
        anything else, including NaN, moments outside the years 1 to 5138 (UTC), floats of fewer than 64 bits, and
        numbers that a spreadsheet has shortened (`"1.71455E+09"`, `"1,71455E9"`).
    """
    return read_time(value)[1]


def read_time(value: Any) -> ReadTime:
    """
    Reads a time, with its kind.

    Args:
        value: What [`to_seconds`] takes, or a [`ReadTime`], which is returned.

    Returns:
        [`ReadTime`]. Raises the `ValueError`s of [`to_seconds`].
    """
    if isinstance(value, ReadTime):
        return value
    is_day = isinstance(value, str) and len(value.strip()) <= len("2024-05-01")
    dtype_kind = getattr(getattr(value, "dtype", None), "kind", "")
    if isinstance(value, str):
        value = read_time_text(clean(value))
    elif isinstance(value, Decimal):
        value = float(value)
    elif dtype_kind in ("M", "m"):
        # A date or a duration of NumPy, which in other units may give a number instead of a `datetime`.
        value = value.astype(f"{'datetime' if dtype_kind == 'M' else 'timedelta'}64[us]").item()
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return ReadTime("missing", None)
    kind, seconds, zoned = "a number", value, None
    if isinstance(value, date):
        is_day |= not isinstance(value, datetime)
        moment = datetime.combine(value, time()) if not isinstance(value, datetime) else value
        kind, zoned = "a date", moment.tzinfo is not None
        seconds = (moment if zoned else moment.replace(tzinfo=UTC)).timestamp()
        plain = None if moment.utcoffset() else moment.replace(tzinfo=None)
        if plain == YEAR_ONE or (plain in NO_MOMENTS and not is_day):
            return ReadTime("missing", None)
    elif isinstance(value, timedelta):
        kind, seconds = "a duration", value.total_seconds()
    elif dtype := narrow_float(value):
        raise ValueError(f"{dtype} is too coarse for seconds since 1970; give Python numbers or float64")
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"a {type(value).__name__} is not a time")
    # A NaN fails, too.
    if not FIRST_SECONDS <= seconds < END_SECONDS:
        raise ValueError(
            "a time must lie within the years 1 to 5138 (UTC), and a number must be seconds, not milliseconds"
        )
    return ReadTime(kind, float(seconds), zoned)


def read_time_text(text: str) -> float | datetime | timedelta | None:
    """Reads a text as a number, as a duration or as an ISO-8601 date, an empty one as None."""
    if looks_shortened(text):
        raise ValueError("a spreadsheet has shortened this number; export the column again, formatted as text")
    if (number := read_number(text)) is not None:
        return number
    if match := DURATION.fullmatch(text):
        days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in match.groups())
        return timedelta(days, seconds, minutes=minutes, hours=hours)
    if match := DOTTED.fullmatch(text):
        day, month, year, time_of_day = match.groups()
        text = f"{year}-{month:0>2}-{day:0>2}{time_of_day}"
    try:
        # As BigQuery and Reddit write it
        return datetime.fromisoformat(text.removesuffix(" UTC") + "Z" * text.endswith(" UTC")) if text else None
    except ValueError:
        raise ValueError(NO_TIME) from None


class TimeColumn:
    """
    Reads the times of one column, all of one kind: a bare number among dates (`20240502` among `2024-05-01`) would be
    a moment in 1970.

    Args:
        shows_values (`bool`, *optional*, defaults to `True`): If False, no error repeats a value, which may be
            private.

    Attributes: `smallest` and `largest`, the first and the last time that was read, in seconds, infinite without any;
    and `first`, the kind, the name and the value of the first one, None without any.
    """

    def __init__(self, shows_values: bool = True):
        self.shows_values = shows_values
        self.first: tuple[str, Any, Any] | None = None  # kind, name and value
        self.smallest, self.largest = math.inf, -math.inf
        # Whether numbers have commas, and all may divide thousands; None without any number with a comma.
        self.may_be_thousands: bool | None = None
        self.num_times, self.are_thousands = 0, True
        self.zoned: set[bool | None] = set()

    def read(self, name: Any, value: Any) -> float | None:
        """
        Reads the next time of the column.

        Args:
            name: The name of its post in later errors, such as "row 0".
            value: What [`to_seconds`] takes.

        Returns:
            `float`, *optional*: Seconds; None for a missing time. Raises the errors of [`to_seconds`], and a
            `ValueError` that names the first time if the kinds differ.
        """
        kind, seconds, zoned = read_time(value)
        self.first = self.first or (kind, name, value)
        was, where, other = self.first
        if was != kind:
            shown = f" ({other!r})" if self.shows_values else ""
            raise ValueError(
                f"the time is {kind}, while {where} is {was}{shown}; the times of a column must be all ISO-8601 "
                "dates (2024-05-01), all numbers of seconds, all durations (00:01:30), or all missing"
            )
        if kind == "a number" and isinstance(value, str) and "," in value:
            self.may_be_thousands = self.may_be_thousands is not False and may_be_thousands([clean(value)])
        if seconds is not None:
            self.smallest, self.largest = min(self.smallest, seconds), max(self.largest, seconds)
            self.num_times, self.are_thousands = self.num_times + 1, self.are_thousands and seconds % 1000 == 0
            self.zoned.add(zoned)
        return seconds

    def warn(self):
        """
        Warns, once a run, of times that may mean something else: numbers in 1970 or after 2100, numbers with commas,
        durations, dates with and without a zone, and the same time everywhere.
        """
        kind = self.first[0] if self.first else "missing"
        if self.zoned == {True, False}:
            logger.warning_once(
                "Some times have a zone and others none: these are read as UTC, so that a later post may stand first. "
                "Give all a zone, or none."
            )
        if self.num_times > 1 and self.smallest == self.largest:
            logger.warning_once(
                "All posts of a file or a timeline have one time, as where a program writes a date for none: they "
                "keep their order, and 0 seconds lie between them. Leave the column of times out if it tells none."
            )
        if self.may_be_thousands:
            logger.warning_once(
                "The times are numbers with commas, read as decimal commas: 1,234 is 1.234 seconds. If the commas "
                "divide thousands, leave them out."
            )
        # Milliseconds of durations end in zeros, as few dates do.
        are_milliseconds = self.num_times > 2 and self.are_thousands
        is_real = END_OF_1970 <= self.largest < START_OF_1990 and not are_milliseconds
        if kind == "a number" and 0 <= self.smallest < END_OF_1970 and not is_real:
            # Without the numbers, which would make the warning a new one for each timeline or file.
            logger.warning_once(
                "The times are numbers, read as seconds: some lie in 1970. Nothing is wrong if they count seconds "
                "from some start. If they are milliseconds, minutes, days of a spreadsheet, years or dates without "
                "dashes (20240501), convert the column by pd.to_datetime first."
            )
        elif kind == "a number" and self.largest >= START_OF_2100:
            logger.warning_once(
                "The times are numbers, read as seconds since 1970: some lie after 2100. If they are from SPSS, which "
                "counts seconds from 1582-10-14, subtract 12219379200."
            )
        elif kind == "a duration":
            logger.warning_once(
                "The times are durations, read as seconds from some start, such as a recording's. If they are "
                "times of day, put the date before each (2024-05-01 09:00:00)."
            )


def are_since_start(smallest: float, largest: float) -> bool:
    """
    Tells whether times are seconds since some start, and not dates: all lie in 1970, or less than a day before it, as
    a chat begins before the video.

    Args:
        smallest, largest (`float`): The first and the last of the times, in seconds.
    """
    return smallest > -DAY and largest < END_OF_1970


def to_date(seconds: float) -> datetime:
    """Returns the moment of `seconds` since 1970-01-01, in UTC. `datetime.fromtimestamp` fails for early years."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
