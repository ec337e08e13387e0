"""From the probabilities of posts to scores and files."""

import csv
import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset

from ..data.files import written_whole
from .calibration import expected_calibration_error
from .metrics import StreamClassificationMetric
from .timeline_metrics import Timeline, timeline_scores


# Files whose names begin with an underscore are never pushed.
PREDICTIONS, PREDICTIONS_PARQUET = "_predictions.csv", "_predictions.parquet"

logger = logging.getLogger(__name__)


def in_order(wanted: Sequence[str], post_ids: Sequence[Sequence[str]], values: np.ndarray) -> np.ndarray:
    """
    The values of the wanted posts, shape (posts, classes). `post_ids` has the posts of each row of `values`, which has
    the shape (rows, posts, classes); padding may follow the posts of a row.
    """
    pairs = chain.from_iterable(zip(ids, row, strict=False) for ids, row in zip(post_ids, values, strict=True))
    by_post = dict(pairs)
    return np.stack([by_post[post_id] for post_id in wanted])


def targets_of(rows: Dataset) -> list[list[str]]:
    """The ids of the posts that each row classifies, for rows from [`to_rows`]."""
    return [
        [post_id for post_id, label in zip(row["post_ids"], row["labels"], strict=True) if label is not None]
        for row in rows.select_columns(["post_ids", "labels"])
    ]


def post_ids_of(timelines: Dataset) -> list[str]:
    """The id of each post, in the order of the timelines."""
    return list(chain.from_iterable(timelines["post_ids"]))


def labels_of(timelines: Dataset) -> np.ndarray:
    """The class id of each post, -100 without a label, in the order of the timelines: shape `(posts,)`."""
    return np.array(list(chain.from_iterable(timelines["labels"])))


def score_posts(
    timelines: Dataset, predicted: np.ndarray, probabilities: np.ndarray, names: list[str]
) -> dict[str, float]:
    """
    Scores the labelled posts, whole timelines, and the probabilities.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        predicted (`np.ndarray` of shape `(posts,)`): The class id of each post in the order of the timelines; -1 means
            no prediction, which counts as wrong.
        probabilities (`np.ndarray` of shape `(posts, classes)`): The probability of each class.
        names (`list[str]`): Names of the classes.

    Returns:
        The scores of [`StreamClassificationMetric`], the scores of [`timeline_scores`] that are defined, and
        `expected_calibration_error` of the posts with a prediction. Empty if no post has a label.
    """
    actual = labels_of(timelines)
    labelled = actual >= 0
    if not labelled.any():
        return {}
    scores = StreamClassificationMetric().compute(
        predictions=predicted[labelled], references=actual[labelled], label_names=names
    )
    ends = np.cumsum([len(labels) for labels in timelines["labels"]])
    scored = timeline_scores(
        [
            Timeline(timeline["labels"], of_timeline, timeline.get("timestamps"))
            for timeline, of_timeline in zip(timelines, np.split(predicted, ends[:-1]), strict=True)
        ],
        names,
    )
    # JSON has no NaN.
    scores |= {name: value for name, value in scored.items() if not np.isnan(value)}
    answered = labelled & (predicted >= 0)
    if answered.any():
        scores["expected_calibration_error"] = expected_calibration_error(probabilities[answered], actual[answered])
    return scores


def prediction_rows(
    timelines: Dataset, predicted: np.ndarray, probabilities: np.ndarray, names: list[str]
) -> pd.DataFrame:
    """
    A table with one row for each post, in the order of the input: `timeline_id`, `post_id`, `time` (UTC, in
    microseconds), `text`, `label`, `prediction` and the probability of each class. There is no `time` where the
    timelines have no `timestamps`, and no `text` where they have no `texts`. A missing label or prediction is missing
    there too. Arguments as for [`score_posts`].
    """
    class_names = dict(enumerate(names))
    columns = {
        **{"timeline_id": "timeline_id", "post_ids": "post_id", "timestamps": "time", "texts": "text"},
        **{"labels": "label", "post_rows": "row"},
    }
    table = pd.DataFrame(
        {name: timelines[column] for column, name in columns.items() if column in timelines.column_names}
    )
    table = table.explode([name for name in table if name != "timeline_id"], ignore_index=True)
    if "time" in table:
        microseconds = np.rint(table["time"].to_numpy(np.float64) * 1e6).astype("datetime64[us]")
        table["time"] = pd.Series(microseconds).dt.tz_localize("UTC")
    # As text also where no post has a label.
    table["label"] = table["label"].map(class_names).astype("string")
    table["prediction"] = pd.Series(predicted).map(class_names).astype("string")
    for label, name in class_names.items():
        table[f"probability_{name}"] = np.float64(probabilities[:, label])
    return table.sort_values("row", ignore_index=True).drop(columns="row")


def write_predictions(output_dir: str, rows: pd.DataFrame | Iterable[dict[str, Any]]):
    """Writes `_predictions.csv` as [`to_csv`] does, and the same table with its types as `_predictions.parquet`."""
    table, path = pd.DataFrame(rows), Path(output_dir) / PREDICTIONS
    with written_whole(path) as partial, written_whole(path.with_name(PREDICTIONS_PARQUET)) as partial_parquet:
        to_csv(table, partial)
        table.to_parquet(partial_parquet, index=False)
    logger.info("Predictions: %s", path)


def to_csv(table: pd.DataFrame, path: Path | None = None) -> str | None:
    """Writes a table of predictions as CSV, with times in ISO-8601; without a path, returns the text."""
    as_text = table.copy(deep=False)
    for name in table.select_dtypes("datetimetz"):
        times = table[name].dt.tz_localize(None).to_numpy("datetime64[us]")
        unit = "s" if (times == times.astype("datetime64[s]")).all() else "us"
        as_text[name] = np.datetime_as_string(times, unit=unit, timezone="UTC")
    # A text may have any line break, and Python quotes only its own by itself.
    return as_text.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
