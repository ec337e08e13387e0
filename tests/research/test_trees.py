"""Checks boosted trees on vectors of posts, and on position and time alone."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import make_timeline, tiny_reader

from modeling_tempoformer.evaluation.predictions import all_labels
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.timeline_tempoformer import Timeline
from research.baselines.position_and_time import Method as PositionAndTime
from research.baselines.trees import Method as Trees


pytestmark = pytest.mark.slow

NAMES = ["same", "other"]


def make_timelines(seed: int) -> list[Timeline]:
    """Returns posts of one word. The label tells whether the previous post has another word."""
    generator = np.random.default_rng(seed)
    timelines = []
    for number in range(30):
        words = generator.choice(["sad", "glad", "tired"], size=8)
        labels = [-100, *(words[1:] != words[:-1]).astype(int).tolist()]
        timelines.append(make_timeline(labels, str(number), words.tolist()))
    return timelines


@pytest.fixture
def parts() -> dict[str, list[Timeline]]:
    return {name: make_timelines(seed) for seed, name in enumerate(("train", "validation", "test"))}


def test_trees_learn_what_differs_from_the_post_before(tmp_path, parts):
    tiny_reader(tmp_path)[0].tempoformer.encoder.save_pretrained(tmp_path)
    method = Trees(method="trees", model_name_or_path=str(tmp_path))
    predicted, probabilities = method.predict(parts, NAMES, DataTrainingArguments(), seed=0)
    actual = all_labels(parts["test"])
    assert (predicted == actual)[actual >= 0].mean() > 0.95
    assert probabilities.shape == (240, 2) and np.allclose(probabilities.sum(1), 1)


def test_position_and_time_learn_from_validation_posts_too(parts):
    """In the few training posts, the label is the opposite of what the position says."""
    for name, count in {"train": 2, "validation": 30, "test": 10}.items():
        labels = [0, 1] * 4 if name != "train" else [1, 0] * 4
        parts[name] = [replace(timeline, labels=labels) for timeline in parts[name][:count]]
    method = PositionAndTime(method="position_and_time")
    predicted, _ = method.predict(parts, NAMES, DataTrainingArguments(), seed=0)
    assert (predicted == all_labels(parts["test"])).mean() > 0.9
