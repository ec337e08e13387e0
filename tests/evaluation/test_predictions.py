"""From logits of rows to scores and a table of posts."""

import csv

import numpy as np
import pytest
from datasets import Dataset
from sklearn.metrics import f1_score

from modeling_tempoformer.baselines.class_prior import class_prior_predictions
from modeling_tempoformer.evaluation.predictions import (
    in_order,
    labels_of,
    post_ids_of,
    prediction_rows,
    score_posts,
    write_predictions,
)


NAMES = ["No-Switch", "Switch"]


@pytest.fixture
def timelines() -> Dataset:
    """Two timelines whose posts alternate in the input, one post without a label."""
    columns = {
        "timeline_id": ["a", "b"],
        "post_ids": [["p0", "p2"], ["p1", "p3", "p4"]],
        "post_rows": [[0, 2], [1, 3, 4]],
        "labels": [[0, 1], [-100, 1, 1]],
        "timestamps": [[0, 5], [0, 60, 90]],
    }
    return Dataset.from_dict(columns)


def test_values_are_found_by_post_whatever_follows_them(timelines):
    items = [["p3", "p4"], ["p0"], ["p2", "p1"]]
    values = np.array([[[3.0], [4.0]], [[0.0], [-100.0]], [[2.0], [1.0]]])
    assert in_order(post_ids_of(timelines), items, values).tolist() == [[0.0], [2.0], [1.0], [3.0], [4.0]]
    with pytest.raises(KeyError, match="p9"):
        in_order(["p9"], items, values)


def test_scores_of_labelled_posts_timelines_and_probabilities(timelines):
    predicted = np.array([0, 1, 1, 0, 1])
    probabilities = np.eye(2)[predicted] * 0.8 + 0.1
    scores = score_posts(timelines, predicted, probabilities, NAMES)
    assert scores["macro_f1"] == pytest.approx(f1_score([0, 1, 1, 1], [0, 1, 0, 1], average="macro"))
    assert scores["support_Switch"] == 3
    # Every confidence is 0.9, and three of four are right.
    assert scores["expected_calibration_error"] == pytest.approx(0.9 - 0.75)
    # The region of a is flagged at once, that of b at its second post, 30 seconds late.
    assert scores["median_delay_posts_Switch"] == 0.5 and scores["median_delay_seconds_Switch"] == 15.0


def test_a_post_without_prediction_is_wrong_for_every_class(timelines):
    predicted = np.array([0, 1, 1, -1, 1])
    probabilities = np.eye(2)[predicted] * (predicted >= 0)[:, None]
    scores = score_posts(timelines, predicted, probabilities, NAMES)
    assert scores["recall_Switch"] == pytest.approx(2 / 3) and scores["precision_No-Switch"] == 1
    assert scores["expected_calibration_error"] == 0


def test_posts_without_any_label_have_no_scores(timelines):
    unlabelled = timelines.map(lambda row: {"labels": [-100] * len(row["labels"])})
    assert score_posts(unlabelled, np.zeros(5, dtype=int), np.zeros((5, 2)), NAMES) == {}


def test_the_file_has_the_posts_in_the_order_of_the_input(timelines, tmp_path):
    predicted = np.array([0, 1, 1, 0, -1])
    probabilities = np.stack([1 - np.arange(5) / 10, np.arange(5) / 10], axis=1)
    write_predictions(str(tmp_path), prediction_rows(timelines, predicted, probabilities, NAMES))
    with (tmp_path / "_predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["post_id"] for row in rows] == ["p0", "p1", "p2", "p3", "p4"]
    assert rows[1] == {
        "post_id": "p1",
        "timeline_id": "b",
        "label": "",
        "prediction": "Switch",
        "probability_No-Switch": "0.8",
        "probability_Switch": "0.2",
    }
    assert rows[4]["prediction"] == "" and rows[4]["label"] == "Switch"


def test_class_prior_draws_by_the_training_shares(timelines):
    long = Dataset.from_list([{"labels": [0] * 5000}, {"labels": [-100] * 5000}])
    drawn, probabilities = class_prior_predictions(timelines, long, 2, seed=3)
    assert drawn.shape == (10_000,) and np.allclose(probabilities, [0.25, 0.75])
    assert drawn.mean() == pytest.approx(0.75, abs=0.02)
    assert (drawn == class_prior_predictions(timelines, long, 2, seed=3)[0]).all()
    with pytest.raises(ValueError, match="No training post has a label"):
        class_prior_predictions(Dataset.from_list([{"labels": [-100]}]), long, 2)
    assert labels_of(timelines).tolist() == [0, 1, -100, 1, 1]
