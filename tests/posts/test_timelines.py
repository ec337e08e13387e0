"""Checks the way from posts to timelines, and the posts that are refused."""

import logging
import random
import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset
from helpers import tiny_reader, write_posts
from transformers import pipeline

from modeling_tempoformer.common.columns import Columns
from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.tables import load_table
from modeling_tempoformer.posts.timelines import UnknownPeople, label_names, logger, to_timelines
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.times_tempoformer import are_since_start, to_date, to_seconds
from tempoformer_live.corpus import Corpus, check_times


POSTS = [
    {"timeline_id": "a", "timestamp": "1970-01-01T00:01:00", "text": "sad", "label": "IS"},
    {"timeline_id": "b", "timestamp": "1970-01-01T00:00:05", "text": "", "label": "O"},
    {"timeline_id": "a", "timestamp": "1970-01-01T00:00:30Z", "text": "glad", "label": None},
    {"timeline_id": "a", "timestamp": "1970-01-01T02:01:00+02:00", "text": "sad sad glad", "label": "O"},
]
COLUMNS = Columns(timeline="timeline_id", timestamp=None, text="text", id=None)


def with_times(times: list) -> list[dict]:
    return [{"timeline_id": "a", "timestamp": time, "text": str(time)} for time in times]


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    """Lets pytest see the log, also warnings that another test has already caused."""
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logger.warning_once.cache_clear()


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (" 1970-01-01 00:00:01.5 ", 1.5),
        ("20240501T000000Z", 1714521600.0),
        ("2.1.1970", 86400.0),
        ("31.12.1969 23:59:59", -1.0),
        ("12.5", 12.5),
        ("12,5", 12.5),
        ("1714521600,25", 1714521600.25),
        ("\u22123,5", -3.5),
        # Marks of direction and of byte order, as chats and spreadsheets write them.
        ("\u200e1970-01-02", 86400.0),
        ("\ufeff\u00a060.0", 60.0),
        ("1.714550001E+09", 1714550001.0),
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=-1))), 3600.0),
        (pd.Timestamp("1970-01-02"), 86400.0),
        (pd.NaT, None),
        *((np.datetime64("2024-05-01T00:00:01.5", unit), 1714521601.5) for unit in ("ns", "us", "ms")),
        (np.datetime64("1970-01-02"), 86400.0),
        (np.datetime64("NaT"), None),
        (Decimal("1714521600.5"), 1714521600.5),
        ("00:00:02.877", 2.877),
        ("00:16:16,059", 976.059),
        (" 0 days 00:09:34", 574.0),
        ("1 day, 1:00:00.000001", 90000.000001),
        ("36:00:00", 129600.0),
        (timedelta(minutes=1, milliseconds=500), 60.5),
        (pd.Timedelta("2 days 00:00:01"), 172801.0),
        *((np.timedelta64(5000, unit), seconds) for unit, seconds in (("s", 5000.0), ("ns", 5e-6), ("m", 3e5))),
        (np.timedelta64("NaT"), None),
        ("  ", None),
    ],
)
def test_times_are_read(value, seconds):
    assert to_seconds(value) == seconds


def test_speakers_come_along():
    posts = sorted(POSTS, key=lambda post: post["timeline_id"])
    posts = [{**post, "speaker": who} for post, who in zip(posts, (" Ann", None, "Ben", "Cy"), strict=True)]
    spoken = list(to_timelines(Dataset.from_list(posts), ["IS", "O"]))
    assert [timeline.speakers for timeline in spoken] == [["", "Ann", "Ben"], ["Cy"]]
    renamed = Dataset.from_list(posts).rename_column("speaker", "who")
    assert list(to_timelines(renamed, ["IS", "O"], columns={"speaker": "who"})) == spoken
    assert to_timelines(renamed, ["IS", "O"])[0].speakers is None


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("31.31.2024", "ISO-8601"),
        ("01/05/2024", "ISO-8601"),
        (1700000000000, "milliseconds"),
        ("1.71455E+09", "spreadsheet"),
        (True, "bool"),
        (np.datetime64("-0001-01-01"), "years 1 to 5138"),
        (Decimal("1714521600000"), "milliseconds"),
        (Decimal("NaN"), "years 1 to 5138"),
        ("09:30", "00:01:30"),
        ("00:60:00", "00:01:30"),
        ("00:01:60", "00:01:30"),
        ("-1 days +23:59:59", "00:01:30"),
    ],
)
def test_other_times_are_refused(value, problem):
    with pytest.raises(ValueError, match=problem):
        to_seconds(value)


def test_whoever_has_a_column_of_other_dates_is_told_how_to_convert_it():
    posts = Dataset.from_dict({"timeline_id": ["a"], "timestamp": ["01/05/2024"], "text": ["so"]})
    with pytest.raises(ValueError, match="row 0.*01/05/2024.*pd.to_datetime.*dayfirst=True|Row 0.*dayfirst=True"):
        to_timelines(posts)


NOTHING = ["0001-01-01", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1899-12-30 00:00:00", datetime(1970, 1, 1)]


@pytest.mark.parametrize("value", [*NOTHING, pd.NA], ids=str)
def test_moments_that_programs_write_for_none_are_missing(value):
    assert to_seconds(value) is None
    with pytest.raises(ValueError, match="post 1.*missing"):
        Timeline.read("a", ["so", "so"], ["2024-05-01", value])


def test_days_of_real_posts_are_no_missing_times():
    assert to_seconds("1970-01-01") == 0 and to_seconds("1970-01-01T00:00:01Z") == 1 and to_seconds(0) == 0
    assert to_seconds("1899-12-30") == to_seconds("1899-12-31") - 86400


def test_utc_at_the_end_is_a_zone():
    assert to_seconds("2024-05-01 09:00:00 UTC") == to_seconds("2024-05-01T09:00:00Z")


def test_times_that_may_mislead_are_warned_of_once(caplog):
    caplog.set_level(logging.WARNING)
    day = 86_400_000
    columns = {
        "zone": ["2024-05-01T09:00:00", "2024-05-01T09:30:00+02:00"],
        "one time": ["1980-01-01", "1980-01-01"],
        # Durations in milliseconds, as `to_json` of pandas and Datasets writes them: a minute, and more than a year
        "milliseconds": [0, 60_000, 400 * day],
    }
    for word, times in columns.items():
        caplog.clear()
        logger.warning_once.cache_clear()
        Timeline.read("a", ["so"] * len(times), times)
        (warning,) = [record.getMessage() for record in caplog.records if "Sorting" not in record.getMessage()]
        assert word in warning
    caplog.clear()
    logger.warning_once.cache_clear()
    Timeline.read("a", ["so", "no"], ["2024-05-01T09:00:00+02:00", "2024-05-01T09:30:00Z"])
    assert not caplog.records


def test_seconds_before_the_start_are_seconds_from_a_start():
    assert are_since_start(-95, 4000) and are_since_start(0, 4000)
    assert not are_since_start(-90_000, 4000) and not are_since_start(-1e9, -9e8)


ENDS = [
    ("0001-01-01T00:00:00+12:00", -62135640000.0, False),
    ("0001-01-02T12:00:00+12:00", -62135510400.0, True),
    ("5138-11-16T09:46:39+00:00", 99999999999.0, True),
    ("5138-11-16T09:46:40+00:00", 100000000000.0, False),
    ("9999-12-31T23:59:59-12:00", 253402343999.0, False),
]


@pytest.mark.parametrize(("written", "seconds", "is_read"), ENDS, ids=str)
def test_one_moment_is_read_in_each_spelling_or_in_none(written, seconds, is_read):
    """A time that is read can also be shown as a date."""
    moment = datetime.fromisoformat(written)
    for value in (written, moment, seconds, str(seconds)):
        if is_read:
            assert to_seconds(value) == seconds
            assert to_date(seconds) == moment
        else:
            with pytest.raises(ValueError, match="years 1 to 5138"):
                to_seconds(value)


@pytest.mark.parametrize(
    ("times", "bad"),
    [
        # A bare number among dates would be a moment in 1970.
        (["2024-05-01", "20240502", "2024-05-03"], 1),
        (["20240501", "2024-05-02"], 1),
        (["2024-05-01", None], 1),
        (["1714560000", " "], 1),
        (["00:00:01", "00:00:02", "3"], 2),
        (["2024-05-01", "00:00:02"], 1),
        (["00:00:02", None], 1),
    ],
)
def test_a_column_has_one_kind_of_time(times, bad):
    """The error names both rows, even if they are in different timelines."""
    posts = with_times(times)
    posts[-1]["timeline_id"] = "b"
    with pytest.raises(PostError) as raised:
        to_timelines(Dataset.from_list(posts))
    for named in (f"Row {bad} ", "'timestamp'", repr(times[bad]), "row 0", repr(times[0])):
        assert named in str(raised.value)


@pytest.mark.parametrize(
    ("times", "warned"),
    [
        (["20240501", "20240502"], True),  # dates without dashes
        ([0.0, 3600.0], True),  # seconds of a video
        ([20240501, 1714608000], True),  # one of each
        ([0, 31536000], False),
        ([-1, 5], False),
        (["1970-01-01", "1970-01-02"], False),
        ([None, None], False),
    ],
)
def test_numbers_in_1970_are_read_as_seconds_with_a_warning(caplog, times, warned):
    (timeline,) = to_timelines(Dataset.from_list(with_times(times)))
    if times[0] is not None:
        assert timeline.timestamps == [to_seconds(time) for time in times]
    assert (caplog.text.count("1970"), caplog.text.count("milliseconds")) == ((1, 1) if warned else (0, 0))


def test_seconds_since_a_start_are_pointed_out_once_in_a_run(caplog, tmp_path):
    """Several tables, the timelines of a pipeline, and the files of a corpus cause one warning."""
    posts = [[0.0, 60.0], [1.0, 90.5], [7.0, 7.5]]
    for times in posts:
        to_timelines(Dataset.from_list(with_times(times)))
    model, tokenizer = tiny_reader()
    pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
    pipe([{"text": ["so", "sad"], "timestamp": times} for times in posts])
    tables = [write_posts(tmp_path / f"{number}.csv", with_times(times)) for number, times in enumerate(posts)]
    corpus = Corpus(tmp_path / "scored", tables, COLUMNS, 2)
    assert check_times(tables, [corpus.write_file(number)[1] for number in range(3)])
    assert len([record for record in caplog.records if "1970" in record.getMessage()]) == 1


@pytest.mark.parametrize("written", ["00:00:{:02}.5", "00:00:{:02},5", "0 days 00:00:{:02}.5"])
def test_durations_are_seconds_and_may_be_times_of_day(caplog, written):
    """A time of day without its date would lose the days between posts, so a warning names the date once."""
    for _ in range(2):
        (timeline,) = to_timelines(Dataset.from_list(with_times([written.format(second) for second in (7, 3, 40)])))
        assert timeline.timestamps == [3.5, 7.5, 40.5]
    assert len([record for record in caplog.records if "times of day" in record.getMessage()]) == 1


def test_dates_of_spss_are_pointed_out(caplog):
    """Seconds since 1582-10-14 would be dates in the 25th century."""
    seconds = (datetime(2024, 5, 1, 9) - datetime(1582, 10, 14)).total_seconds()
    to_timelines(Dataset.from_list(with_times([seconds, seconds + 60])))
    (text,) = [record.getMessage() for record in caplog.records if "SPSS" in record.getMessage()]
    shift = float(re.search("subtract ([0-9]+)", text)[1])
    assert to_date(seconds - shift) == datetime(2024, 5, 1, 9, tzinfo=UTC)


def test_durations_in_parquet_are_those_of_pandas(tmp_path):
    durations = pd.to_timedelta(["00:00:02.877", "3 days 00:00:01"])
    posts = pd.DataFrame({"timeline_id": "a", "timestamp": durations, "text": "so"})
    posts.to_parquet(tmp_path / "a.parquet")
    posts.to_csv(tmp_path / "a.csv", index=False)
    for name in ("a.parquet", "a.csv"):
        (timeline,) = to_timelines(load_table(tmp_path / name))
        assert timeline.timestamps == durations.total_seconds().tolist()


def rows_named(caplog, *words: str) -> list[int]:
    """Returns the first number of each warning with these words."""
    texts = [record.getMessage() for record in caplog.records]
    return [int(re.search("[0-9]+", text)[0]) for text in texts if all(word in text for word in words)]


def test_posts_that_are_there_twice_are_counted(caplog):
    """Compares the counts with pandas. Labels of two annotators may differ, and one may be missing."""
    generator = random.Random(0)
    posts = product("ab", (1e9, 1e9 + 1), ("so", "sad", ""))
    rows = [
        {"timeline_id": who, "timestamp": time, "text": text, "label": generator.choice(["IS", "O", None])}
        for who, time, text in posts
        for _ in range(generator.randint(1, 2))
    ]
    generator.shuffle(rows)
    to_timelines(Dataset.from_list(rows), ["IS", "O"])
    table = pd.DataFrame(rows)
    keys = ["timeline_id", "timestamp", "text"]
    labels = table.groupby(keys)["label"].nunique()
    equal, differing = table.duplicated(keys).sum(), (labels > 1).sum()
    assert 0 < differing < equal
    assert rows_named(caplog, "the time and the text") == [equal]
    assert rows_named(caplog, "CONTRADICT") == [differing]
    second = table[table.duplicated(keys)].sort_values("timeline_id", key=lambda who: who != rows[0]["timeline_id"])
    assert f"row {second.index[0]} " in caplog.text


def test_a_third_annotator_contradicts_the_second_also_where_the_first_has_no_label(caplog):
    post = {"timeline_id": "a", "timestamp": 1e9, "text": "so"}
    to_timelines(Dataset.from_list([{**post, "label": label} for label in ("", "IS", "O")]), ["IS", "O"])
    assert (rows_named(caplog, "the time and the text"), rows_named(caplog, "CONTRADICT")) == ([2], [1])


@pytest.mark.parametrize("change", ["timeline_id", "timestamp", "text", None])
def test_a_chat_may_repeat_itself(caplog, change):
    """Equal texts are fine at another time, or without times."""
    post = {"timeline_id": "a", "timestamp": "2024-05-01", "text": "ok", "label": "O"}
    posts = Dataset.from_list([post, {**post, **({change: "2024-05-02"} if change else {})}])
    to_timelines(posts if change else posts.remove_columns("timestamp"), ["IS", "O"])
    assert not rows_named(caplog, "the time and the text")


@pytest.mark.parametrize("name", ["[deleted]", "[removed]", "None", "N/A", "NA", "Unknown"])
def test_a_timeline_of_nobody_is_counted(caplog, tmp_path, name):
    posts = [{"timeline_id": who, "text": "so"} for who in (name, "ann", f" {name}", "deleted", "ann", name)]
    to_timelines(Dataset.from_list(posts))
    assert rows_named(caplog, "timeline", repr(name)) == [3]
    # The timelines of a corpus may be in several files.
    caplog.clear()
    logger.warning_once.cache_clear()
    tables = [write_posts(tmp_path / f"{number}.csv", posts) for number in range(2)]
    corpus = Corpus(tmp_path, tables, COLUMNS, 2)
    nobody = UnknownPeople()
    for number in range(2):
        nobody.update(corpus.write_file(number)[3])
    nobody.warn()
    assert rows_named(caplog, "timeline", repr(name)) == [6]


EXPECTED = [
    Timeline(
        timeline_id="a",
        input_rows=[2, 0, 3],
        texts=["glad", "sad", "sad sad glad"],
        timestamps=[30.0, 60.0, 60.0],
        post_ids=["2", "0", "3"],
        labels=[-100, 0, 1],
    ),
    Timeline(timeline_id="b", input_rows=[1], texts=[""], timestamps=[5.0], post_ids=["1"], labels=[1]),
]


def test_commas_in_times_that_may_divide_thousands_are_warned_of(caplog):
    for times, is_told in ((["0,000", "1,234"], False), (["1,234", "12,500", "999"], True), (["1,5", "2,25"], False)):
        caplog.clear()
        logger.warning_once.cache_clear()
        (timeline,) = to_timelines(Dataset.from_list(with_times(times)))
        assert timeline.timestamps == sorted(float(time.replace(",", ".")) for time in times)
        assert bool(rows_named(caplog, "thousands")) == is_told


def test_posts_become_sorted_timelines(caplog):
    posts = Dataset.from_list(POSTS)
    assert label_names(posts) == ["IS", "O"]
    assert to_timelines(posts, ["IS", "O"]) == EXPECTED
    assert "Sorting the posts" in caplog.text
    # Without times they keep their order.
    untimed = to_timelines(posts.remove_columns("timestamp"), ["IS", "O"])
    assert [timeline.labels for timeline in untimed] == [[0, -100, 1], [1]]


def test_names_of_class_label_columns():
    posts = Dataset.from_list([{"timeline_id": "a", "text": "", "label": label} for label in (1, None, -1)])
    posts = posts.cast_column("label", ClassLabel(names=["No", "Switch"]))
    assert label_names(posts) == ["No", "Switch"]
    assert to_timelines(posts, ["Switch", "No"])[0].labels == [0, -100, -100]


@pytest.mark.parametrize(
    ("given", "name"),
    [("007", "007"), (7.0, "7"), (2**63 + 1, str(2**63 + 1)), ("7.0", "7"), ("1e3", "1e3")],
)  # fmt: skip
def test_ids_are_text_as_it_is_written(given, name):
    column = pd.Series([given], dtype="uint64" if given == 2**63 + 1 else None)
    posts = Dataset.from_pandas(pd.DataFrame({"timeline_id": column, "text": ["hm"], "id": column}))
    (timeline,) = to_timelines(posts, columns={"id": "id"})
    assert (timeline.timeline_id, timeline.post_ids) == (name, [name])


@pytest.mark.parametrize("role", ["timeline", "text", "timestamp", "label", "id"])
def test_a_missing_column_names_the_option_that_renames_it(role):
    with pytest.raises(ValueError, match=f"'lost'.*timeline_id, timestamp, text, label.*--columns {role}="):
        to_timelines(Dataset.from_list(POSTS), ["IS", "O"], columns={role: "lost"})
    with pytest.raises(ValueError, match="'mood'.*--columns label="):
        label_names(Dataset.from_list(POSTS), "mood")
