"""Splitting by timeline: a timeline is never cut."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
from datasets import Dataset
from sklearn.model_selection import StratifiedGroupKFold

from .files import write_json


PARTS = ("train", "validation", "test")


def split_timelines(timelines: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """
    Splits a dataset of timelines in two, so that the classes are shared out alike.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        fraction (`float`): Share of the second part, of the posts; 1 / k for a whole number k of at least 2, to within
            0.005.
        seed (`int`): Seed of the shuffle.

    Returns:
        The rest, and the part. Raises a `ValueError` for other fractions, and where there are fewer timelines than k.
    """
    folds = round(1 / fraction) if 0 < fraction <= 0.5 else 0
    # 0.33 is meant to be a third.
    if folds < 2 or abs(fraction - 1 / folds) > 0.005:
        raise ValueError(f"Cannot split by a fraction of {fraction}: it must be 1/2, 1/3, 1/4 and so on.")
    if len(timelines) < folds:
        raise ValueError(f"Cannot split {len(timelines)} timelines by a fraction of {fraction}.")
    rest, part = choose(cut(timelines, folds, seed), timelines, seed)
    return timelines.select(rest), timelines.select(part)


def choose(cuts: list[tuple[np.ndarray, np.ndarray]], timelines: Dataset, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One of the folds: any whose share of the posts is right to within a tenth, else the one that comes closest."""
    lengths = np.array([len(labels) for labels in timelines["labels"]])
    wrong = np.array([abs(len(cuts) * lengths[part].sum() / lengths.sum() - 1) for _, part in cuts])
    # Not always the first, where the largest timeline is.
    near = np.flatnonzero(wrong <= max(wrong.min(), 0.1))
    return cuts[np.random.default_rng(seed).choice(near)]


def cut(timelines: Dataset, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each fold the places of the timelines outside it and of those in it."""
    labels = timelines["labels"]
    posts = np.concatenate([np.asarray(values) for values in labels])
    groups = np.repeat(np.arange(len(timelines)), [len(values) for values in labels])
    folder = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed)
    return [(np.unique(groups[rest]), np.unique(groups[part])) for rest, part in folder.split(posts, posts, groups)]


def make_folds(
    timelines: Dataset, num_folds: int, validation_fraction: float, seed: int
) -> list[dict[str, list[str]]]:
    """
    Cross-validation by timeline (paper, section 5.2): every timeline is in the test part of one fold.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        num_folds (`int`): At least 2.
        validation_fraction (`float`): Share of the posts outside the test part; 1 / k for a whole number k >= 2.
        seed (`int`): Seed of the shuffles; the same timelines and seed give the same folds.

    Returns:
        For each fold the timeline ids of its parts `train`, `validation` and `test`. Raises a `ValueError` where
        there are fewer timelines than folds.
    """
    if not 2 <= num_folds <= len(timelines):
        raise ValueError(f"Cannot make {num_folds} folds of {len(timelines)} timelines.")
    folds = []
    for number, (rest, test) in enumerate(cut(timelines, num_folds, seed)):
        # By a seed of its own, so that no timeline is in the validation part of every fold.
        train, validation = split_timelines(timelines.select(rest), validation_fraction, seed + number)
        parts = (train, validation, timelines.select(test))
        folds.append({name: list(part["timeline_id"]) for name, part in zip(PARTS, parts, strict=True)})
    return folds


def write_folds(path: str | Path, folds: list[dict[str, list[str]]]):
    """Writes the folds as JSON, one list of objects with `train`, `validation` and `test`."""
    write_json(Path(path), folds)


def read_folds(path: str | Path, timelines: Dataset) -> list[dict[str, list[str]]]:
    """
    The folds of a file. Raises a `ValueError` where a fold does not hold every timeline of `timelines` exactly once,
    or other ones, or where a part is empty.
    """
    folds = json.loads(Path(path).read_text(encoding="utf-8"))
    if not folds or not all(isinstance(fold, dict) and set(fold) == set(PARTS) for fold in folds):
        raise ValueError(f"{path} must be a list of objects with {', '.join(PARTS)}.")
    present = Counter(timelines["timeline_id"])
    for number, fold in enumerate(folds):
        if empty := [name for name in PARTS if not fold[name]]:
            raise ValueError(f"{path}, fold {number}: the {empty[0]} part is empty.")
        named = Counter(timeline_id for name in PARTS for timeline_id in fold[name])
        if named == present:
            continue
        for problem, ids in (
            ("lacks timelines", present - named),
            ("has unknown timelines, or some twice", named - present),
        ):
            if ids:
                raise ValueError(f"{path}, fold {number} {problem}: {', '.join(sorted(ids)[:5])} ({len(ids)} in all).")
    return folds


def check_tested_once(path: str | Path, folds: list[dict[str, list[str]]]):
    """Raises a `ValueError` where a timeline is not in the test part of exactly one fold."""
    tested = Counter(timeline_id for fold in folds for timeline_id in fold["test"])
    everything = {timeline_id for name in PARTS for timeline_id in folds[0][name]}
    for problem, ids in (
        ("are in no test part", everything - tested.keys()),
        ("are in several test parts", {timeline_id for timeline_id, count in tested.items() if count > 1}),
    ):
        if ids:
            raise ValueError(f"{path}: timelines {problem}: {', '.join(sorted(ids)[:5])} ({len(ids)} in all).")


def select_fold(timelines: Dataset, fold: dict[str, list[str]]) -> dict[str, Dataset]:
    """The parts of a fold, each in the order of `timelines`."""
    part_of = {timeline_id: name for name in PARTS for timeline_id in fold[name]}
    places: dict[str, list[int]] = {name: [] for name in PARTS}
    for place, timeline_id in enumerate(timelines["timeline_id"]):
        places[part_of[timeline_id]].append(place)
    return {name: timelines.select(place) for name, place in places.items()}
