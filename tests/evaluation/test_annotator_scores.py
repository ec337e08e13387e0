"""Checks the scores of people against each other, and of the model beside them."""

from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import f1_score

from modeling_tempoformer.evaluation.annotator_scores import score_annotators
from modeling_tempoformer.posts.agreement import krippendorff_alpha


def test_alpha_of_the_published_example():
    """Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), part C: 4 observers, 12 units, nominal."""
    table = [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
        [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
    ]
    votes = np.array([[unit.count(value) for value in range(1, 6)] for unit in map(list, zip(*table, strict=True))])
    assert krippendorff_alpha(votes) == pytest.approx(0.743, abs=0.0005)
    assert krippendorff_alpha(np.array([[2, 0], [0, 3]])) == 1
    # One class says nothing, and posts of one label do not count.
    assert krippendorff_alpha(np.array([[2, 0], [3, 0], [0, 1]])) is None


@pytest.fixture
def labelled() -> tuple[list[dict[str, int]], np.ndarray, np.ndarray]:
    """
    Returns the labels of four people for 300 posts, the model's predictions, and timelines. One person guesses, and
    some posts have few labels.
    """
    chance = np.random.default_rng(0)
    truth = chance.choice(3, 300, p=[0.6, 0.3, 0.1])
    labels = []
    for label in truth:
        given = {
            name: int(label if chance.random() < right else chance.integers(3))
            for name, right in {"ann": 0.9, "bob": 0.9, "cy": 0.8, "dan": 0.0}.items()
            if chance.random() < 0.7
        }
        labels.append(given)
    predictions = np.where(chance.random(300) < 0.6, truth, chance.integers(3, size=300))
    predictions[::50] = -1
    return labels, predictions, np.repeat(range(30), 10)


def others_majority(given: dict[str, int], name: str) -> int | None:
    counts = Counter(label for other, label in given.items() if other != name).most_common()
    return counts[0][0] if counts and (len(counts) == 1 or counts[0][1] > counts[1][1]) else None


def test_each_person_and_the_model_are_scored_against_the_majority_of_the_others(labelled):
    labels, predictions, timelines = labelled
    scores = score_annotators(labels, predictions, timelines, 3)
    assert scores["annotators"] == 4 and scores["posts"] == sum(len(given) > 1 for given in labels)
    everything = []
    for name, score in scores["each"].items():
        triples = [
            (others_majority(given, name), given[name], predicted)
            for given, predicted in zip(labels, predictions, strict=True)
            if name in given and others_majority(given, name) is not None and predicted >= 0
        ]
        reference, person, model = map(list, zip(*triples, strict=True))
        assert score["posts"] == len(triples)
        assert score["macro_f1"] == pytest.approx(f1_score(reference, person, average="macro"))
        assert score["model_macro_f1"] == pytest.approx(f1_score(reference, model, average="macro"))
        assert score["difference"] == pytest.approx(score["model_macro_f1"] - score["macro_f1"])
        everything += triples
    # Who guesses is worse than the model, and the model is worse than the others.
    assert scores["each"]["dan"]["difference_interval"][0] > 0 > scores["each"]["ann"]["difference_interval"][1]
    reference, person, model = map(list, zip(*everything, strict=True))
    assert scores["together"]["macro_f1"] == pytest.approx(f1_score(reference, person, average="macro"))
    assert scores["together"]["model_macro_f1"] == pytest.approx(f1_score(reference, model, average="macro"))
    assert sum(score["posts"] for score in scores["each"].values()) == scores["together"]["posts"]


def test_ties_and_posts_of_single_labels(labelled):
    _, _, timelines = labelled
    assert score_annotators([{"ann": 0}, {}], np.array([0, 1]), timelines[:2], 3) == {}
    tied = [{"ann": 0, "bob": 1}, {"ann": 2, "bob": 2}, {"ann": 1}]
    scores = score_annotators(tied, np.array([0, 2, 1]), np.array([0, 0, 1]), 3)
    assert (scores["posts"], scores["ties"]) == (2, 1)
    # Both people are judged by each other on the posts that both labelled, which are all in one timeline.
    assert scores["together"]["posts"] == 4 and "difference_interval" not in scores["together"]
    # The model was asked about no post.
    assert "each" not in score_annotators(tied, np.full(3, -1), np.array([0, 0, 1]), 3)
