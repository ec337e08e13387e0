"""Brings the probabilities of posts into the forms that scores and files need."""

import csv
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from transformers import PreTrainedConfig

from ..data.files import written_whole
from ..data.states import all_states
from ..decisions_tempoformer import check_finite, decide, find_alarms, read_states, watched_threshold
from ..timeline_tempoformer import Timeline
from ..times_tempoformer import are_since_start, to_date


# Files whose names begin with an underscore are never pushed.
PREDICTIONS, PREDICTIONS_PARQUET, MISTAKES = "_predictions.csv", "_predictions.parquet", "_mistakes.csv"
MOST_MISTAKES = 20

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
    timelines: Sequence[Timeline], predictions: np.ndarray, names: list[str], probabilities: np.ndarray
) -> Predictions:
    """
    Selects the labelled posts from the predictions (posts,) and probabilities (posts, classes) of [`decide_posts`].
    """
    labels = all_labels(timelines)
    labelled = labels >= 0
    numbers = timeline_numbers(timelines)
    times = None
    if timelines[0].timestamps is not None:
        times = np.array(list(chain.from_iterable(timeline.timestamps for timeline in timelines)))[labelled]
    return Predictions(
        labels=labels[labelled],
        predictions=predictions[labelled],
        names=names,
        probabilities=probabilities[labelled],
        timelines=numbers[labelled],
        times=times,
    )


def all_labels(timelines: Iterable[Timeline]) -> np.ndarray:
    """Returns the class ids (posts,) in the order of the timelines, -100 without a label."""
    return np.array(list(chain.from_iterable(timeline.labels for timeline in timelines)))


def timeline_numbers(timelines: Sequence[Timeline]) -> np.ndarray:
    """Returns the number of each post's timeline (posts,)."""
    return np.repeat(np.arange(len(timelines)), list(map(len, timelines)))


def attach_logits(
    timelines: Sequence[Timeline],
    items: Dataset,
    logits: np.ndarray,
    state_logits: np.ndarray | None = None,
    expert_logits: np.ndarray | None = None,
):
    """
    Attaches logits to timelines, in float32, NaN for posts that no item asks about.

    Args:
        timelines (`Sequence[Timeline]`): The timelines.
        items (`Dataset`): Rows from [`to_rows`], or items of one post with the same columns, whose label is a number.
        logits (`np.ndarray` of shape `(items, posts, classes)`): The logits of each item's targets, in order;
            padding may follow.
        state_logits (`np.ndarray` of shape `(items, posts, states)`, *optional*): Those of their states.
        expert_logits (`np.ndarray` of shape `(items, posts, experts, classes)`, *optional*): Those of each expert.

    Raises a `ValueError` that names the first post with a logit that is NaN or infinite.
    """
    answers = {"logits": logits, "state_logits": state_logits, "expert_logits": expert_logits}
    answers = {name: values for name, values in answers.items() if values is not None}
    for timeline, (name, values) in product(timelines, answers.items()):
        setattr(timeline, name, torch.full((len(timeline), *values.shape[2:]), math.nan))
    columns = ["timeline", "num_before", "num_context", "labels", "is_target"]
    items = items.with_format(None).select_columns([name for name in columns if name in items.column_names])
    for number, item in enumerate(items):
        timeline, first = timelines[item["timeline"]], item["num_before"] + item["num_context"]
        labels = item["labels"] if isinstance(item["labels"], list) else [item["labels"]]
        is_target = item.get("is_target", [True] * len(labels))
        posts = [first + offset for offset, is_asked in enumerate(is_target) if is_asked]
        for name, values in answers.items():
            getattr(timeline, name)[posts] = torch.from_numpy(values[number, : len(posts)]).float()
        names = [f"Post {timeline.post_ids[post]!r}" for post in posts]
        check_finite(timeline.logits[posts], names.__getitem__)


def decide_posts(timelines: Sequence[Timeline], calibration: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """
    Decides on the logits of timelines ([`decide`]). Returns the class id (posts,) and the probabilities (posts,
    classes) of each post, in the order of the timelines; -1 and 0 for a post that the model was not asked about.
    """
    logits = torch.cat([timeline.logits for timeline in timelines])
    asked = ~logits.isnan().any(-1)
    decided, ranked = decide(logits[asked], calibration)
    predictions, probabilities = np.full(len(logits), -1), np.zeros(logits.shape)
    predictions[asked.numpy()], probabilities[asked.numpy()] = ranked[:, 0].numpy(), decided.numpy()
    return predictions, probabilities


def decide_experts(
    timelines: Sequence[Timeline], weights: Mapping[str, float]
) -> dict[str, tuple[float, np.ndarray]] | None:
    """
    Returns the weight of each of a model's experts and the class ids (posts,) of its largest logits, by name; -1 for a
    post that the model was not asked about. None if no other expert than the network has a `weight`, as before they
    are grown.
    """
    network, *others = weights.values()
    if not any(others):
        return None
    logits = torch.cat([timeline.expert_logits for timeline in timelines])
    best = logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1).numpy()
    return {name: (weight, best[:, number]) for number, (name, weight) in enumerate(weights.items())}


def alarms_of(
    predictions: np.ndarray, probabilities: np.ndarray, watched: int, calibration: dict[str, Any] | None
) -> np.ndarray:
    """
    Tells of each post (posts,) of [`decide_posts`] whether it is an alarm ([`find_alarms`]); False for a post that the
    model was not asked about.
    """
    found = find_alarms(torch.from_numpy(probabilities), torch.from_numpy(predictions), watched, calibration)
    return found.numpy() & (predictions >= 0)


def prediction_rows(
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    with_texts: bool = True,
    config: PreTrainedConfig | None = None,
) -> pd.DataFrame:
    """
    Returns a table of the posts in the order of the input: `timeline_id`, `post_id`, `time` (UTC, in microseconds; a
    number of seconds where all times are [`~times_tempoformer.are_since_start`]), `text` and `speaker` if the
    timelines have them, `label`, `prediction` and the probability of each class. The arrays are those of
    [`decide_posts`]. If the model watches a class, by its `config`, its alarms follow ([`alarm_columns`]). `state`
    follows if the timelines have it, and what [`read_states`] makes of their `state_logits`, if they have these.
    """
    columns = {
        "timeline_id": [[timeline.timeline_id] * len(timeline) for timeline in timelines],
        "post_id": [timeline.post_ids for timeline in timelines],
        "time": [timeline.timestamps for timeline in timelines],
        "text": [timeline.texts if with_texts else None for timeline in timelines],
        "speaker": [timeline.speakers for timeline in timelines],
        "label": [timeline.labels for timeline in timelines],
        "row": [timeline.input_rows for timeline in timelines],
    }
    columns = {name: list(chain(*lists)) for name, lists in columns.items() if None not in lists}
    table = pd.DataFrame(columns)
    if "time" in table and not are_since_start(table["time"].min(), table["time"].max()):
        times = [to_date(seconds).replace(tzinfo=None) for seconds in table["time"]]
        table["time"] = pd.Series(np.array(times, dtype="datetime64[us]")).dt.tz_localize("UTC")
    class_names = dict(enumerate(names))
    # The column is text even if no post has a label.
    table["label"] = table["label"].map(class_names).astype("string")
    table["prediction"] = pd.Series(predictions).map(class_names).astype("string")
    for label, name in class_names.items():
        table[f"probability_{name}"] = np.float64(probabilities[:, label])
    if getattr(config, "watched", None) is not None:
        table = table.assign(**alarm_columns(predictions, probabilities, names, config))
    if any(timeline.states is not None for timeline in timelines):
        given = pd.Series(all_states(timelines), dtype="string")
        table["state"] = given.mask(given == "")
    table = pd.concat([table, state_columns(timelines, config)], axis="columns")
    return table.sort_values("row", ignore_index=True).drop(columns="row")


def alarm_columns(
    predictions: np.ndarray, probabilities: np.ndarray, names: list[str], config: PreTrainedConfig
) -> dict[str, Any]:
    """Returns columns of alarms (posts,), under the names of [`read_answers`]; none for a post that was not asked."""
    asked, watched = predictions >= 0, config.watched
    alarms = pd.Series(alarms_of(predictions, probabilities, watched, config.calibration), dtype="boolean")
    threshold = watched_threshold(config, config.calibration)
    return {
        "alarm": alarms.where(asked),
        "watched": names[watched],
        "watched_probability": pd.Series(probabilities[:, watched]).where(asked),
        "watched_threshold": pd.Series(threshold, index=range(len(asked)), dtype="float64"),
    }


def state_columns(timelines: Sequence[Timeline], config: PreTrainedConfig | None) -> pd.DataFrame:
    """
    Returns a table of the answers about states (posts,): `state_prediction`, the `state_mean` of numbers, and the
    probability of each state; no columns without answers. A post that the model was not asked about has no values.
    """
    if any(timeline.state_logits is None for timeline in timelines):
        return pd.DataFrame()
    state_logits = torch.cat([timeline.state_logits for timeline in timelines])
    asked = (~state_logits.isnan().any(-1)).nonzero().squeeze(-1)
    answers = read_states(state_logits[asked], config)
    columns = {"state_prediction": pd.Series([answer["label"] for answer in answers], dtype="string")}
    if config.state_values is not None:
        columns["state_mean"] = pd.Series([answer["mean"] for answer in answers], dtype="float64")
    for name in config.states:
        shares = [answer["probabilities"][name] for answer in answers]
        columns[f"state_probability_{name}"] = pd.Series(shares, dtype="float64")
    return pd.DataFrame(columns).set_axis(asked.tolist()).reindex(range(len(state_logits)))


def write_predictions(output_dir: str, rows: pd.DataFrame | Iterable[dict[str, Any]]):
    """Writes a table as `_predictions.csv` ([`to_csv`]), and with its types as `_predictions.parquet`."""
    table, path = pd.DataFrame(rows), Path(output_dir) / PREDICTIONS
    with written_whole(path) as partial, written_whole(path.with_name(PREDICTIONS_PARQUET)) as partial_parquet:
        to_csv(table, partial)
        table.to_parquet(partial_parquet, index=False)
    logger.info("Predictions: %s", path)


def write_mistakes(output_dir: str, table: pd.DataFrame, timelines: Sequence[Timeline]):
    """
    Writes the 20 surest mistakes of a table of [`prediction_rows`] as `_mistakes.csv`, the surest first: the posts
    whose prediction is not their label, with the most probability of the prediction, and where the table has texts,
    the text before, too. Writes nothing if there is none.
    """
    if "text" in table:
        before = chain.from_iterable(["", *timeline.texts[:-1]] for timeline in timelines)
        rows = chain.from_iterable(timeline.input_rows for timeline in timelines)
        table = table.assign(previous_text=pd.Series(list(before), index=list(rows)).sort_index().to_numpy())
    wrong = table[(table["label"] != table["prediction"]).fillna(False)]
    if wrong.empty:
        return
    sure = [row[f"probability_{row['prediction']}"] for _, row in wrong.iterrows()]
    wrong = wrong.assign(probability=sure).sort_values("probability", ascending=False, kind="stable")
    columns = ["timeline_id", "post_id", "time", "speaker", "label", "prediction", "probability"]
    columns += ["previous_text", "text"]
    path = Path(output_dir) / MISTAKES
    with written_whole(path) as partial:
        to_csv(wrong.reindex(columns=[name for name in columns if name in wrong]).head(MOST_MISTAKES), partial)
    logger.info("The surest mistakes: %s", path)


def to_csv(table: pd.DataFrame, path: Path | None = None) -> str | None:
    """Writes a table of predictions as CSV, with times in ISO-8601. Without a path, returns the text."""
    as_text = table.copy(deep=False)
    for name in table.select_dtypes("datetimetz"):
        times = table[name].dt.tz_localize(None).to_numpy("datetime64[us]")
        unit = "s" if (times == times.astype("datetime64[s]")).all() else "us"
        as_text[name] = np.datetime_as_string(times, unit=unit, timezone="UTC")
    # A text may have any kind of line break, and Python quotes only some of them by itself.
    return as_text.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
