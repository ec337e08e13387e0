"""`all_results.json`: the scores of every part of a run, nested and explained."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError

from ..data.files import write_json
from .metrics import METRICS, compute_scores
from .predictions import labelled_posts
from .references import compare


RESULTS = "all_results.json"
# Names in the file, where they are not those of the metrics.
RENAMED = {"support": "posts", "runtime": "seconds", "epoch": "epochs", "samples_per_second": "rows_per_second"}
MACRO = "Mean of the classes' {}: a rare class counts as much as a frequent one."
# What is no score.
EXPLAINED = {
    "posts": "Number of posts; of a class, the posts that have it as their label.",
    "labelled_posts": "Number of posts that have a label. Scores are of these.",
    "timelines": "Number of timelines.",
    "classes": "Scores of each class.",
    "macro_f1_interval": "95 % interval of macro F1, by a bootstrap that resamples whole timelines.",
    "compared_with": "Macro F1, on the same posts, of what costs nothing.",
    "larger_class": "The class that most of these posts have, for every post.",
    "position_and_time": "Small boosted trees over the `features` of a post, without its text; learned in training.",
    "trees": "Boosted trees over the vectors of a post and of the one before, and the features; learned in training.",
    "class": "Its name.",
    "features": "What is known of a post: its place in the timeline from 0, times in seconds, and the hour in UTC.",
    "difference": "Macro F1 of the method less this one.",
    "difference_interval": "95 % interval of the difference, by a paired bootstrap that resamples whole timelines.",
    "loss": "Mean loss of a labelled post, focal and weighted by class; of the training, the mean over its steps.",
    "seconds": "How long it took. A training that was resumed counts from there.",
    "posts_per_second": "Posts that were classified in a second.",
    "embedded_posts_per_second": "Posts that were classified in a second, after a frozen encoder had embedded them.",
    "rows_per_second": "Rows, which are chunks of timelines, in a second.",
    "steps_per_second": "Batches in a second.",
    "model_preparation_time": "Seconds in which the model was moved to its device.",
    "epochs": "Passes over the training posts.",
    "parameters": "Number of parameters that are trained.",
    "total_flos": "Floating-point operations of the training, as the Trainer estimates them.",
}


def score_part(
    timelines: Dataset,
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    train: Dataset | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Any]:
    """
    All that is known of the predictions of a part, by name: how many posts, labelled posts and timelines there are,
    and if any post has a label its scores ([`compute_scores`]) and what [`compare`] finds. Arguments as of
    [`labelled_posts`] and [`compare`].
    """
    posts = labelled_posts(timelines, predictions, names, probabilities)
    counts = {"posts": len(predictions), "labelled_posts": len(posts.labels), "timelines": len(timelines)}
    if not len(posts.labels):
        return counts
    return counts | compute_scores(posts) | compare(timelines, predictions, names, train, vectors)


def nest(metrics: Mapping[str, Any], prefix: str, names: list[str]) -> dict[str, Any]:
    """
    The metrics of a part as [`write_results`] takes them, without the prefix (`"train"`, `"eval"` or `"predict"`) that
    they may have; those of a class, whose names end with its name, in a dict of its own.
    """
    kinds = [metric.name for metric in METRICS if metric.of_class]
    of_class = {f"{kind}_{name}": (name, kind) for name in names for kind in kinds}
    nested: dict[str, Any] = {}
    for metric, value in metrics.items():
        metric = metric.removeprefix(f"{prefix}_")
        if metric in of_class:
            name, kind = of_class[metric]
            nested.setdefault("classes", {}).setdefault(name, {})[RENAMED.get(kind, kind)] = value
        else:
            nested[RENAMED.get(metric, metric)] = value
    return nested


def write_results(output_dir: str | Path, parts: Mapping[str, Mapping[str, Any]]):
    """Writes the results of all parts of a run, and a sentence for each name in them, in the place of older ones."""
    names = set(all_names(parts))
    known = {metric.name: metric.text for metric in METRICS}
    known |= {f"macro_{metric.name}": MACRO.format(metric.title) for metric in METRICS if metric.has_mean}
    explained = {name: text for name, text in (known | EXPLAINED).items() if name in names}
    write_json(Path(output_dir) / RESULTS, {**parts, "explained": explained})


def read_test(model: str, **downloads: Any) -> dict[str, Any]:
    """
    The results of a model's own test, which lie beside its weights; empty without them.

    Args:
        model (`str`): A folder or a Hub id, of which the model was loaded before.
        downloads: As in `hf_hub_download`.
    """
    try:
        path = Path(model, RESULTS) if Path(model).is_dir() else Path(hf_hub_download(model, RESULTS, **downloads))
        return json.loads(path.read_text(encoding="utf-8")).get("test", {})
    except (FileNotFoundError, EntryNotFoundError):
        return {}


def all_names(values: Any) -> list[str]:
    """The names in nested dicts."""
    if not isinstance(values, Mapping):
        return []
    return [*values, *(name for value in values.values() for name in all_names(value))]
