"""The map of usages and their clusters, against plain computations."""

import math

import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from modeling_tempoformer.semantic_change.senses import Senses, find_senses, keywords, project


def random_usages(seed: int, *sizes: int, width: int = 6) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.normal(size=(size, width)) + time for time, size in enumerate(sizes)]


def without_words(vectors: list[np.ndarray]) -> list[list[str]]:
    return [[""] * len(part) for part in vectors]


def test_the_map_of_all_times_is_one_projection_onto_the_widest_directions():
    vectors = random_usages(0, 7, 5, 9)
    coordinates, variance = project(vectors)
    joined = np.concatenate(vectors)
    left, sizes, _ = np.linalg.svd(joined - joined.mean(axis=0), full_matrices=False)
    assert variance == pytest.approx(sizes[:2] ** 2 / np.sum(sizes**2))
    # The sign of a direction is free.
    assert np.abs(np.concatenate(coordinates)) == pytest.approx(np.abs(left[:, :2] * sizes[:2]))
    assert [len(part) for part in coordinates] == [7, 5, 9]


def test_senses_go_from_the_one_that_grew_to_the_one_that_shrank():
    """Three places far apart, with 4, 1 and 1 usages before, and 1, 1 and 3 after."""
    places = 100 * np.eye(6)[:3]
    noise = np.random.default_rng(1).normal(size=(11, 6))
    at_first, at_last = np.repeat([0, 1, 2], [4, 1, 1]), np.repeat([0, 1, 2], [1, 1, 3])
    before, after = places[at_first] + noise[:6], places[at_last] + noise[6:]
    senses = find_senses([before, after], without_words([before, after]))
    # Place 2 grew from 1/6 to 3/5, place 1 from 1/6 to 1/5, place 0 shrank from 4/6 to 1/5.
    assert senses.counts.tolist() == [[1, 3], [1, 1], [4, 1]]
    assert senses.shares == pytest.approx(np.array([[1 / 6, 3 / 5], [1 / 6, 1 / 5], [4 / 6, 1 / 5]]))
    assert [labels.tolist() for labels in senses.labels] == [(2 - at_first).tolist(), (2 - at_last).tolist()]


def some_senses(seed: int, *sizes: int) -> list[np.ndarray]:
    """Usages of four senses, drawn at random at each time; narrower than the components that are clustered."""
    generator = np.random.default_rng(seed)
    return [normalize(4 * np.eye(6)[generator.integers(4, size=n)] + generator.normal(size=(n, 6))) for n in sizes]


def test_the_number_of_senses_is_that_of_the_largest_silhouette():
    vectors = some_senses(2, 20, 15, 12)
    senses = find_senses(vectors, without_words(vectors))
    joined, labels = np.concatenate(vectors), np.concatenate(senses.labels)
    assert labels.max() == 3
    best = silhouette_score(joined, labels)
    assert best > 0.2
    for merged in (np.minimum(labels, 2), np.minimum(labels, 1)):
        assert silhouette_score(joined, merged) < best


def test_usages_in_one_cloud_are_one_sense():
    vectors = np.split(np.random.default_rng(2).normal(size=(70, 60)), [40])
    senses = find_senses(vectors, [["some words"] * len(part) for part in vectors])
    assert senses.counts.tolist() == [[40, 30]] and senses.keywords == [[]]


def test_the_nearest_usages_are_of_their_sense_and_time():
    vectors = some_senses(2, 20, 15, 12)
    senses = find_senses(vectors, without_words(vectors))
    for sense in range(4):
        members = [
            usage for part, labels in zip(vectors, senses.labels, strict=True) for usage in part[labels == sense]
        ]
        mean = sum(members) / len(members)
        for time, part in enumerate(vectors):
            own = [index for index in range(len(part)) if senses.labels[time][index] == sense]
            expected = sorted(own, key=lambda index: math.dist(part[index], mean))
            assert senses.nearest[sense][time].tolist() == expected
            assert senses.counts[sense, time] == len(own)


def test_keywords_are_those_that_one_sense_has_and_the_others_lack():
    """'the' is everywhere, 'once' in too few contexts; 'soviet' tells more than 'moscow', which is rarer."""
    contexts = ["the soviet moscow"] * 3 + ["the soviet once"] * 2 + ["the kansas state"] * 4 + ["the state"]
    labels = np.repeat([0, 1], 5)
    assert keywords(contexts, labels) == [["soviet", "moscow"], ["state", "kansas"]]
    assert keywords(["1 2", "!"], np.array([0, 1])) == [[], []]


def test_intervals_of_shares_are_those_of_wilson():
    """3 of 4 by Wilson's formula with z = 1.96; the second time has no usages."""
    senses = Senses(labels=[], counts=np.array([[3, 0], [1, 0]]), nearest=[], keywords=[])
    z, share, size = 1.959964, 0.75, 4
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    half = z / (1 + z**2 / size) * math.sqrt(share * (1 - share) / size + z**2 / (4 * size**2))
    assert senses.intervals[0, 0] == pytest.approx([middle - half, middle + half], abs=1e-6)
    assert np.isnan(senses.intervals[:, 1]).all()


@pytest.mark.filterwarnings("error")
def test_usages_that_are_the_same_are_one_sense_and_one_point():
    few = random_usages(4, 1, 1)
    assert find_senses(few, without_words(few)).counts.tolist() == [[1, 1]]
    same = [np.ones((3, 4)), np.ones((2, 4))]
    assert find_senses(same, without_words(same)).counts.tolist() == [[3, 2]]
    coordinates, variance = project(same)
    assert np.concatenate(coordinates) == pytest.approx(np.zeros((5, 2)), abs=1e-9)
    assert variance == pytest.approx([0, 0], abs=1e-9)
