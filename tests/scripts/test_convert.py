"""Checks that `tempoformer convert` writes what the reader makes of a file: reading the table gives the same posts."""

import json

import pytest
from helpers import read_table, write_posts, write_table
from other_tools import write_samples

from modeling_tempoformer import label_names, load_table, to_timelines
from modeling_tempoformer.commands import convert


POSTS = [
    {"person": "bob", "when": "2024-05-02", "entry": "so", "mood": "-1", "kind": "B"},
    {"person": "ann", "when": "2024-05-01 09:00:00.25", "entry": ' a, "b"\r\nc\n', "mood": "2", "kind": "A"},
    {"person": "ann", "when": "2024-05-01", "entry": "007", "mood": "", "kind": ""},
    {"person": "bob", "when": "2024-05-02", "entry": "again", "mood": "0", "kind": "A"},
]
NAMED = {"timeline": "person", "timestamp": "when", "text": "entry", "state": "mood", "label": "kind"}


def converted(folder, file: str, *options: str) -> list[dict[str, str]]:
    convert.main(["--posts_file", file, "--output", str(folder / "posts_out.csv"), *options])
    return read_table(folder / "posts_out.csv")


def test_the_table_reads_as_the_file_does(tmp_path, capsys):
    file = write_posts(tmp_path / "posts.csv", POSTS)
    table = converted(tmp_path, file, "--columns", *(f"{role}={column}" for role, column in NAMED.items()))
    assert list(table[0]) == ["timeline_id", "post_id", "timestamp", "text", "label", "state"]
    # The file runs from the newest post to the oldest.
    assert [row["post_id"] for row in table] == ["3", "0", "2", "1"]
    written = load_table(tmp_path / "posts_out.csv")
    assert label_names(written) == ["A", "B"]
    same = to_timelines(written, ["A", "B"], columns={"id": "post_id"})
    original = to_timelines(load_table(file), ["A", "B"], columns=NAMED)
    for one, other in zip(same, original, strict=True):
        for name in ("timeline_id", "texts", "timestamps", "labels", "states", "post_ids"):
            assert getattr(one, name) == getattr(other, name)
    output = capsys.readouterr().out
    assert "4 posts of 2 timelines, from 4 rows" in output and "2 A, 1 B; 1 none" in output


def test_what_is_not_there_gets_no_column(tmp_path):
    file = write_table(
        tmp_path / "posts.jsonl", [{"timeline_id": "a", "text": "x"}, {"timeline_id": "a", "text": "y"}]
    )
    assert converted(tmp_path, file) == [
        {"timeline_id": "a", "post_id": number, "text": text} for number, text in (("0", "x"), ("1", "y"))
    ]
    seconds = [{"timeline_id": "a", "timestamp": time, "text": "x"} for time in (0, 1.5, 700)]
    table = converted(tmp_path, write_posts(tmp_path / "seconds.csv", seconds))
    assert [float(row["timestamp"]) for row in table] == [0, 1.5, 700]


def test_posts_of_a_tool(tmp_path, monkeypatch):
    """They keep their ids, and need no option."""
    write_samples(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert converted(tmp_path, "discord.json") == [
        {"timeline_id": "100", "post_id": post, "timestamp": time, "text": text, "speaker": who}
        for post, time, text, who in (
            ("901", "2024-05-01T09:00:00.123000Z", "so happy today", "11"),
            ("902", "2024-05-01T09:01:00.000000Z", "nothing new", "12"),
        )
    ]


def test_rows_of_annotators_are_merged_and_rows_without_text_left_out(tmp_path):
    posts = [{"timeline_id": "a", "timestamp": time, "text": "xy"[time], "label": "B"} for time in (0, 1)]
    rows = [{**post, "coder": coder} for post in posts for coder in "pq"]
    rows += [{**posts[0], "timestamp": "", "coder": "p"}]
    file = write_posts(tmp_path / "posts.csv", [*rows, {**rows[0], "text": "z", "timestamp": 2, "label": "A"}])
    table = converted(tmp_path, file, "--columns", "annotator=coder", "--drop_incomplete")
    assert [(row["text"], row["label"]) for row in table] == [("x", "B"), ("y", "B"), ("z", "A")]


def test_a_bad_file_is_the_reader_s_error(tmp_path):
    (tmp_path / "posts.json").write_text(json.dumps({"messages": []}, indent=1))
    with pytest.raises(ValueError, match="--records; its lists are messages"):
        converted(tmp_path, str(tmp_path / "posts.json"))
