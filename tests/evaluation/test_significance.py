"""The paired bootstrap, against scikit-learn's F1 in a plain loop over the same draws."""

import numpy as np
import pytest
from sklearn.metrics import f1_score

from modeling_tempoformer.evaluation import significance
from modeling_tempoformer.evaluation.significance import count_by_group, macro_f1, paired_bootstrap


def sample_posts(num_posts: int = 80, num_groups: int = 9) -> tuple[np.ndarray, ...]:
    """Actual, ours (often right, at times without a prediction), theirs, and groups whose posts are scattered."""
    generator = np.random.default_rng(3)
    actual = generator.choice(3, size=num_posts, p=[0.6, 0.3, 0.1])
    ours = np.where(generator.random(num_posts) < 0.5, actual, generator.integers(-1, 3, num_posts))
    theirs = np.where(generator.random(num_posts) < 0.3, actual, generator.integers(-1, 3, num_posts))
    return actual, ours, theirs, generator.integers(num_groups, size=num_posts)


def reference_f1(actual, predicted) -> float:
    # A fourth class is neither actual nor predicted.
    return f1_score(actual, predicted, labels=range(4), average="macro", zero_division=0)


def test_resampled_differences_are_those_of_a_plain_loop(monkeypatch):
    """Also across blocks of resamples."""
    monkeypatch.setattr(significance, "BLOCK", 16)
    actual, ours, theirs, groups = sample_posts()
    found = paired_bootstrap(actual, ours, theirs, [f"t{g}" for g in groups], 4, resamples=50, level=0.8, seed=5)
    assert found["difference"] == pytest.approx(reference_f1(actual, ours) - reference_f1(actual, theirs), abs=1e-12)
    order = list(dict.fromkeys(groups.tolist()))
    generator = np.random.default_rng(5)
    differences = []
    for _ in range(50):
        times = generator.multinomial(len(order), [1 / len(order)] * len(order))
        posts = [
            post for g, n in zip(order, times, strict=True) for _ in range(n) for post in np.flatnonzero(groups == g)
        ]
        differences.append(reference_f1(actual[posts], ours[posts]) - reference_f1(actual[posts], theirs[posts]))
    assert found["interval"] == pytest.approx((np.percentile(differences, 10), np.percentile(differences, 90)))
    below = sum(difference <= 0 for difference in differences)
    assert 0 < below < 25
    assert found["p"] == pytest.approx(2 * below / 50)


def test_macro_f1_on_a_worked_example():
    """Right, predicted, actual: 1, 2, 2 of class 0, 0, 1, 1 of class 1, 0, 0, 1 of class 2. One post has none."""
    actual, predicted = np.array([0, 0, 1, 2]), np.array([0, 1, 0, -1])
    counts = count_by_group(actual, predicted, np.zeros(4, dtype=int), 1, 3)
    assert counts[0].tolist() == [[1, 0, 0], [2, 1, 0], [2, 1, 1]]
    assert macro_f1(np.ones((1, 1)), counts) == pytest.approx((2 * 1 / 4 + 0 + 0) / 3)


def test_the_same_predictions_do_not_differ():
    actual, ours, _, groups = sample_posts()
    assert paired_bootstrap(actual, ours, ours, groups, 3, resamples=200) == {
        "difference": 0.0,
        "interval": (0.0, 0.0),
        "p": 1.0,
    }


def test_a_method_that_is_always_better_has_the_smallest_p():
    actual, _, theirs, groups = sample_posts()
    found = paired_bootstrap(actual, actual, theirs, groups, 3, resamples=200)
    swapped = paired_bootstrap(actual, theirs, actual, groups, 3, resamples=200)
    assert found["p"] == swapped["p"] == 1 / 200
    assert found["interval"][0] > 0
    assert swapped["interval"] == pytest.approx([-end for end in reversed(found["interval"])])


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"actual": [0, -100, 1]}, r"`actual`, post 1 \(counting from 0\): the class id -100 is not from 0 to 1"),
        ({"theirs": [0, 1, 2]}, r"`theirs`, post 2 \(counting from 0\): the class id 2 is not from -1 to 1"),
        ({"ours": [0, 1]}, "3 posts in `actual`, but 2 in `ours`"),
        ({"groups": "aaa"}, "at least 2 timelines, got 1"),
        ({"level": 95}, "`level` must be between 0 and 1, got 95"),
        ({"resamples": 0}, "`resamples` must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(settings, message):
    values = {"actual": [0, 1, 1], "ours": [0, 1, -1], "theirs": [0, 0, 1], "groups": "aab", "num_labels": 2}
    with pytest.raises(ValueError, match=message):
        paired_bootstrap(**values | settings)


def test_over_several_seeds_macro_f1_is_averaged_not_pooled():
    """Two seeds that each give one class only are no better than that, though together they give both."""
    actual, groups = [0, 1] * 6, [post // 2 for post in range(12)]
    zeros, ones = [0] * 12, [1] * 12
    found = paired_bootstrap(actual, [zeros, ones], [zeros], groups, 2, resamples=50)
    assert found["difference"] == pytest.approx(0) and found["interval"] == pytest.approx((0, 0))
    right = paired_bootstrap(actual, [actual, zeros], zeros, groups, 2, resamples=50)
    assert right["difference"] == pytest.approx((1 + 1 / 3) / 2 - 1 / 3)
    with pytest.raises(ValueError, match="12 posts in `actual`, but 11 in `ours`"):
        paired_bootstrap(actual, [zeros, ones[1:]], zeros, groups, 2)
