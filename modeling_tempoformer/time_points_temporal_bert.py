"""Time points of a corpus, and the dates that belong to them."""

import math
import numbers
import re
from datetime import date, datetime, time, timedelta
from typing import Any


# The form of a date's name at each granularity, and how many of year, month and day it needs.
GRANULARITIES = {
    "century": ("{century}00s", 1),
    "decade": ("{decade}0s", 1),
    "year": ("{year}", 1),
    "month": ("{year}-{month:02}", 2),
    "day": ("{year}-{month:02}-{day:02}", 3),
}
YEARS = re.compile(r"(\d{1,4}) ?(BCE?)?(?: ?- ?(\d{1,4}) ?(BCE?)?)?", re.IGNORECASE)
MONTH = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])")
DECADE = re.compile(r"(\d{1,3}0)s")
PARTIAL_DATE = re.compile(r"(-?\d{1,4})(?:-(\d{1,2}))?")
# Tables turn a column of years with gaps into floats, in some countries with a decimal comma.
YEAR_WITH_FRACTION = re.compile(r"^(-?\d{1,4})[.,]0+$")
# Day, month and year, as in much of Europe.
DOTTED_DATE = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})((?: .*)?)")
# Seconds: a year has at most four digits, and a date without dashes has eight.
LONG_NUMBER = re.compile(r"-?\d{9,}(?:\.\d+)?")
# Numbers from here on are milliseconds, as in timelines.
END_SECONDS = 1e11


class UnknownTimeError(ValueError):
    """A time that is missing, or in none of the time points."""


class TimePoints:
    """
    The time points of a corpus.

    Args:
        names (`list[str]`):
            Names in the order of time. Without a granularity, the name of years (`"1810-1860"`, `"1815"`,
            `"200BC-0"`), of a decade (`"1990s"`) or of a month (`"2015-03"`) is a bin, which holds the dates from its
            first day to its last. Any other name holds only times of the same name. So does a decade such as `"1900s"`
            if all decades begin a century, because the century may be meant.
        granularity (`str`, *optional*):
            `"century"`, `"decade"`, `"year"`, `"month"` or `"day"`. A date then belongs to the time point with the
            name of its period: `"1800s"`, `"1810s"`, `"1815"`, `"1815-03"` or `"1815-03-07"`.

    Raises a `ValueError` for an unknown granularity, for names that are equal or not text, and for bins that overlap.
    """

    def __init__(self, names: list[str], granularity: str | None = None):
        if granularity is not None and granularity not in GRANULARITIES:
            raise ValueError(f"`granularity` must be one of {', '.join(GRANULARITIES)}, got {granularity!r}.")
        if invalid := [name for name in names if not isinstance(name, str) or not name.strip()]:
            raise ValueError(f"The name of a time point must be text, got {invalid[0]!r}.")
        self.by_name = {as_name(name): name for name in names}
        if len(self.by_name) < len(names):
            raise ValueError(f"Time points must differ from each other, got {list(names)}.")
        self.names, self.granularity = list(names), granularity
        names = self.names if granularity is None else []
        decades = [name for name in names if DECADE.fullmatch(name)]
        # Such as 1900s beside 2000s.
        self.unclear = decades if all(name.endswith("00s") for name in decades) else []
        bins = [(*months, name) for name in names if name not in self.unclear and (months := read_months(name))]
        self.bins = sorted(bins)
        for first, last, name in self.bins:
            if last < first:
                raise ValueError(f"The time point '{name}' ends before it begins.")
        for (_, last, name), (next_first, _, next_name) in zip(self.bins, self.bins[1:], strict=False):
            if next_first <= last:
                raise ValueError(f"The time points '{name}' and '{next_name}' overlap.")

    def find(self, value: Any) -> str:
        """
        Returns the name of the time point that a time belongs to.

        Args:
            value: A time point's name, or a date that [`read_date`] reads.

        Raises an [`UnknownTimeError`] that lists the time points if the time belongs to none.
        """
        if (name := self.by_name.get(as_name(value))) is not None:
            return name
        why = "is no date (1815, 1815-06-18, 18.06.1815) and none of the time points"
        if parts := read_date(value):
            why = "is in none of the time points"
            if self.granularity is not None:
                if (name := name_time(value, self.granularity)) in self.names:
                    return name
                why = f"is in '{name}', which is none of the time points"
            start, end = span_of_months(parts, parts)
            for first, last, name in self.bins:
                if first <= start and end <= last:
                    return name
        raise self.unknown(value, why)

    def get(self, value: Any) -> str | None:
        """
        Returns the name of the time point that a time belongs to, None if it belongs to none.

        Args:
            value: A time point's name, or a date that [`read_date`] reads.
        """
        try:
            return self.find(value)
        except UnknownTimeError:
            return None

    def holds(self, value: Any) -> bool:
        """
        Tells whether a time belongs to one of the time points.

        Args:
            value: A time point's name, or a date that [`read_date`] reads.
        """
        return self.get(value) is not None

    def unknown(self, value: Any, why: str) -> UnknownTimeError:
        """Makes the error of a time that belongs to no time point."""
        listed = ", ".join(self.names[:20]) + (f", ... ({len(self.names)} in all)" if len(self.names) > 20 else "")
        if is_blank(value):
            return UnknownTimeError(f"A text has no time. Time points: {listed}.")
        written = value.isoformat() if isinstance(value, date) else repr(value)
        hint = f" {self.hint}." if self.hint else ""
        return UnknownTimeError(f"The time {written} {why}: {listed or 'there are none'}.{hint}")

    @property
    def hint(self) -> str:
        """Advice about decades that may be centuries; empty if there are none."""
        if not self.unclear:
            return ""
        year = self.unclear[0].removesuffix("s")
        decade, century = int(year) + 9, int(year) + 99
        return f"'{year}s' may be a decade or a century: write {year}-{decade} or {year}-{century}"

    @property
    def kind(self) -> str:
        """The granularity that dates need: the time points' own, else a month if they are months, else a year."""
        are_months = self.bins and all(MONTH.fullmatch(name) for _, _, name in self.bins)
        return self.granularity or ("month" if are_months else "year")


def read_years(name: str) -> tuple[int, ...]:
    """
    Reads the years in a time point's name.

    Args:
        name (`str`): The name, such as `"1815"`, `"1810-1860"` or `"200-100BC"`.

    Returns:
        `tuple[int, ...]`: The year, or the first and the last one, those before the common era negative; empty for a
        name of another form.
    """
    if not (match := YEARS.fullmatch(name)):
        return ()
    first, is_first_bc, last, is_last_bc = match.groups()
    # In 200-100BC, both years are before the common era.
    first = -int(first) if is_first_bc or is_last_bc else int(first)
    return (first,) if last is None else (first, -int(last) if is_last_bc else int(last))


def read_months(name: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Reads the first and the last month, each after its year, in the name of years, of a decade or of a month."""
    years = read_years(name)
    # 2015-03 is not a span from the year 2015 to the year 3.
    if MONTH.fullmatch(name) and years[0] > years[-1]:
        return span_of_months(years, years)
    if match := DECADE.fullmatch(name):
        years = (int(match[1]), int(match[1]) + 9)
    return span_of_months(years[:1], years[-1:]) if years else None


def span_of_months(first: tuple[int, ...], last: tuple[int, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the first and the last month between two dates, which may be years."""
    return (*first, 1)[:2], (*last, 12)[:2]


def is_blank(value: Any) -> bool:
    """Tells whether a value is None, a blank string, NaN or `pandas.NaT`."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value


def as_name(value: Any) -> str:
    """Writes a time as text: integers without a fraction, dates (31.12.2024 too) as in ISO-8601."""
    if isinstance(value, datetime) and value.time() == time() and value.tzinfo is None:
        # Tables turn a date into its midnight.
        value = value.date()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, numbers.Real) and math.isfinite(value) and int(value) == value:
        return str(int(value))
    text = YEAR_WITH_FRACTION.sub(r"\1", str(value).strip())
    if match := DOTTED_DATE.fullmatch(text):
        day, month, year, time_of_day = match.groups()
        iso = f"{year}-{month:0>2}-{day:0>2}{time_of_day}"
        return iso if read_point(iso) else text
    return text


def read_date(value: Any) -> tuple[int, ...] | None:
    """
    Reads year, month and day, as many as are given; None if the value is not a date.

    Args:
        value: A year (up to four digits; negative before the common era), a month (`"1815-03"`), an ISO-8601 date or
            time, a date such as `"18.06.1815"`, a `date`, a `datetime`, or seconds since 1970 (UTC; nine digits or
            more, below 1e11). Numbers may be text.
    """
    if is_blank(value) or isinstance(value, bool):
        return None
    if isinstance(value, date):
        return value.year, value.month, value.day
    text = as_name(value)
    if match := PARTIAL_DATE.fullmatch(text):
        parts = tuple(int(part) for part in match.groups() if part is not None)
        return parts if len(parts) == 1 or 1 <= parts[1] <= 12 else None
    moment = read_point(text)
    return moment and (moment.year, moment.month, moment.day)


def read_point(text: str) -> datetime | None:
    """Reads seconds since 1970 or an ISO-8601 date; None for any other text."""
    try:
        # Python would read some milliseconds as dates.
        if LONG_NUMBER.fullmatch(text):
            seconds = float(text)
            return datetime(1970, 1, 1) + timedelta(seconds=seconds) if seconds < END_SECONDS else None
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None


def name_time(value: Any, granularity: str | None = None) -> str:
    """
    Returns the name of a time, or at a granularity the name of the period in which a date lies.

    Args:
        value: A time. At a granularity it must be a date that [`read_date`] reads.
        granularity (`str`, *optional*): One of [`TimePoints`]. By default an integer is named without a fraction, a
            date (31.12.2024 too) as in ISO-8601, and any other time as it is written.

    Raises an [`UnknownTimeError`] for a value that is no date, or not exact enough for the granularity.
    """
    if granularity is None:
        return as_name(value)
    if not (parts := read_date(value)):
        raise UnknownTimeError(f"{value!r} is not a date.")
    form, needed = GRANULARITIES[granularity]
    if len(parts) < needed:
        written = "-".join(f"{part:02}" for part in parts)
        raise UnknownTimeError(f"The time '{written}' does not tell its {granularity}.")
    year, month, day = (*parts, 0, 0)[:3]
    return form.format(century=year // 100, decade=year // 10, year=year, month=month, day=day)
