"""Checks shares of senses, their correction by quotations and their verdicts against plain computations."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from semantic_change.sense_shares import Groups, corrected_shares, interval_of_difference, judge_sense
from semantic_change.senses import learn_known


def groups_of(*sizes: int) -> Groups:
    """Returns groups of so many usages, each in a document of its own."""
    return Groups(np.repeat(np.arange(len(sizes)), sizes), np.arange(sum(sizes)), len(sizes))


def test_the_correction_is_the_inverse_of_what_happens_to_quotations():
    """Shares solve the linear equations if all numbers are large."""
    outcomes = np.array([[8000, 1000, 1000], [2000, 7000, 1000]])
    confusion = np.vstack([outcomes / 10_000, [0, 0, 1]])
    shares = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]])
    labels = [np.repeat(np.arange(3), np.round(20_000 * each @ confusion).astype(int)) for each in shares]
    groups = groups_of(*map(len, labels))
    found = corrected_shares(np.concatenate(labels), np.full(40_000, False), groups, outcomes)
    for group, part in enumerate(labels):
        solved = np.linalg.solve(confusion.T, np.bincount(part) / len(part))
        assert found[:, group, 0] == pytest.approx(solved, abs=0.01) == shares[group]
        assert (found[:, group, 1] < solved).all() and (solved < found[:, group, 2]).all()
        assert (np.diff(found[:, group, 1:]) < 0.06).all()


def test_quoted_usages_have_their_sense():
    labels = np.array([0] * 3 + [1] * 9)
    found = corrected_shares(labels, np.full(12, True), groups_of(12), np.array([[5, 5, 0], [5, 5, 0]]))
    assert found[:, 0] == pytest.approx(np.repeat([[0.25], [0.75], [0]], 3, axis=1))


def test_a_group_without_usages_has_no_share_and_one_document_no_interval():
    labels, outcomes = np.array([0, 0, 1, 1]), np.array([[9, 1, 0], [1, 9, 0]])
    groups = Groups(np.array([0, 0, 2, 2]), np.array([0, 0, 1, 1]), 3)
    found = corrected_shares(labels, np.full(4, False), groups, outcomes)
    assert np.isnan(found[:, 1]).all() and np.isnan(found[:, [0, 2], 1:]).all()
    assert found[:, [0, 2], 0].sum(axis=0) == pytest.approx([1, 1])


def test_usages_of_few_documents_tell_less():
    labels = np.tile([0] * 9 + [1] * 1 + [0] * 1 + [1] * 9, 4)
    outcomes, not_quoted = np.array([[99, 1, 0], [1, 99, 0]]), np.full(80, False)
    lengths = [
        np.diff(corrected_shares(labels, not_quoted, Groups(np.zeros(80, int), documents, 1), outcomes)[0, 0, 1:])
        for documents in (np.arange(80), np.arange(80) // 10)
    ]
    assert lengths[1] > 1.5 * lengths[0]


def mixtures(number: int, moves: bool):
    """
    Yields mixtures of two senses that overlap, whose first has a known share of 60 usages at each of two times: the
    true shares, those that are counted and those that are corrected by ten quotations of each sense.
    """
    for seed in range(number):
        generator = np.random.default_rng(seed)
        shares = generator.uniform(size=2)
        shares = shares if moves else shares[[0, 0]]
        counts = np.round(60 * shares).astype(int)
        truth = np.concatenate([np.arange(60) >= count for count in counts]).astype(int)
        quoted = np.repeat([0, 1], 10)
        points, texts = (1.5 * np.eye(6)[part] + generator.normal(size=(len(part), 6)) for part in (truth, quoted))
        known = learn_known(texts, quoted, np.full(20, True), points, {})
        distances = cdist(points, [texts[:10].mean(axis=0), texts[10:].mean(axis=0)])
        labels = np.where(distances.min(axis=1) > known.reach, 2, distances.argmin(axis=1))
        groups = groups_of(60, 60)
        corrected = corrected_shares(labels, np.full(120, False), groups, known.outcomes)[0]
        yield counts / 60, groups.shares(labels == 0), corrected


def test_intervals_of_corrected_shares_hold_the_true_ones():
    held = {"counted": [], "corrected": []}
    for true, *found in mixtures(60, moves=True):
        for name, (_, low, high) in zip(held, (part.T for part in found), strict=True):
            held[name].append(((low <= true) & (true <= high)).mean())
    assert np.mean(held["corrected"]) > 0.9 > 0.75 > np.mean(held["counted"])


def test_unmoved_senses_do_not_move():
    verdicts = [judge_sense(*corrected) for _, _, corrected in mixtures(60, moves=False)]
    assert np.mean([one in ("kept", "cannot be told") for one in verdicts]) > 0.95


def test_the_interval_of_a_difference_is_that_of_newcombe():
    """His example: 56 of 70 and 48 of 80."""
    last, first = groups_of(70, 80), np.concatenate([np.arange(70) < 56, np.arange(80) < 48])
    (share, low, high), (other, other_low, other_high) = last.shares(first)
    # As for independent usages
    low, high, other_low, other_high = 0.6918, 0.8767, 0.4904, 0.7006
    found = interval_of_difference(np.array([other, other_low, other_high]), np.array([share, low, high]))
    assert found == pytest.approx((0.0524, 0.3339), abs=2e-3)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ((0.0, 0.0, 0.05), (0.3, 0.2, 0.4), "gained"),
        ((0.3, 0.2, 0.4), (0.02, 0.0, 0.06), "lost"),
        ((0.3, 0.2, 0.4), (0.6, 0.5, 0.7), "more"),
        ((0.6, 0.5, 0.7), (0.3, 0.2, 0.4), "less"),
        ((0.2, 0.0, 0.3), (0.7, 0.6, 0.8), "more"),
        ((0.5, 0.46, 0.54), (0.52, 0.47, 0.56), "kept"),
        ((0.5, 0.2, 0.8), (0.5, 0.2, 0.8), "cannot be told"),
        ((0.0, 0.0, 0.05), (0.03, 0.01, 0.08), "kept"),
        ((math.nan,) * 3, (0.5, 0.4, 0.6), "cannot be told"),
        ((0.1, math.nan, math.nan), (0.5, 0.4, 0.6), "cannot be told"),
    ],
)
def test_a_verdict_is_of_shares_and_intervals(first, last, expected):
    assert judge_sense(np.array(first), np.array(last)) == expected
