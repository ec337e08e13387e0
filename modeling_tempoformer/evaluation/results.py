"""Computes and reads the scores of the splits of a run, the content of `all_results.json`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from ..timeline_tempoformer import Timeline
from .metrics import change_detection, compute_scores
from .predictions import labelled_posts
from .rivals import compare


RESULTS = "all_results.json"
# Names in the file that differ from those of the metrics
RENAMED = {"support": "posts", "runtime": "seconds", "epoch": "epochs", "samples_per_second": "rows_per_second"}


def score_part(
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    train: Sequence[Timeline] | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Any]:
    """The number of posts of a split; if any is labelled, also its [`compute_scores`] and its [`compare`]."""
    posts = labelled_posts(timelines, predictions, names, probabilities)
    counts = {"posts": len(predictions), "labelled_posts": len(posts.labels), "timelines": len(timelines)}
    if not len(posts.labels):
        return counts
    return counts | compute_scores(posts) | compare(posts, timelines, train, vectors)


def group_by_class(metrics: Mapping[str, Any], prefix: str, names: list[str]) -> dict[str, Any]:
    """Groups the Trainer's metrics of a split: without their prefix, and those of a class in a dict of its own."""
    kinds = [score.name for score in change_detection().SCORES if score.by_class]
    class_metrics = {f"{kind}_{name}": (name, kind) for name in names for kind in kinds}
    nested: dict[str, Any] = {}
    for metric, value in metrics.items():
        metric = metric.removeprefix(f"{prefix}_")
        if metric in class_metrics:
            name, kind = class_metrics[metric]
            nested.setdefault("classes", {}).setdefault(name, {})[RENAMED.get(kind, kind)] = value
        else:
            nested[RENAMED.get(metric, metric)] = value
    return nested


def read_test(model: str, **downloads: Any) -> dict[str, Any]:
    """Reads the results of a model's own test, beside its weights in a folder or on the Hub; empty without them."""
    try:
        path = Path(model, RESULTS) if Path(model).is_dir() else Path(hf_hub_download(model, RESULTS, **downloads))
        return json.loads(path.read_text(encoding="utf-8")).get("test", {})
    except (FileNotFoundError, EntryNotFoundError):
        return {}
