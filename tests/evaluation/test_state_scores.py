"""Checks the scores of states against scikit-learn and NumPy."""

import math

import numpy as np
import pytest
import torch
from helpers import make_timeline
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error

from modeling_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.evaluation.state_scores import score_states


def answered(states: list[list[str]], logits: np.ndarray) -> list:
    """Returns timelines without labels, whose states are given, and what a model answers."""
    parts = iter(torch.from_numpy(logits).split(list(map(len, states))))
    return [make_timeline([-100] * len(given), states=given, state_logits=next(parts)) for given in states]


def test_classes_beside_the_most_frequent_class_of_training():
    """One post has no state, one has a state that the model does not know, and about one it was not asked."""
    given = [["joy", "fear", "", "joy"], ["fear", "rage", "joy", "fear"]]
    logits = np.random.default_rng(0).normal(size=(8, 2))
    logits[6] = math.nan
    timelines = answered(given, logits)
    config = PostTempoFormerConfig(states=["fear", "joy"])
    scores = score_states(timelines, config, [make_timeline([0] * 4, states=["joy", "fear", "joy", ""])])
    judged = [0, 1, 3, 4, 7]
    actual, predicted = [[*given[0], *given[1]][post] for post in judged], logits[judged].argmax(-1)
    predicted = [config.states[state] for state in predicted]
    assert scores["posts"] == 5 and "mean_absolute_error" not in scores
    assert scores["accuracy"] == pytest.approx(accuracy_score(actual, predicted))
    assert scores["macro_f1"] == pytest.approx(f1_score(actual, predicted, average="macro"))
    always = scores["most_frequent"]
    assert always["state"] == "joy" and always["accuracy"] == pytest.approx(2 / 5)
    assert always["macro_f1"] == pytest.approx(f1_score(actual, ["joy"] * 5, average="macro"))
    low, high = always["difference_interval"]
    assert low <= always["difference"] <= high
    assert "most_frequent" not in score_states(timelines, config)
    assert score_states(answered([["", "rage"]], logits[:2]), config) == {}


def test_numbers_are_compared_with_the_mean():
    """The model knows grades, and the posts have the numbers between them."""
    given = np.array([-2.0, -0.4, 1.2, 1.9, 0.1])
    logits = np.random.default_rng(1).normal(size=(5, 3))
    values = np.array([-2.0, 0.0, 2.0])
    config = PostTempoFormerConfig(states=["-2", "0", "2"], state_values=values.tolist())
    timelines = answered([[str(value) for value in given[:2]], [str(value) for value in given[2:]]], logits)
    scores = score_states(timelines, config, timelines)
    means = np.exp(logits) @ values / np.exp(logits).sum(1)
    assert scores["mean_absolute_error"] == pytest.approx(mean_absolute_error(given, means))
    assert scores["correlation"] == pytest.approx(np.corrcoef(given, means)[0, 1])
    # The grades are -2 0 2 2 0: of the two that are most frequent, the lower one is taken.
    assert scores["accuracy"] == pytest.approx((logits.argmax(-1) == [0, 1, 2, 2, 1]).mean())
    assert scores["most_frequent"]["state"] == "0"
    assert scores["most_frequent"]["mean_absolute_error"] == pytest.approx(np.abs(given).mean())
    # A correlation with a single number is not defined.
    assert "correlation" not in score_states(answered([["2", "2"]], logits[:2]), config)
