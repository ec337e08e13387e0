"""The table and the confusion matrix, on a worked example."""

import sys

import pytest

from modeling_tempoformer.evaluation.classification_report import confusion_figure, write_classification_report


NAMES = ["IS", "O", "IE"]
ACTUAL = [0, 0, 0, 1, 1, -100, 1, 1]
PREDICTED = [0, 0, 1, 1, 1, 2, 1, 2]


def test_the_table_of_a_worked_example(tmp_path):
    """IS: 2 of 2 and of 3. O: 3 of 4 and of 4. IE: 0 of 1 and of none; the post without a label is left out."""
    lines = [
        line.split() for line in write_classification_report(tmp_path / "new", ACTUAL, PREDICTED, NAMES).split("\n")
    ]
    assert lines == [
        ["class", "precision", "recall", "f1", "support"],
        ["IS", "1.000", "0.667", "0.800", "3"],
        ["O", "0.750", "0.750", "0.750", "4"],
        ["IE", "0.000", "0.000", "0.000", "0"],
        ["(macro)", "0.583", "0.472", "0.517", "7"],
    ]
    assert (tmp_path / "new" / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_has_actual_classes_as_rows():
    labelled = [post for post, label in enumerate(ACTUAL) if label >= 0]
    figure = confusion_figure([ACTUAL[post] for post in labelled], [PREDICTED[post] for post in labelled], NAMES)
    axes = figure.axes[0]
    for axis, name in ((axes.xaxis, "predicted"), (axes.yaxis, "actual")):
        assert [label.get_text() for label in axis.get_ticklabels()] == NAMES
        assert axis.get_label_text() == name
    cells = {text.get_position()[::-1]: text.get_text() for text in axes.texts}
    counts = [[2, 1, 0], [0, 3, 1], [0, 0, 0]]
    assert {cell: int(text.split("\n")[0]) for cell, text in cells.items()} == {
        (row, column): counts[row][column] for row in range(3) for column in range(3)
    }
    assert cells[0, 1] == "1\n33%"
    assert axes.images[0].get_array().tolist() == [[2 / 3, 1 / 3, 0], [0, 3 / 4, 1 / 4], [0, 0, 0]]


def test_posts_that_are_counted_once_for_each_seed_are_said_to_be():
    titles = [confusion_figure([0, 1], [0, 1], NAMES, seeds).axes[0].get_title() for seeds in (1, 4)]
    assert titles == ["", "each post 4 times, once for each seed"]


@pytest.mark.parametrize(
    ("actual", "predicted", "problem"),
    [
        ([0, 3], [0, 0], "`actual`: post 1 has 3, there are 3 classes"),
        ([0, 1], [0, -1], "`predicted`: post 1 has -1, there are 3 classes"),
        ([-100, -100], [0, 0], "None of the 2 posts has a label"),
        ([0, 1], [0], r"got \(2,\) and \(1,\)"),
    ],
)
def test_bad_input_is_named(tmp_path, actual, predicted, problem):
    with pytest.raises(ValueError, match=problem):
        write_classification_report(tmp_path, actual, predicted, NAMES)
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_it_is_said(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="Figures need matplotlib"):
        write_classification_report(tmp_path, ACTUAL, PREDICTED, NAMES)
