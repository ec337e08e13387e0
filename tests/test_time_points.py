"""Times to time points."""

from datetime import UTC, date, datetime

import pytest

from modeling_tempoformer.time_points_temporal_bert import TimePoints, UnknownTimeError


BINS = ["900-999", "1810-1860", "1960-2010", "2011", "undated"]


@pytest.mark.parametrize(
    "value, name",
    [
        ("1810-1860", "1810-1860"),
        (" undated ", "undated"),
        (1810, "1810-1860"),
        (1860.0, "1810-1860"),
        ("1860", "1810-1860"),
        ("1960-03", "1960-2010"),
        ("2010-12-31", "1960-2010"),
        ("2010-12-31T23:59:59+05:00", "1960-2010"),
        (date(2011, 1, 1), "2011"),
        (datetime(1815, 6, 18, tzinfo=UTC), "1810-1860"),
        (950, "900-999"),
    ],
)
def test_a_time_falls_into_its_bin(value, name):
    assert TimePoints(BINS).find(value) == name


@pytest.mark.parametrize(
    "value, name",
    [
        (1, "1"),
        (1.0, "1"),
        (" 1 ", "1"),
        (date(2019, 3, 1), "2019-03-01"),
        (datetime(2019, 3, 1, 12), "2019-03-01T12:00:00"),
    ],
)
def test_a_time_can_be_its_own_name(value, name):
    assert TimePoints(["1", "2019-03-01", "2019-03-01T12:00:00"]).find(value) == name


@pytest.mark.parametrize(
    "value, name",
    [
        (-150, "200BC-0"),
        ("-150", "200BC-0"),
        (0, "200BC-0"),
        ("1.0", "1-2000"),
        (-250, "300-201 BC"),
        (-301, "301bce"),
    ],
)
def test_years_before_the_common_era_are_negative(value, name):
    assert TimePoints(["1-2000", "200BC-0", "300-201 BC", "301bce"]).find(value) == name


def test_a_column_of_years_with_gaps_is_read_as_years():
    """Tables make 1815.0 of a year where others are missing."""
    assert TimePoints(BINS).find("1815.0") == "1810-1860"
    assert TimePoints(["1815", "1816"]).find("1816.00") == "1816"
    assert TimePoints(["1810s"], "decade").find("1815.0") == "1810s"


def test_months_can_be_time_points_without_a_granularity():
    """2015-03 is no span of years that ends before it begins, nor is 2001-12; 10-12 is one."""
    points = TimePoints(["2015-03", "2001-12", "10-12"])
    assert [points.find(value) for value in ("2015-03", "2001-12", 11)] == ["2015-03", "2001-12", "10-12"]


@pytest.mark.parametrize(
    "granularity, value, name",
    [
        ("century", 1815, "1800s"),
        ("decade", "1815", "1810s"),
        ("decade", date(1819, 12, 31), "1810s"),
        ("year", "1815-06-18", "1815"),
        ("month", "1815-06-18", "1815-06"),
        ("month", "1815-6", "1815-06"),
        ("day", datetime(1815, 6, 18, 12), "1815-06-18"),
    ],
)
def test_a_date_is_named_at_its_granularity(granularity, value, name):
    assert TimePoints(["1820s", name], granularity).find(value) == name


@pytest.mark.parametrize(
    "value, message",
    [
        (1861, "1861 falls into none of the time points: 900-999, 1810-1860, 1960-2010, 2011, undated"),
        ("corpus1", "'corpus1' is none of the time points: 900-999"),
        ("1815-13", "'1815-13' is none of"),
        (True, "True is none of"),
        (1815.5, "1815.5 is none of"),
        (1556668800, "Seconds are not read here"),
        (None, "A text has no time. Time points: 900-999"),
        (float("nan"), "A text has no time"),
        ("  ", "A text has no time"),
    ],
)
def test_other_times_are_errors_that_list_the_time_points(value, message):
    with pytest.raises(UnknownTimeError, match=message):
        TimePoints(BINS).find(value)


def test_a_date_must_be_as_exact_as_its_granularity():
    with pytest.raises(UnknownTimeError, match="'1815' does not tell its month"):
        TimePoints(["1815-06"], "month").find("1815")
    with pytest.raises(UnknownTimeError, match=r"1816 is in '1810s', which is none of the time points: 1820s"):
        TimePoints(["1820s"], "decade").find(1816)


@pytest.mark.parametrize(
    "names, granularity, message",
    [
        (["1810-1860", "1860-1900"], None, "'1810-1860' and '1860-1900' overlap"),
        (["1810-1860", "1860"], None, "overlap"),
        (["1860-1810"], None, "'1860-1810' ends before it begins"),
        (["a", "a"], None, "must differ"),
        (["1810"], "week", "`granularity` must be one of century, decade, year, month, day, got 'week'"),
    ],
)
def test_time_points_that_make_no_sense_are_refused(names, granularity, message):
    with pytest.raises(ValueError, match=message):
        TimePoints(names, granularity)
