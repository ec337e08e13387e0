"""`_split.json` beside a model: hashes of the timelines that it was trained, validated and tested on."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from datasets import Dataset
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .splits import SPLITS, refuse_ids
from .timelines import Posts, without_zeros


logger = logging.getLogger(__name__)

# The Trainer does not push files whose names begin with an underscore.
SPLIT = "_split.json"
# Timelines that an earlier training has seen, which this training went on from.
EARLIER = "earlier"


def hash_id(timeline_id: str) -> str:
    """64 bits of the SHA-256 of a timeline's id. Programs may have made `7.0` of the id `7`."""
    return hashlib.sha256(without_zeros(timeline_id).encode()).hexdigest()[:16]


def hash_timelines(timelines: Posts) -> dict[str, str]:
    """The ids of timelines by their hashes. Streamed ones are read through."""
    ids = (timeline["timeline_id"] for timeline in timelines.select_columns(["timeline_id"]))
    return {hash_id(timeline_id): timeline_id for timeline_id in ids}


def read_split(model: str | None) -> dict[str, set[str]]:
    """The record of a model in a local folder, which may be a checkpoint in its output folder; empty without one."""
    folder = Path(model or "")
    path = (folder.parent if folder.name.startswith(PREFIX_CHECKPOINT_DIR) else folder) / SPLIT
    record = json.loads(path.read_text(encoding="utf-8")) if model and path.exists() else {}
    return {name: set(record.get(name, ())) for name in (*SPLITS, EARLIER)}


def make_split(splits: Mapping[str, Posts], before: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """
    The record of a training or a calibration: the hashes of each split, those of `before` (the record of the model
    that the run starts from) for one that is not given, and as `earlier` the others that the model had learned from.
    Raises a `ValueError` that names timelines which are in two splits.
    """
    hashes = {name: hash_timelines(splits[name]) if name in splits else {} for name in SPLITS}
    for one, other in combinations(hashes, 2):
        shared = [hashes[one][hashed] for hashed in hashes[one].keys() & hashes[other].keys()]
        problem = f"The {one} split and the {other} split have timelines in common; leave them out of one of the files"
        refuse_ids(problem, Counter(shared))
    given = set().union(*hashes.values())
    split = {name: set(hashes[name]) if name in splits else before[name] - given for name in SPLITS}
    learned = before["train"] | before["validation"] | before[EARLIER]
    split[EARLIER] = learned - split["train"] - split["validation"]
    return {name: sorted(of_split) for name, of_split in split.items()}


def hold_back(split: str, timelines: Dataset, before: Mapping[str, set[str]], model: str | None) -> Dataset:
    """
    The timelines of a split that a model may be scored on: all, if it has learned from none of those that have labels
    (what it was validated on may be validated on again). Of the whole posts of its training these are the split that
    was recorded then. Raises a `ValueError` that names timelines which the model has learned from, of other posts.
    """
    learned = before["train"] | before[EARLIER] | (before["validation"] if split == "test" else set())
    hashes = list(map(hash_id, timelines["timeline_id"]))
    rows = zip(hashes, timelines["timeline_id"], timelines["labels"], strict=True)
    wrong = [timeline_id for hashed, timeline_id, labels in rows if hashed in learned and max(labels) >= 0]
    if wrong and before[split] and set(hashes) == set().union(*(before[name] for name in SPLITS)):
        held_back = [index for index, hashed in enumerate(hashes) if hashed in before[split]]
        logger.info(
            "These are the posts of the training of %s: only its %s split is scored, %d of %d timelines.",
            *(model, split, len(held_back), len(hashes)),
        )
        return timelines.select(held_back)
    refuse_ids(
        f"{model} has learned from labelled timelines of the {split} split: give others, or the whole file of its "
        "training (then what was held back of it is scored), or no labels (then all are predicted and none is scored)",
        Counter(wrong),
    )
    return timelines
