"""Checks the paired bootstrap against a plain loop."""

import random

import numpy as np
import pytest

from modeling_tempoformer.evaluation.significance import paired_bootstrap


def sample_posts() -> tuple[np.ndarray, ...]:
    """
    Returns labels, our predictions (often right, sometimes missing), theirs, and timelines, whose posts are scattered.
    """
    generator = np.random.default_rng(3)
    actual = generator.choice(3, size=80, p=[0.6, 0.3, 0.1])
    ours = np.where(generator.random(80) < 0.5, actual, generator.integers(-1, 3, 80))
    theirs = np.where(generator.random(80) < 0.3, actual, generator.integers(-1, 3, 80))
    return actual, ours, theirs, generator.integers(9, size=80)


def macro_f1(actual, predicted) -> float:
    """Computes macro F1 over four classes. The last one is neither actual nor predicted."""
    scores = []
    for label in range(4):
        hits = np.sum((actual == label) & (predicted == label))
        sizes = np.sum(actual == label) + np.sum(predicted == label)
        scores.append(2 * hits / sizes if sizes else 0)
    return np.mean(scores)


def test_it_agrees_with_a_plain_loop():
    """The loop draws other random numbers, so the ends of the interval and p agree within noise."""
    actual, ours, theirs, groups = sample_posts()
    result = paired_bootstrap(actual, ours, theirs, [f"t{g}" for g in groups], 4)
    assert result["difference"] == pytest.approx(macro_f1(actual, ours) - macro_f1(actual, theirs), abs=1e-12)
    posts_of = [np.flatnonzero(groups == group) for group in range(9)]
    generator, differences = random.Random(0), []
    for _ in range(3000):
        posts = np.concatenate(generator.choices(posts_of, k=9))
        differences.append(macro_f1(actual[posts], ours[posts]) - macro_f1(actual[posts], theirs[posts]))
    assert result["interval"] == pytest.approx(
        (np.percentile(differences, 2.5), np.percentile(differences, 97.5)), abs=0.02
    )
    below = np.mean([difference <= 0 for difference in differences])
    assert 0 < below < 0.5 and result["p"] == pytest.approx(2 * below, abs=0.05)


def test_all_samples_of_two_timelines():
    """Ours is right on one timeline, theirs on the other. A sample holds only one of them with probability 1/2."""
    result = paired_bootstrap([0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1], "aabb", 2, resamples=4000)
    assert result == {"difference": pytest.approx(0), "interval": pytest.approx((-1, 1)), "p": pytest.approx(1)}
    # Ours is better on one timeline and equal on the other. Only a quarter of the samples shows no difference.
    result = paired_bootstrap([0, 1, 0, 1], [0, 1, 0, 1], [0, 1, 1, 0], "aabb", 2, resamples=4000)
    assert result["difference"] == pytest.approx(0.5) and result["interval"] == pytest.approx((0, 1))
    assert result["p"] == pytest.approx(0.5, abs=0.05)


def test_a_method_that_is_always_better_has_the_smallest_p():
    actual, ours, theirs, groups = sample_posts()
    result = paired_bootstrap(actual, actual, theirs, groups, 3, resamples=200)
    assert result["p"] == pytest.approx(1 / 200) and result["interval"][0] > 0
    same = paired_bootstrap(actual, theirs, theirs, groups, 3, resamples=200)
    assert same == {"difference": pytest.approx(0), "interval": pytest.approx((0, 0)), "p": pytest.approx(1)}
    # The difference from a method without predictions is the macro F1.
    alone = paired_bootstrap(actual, ours, np.full(80, -1), groups, 4, resamples=200)["difference"]
    assert alone == pytest.approx(macro_f1(actual, ours))


def test_over_several_seeds_macro_f1_is_averaged_not_pooled():
    """Two seeds each predict a single class. Pooled they would know both classes, but neither seed does."""
    actual, groups = [0, 1] * 6, [post // 2 for post in range(12)]
    zeros, ones = [0] * 12, [1] * 12
    result = paired_bootstrap(actual, [zeros, ones], [zeros], groups, 2, resamples=50)
    assert result["difference"] == pytest.approx(0) and result["interval"] == pytest.approx((0, 0))
    right = paired_bootstrap(actual, [actual, zeros], zeros, groups, 2, resamples=50)
    assert right["difference"] == pytest.approx((1 + 1 / 3) / 2 - 1 / 3)
