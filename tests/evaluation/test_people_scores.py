"""Checks scores within and between people by hand and in another way, and people in the training beside others."""

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import make_timeline
from scipy.stats import pearsonr
from sklearn.metrics import f1_score

from modeling_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.evaluation.people_scores import score_within_and_between
from modeling_tempoformer.evaluation.report import group_by_class, people_lines, results_table, score_part
from modeling_tempoformer.evaluation.state_scores import score_states
from modeling_tempoformer.posts.metadata import Metadata


def test_four_people_by_hand():
    """Ann is followed, Bob is mirrored, Cid has one post, and Dan always the same state."""
    given = np.array([1.0, 2.0, 3.0, 4.0, 6.0, 5.0, 3.0, 3.0])
    answered = np.array([2.0, 3.0, 4.0, 7.0, 5.0, 6.0, 1.0, 2.0])
    scores = score_within_and_between(given, answered, [*"aaabbcdd"])
    assert scores["within_people"] == pytest.approx(
        {"people": 2, "correlation": (1 - 1) / 2, "mean_absolute_error": (1 + 2 + 1 + 1.5) / 4}
    )
    means = np.array([2, 5, 5, 3]), np.array([3, 6, 6, 1.5])
    between = scores["between_people"]
    assert between["people"] == 4 and between["mean_absolute_error"] == pytest.approx((1 + 1 + 1 + 1.5) / 4)
    assert between["correlation"] == pytest.approx(pearsonr(*means).statistic)
    # The mean of z and of 0, by the formula of half an angle.
    r = between["correlation"]
    assert scores["composite_correlation"] == pytest.approx(r / (1 + np.sqrt(1 - r**2)))


def test_many_people_in_another_way():
    generator = np.random.default_rng(0)
    people = generator.integers(12, size=200)
    given = people + generator.normal(size=200)
    answered = given + generator.normal(size=200)
    scores = score_within_and_between(given, answered, people.tolist())
    table = pd.DataFrame({"given": given, "answered": answered, "person": people})
    correlations = table.groupby("person")[["given", "answered"]].corr().xs("given", level=1)["answered"]
    between = table.groupby("person").mean().corr().loc["given", "answered"]
    assert scores["within_people"]["correlation"] == pytest.approx(correlations.mean())
    assert scores["between_people"]["correlation"] == pytest.approx(between)
    error = (table.given - table.answered).abs().groupby(table.person).mean().mean()
    assert scores["within_people"]["mean_absolute_error"] == pytest.approx(error)
    z = [np.log((1 + r) / (1 - r)) / 2 for r in (correlations.mean(), between)]
    assert np.arctanh(scores["composite_correlation"]) == pytest.approx(np.mean(z))


def test_what_is_not_defined_is_left_out():
    one = score_within_and_between(np.array([1.0, 2.0]), np.array([1.0, 3.0]), ["a", "a"])
    assert one["within_people"] == pytest.approx({"people": 1, "correlation": 1, "mean_absolute_error": 0.5})
    assert "correlation" not in one["between_people"] and "composite_correlation" not in one
    alone = score_within_and_between(np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0]), ["a", "b", "c"])
    assert alone["within_people"] == pytest.approx({"people": 0, "mean_absolute_error": 1})
    assert alone["between_people"]["correlation"] == pytest.approx(1) and "composite_correlation" not in alone
    # A model that gives a person the same number in all posts follows nothing.
    flat = score_within_and_between(np.array([1.0, 2.0, 5.0, 6.0]), np.array([1.0, 1.0, 2.0, 2.0]), [*"aabb"])
    assert flat["within_people"]["correlation"] == 0 and flat["within_people"]["people"] == 2
    # Perfect correlations have a finite mean.
    same = np.array([1.0, 2.0, 5.0, 7.0])
    assert score_within_and_between(same, same, [*"aabb"])["composite_correlation"] == pytest.approx(1)


LABELS, PREDICTED = [[0, 1, 1], [0, 0, 1], [1, 0, 0]], [[0, 1, 0], [1, 0, 1], [0, 0, 0]]
NAMES = ["No", "Change"]


def people(**fields) -> list:
    """Returns the timelines of three people; the first two are of one family."""
    families = [[Metadata(unit=unit)] * 3 for unit in ("smith", "smith", "")]
    return [
        make_timeline(
            labels, f"t{number}", metadata=metadata, **{name: value[number] for name, value in fields.items()}
        )
        for number, (labels, metadata) in enumerate(zip(LABELS, families, strict=True))
    ]


def results_of(train: list) -> dict:
    predicted = np.ravel(PREDICTED)
    scores = score_part(people(), predicted, np.eye(2)[predicted] * 0.8 + 0.1, NAMES, train)
    return group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", NAMES)


def test_people_in_the_training_are_scored_apart():
    """A sibling of two of the people is in the training, who changes less than others."""
    sibling = make_timeline([0, 0, 1], "s", metadata=[Metadata(unit="smith")] * 3)
    results = results_of([sibling])
    found = results["people"]
    assert (found["people"], found["in_training"], results["no_change"]) == (2, 1, "No")
    for name, chosen in (("seen", slice(0, 2)), ("unseen", slice(2, 3))):
        labels, predicted = np.ravel(LABELS[chosen]), np.ravel(PREDICTED[chosen])
        part = found[name]
        assert part["people"] == 1 and part["posts"] == len(labels)
        assert part["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
        by_timeline = [f1_score(*pair, zero_division=1) for pair in zip(LABELS[chosen], PREDICTED[chosen])]
        expected = (f1_score(labels, predicted), np.mean(by_timeline))
        assert (part["change_post_f1"], part["change_timeline_f1"]) == pytest.approx(expected)
        assert part["change_f1"] == pytest.approx(np.mean(expected))
    question, apart = people_lines(results)
    assert "1 of the 2" in question and "the same people later, and new people" in question
    assert f"{found['seen']['macro_f1']:.3f}" in apart and f"{found['unseen']['change_f1']:.3f}" in apart
    assert question in results_table("test", results) and apart in results_table("test", results)


def test_the_question_is_said_where_all_are_new_and_where_all_are_known():
    new = results_of([make_timeline([0, 0, 1], "s")])
    assert new["people"] == {"people": 2, "in_training": 0, "question": "new people"}
    assert people_lines(new) == ["These scores are about new people: none of the 2 people are also in the training."]
    known = results_of(people())
    assert known["people"] == {"people": 2, "in_training": 2, "question": "the same people later"}
    assert len(people_lines(known)) == 1
    # Without training posts, and where members hold out what they are tested on, it is not known.
    for train, held_out in ((None, [None] * 3), (people(), [0, 1, 2])):
        timelines = people(held_out=held_out)
        scores = score_part(timelines, np.ravel(PREDICTED), np.eye(2)[np.ravel(PREDICTED)], NAMES, train)
        assert "people" not in scores and people_lines(scores) == []


def flat(scores: dict) -> dict[str, float]:
    """Returns nested scores by their paths."""
    return pd.json_normalize(scores).iloc[0].to_dict()


def test_states_of_people_in_the_training_are_scored_apart():
    logits = np.random.default_rng(0).normal(size=(9, 3))
    given = [["-2", "0", "2"], ["0", "-2", "0"], ["2", "0", "2"]]
    answers = torch.from_numpy(logits)
    timelines = people(states=given, state_logits=answers.split(3))
    config = PostTempoFormerConfig(states=["-2", "0", "2"], state_values=[-2.0, 0.0, 2.0])
    train = [make_timeline([0, 0, 1], "s", states=["0", "2", "2"], metadata=[Metadata(unit="smith")] * 3)]
    scores = score_states(timelines, config, train)
    means, values = (np.exp(logits) @ [-2, 0, 2] / np.exp(logits).sum(1)), np.ravel(given).astype(float)
    # The family is one person.
    expected = score_within_and_between(values, means, [*"ssssss", *"ttt"])
    assert flat({name: scores[name] for name in expected}) == pytest.approx(flat(expected))
    expected = score_within_and_between(values[:6], means[:6], [*"ssssss"])
    assert flat({name: scores["seen"][name] for name in expected}) == pytest.approx(flat(expected))
    assert scores["unseen"]["posts"] == 3 and "most_frequent" not in scores["unseen"]
    assert "seen" not in score_states(timelines, config, timelines)
