"""Statistics and diversity of a corpus, on values worked by hand and against all pairs."""

import math
from itertools import combinations

import numpy as np
import pytest
from datasets import Dataset
from scipy.spatial.distance import cosine

from benchmarks.dataset_analyses import dataset_diversity, dataset_statistics
from modeling_tempoformer.data.timelines import to_timelines


POSTS = [
    {"timeline_id": "a", "timestamp": 0, "text": "so happy today", "label": "No"},
    {"timeline_id": "a", "timestamp": 10, "text": " not \n ", "label": "Yes"},
    {"timeline_id": "a", "timestamp": 40, "text": "", "label": None},
    {"timeline_id": "b", "timestamp": 5, "text": "one two three four", "label": "No"},
    {"timeline_id": "c", "timestamp": 7, "text": "x y", "label": "No"},
    {"timeline_id": "c", "timestamp": 107, "text": "z", "label": "No"},
]
LABELS = ["No", "Yes", "Never"]


def timelines_of(posts: list[dict] = POSTS) -> Dataset:
    return to_timelines(Dataset.from_list(posts), labels=LABELS)


def test_statistics_of_a_corpus():
    assert dataset_statistics(timelines_of(), LABELS) == {
        "timelines": 3,
        "posts": 6,
        "labelled_posts": 5,
        "posts_per_timeline": {"mean": pytest.approx(2), "median": pytest.approx(2), "min": 1, "max": 3},
        "words_per_post": pytest.approx((3 + 1 + 0 + 4 + 2 + 1) / 6),
        "classes": {
            "No": {"count": 4, "share": pytest.approx(0.8)},
            "Yes": {"count": 1, "share": pytest.approx(0.2)},
            "Never": {"count": 0, "share": pytest.approx(0)},
        },
        "seconds_between_posts": {"mean": pytest.approx((10 + 30 + 100) / 3), "median": pytest.approx(30)},
        "seconds_per_timeline": {"mean": pytest.approx((40 + 0 + 100) / 3), "median": pytest.approx(40)},
    }


def test_statistics_without_times_and_labels():
    untimed = [{"timeline_id": post["timeline_id"], "text": post["text"]} for post in POSTS]
    statistics = dataset_statistics(timelines_of(untimed), LABELS)
    assert "seconds_between_posts" not in statistics and "seconds_per_timeline" not in statistics
    assert statistics["labelled_posts"] == 0 and math.isnan(statistics["classes"]["No"]["share"])


def test_diversity_on_a_worked_example():
    """Of a, the second and third post cancel each other out for the first; c has the same direction twice."""
    embeddings = np.array([[0, 2], [3, 0], [-1, 0], [1, 1], [0, 1], [0, 9]])
    found = dataset_diversity(embeddings, timelines_of())
    assert found["single_post_timelines"] == 1
    pairs = [1 - cosine(*pair) for pair in combinations(embeddings, 2)]
    assert found["corpus_similarity"] == pytest.approx(np.mean(pairs))
    assert found["within_timeline_similarity"] == pytest.approx((-1 / 3 + 1) / 2)
    # For the second and third post the others are (-1, 1) and (1, 1): cosines of -1 / sqrt 2.
    assert found["outlier_score"] == pytest.approx(((1 + 2 * (1 + 1 / math.sqrt(2))) / 3 + 0) / 2)
    single = dataset_diversity(np.ones((1, 2)), timelines_of(POSTS[3:4]))
    assert single.pop("single_post_timelines") == 1 and all(math.isnan(score) for score in single.values())
