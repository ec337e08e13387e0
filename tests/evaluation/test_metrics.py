"""Checks scores on a worked example."""

import numpy as np
import pytest
from transformers import EvalPrediction

from modeling_tempoformer.evaluation.metrics import compute_metrics


def test_worked_example():
    """Five labelled posts have the classes a a a b b, predicted as a a b b a. Two slots have no label."""
    predictions = np.array([[0, 0, 1], [1, 0, 1], [1, 1, 1]])
    logits = np.where(np.arange(2) == predictions[..., None], 2.0, -2.0)
    labels = np.array([[0, 0, 0], [1, 1, -100], [-100, -100, -100]])
    scores = compute_metrics(["a", "b"])(EvalPrediction(predictions=logits, label_ids=labels))
    assert scores["precision_a"] == pytest.approx(2 / 3) and scores["recall_a"] == pytest.approx(2 / 3)
    assert scores["f1_b"] == pytest.approx(1 / 2) and scores["support_b"] == 2
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 1 / 2) / 2)
