"""Timestamps as users have them, to seconds."""

import math
import numbers
from datetime import UTC, date, datetime, time, timedelta
from typing import Any


# Seconds of the year 5138. Larger numbers are milliseconds by mistake.
LARGEST_SECONDS = 1e11
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
        Raises a `ValueError` that says what is wrong with anything else, NaN and infinite numbers included.
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
    try:
        # Python reads 2024_05_01 as a number.
        return float(text if "_" not in text else "")
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("it is neither an ISO-8601 time nor a number of seconds") from None
