"""Checks in which order posts are read whose times or whose file do not tell."""

import logging

import pytest
from datasets import Dataset

from modeling_tempoformer import to_timelines


def rows(days: list[int | None], name: str = "ann", **columns: list) -> list[dict]:
    """Returns posts of a timeline, named by their row, on days of May 2024."""
    cells = [{key: values[row] for key, values in columns.items()} for row in range(len(days))]
    times = [{"timestamp": f"2024-05-{day:02}"} if day else {} for day in days]
    return [{"timeline_id": name, "text": f"{name} {row}", **times[row], **cells[row]} for row in range(len(days))]


def texts_of(posts: list[dict], **settings) -> list[list[str]]:
    return [timeline.texts for timeline in to_timelines(Dataset.from_list(posts), **settings)]


def test_posts_of_one_day_run_as_the_rows_of_their_timeline():
    oldest_first = rows([1, 1, 2, 2, 2, 5])
    (expected,) = texts_of(oldest_first)
    assert expected == [post["text"] for post in oldest_first]
    assert texts_of(oldest_first[::-1]) == [expected]
    # One of a single day runs as the others of its file.
    single = rows([3, 3, 3], "bob")
    assert texts_of(oldest_first[::-1] + single[::-1])[1] == [post["text"] for post in single]
    assert texts_of(oldest_first + single)[1] == [post["text"] for post in single]


def test_days_in_no_order_are_warned_of_with_their_number(caplog):
    caplog.set_level(logging.WARNING)
    (texts,) = texts_of(rows([4, 2, 2, 3, 2, 4, 9]))
    assert texts == [f"ann {row}" for row in (1, 2, 4, 3, 0, 5, 6)]
    assert any("3 posts" in record.getMessage() for record in caplog.records)


ANSWERS = {"id": ["a", "b", "c"], "reply-to": [None, "a", "b"]}


@pytest.mark.parametrize("columns", [{"turn": [1, 2, 3]}, {"Turn ID": ["8", "9", "10"]}, ANSWERS], ids=list)
def test_posts_without_times_run_as_turns_or_answers_say(columns, caplog):
    caplog.set_level(logging.WARNING)
    posts = rows([None] * 3, **columns)
    expected = [[post["text"] for post in posts]]
    assert texts_of(posts) == texts_of(posts[::-1]) == expected
    # Rows are where they were in the file.
    (timeline,) = to_timelines(Dataset.from_list(posts[::-1]))
    assert timeline.input_rows == [2, 1, 0]
    # Both ways: the order of the file, and a warning
    mixed = posts + [{**post, "timeline_id": "bob"} for post in posts[::-1]]
    assert texts_of(mixed) == [*expected, expected[0][::-1]]
    name = next(name for name in columns if name != "id")
    assert any("2 of them" in record.getMessage() and name in record.getMessage() for record in caplog.records)
