"""Splits by timeline: a timeline is never cut."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
from datasets import Dataset
from sklearn.model_selection import StratifiedGroupKFold


SPLITS = ("train", "validation", "test")


def split_timelines(timelines: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """
    Splits timelines in two with similar shares of the classes.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        fraction (`float`): Share of the posts in the second one: 1 / k for an integer k of at least 2, to within
            0.005.
        seed (`int`): Seed of the shuffle.

    Returns:
        The first and the second one. Raises a `ValueError` for other fractions, and for fewer timelines than k.
    """
    folds = round(1 / fraction) if 0 < fraction <= 0.5 else 0
    # 0.33 is meant to be a third.
    if folds < 2 or abs(fraction - 1 / folds) > 0.005:
        raise ValueError(f"Cannot split by a fraction of {fraction}: it must be 1/2, 1/3, 1/4 and so on.")
    cuts = cut(timelines, folds, seed)
    lengths = np.array([len(labels) for labels in timelines["labels"]])
    wrong = np.array([abs(folds * lengths[taken].sum() / lengths.sum() - 1) for _, taken in cuts])
    # Any fold whose size is right to within a tenth, else the nearest. The first always has the largest timeline.
    near = np.flatnonzero(wrong <= max(wrong.min(), 0.1))
    rest, taken = cuts[np.random.default_rng(seed).choice(near)]
    return timelines.select(rest), timelines.select(taken)


def cut(timelines: Dataset, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each fold the indices of the timelines outside it and in it."""
    if len(timelines) < folds:
        raise ValueError(
            f"Cannot split {len(timelines)} timelines: this split needs at least {folds}, as a timeline is never cut. "
            "If there should be more, check the column of timeline ids; else give each split as a file of its own."
        )
    labels = timelines["labels"]
    posts = np.concatenate([np.asarray(values) for values in labels])
    groups = np.repeat(np.arange(len(timelines)), [len(values) for values in labels])
    folder = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed)
    return [(np.unique(groups[rest]), np.unique(groups[fold])) for rest, fold in folder.split(posts, posts, groups)]


def make_folds(
    timelines: Dataset, num_folds: int, validation_fraction: float, seed: int
) -> list[dict[str, list[str]]]:
    """
    Cross-validation by timeline (paper, section 5.2): every timeline is in the test split of one fold.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        num_folds (`int`): At least 2.
        validation_fraction (`float`): Share of the posts outside the test split: 1 / k for an integer k >= 2.
        seed (`int`): Seed of the shuffles; the same timelines and seed give the same folds.

    Returns:
        For each fold the timeline ids of its splits `train`, `validation` and `test`. Raises a `ValueError` if there
        are fewer timelines than folds.
    """
    if num_folds < 2:
        raise ValueError(f"Cannot make {num_folds} folds: there must be at least 2.")
    folds = []
    for number, (rest, test) in enumerate(cut(timelines, num_folds, seed)):
        # Each fold has its own seed, so that no timeline is always in the validation split.
        train, validation = split_timelines(timelines.select(rest), validation_fraction, seed + number)
        splits = (train, validation, timelines.select(test))
        folds.append({name: list(split["timeline_id"]) for name, split in zip(SPLITS, splits, strict=True)})
    return folds


def read_folds(path: str | Path, timelines: Dataset) -> list[dict[str, list[str]]]:
    """
    The folds in a file. Raises a `ValueError` unless each fold has every timeline of `timelines` exactly once, no
    others, and no empty split.
    """
    folds = json.loads(Path(path).read_text(encoding="utf-8"))
    if not folds or not all(isinstance(fold, dict) and set(fold) == set(SPLITS) for fold in folds):
        raise ValueError(f"{path} must be a list of objects with {', '.join(SPLITS)}.")
    present = Counter(timelines["timeline_id"])
    for number, fold in enumerate(folds):
        if empty := [name for name in SPLITS if not fold[name]]:
            raise ValueError(f"{path}, fold {number}: the {empty[0]} split is empty.")
        named = Counter(timeline_id for name in SPLITS for timeline_id in fold[name])
        refuse_ids(f"{path}, fold {number}: timelines are missing", present - named)
        refuse_ids(f"{path}, fold {number}: timelines are unknown, or in several splits", named - present)
    return folds


def check_tested_once(path: str | Path, folds: list[dict[str, list[str]]]):
    """Raises a `ValueError` unless every timeline is in the test split of exactly one fold."""
    tested = Counter(timeline_id for fold in folds for timeline_id in fold["test"])
    everything = Counter(timeline_id for name in SPLITS for timeline_id in folds[0][name])
    refuse_ids(f"{path}: timelines are in no test split", everything - tested)
    refuse_ids(f"{path}: timelines are in several test splits", tested - everything)


def refuse_ids(problem: str, ids: Counter):
    """Raises a `ValueError` that names the first ids, if there are any."""
    if ids:
        raise ValueError(f"{problem}: {', '.join(sorted(ids)[:5])} ({len(ids)} in all).")


def select_fold(timelines: Dataset, fold: dict[str, list[str]]) -> dict[str, Dataset]:
    """The splits of a fold, each in the order of `timelines`."""
    ids = timelines["timeline_id"]
    of_split = {name: set(fold[name]) for name in SPLITS}
    return {name: timelines.select([i for i, one in enumerate(ids) if one in of_split[name]]) for name in SPLITS}
