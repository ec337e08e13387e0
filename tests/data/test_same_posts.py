"""The same posts in every format, order and spelling are the same timelines."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, NamedTuple

import pandas as pd
import pytest
from helpers import write_table

from modeling_tempoformer.data.tables import load_table
from modeling_tempoformer.data.timelines import label_names, to_timelines


# Ids of posts, people, seconds since 1970, texts and labels. 0.25 s and the second before 2024 are in them.
ROWS = [
    ("p1", "7", 1714554000, "so glad", 1),
    ("p2", "7", 1714554060, "", 0),
    ("p3", "007", 1704067199, '"NA", she\nsaid\t\U0001f642', None),
    ("p4", "18446744073709551615", 1714554000, "nan", 10),
    ("p5", "007", 1704067200, "2024-05-01", 0),
    ("p6", "18446744073709551614", 86400 * 365 * 40, "1e3", 1),
    ("p7", "7", 1714640400, "null", None),
]
COLUMNS = ["post", "timeline_id", "timestamp", "text", "label"]
# By hand: the names of the classes are 0, 1, 10, and posts are in order of time.
EXPECTED = {
    "7": (["p1", "p2", "p7"], [1714554000.0, 1714554060.0, 1714640400.0], ["so glad", "", "null"], [1, 0, -100]),
    "007": (["p3", "p5"], [1704067199.0, 1704067200.0], ['"NA", she\nsaid\t\U0001f642', "2024-05-01"], [-100, 0]),
    "18446744073709551615": (["p4"], [1714554000.0], ["nan"], [2]),
    "18446744073709551614": (["p6"], [1261440000.0], ["1e3"], [1]),
}


class Spelling(NamedTuple):
    """How a program writes a time, a label (None: there is none) and an id."""

    time: Callable[[int, int], Any] = lambda seconds, row: seconds
    label: Callable[[int | None], Any] = lambda label: label
    id: Callable[[str], str] = str


def iso(seconds: int, zone=UTC) -> str:
    return datetime.fromtimestamp(seconds, zone).isoformat()


ZONES = [UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-4))]
SPELLINGS = {
    "numbers": Spelling(),
    "texts of numbers": Spelling(
        lambda seconds, row: f"{seconds}.0", lambda label: "" if label is None else str(label)
    ),
    "Z": Spelling(lambda seconds, row: iso(seconds).replace("+00:00", "Z")),
    "many zones": Spelling(lambda seconds, row: iso(seconds, ZONES[row % 3])),
    "no zone, a space": Spelling(lambda seconds, row: iso(seconds)[:19].replace("T", " ")),
    "no dashes": Spelling(lambda seconds, row: datetime.fromtimestamp(seconds, UTC).strftime("%Y%m%dT%H%M%SZ")),
    "labels that became floats": Spelling(label=lambda label: None if label is None else float(label)),
    "texts of floats": Spelling(label=lambda label: "nan" if label is None else f"{label}.0"),
    "null, and -100": Spelling(label=lambda label: {None: "null", 0: "0.0"}.get(label, str(label))),
    "-100": Spelling(label=lambda label: -100 if label is None else label),
    "white space": Spelling(
        lambda seconds, row: f" {iso(seconds)} ",
        lambda label: " " if label is None else f"{label} ",
        lambda name: f"  {name}\t",
    ),
}


def spell(name: str, order: int) -> list[dict[str, Any]]:
    """The rows in a spelling, in an order of their own."""
    how = SPELLINGS[name]
    rows = [
        dict(zip(COLUMNS, (how.id(post), how.id(person), how.time(time, row), text, how.label(label)), strict=True))
        for row, (post, person, time, text, label) in enumerate(ROWS)
    ]
    random.Random(order).shuffle(rows)
    return rows


def read(path: str) -> dict[str, tuple]:
    """What a file says of each person, with the class names that are found in it."""
    posts = load_table(path)
    names = label_names(posts)
    assert names == ["0", "1", "10"], path
    columns = ("post_ids", "timestamps", "texts", "labels")
    timelines = to_timelines(posts, names, id_column="post")
    return {timeline["timeline_id"]: tuple(timeline[name] for name in columns) for timeline in timelines}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl.gz"])
def test_the_same_timelines(tmp_path, spelling, name):
    assert read(write_table(tmp_path / name, spell(spelling, order=len(spelling)))) == EXPECTED


@pytest.mark.parametrize(
    "dtype", ["datetime64[s]", "datetime64[ns]", "datetime64[ns, Asia/Kolkata]", "int64", "float64"]
)
def test_the_same_timelines_from_typed_columns(tmp_path, dtype):
    """Of Parquet, as pandas writes it: dates, labels with gaps as floats."""
    table = pd.DataFrame(ROWS, columns=COLUMNS)
    if dtype.startswith("datetime"):
        table["timestamp"] = pd.to_datetime(table["timestamp"], unit="s", utc="," in dtype).astype(dtype)
    else:
        table["timestamp"] = table["timestamp"].astype(dtype)
    assert table["label"].dtype == "float64"
    table.to_parquet(tmp_path / "a.parquet")
    assert read(str(tmp_path / "a.parquet")) == EXPECTED
