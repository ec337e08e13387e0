"""Timestamps as users have them, to seconds."""

import math
import numbers
import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any


# Seconds of the year 5138. Larger numbers are milliseconds by mistake.
LARGEST_SECONDS = 1e11
# Days of a spreadsheet, counted from 1899-12-30: the years 1954 to 2064.
DAY_NUMBERS = 20_000, 60_000
# The years 1 to 9999, which are all that dates can have.
FIRST_SECONDS, END_SECONDS = -62135596800.0, 253402300800.0


def to_seconds(value: Any) -> float | None:
    """
    Seconds since 1970-01-01 UTC, in float64.

    Args:
        value: An ISO-8601 string (without zone it is UTC), seconds as a number or numeric string, a `datetime`
            (without zone it is UTC) or a `date`. Numeric strings are always seconds, so a date needs its dashes.

    Returns:
        `float`, or `None` for a missing value: `None`, an empty string or NaN that stands for one (`pandas.NaT`).
        Raises a `ValueError` that says what is wrong with anything else, NaN, infinite numbers and numbers that lost
        digits (`"1.71455E+09"`) included.
    """
    if value is None or (isinstance(value, str) and not value.strip()) or type(value).__name__ == "NaTType":
        return None
    if isinstance(value, str):
        value = parse_text(value.strip())
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        seconds = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    elif isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ValueError(f"a {type(value).__name__} is not a time")
    else:
        # Not by `math.isfinite`, for which some whole numbers are too large.
        if value != value or abs(value) == math.inf:
            raise ValueError("it is not finite")
        if abs(value) >= LARGEST_SECONDS:
            raise ValueError("it is too large for seconds; milliseconds?")
        seconds = float(value)
    if not FIRST_SECONDS <= seconds < END_SECONDS:
        raise ValueError("it is outside the years 1 to 9999")
    return seconds


def looks_cut_short(value: Any) -> bool:
    """Whether a text is a number without its last digits, as spreadsheets write long ones: 1.71455E+09."""
    match = re.fullmatch(r"[+-]?\d(?:\.(\d*))?[eE]\+(\d+)", value.strip()) if isinstance(value, str) else None
    return match is not None and len(match[1] or "") < int(match[2])


def other_reading(value: Any) -> str | None:
    """What else than seconds a number, or text that is one, looks like, and how that is written; None for others."""
    if is_date_without_dashes(value):
        return "a date is written 2024-05-01"
    if is_month_without_dashes(value):
        return "a month is written 2024-05-01"
    if is_day_number(value):
        return "days of a spreadsheet are to be written as dates, 2024-05-01"
    return None


def is_month_without_dashes(value: Any) -> bool:
    """Whether a number, or text that is one, has the digits of a month (202405) of the years 1900 to 2099."""
    return re.fullmatch(r"(19|20)\d\d(0[1-9]|1[0-2])(\.0)?", str(value).strip()) is not None


def is_day_number(value: Any) -> bool:
    """Whether a number, or text that is one, is of the size of days as spreadsheets count them."""
    first, end = DAY_NUMBERS
    return re.fullmatch(r"\d{5}(\.\d*)?", str(value).strip()) is not None and first <= float(value) < end


def is_date_without_dashes(value: Any) -> bool:
    """Whether a number, or text that is one, has the digits of a date (20240501) of the years 1900 to 2099."""
    text = str(value).strip().removesuffix(".0")
    if len(text) != 8 or text[:2] not in ("19", "20"):
        return False
    try:
        datetime.strptime(text, "%Y%m%d")
    except ValueError:
        return False
    return True


def to_date(seconds: float) -> datetime:
    """The moment of `seconds` since 1970-01-01, in UTC. Unlike `datetime.fromtimestamp`, also long before."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def parse_text(text: str) -> float | datetime:
    """A numeric string as a number, any other as an ISO-8601 date."""
    if looks_cut_short(text):
        raise ValueError("its last digits are missing, as where a spreadsheet shortens numbers")
    try:
        # Python reads 2024_05_01 as a number.
        return float(text if "_" not in text else "")
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("it is neither an ISO-8601 time nor a number of seconds") from None
