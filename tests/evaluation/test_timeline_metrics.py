"""Scores of timelines, on examples worked by hand."""

import math

import pytest

from modeling_tempoformer.evaluation.timeline_metrics import (
    Timeline,
    timeline_scores,
    window_scores,
)


def digits(text: str) -> list[int]:
    return [int(letter) for letter in text]


@pytest.mark.parametrize(
    "actual, predicted, window, expected",
    [
        ("0010000", "0001000", 0, (0, 0)),
        ("0010000", "0001000", 1, (1, 1)),
        # One prediction is right for one post only.
        ("0110000", "0001000", 2, (1, 1 / 2)),
        ("0010000", "0101010", 1, (1 / 3, 1)),
        ("0010010", "0101000", 1, (1 / 2, 1 / 2)),
        # The earlier prediction is left to the earlier post.
        ("0101000", "1010000", 1, (1, 1)),
        ("0000000", "0100000", 1, (0, math.nan)),
        ("0100000", "0000000", 1, (math.nan, 0)),
        ("0000000", "0000000", 1, (math.nan, math.nan)),
    ],
)
def test_window_scores(actual, predicted, window, expected):
    found = window_scores(Timeline(digits(actual), digits(predicted)), 1, window)
    assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    "actual, predicted, expected",
    [
        # Overlap of 4 with 3 posts: 3 of 4.
        ("01111000", "01110000", (3 / 4, 3 / 4)),
        # Actual regions of 2 and 3 posts; the predicted one shares 1 of 5 and 2 of 4.
        ("11001110", "01001100", ((1 * 1 / 2 + 2 * 2 / 3) / 3, (2 * 1 / 2 + 3 * 2 / 3) / 5)),
        ("11000000", "00001111", (0, 0)),
        ("00000000", "00001111", (0, math.nan)),
        ("11000000", "00000000", (math.nan, 0)),
    ],
)
def test_coverage_scores(actual, predicted, expected):
    scores = timeline_scores([Timeline(digits(actual), digits(predicted))], ["No", "Switch"])
    found = scores["coverage_precision_Switch"], scores["coverage_recall_Switch"]
    assert found == pytest.approx(expected, nan_ok=True)


def test_delays_end_where_the_next_region_begins():
    times = [0, 10, 30, 60, 100, 150, 210, 280]
    for predicted, posts, seconds, missed in (("10010000", 2, 50, 1 / 2), ("01000001", (0 + 2) / 2, (0 + 130) / 2, 0)):
        scores = timeline_scores([Timeline(digits("01100110"), digits(predicted), times)], ["No", "Switch"])
        names = ("median_delay_posts_Switch", "median_delay_seconds_Switch", "missed_Switch")
        assert [scores[name] for name in names] == pytest.approx([posts, seconds, missed])


def test_scores_are_means_over_the_timelines_that_have_them():
    timelines = [
        Timeline(digits("0110"), digits("0100"), [0, 1, 2, 3]),
        Timeline([0, -100, 1, 0], [0, 1, 0, 1], [0, 5, 9, 20]),
        Timeline(digits("0000"), digits("0000"), [0, 1, 2, 3]),
    ]
    scores = timeline_scores(timelines, ["No", "Switch"], window=0)
    assert scores["window_precision_Switch"] == pytest.approx((1 + 0) / 2)
    assert scores["window_recall_Switch"] == pytest.approx((1 / 2 + 0) / 2)
    assert scores["coverage_recall_Switch"] == pytest.approx((1 / 2 + 0) / 2)
    assert scores["median_delay_posts_Switch"] == pytest.approx((0 + 1) / 2)
    assert scores["median_delay_seconds_Switch"] == pytest.approx((0 + 11) / 2)
    assert scores["missed_Switch"] == pytest.approx(0)
    with pytest.raises(IndexError):
        timeline_scores([Timeline([0, 1], [0])], ["No", "Switch"])


def test_a_score_that_is_nowhere_defined_is_nan():
    scores = timeline_scores([Timeline([0, -100], [0, 1]), Timeline([-100], [1])], ["No", "Switch"])
    assert math.isnan(scores["window_recall_Switch"]) and math.isnan(scores["missed_Switch"])
    assert "median_delay_seconds_Switch" not in scores and scores["missed_No"] == pytest.approx(0)
