"""Checks codes for missing values: those that are named, and those that a warning names."""

import logging

import pyarrow as pa
import pytest
from datasets import Dataset
from helpers import write_table

from modeling_tempoformer import label_names, load_table, to_timelines
from modeling_tempoformer.posts.missing_codes import find_codes, without_codes


POSTS = [
    {"timeline_id": "ann", "timestamp": "2024-05-01", "text": "so", "label": "0", "state": "3"},
    {"timeline_id": "ann", "timestamp": "2024-05-02", "text": "NA", "label": "-1", "state": "-99"},
    {"timeline_id": "ann", "timestamp": "NA", "text": "hm", "label": "1", "state": "NA"},
    {"timeline_id": "NA", "timestamp": "2024-05-04", "text": "no NA", "label": "1", "state": " 4"},
]


def test_codes_that_are_named_are_empty_in_all_columns(tmp_path):
    path = write_table(tmp_path / "posts.csv", POSTS)
    table = load_table(path, missing=["NA", "-99", "-1"])
    expected = [
        {name: None if value in ("NA", "-99", "-1") else value for name, value in post.items()} for post in POSTS
    ]
    assert table.to_list() == expected
    assert label_names(table) == ["0", "1"]
    (timeline,) = to_timelines(table, ["0", "1"], drop_incomplete=True)
    assert (timeline.texts, timeline.labels, timeline.states) == (["so"], [0], ["3"])


def test_numbers_are_codes_whatever_their_type():
    columns = {"a": pa.array([1, -99, None]), "b": pa.array([0.5, -99.0, 999.0]), "c": ["-99", "x-99", "1"]}
    table = without_codes(pa.table(columns), ["-99", "999"])
    assert table.to_pydict() == {"a": [1, None, None], "b": [0.5, None, None], "c": [None, "x-99", "1"]}
    assert table.schema.field("a").type == pa.int64()


CODES = [
    ("state", {"1": 40, "2": 30, "3": 9, "-99": 5}, ["-99"]),
    ("state", {"1": 40, "2": 30, "3": 9, "999": 5}, ["999"]),
    ("state", {"calm": 40, "sad": 30, "NA": 9}, ["NA"]),
    # A rare value far outside the others
    ("state", {"1": 40, "2": 30, "3": 9, "777": 1}, ["777"]),
    # Ratings from -2 to 2, and percentages
    ("state", {"-2": 9, "-1": 9, "0": 9, "1": 9, "2": 1}, []),
    ("state", {"0": 9, "50": 9, "88": 9, "99": 9, "100": 1}, []),
    ("state", {"-1": 9, "0": 9, "1": 9}, []),
    ("label", {"0": 90, "1": 9, "-1": 9}, ["-1"]),
    ("label", {"-1": 9, "1": 9}, []),
    ("speaker", {"ann": 9, "N/A": 3}, ["N/A"]),
    ("speaker", {"1": 9, "99": 3}, []),
    ("label", {"NA": 9}, []),
]


@pytest.mark.parametrize(("role", "counts", "codes"), CODES)
def test_likely_codes_are_found_by_their_names_and_their_distance(role, counts, codes):
    assert find_codes(counts, role) == {code: counts[code] for code in codes}


def test_a_warning_names_codes_with_their_numbers_and_the_option(caplog):
    caplog.set_level(logging.WARNING)
    posts = [{**POSTS[0], "timeline_id": str(number), "state": str(number % 3)} for number in range(40)]
    posts += [{**POSTS[0], "timeline_id": f"x{number}", "text": "N/A", "state": "-98"} for number in range(2)]
    timelines = to_timelines(Dataset.from_list(posts), ["0"])
    # Nothing is guessed away.
    assert len(timelines) == 42 and timelines[-1].texts == ["N/A"] and timelines[-1].states == ["-98"]
    warnings = [record.getMessage() for record in caplog.records if "--missing" in record.getMessage()]
    assert ["2 posts" in warning and code in warning for warning, code in zip(warnings, ("-98", "N/A"))] == [True] * 2
