"""From logits of rows to scores and a table of posts."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from datasets import Dataset
from sklearn.metrics import f1_score

from modeling_tempoformer.data.timelines import to_timelines
from modeling_tempoformer.evaluation.metrics import compute_scores
from modeling_tempoformer.evaluation.predictions import (
    in_order,
    labelled_posts,
    post_ids_of,
    prediction_rows,
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
        "texts": [["hm", "so, then"], ["", "ok", "ok"]],
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
    scores = compute_scores(labelled_posts(timelines, predicted, NAMES, probabilities))
    assert scores["macro_f1"] == pytest.approx(f1_score([0, 1, 1, 1], [0, 1, 0, 1], average="macro"))
    assert scores["support_Switch"] == 3
    # Every confidence is 0.9, and three of four are right.
    assert scores["expected_calibration_error"] == pytest.approx(0.9 - 0.75)
    # The region of a is flagged at once, that of b at its second post, 30 seconds late.
    assert scores["median_delay_posts_Switch"] == pytest.approx(0.5)
    assert scores["median_delay_seconds_Switch"] == pytest.approx(15)


# Every line break, what a spreadsheet takes for a formula, what pandas takes for a missing cell, quotes.
TEXTS = ["a\rb", "a\r\nb\n", "=1+1", "@sum(a1)", "NA", "", '"so," she said', "007", "ｅ\u2028🙂"]
# All the same moment, but the last two: the first that can be, and one within a second.
TIMES = [
    *("2024-05-01T09:00:00Z", "2024-05-01T11:00:00+02:00", "2024-05-01 09:00", "2024-04-30T23:00:00-10:00"),
    *("2024-05-01T09:00Z", "2024-05-01T09:00:00.000Z", "2024-05-01T14:30+05:30"),
    *("0001-01-01", "2024-05-01T09:00:00.5Z"),
]


def write(posts: list[dict], folder) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The predictions of posts in both files. The i-th post of the timelines has the probability i / 10 of Switch."""
    timelines = to_timelines(Dataset.from_list(posts), NAMES)
    share = np.arange(len(posts)) / 10
    probabilities = np.stack([1 - share, share], axis=1)
    predicted = probabilities.argmax(axis=1)
    write_predictions(str(folder), prediction_rows(timelines, predicted, probabilities, NAMES))
    as_text = pd.read_csv(folder / "_predictions.csv", dtype=str, keep_default_na=False)
    return as_text, pd.read_parquet(folder / "_predictions.parquet")


def test_each_prediction_stands_beside_its_post(tmp_path):
    """Two timelines whose posts alternate; equal texts, equal times, times in any zone, a missing label."""
    posts = [
        {"timeline_id": "ab"[row % 2], "timestamp": time, "text": text, "label": NAMES[row % 3 % 2]}
        for row, (time, text) in enumerate(zip(TIMES, TEXTS, strict=True))
    ]
    posts[3]["text"], posts[5]["label"] = posts[1]["text"], None
    as_text, typed = write(posts, tmp_path)
    assert list(as_text)[:6] == ["timeline_id", "post_id", "time", "text", "label", "prediction"]
    for found in (as_text, typed):
        assert found["post_id"].tolist() == [str(row) for row in range(9)]
        for column in ("timeline_id", "text"):
            assert found[column].tolist() == [post[column] for post in posts]
    assert as_text["label"].tolist() == [post["label"] or "" for post in posts]
    assert as_text["time"].tolist() == [
        *["2024-05-01T09:00:00.000000Z"] * 7,
        *("0001-01-01T00:00:00.000000Z", "2024-05-01T09:00:00.500000Z"),
    ]
    # In order of time, ties in the order of the input: a has the rows 0 2 4 6 8, b has 7 1 3 5.
    order = [0, 2, 4, 6, 8, 7, 1, 3, 5]
    assert typed["probability_Switch"].tolist() == [order.index(row) / 10 for row in range(9)]
    assert as_text["probability_Switch"].astype(float).tolist() == typed["probability_Switch"].tolist()
    schema = pq.read_schema(tmp_path / "_predictions.parquet")
    assert schema.names == list(as_text) and str(schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert typed["time"].tolist() == pd.to_datetime(as_text["time"]).tolist()


def test_posts_without_times_or_labels(tmp_path):
    as_text, typed = write([{"timeline_id": "a", "text": text} for text in TEXTS], tmp_path)
    assert "time" not in as_text and "time" not in typed
    assert set(as_text["label"]) == {""} and typed["label"].isna().all()
    # The column has the same type where some posts have labels.
    assert "string" in str(pq.read_schema(tmp_path / "_predictions.parquet").field("label").type)
