"""Checks posts as a person gives them: tables of three kinds, lines with times, and input that is refused."""

import csv
import io

import pytest
from space_posts import MOST_POSTS, parse_posts

from modeling_tempoformer import to_timelines


@pytest.mark.parametrize(("mark", "end"), [(",", "\n"), (";", "\r\n"), ("\t", "\n")])
def test_a_table(mark, end):
    file = io.StringIO(newline="")
    rows = [
        ["timeline_id", "Timestamp", "text", "mood", "label"],
        ["ann", "2024-05-01", f'a, "b"; c\td{end}e', "good", "Switch"],
        ["007", "2024-05-02T22:10:00Z", "", "bad", ""],
    ]
    csv.writer(file, delimiter=mark, lineterminator=end).writerows(rows)
    posts = parse_posts(file.getvalue() + end)
    assert posts.to_list() == [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    ann, other = to_timelines(posts, ["Switch"])
    assert (ann.texts, ann.timestamps, ann.labels) == ([rows[1][2]], [1714521600.0], [0])
    assert (other.timeline_id, other.timestamps) == ("007", [1714687800.0])


def test_ids_under_nearly_the_usual_name_are_not_replaced():
    for header in ("Timeline ID,Text", "timeline_id,text", " TIMELINE_ID, text"):
        timelines = to_timelines(parse_posts(f"{header}\nann,so\nben,sad\n"))
        assert [timeline.timeline_id for timeline in timelines] == ["ann", "ben"]


@pytest.mark.parametrize(
    ("time", "between", "text"),
    [
        ("2024-05-01 09:00", "  ", "so happy, today"),
        ("2024-05-01 09:00+02:00", ", ", "3 times"),
        ("2024-05-01 09:00", ";", ""),
        ("1.5.2024 09:00", " ", "so happy"),
        # The reader of times refuses these. They are not the beginning of a text.
        ("2024-05-01 9:00", " ", "so happy"),
        ("2024-5-1", " ", "so happy"),
    ],
)
def test_a_line_after_its_time(time, between, text):
    rows = parse_posts(f"\n{time}{between}{text}\r\n\n2024-05-02 next").to_list()
    assert rows == [
        {"timeline_id": "your posts", "timestamp": time, "text": text},
        {"timeline_id": "your posts", "timestamp": "2024-05-02", "text": "next"},
    ]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (" \n", "no posts yet"),
        ("so happy today", "Line 1"),
        ("2024-05-01 so happy\n\n01/05/2024 today", "Line 3"),
        ("person,message\nann,so happy", "text"),
        ("text,text\na,b", "each differently"),
        ("text,timestamp\na,2024-05-01\nso happy, today,2024-05-01", "line 3"),
        ('text\n"so happy', "line 2"),
        ("text\n" + "x\n" * (MOST_POSTS + 1), f"{MOST_POSTS + 1:,} posts"),
    ],
)
def test_refused(text, named):
    with pytest.raises(ValueError, match=named):
        parse_posts(text)
