"""Whether one method is better than another, beyond the chance of which timelines were drawn."""

from collections.abc import Hashable, Sequence

import numpy as np


# Resamples that are scored at once, so that many timelines do not fill the memory.
BLOCK = 1000


def paired_bootstrap(
    actual: Sequence[int],
    ours: Sequence[int] | Sequence[Sequence[int]],
    theirs: Sequence[int] | Sequence[Sequence[int]],
    groups: Sequence[Hashable],
    num_labels: int,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, float | tuple[float, float]]:
    """
    Compares the macro F1 of two methods on the same posts. Whole timelines are drawn with replacement, as many as
    there are, because the posts of a timeline depend on each other.

    Args:
        actual (`Sequence[int]`): The class id of each post; every post must have one.
        ours, theirs (`Sequence[int]` or `Sequence[Sequence[int]]`): The predicted class ids, or those of each of
            several seeds, over which macro F1 is averaged; -1 for none, which is wrong for every class.
        groups (`Sequence[Hashable]`): The timeline of each post, of which there must be at least 2.
        num_labels (`int`): Number of classes. One that is neither actual nor predicted counts with an F1 of 0.
        resamples (`int`, *optional*, defaults to 10,000): Of the bootstrap, at least 1.
        level (`float`, *optional*, defaults to 0.95): Of the interval, between 0 and 1.
        seed (`int`, *optional*, defaults to 0): Of the bootstrap.

    Returns:
        `difference`, macro F1 of `ours` less that of `theirs` on all posts; `interval`, in which the middle `level` of
        the resampled differences lie; `p`, twice the smaller of the shares of resamples with a difference of at most 0
        and of at least 0, from 1 / `resamples` to 1. Raises a `ValueError` for lengths that differ, a class id that is
        none, or fewer than 2 timelines.
    """
    if num_labels < 1:
        raise ValueError(f"`num_labels` must be at least 1, got {num_labels}.")
    if resamples < 1:
        raise ValueError(f"`resamples` must be at least 1, got {resamples}.")
    if not 0 < level < 1:
        raise ValueError(f"`level` must be between 0 and 1, got {level}.")
    labels = check_ids("actual", actual, 0, num_labels)
    predictions = {}
    for name, ids in (("ours", ours), ("theirs", theirs)):
        of_seeds = ids if len(ids) and np.ndim(ids[0]) else [ids]
        predictions[name] = [check_ids(name, of_seed, -1, num_labels) for of_seed in of_seeds]
    for name, of_seeds in (*predictions.items(), ("groups", [groups])):
        for values in of_seeds:
            if len(values) != len(labels):
                raise ValueError(f"There are {len(labels)} posts in `actual`, but {len(values)} in `{name}`.")
    places = {group: place for place, group in enumerate(dict.fromkeys(groups))}
    if len(places) < 2:
        raise ValueError(f"`groups` must name at least 2 timelines, got {len(places)}.")
    of_post = np.array([places[group] for group in groups])
    counts = [
        [count_by_group(labels, ids, of_post, len(places), num_labels) for ids in of_seeds]
        for of_seeds in predictions.values()
    ]

    def differ(times: np.ndarray) -> np.ndarray:
        first, second = (np.mean([macro_f1(times, of_seed) for of_seed in seeds], axis=0) for seeds in counts)
        return first - second

    (difference,) = differ(np.ones((1, len(places))))
    generator = np.random.default_rng(seed)
    shares = np.full(len(places), 1 / len(places))
    drawn = []
    for start in range(0, resamples, BLOCK):
        times = generator.multinomial(len(places), shares, size=min(BLOCK, resamples - start)).astype(np.float64)
        drawn.append(differ(times))
    # What is 0 but for the order of a sum must count as 0.
    differences = np.round(np.concatenate(drawn), 12)
    low, high = np.quantile(differences, ((1 - level) / 2, (1 + level) / 2))
    p = 2 * min((differences <= 0).mean(), (differences >= 0).mean())
    return {
        "difference": float(difference),
        "interval": (float(low), float(high)),
        "p": float(min(1.0, max(p, 1 / resamples))),
    }


def check_ids(name: str, ids: Sequence[int], first: int, num_labels: int) -> np.ndarray:
    """The class ids, as integers. Raises a `ValueError` that names the first post that has none of them."""
    values = np.asarray(ids)
    wrong = np.flatnonzero(~np.isin(values, np.arange(first, num_labels)))
    if wrong.size:
        problem = f"the class id {values[wrong[0]]} is not from {first} to {num_labels - 1}"
        raise ValueError(f"`{name}`, post {wrong[0]} (counting from 0): {problem}.")
    return values.astype(np.int64)


def count_by_group(
    actual: np.ndarray, predicted: np.ndarray, of_post: np.ndarray, num_groups: int, num_labels: int
) -> np.ndarray:
    """Right predictions, predictions and posts of each class, for each group: (groups, 3, classes)."""
    counts = np.zeros((num_groups, 3, num_labels))
    is_right, is_any = actual == predicted, predicted >= 0
    np.add.at(counts, (of_post[is_right], 0, actual[is_right]), 1)
    np.add.at(counts, (of_post[is_any], 1, predicted[is_any]), 1)
    np.add.at(counts, (of_post, 2, actual), 1)
    return counts


def macro_f1(times: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Macro F1 of each sample (samples,), where `times` (samples, groups) says how often a group is in it."""
    totals = (times @ counts.reshape(len(counts), -1)).reshape(len(times), *counts.shape[1:])
    right, sizes = totals[:, 0], totals[:, 1] + totals[:, 2]
    return np.divide(2 * right, sizes, out=np.zeros_like(right), where=sizes > 0).mean(axis=1)
