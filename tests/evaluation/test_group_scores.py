"""Checks the scores of groups against scikit-learn and a plain bootstrap."""

import random

import numpy as np
import pytest
from sklearn.metrics import f1_score

from modeling_tempoformer.evaluation.group_scores import MOST_GROUPS, score_groups
from modeling_tempoformer.evaluation.predictions import Predictions


NAMES = ["O", "IE", "IS"]


def macro_f1(posts: Predictions, chosen: np.ndarray, classes=(0, 1, 2)) -> float:
    labels, predictions = posts.labels[chosen], posts.predictions[chosen]
    return f1_score(labels, predictions, labels=list(classes), average="macro", zero_division=0)


@pytest.fixture
def posts() -> tuple[Predictions, np.ndarray]:
    """Returns posts of thirty timelines, whose groups are mixed in timelines, and which are right less often in b."""
    chance = np.random.default_rng(0)
    labels, timelines = chance.choice(3, 600, p=[0.5, 0.3, 0.2]), np.sort(chance.integers(30, size=600))
    groups = np.where(chance.random(600) < 0.3, "b", "a").astype(object)
    is_right = chance.random(600) < np.where(groups == "b", 0.5, 0.85)
    predictions = np.where(is_right, labels, chance.integers(3, size=600))
    return Predictions(labels, predictions, NAMES, timelines=timelines), groups


def test_each_group_is_scored_beside_all_others(posts):
    posts, groups = posts
    scores = score_groups(posts, groups)
    assert list(scores) == ["a", "b"]
    for name, score in scores.items():
        chosen = groups == name
        assert score["posts"] == chosen.sum() and score["timelines"] == len(set(posts.timelines[chosen]))
        assert score["macro_f1"] == pytest.approx(macro_f1(posts, chosen))
        assert score["difference"] == pytest.approx(macro_f1(posts, chosen) - macro_f1(posts, ~chosen))
    assert scores["b"]["difference_interval"][1] < 0 < scores["a"]["difference_interval"][0]


def test_the_intervals_are_those_of_a_plain_bootstrap_of_timelines(posts):
    """The loop draws other random numbers, so the ends agree within noise."""
    posts, groups = posts
    score = score_groups(posts, groups)["b"]
    posts_of = [np.flatnonzero(posts.timelines == number) for number in range(30)]
    chance, scores, differences = random.Random(0), [], []

    def score_of(chosen: np.ndarray) -> float:
        """Macro F1, faster than scikit-learn's."""
        pairs = np.zeros((3, 3))
        np.add.at(pairs, (posts.labels[chosen], posts.predictions[chosen]), 1)
        return np.mean(2 * pairs.diagonal() / (pairs.sum(0) + pairs.sum(1)))

    for _ in range(2000):
        sample = np.concatenate(chance.choices(posts_of, k=30))
        inside, outside = (sample[groups[sample] == name] for name in "ba")
        scores.append(score_of(inside))
        differences.append(scores[-1] - score_of(outside))
    assert score["macro_f1_interval"] == pytest.approx(np.percentile(scores, [2.5, 97.5]), abs=0.015)
    assert score["difference_interval"] == pytest.approx(np.percentile(differences, [2.5, 97.5]), abs=0.015)


def test_a_class_that_one_side_lacks_counts_on_neither(posts):
    posts, groups = posts
    groups = np.where((groups == "b") & (posts.labels == 2), "a", groups)
    score = score_groups(posts, groups)["b"]
    inside = groups == "b"
    assert score["missing_classes"] == ["IS"]
    assert score["macro_f1"] == pytest.approx(macro_f1(posts, inside, (0, 1)))
    assert score["difference"] == pytest.approx(macro_f1(posts, inside, (0, 1)) - macro_f1(posts, ~inside, (0, 1)))
    # No class is on both sides.
    apart = score_groups(posts, np.where(posts.labels == 0, "a", "b"))
    assert "macro_f1" not in apart["a"] and apart["a"]["posts"] == (posts.labels == 0).sum()


def test_few_timelines_have_no_interval(posts):
    """The groups of nine and of ten timelines are wrong everywhere, and nothing is claimed of the nine."""
    posts, _ = posts
    groups = np.where(posts.timelines < 9, "nine", np.where(posts.timelines < 19, "ten", "others"))
    posts.predictions[groups != "others"] = (posts.labels[groups != "others"] + 1) % 3
    scores = score_groups(posts, groups)
    assert scores["nine"]["macro_f1"] == scores["ten"]["macro_f1"] == 0
    assert {"difference_interval", "macro_f1_interval"}.isdisjoint(scores["nine"])
    assert scores["ten"]["difference_interval"][1] < 0 and "macro_f1_interval" in scores["ten"]


def test_a_group_is_never_taken_for_the_posts_without_one(posts):
    """Nor for the smaller groups: there are five of one post each, and a group that has their joint name."""
    posts, _ = posts
    groups = np.where(posts.timelines < 9, "(none)", np.where(posts.timelines < 20, "", "x"))
    scores = score_groups(posts, groups)
    for name, group in (("(none)", "(none)"), ("((none))", ""), ("x", "x")):
        assert scores[name]["posts"] == (groups == group).sum()
        assert scores[name]["macro_f1"] == pytest.approx(macro_f1(posts, groups == group))
    many = np.array([*"abcdefghijklmnopqr" * 30, *["(5 smaller groups)"] * 55, *"12345"])
    scores = score_groups(posts, many)
    assert scores["(5 smaller groups)"]["posts"] == 55 and scores["((5 smaller groups))"]["posts"] == 5


def test_groups_of_one_timeline_alone_missing_and_many(posts):
    posts, _ = posts
    one = score_groups(posts, np.where(posts.timelines == 3, "x", ""))
    assert "difference_interval" not in one["x"] and "difference" in one["x"] and one["(none)"]["timelines"] == 29
    alone = score_groups(posts, ["x"] * 600)["x"]
    assert alone["macro_f1"] == pytest.approx(macro_f1(posts, np.full(600, True)))
    assert "difference" not in alone and alone["macro_f1_interval"][0] < alone["macro_f1"]
    # Number 0 has 30 posts, number 1 has 29, and so on.
    sizes = np.repeat(range(24), [30 - number for number in range(24)])
    few = Predictions(posts.labels[:444], posts.predictions[:444], NAMES, timelines=posts.timelines[:444])
    many = score_groups(few, [str(number) for number in sizes])
    assert len(many) == MOST_GROUPS and sum(score["posts"] for score in many.values()) == 444
    assert [score["posts"] for name, score in many.items() if name == "18"] == [(sizes == 18).sum()]
    assert "19" not in many
