"""Splitting by timeline: a timeline is never cut."""

import numpy as np
from datasets import Dataset
from sklearn.model_selection import StratifiedGroupKFold


def split_timelines(timelines: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """
    Splits a dataset of timelines in two, so that the classes are shared out alike.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        fraction (`float`): Share of the second part, of the posts; 1 / k for a whole number k of at least 2.
        seed (`int`): Seed of the shuffle.

    Returns:
        The rest, and the part. Raises a `ValueError` where there are fewer timelines than 1 / `fraction`.
    """
    folds = round(1 / fraction) if 0 < fraction <= 0.5 else 0
    if folds < 2 or len(timelines) < folds:
        raise ValueError(f"Cannot split {len(timelines)} timelines by a fraction of {fraction}.")
    labels = timelines["labels"]
    posts = np.concatenate([np.asarray(values) for values in labels])
    groups = np.repeat(np.arange(len(timelines)), [len(values) for values in labels])
    folder = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed)
    rest, part = next(folder.split(posts, posts, groups))
    return timelines.select(np.unique(groups[rest])), timelines.select(np.unique(groups[part]))
