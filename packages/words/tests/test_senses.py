"""Checks the map of usages and their clusters against plain computations."""

import math
from itertools import product

import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from semantic_change.keywords import Keywords, WordsAround, content_words
from semantic_change.senses import Senses, choose_senses, find_senses, principal_components
from semantic_change.usages import Usage


def senses_of(*vectors: np.ndarray) -> Senses:
    """Finds the senses of usages that have no context words."""
    usages = {str(time): [Usage(str(time), "plane", 0, 5)] * len(part) for time, part in enumerate(vectors)}
    options = find_senses(usages, dict(zip(usages, vectors, strict=True)))
    return options[choose_senses(options)]


def test_the_map_is_a_projection_onto_the_widest_directions():
    vectors = np.random.default_rng(0).normal(size=(21, 6))
    coordinates, variance = principal_components(vectors, 2)
    left, sizes, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    assert variance == pytest.approx(sizes[:2] ** 2 / np.sum(sizes**2))
    # The sign of a component is arbitrary.
    assert np.abs(coordinates) == pytest.approx(np.abs(left[:, :2] * sizes[:2]))


def test_senses_go_from_the_one_that_grew_to_the_one_that_shrank():
    """Three distant clusters have 8, 2 and 2 usages before, and 2, 2 and 6 after. There are none in between."""
    centres = 100 * np.eye(6)[:3]
    at_first, at_last = np.repeat([0, 1, 2], [8, 2, 2]), np.repeat([0, 1, 2], [2, 2, 6])
    vectors = centres[[*at_first, *at_last]] + np.random.default_rng(1).normal(size=(22, 6))
    senses = senses_of(vectors[:12], np.zeros((0, 6)), vectors[12:])
    # Cluster 2 grew from 2/12 to 6/10, cluster 1 from 2/12 to 2/10, cluster 0 shrank from 8/12 to 2/10.
    assert senses.counts.tolist() == [[2, 0, 6], [2, 0, 2], [8, 0, 2]]
    assert senses.labels.tolist() == (2 - np.concatenate([at_first, at_last])).tolist()


def option(number: int, silhouette: float) -> Senses:
    return Senses(
        np.arange(number),
        np.ones((number, 1)),
        np.arange(number),
        [[]] * number,
        np.eye(number),
        silhouette,
        [""] * number,
    )


def moving(shuffled: bool, seed: int = 4) -> tuple[dict, dict]:
    """Returns usages of two senses that overlap: the first has 20 % of 50 usages, then 80 %; or times at random."""
    generator = np.random.default_rng(seed)
    senses = np.concatenate([np.arange(50) < 10, np.arange(50) < 40])
    vectors = generator.normal(size=(100, 12)) + 1.6 * np.eye(12)[senses.astype(int)]
    vectors = vectors[generator.permutation(100)] if shuffled else vectors
    usages = {time: [Usage(time, "plane", 0, 5, document=f"{time} {number}") for number in range(50)] for time in "ab"}
    return usages, {"a": vectors[:50], "b": vectors[50:]}


def test_the_shares_of_two_clusters_that_do_not_stand_apart_may_change_more_than_chance():
    small = {False: 0, True: 0}
    for shuffled, seed in product(small, range(8, 14)):
        options = find_senses(*moving(shuffled, seed))
        assert choose_senses(options) == 0
        small[shuffled] += options[1].p < 0.05
    assert small[False] == 6 and small[True] <= 1


def test_the_p_of_a_split_is_that_of_shuffled_documents():
    """Documents of three usages each are shuffled in a plain loop."""
    usages, vectors = moving(shuffled=True)
    usages = {time: [Usage(time, "plane", 0, 5, document=str(number // 3)) for number in range(50)] for time in usages}
    split = find_senses(usages, vectors)[1]
    is_first = split.labels == 0
    documents = [np.arange(50) // 3, 17 + np.arange(50) // 3]
    numbers, generator, large = np.concatenate(documents), np.random.default_rng(0), 0
    change = abs(is_first[:50].mean() - is_first[50:].mean())
    for _ in range(2000):
        before = np.isin(numbers, generator.choice(34, 17, replace=False))
        large += abs(is_first[before].mean() - is_first[~before].mean()) >= change - 1e-12
    assert split.p == pytest.approx(large / 2000, abs=0.04) and math.isnan(find_senses(usages, vectors)[2].p)


@pytest.mark.parametrize(
    ("silhouettes", "number"),
    [([0.494, 0.457, 0.2], 3), ([0.5, 0.44, 0.46, 0.4], 4), ([0.6, 0.5], 2), ([0.19, 0.2, 0.15], 1), ([], 1)],
)
def test_the_number_of_senses_is_the_largest_with_a_silhouette_near_the_best(silhouettes, number):
    options = [option(1, 0.0), *(option(k, value) for k, value in enumerate(silhouettes, 2))]
    assert choose_senses(options) == number - 1


def test_usages_are_divided_into_each_number_of_senses():
    """Usages of four senses are drawn at random at each time. They have fewer dimensions than are clustered."""
    generator = np.random.default_rng(2)
    at_times = [4 * np.eye(6)[generator.integers(4, size=n)] + generator.normal(size=(n, 6)) for n in (20, 15, 12)]
    joined = normalize(np.concatenate(at_times))
    vectors = dict(zip("abc", at_times, strict=True))
    usages = {time: [Usage(time, "plane", 0, 5)] * len(part) for time, part in vectors.items()}
    options = find_senses(usages, vectors)
    assert [len(senses.counts) for senses in options] == list(range(1, 9))
    for senses in options[1:]:
        assert senses.silhouette == pytest.approx(silhouette_score(joined, senses.labels))
    senses = options[3]
    assert senses.silhouette == max(option.silhouette for option in options) and choose_senses(options) == 3
    means = [joined[senses.labels == sense].mean(axis=0) for sense in range(4)]
    distances = [math.dist(joined[usage], means[senses.labels[usage]]) for usage in senses.nearest]
    assert distances == pytest.approx(sorted(distances)) and sorted(senses.nearest) == list(range(47))


def test_senses_of_a_word_of_one_time_are_sorted_by_size():
    labels = np.repeat([0, 1, 2], [3, 9, 5])
    vectors = 100 * np.eye(4)[labels] + np.random.default_rng(0).normal(size=(17, 4))
    senses = senses_of(np.zeros((0, 4)), vectors, np.zeros((0, 4)))
    assert senses.counts.tolist() == [[0, 9, 0], [0, 5, 0], [0, 3, 0]]


def test_usages_in_one_cloud_are_one_sense():
    senses = senses_of(*np.split(np.random.default_rng(2).normal(size=(70, 60)), [40]))
    assert senses.counts.tolist() == [[40, 30]] and senses.keywords == [[]]


def test_keywords_are_those_that_one_sense_has_and_the_others_lack():
    """'the' is in all contexts, and 'once' in too few. 'soviet' tells more than 'moscow', which is rarer."""
    contexts = ["the soviet moscow"] * 3 + ["the soviet once"] * 2 + ["the kansas state"] * 4 + ["the state"]
    labels = np.repeat([0, 1], 5)

    def found(contexts, frequent=()):
        by_label = WordsAround([content_words(text, frequent) for text in contexts]).collocates(labels, 2)
        return [[collocate.word for collocate in each] for each in by_label]

    assert found(contexts) == [["soviet", "moscow"], ["state", "kansas"]]
    assert found(contexts, {"soviet", "of"}) == [["moscow"], ["state", "kansas"]]
    assert found(["1 2", "!"] * 5) == [[], []]
    contracted = ["they didn\u2019t, she don't"] * 5 + ["they did as the don's 'tis"] * 5
    assert found(contracted, {"they"}) == [["didn't", "don't", "she"], ["did", "don", "the", "tis"]]


def keywords_of(texts: list[str], labels: list[int], frequent=()) -> list[list[str]]:
    usages = [Usage("1900", text, text.index("plane"), text.index("plane") + 5) for text in texts]
    return Keywords(usages, frequent).find(np.array(labels), max(labels) + 1)


def test_keywords_beside_the_word_come_first_then_nearer_ones():
    texts = ["pilots saw how the big-plane landed on grass"] * 3 + [
        "it is an inclined plane, set under 1 ground line"
    ] * 4
    first, last = keywords_of(texts, [0] * 3 + [1] * 4, {"the", "how"})
    # A word that is beside the usages is not repeated, and a comma stands between "plane" and "set".
    assert first[:2] == ["big ~", "~ landed"] and set(first[2:]) == {"saw", "grass", "pilots"}
    assert last[0] == "inclined ~" and set(last[1:]) == {"set", "under", "ground", "line"}


def test_at_most_three_of_five_keywords_stand_beside_the_word():
    texts = [
        f"{word} plane here {other}" for word in ("big", "fast", "tall", "blue") for other in ("now wood sea",) * 3
    ]
    (first, last) = keywords_of([*texts, *["a plane"] * 5], [0] * 12 + [1] * 5)
    assert sum("~" in word for word in first) == 3 and len(first) == 5 and last == ["a ~"]


def test_frequent_and_contracted_words_beside_the_word_tell_its_grammar():
    """'to' stands beside the word in both senses, on another side, and within three words of one of them."""
    texts = ["they like to plane the wood to size"] * 4 + ["they say he\u2019s plane to them"] * 4
    first, last = keywords_of(texts, [0] * 4 + [1] * 4, {"the", "to", "they"})
    assert set(first[:2]) == {"to ~", "~ the"} and set(first[2:]) == {"like", "wood", "size"}
    assert set(last[:2]) == {"he's ~", "~ to"} and set(last[2:]) == {"say", "them"}


def test_keywords_are_counted_by_their_keys():
    contexts = ["a \ufb01ne self\u00admade day"] * 2 + ["a fine selfmade day"] * 2 + ["a cold day"] * 4
    (found, _) = WordsAround(list(map(content_words, contexts))).collocates(np.repeat([0, 1], 4), 2)
    assert {word: count for word, count, _ in found} == {"fine": 4, "selfmade": 4}


def test_collocates_have_counts_and_strengths():
    contexts = ["the soviet moscow"] * 3 + ["the soviet"] * 2 + ["the state soviet"] + ["the state"] * 4
    first, last, none = WordsAround(list(map(content_words, contexts))).collocates(np.repeat([0, 1], 5), 3)
    assert [(word, count) for word, count, _ in first] == [("moscow", 3), ("soviet", 5)] and none == []
    assert [strength for _, _, strength in first] == pytest.approx([3.5 / 0.5, (5.5 / 5.5) / (1.5 / 5.5)])
    assert [(word, count) for word, count, _ in last] == [("state", 5)]


@pytest.mark.filterwarnings("error")
def test_usages_that_are_the_same_are_one_sense_and_one_point():
    assert senses_of(*np.random.default_rng(4).normal(size=(2, 1, 6))).counts.tolist() == [[1, 1]]
    assert senses_of(np.ones((3, 4)), np.ones((2, 4))).counts.tolist() == [[3, 2]]
    coordinates, variance = principal_components(np.ones((5, 4)), 2)
    assert coordinates == pytest.approx(np.zeros((5, 2)), abs=1e-9)
    assert variance == pytest.approx([0, 0], abs=1e-9)
