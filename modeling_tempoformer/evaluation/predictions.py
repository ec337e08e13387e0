"""What is made of the probabilities of each post: an order, scores, a table."""

import csv
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from .calibration import expected_calibration_error
from .metrics import StreamClassificationMetric
from .timeline_metrics import Timeline, timeline_scores


RESULTS = "all_results.json"

logger = logging.getLogger(__name__)


def in_order(wanted: Sequence[str], post_ids: Sequence[Sequence[str]], values: np.ndarray) -> np.ndarray:
    """
    The values of the wanted posts.

    Args:
        wanted (`Sequence[str]`): Post ids.
        post_ids (`Sequence[Sequence[str]]`): The posts of each item that was classified.
        values (`np.ndarray` of shape `(items, posts, classes)`): The posts of an item may be followed by padding.

    Returns:
        `np.ndarray` of shape `(posts, classes)`. Raises a `KeyError` where a post has no value.
    """
    by_post = {}
    for item, item_values in zip(post_ids, values, strict=True):
        by_post.update(zip(item, item_values, strict=False))
    return np.stack([by_post[post_id] for post_id in wanted])


def targets_of(rows: Dataset) -> list[list[str]]:
    """The ids of the posts that each row classifies, rows as [`to_rows`] cuts them."""
    return [
        [post_id for post_id, label in zip(row["post_ids"], row["labels"], strict=True) if label is not None]
        for row in rows.select_columns(["post_ids", "labels"])
    ]


def post_ids_of(timelines: Dataset) -> list[str]:
    """The id of each post, in the order of the timelines."""
    return [post_id for post_ids in timelines["post_ids"] for post_id in post_ids]


def labels_of(timelines: Dataset) -> np.ndarray:
    """The class id of each post, -100 for none, in the order of the timelines: shape `(posts,)`."""
    return np.concatenate([np.asarray(labels) for labels in timelines["labels"]])


def score_posts(
    timelines: Dataset, predicted: np.ndarray, probabilities: np.ndarray, names: list[str]
) -> dict[str, float]:
    """
    Scores of the labelled posts, of whole timelines, and of the probabilities.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        predicted (`np.ndarray` of shape `(posts,)`): A class id for each post in their order; -1 for none, which
            counts as wrong.
        probabilities (`np.ndarray` of shape `(posts, classes)`): Of each class.
        names (`list[str]`): Of the classes.

    Returns:
        Those of [`StreamClassificationMetric`] and of [`timeline_scores`] that are defined, and `ece`, the expected
        calibration error of the posts with a prediction (left out with a warning where a probability is not finite);
        empty where no post has a label.
    """
    actual = labels_of(timelines)
    labelled = actual >= 0
    if not labelled.any():
        return {}
    scores = StreamClassificationMetric().compute(
        predictions=predicted[labelled], references=actual[labelled], label_names=names
    )
    of_timelines, start = [], 0
    for timeline in timelines:
        end = start + len(timeline["labels"])
        of_timelines.append(Timeline(timeline["labels"], predicted[start:end].tolist(), timeline.get("timestamps")))
        start = end
    # NaN, where no timeline has what a score is of, is no JSON.
    scores |= {name: value for name, value in timeline_scores(of_timelines, names).items() if value == value}
    answered = labelled & (predicted >= 0)
    if not np.isfinite(probabilities[answered]).all():
        logger.warning("Some probabilities are not finite, so that there is no calibration error.")
    elif answered.any():
        scores["ece"] = expected_calibration_error(probabilities[answered], actual[answered])
    return scores


def prediction_rows(
    timelines: Dataset, predicted: np.ndarray, probabilities: np.ndarray, names: list[str]
) -> Iterator[dict[str, str | float]]:
    """
    One row for each post in the order of the input: id, timeline, label, prediction, probability of each class. A
    missing label or prediction is empty. Arguments as those of [`score_posts`].
    """
    posts = [
        (row, post_id, timeline["timeline_id"], label)
        for timeline in timelines
        for row, post_id, label in zip(timeline["post_rows"], timeline["post_ids"], timeline["labels"], strict=True)
    ]
    order = sorted(range(len(posts)), key=lambda place: posts[place])
    for place in order:
        _, post_id, timeline_id, label = posts[place]
        yield {
            "post_id": post_id,
            "timeline_id": timeline_id,
            "label": "" if label < 0 else names[label],
            "prediction": "" if predicted[place] < 0 else names[predicted[place]],
            **{f"probability_{name}": float(score) for name, score in zip(names, probabilities[place], strict=True)},
        }


def write_results(output_dir: str, scores: dict[str, float]):
    """Prints the scores of a method that no Trainer has trained, and saves them as one would."""
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    scores = {f"predict_{name}": value for name, value in scores.items()}
    for name, value in scores.items():
        print(f"{name:40} = {value:.4f}")
    (folder / RESULTS).write_text(json.dumps(scores, indent=4) + "\n", encoding="utf-8")


def write_predictions(output_dir: str, rows: Iterable[dict[str, Any]]):
    """`_predictions.csv`: the Trainer never pushes a name that starts with an underscore."""
    path = Path(output_dir) / "_predictions.csv"
    rows = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    logger.info("Predictions: %s", path)
