"""Checks the mapping of times to time points."""

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pytest

from modeling_tempoformer import TimePoints, UnknownTimeError, name_time, read_date
from modeling_tempoformer.times_tempoformer import to_date, to_seconds


BINS = ["900-999", "1810-1860", "1960-2010", "2011", "undated"]
ERAS = ["1-2000", "200BC-0", "300-201 BC", "301bce"]


@pytest.mark.parametrize(
    "names, value, name",
    [
        (BINS, "1810-1860", "1810-1860"),
        (BINS, " undated ", "undated"),
        (BINS, 1810, "1810-1860"),
        (BINS, "1960-03", "1960-2010"),
        (BINS, "2010-12-31T23:59:59+05:00", "1960-2010"),
        (BINS, date(2011, 1, 1), "2011"),
        (BINS, datetime(1815, 6, 18, tzinfo=UTC), "1810-1860"),
        # A column of years with gaps.
        (BINS, "1815.0", "1810-1860"),
        (BINS, "1815,0", "1810-1860"),
        # Times as timelines have them: day, month and year, and seconds since 1970 (the last one of 2010 and the
        # next).
        (BINS, "18.06.1815", "1810-1860"),
        (BINS, "1.2.2005 10:30", "1960-2010"),
        (BINS, 1293839999, "1960-2010"),
        (BINS, "1293840000.5", "2011"),
        (BINS, -4_000_000_000, "1810-1860"),
        # Eight digits are a date without dashes. Four digits are a year.
        (BINS, 18150618, "1810-1860"),
        (BINS, 1850, "1810-1860"),
        # Years before the common era are negative.
        (ERAS, -150, "200BC-0"),
        (ERAS, 0, "200BC-0"),
        (ERAS, -301, "301bce"),
        # These times are names of time points.
        (["1", "2019-03-01"], " 1 ", "1"),
        (["1", "2019-03-01"], datetime(2019, 3, 1), "2019-03-01"),
        (["2019-03-01T12:00:00"], datetime(2019, 3, 1, 12), "2019-03-01T12:00:00"),
        (["1.3.2019", "2019-03-02"], "2019-03-01", "1.3.2019"),
        (["1.3.2019", "2019-03-02"], "02.03.2019", "2019-03-02"),
        # Decades, beside years and months.
        (["1980s", "1990s", "2000", "2001-02"], "1990-12-31", "1990s"),
        (["1980s", "1990s", "2000", "2001-02"], 1989, "1980s"),
        (["1980s", "1990s", "2000", "2001-02"], "2000-05", "2000"),
        (["1980s", "1990s", "2000", "2001-02"], "28.02.2001", "2001-02"),
        (["1980s", "1990s", "2000", "2001-02"], "1990s", "1990s"),
        (["1890s", "1900s"], "1909", "1900s"),
        (["1800s", "1900s"], "1900s", "1900s"),
        # Months are not spans of years that end before they begin. 10-12 is a span.
        (["2015-03", "2001-12", "10-12"], "2015-03", "2015-03"),
        (["2015-03", "2001-12", "10-12"], 11, "10-12"),
    ],
)
def test_a_time_falls_into_its_time_point(names, value, name):
    points = TimePoints(names)
    assert points.find(value) == points.get(value) == name and points.holds(value)


@pytest.mark.parametrize(
    "granularity, value, name",
    [
        ("century", 1815, "1800s"),
        ("decade", "1815", "1810s"),
        ("month", "1815-06-18", "1815-06"),
        ("month", "1815-6", "1815-06"),
        ("month", "18.06.1815", "1815-06"),
        ("year", 1293839999, "2010"),
        ("day", datetime(1815, 6, 18, 12), "1815-06-18"),
    ],
)
def test_a_date_is_named_at_its_granularity(granularity, value, name):
    assert TimePoints(["1820s", name], granularity).find(value) == name


@pytest.mark.parametrize(
    "written",
    [
        *("2024-05-01", "2024-05-01T09:00:00Z", " 2024-05-01 09:00", "20240501T0900", "2024-W18-3", "1.5.2024"),
        *("01.05.2024 09:30", 1714554000, "1714554000.5", date(2024, 5, 1), datetime(2024, 5, 1, 9)),
        *(datetime(2024, 5, 1, 9, tzinfo=UTC), np.datetime64("2024-05-01"), pd.Timestamp("2024-05-01 09:00")),
    ],
)
def test_texts_and_timelines_read_the_same_dates(written):
    day = to_date(to_seconds(written))
    assert read_date(written) == (day.year, day.month, day.day) == (2024, 5, 1)


@pytest.mark.parametrize(
    "names, granularity, value, named",
    [
        (BINS, None, 1861, "1861.*900-999, 1810-1860, 1960-2010, 2011, undated"),
        (BINS, None, "corpus1", "'corpus1'.*900-999"),
        (BINS, None, True, "True.*900-999"),
        (BINS, None, 1815.5, "1815.5.*900-999"),
        (BINS, None, 1556668800, "1556668800 is in none"),
        *((BINS, None, unread, "no date") for unread in ("June 2005", "31.02.2005", 38398, "corpus1")),
        # Milliseconds, which Python reads as a day of the year 1101.
        (["1100-1200"], None, "1101010112000", "no date"),
        (BINS, None, None, "no time.*900-999"),
        (BINS, None, "  ", "no time"),
        (["2020-01", "2020-02"], None, "2020", "2020. is in none"),
        (["2020-01", "2020-02"], None, "2020-03-01", "none of the time points: 2020-01, 2020-02"),
        # A decade or a century.
        (["1800s", "1900s"], None, "1905", "'1800s' may be.*1800-1809 or 1800-1899"),
        # A date must be as exact as the granularity, and lie in a time point.
        (["1815-06"], "month", "1815", "'1815'.*month"),
        (["1820s"], "decade", 1816, "1816.*'1810s'.*1820s"),
    ],
)
def test_other_times_are_errors_that_list_the_time_points(names, granularity, value, named):
    points = TimePoints(names, granularity)
    with pytest.raises(UnknownTimeError, match=named):
        points.find(value)
    assert points.get(value) is None and not points.holds(value)


@pytest.mark.parametrize(
    "names, granularity, named",
    [
        (["1810-1860", "1860-1900"], None, "'1810-1860'.*'1860-1900'"),
        (["1860-1810"], None, "'1860-1810'"),
        (["1990s", "1995-03"], None, "'1990s'.*'1995-03'"),
        (["1990s", "1999-2005"], None, "'1990s'.*'1999-2005'"),
        (["a", "a"], None, "'a'"),
        (["1.3.2019", "2019-03-01"], None, "1.3.2019"),
        (["1810"], "week", "`granularity`.*century, decade, year, month, day.*'week'"),
    ],
)
def test_time_points_that_make_no_sense_are_refused(names, granularity, named):
    with pytest.raises(ValueError, match=named):
        TimePoints(names, granularity)


@pytest.mark.parametrize(
    ("value", "granularity", "name"),
    [
        (1815.0, None, "1815"),
        ("18.06.1815", None, "1815-06-18"),
        ("corpus1", None, "corpus1"),
        ("1815-06-18", "century", "1800s"),
        (date(1815, 6, 18), "decade", "1810s"),
        ("1815-06", "month", "1815-06"),
        (1556668800, "day", "2019-05-01"),
    ],
)
def test_a_time_is_named_at_a_granularity(value, granularity, name):
    assert name_time(value, granularity) == name


@pytest.mark.parametrize(("value", "named"), [("corpus1", "'corpus1' is not a date"), ("1815", "'1815'.*month")])
def test_a_time_that_has_no_name_at_a_granularity_is_refused(value, named):
    with pytest.raises(UnknownTimeError, match=named):
        name_time(value, "month")
