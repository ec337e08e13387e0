"""Checks samples of usages whose change is known."""

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon

from research.word_tables import SENSE_USAGES, draw_controlled


def test_samples_have_the_change_that_is_told():
    """A vector has the number of its usage and its sense. Only `bank` has two senses with enough usages."""
    senses = {
        "bank": np.repeat([0, 1, 2, -1], [60, 30, 20, 5]),
        "steady": np.repeat([0, 1], [90, SENSE_USAGES - 1]),
    }
    vectors = {}
    for word, labels in senses.items():
        usages = np.stack([np.arange(len(labels)), labels], axis=1)
        vectors[word] = usages[:50], usages[50:]
    generator, changes = np.random.default_rng(0), []
    for _ in range(60):
        drawn, told = draw_controlled(vectors, senses, generator)
        assert set(drawn) <= {"bank"}
        for before, after in drawn.values():
            numbers = [*before[:, 0], *after[:, 0]]
            assert len(set(numbers)) == len(numbers) and min(len(before), len(after)) >= 10
            counts = [np.bincount(part[:, 1], minlength=3) for part in (before, after)]
            assert told == pytest.approx([jensenshannon(*counts)], abs=1e-9)
            changes += told
    steady = np.mean(np.array(changes) == 0)
    assert len(changes) > 40 and 0.3 < steady < 0.7 and max(changes) > 0.5
