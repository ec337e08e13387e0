"""Checks labels drawn by the shares of the classes."""

import numpy as np
import pytest
from helpers import make_timeline

from research.baselines.class_prior import Method


pytestmark = pytest.mark.slow


def test_labels_are_drawn_by_the_training_shares():
    train = [make_timeline([0, 1]), make_timeline([-100, 1, 1])]
    test = [make_timeline([0] * 5000), make_timeline([-100] * 5000)]
    parts = {"train": train, "test": test}
    drawn, probabilities = Method(method="class_prior").predict(parts, ["a", "b"], None, seed=3)
    assert drawn.shape == (10_000,) and np.allclose(probabilities, [0.25, 0.75])
    assert drawn.mean() == pytest.approx(0.75, abs=0.02)
    assert (drawn == Method(method="class_prior").predict(parts, ["a", "b"], None, seed=3)[0]).all()
