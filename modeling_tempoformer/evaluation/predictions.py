"""Brings the probabilities of posts into the forms that scores and files need."""

import csv
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset

from ..data.files import written_whole
from ..times_tempoformer import to_date


# Files whose names begin with an underscore are never pushed.
PREDICTIONS, PREDICTIONS_PARQUET = "_predictions.csv", "_predictions.parquet"

logger = logging.getLogger(__name__)


@dataclass
class Predictions:
    """
    Predictions of posts, timeline after timeline, each in its order.

    Attributes:
        labels (`np.ndarray` of shape `(posts,)`): Class ids; -100 without a label.
        predictions (`np.ndarray` of shape `(posts,)`): Predicted class ids.
        names (`list[str]`): Names of the classes in the order of their ids.
        probabilities (`np.ndarray` of shape `(posts, classes)`, *optional*): The probability of each class.
        timelines (`np.ndarray` of shape `(posts,)`, *optional*): The number of each post's timeline.
        times (`np.ndarray` of shape `(posts,)`, *optional*): Seconds.
    """

    labels: np.ndarray
    predictions: np.ndarray
    names: list[str]
    probabilities: np.ndarray | None = None
    timelines: np.ndarray | None = None
    times: np.ndarray | None = None


def labelled_posts(
    timelines: Dataset, predictions: np.ndarray, names: list[str], probabilities: np.ndarray
) -> Predictions:
    """Selects the posts with a label from predictions of all posts in the order of the timelines."""
    labels = labels_of(timelines)
    labelled = labels >= 0
    numbers = np.repeat(np.arange(len(timelines)), list(map(len, timelines["labels"])))
    times = None
    if "timestamps" in timelines.column_names:
        times = np.array(list(chain.from_iterable(timelines["timestamps"])), dtype=np.float64)[labelled]
    return Predictions(
        labels=labels[labelled],
        predictions=predictions[labelled],
        names=names,
        probabilities=probabilities[labelled],
        timelines=numbers[labelled],
        times=times,
    )


def in_order(wanted: Sequence[str], post_ids: Sequence[Sequence[str]], values: np.ndarray) -> np.ndarray:
    """The values of the wanted posts, from the values (rows, posts, classes) of rows, in which padding may follow."""
    by_post = {}
    for ids, row in zip(post_ids, values, strict=True):
        by_post |= zip(ids, row, strict=False)
    return np.stack([by_post[post_id] for post_id in wanted])


def targets_of(items: Dataset) -> list[list[str]]:
    """The ids of the posts that each item classifies: its `post_id`, or the targets of a row from [`to_rows`]."""
    items = items.with_format(None)
    if "post_id" in items.column_names:
        return [[post_id] for post_id in items["post_id"]]
    return [
        [post_id for post_id, label in zip(row["post_ids"], row["labels"], strict=True) if label is not None]
        for row in items.select_columns(["post_ids", "labels"])
    ]


def post_ids_of(timelines: Dataset) -> list[str]:
    """The id of each post, in the order of the timelines."""
    return list(chain.from_iterable(timelines["post_ids"]))


def labels_of(timelines: Dataset) -> np.ndarray:
    """The class ids (posts,) in the order of the timelines, -100 without a label."""
    return np.array(list(chain.from_iterable(timelines["labels"])))


def prediction_rows(
    timelines: Dataset, predictions: np.ndarray, probabilities: np.ndarray, names: list[str]
) -> pd.DataFrame:
    """
    A table of the posts in the order of the input: `timeline_id`, `post_id`, `time` (UTC, in microseconds), `text` and
    `speaker` if the timelines have them, `label`, `prediction` and the probability of each class.
    """
    columns = {
        "timeline_id": "timeline_id",
        "post_ids": "post_id",
        "timestamps": "time",
        "texts": "text",
        "speakers": "speaker",
        "labels": "label",
        "post_rows": "row",
    }
    cells = {name: timelines[column] for column, name in columns.items() if column in timelines.column_names}
    table = pd.DataFrame(cells).explode([name for name in cells if name != "timeline_id"], ignore_index=True)
    if "time" in table:
        times = [to_date(seconds).replace(tzinfo=None) for seconds in table["time"]]
        table["time"] = pd.Series(np.array(times, dtype="datetime64[us]")).dt.tz_localize("UTC")
    class_names = dict(enumerate(names))
    # The column is text even if no post has a label.
    table["label"] = table["label"].map(class_names).astype("string")
    table["prediction"] = pd.Series(predictions).map(class_names).astype("string")
    for label, name in class_names.items():
        table[f"probability_{name}"] = np.float64(probabilities[:, label])
    return table.sort_values("row", ignore_index=True).drop(columns="row")


def write_predictions(output_dir: str, rows: pd.DataFrame | Iterable[dict[str, Any]]):
    """Writes a table as `_predictions.csv` ([`to_csv`]), and with its types as `_predictions.parquet`."""
    table, path = pd.DataFrame(rows), Path(output_dir) / PREDICTIONS
    with written_whole(path) as partial, written_whole(path.with_name(PREDICTIONS_PARQUET)) as partial_parquet:
        to_csv(table, partial)
        table.to_parquet(partial_parquet, index=False)
    logger.info("Predictions: %s", path)


def to_csv(table: pd.DataFrame, path: Path | None = None) -> str | None:
    """Writes a table of predictions as CSV, with times in ISO-8601. Without a path, returns the text."""
    as_text = table.copy(deep=False)
    for name in table.select_dtypes("datetimetz"):
        times = table[name].dt.tz_localize(None).to_numpy("datetime64[us]")
        unit = "s" if (times == times.astype("datetime64[s]")).all() else "us"
        as_text[name] = np.datetime_as_string(times, unit=unit, timezone="UTC")
    # A text may have any kind of line break, and Python quotes only some of them by itself.
    return as_text.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
