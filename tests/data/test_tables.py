"""Files of posts to datasets: what was written is what is read, streamed or not."""

import csv
import os

import pandas as pd
import pytest
from datasets import ClassLabel, Dataset
from helpers import write_table

from modeling_tempoformer.data.tables import load_table
from modeling_tempoformer.data.timelines import to_timelines


TEXT = "\U0001f642 é \u202eabc\u200d,\n\r\n\"quoted\" 'NA'; tab\there"
POSTS = [
    {"timeline_id": "007", "timestamp": "2024-05-01T09:00:00Z", "text": TEXT, "label": "O"},
    {"timeline_id": "007", "timestamp": "2024-05-02", "text": "NA", "label": "O"},
    {"timeline_id": "18446744073709551615", "timestamp": "2024-05-03", "text": "null", "label": "O"},
    {"timeline_id": "18446744073709551614", "timestamp": "2024-05-04", "text": "1e3", "label": "O"},
]
KINDS = ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.parquet"]
STREAMING = pytest.mark.parametrize("streaming", [False, True])


@STREAMING
@pytest.mark.parametrize("name", [*KINDS, "a.csv.gz", "A.JSON.gz", "A.CSV"])
def test_every_kind_of_file_gives_what_was_written(tmp_path, name, streaming):
    table = load_table(write_table(tmp_path / name, POSTS), streaming)
    assert list(table) == POSTS and table.column_names == list(POSTS[0])
    # A stream can be read again, as in a second epoch.
    assert list(table) == POSTS
    timelines = list(to_timelines(table, ["O"]))
    assert [(timeline["timeline_id"], len(timeline["texts"])) for timeline in timelines] == [
        ("007", 2), ("18446744073709551615", 1), ("18446744073709551614", 1)
    ]  # fmt: skip


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_cells_are_separated_as_the_names_are(tmp_path, name, mark):
    """As spreadsheets in other countries write a CSV; the texts hold all three marks."""
    pd.DataFrame(POSTS).to_csv(tmp_path / name, sep=mark, index=False)
    assert list(load_table(tmp_path / name)) == POSTS


@pytest.mark.parametrize("name", ["a b.csv", "posts[1].csv", "x::y.csv", "{a}*?.jsonl", "hf:.parquet"])
def test_a_file_may_have_any_name(tmp_path, name):
    assert list(load_table(write_table(tmp_path / name, POSTS))) == POSTS


@STREAMING
@pytest.mark.parametrize("name", KINDS)
def test_a_file_that_was_replaced_is_read_anew(tmp_path, name, streaming):
    """Also where its path, size and time stamp are those of the file before."""
    for text in ("sad", "mad"):
        path = write_table(tmp_path / name, [POSTS[0] | {"text": text}])
        os.utime(path, (1e9, 1e9))
        assert [row["text"] for row in load_table(path, streaming)] == [text]


def test_no_copy_of_a_table_is_written(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", cache)
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        for streaming in (False, True):
            list(load_table(write_table(tmp_path / name, POSTS), streaming))
    assert sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) == 0


@STREAMING
def test_numbers_in_json_stay_as_they_are_written(tmp_path, streaming):
    """But for whole floats, which programs make of integers in a column with gaps."""
    path = tmp_path / "a.jsonl"
    numbers = ["18446744073709551615", "18446744073709551616", "-9223372036854775809", "0.10", "1e3", "1714554000.5"]
    lines = [f'{{"n": {number}, "nested": {{"a": [1]}}}}' for number in numbers]
    lines += ['{"n": 7.0}', '{"n": -100.00}', '{"n": null}', '{"n": NaN}', '{"late": true}']
    path.write_text("\ufeff" + "\n\n".join(lines))
    table = load_table(str(path), streaming)
    assert [row["n"] for row in table] == [*numbers, "7", "-100", None, None, None]
    assert table.column_names == ["n", "late"] and list(table)[-1]["late"] == "true"


@STREAMING
def test_parquet_keeps_its_types(tmp_path, streaming):
    path = str(tmp_path / "a.parquet")
    made = Dataset.from_pandas(
        pd.DataFrame({"timeline_id": [2**64 - 1], "timestamp": [pd.Timestamp("2024-05-01")], "text": "hm", "label": 1})
    )
    made.cast_column("label", ClassLabel(names=["No", "Yes"])).to_parquet(path)
    (timeline,) = to_timelines(load_table(path, streaming), ["Yes", "No"])
    assert (timeline["timeline_id"], timeline["timestamps"], timeline["labels"]) == (
        str(2**64 - 1),
        [1714521600.0],
        [0],
    )


@STREAMING
@pytest.mark.parametrize(
    ("mark", "end"),
    [("\ufeff", "\n"), ("", "\r\n"), ("", "\r"), ("", "\n\n")],
    ids=["BOM", "CRLF", "CR", "blank"],
)
def test_csv_as_programs_write_it(tmp_path, mark, end, streaming):
    cells = ["timeline_id,text,label", 'NA,"so, ""glad""",O', "007,,", '008,"5"" high",']
    (tmp_path / "a.csv").write_bytes((mark + end.join(cells) + end).encode())
    rows = [tuple(row.values()) for row in load_table(str(tmp_path / "a.csv"), streaming)]
    assert rows == [("NA", 'so, "glad"', "O"), ("007", "", ""), ("008", '5" high', "")]


@STREAMING
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_backslashes_and_carriage_returns_are_text(tmp_path, quoting, streaming):
    """Of programs that double quotes, as RFC 4180 says."""
    texts = ["C:\\dir\\", "C:\\new, \\", "\\", "\\\\", 'wrote \\"hi\\"', '\\"', '"\\', "o\\\n", "so\r", "\r\n\rso", ""]
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=quoting, lineterminator="\r\n")
        writer.writerows([["text", "place"], *([text, text] for text in texts)])
    assert [tuple(row.values()) for row in load_table(path, streaming)] == [(text, text) for text in texts]


@STREAMING
def test_lines_end_as_old_programs_end_them(tmp_path, streaming):
    """In a carriage return, also with line feeds in cells, or in two carriage returns and a line feed."""
    for end in ("\r", "\r\r\n"):
        (tmp_path / "a.csv").write_bytes(f'text,label{end}"so\nhappy",O{end}sad,"O"{end}'.encode())
        rows = [tuple(row.values()) for row in load_table(tmp_path / "a.csv", streaming)]
        assert rows == [("so\nhappy", "O"), ("sad", "O")]


@STREAMING
def test_a_column_may_change_late_in_a_file(tmp_path, streaming):
    """A label and a kind of id come only behind 1,000 posts, and a cell is larger than any buffer by default."""
    posts = [{"timeline_id": number, "text": "glad"} for number in range(3000)]
    posts += [{"timeline_id": "ann", "text": "so " * 1_000_000, "label": "b"}]
    for name in ("a.jsonl", "a.csv"):
        filled = [{"timeline_id": "", "text": "", "label": ""} | post for post in posts]
        *_, last = load_table(write_table(tmp_path / name, posts if name == "a.jsonl" else filled), streaming)
        assert last == posts[-1]


def test_the_limit_of_other_readers_of_csv_stays_as_it_is(tmp_path):
    before = csv.field_size_limit()
    rows = iter(
        load_table(write_table(tmp_path / "a.csv", [{"text": "x" * 2 * before, "label": "O"}] * 3), streaming=True)
    )
    assert len(next(rows)["text"]) == 2 * before and csv.field_size_limit() == before
    (tmp_path / "b.csv").write_text('text,label\n"so" happy,O\n')
    with pytest.raises(ValueError, match="line 2"):
        load_table(tmp_path / "b.csv")
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
@pytest.mark.parametrize("at", [5, 50_000])
def test_the_line_of_a_bad_byte_is_named(tmp_path, name, at):
    """Wherever it is in a file, and what to do about it."""
    if name == "a.json":
        line, head, tail = b'{"text": "%s"},\n', b"[\n", b'{"text": "end"}]'
    else:
        line, head, tail = (b"%s,x\n", b"text,y\n", b"") if name == "a.csv" else (b'{"text": "%s"}\n', b"\n", b"")
    lines = [line % b"glad"] * at + [line % "déjà".encode("cp1252")] + [line % b"glad"] * 10
    (tmp_path / name).write_bytes(head + b"".join(lines) + tail)
    with pytest.raises(ValueError, match=f"{name}, line {at + 2}: the byte 0xe9 .*UTF-8.*cp1252"):
        load_table(str(tmp_path / name))


@pytest.mark.parametrize("at", [0, 100_000])
def test_the_line_of_a_bad_row_is_named(tmp_path, at):
    """Quoted line breaks before it count."""
    (tmp_path / "a.csv").write_text("a,b\n" + '1,"two\nlines"\n' * at + "1,2,3\n" + "1,2\n")
    for streaming in (False, True):
        with pytest.raises(ValueError, match=f"line {2 * at + 2}: 3 cells in a table of 2 columns"):
            load_table(str(tmp_path / "a.csv"), streaming)
