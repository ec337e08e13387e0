"""Boosted trees on vectors of posts, and on position and time alone."""

import numpy as np
import pytest
from datasets import Dataset
from helpers import tiny_reader

from modeling_tempoformer.data.arguments import DataTrainingArguments
from research.baselines.position_and_time import Method as PositionAndTime
from research.baselines.trees import Method as Trees


pytestmark = pytest.mark.slow

NAMES = ["same", "other"]


def make_timelines(seed: int) -> Dataset:
    """Posts of one word; the label says whether it is that of the post before, and the first has none."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(30):
        words = generator.choice(["sad", "glad", "tired"], size=8)
        labels = [-100, *(words[1:] != words[:-1]).astype(int).tolist()]
        rows.append({"timeline_id": str(number), "texts": words.tolist(), "labels": labels})
    return Dataset.from_list(rows)


@pytest.fixture
def parts() -> dict[str, Dataset]:
    return {name: make_timelines(seed) for seed, name in enumerate(("train", "validation", "test"))}


def test_trees_learn_what_differs_from_the_post_before(tmp_path, parts):
    tiny_reader(tmp_path)[0].tempoformer.encoder.save_pretrained(tmp_path)
    method = Trees(method="trees", model_name_or_path=str(tmp_path))
    predicted, probabilities = method.predict(parts, NAMES, DataTrainingArguments(), seed=0)
    actual = np.concatenate(parts["test"]["labels"])
    assert (predicted == actual)[actual >= 0].mean() > 0.95
    assert probabilities.shape == (240, 2) and np.allclose(probabilities.sum(1), 1)


def test_position_and_time_learn_from_validation_posts_too(parts):
    """In training posts the label says the opposite of the position, and they are few."""
    for name, count in {"train": 2, "validation": 30, "test": 10}.items():
        labels = [[0, 1] * 4 if name != "train" else [1, 0] * 4] * count
        parts[name] = parts[name].select(range(count)).remove_columns("labels").add_column("labels", labels)
    method = PositionAndTime(method="position_and_time")
    predicted, _ = method.predict(parts, NAMES, DataTrainingArguments(), seed=0)
    assert (predicted == np.concatenate(parts["test"]["labels"])).mean() > 0.9
