"""Splits timelines: none is cut, and a model is not scored on posts that it has learned from."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..common.files import decode_json, write_json
from ..common.splits import SPLITS
from ..names_tempoformer import read_name
from ..timeline_tempoformer import Timeline
from .date_splits import after, until
from .metadata import unit_of


logger = logging.getLogger(__name__)

# A file beside a model, with hashes of the timelines on which it was trained, validated and tested. Files whose names
# begin with an underscore are never pushed.
SPLIT = "_split.json"
# The key of the timelines of earlier trainings of the same weights
EARLIER = "earlier"
# For each split but the training the moment in seconds after which its posts are, if they were split by date
DATES = "dates"
# The names of the columns that the posts of the training had, by role, where they were not the usual ones
COLUMNS = "columns"
# The hash of each training timeline, and the member of the model that does not learn from it
FOLDS = "folds"
# The weights that the record is of
WEIGHTS = "weights"


def split_timelines(
    timelines: Sequence[Timeline], fraction: float, seed: int
) -> tuple[list[Timeline], list[Timeline]]:
    """
    Splits timelines in two with similar shares of the classes.

    Args:
        timelines (`list[Timeline]`): As [`to_timelines`] returns them.
        fraction (`float`): Share of the posts in the second part: 1 / k for an integer k >= 2, to within 0.005.
        seed (`int`): Seed of the shuffle.

    Returns:
        The first and the second part. Raises a `ValueError` for other fractions, and for fewer timelines than k.
    """
    folds = round(1 / fraction) if 0 < fraction <= 0.5 else 0
    # 0.33 stands for a third.
    if folds < 2 or abs(fraction - 1 / folds) > 0.005:
        raise ValueError(f"Cannot split by a fraction of {fraction}: it must be 1/2, 1/3, 1/4 and so on.")
    cuts = cut(timelines, folds, seed)
    lengths = np.array(list(map(len, timelines)))
    wrong = np.array([abs(folds * lengths[taken].sum() / lengths.sum() - 1) for _, taken in cuts])
    # Drawn among the folds whose size is right to within a tenth, or else the nearest, and not simply the first fold,
    # which always has the largest timeline.
    near = np.flatnonzero(wrong <= max(wrong.min(), 0.1))
    rest, taken = cuts[np.random.default_rng(seed).choice(near)]
    return [timelines[index] for index in rest], [timelines[index] for index in taken]


def cut(timelines: Sequence[Timeline], folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """
    Returns the indices of the timelines outside each fold, and in it. A unit ([`unit_of`]) stays in one fold. Raises a
    `ValueError` for fewer units, or fewer posts of each class, than folds.
    """
    units, different = pd.factorize(pd.Series(list(map(unit_of, timelines)), dtype=object))
    if len(different) < folds:
        units_of = (
            "" if len(different) == len(timelines) else f" that belong to {len(different)} values of the split column"
        )
        raise ValueError(
            f"Cannot split {len(timelines)} timelines{units_of}: this split needs at least {folds}, as none is ever "
            "cut. If there should be more, check the column; else give each split as a file of its own."
        )
    posts = np.concatenate([timeline.labels for timeline in timelines])
    numbers = np.repeat(np.arange(len(timelines)), list(map(len, timelines)))
    if (most := max(Counter(posts.tolist()).values())) < folds:
        raise ValueError(
            f"Cannot split {len(timelines)} timelines into {folds} parts: no class has more than {most} posts. Is the "
            "column that is read the column of labels (--columns label=NAME)? If so, label more posts, or give each "
            "split as a file of its own."
        )
    folder = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed)
    cuts = folder.split(posts, posts, units[numbers])
    return [(np.unique(numbers[rest]), np.unique(numbers[fold])) for rest, fold in cuts]


def check_apart(splits: Mapping[str, Sequence[Timeline]]):
    """Raises a `ValueError` that names values of the split column whose timelines are in two splits."""
    units = {name: {unit_of(timeline) for timeline in timelines} for name, timelines in splits.items()}
    for one, other in combinations(units, 2):
        shared = Counter(str(unit) for kind, unit in units[one] & units[other] if kind == "unit")
        problem = f"The {one} split and the {other} split have values of the split column in common; keep each in one"
        refuse_ids(problem, shared)


def hold_out(timelines: Sequence[Timeline], members: int, seed: int) -> list[Timeline]:
    """
    Divides training timelines into one held-out fold for each member of the ensemble: a member does not learn from its
    own fold. With fewer timelines, or units of them ([`unit_of`]), than members, some members learn from all.

    Args:
        timelines (`Sequence[Timeline]`): The training timelines.
        members (`int`): Number of members of the ensemble.
        seed (`int`): Seed of the shuffle.

    Returns:
        The timelines in their order, each with its member as `held_out`.
    """
    held_out = np.empty(len(timelines), dtype=np.int64)
    folds = max(2, min(members, len(set(map(unit_of, timelines)))))
    for member, (_, taken) in enumerate(cut(timelines, folds, seed)):
        held_out[taken] = member
    return [replace(timeline, held_out=int(member)) for timeline, member in zip(timelines, held_out, strict=True)]


def make_folds(
    timelines: Sequence[Timeline], num_folds: int, validation_fraction: float, seed: int
) -> list[dict[str, list[str]]]:
    """
    Makes the folds of a cross-validation (paper, section 5.2). Every timeline is in the test split of one fold.

    Args:
        timelines (`list[Timeline]`): As [`to_timelines`] returns them.
        num_folds (`int`): At least 2.
        validation_fraction (`float`): Share of the posts outside the test split: 1 / k for an integer k >= 2.
        seed (`int`): Seed of the shuffles; the same timelines and seed give the same folds.

    Returns:
        The timeline ids of the splits of each fold. Raises a `ValueError` for fewer timelines than folds.
    """
    if num_folds < 2:
        raise ValueError(f"Cannot make {num_folds} folds: there must be at least 2.")
    folds = []
    for number, (rest, test) in enumerate(cut(timelines, num_folds, seed)):
        # Each fold has its own seed, so that no timeline is always in the validation split.
        train, validation = split_timelines([timelines[index] for index in rest], validation_fraction, seed + number)
        splits = zip(SPLITS, (train, validation, [timelines[index] for index in test]), strict=True)
        folds.append({name: [timeline.timeline_id for timeline in split] for name, split in splits})
    return folds


def read_folds(path: str | Path, timelines: Sequence[Timeline]) -> list[dict[str, list[str]]]:
    """Returns the folds in a file ([`check_folds`])."""
    return check_folds(decode_json(Path(path).read_text(encoding="utf-8"), path), timelines, path)


def check_folds(folds: Any, timelines: Sequence[Timeline], source: str | Path) -> list[dict[str, list[str]]]:
    """
    Returns folds with ids as timelines have them. Raises a `ValueError`, which names the `source`, unless each fold
    has every timeline exactly once and no empty split.
    """
    right = [isinstance(fold, dict) and set(fold) == set(SPLITS) and all(fold.values()) for fold in folds]
    if not right or not all(right):
        raise ValueError(f"{source} must be a list of objects with {', '.join(SPLITS)}, none of them empty.")
    folds = [{name: list(map(read_name, fold[name])) for name in SPLITS} for fold in folds]
    present = Counter(timeline.timeline_id for timeline in timelines)
    for number, fold in enumerate(folds):
        named = Counter(timeline_id for name in SPLITS for timeline_id in fold[name])
        differing = (present - named) + (named - present)
        refuse_ids(f"{source}, fold {number}: timelines are missing, unknown or in several splits", differing)
    return folds


def check_tested_once(path: str | Path, folds: list[dict[str, list[str]]]):
    """Raises a `ValueError` unless every timeline is in the test split of exactly one fold."""
    tested = Counter(timeline_id for fold in folds for timeline_id in fold["test"])
    everything = Counter(timeline_id for name in SPLITS for timeline_id in folds[0][name])
    differing = (everything - tested) + (tested - everything)
    refuse_ids(f"{path}: timelines are in no test split, or in several", differing)


def refuse_ids(problem: str, ids: Counter):
    """Raises a `ValueError` that names the first ids, if there are any."""
    if ids:
        raise ValueError(f"{problem}: {', '.join(sorted(ids)[:5])} ({len(ids)} in all).")


def select_fold(timelines: Sequence[Timeline], fold: dict[str, list[str]]) -> dict[str, list[Timeline]]:
    """Returns the splits of a fold, each in the order of `timelines`."""
    splits = {}
    for name in SPLITS:
        ids = set(fold[name])
        splits[name] = [timeline for timeline in timelines if timeline.timeline_id in ids]
    return splits


def hash_id(timeline_id: str) -> str:
    """Returns 64 bits of the SHA-256 of a timeline's id, as [`~names_tempoformer.read_name`] reads it."""
    return hashlib.sha256(read_name(timeline_id).encode()).hexdigest()[:16]


def fingerprint_weights(folder: Path) -> str | None:
    """Returns a hash of the weights in a folder; None without weights."""
    files = sorted(folder.glob("*model*.safetensors"))
    hashed = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            hashed.update(hashlib.file_digest(file, "sha256").digest())
    return hashed.hexdigest()[:16] if files else None


def write_split(folder: str | Path, split: Mapping[str, Sequence[str]]):
    """Writes the record of the weights in a folder; without weights there, of the folder's checkpoints."""
    write_json(Path(folder) / SPLIT, {**split, WEIGHTS: fingerprint_weights(Path(folder))})


def read_split_record(model: str | Path | None) -> tuple[Path, dict[str, Any]]:
    """Returns the path and the content of a model's record; the content is empty without one."""
    folder = Path(model or "")
    path = (folder.parent if folder.name.startswith(PREFIX_CHECKPOINT_DIR) else folder) / SPLIT
    return path, json.loads(path.read_text(encoding="utf-8")) if model and path.exists() else {}


def read_split(model: str | Path | None) -> dict[str, Any]:
    """
    Returns the record of a model in a local folder or in one of its checkpoints: the hashes of each split, the `dates`
    of a split by date, the names of `columns`, and the `folds` of a model with members. They are empty without a
    record. Raises a `ValueError` for a record of other weights than those beside it. Records of 0.2.0 do not say whose
    they are.
    """
    folder, (path, record) = Path(model or ""), read_split_record(model)
    is_checkpoint = folder != path.parent
    if not is_checkpoint and WEIGHTS in record and record[WEIGHTS] != fingerprint_weights(folder):
        raise ValueError(
            f"{path} says from which timelines a model has learned, but not the one beside it, whose weights were "
            "written by something else: give the folder as the training left it, or end the training by its command."
        )
    others = {name: record.get(name, {}) for name in (DATES, COLUMNS, FOLDS)}
    return {name: set(record.get(name, ())) for name in (*SPLITS, EARLIER)} | others


def make_split(
    ids: Mapping[str, Sequence[str]], before: Mapping[str, Any], dates: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """
    Makes the record of a training or of a calibration.

    Args:
        ids (`Mapping[str, Sequence[str]]`): The ids of the timelines of each split.
        before (`dict[str, Any]`): The record of the model that the run starts from ([`read_split`]).
        dates (`dict[str, float]`, *optional*): As [`split_by_date`] returns them: a timeline may be in several splits.

    Returns:
        The hashes of each split, from `before` where a split is not given; as `earlier` the other timelines that
        the model had learned from; and the `dates`, if there are any. Raises a `ValueError` that names timelines which
        are in two splits.
    """
    hashes = {name: {hash_id(timeline_id): timeline_id for timeline_id in ids.get(name, ())} for name in SPLITS}
    if before[DATES] and "train" not in ids:
        # The parts remain as in the training. Other timelines are not tested any more, whatever their dates.
        kept = {name: before[name] for name in (*SPLITS, EARLIER)}
        kept[EARLIER] = before[EARLIER] | (hashes["validation"].keys() - before["train"] - before["validation"])
        return {name: sorted(hashed) for name, hashed in kept.items()} | {DATES: before[DATES]}
    for one, other in () if dates else combinations(hashes, 2):
        shared = [hashes[one][hashed] for hashed in hashes[one].keys() & hashes[other].keys()]
        problem = f"The {one} split and the {other} split have timelines in common; leave them out of one of the files"
        refuse_ids(problem, Counter(shared))
    given = set().union(*hashes.values())
    split = {name: set(hashes[name]) if name in ids else before[name] - given for name in SPLITS}
    learned = before["train"] | before["validation"] | before[EARLIER]
    split[EARLIER] = learned - split["train"] - split["validation"]
    record: dict[str, Any] = {name: sorted(hashes_of_split) for name, hashes_of_split in split.items()}
    return record | ({DATES: dict(dates)} if dates else {})


def hold_back(split: str, timelines: list[Timeline], before: Mapping[str, Any], model: str | None) -> list[Timeline]:
    """
    Returns the timelines of a split on which a model may be scored.

    These are all timelines, if the model has learned from none that has labels. It may be validated again on timelines
    of its validation split. Given all timelines that its training divided, it is scored on the recorded split, or
    after a split by date on the posts in the split's dates ([`hold_back_by_date`]). In all other cases, raises a
    `ValueError` that names the timelines from which the model has learned.
    """
    learned = before["train"] | before[EARLIER] | (before["validation"] if split == "test" else set())
    if split in before[DATES] and timelines and timelines[0].timestamps is not None:
        timelines, learned = hold_back_by_date(split, timelines, before, model), before[EARLIER]
    hashes = [hash_id(timeline.timeline_id) for timeline in timelines]
    pairs = list(zip(hashes, timelines, strict=True))
    wrong = [timeline.timeline_id for hashed, timeline in pairs if hashed in learned and max(timeline.labels) >= 0]
    if wrong and before[split] and set(hashes) == set().union(*(before[name] for name in SPLITS)):
        held_back = [timeline for hashed, timeline in pairs if hashed in before[split]]
        logger.info(
            "These are the posts of the training of %s: only its %s split is scored, %d of %d timelines.",
            *(model, split, len(held_back), len(hashes)),
        )
        return held_back
    refuse_ids(
        f"{model} has learned from labelled timelines of the {split} split: give others, or the whole file of its "
        "training (then what was held back of it is scored), or no labels (then all are predicted and none is scored)",
        Counter(wrong),
    )
    return timelines


def hold_back_by_date(
    split: str, timelines: Sequence[Timeline], before: Mapping[str, Any], model: str | None
) -> list[Timeline]:
    """
    Returns what a split may have of timelines with times after a training that was split by date: of its own labelled
    timelines the posts in the dates of the split, and all others unchanged. Raises a `ValueError` if nothing is left.
    """
    known, dates = set().union(*(before[name] for name in SPLITS)), before[DATES]
    kept: list[Timeline | None] = []
    for timeline in timelines:
        part: Timeline | None = timeline
        if hash_id(timeline.timeline_id) in known and max(timeline.labels) >= 0:
            # The test is after the validation.
            part = until(timeline, dates["test"]) if split == "validation" else timeline
            part = part and after(part, dates[split])
        kept.append(part)
    if any(part is not timeline for part, timeline in zip(kept, timelines, strict=True)):
        logger.info(
            "The training of %s was split by date: of its own timelines only the posts of the %s split are scored.",
            *(model, split),
        )
    if all(part is None for part in kept):
        raise ValueError(f"{model} has learned from all these posts: give later ones, or other timelines.")
    return [timeline for timeline in kept if timeline is not None]


def recall_parts(model: str | Path, timelines: Sequence[Timeline]) -> dict[str, list[Timeline]]:
    """
    Divides the posts of a training as it has divided them.

    Args:
        model (`str` or `Path`): The output folder of a training of a new model over a frozen encoder.
        timelines (`list[Timeline]`): The posts of its training file, as [`to_timelines`] returns them.

    Returns:
        The timelines of `train`, each with the member that has not learned from it as `held_out`, and of `test`.
        Raises a `ValueError` for a folder that does not say so, and if timelines of the training are missing.
    """
    record = read_split(model)
    folds, dates = record[FOLDS], record[DATES]
    if not folds:
        raise ValueError(
            f"{model} does not say which member has learned from which timeline: give the output folder of a training "
            "of a new model over a frozen encoder."
        )
    hashes = [hash_id(timeline.timeline_id) for timeline in timelines]
    if missing := folds.keys() - hashes:
        raise ValueError(
            f"{len(missing)} of the {len(folds)} timelines that {model} has learned from are not among these posts: "
            "give the file of its training."
        )
    pairs = list(zip(hashes, timelines, strict=True))
    parts: dict[str, list[Timeline | None]] = {
        "train": [replace(timeline, held_out=folds[hashed]) for hashed, timeline in pairs if hashed in folds],
        "test": [timeline for hashed, timeline in pairs if hashed in record["test"]],
    }
    if dates:
        parts["train"] = [until(timeline, dates["test"]) for timeline in parts["train"]]
        parts["test"] = [after(timeline, dates["test"]) for timeline in parts["test"]]
    return {name: [timeline for timeline in part if timeline is not None] for name, part in parts.items()}
