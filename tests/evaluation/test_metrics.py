"""Scores on a worked example, and one more row in the table of scores."""

import numpy as np
import pytest
from datasets import Dataset
from helpers import tiny_model
from transformers import EvalPrediction

from modeling_tempoformer import write_card
from modeling_tempoformer.evaluation import report, results
from modeling_tempoformer.evaluation.metrics import card_titles, change_detection, compute_metrics, score_names


def test_worked_example():
    """Classes of five labelled posts: true a a a b b, predicted a a b b a; two slots have no label."""
    predictions = np.array([[0, 0, 1], [1, 0, 1], [1, 1, 1]])
    logits = np.where(np.arange(2) == predictions[..., None], 2.0, -2.0)
    labels = np.array([[0, 0, 0], [1, 1, -100], [-100, -100, -100]])
    scores = compute_metrics(["a", "b"])(EvalPrediction(predictions=logits, label_ids=labels))
    assert scores["precision_a"] == pytest.approx(2 / 3) and scores["recall_a"] == pytest.approx(2 / 3)
    assert scores["f1_b"] == pytest.approx(1 / 2) and scores["support_b"] == 2
    assert scores["macro_f1"] == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_a_score_is_one_row(tmp_path, monkeypatch):
    """Two rows: the share of all predictions that each class has, and accuracy."""

    def given(posts):
        return posts.predictions.mean()

    def right(probabilities, labels):
        return (probabilities.argmax(1) == labels).mean()

    metric = change_detection()
    rows = metric.Score(given, "posts", "given"), metric.Score(right, "probabilities", "right answers")
    monkeypatch.setattr(metric, "SCORES", (*metric.SCORES, *rows))
    names, predicted = ["a", "b"], np.array([0, 0, 1, 0])
    assert {"given_a", "given_b"} <= set(score_names(names))
    timelines = Dataset.from_dict({"labels": [[0, 1], [1, 0]]})
    scores = results.score_part(timelines, predicted, np.eye(2)[predicted], names)
    part = results.group_by_class(scores, "predict", names)
    assert part["right"] == pytest.approx(3 / 4) and part["classes"]["a"]["given"] == pytest.approx(3 / 4)
    table = report.results_table("test", part)
    header, row_of_a = (line.split() for line in table.splitlines()[2:4])
    assert row_of_a[1 + header.index("given")] == "0.750" and "right answers 0.750" in table

    write_card(tiny_model(), tmp_path, scores={"test": {"right": 0.75, "given_LABEL_1": 0.5}}, titles=card_titles())
    card = (tmp_path / "README.md").read_text()
    assert "| Right answers | 0.75 |" in card and r"| LABEL\_1 | 0.5 |" in card
