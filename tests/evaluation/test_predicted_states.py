"""Checks the baseline of predicted states, and the confusion matrix of states."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import make_timeline
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix
from transformers import PreTrainedConfig

from modeling_tempoformer.baselines import predicted_states
from modeling_tempoformer.baselines.methods import find_baseline
from modeling_tempoformer.evaluation.baseline_scores import learn_baselines
from modeling_tempoformer.evaluation.predictions import all_labels
from modeling_tempoformer.evaluation.report import confusion_rows
from modeling_tempoformer.evaluation.state_scores import score_states
from modeling_tempoformer.posts.states import StateNames, with_changes
from modeling_tempoformer.timeline_tempoformer import Timeline


MOODS = ["calm", "glad", "sad"]
STATES = StateNames(MOODS, None)


def conversations(seed: int, count: int = 40, noise: float = 0.1) -> tuple[list[Timeline], np.ndarray]:
    """Returns timelines of two speakers, whose labels are changes of mood, and vectors (posts, 6) that show moods."""
    generator = np.random.default_rng(seed)
    timelines, vectors = [], []
    for number in range(count):
        speakers, moods = generator.choice(["ann", "bob"], 8), generator.choice(MOODS, 8)
        timeline = make_timeline([-100] * 8, str(number), speakers=speakers.tolist(), states=moods.tolist())
        timelines.append(with_changes(timeline, 0))
        vectors.append(np.array([np.eye(6)[MOODS.index(mood)] for mood in moods]))
    vectors = np.concatenate(vectors)
    return timelines, vectors + noise * generator.normal(size=vectors.shape)


def test_a_change_is_where_a_speaker_s_two_states_differ():
    """The states are those of scikit-learn, and the speaker's previous post is found by a search backwards."""
    (train, train_vectors), (test, vectors) = (conversations(seed, noise=0.5) for seed in (0, 1))
    given = [state for timeline in train for state in timeline.states]
    units = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (train_vectors, vectors)]
    found = LogisticRegression(max_iter=1000).fit(units[0], given).predict(units[1])
    expected, start = [], 0
    for timeline in test:
        for post, speaker in enumerate(timeline.speakers):
            earlier = [start + other for other in range(post) if timeline.speakers[other] == speaker]
            expected.append(int(bool(earlier) and found[earlier[-1]] != found[start + post]))
        start += len(timeline)
    probabilities = predicted_states.predict(train, test, 2, (train_vectors, vectors), STATES)
    assert np.allclose(probabilities.sum(1), 1)
    labelled = all_labels(test) >= 0
    assert (probabilities.argmax(1) == expected)[labelled].all()
    assert 0.7 < (probabilities.argmax(1) == all_labels(test))[labelled].mean() < 1
    # Posts of one class are graded, for thresholds of alarms.
    assert len(np.unique(probabilities[labelled, 1].round(6))) > 20


def test_grades_change_by_a_step():
    """A change is two grades or more; -1 to 0 is none."""
    generator, grades = np.random.default_rng(0), [-1.0, 0.0, 1.0]
    parts = []
    for _ in range(2):
        states = [generator.choice(grades, 10) for _ in range(40)]
        timelines = [make_timeline([-100] * 10, states=[f"{state:g}" for state in posts]) for posts in states]
        vectors = np.array([np.eye(3)[grades.index(state)] for posts in states for state in posts])
        parts.append(([with_changes(timeline, 2) for timeline in timelines], vectors))
    (train, train_vectors), (test, vectors) = parts
    probabilities = predicted_states.predict(
        train, test, 2, (train_vectors, vectors), StateNames(["-1", "0", "1"], grades)
    )
    actual = all_labels(test)
    assert (probabilities.argmax(1) == actual)[actual >= 0].all()


def test_states_of_chance_tell_nothing_of_posts_that_are_held_out():
    """Each vector tells its post apart, so that who had learned from a post would know its state."""
    generator = np.random.default_rng(0)
    timelines, _ = conversations(0, count=60)
    both = [replace(timeline, held_out=number % 2) for number, timeline in enumerate(timelines)]
    # Short vectors would be shrunk to nothing by the penalty.
    vectors = generator.normal(size=(480, 600))
    learned = [replace(timeline, held_out=None) for timeline in both]
    actual = all_labels(both)
    is_right = {}
    for name, part in (("held out", both), ("learned", learned)):
        found = predicted_states.predict(part, part, 2, (vectors, vectors), STATES).argmax(1)
        is_right[name] = (found == actual)[actual >= 0].mean()
    # Two of three moods differ.
    assert is_right["learned"] > 0.9 and is_right["held out"] < 0.7
    # One member alone has the posts whose vectors say the mood; the other's say another one.
    _, shown = conversations(0, count=60)
    for member in (0, 1):
        of_member = np.repeat([timeline.held_out == member for timeline in both], 8)
        shown[of_member] = np.roll(shown[of_member][:, :3], member, axis=1).repeat(2, axis=1)
    found = predicted_states.predict(both, both, 2, (shown, shown), STATES).argmax(1)
    # Moods are renamed, and stay different or the same.
    assert (found == actual)[actual >= 0].mean() > 0.95


def test_it_stands_beside_a_model_with_states_alone():
    (train, train_vectors), (test, vectors) = (conversations(seed, count=10) for seed in (0, 1))
    config = PreTrainedConfig(states=MOODS, state_values=None)
    for given, expected in (((train_vectors, vectors), True), (None, False)):
        assert ("predicted_states" in learn_baselines(test, 2, train, given, config)) == expected
    assert "predicted_states" not in learn_baselines(test, 2, train, (train_vectors, vectors), PreTrainedConfig())
    method = find_baseline("predicted_states")
    method.check_posts(train)
    with pytest.raises(ValueError, match="needs posts with states"):
        method.check_posts([make_timeline([0, 1])])


def test_the_confusion_matrix_counts_posts():
    generator = np.random.default_rng(0)
    given, found = generator.integers(-1, 3, 50), generator.integers(0, 3, 50)
    names = [MOODS[state] if state >= 0 else "" for state in given]
    timeline = make_timeline([0] * 50, states=names)
    timeline.state_logits = torch.eye(3)[found].log_softmax(-1)
    results = {"states": score_states([timeline], PreTrainedConfig(states=MOODS, state_values=None))}
    expected = confusion_matrix(given[given >= 0], found[given >= 0])
    assert list(results["states"]["confusion"].values()) == expected.tolist()
    (_, *columns), *rows = confusion_rows(results)
    assert columns == [name for name, *_ in rows] == MOODS
    assert [[int(cell) for cell in cells] for _, *cells in rows] == expected.tolist()
    assert confusion_rows({}) == []
