"""Checks the data of a run's figures against values computed another way, and the files that a run writes."""

import numpy as np
import pytest
from helpers import make_timeline
from scipy.special import softmax

from modeling_tempoformer.evaluation.calibration import expected_calibration_error
from modeling_tempoformer.evaluation.figures import (
    confusion_figure,
    figures_in,
    learning_curve,
    reliability_figure,
    write_test_figures,
)


# A log of the Trainer: training losses, evaluations, and a line at the end.
HISTORY = [
    {"step": 2, "loss": 0.9, "learning_rate": 1e-3},
    {"step": 3, "eval_loss": 0.8, "eval_macro_f1": 0.25, "eval_runtime": 1.0},
    {"step": 4, "loss": 0.5, "learning_rate": 5e-4},
    {"step": 6, "eval_loss": 0.7, "eval_macro_f1": 0.5, "eval_runtime": 1.0},
    {"step": 6, "train_loss": 0.7, "train_runtime": 2.0},
]


def test_the_learning_curve_has_what_was_logged():
    losses, macro_f1 = learning_curve(HISTORY, 3, 4).axes
    # The last line of each marks the step that is kept.
    training, validation, _ = (line.get_xydata().tolist() for line in losses.lines)
    assert training == [[2, 0.9], [4, 0.5]] and validation == [[3, 0.8], [6, 0.7]]
    scores, guessing, _ = macro_f1.lines
    assert scores.get_xydata().tolist() == [[3, 0.25], [6, 0.5]]
    assert guessing.get_ydata() == pytest.approx([0.25, 0.25])
    for axes in (losses, macro_f1):
        assert set(axes.lines[-1].get_xdata()) == {3}
    # A training without evaluations shows its loss. A training too short for any log has no figure.
    assert len(learning_curve(HISTORY[:1], 2, 2).axes) == 1
    assert learning_curve(HISTORY[-1:], 6, 2) is None


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
    expected = np.array([[2 / 3, 1 / 3, 0], [0, 3 / 4, 1 / 4], [0, 0, 0]])
    assert np.asarray(axes.images[0].get_array()) == pytest.approx(expected)


def test_the_legends_of_the_learning_curve_cover_no_curve():
    figure = learning_curve(HISTORY, 3, 4)
    figure.draw_without_rendering()
    panels = [axes.get_window_extent() for axes in figure.axes]
    for axes in figure.axes:
        legend = axes.get_legend().get_window_extent()
        assert not any(legend.overlaps(panel) for panel in panels)
        assert figure.bbox.contains(*legend.min) and figure.bbox.contains(*legend.max)


def test_the_reliability_diagram_has_the_bins_of_the_calibration_error():
    rng = np.random.default_rng(3)
    logits = 3 * rng.normal(size=(400, 3))
    actual = np.where(rng.random(400) < 0.6, logits.argmax(axis=1), rng.integers(3, size=400))
    shown = {"after": softmax(logits / 3, axis=1), "before": softmax(logits, axis=1)}
    upper, lower = reliability_figure(actual, shown).axes
    curves = {line.get_label(): line.get_xydata() for line in upper.lines}
    for bars, (name, probabilities) in zip(lower.containers, shown.items(), strict=True):
        confidence, is_right = probabilities.max(axis=1), probabilities.argmax(axis=1) == actual
        bins = np.ceil(confidence * 15)
        sizes = [(bins == number).sum() for number in range(1, 16)]
        assert [bar.get_height() for bar in bars] == sizes
        expected = [(confidence[bins == number].mean(), is_right[bins == number].mean()) for number in np.unique(bins)]
        # Bins of less than ten posts have no point.
        is_shown = [size >= 10 for size in sizes if size]
        assert curves[name] == pytest.approx(np.array(expected)[is_shown]) and not all(is_shown)
        # The calibration error is the mean distance of the points from the diagonal, weighted by their numbers of
        # posts.
        error = np.average(np.abs(np.subtract(*np.array(expected).T)), weights=[size for size in sizes if size])
        assert error == pytest.approx(expected_calibration_error(probabilities, actual))


def test_figures_are_of_labelled_posts(tmp_path, all_forms):
    names, predicted = ["a", "b"], np.array([0, 1, 1])
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.3, 0.7]])
    write_test_figures(tmp_path, [make_timeline([-100] * 3)], predicted, probabilities, names)
    assert figures_in(tmp_path) == {}
    write_test_figures(tmp_path, [make_timeline([0, 0, 1])], predicted, probabilities, names)
    assert list(figures_in(tmp_path)) == ["confusion_matrix.png", "reliability.png"]
    for name in figures_in(tmp_path):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / name).with_suffix(".pdf").read_bytes().startswith(b"%PDF")
        assert b"<svg" in (tmp_path / name).with_suffix(".svg").read_bytes()
