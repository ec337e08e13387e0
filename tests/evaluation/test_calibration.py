"""Checks calibration error, temperature and thresholds against worked examples and exhaustive search."""

import itertools
import logging

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import f1_score, log_loss

from modeling_tempoformer.evaluation.calibration import expected_calibration_error, fit_temperature, tune_thresholds


def test_calibration_error_of_a_worked_example():
    """0.55 (wrong) and 0.6 (right, on an edge) share a bin. 0.7 is right, 0.9 is right once, and 0.65 has no label."""
    confidence = np.array([0.55, 0.9, 0.6, 0.65, 0.7, 0.9])
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    labels = np.array([1, 0, 0, -100, 0, 1])
    expected = (2 * abs(0.575 - 0.5) + 1 * abs(0.7 - 1) + 2 * abs(0.9 - 0.5)) / 5
    assert expected_calibration_error(probabilities, labels) == pytest.approx(expected)
    sure = np.eye(3)[[0, 2, 1]]
    assert expected_calibration_error(sure, [0, 2, 1]) == pytest.approx(0)
    assert expected_calibration_error(sure, [1, 0, 2]) == pytest.approx(1)


def test_a_known_temperature_is_found():
    """The logits are three times those that the labels were drawn from. Every tenth post has no label."""
    generator = np.random.default_rng(0)
    logits = generator.normal(scale=1.5, size=(20_000, 3))
    labels = (softmax(logits, axis=1).cumsum(axis=1) < generator.random((len(logits), 1))).sum(axis=1)
    labels[::10] = -100
    logits *= 3
    temperature = fit_temperature(logits, labels)
    assert temperature == pytest.approx(3, rel=0.03)
    kept = labels >= 0
    losses = [log_loss(labels[kept], softmax(logits[kept] / temperature / by, axis=1)) for by in (0.998, 1, 1.002)]
    assert losses[1] == min(losses)
    errors = [expected_calibration_error(softmax(logits / t, axis=1), labels) for t in (1, temperature)]
    assert errors[0] > 0.1 and errors[1] < 0.02


def test_labels_that_set_no_bound_give_an_end_of_the_range_and_what_to_do(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    logits = [[2.0, -1.0], [-1.0, 2.0]]
    for labels, end, advice in (([0, 1], 0.05, "more posts"), ([1, 0], 20, "train it longer")):
        caplog.clear()
        assert fit_temperature(logits, labels) == pytest.approx(end)
        assert f"{end}" in caplog.text and advice in caplog.text and "2 posts" in caplog.text


def score(probabilities: np.ndarray, labels: np.ndarray, thresholds) -> float:
    """Returns macro F1 if each post gets the class with the largest probability / threshold."""
    chosen = (probabilities / thresholds).argmax(axis=1)
    return f1_score(labels, chosen, average="macro", labels=range(probabilities.shape[1]), zero_division=0)


@pytest.mark.parametrize(
    ("second", "labels", "expected"),
    [
        ([0.1, 0.3, 0.9], [0, 1, 1], 0.2),
        # The most probable class is the best answer for every post.
        ([0.1, 0.4, 0.9], [0, 0, 1], 0.5),
        # The thresholds 0.2 and 0.75 give one error, and 0.5 gives two.
        ([0.1, 0.3, 0.6, 0.9], [0, 1, 0, 1], 0.75),
        ([0.1, 0.4, 0.7, 0.9], [0, 1, 0, 1], 0.25),
        # The post without a label does not move the midpoint.
        ([0.1, 0.15, 0.3, 0.9], [0, -100, 1, 1], 0.2),
    ],
)
def test_the_threshold_of_the_second_class(second, labels, expected):
    probabilities = np.stack([1 - np.array(second), second], axis=1)
    assert tune_thresholds(probabilities, labels) == pytest.approx([1 - expected, expected])


@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_thresholds_cannot_be_bettered_by_one(num_classes):
    """Probabilities are multiples of 0.05, so some posts tie."""
    generator = np.random.default_rng(num_classes)
    probabilities = generator.multinomial(20, np.full(num_classes, 1 / num_classes), size=15) / 20
    labels = np.array([generator.choice(num_classes, p=post) for post in probabilities])
    labels[:num_classes] = range(num_classes)
    thresholds = np.array(tune_thresholds(probabilities, labels))
    best = score(probabilities, labels, thresholds)
    assert sum(thresholds) == pytest.approx(1) and best >= score(probabilities, labels, np.ones(num_classes)) - 1e-9
    for label, factor in itertools.product(range(num_classes), np.geomspace(0.05, 20, 41)):
        moved = thresholds.copy()
        moved[label] *= factor
        assert score(probabilities, labels, moved) <= best + 1e-9


def test_bad_input_is_refused():
    even = [[0.5, 0.5], [0.5, 0.5]]
    for function in (fit_temperature, expected_calibration_error, tune_thresholds):
        for scores, labels in (([[0.5, 0.5], [np.nan, 0]], [0, 1]), (even, [-100, -100])):
            with pytest.raises(ValueError):
                function(scores, labels)
    with pytest.raises(ValueError, match=r"\[2, 0\]"):
        tune_thresholds(even, [0, 0])
    with pytest.raises(ValueError, match="logits"):
        expected_calibration_error([[0.5, 0.5], [3, -2]], [0, 1])
