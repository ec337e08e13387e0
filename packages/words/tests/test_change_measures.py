"""Checks measures of change against hand-worked examples and plain loops."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr
from sklearn.preprocessing import normalize

from semantic_change.measures import (
    agreement,
    average_pairwise_distance,
    change_score,
    prototype_deviations,
    prototype_distance,
    shuffled_prototypes,
    standardiser,
)


def test_prototypes():
    """The means (2, 0) and (1, 1) are at 45 degrees."""
    before, after = np.array([[1.0, 0.0], [3.0, 0.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])
    assert prototype_distance(before, after) == pytest.approx(1 - math.sqrt(0.5))
    assert prototype_distance(before, -after) == pytest.approx(1 + math.sqrt(0.5))
    assert prototype_distance(before, 7 * before) == pytest.approx(0)
    # Sums of many usages overflow in float16.
    assert prototype_distance(np.full((9, 2), 6e4, dtype=np.float16), before) == pytest.approx(1 - math.sqrt(0.5))


def test_pairs():
    generator = np.random.default_rng(0)
    before, after = generator.normal(size=(7, 4)), generator.normal(size=(5, 4)) + 0.5
    distances = [cosine(old, new) for old in before for new in after]
    assert average_pairwise_distance(before, after) == pytest.approx(np.mean(distances))


def test_a_dimension_without_variance_is_no_distance():
    generator = np.random.default_rng(0)
    parts = [generator.normal(size=(9, 3)) * [1, 50, 0] + [0, 9, 7] for _ in range(2)]
    scaled = np.concatenate([standardiser(parts)(part) for part in parts])
    assert scaled.mean(axis=0) == pytest.approx(0, abs=1e-9)
    assert scaled.std(axis=0) == pytest.approx([1, 1, 0])


def test_change_is_the_geometric_mean_of_both_distances():
    assert change_score(0.4, 0.1) == pytest.approx(20)
    assert change_score(0.4, -0.01) == 0


def test_the_interval_of_a_prototype_distance_holds_the_true_one():
    """Without chance it contains the distance between the true means. The uncorrected interval lies too high."""
    generator = np.random.default_rng(8)
    mean, step = normalize(generator.normal(size=(2, 20)))
    means = np.stack([mean, mean + 0.3 * step])
    true = prototype_distance(*means[:, None])
    held, too_high, documents = 0, 0, (np.arange(25), np.arange(25))
    for draw in range(100):
        before, after = (mean + 0.4 * generator.normal(size=(25, 20)) for mean in means)
        prt = prototype_distance(before, after)
        low, high = prototype_deviations(before, after, documents, seed=draw, resamples=200)
        both = np.concatenate([before, after])
        by_chance, _ = shuffled_prototypes(both, both, documents, seed=draw, resamples=50)
        held += prt - by_chance - high <= true <= prt - by_chance - low
        too_high += prt + low > true
    assert held >= 85 and too_high > 30


def test_agreement():
    """The ranks 1 2 3 4 5 and 1 3 2 5 4 have four differences of 1, so rho = 1 - 6 * 4 / (5 * 24)."""
    truth = {"a": 0.1, "gap": 0.5, "b": 0.3, "c": 0.2, "absent": 0.0, "d": 0.9, "e": 0.8}
    scores = {"e": 5.0, "other": 1.0, "d": 4.0, "c": 3.0, "b": 2.0, "a": 1.0, "gap": math.nan, "lost": math.nan}
    result = agreement(scores, truth, resamples=9)
    pearson = np.corrcoef([1.0, 2.0, 3.0, 4.0, 5.0], [0.1, 0.3, 0.2, 0.9, 0.8])[0, 1]
    assert (result["spearman"], result["pearson"], result["num_words"]) == pytest.approx((0.8, pearson, 5))


def test_intervals_agree_with_a_plain_loop():
    """The loop draws other random numbers, so the ends agree within noise."""
    generator = np.random.default_rng(0)
    values = generator.normal(size=(2, 30)) + generator.normal(size=30)
    result = agreement(*(dict(enumerate(row.tolist())) for row in values), resamples=2000)
    drawn = [values[:, generator.choice(30, size=30)] for _ in range(1000)]
    for name, measure in (("pearson", pearsonr), ("spearman", spearmanr)):
        ends = np.percentile([measure(*pair).statistic for pair in drawn], [2.5, 97.5])
        assert result[f"{name}_interval"] == pytest.approx(ends, abs=0.06)
    # Resamples of one word drawn three times, 3 of 27, have no correlation and are left out.
    result = agreement({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 3, "c": 2}, resamples=2000)
    assert result["pearson_interval"] == pytest.approx((-1, 1))


@pytest.mark.parametrize(
    ("scores", "truth"),
    [((1.0, 2.0, math.nan), (0.1, 0.3, 0.2)), ((1.0, 1.0, 1.0), (0.1, 0.3, 0.2)), ((0.1, 0.3, 0.2), (0.5, 0.5, 0.5))],
)
def test_scores_without_a_correlation(scores, truth):
    with pytest.raises(ValueError, match="correlation needs 3 words.* a, b"):
        agreement(*(dict(zip("abc", values, strict=True)) for values in (scores, truth)))
