"""Checks cells that are easily misread: labels, ids, texts and times as programs write them."""

import numpy as np
import pytest
from datasets import Dataset

from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.timelines import label_names, to_timelines


TEXT_LABELS = {
    "integers that became floats": (["0.0", "1.0", "10.00", "1"], ["0", "1", "10"], [0, 1, 2, 1]),
    "cells of nothing": (
        ["O", "nan", "NaN", " null ", "NULL", "<NA>", "#N/A", "-100.0", "IS"],
        ["IS", "O"],
        [1, *[-100] * 7, 0],
    ),
    "gaps among floats": (["1.0", "nan", "0.0"], ["0", "1"], [1, -100, 0]),
    "names that only look like nothing": (["None", "NA", "none of it"], ["NA", "None", "none of it"], [1, 0, 2]),
    "white space": (["O", "O ", " ", " IS"], ["IS", "O"], [1, 1, -100, 0]),
    "white space inside": (["no \u00a0 switch", "no switch", "a\tb"], ["a b", "no switch"], [1, 1, 0]),
    "accents in one character and in two": (["fr\u00f6h", "fro\u0308h", "still"], ["fr\u00f6h", "still"], [0, 0, 1]),
    "characters that cannot be seen": (
        ["O", "\ufeffO", "O\u200b", "\u200eO", "\u00ad", "I\u00adS"],
        ["IS", "O"],
        [1, 1, 1, 1, -100, 0],
    ),
    "integers as floats with a decimal comma": (["0,0", "1,0", "1", "0"], ["0", "1"], [0, 1, 1, 0]),
    "numbers in order of their size": (["10", "9", "-1"], ["-1", "9", "10"], [2, 1, 0]),
    "numbers among words": (["10", "9", "a"], ["10", "9", "a"], [0, 1, 2]),
    "numbers that are not whole": (["0.5", "1.5", "1.50"], ["0.5", "1.5", "1.50"], [0, 1, 2]),
    "any script and emojis": (
        ["می\u200cروم", "👩\u200d🎓", "Änderung"],
        ["Änderung", "می\u200cروم", "👩\u200d🎓"],
        [1, 2, 0],
    ),
}


def posts_of(labels: list[str]) -> Dataset:
    return Dataset.from_dict({"timeline_id": ["ann"] * len(labels), "text": ["hm"] * len(labels), "label": labels})


@pytest.mark.parametrize("case", TEXT_LABELS)
def test_labels_mean_what_they_seem(case):
    cells, names, ids = TEXT_LABELS[case]
    assert label_names(posts_of(cells)) == names
    assert to_timelines(posts_of(cells), names)[0].labels == ids


def test_a_label_in_bytes_is_refused_with_its_row():
    with pytest.raises(PostError, match="Row 1 .*'label'.*bytes"):
        label_names(Dataset.from_dict({"label": [None, b"No"]}))


def test_labels_that_are_given_are_read_as_those_of_the_file():
    assert to_timelines(posts_of(["1", "0.0", "nan"]), ["1.0", "0"])[0].labels == [0, 1, -100]


ALIKE = [
    ["Switch", "switch", "No"],
    ["no switch", "No Switch"],
    ["no switch", "noswitch"],
    ["Straße", "STRASSE"],
    ["Switch", "Ｓｗｉｔｃｈ"],
    ["می\u200cروم", "میروم"],
]


@pytest.mark.parametrize("labels", ALIKE)
def test_labels_that_look_alike_are_listed(labels):
    posts = posts_of(labels)
    for read in (label_names, lambda table: to_timelines(table, labels)):
        with pytest.raises(ValueError) as raised:
            read(posts)
        named = [label for label in labels if repr(label) in str(raised.value)]
        assert len(named) == 2
    with pytest.raises(ValueError, match="'1'.*'1.0'"):
        to_timelines(posts, ["1", "1.0", "0"])
    with pytest.raises(ValueError, match="'nan'"):
        to_timelines(posts, ["nan", "Switch"])
    with pytest.raises(ValueError, match="cannot be seen"):
        to_timelines(posts, ["Switch", "Switch\u200b"])


@pytest.mark.parametrize("column", ["timestamp", "timeline_id", "id"])
def test_columns_in_32_bits_are_refused(column):
    """1.7e9 and 1.7e9 + 60 are the same number in 32 bits, and so are the ids 2**24 and 2**24 + 1."""
    numbers = np.array([16.0, 17.0], dtype="float32")
    posts = Dataset.from_dict({"timeline_id": ["ann", "ann"], "text": ["so", "sad"], column: numbers})
    with pytest.raises(ValueError, match=f"'{column}'.*64"):
        to_timelines(posts, columns={"id": "id"} if column == "id" else None)


SEVERAL = ['["Switch","No"]', "['Switch', 'No']", '{"choices":["Switch","No"]}', "{'a': 1}", " [1, 2]", "[]", '["No"]']


@pytest.mark.parametrize("role", ["label", "state", "speaker"])
@pytest.mark.parametrize("cell", SEVERAL)
def test_a_list_that_is_written_in_a_cell_is_no_name(role, cell):
    posts = Dataset.from_dict({"timeline_id": ["ann"] * 2, "text": ["hm"] * 2, role: ["No", cell]})
    with pytest.raises(PostError, match=f"Row 1 .*'{role}'") as raised:
        label_names(posts) if role == "label" else to_timelines(posts)
    assert raised.value.value == cell


def test_brackets_may_be_in_a_name_and_lists_in_a_text():
    cells = ["[deleted]", "{3F25-04E0}", "(a, b)", "[a]", "{x}", "a [1, 2]"]
    posts = Dataset.from_dict({"timeline_id": cells, "text": SEVERAL[:6], "label": cells, "speaker": cells})
    assert label_names(posts) == sorted(cells)
    timelines = to_timelines(posts, sorted(cells))
    assert [timeline.texts[0] for timeline in timelines] == SEVERAL[:6]
    assert [timeline.speakers[0] for timeline in timelines] == cells


@pytest.mark.parametrize("column", ["label", "state", "timestamp", "speaker", "text", "timeline_id"])
def test_a_mark_of_a_pickle_of_convokit_is_known(column):
    post = {"timeline_id": "a", "timestamp": "2024-05-01", "text": "so", "label": "O", "state": "0", "speaker": "b"}
    posts = Dataset.from_list([post, {**post, column: "<##bin{17}&&@**>"}])
    with pytest.raises(PostError, match=f"Row 1 .*'{column}'.*ConvoKit.*to_csv"):
        to_timelines(posts, ["O"])
    if column == "label":
        with pytest.raises(PostError, match="Row 1 .*ConvoKit.*to_csv"):
            label_names(posts)


@pytest.mark.parametrize(("different", "labelled", "refused"), [(11, 21, True), (11, 22, False), (10, 10, False)])
def test_a_column_with_nearly_as_many_values_as_posts_is_asked_about(different, labelled, refused):
    posts = posts_of([f"note {row % different}" for row in range(labelled)] + [""] * 50)
    if not refused:
        assert len(label_names(posts)) == different
        return
    with pytest.raises(ValueError, match="'label' has 11 .* 21 posts.*'note 0'.*--columns label="):
        label_names(posts)
