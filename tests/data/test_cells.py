"""Cells that are not what they seem: labels, ids, texts and times as programs write them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from datasets import ClassLabel, Dataset, DatasetInfo, Features, Value

from modeling_tempoformer.data.tables import load_table
from modeling_tempoformer.data.timelines import PostError, label_names, to_timelines


STREAMING = pytest.mark.parametrize("streaming", [False, True])


def write_column(path: Path, column: str, cells: list) -> str:
    """Posts of one timeline with a column of these cells, in the file's format."""
    posts = pd.DataFrame({"timeline_id": "ann", "text": "hm", column: pd.Series(cells, dtype=object)})
    if path.suffix == ".parquet":
        posts.astype({column: str}).to_parquet(path)
    elif path.suffix == ".csv":
        posts.to_csv(path, index=False)
    else:
        posts.to_json(path, orient="records", lines=True)
    return str(path)


TEXT_LABELS = {
    "integers that became floats": (["0.0", "1.0", "10.00", "1"], ["0", "1", "10"], [0, 1, 2, 1]),
    "cells of nothing": (
        ["O", "nan", "NaN", " null ", "NULL", "<NA>", "-100.0", "IS"],
        ["IS", "O"],
        [1, *[-100] * 6, 0],
    ),
    "gaps among floats": (["1.0", "nan", "0.0"], ["0", "1"], [1, -100, 0]),
    "names that only look like nothing": (["None", "NA", "none of it"], ["NA", "None", "none of it"], [1, 0, 2]),
    "white space": (["O", "O ", " ", " IS"], ["IS", "O"], [1, 1, -100, 0]),
    "numbers in order of their size": (["10", "9", "-1"], ["-1", "9", "10"], [2, 1, 0]),
    "numbers among words": (["10", "9", "a"], ["10", "9", "a"], [0, 1, 2]),
    "numbers that are not whole": (["0.5", "1.5", "1.50"], ["0.5", "1.5", "1.50"], [0, 1, 2]),
}


@pytest.mark.parametrize(("kind", "streaming"), [("csv", False), ("jsonl", True), ("parquet", True)])
@pytest.mark.parametrize("case", TEXT_LABELS)
def test_labels_mean_the_same_in_every_format(tmp_path, kind, case, streaming):
    cells, names, ids = TEXT_LABELS[case]
    posts = load_table(write_column(tmp_path / f"a.{kind}", "label", cells), streaming)
    assert label_names(posts) == names
    (timeline,) = to_timelines(posts, names)
    assert timeline["labels"] == ids


@STREAMING
def test_labels_that_are_given_are_read_as_those_of_the_file(streaming):
    posts = Dataset.from_dict({"timeline_id": ["ann"] * 3, "text": ["hm"] * 3, "label": ["1", "0.0", "nan"]})
    (timeline,) = to_timelines(posts.to_iterable_dataset() if streaming else posts, ["1.0", "0"])
    assert timeline["labels"] == [0, 1, -100]


@pytest.mark.parametrize(
    "labels",
    [["Switch", "switch", "No-Switch"], ["no switch", "No  Switch", "Switch"], ["Straße", "STRASSE"]],
)
def test_labels_that_differ_in_case_or_space_are_listed(labels):
    posts = Dataset.from_dict({"timeline_id": ["ann"] * len(labels), "text": labels, "label": labels})
    for read in (label_names, lambda table: to_timelines(table, labels)):
        with pytest.raises(ValueError) as raised:
            read(posts)
        named = [label for label in labels if repr(label) in str(raised.value)]
        assert len(named) == 2
    with pytest.raises(ValueError, match="'1'.*'1.0'"):
        to_timelines(posts, ["1", "1.0", "0"])
    with pytest.raises(ValueError, match="'nan'"):
        to_timelines(posts, ["nan", "Switch"])


HIDDEN = ["Sw\u202eitch", "Switch\u200b", "\x1b[2JSwitch", "Switch\x00", "\ufeffSwitch"]


@pytest.mark.parametrize("name", HIDDEN)
def test_labels_that_cannot_be_seen_are_refused_where_posts_are_read(name):
    posts = Dataset.from_list([{"timeline_id": "ann", "text": "so sad", "label": name}])
    with pytest.raises(ValueError, match="cannot be seen") as error:
        to_timelines(posts, ["Switch", name])
    assert repr(name) in str(error.value)


def test_labels_of_any_script_and_emojis_are_read():
    names = ["می\u200cروم", "👩\u200d🎓", "Änderung", "changement d'état", "변화"]
    posts = Dataset.from_list([{"timeline_id": "ann", "text": "", "label": name} for name in names])
    assert to_timelines(posts, names)[0]["labels"] == [0, 1, 2, 3, 4]


def test_a_label_id_without_a_name_names_its_row():
    features = Features(timeline_id=Value("string"), text=Value("string"), label=ClassLabel(names=["O", "IE"]))
    posts = Dataset.from_dict({"timeline_id": ["a"] * 3, "text": ["", "", ""], "label": [0, 1, -1]}, features=features)
    assert to_timelines(posts, ["O", "IE"])[0]["labels"] == [0, 1, -100]
    bad = pa.table({"timeline_id": ["a", "a"], "text": ["", ""], "label": [1, 2]})
    posts = Dataset(bad.cast(features.arrow_schema), info=DatasetInfo(features=features))
    with pytest.raises(PostError, match="Row 1 .*'label', value 2.*0 to 1"):
        to_timelines(posts, ["O", "IE"])


@STREAMING
@pytest.mark.parametrize("column", ["timestamp", "timeline_id", "id"])
def test_columns_in_32_bits_are_refused(column, streaming):
    """1.7e9 and 1.7e9 + 60 are the same number in 32 bits, and so are the ids 2**24 and 2**24 + 1."""
    numbers = np.array([16.0, 17.0], dtype="float32")
    posts = Dataset.from_dict({"timeline_id": ["ann", "ann"], "text": ["so", "sad"], column: numbers})
    posts = posts.to_iterable_dataset() if streaming else posts
    with pytest.raises(ValueError, match=f"'{column}'.*float32.*64"):
        list(to_timelines(posts, id_column="id" if column == "id" else None))


@STREAMING
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_a_text_may_be_empty_and_a_missing_text_is_refused(tmp_path, name, streaming):
    (timeline,) = to_timelines(load_table(write_column(tmp_path / name, "mood", [""]), streaming), text_column="mood")
    assert timeline["texts"] == [""]
    # A CSV file cannot tell the two apart.
    if name == "a.jsonl":
        posts = load_table(write_column(tmp_path / name, "mood", ["sad", None]), streaming)
        with pytest.raises(ValueError, match="Row 1.*'mood'"):
            list(to_timelines(posts, text_column="mood"))
