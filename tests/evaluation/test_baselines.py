"""Checks the comparison with the larger class, with position and time alone, and with words alone."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import make_timeline
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score

from modeling_tempoformer.baselines import position_and_time, trees, words
from modeling_tempoformer.baselines.features import fit_and_predict, post_features
from modeling_tempoformer.evaluation.baseline_scores import compare_with_baselines, learn_baselines
from modeling_tempoformer.evaluation.predictions import all_labels, labelled_posts
from modeling_tempoformer.timeline_tempoformer import Timeline


NAMES = ["No-Switch", "Switch"]
DAY = 86_400


def make_timelines(rule, seed: int, timed: bool = True) -> list[Timeline]:
    """
    Returns forty timelines of six posts. The label follows from the position and the gap. Every seventh is missing.
    """
    generator = np.random.default_rng(seed)
    timelines = []
    for _ in range(40):
        gaps = generator.choice([60, DAY], size=6)
        labels = [
            int(rule(position, gap)) if generator.random() > 1 / 7 else -100 for position, gap in enumerate(gaps)
        ]
        timelines.append(make_timeline(labels, timestamps=gaps.cumsum().tolist() if timed else None))
    return timelines


@pytest.mark.parametrize(
    ("rule", "timed"),
    [
        (lambda position, gap: position in (1, 2), True),
        (lambda position, gap: position in (1, 2), False),
        (lambda position, gap: position > 0 and gap == DAY, True),
    ],
    ids=["position", "position without times", "gap"],
)
def test_a_rule_of_position_or_time_is_learned(rule, timed):
    train, test = (make_timelines(rule, seed, timed) for seed in (0, 1))
    probabilities = position_and_time.predict(train, test, 2)
    actual = all_labels(test)
    assert (probabilities.argmax(-1) == actual)[actual >= 0].all()
    features = [post_features(part) for part in (train, test)]
    assert len(position_and_time.shared_features(train, *features)) == (4 if timed else 1)
    # The trees read only the features that both parts have.
    untimed = post_features([replace(one, timestamps=None) for one in test])
    assert position_and_time.shared_features(train, features[0], untimed) == ["position"]


def test_posts_that_a_member_has_not_learned_from_are_not_learned_from():
    """The rule of each part does not hold in the other part."""
    rules = [make_timelines(lambda position, gap, odd=odd: position % 2 == odd, seed=odd) for odd in (0, 1)]
    both = [replace(timeline, held_out=member) for member, part in enumerate(rules) for timeline in part]
    actual = all_labels(both)
    probabilities = position_and_time.predict(both, both, 2)
    assert (probabilities.argmax(-1) != actual)[actual >= 0].all()


def speaking(labels_of, seed: int, count: int = 40) -> list[Timeline]:
    """Returns timelines of six posts of three words, whose labels follow from the words and the position."""
    generator = np.random.default_rng(seed)
    timelines = []
    for _ in range(count):
        texts = [" ".join(generator.choice(["calm", "sunny", "angry", "walks", "so", "i"], 3)) for _ in range(6)]
        labels = [int(labels_of(text, position)) for position, text in enumerate(texts)]
        timelines.append(replace(make_timeline(labels), texts=texts))
    return timelines


def test_words_alone_learn_a_word_and_no_position():
    def is_angry(text, position):
        return "angry" in text

    train, test = (speaking(is_angry, seed) for seed in (0, 1))
    assert (words.predict(train, test, 2).argmax(-1) == all_labels(test)).mean() > 0.95
    late = [speaking(lambda text, position: position > 2, seed) for seed in (0, 1)]
    assert abs((words.predict(*late, 2).argmax(-1) == all_labels(late[1])).mean() - 0.5) < 0.1
    # A class that nobody has in training
    probabilities = words.predict(train, test, 3)
    assert np.allclose(probabilities.sum(1), 1) and not probabilities[:, 2].any()


def test_trees_of_labels_by_chance_tell_nothing_of_posts_that_are_held_out():
    """Each vector tells its post apart, so that trees that had learned from a post would know its label."""
    generator = np.random.default_rng(0)
    both = [replace(one, held_out=number % 2) for number, one in enumerate(make_timelines(lambda *_: 0, seed=0))]
    for timeline in both:
        timeline.labels = generator.integers(0, 2, len(timeline)).tolist()
    actual, vectors = all_labels(both), generator.normal(size=(240, 16))
    assert abs((trees.predict(both, both, 2, (vectors, vectors)).argmax(-1) == actual).mean() - 0.5) < 0.1
    learned = [replace(timeline, held_out=None) for timeline in both]
    assert (trees.predict(learned, learned, 2, (vectors, vectors)).argmax(-1) == actual).mean() > 0.9


def test_words_of_labels_by_chance_tell_nothing_of_posts_that_are_held_out():
    generator = np.random.default_rng(0)
    timelines = speaking(lambda text, position: generator.random() < 0.5, seed=0, count=100)
    both = [replace(timeline, held_out=number % 5) for number, timeline in enumerate(timelines)]
    actual = all_labels(both)
    assert abs((words.predict(both, both, 2).argmax(-1) == actual).mean() - 0.5) < 0.08
    # One member alone has the posts in which the rule holds.
    rules = [speaking(lambda text, position, odd=odd: ("angry" in text) != odd, seed=odd) for odd in (0, 1)]
    both = [replace(timeline, held_out=member) for member, part in enumerate(rules) for timeline in part]
    assert (words.predict(both, both, 2).argmax(-1) != all_labels(both)).mean() > 0.9


@pytest.mark.parametrize("texts", [["!", "😀"], ["\u200b", "."], ["我", "好"], ["a", "b"]], ids=str)
def test_words_alone_of_few_and_odd_posts(texts):
    """One timeline, whose words are signs or single letters."""
    timeline = replace(make_timeline([0, 1] * 3), texts=texts * 3)
    probabilities = words.predict([timeline], [timeline], 2)
    assert np.allclose(probabilities.sum(1), 1)
    assert (probabilities.argmax(-1) == all_labels([timeline])).all()


def test_words_alone_learn_from_no_more_posts_than_they_can():
    """The words of the 400 posts that are not learned from are as unknown as a word of no post."""
    learned = np.zeros(20_400, dtype=bool)
    learned[np.random.default_rng(0).choice(20_400, 20_000, replace=False)] = True
    labels = np.tile([0, 1], 10_200)
    texts = np.where(learned, np.array(["glad", "angry"])[labels], "xyz")
    posts = zip(labels.reshape(4, -1).tolist(), texts.reshape(4, -1).tolist(), strict=True)
    train = [replace(make_timeline(own, str(number)), texts=written) for number, (own, written) in enumerate(posts)]
    test = replace(make_timeline([0] * 4), texts=["glad", "angry", "xyz", "qvw"])
    glad, angry, left_out, unknown = words.predict(train, [test], 2)[:, 1]
    assert glad < 0.1 and angry > 0.9 and left_out == unknown


def compared(timelines: list[Timeline], predicted: np.ndarray, *learned_from) -> dict:
    posts = labelled_posts(timelines, predicted, NAMES, np.zeros((len(predicted), 2)))
    return compare_with_baselines(posts, learn_baselines(timelines, 2, *learned_from))


def test_scores_beside_those_that_cost_nothing():
    train, test = (make_timelines(lambda position, gap: position == 3, seed) for seed in (0, 1))
    actual = all_labels(test)
    predicted = np.random.default_rng(2).integers(-1, 2, size=len(actual))
    result = compared(test, predicted, train)
    labelled = actual >= 0
    ours = f1_score(actual[labelled], predicted[labelled], labels=[0, 1], average="macro")
    constant = f1_score(actual[labelled], np.zeros(labelled.sum()), average="macro")
    larger, learned = result["compared_with"]["larger_class"], result["compared_with"]["position_and_time"]
    assert larger["class"] == "No-Switch" and larger["macro_f1"] == pytest.approx(constant)
    assert learned["macro_f1"] == pytest.approx(1) and learned["difference"] == pytest.approx(ours - 1)
    assert larger["difference"] == pytest.approx(ours - constant)
    low, high = learned["difference_interval"]
    assert low < ours - 1 < high < 0
    low, high = result["macro_f1_interval"]
    assert low < ours < high
    # A single timeline has no interval. Training posts of one class teach nothing.
    test, train = [make_timeline([0, 1, 0]), make_timeline([-100])], [make_timeline([1, -100, 1])]
    result = compared(test, np.array([0, 0, 0, 1]), train)
    expected = {"class": "No-Switch", "macro_f1": pytest.approx(0.4), "difference": pytest.approx(0)}
    assert result == {"compared_with": {"larger_class": expected}}


def test_timelines_of_one_post_are_scored():
    """No post has seconds since the one before it. Early hours are class 1."""
    timelines = [make_timeline([int(hour < 12)], timestamps=[3600.0 * hour]) for hour in range(24)] * 10
    result = compared(timelines, np.zeros(240, dtype=int), timelines)
    assert result["compared_with"]["position_and_time"]["macro_f1"] == pytest.approx(1)


def test_trees_know_what_the_vectors_say():
    """The label follows from the vector alone, and not from position and time."""
    generator = np.random.default_rng(0)
    parts = [make_timelines(lambda position, gap: generator.random() < 0.5, seed) for seed in (0, 1)]
    vectors = [generator.normal(size=(240, 5)) for _ in parts]
    for part, part_vectors in zip(parts, vectors, strict=True):
        part_vectors[:, 2] += 20 * (all_labels(part) == 1)
    train, test = parts
    actual = all_labels(test)
    result = compared(test, actual, train, tuple(vectors))["compared_with"]
    assert result["trees"]["macro_f1"] > 0.95 > 0.7 > result["position_and_time"]["macro_f1"]
    assert result["trees"]["difference"] == pytest.approx(1 - result["trees"]["macro_f1"])


def test_trees_of_levels_are_those_of_values():
    """With few values of each feature, some missing, scikit-learn tells the same values apart by itself."""
    draw = np.random.default_rng(0)
    values = draw.integers(0, 20, (600, 4)) ** 2.0
    values[draw.random(values.shape) < 0.1] = np.nan
    labels = (np.nan_to_num(values[:, 0]) + 100 * draw.random(600) > 150).astype(int)
    train, test = (make_timeline(part.tolist()) for part in np.split(labels, [400]))
    actual = fit_and_predict([train], [test], values[:400], values[400:], 2, random_state=0)
    trees_of_values = HistGradientBoostingClassifier(class_weight="balanced", random_state=0)
    expected = trees_of_values.fit(values[:400], labels[:400]).predict_proba(values[400:])
    np.testing.assert_allclose(actual, expected, atol=1e-6)
