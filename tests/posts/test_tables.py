"""Checks that files of posts are read as they were written."""

import csv

import pandas as pd
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from helpers import write_table
from pyarrow import parquet as pq

from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.tables import find_files, load_table, read_tables, stream_table
from modeling_tempoformer.posts.timelines import label_names, to_timelines


TEXT = "\U0001f642 é \u202eabc\u200d,\n\r\n\"quoted\" 'NA'; tab\there"
POSTS = [
    {"timeline_id": "007", "timestamp": "2024-05-01T09:00:00Z", "text": TEXT, "label": "O"},
    {"timeline_id": "007", "timestamp": "2024-05-02", "text": "NA", "label": "O"},
    {"timeline_id": "18446744073709551615", "timestamp": "2024-05-03", "text": "null", "label": "O"},
    {"timeline_id": "18446744073709551614", "timestamp": "2024-05-04", "text": "1e3", "label": "O"},
]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.parquet", "a.csv.gz", "A.JSON.gz"])
def test_every_kind_of_file_gives_what_was_written(tmp_path, name):
    table = load_table(write_table(tmp_path / name, POSTS))
    assert list(table) == POSTS and table.column_names == list(POSTS[0])
    timelines = to_timelines(table, ["O"])
    assert [timeline.timeline_id for timeline in timelines] == ["007", "18446744073709551615", "18446744073709551614"]


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_cells_are_separated_as_the_names_are(tmp_path, mark):
    """Spreadsheets of some countries write other separators. The texts contain all three."""
    days = [f"{day}.12.2024" for day in (28, 29, 30, 31)]
    posts = [{**post, "timestamp": day} for post, day in zip(POSTS, days, strict=True)]
    pd.DataFrame(posts).to_csv(tmp_path / "a.csv", sep=mark, index=False, encoding="utf-8-sig")
    table = load_table(tmp_path / "a.csv")
    assert list(table) == posts
    assert to_timelines(table, ["O"])[-1].timestamps == [1735603200.0]


def test_numbers_in_json_stay_as_they_are_written(tmp_path):
    """Whole floats are the exception, because programs write integers so in a column with gaps."""
    numbers = ["18446744073709551615", "18446744073709551616", "-9223372036854775809", "0.10", "1e3", "1714554000.5"]
    lines = [f'{{"n": {number}, "nested": {{"a": [1]}}}}' for number in numbers]
    lines += ['{"n": 7.0}', '{"n": -100.00}', '{"n": null}', '{"n": NaN}', '{"late": true}']
    (tmp_path / "a.jsonl").write_text("\ufeff" + "\n\n".join(lines))
    table = load_table(tmp_path / "a.jsonl")
    assert table["n"][:] == [*numbers, "7", "-100", None, None, None]
    assert table.column_names == ["n", "late"] and table[-1]["late"] == "true"


@pytest.mark.parametrize(
    "dtype", ["datetime64[s]", "datetime64[ns]", "datetime64[ns, Asia/Kolkata]", "int64", "float64"]
)
def test_parquet_keeps_its_types(tmp_path, dtype):
    """Labels with gaps are floats, as pandas writes them."""
    times = pd.Series([1714554000, 1704067199])
    if dtype.startswith("datetime"):
        times = pd.to_datetime(times, unit="s", utc="," in dtype)
    posts = {"timeline_id": [2**64 - 1] * 2, "timestamp": times.astype(dtype), "text": "nan", "label": [1.0, None]}
    pd.DataFrame(posts).to_parquet(tmp_path / "a.parquet")
    table = load_table(tmp_path / "a.parquet")
    (timeline,) = to_timelines(table, label_names(table))
    values = [timeline.timeline_id, timeline.timestamps, timeline.texts, timeline.labels]
    assert values == [str(2**64 - 1), [1704067199.0, 1714554000.0], ["nan"] * 2, [-100, 0]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", "\r\r\n"], ids=ascii)
def test_csv_as_programs_write_it(tmp_path, end):
    cells = ["timeline_id,text,label", 'NA,"so, ""glad""",O', "007,,", '008,"5"" high",', '9,"so\nhappy",O']
    (tmp_path / "a.csv").write_bytes(("\ufeff" + end.join(cells) + end).encode())
    rows = [tuple(row.values()) for row in load_table(tmp_path / "a.csv")]
    assert rows == [("NA", 'so, "glad"', "O"), ("007", "", ""), ("008", '5" high', ""), ("9", "so\nhappy", "O")]


def test_backslashes_and_carriage_returns_are_text(tmp_path):
    """Programs that follow RFC 4180 double quotes."""
    texts = ["C:\\dir\\", "C:\\new, \\", "\\", 'wrote \\"hi\\"', '\\"', '"\\', "o\\\n", "so\r", "\r\n\rso", ""]
    path = tmp_path / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerows([["text", "place"], *([text, text] for text in texts)])
    assert [tuple(row.values()) for row in load_table(path)] == [(text, text) for text in texts]


def test_a_column_may_change_late_in_a_file(tmp_path):
    """A label and another kind of id come only after 1,000 posts. One cell exceeds every default buffer."""
    posts = [{"timeline_id": number, "text": "glad"} for number in range(3000)]
    posts += [{"timeline_id": "ann", "text": "so " * 1_000_000, "label": "b"}]
    for name in ("a.jsonl", "a.csv"):
        filled = [{"timeline_id": "", "text": "", "label": ""} | post for post in posts]
        *_, last = load_table(write_table(tmp_path / name, posts if name == "a.jsonl" else filled))
        assert last == posts[-1]


def test_the_line_of_a_bad_row_is_named(tmp_path):
    """Earlier quoted line breaks count."""
    (tmp_path / "a.csv").write_text("a,b\n" + '1,"two\nlines"\n' * 50_000 + "1,2,3\n" + "1,2\n")
    with pytest.raises(ValueError, match="line 100002: 3 cells in a table of 2 columns"):
        load_table(tmp_path / "a.csv")


@pytest.mark.parametrize("kind", ["jsonl", "json", "parquet"])
def test_a_list_of_one_label_is_that_label_and_several_are_refused(tmp_path, kind):
    """Annotation tools export such lists. In JSON the first list comes late, after labels without one."""
    labels = [["O"], ["IS"], []] if kind == "parquet" else [*["O"] * 1500, ["IS"], [], None, ["O"]]
    posts = [{"timeline_id": "ann", "text": "so sad", "label": label} for label in labels]
    table = load_table(write_table(tmp_path / f"one.{kind}", posts))
    assert label_names(table) == ["IS", "O"]
    expected = [1, 0, -100] if kind == "parquet" else [*[1] * 1500, 0, -100, -100, 1]
    assert [timeline.labels for timeline in to_timelines(table, ["IS", "O"])] == [expected]

    posts += [{**posts[0], "label": ["O", "IS"]}]
    table = load_table(write_table(tmp_path / f"two.{kind}", posts))
    for read in (label_names, lambda table: to_timelines(table, ["IS", "O"])):
        with pytest.raises(PostError, match=rf"Row {len(labels)} .*'label'.*\['O', 'IS'\]"):
            read(table)
    # No test reads that column.
    assert len(to_timelines(table.rename_column("label", "tags"))[0].texts) == len(posts)


def test_lists_of_integers_with_names():
    features = {
        "timeline_id": Value("string"),
        "text": Value("string"),
        "label": List(ClassLabel(names=["No", "Yes"])),
    }
    posts = {"timeline_id": ["ann"] * 3, "text": ["so"] * 3, "label": [[1], [], [0]]}
    table = Dataset.from_dict(posts, Features(features))
    assert label_names(table) == ["No", "Yes"]
    assert to_timelines(table, ["No", "Yes"])[0].labels == [1, -100, 0]


def test_what_others_have_set_for_csv_stays(tmp_path):
    """The limit stays while one file is read, and while several are."""
    posts = [{"timeline_id": str(number), "text": "so " * 100} for number in range(2500)]
    path = write_table(tmp_path / "a.csv", posts)
    before = csv.field_size_limit(200)
    try:
        one, other = read_tables(path), read_tables(path)
        rows = []
        for pieces in zip(one, other, strict=True):
            assert csv.field_size_limit() == 200
            rows += pieces[0].to_pylist()
            assert pieces[0] == pieces[1]
        assert rows == posts and csv.field_size_limit() == 200
    finally:
        csv.field_size_limit(before)


def write_parquets(folder, *columns: dict) -> str:
    """Writes two posts to a file for each of some `columns`, with this column, and returns the files' pattern."""
    for number, column in enumerate(columns):
        base = {"timeline_id": ["a", "b"], "text": ["so", "sad"]}
        pq.write_table(pa.table({**base, **column}), folder / f"{number}.parquet")
    return str(folder / "*.parquet")


def each_reading(pattern: str):
    """Returns the timelines of files that are read at once, and in a stream."""
    return [to_timelines(load_table(pattern)), list(to_timelines(stream_table(find_files(pattern))))]


NINE = 1714554000
STAMPS = {
    "units": (pa.timestamp("s"), pa.timestamp("ns")),
    "zones": (pa.timestamp("ms", "UTC"), pa.timestamp("us", "Asia/Kolkata")),
    "numbers": (pa.int64(), pa.float64()),
    "small numbers": (pa.uint32(), pa.int64()),
}


@pytest.mark.parametrize("case", STAMPS)
@pytest.mark.parametrize("turned", [False, True])
def test_files_with_times_of_other_types_are_one_table(tmp_path, case, turned):
    kinds = STAMPS[case][::-1] if turned else STAMPS[case]
    columns = []
    for number, kind in enumerate(kinds):
        seconds = [NINE + number, NINE + 10 + number]
        units = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[getattr(kind, "unit", "s")]
        times = pa.array([second * units for second in seconds], pa.int64()).cast(kind)
        columns.append({"timestamp": times, "timeline_id": [f"a{number}", f"b{number}"]})
    pattern = write_parquets(tmp_path, *columns)
    for timelines in each_reading(pattern):
        assert {each.timeline_id: each.timestamps for each in timelines} == {
            f"{name}{number}": [NINE + later + number] for number in range(2) for name, later in (("a", 0), ("b", 10))
        }


NAMES_OF_TYPES = {
    "texts": (pa.array(["7", "8"]), pa.array(["9", "10"], pa.large_string())),
    "factors": (pa.array(["7", "8"]).dictionary_encode(), pa.array(["9", "10"])),
    "numbers": (pa.array([7, 8]), pa.array([9.0, 10.0])),
}


@pytest.mark.parametrize("case", NAMES_OF_TYPES)
@pytest.mark.parametrize("turned", [False, True])
def test_files_with_names_of_other_types_are_one_table(tmp_path, case, turned):
    columns = [{"timeline_id": column} for column in NAMES_OF_TYPES[case][:: -1 if turned else 1]]
    for timelines in each_reading(write_parquets(tmp_path, *columns)):
        assert sorted((each.timeline_id for each in timelines), key=int) == ["7", "8", "9", "10"]


UNLIKE = {
    "with and without zone": ([pa.timestamp("us"), [NINE, NINE]], [pa.timestamp("us", "UTC"), [NINE, NINE]]),
    "numbers and texts": ([pa.int64(), [7, 8]], [pa.string(), ["9", "10"]]),
    "narrow floats": ([pa.float64(), [0.7, 0.8]], [pa.float32(), [0.7, 0.8]]),
}


@pytest.mark.parametrize("case", UNLIKE)
def test_columns_that_cannot_be_put_together_are_named_with_both_files(tmp_path, case):
    columns = [{"x": pa.array(values, kind)} for kind, values in UNLIKE[case]]
    pattern = write_parquets(tmp_path, *columns)
    for read in (load_table, lambda each: list(stream_table(find_files(each)))):
        with pytest.raises(ValueError) as raised:
            read(pattern)
        named = ["0.parquet", "1.parquet", "'x'", *(str(kind) for kind, _ in UNLIKE[case])]
        assert [word for word in named if word not in str(raised.value)] == []


def test_a_number_that_is_too_large_for_a_float_is_named(tmp_path):
    pattern = write_parquets(tmp_path, {"x": pa.array([7.0, 8.0])}, {"x": pa.array([2**53 + 1, 7])})
    with pytest.raises(ValueError, match=f"1.parquet.*'x'.*{2**53 + 1}"):
        load_table(pattern)


def test_class_ids_of_files_with_other_names_are_not_mixed(tmp_path):
    for number, names in enumerate((["A", "B"], ["B", "A"])):
        features = Features(
            {"timeline_id": Value("string"), "text": Value("string"), "label": ClassLabel(names=names)}
        )
        rows = {"timeline_id": [str(number)] * 2, "text": ["so", "sad"], "label": [0, 1]}
        Dataset.from_dict(rows, features).to_parquet(tmp_path / f"{number}.parquet")
    pattern = str(tmp_path / "*.parquet")
    for read in (load_table, lambda each: list(stream_table(find_files(each)))):
        with pytest.raises(ValueError, match="0.parquet.*1.parquet.*'label'.*A, B.*B, A"):
            read(pattern)
    # The names stay where another column has other types.
    first = pq.read_table(tmp_path / "0.parquet")
    for number, kind in enumerate((pa.int32(), pa.int64())):
        pq.write_table(first.append_column("x", pa.array([1, 2], kind)), tmp_path / f"{number}.parquet")
    assert label_names(load_table(pattern)) == ["A", "B"]
    assert label_names(stream_table(find_files(pattern))) == ["A", "B"]
