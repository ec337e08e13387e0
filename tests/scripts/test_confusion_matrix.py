"""The confusion matrix of a worked example."""

from benchmarks.confusion_matrix import confusion_figure


def test_the_figure_has_actual_classes_as_rows():
    names = ["IS", "O", "IE"]
    axes = confusion_figure([0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 2], names).axes[0]
    for axis in (axes.xaxis, axes.yaxis):
        assert [label.get_text() for label in axis.get_ticklabels()] == names
    cells = {text.get_position()[::-1]: text.get_text() for text in axes.texts}
    counts = [[2, 1, 0], [0, 3, 1], [0, 0, 0]]
    assert {cell: int(text.split("\n")[0]) for cell, text in cells.items()} == {
        (row, column): counts[row][column] for row in range(3) for column in range(3)
    }
    assert cells[0, 1] == "1\n33%"
    assert axes.images[0].get_array().tolist() == [[2 / 3, 1 / 3, 0], [0, 3 / 4, 1 / 4], [0, 0, 0]]


def test_the_title_tells_several_seeds():
    titles = [confusion_figure([0, 1], [0, 1], ["a", "b"], seeds).axes[0].get_title() for seeds in (1, 4)]
    assert titles[0] == "" and "4" in titles[1]
