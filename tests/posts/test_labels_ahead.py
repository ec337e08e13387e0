"""Checks labels that say what comes on timelines worked by hand."""

import numpy as np
import pytest
from helpers import make_timeline

from modeling_tempoformer.posts.labels_ahead import with_labels_ahead


DAY, HOUR = 86400, 3600
NO = -100


def labels_of(labels: list[int], times: list[float] | None = None, changes=(1,), **reach) -> list[int]:
    return with_labels_ahead(make_timeline(labels, timestamps=times), changes, **reach).labels


@pytest.mark.parametrize(
    ("posts", "expected"),
    [
        # The post's own label does not count, and the last posts have too few after them.
        (1, [0, 1, 0, 0, 1, NO]),
        (2, [1, 1, 0, 1, NO, NO]),
        (5, [1, NO, NO, NO, NO, NO]),
        (6, [NO] * 6),
    ],
)
def test_the_next_posts(posts, expected):
    assert labels_of([1, 0, 1, 0, 0, 1], posts=posts) == expected


def test_a_change_is_each_class_that_is_asked_for():
    labels = [0, 2, 0, 1, 0]
    assert labels_of(labels, changes=[1, 2], posts=1) == [1, 0, 1, 0, NO]
    assert labels_of(labels, changes=[2], posts=1) == [1, 0, 0, 0, NO]


def test_the_posts_of_the_next_days():
    # A change at 1.5 days; nobody writes between 2 and 9 days.
    times, labels = [day * DAY for day in (0, 1, 1.5, 2, 9, 10)], [0, 0, 1, 0, 0, 1]
    assert labels_of(labels, times, seconds=DAY) == [0, 1, 0, 0, 1, NO]
    # The end of the time belongs to it.
    assert labels_of(labels, times, seconds=36 * HOUR) == [1, 1, 0, 0, NO, NO]
    assert labels_of(labels, times, seconds=35 * HOUR) == [0, 1, 0, 0, NO, NO]
    assert labels_of(labels, times, seconds=8 * DAY) == [1, 1, 0, 1, NO, NO]
    assert labels_of(labels, times, seconds=9 * DAY) == [1, 1, NO, NO, NO, NO]
    assert labels_of([0, 1, 0], [0.0, 90.0, 181.0], seconds=90) == [1, 0, NO]
    assert labels_of([0, 1, 0], [0.0, 60.5, 200.0], seconds=60) == [0, 0, NO]


def test_posts_of_the_same_time_are_not_later_by_any_time():
    times, labels = [0, 0, 0, 10, 10], [0, 1, 0, 0, 1]
    assert labels_of(labels, times, seconds=5) == [0, 0, 0, NO, NO]
    assert labels_of(labels, times, seconds=10) == [1, 1, 1, NO, NO]
    # Of posts they are the next ones.
    assert labels_of(labels, times, posts=1) == [1, 0, 0, 1, NO]


def test_posts_without_labels_are_passed_over():
    """One of two who take turns has labels: the next two posts are his, also from a post of the other's."""
    assert labels_of([NO, 0, NO, 1, NO, 0, NO, 0, NO], posts=2) == [1, 1, 1, 0, 0, NO, NO, NO, NO]


def test_a_time_that_is_known_in_part_gives_no_label():
    # The change at 2 is seen, but what follows within reach is not known.
    assert labels_of([0, 0, 1, NO, 0, 0, 0], list(range(7)), seconds=2) == [1, NO, NO, 0, 0, NO, NO]
    # A post without a label is asked about what comes.
    assert labels_of([NO, 1, 0], posts=1) == [1, 0, NO]
    assert labels_of([], posts=3) == [] and labels_of([], [], seconds=3) == []


def test_labels_are_those_of_a_plain_loop():
    generator = np.random.default_rng(0)
    for _ in range(30):
        times = np.sort(generator.integers(0, 30, 25)).tolist()
        labels = generator.choice([NO, 0, 1, 2], 25, p=[0.1, 0.6, 0.2, 0.1]).tolist()
        by_posts, by_time = [], []
        for post, time in enumerate(times):
            after = [label for label in labels[post + 1 :] if label != NO][:3]
            by_posts.append(NO if len(after) < 3 else int(2 in after or 1 in after))
            after = [label for other, label in zip(times, labels, strict=True) if time < other <= time + 5]
            by_time.append(NO if max(times) < time + 5 or NO in after else int(2 in after or 1 in after))
        assert labels_of(labels, times, changes=[1, 2], posts=3) == by_posts
        assert labels_of(labels, times, changes=[1, 2], seconds=5) == by_time


def test_a_time_needs_times():
    with pytest.raises(ValueError, match="--days.*--columns timestamp=.*--posts"):
        labels_of([0, 1], seconds=2 * DAY)
