"""The table and the confusion matrix, on a worked example."""

from modeling_tempoformer.evaluation.classification_report import confusion_figure, write_classification_report


NAMES = ["IS", "O", "IE"]
ACTUAL = [0, 0, 0, 1, 1, -100, 1, 1]
PREDICTED = [0, 0, 1, 1, 1, 2, 1, 2]


def test_the_table_of_a_worked_example(tmp_path):
    """IS: 2 of 2 and of 3. O: 3 of 4 and of 4. IE: 0 of 1 and of none. The post without a label is left out."""
    text = write_classification_report(tmp_path / "new", ACTUAL, PREDICTED, NAMES)
    lines = {line.rsplit(maxsplit=4)[0].strip(): line.split()[-4:] for line in text.split("\n")[1:] if line}
    assert lines["IS"] == ["1.000", "0.667", "0.800", "3"]
    assert lines["O"] == ["0.750", "0.750", "0.750", "4"]
    assert lines["IE"] == ["0.000", "0.000", "0.000", "0"]
    assert lines["macro avg"] == ["0.583", "0.472", "0.517", "7"]
    assert (tmp_path / "new" / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_has_actual_classes_as_rows():
    labelled = [post for post, label in enumerate(ACTUAL) if label >= 0]
    figure = confusion_figure([ACTUAL[post] for post in labelled], [PREDICTED[post] for post in labelled], NAMES)
    axes = figure.axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == NAMES
    cells = {text.get_position()[::-1]: text.get_text() for text in axes.texts}
    counts = [[2, 1, 0], [0, 3, 1], [0, 0, 0]]
    assert {cell: int(text.split("\n")[0]) for cell, text in cells.items()} == {
        (row, column): counts[row][column] for row in range(3) for column in range(3)
    }
    assert cells[0, 1] == "1\n33%"
    assert axes.images[0].get_array().tolist() == [[2 / 3, 1 / 3, 0], [0, 3 / 4, 1 / 4], [0, 0, 0]]


def test_the_title_tells_several_seeds():
    titles = [confusion_figure([0, 1], [0, 1], NAMES, seeds).axes[0].get_title() for seeds in (1, 4)]
    assert titles[0] == "" and "4" in titles[1]
