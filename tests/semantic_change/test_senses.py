"""Checks the map of usages and their clusters against plain computations."""

import math

import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from modeling_tempoformer.semantic_change.senses import Senses, find_senses, keywords, principal_components
from modeling_tempoformer.semantic_change.usages import Usage


def senses_of(*vectors: np.ndarray) -> Senses:
    """Finds the senses of usages that have no context words."""
    usages = {str(time): [Usage(str(time), "plane", 0, 5)] * len(part) for time, part in enumerate(vectors)}
    return find_senses(usages, dict(zip(usages, vectors, strict=True)))


def test_the_map_is_a_projection_onto_the_widest_directions():
    vectors = np.random.default_rng(0).normal(size=(21, 6))
    coordinates, variance = principal_components(vectors, 2)
    left, sizes, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    assert variance == pytest.approx(sizes[:2] ** 2 / np.sum(sizes**2))
    # The sign of a component is arbitrary.
    assert np.abs(coordinates) == pytest.approx(np.abs(left[:, :2] * sizes[:2]))


def test_senses_go_from_the_one_that_grew_to_the_one_that_shrank():
    """Three distant clusters have 4, 1 and 1 usages before, and 1, 1 and 3 after."""
    centres = 100 * np.eye(6)[:3]
    at_first, at_last = np.repeat([0, 1, 2], [4, 1, 1]), np.repeat([0, 1, 2], [1, 1, 3])
    vectors = centres[[*at_first, *at_last]] + np.random.default_rng(1).normal(size=(11, 6))
    senses = senses_of(vectors[:6], vectors[6:])
    # Cluster 2 grew from 1/6 to 3/5, cluster 1 from 1/6 to 1/5, cluster 0 shrank from 4/6 to 1/5.
    assert senses.counts.tolist() == [[1, 3], [1, 1], [4, 1]]
    assert senses.labels.tolist() == (2 - np.concatenate([at_first, at_last])).tolist()


def test_the_number_of_senses_is_that_of_the_largest_silhouette():
    """Usages of four senses are drawn at random at each time. They have fewer dimensions than are clustered."""
    generator = np.random.default_rng(2)
    at_times = [4 * np.eye(6)[generator.integers(4, size=n)] + generator.normal(size=(n, 6)) for n in (20, 15, 12)]
    joined = normalize(np.concatenate(at_times))
    senses = senses_of(*map(normalize, at_times))
    assert senses.labels.max() == 3
    best = silhouette_score(joined, senses.labels)
    assert best > 0.2
    for merged in (np.minimum(senses.labels, 2), np.minimum(senses.labels, 1)):
        assert silhouette_score(joined, merged) < best
    means = [joined[senses.labels == sense].mean(axis=0) for sense in range(4)]
    distances = [math.dist(joined[usage], means[senses.labels[usage]]) for usage in senses.nearest]
    assert distances == pytest.approx(sorted(distances)) and sorted(senses.nearest) == list(range(47))


def test_usages_in_one_cloud_are_one_sense():
    senses = senses_of(*np.split(np.random.default_rng(2).normal(size=(70, 60)), [40]))
    assert senses.counts.tolist() == [[40, 30]] and senses.keywords == [[]]


def test_keywords_are_those_that_one_sense_has_and_the_others_lack():
    """'the' is in all contexts, and 'once' in too few. 'soviet' tells more than 'moscow', which is rarer."""
    contexts = ["the soviet moscow"] * 3 + ["the soviet once"] * 2 + ["the kansas state"] * 4 + ["the state"]
    labels = np.repeat([0, 1], 5)
    assert keywords(contexts, labels) == [["soviet", "moscow"], ["state", "kansas"]]
    assert keywords(["1 2", "!"], np.array([0, 1])) == [[], []]


@pytest.mark.filterwarnings("error")
def test_usages_that_are_the_same_are_one_sense_and_one_point():
    assert senses_of(*np.random.default_rng(4).normal(size=(2, 1, 6))).counts.tolist() == [[1, 1]]
    assert senses_of(np.ones((3, 4)), np.ones((2, 4))).counts.tolist() == [[3, 2]]
    coordinates, variance = principal_components(np.ones((5, 4)), 2)
    assert coordinates == pytest.approx(np.zeros((5, 2)), abs=1e-9)
    assert variance == pytest.approx([0, 0], abs=1e-9)
