"""Measures of change against hand-worked examples and plain loops."""

import logging
import math
import sys
from functools import partial

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cosine
from scipy.stats import spearmanr

from modeling_tempoformer.semantic_change import measures as change_measures
from modeling_tempoformer.semantic_change.measures import (
    agreement,
    average_pairwise_distance,
    cluster_distances,
    prototype_distance,
    trajectory,
)


EMPTY = np.empty((0, 2))


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)


def random_usages(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(7, 4)), generator.normal(size=(5, 4)) + 0.5


def test_prototypes():
    """Means (2, 0) and (1, 1) are at 45 degrees."""
    before, after = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])
    assert prototype_distance(before, after) == pytest.approx(1 - math.sqrt(0.5))
    assert prototype_distance(before, -after) == pytest.approx(1 + math.sqrt(0.5))
    assert prototype_distance(before, 7 * before) == pytest.approx(0)
    # In float16 the sums of many usages would overflow.
    assert prototype_distance(np.full((9, 2), 6e4, dtype=np.float16), before) == pytest.approx(1 - math.sqrt(0.5))


def test_pairs():
    before, after = random_usages(0)
    distances = [cosine(old, new) for old in before for new in after]
    assert average_pairwise_distance(before, after) == pytest.approx(sum(distances) / 35)


def test_opposite_usages_have_no_prototype():
    around = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert math.isnan(prototype_distance(around, np.ones((1, 2))))
    assert average_pairwise_distance(around, np.ones((1, 2))) == pytest.approx(1)
    assert math.isnan(average_pairwise_distance(np.zeros((1, 2)), around))


def test_trajectory():
    right, up = np.array([[1.0, 0.0]]), np.array([[0.0, 3.0], [0.0, 1.0]])
    expected = [1, 0, math.nan, math.nan, 1]
    assert trajectory([right, up, up, EMPTY, up, right]) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("measure", [prototype_distance, average_pairwise_distance, cluster_distances])
def test_usages_that_are_refused(measure):
    usages = np.ones((2, 3))
    with pytest.raises(ValueError, match="`before` has the width 3, `after` 2"):
        measure(usages, usages[:, :2])
    with pytest.raises(ValueError, match=r"`after` must have the shape \(usages, width\), got \(3,\)"):
        measure(usages, usages[0])
    usages[1, 2] = np.inf
    with pytest.raises(ValueError, match="`before`: the vector of usage 1 "):
        measure(usages, np.ones((2, 3)))


@pytest.mark.parametrize("pair", [(EMPTY, np.ones((2, 2))), (np.ones((2, 2)), EMPTY), (np.array([]), EMPTY)])
def test_no_usages(pair):
    assert math.isnan(prototype_distance(*pair)) and math.isnan(average_pairwise_distance(*pair))
    assert np.isnan(list(cluster_distances(*pair).values())).all()


def test_clusters():
    """
    Two senses at a right angle: 6 and 2 usages before, 2 and 6 after. Half of the usages move, at a distance of 1.
    """
    lengths = np.linspace(5, 6, 8)[:, None]
    sense = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    before, after = lengths * np.eye(2)[sense], lengths * np.eye(2)[1 - sense]
    expected_js = math.sqrt(0.75 * math.log2(0.75 / 0.5) + 0.25 * math.log2(0.25 / 0.5))
    assert cluster_distances(before, after, num_clusters=2) == pytest.approx(
        {
            "affinity_propagation_jensen_shannon": expected_js,
            "affinity_propagation_wasserstein": 0.5,
            "k_means_jensen_shannon": expected_js,
            "k_means_wasserstein": 0.5,
        }
    )


def test_cost_of_moving_clusters():
    """Against the linear program: least cost of a plan whose sums are the shares of the clusters."""
    before, after = random_usages(1)
    old, new = np.array([0, 0, 0, 1, 1, 3, 3]), np.array([0, 1, 1, 2, 2])
    old_means = [before[:3].mean(0), before[3:5].mean(0), before[5:].mean(0)]
    new_means = [after[0], after[1:3].mean(0), after[3:].mean(0)]
    costs = np.array([cosine(left, right) for left in old_means for right in new_means])
    sums = np.array([[pair // 3 == i for pair in range(9)] for i in range(3)])
    sums = np.concatenate([sums, [[pair % 3 == i for pair in range(9)] for i in range(3)]])
    plan = linprog(costs, A_eq=sums, b_eq=[3 / 7, 2 / 7, 2 / 7, 1 / 5, 2 / 5, 2 / 5])
    assert change_measures.move_clusters((before, after), [old, new]) == pytest.approx(plan.fun)
    # A cluster of opposite usages has no direction.
    before[3] = -before[4]
    assert math.isnan(change_measures.move_clusters((before, after), [old, new]))


def test_clusterings_that_fail(monkeypatch, caplog):
    """No distances for them, and a warning; those of the other clustering are there."""
    before, after = random_usages(2)
    fine = cluster_distances(before, after, num_clusters=3)
    assert np.isfinite(list(fine.values())).all()
    few = cluster_distances(before, after, num_clusters=13)
    assert "12 usages cannot form 13 clusters" in caplog.text
    assert math.isnan(few["k_means_jensen_shannon"]) and math.isnan(few["k_means_wasserstein"])
    assert few["affinity_propagation_wasserstein"] == fine["affinity_propagation_wasserstein"]
    hasty = partial(change_measures.AffinityPropagation, max_iter=2)
    monkeypatch.setattr(change_measures, "AffinityPropagation", hasty)
    unconverged = cluster_distances(before, after, num_clusters=3)
    assert "Affinity propagation of 12 usages did not converge" in caplog.text
    assert math.isnan(unconverged["affinity_propagation_jensen_shannon"])
    assert math.isnan(unconverged["affinity_propagation_wasserstein"])
    assert unconverged["k_means_wasserstein"] == fine["k_means_wasserstein"]


def test_without_pot(monkeypatch):
    monkeypatch.setitem(sys.modules, "ot", None)
    with pytest.raises(ImportError, match=r"modeling-tempoformer\[change\]"):
        cluster_distances(*random_usages(0))


def test_agreement():
    """Ranks 1 2 3 4 5 against 1 3 2 5 4: four differences of 1, so rho = 1 - 6 * 4 / (5 * 24)."""
    truth = {"a": 0.1, "gap": 0.5, "b": 0.3, "c": 0.2, "absent": 0.0, "d": 0.9, "e": 0.8}
    scores = {"e": 5.0, "other": 1.0, "d": 4.0, "c": 3.0, "b": 2.0, "a": 1.0, "gap": math.nan, "lost": math.nan}
    result = agreement(scores, truth, seed=3, resamples=400)
    both = np.array([[1.0, 2.0, 3.0, 4.0, 5.0], [0.1, 0.3, 0.2, 0.9, 0.8]])
    assert result.spearman == pytest.approx(0.8) and result.pearson == pytest.approx(np.corrcoef(both)[0, 1])
    # With 3 degrees of freedom, t = r * sqrt(3 / (1 - r²)) has a closed distribution function.
    for r, p in ((result.spearman, result.spearman_p), (result.pearson, result.pearson_p)):
        x = r / math.sqrt(1 - r * r)
        assert p == pytest.approx(1 - 2 / math.pi * (x / (1 + x * x) + math.atan(x)))
    assert (result.num_words, result.missing, result.extra) == (5, ("gap", "absent"), ("other", "lost"))


def test_bootstrap():
    generator = np.random.default_rng(0)
    values = generator.integers(0, 3, size=(2, 6)).astype(float)
    scores, truth = (dict(zip("abcdef", row.tolist(), strict=True)) for row in values)
    result = agreement(scores, truth, seed=5, resamples=300)
    pearson, spearman, skipped = [], [], 0
    for chosen in np.random.default_rng(5).integers(6, size=(300, 6)):
        old, new = values[:, chosen]
        if len(set(old)) == 1 or len(set(new)) == 1:
            skipped += 1
            continue
        pearson.append(np.corrcoef(old, new)[0, 1])
        spearman.append(spearmanr(old, new).statistic)
    assert result.skipped_resamples == skipped > 0
    assert result.pearson_interval == pytest.approx(np.percentile(pearson, [2.5, 97.5]))
    assert result.spearman_interval == pytest.approx(np.percentile(spearman, [2.5, 97.5]))


TRUTH = {"a": 0.1, "b": 0.3, "c": 0.2}


@pytest.mark.parametrize(
    ("scores", "truth", "problem"),
    [
        ({"a": 1.0, "b": 2.0, "x": 3.0}, TRUTH, "got 2. Without score: c; without gold score: x."),
        ({"a": 1.0, "b": 2.0, "c": math.nan}, TRUTH, "got 2. Without score: c; without gold score: none."),
        ({"a": 1.0, "b": 1.0, "c": 1.0}, TRUTH, "`scores`: all 3 words have the score 1.0"),
        (TRUTH, {"a": 0.5, "b": 0.5, "c": 0.5}, "`truth`: all 3 words have the score 0.5"),
        ({**TRUTH, "b": math.inf}, TRUTH, "`scores`: the score inf of 'b' is not finite"),
        (TRUTH, {**TRUTH, "c": math.nan}, "`truth`: the score nan of 'c' is not finite"),
    ],
)
def test_scores_without_a_correlation(scores, truth, problem):
    with pytest.raises(ValueError, match=problem):
        agreement(scores, truth)
