"""Checks what more labels are said to be worth against scores whose curve is known."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from tempoformer_label.more_labels import expect_more, f1_counts, macro_f1, more_labels_sentence
from tempoformer_label.more_labels_figure import more_labels_figure


def counts_of(score: float, timelines: int = 40, spread: float = 0.0, seed: int = 0) -> np.ndarray:
    """Returns counts (timelines, 2, 2) whose macro F1 is `score`; a timeline's is `spread` above or below it."""
    off = spread * np.random.default_rng(seed).permutation(np.resize([-1, 1], timelines))
    hits = np.repeat(100 * (score + off)[:, None], 2, axis=1)
    return np.stack((hits, np.full_like(hits, 100)), axis=1)


def of_parts(*scores: float, **settings: float) -> dict[int, np.ndarray]:
    """Returns counts of stand-ins of all timelines, of halves and of quarters."""
    return {part: np.stack([counts_of(score, **settings)] * part) for part, score in zip((1, 2, 4), scores)}


def test_the_score_of_a_sample_is_that_of_its_posts():
    generator = np.random.default_rng(0)
    labels, timelines = generator.integers(0, 3, 60), np.repeat(np.arange(6), 10)
    fits = generator.integers(0, 3, (2, 60))
    counts = np.stack([f1_counts(labels, fit, timelines, 3) for fit in fits])
    drawn = [0, 3, 3, 5, 5, 5]
    posts = np.concatenate([np.flatnonzero(timelines == timeline) for timeline in drawn])
    expected = np.mean([f1_score(labels[posts], fit[posts], average="macro") for fit in fits])
    times = np.bincount(drawn, minlength=6)[None]
    assert macro_f1(times, counts) == pytest.approx([expected])
    # A class that no post of a sample has and none is predicted as
    assert macro_f1(np.array([[1, 0]]), np.array([[[[2, 0], [2, 0]], [[0, 2], [0, 2]]]])) == pytest.approx([0.5])


def test_a_curve_goes_on_as_its_formula_does():
    # 0.8 less 4 / timelines, for 10, 20 and 40 of them; the model itself is 0.05 better than its stand-in.
    scores = [0.8 - 4 / size for size in (40, 20, 10)]
    curve = expect_more(counts_of(scores[0] + 0.05), of_parts(*scores))
    expected = 0.85 - 4 / 80
    assert curve["expected_macro_f1"] == pytest.approx(expected)
    # All timelines are alike, so that other ones would have the same score.
    assert curve["expected_interval"] == pytest.approx([expected] * 2)
    assert [point["timelines"] for point in curve["stand_in"]] == [10, 20, 40]
    assert [point["macro_f1"] for point in curve["stand_in"]] == pytest.approx(scores[::-1])
    assert (curve["timelines"], curve["more_timelines"], curve["has_learned"], curve["gains"]) == (40, 40, True, True)
    assert "40 more timelines" in more_labels_sentence(curve) and "0.75 to about 0.80" in more_labels_sentence(curve)


def test_no_score_is_more_than_1():
    """0.95 with 40 timelines, and 0.8 less with half of them: the formula alone would go on to 1.35."""
    curve = expect_more(counts_of(0.95, spread=0.05), of_parts(0.95, 0.15, spread=0.05))
    assert curve["expected_macro_f1"] == curve["expected_interval"][1] == 1


def test_a_curve_that_falls_expects_nothing():
    curve = expect_more(counts_of(0.7), of_parts(0.6, 0.62, 0.65))
    assert curve["expected_macro_f1"] == pytest.approx(0.7) and curve["has_learned"] and not curve["gains"]
    assert "not sure" in more_labels_sentence(curve)


def test_timelines_that_differ_make_intervals_wide():
    curve = expect_more(counts_of(0.7, spread=0.2), of_parts(0.7, 0.65, 0.6, spread=0.2))
    # The standard deviation of a mean of 40 timelines is 0.032, and an interval of 95 % has 3.9 of them.
    low, high = curve["macro_f1_interval"]
    assert high - low == pytest.approx(3.92 * 0.2 / 40**0.5, rel=0.2)
    low, high = curve["expected_interval"]
    assert low < curve["expected_macro_f1"] < high and high - low > 0.08


def test_fits_that_differ_make_the_interval_wide():
    """The variance between halves is divided by 4 and that between quarters by 16, as for so many more timelines."""
    parts = {
        part: np.stack([counts_of(score) for score in scores])
        for part, scores in ((1, [0.7]), (2, [0.6, 0.7]), (4, [0.5, 0.6, 0.6, 0.7]))
    }
    spread = ((0.05**2 * 2 / 4 + 0.1**2 * 2 / 16) / (1 + 3)) ** 0.5
    curve = expect_more(counts_of(0.7), parts)
    low, high = curve["expected_interval"]
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.1)
    assert curve["macro_f1_interval"] == pytest.approx([0.7, 0.7])


def test_of_labels_of_chance_nothing_is_expected():
    generator, timelines = np.random.default_rng(0), np.repeat(np.arange(40), 20)
    labels = generator.integers(0, 2, 800)
    fits = [f1_counts(labels, generator.integers(0, 2, 800), timelines, 2) for _ in range(8)]
    curve = expect_more(fits[0], {1: np.stack(fits[1:2]), 2: np.stack(fits[2:4]), 4: np.stack(fits[4:])})
    assert not curve["has_learned"] and curve["guessing"] == 0.5
    assert all(abs(point["macro_f1"] - 0.5) < 0.05 for point in curve["stand_in"])
    sentence = more_labels_sentence(curve)
    assert "guessing" in sentence and "more timelines" not in sentence


def test_the_figure_has_all_points():
    curve = expect_more(counts_of(0.7, spread=0.1), of_parts(0.68, 0.64, 0.6, spread=0.1))
    axes = more_labels_figure(curve).axes[0]
    drawn = {tuple(np.round(point, 6)) for line in axes.lines for point in line.get_xydata()}
    points = [*curve["stand_in"], curve]
    expected = {(point["timelines"], round(point["macro_f1"], 6)) for point in points}
    assert expected | {(80, round(curve["expected_macro_f1"], 6))} <= drawn
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "20", "40", "80"]
