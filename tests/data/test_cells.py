"""Cells that are not what they seem: labels, ids, texts and times as programs write them."""

import numpy as np
import pytest
from datasets import Dataset

from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.data_collator_tempoformer import TimeColumn


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


@pytest.mark.parametrize("case", TEXT_LABELS)
def test_labels_mean_what_they_seem(case):
    cells, names, ids = TEXT_LABELS[case]
    posts = Dataset.from_dict({"timeline_id": ["ann"] * len(cells), "text": ["hm"] * len(cells), "label": cells})
    assert label_names(posts) == names
    (timeline,) = to_timelines(posts, names)
    assert timeline["labels"] == ids


def test_labels_that_are_given_are_read_as_those_of_the_file():
    posts = Dataset.from_dict({"timeline_id": ["ann"] * 3, "text": ["hm"] * 3, "label": ["1", "0.0", "nan"]})
    (timeline,) = to_timelines(posts, ["1.0", "0"])
    assert timeline["labels"] == [0, 1, -100]


ALIKE = [["Switch", "switch", "No"], ["no switch", "No  Switch"], ["Straße", "STRASSE"], ["Switch", "Switch\u200b"]]


@pytest.mark.parametrize("labels", ALIKE)
def test_labels_that_look_alike_are_listed(labels):
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


def test_labels_of_any_script_and_emojis_are_read():
    names = ["می\u200cروم", "👩\u200d🎓", "Änderung", "changement d'état", "변화"]
    posts = Dataset.from_list([{"timeline_id": "ann", "text": "", "label": name} for name in names])
    assert to_timelines(posts, names)[0]["labels"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("column", ["timestamp", "timeline_id", "id"])
def test_columns_in_32_bits_are_refused(column):
    """1.7e9 and 1.7e9 + 60 are the same number in 32 bits, and so are the ids 2**24 and 2**24 + 1."""
    numbers = np.array([16.0, 17.0], dtype="float32")
    posts = Dataset.from_dict({"timeline_id": ["ann", "ann"], "text": ["so", "sad"], column: numbers})
    with pytest.raises(ValueError, match=f"'{column}'.*64"):
        to_timelines(posts, id_column="id" if column == "id" else None)


@pytest.mark.parametrize("times", [["1714560000", "20240502"], ["20240502.0", "1714560000.5"], [20240502, 1714560000]])
def test_a_bare_date_among_seconds_is_refused(times):
    """As seconds it is a moment in 1970."""
    posts = Dataset.from_dict({"timeline_id": ["ann", "bob"], "text": ["so", "sad"], "timestamp": times})
    with pytest.raises(ValueError, match="Row 1.*'timestamp'.*20240502"):
        to_timelines(posts)


def test_seconds_that_could_be_a_date_among_others_of_their_kind_are_read():
    """Seconds from the start of a study, and a number that no calendar has among present ones."""
    for seconds in ([0, 20240502, 300_000_000], [20241302, 1714560000]):
        column = TimeColumn()
        assert [column.read(place, value) for place, value in enumerate(seconds)] == seconds
