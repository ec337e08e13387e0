"""Checks that we read right what other tools write or read otherwise, as the tables of docs/other_tools say."""

import json
import logging
from datetime import UTC, datetime, timedelta, timezone

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from modeling_tempoformer import Timeline, load_table, read_time, to_timelines
from modeling_tempoformer.times_tempoformer import logger


NINE = 1714554000.0  # 2024-05-01 09:00 UTC


@pytest.fixture
def log(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logger.warning_once.cache_clear()
    return caplog


def test_times_of_convokit_that_are_texts_are_sorted_as_numbers(tmp_path):
    """Read in another order, the texts "10" and "100" come before "9"."""
    utterances = [
        {"id": f"u{time}", "conversation_id": "c", "speaker": "a", "text": time, "meta": {}, "timestamp": time}
        for time in ("100", "9", "10")
    ]
    (tmp_path / "utterances.jsonl").write_text("\n".join(map(json.dumps, utterances)), encoding="utf-8")
    (timeline,) = to_timelines(load_table(tmp_path / "utterances.jsonl"))
    assert timeline.texts == ["9", "10", "100"] and timeline.timestamps == [9, 10, 100]


def test_durations_of_any_length_are_read(tmp_path):
    """Subtitles pass 99 hours, and a spreadsheet passes a day."""
    assert read_time("100:00:05,000") == read_time("100:00:05.000") == read_time(timedelta(hours=100, seconds=5))
    times = list(map(str, (timedelta(hours=2), timedelta(hours=30))))
    frame = pd.DataFrame({"timeline_id": "a", "text": ["x", "y"], "timestamp": times})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    (timeline,) = to_timelines(load_table(tmp_path / "a.xlsx"))
    assert timeline.timestamps == [7200, 108_000]


def test_durations_that_pandas_has_written_as_days_are_asked_about(tmp_path, log):
    times = [timedelta(hours=2), timedelta(hours=30)]
    frame = pd.DataFrame({"timeline_id": "a", "text": ["x", "y"], "timestamp": times})
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    (timeline,) = to_timelines(load_table(tmp_path / "a.xlsx"))
    assert timeline.timestamps == [2 / 24, 30 / 24] and "days of a spreadsheet" in log.text


def test_a_file_whose_times_all_became_1970_has_none(tmp_path, log):
    frame = pd.DataFrame({"timeline_id": "a", "text": ["x", "y"], "timestamp": pd.to_datetime(["1970-01-01"] * 2)})
    frame["timestamp"] = frame["timestamp"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    frame.to_csv(tmp_path / "a.csv", index=False)
    (timeline,) = to_timelines(load_table(tmp_path / "a.csv"))
    assert timeline.timestamps is None and "without times" in log.text


def test_each_time_keeps_its_own_zone(log):
    east = timezone(timedelta(hours=5))
    times = [datetime(2024, 5, 1, 14, tzinfo=east), datetime(2024, 5, 1, 9), datetime(2024, 5, 1, 9, tzinfo=UTC)]
    for order in (times, times[1:] + times[:1]):
        logger.warning_once.cache_clear()
        log.clear()
        assert Timeline.read("a", ["x"] * 3, order).timestamps == [NINE] * 3
        assert "zone" in log.text


@pytest.mark.parametrize("streaming", [False, True])
def test_an_id_is_one_text_in_all_files(tmp_path, streaming):
    """Whatever else stands in the column of a file: another number, a name, or nothing."""
    for name, other in (("a", "008"), ("b", "x9"), ("c", "")):
        (tmp_path / f"{name}.csv").write_text(f"timeline_id,speaker,text\n{name},007,x\n{name},{other},y\n")
    posts = load_table(tmp_path / "*.csv", streaming=streaming)
    speakers = [timeline.speakers for timeline in to_timelines(posts)]
    assert speakers == [["007", "008"], ["007", "x9"], ["007", ""]]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_large_number_beside_a_missing_one_keeps_its_digits(tmp_path, streaming):
    rows = [{"timeline_id": "a", "text": "x", "speaker": who} for who in (9007199254740993, None, 9007199254740995)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (timeline,) = to_timelines(load_table(tmp_path / "a.parquet", streaming=streaming))
    assert timeline.speakers == ["9007199254740993", "", "9007199254740995"]


def test_an_imported_column_is_no_answer_of_label_studio(tmp_path):
    """People have answered the second of two tasks with an imported label."""
    result = [{"from_name": "label", "type": "choices", "value": {"choices": ["switch"]}}]
    tasks = [
        {"data": {"timeline_id": "a", "text": text, "label": "imported"}, "annotations": [{"result": given}]}
        for text, given in (("x", []), ("y", result))
    ]
    (tmp_path / "a.json").write_text(json.dumps(tasks), encoding="utf-8")
    path = "annotations.result.value.choices"
    columns = {"timeline": "data.timeline_id", "text": "data.text", "label": path}
    posts = load_table(tmp_path / "a.json", columns=list(columns.values()))
    (timeline,) = to_timelines(posts, ["switch", "imported"], columns=columns)
    assert timeline.labels == [-100, 0]
