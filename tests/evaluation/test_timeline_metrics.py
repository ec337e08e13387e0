"""Checks scores of timelines on examples worked by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from modeling_tempoformer.evaluation.metrics import choose_no_change, compute_scores
from modeling_tempoformer.evaluation.predictions import Predictions


def digits(text: str) -> np.ndarray:
    return np.array([int(letter) for letter in text])


def scores_of(*timelines: tuple[str, str], times: list[float] | None = None) -> dict[str, float]:
    """Returns the scores of timelines, given as labels and predictions, with their times one after the other."""
    labels, predictions = (digits("".join(texts)) for texts in zip(*timelines, strict=True))
    numbers = np.repeat(np.arange(len(timelines)), [len(text) for text, _ in timelines])
    times = None if times is None else np.array(times)
    return compute_scores(Predictions(labels, predictions, ["No", "Switch"], timelines=numbers, times=times))


@pytest.mark.parametrize(
    "score, labels, predictions, expected",
    [
        ("window", "0010000", "0001000", (1, 1)),
        # One prediction is right for one post only.
        ("window", "0110000", "0001000", (1, 1 / 2)),
        ("window", "0010010", "0101000", (1 / 2, 1 / 2)),
        ("window", "0010000", "0101010", (1 / 3, 1)),
        # The earlier prediction is left to the earlier post.
        ("window", "0101000", "1010000", (1, 1)),
        ("window", "0000000", "0100000", (0, None)),
        ("window", "0100000", "0000000", (None, 0)),
        # Overlap of 4 with 3 posts: 3 of 4.
        ("coverage", "01111000", "01110000", (3 / 4, 3 / 4)),
        # Labelled runs of 2 and 3 posts; the predicted one shares 1 of 5 and 2 of 4.
        ("coverage", "11001110", "01001100", ((1 * 1 / 2 + 2 * 2 / 3) / 3, (2 * 1 / 2 + 3 * 2 / 3) / 5)),
        ("coverage", "11000000", "00001111", (0, 0)),
        ("coverage", "00000000", "00001111", (0, None)),
        ("coverage", "11000000", "00000000", (None, 0)),
    ],
)
def test_scores_of_windows_and_runs(score, labels, predictions, expected):
    scores = scores_of((labels, predictions))
    computed = scores.get(f"{score}_precision_Switch"), scores.get(f"{score}_recall_Switch")
    assert computed == pytest.approx(expected)


@pytest.mark.parametrize(
    "predictions, posts, seconds, missed",
    # Predictions before a run and after it do not find it.
    [("10010010", 1, 60, 1 / 2), ("01000001", 0, 0, 1 / 2), ("01000010", (0 + 1) / 2, (0 + 60) / 2, 0)],
)
def test_a_run_is_found_by_a_prediction_in_it(predictions, posts, seconds, missed):
    scores = scores_of(("01100110", predictions), times=[0, 10, 30, 60, 100, 150, 210, 280])
    names = ("median_delay_posts_Switch", "median_delay_seconds_Switch", "missed_Switch")
    assert [scores[name] for name in names] == pytest.approx([posts, seconds, missed])


def test_scores_are_means_over_the_timelines_that_have_them():
    scores = scores_of(("0110", "0100"), ("010", "001"), ("0000", "0000"), times=[0, 1, 2, 3, 0, 9, 20, 0, 1, 2, 3])
    # A prediction one post beside counts.
    assert scores["window_precision_Switch"] == pytest.approx((1 + 1) / 2)
    assert scores["window_recall_Switch"] == pytest.approx((1 / 2 + 1) / 2)
    assert scores["coverage_recall_Switch"] == pytest.approx((1 / 2 + 0) / 2)
    assert scores["median_delay_posts_Switch"] == scores["median_delay_seconds_Switch"] == pytest.approx(0)
    # The run of the second timeline
    assert scores["missed_Switch"] == pytest.approx(1 / 2)


def test_a_score_that_is_nowhere_defined_is_left_out():
    scores = scores_of(("0", "0"))
    assert not {"window_recall_Switch", "missed_Switch", "median_delay_seconds_No"} & set(scores)
    assert scores["missed_No"] == pytest.approx(0)


def test_f1_of_timelines():
    """Half of a change, a false alarm, a missed change, and a timeline without changes and alarms."""
    scores = scores_of(("0110", "0100"), ("000", "010"), ("010", "000"), ("000", "000"))
    assert scores["timeline_f1_Switch"] == pytest.approx((2 / 3 + 0 + 0 + 1) / 4)
    assert scores["timelines_without_Switch"] == 1 and scores["timelines_without_No"] == 0
    assert "change_f1" not in scores


def test_changes_as_clpsych_2026_ranks_them():
    """Three classes in three timelines; the example of its evaluation for one of them, and another one beside it."""
    pairs = [("1010", "1000"), ("0022", "1022"), ("020", "002")]
    labels, predictions = (digits("".join(texts)) for texts in zip(*pairs, strict=True))
    numbers = np.repeat([0, 1, 2], [4, 4, 3])
    names = ["No", "Switch", "Escalation"]
    scores = compute_scores(Predictions(labels, predictions, names, timelines=numbers), no_change=0)
    # Switch: one of two, a false alarm, neither. Escalation: neither, both, one beside it.
    posts = [2 * 1 / (2 + 2), 2 * 2 / (3 + 3)]
    timelines = [(2 / 3 + 0 + 1) / 3, (1 + 1 + 0) / 3]
    assert scores["change_post_f1"] == pytest.approx(np.mean(posts))
    assert scores["change_timeline_f1"] == pytest.approx(np.mean(timelines))
    assert scores["change_f1"] == pytest.approx(np.mean([*posts, *timelines]))
    # Another class is no change.
    other = compute_scores(Predictions(labels, predictions, names, timelines=numbers), no_change=1)
    assert other["change_post_f1"] == pytest.approx((scores["f1_No"] + scores["f1_Escalation"]) / 2)


@pytest.mark.parametrize(
    "config, expected",
    [
        (None, 1),
        (SimpleNamespace(no_change=2, change_step=1.0, class_weights=[1.0, 2.0, 3.0]), 2),
        (SimpleNamespace(no_change=None, change_step=0.0, class_weights=[3.0, 2.0, 1.0]), 0),
        (SimpleNamespace(no_change=None, change_step=None, class_weights=[3.0, 2.0, 1.0]), 2),
        (SimpleNamespace(no_change=None, change_step=None, class_weights=None), 1),
    ],
)
def test_the_class_that_is_no_change(config, expected):
    assert choose_no_change(config, np.array([-100, -100, -100, 0, 1, 1]), ["a", "b", "c"]) == expected


def test_of_two_classes_the_one_that_is_not_watched_is_no_change():
    """Also if it is the rarer one, as where changes come within many posts."""
    fields = {"no_change": None, "change_step": None, "class_weights": [2.0, 1.0]}
    labels = np.array([0, 1, 1])
    assert choose_no_change(SimpleNamespace(watched=1, **fields), labels, ["none", "change"]) == 0
    assert choose_no_change(SimpleNamespace(watched=0, **fields), labels, ["none", "change"]) == 1
    assert choose_no_change(SimpleNamespace(watched=None, **fields), labels, ["none", "change"]) == 1


@pytest.mark.parametrize(
    "timelines, switches",
    [
        (["1111111100", "1000", "0100"], 1),
        # Five of ten.
        (["10000", "1111", "11111"], 1),
        (["0110", "0011", "0101", "1001", "1000"], 3),
        (["000", "00"], None),
    ],
)
def test_how_few_timelines_have_half_of_a_class(timelines, switches):
    scores = scores_of(*((labels, labels) for labels in timelines))
    assert scores.get("timelines_of_half_Switch") == switches
