"""
The table of predictions: the names, the types and the order of its columns. Runs, scoring and the Space write it, and
comparisons read it.
"""

import csv
import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pyarrow import parquet
from transformers import PreTrainedConfig

from ..common.data_frames import to_arrow
from ..common.files import written_whole
from ..decisions_tempoformer import read_states, watched_threshold
from ..posts.metadata import Metadata
from ..posts.states import all_states, compared_places
from ..timeline_tempoformer import NO_LABEL, Timeline
from ..times_tempoformer import are_since_start, to_date, to_seconds
from .predictions import alarms_of


# Files whose names begin with an underscore are never pushed.
PREDICTIONS, PREDICTIONS_PARQUET, MISTAKES = "_predictions.csv", "_predictions.parquet", "_mistakes.csv"
HELD_OUT = "_held_out.parquet"
MOST_MISTAKES = 20
KEY = ["timeline_id", "post_id"]
# The columns that say what the input has, beside each post's key and time
GIVEN = ("text", "speaker", "label", "state")
GIVEN_BUT_TEXTS = GIVEN[1:]
# Prefixes of the columns of classes and of states
PROBABILITY, STATE_PROBABILITY = "probability_", "state_probability_"
# Prefix of what a mistake shows of the post that it is compared with
COMPARED = "compared_"
STATES = ("state", "state_prediction")
NUMBERS = ("watched_probability", "watched_threshold", "state_mean")

logger = logging.getLogger(__name__)


def prediction_rows(
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    given: Collection[str] = GIVEN,
    config: PreTrainedConfig | None = None,
    has_dates: bool | None = None,
) -> pd.DataFrame:
    """
    Makes the table of predictions.

    Args:
        timelines (`Sequence[Timeline]`): The timelines, with their `state_logits` if the model answers states.
        predictions, probabilities (`np.ndarray`): The results of [`~evaluation.predictions.decide_posts`].
        names (`list[str]`): The classes in the order of their ids.
        given (`Collection[str]`, *optional*): Which of `text`, `speaker`, `label` and `state` the table has, if
            the timelines have them (a label is empty where there is none). All by default.
        config (`PreTrainedConfig`, *optional*): The model's configuration. Without it there are neither alarms nor
            states.
        has_dates (`bool`, *optional*): Whether times are dates and not seconds. By default they are, unless all are
            [`~times_tempoformer.are_since_start`].

    Returns:
        `pd.DataFrame`: A row for each post that is not context alone, in the order of the input, with `timeline_id`,
        `post_id`, `time` (UTC, in microseconds, or seconds in float64), `text`, `speaker`, `label`, `prediction`, and
        `probability_NAME` of each class. If the model watches a class, `alarm`, `watched`, `watched_probability` and
        `watched_threshold` follow; then `state`, and if the model answers states `state_prediction`, `state_mean` (of
        numbers) and `state_probability_NAME` of each state. A post that the model was not asked about has no answers.
    """
    columns = {
        "timeline_id": [[timeline.timeline_id] * len(timeline) for timeline in timelines],
        "post_id": [timeline.post_ids for timeline in timelines],
        "time": [timeline.timestamps for timeline in timelines],
        "text": [timeline.texts for timeline in timelines],
        "speaker": [timeline.speakers for timeline in timelines],
        "label": [timeline.labels for timeline in timelines],
        "row": [timeline.input_rows for timeline in timelines],
    }
    columns["is_target"] = [[post >= timeline.num_context for post in range(len(timeline))] for timeline in timelines]
    columns = {name: lists for name, lists in columns.items() if name not in GIVEN or name in given}
    table = pd.DataFrame({name: list(chain(*lists)) for name, lists in columns.items() if None not in lists})
    if "time" in table:
        table["time"] = time_column(table["time"], has_dates)
    class_names = dict(enumerate(names))
    if "label" in table:
        # The column is text even if no post has a label.
        table["label"] = table["label"].map(class_names).astype("string")
    table["prediction"] = pd.Series(predictions).map(class_names).astype("string")
    for label, name in class_names.items():
        table[PROBABILITY + name] = np.float64(probabilities[:, label])
    if getattr(config, "watched", None) is not None:
        table = table.assign(**alarm_columns(predictions, probabilities, names, config))
    if "state" in given and any(timeline.states is not None for timeline in timelines):
        states = pd.Series(all_states(timelines), dtype="string")
        table["state"] = states.mask(states == "")
    table = pd.concat([table, state_columns(timelines, config)], axis="columns")
    return table[table["is_target"]].sort_values("row", ignore_index=True).drop(columns=["row", "is_target"])


def time_column(seconds: pd.Series, has_dates: bool | None = None) -> pd.Series:
    """
    Returns the column of times (posts,) of seconds: dates if `has_dates`, else seconds. By default they are dates,
    unless the seconds seem to count from a start.
    """
    if has_dates is None:
        has_dates = not are_since_start(seconds.min(), seconds.max())
    if not has_dates:
        return seconds
    times = [to_date(second).replace(tzinfo=None) for second in seconds]
    return pd.Series(np.array(times, dtype="datetime64[us]")).dt.tz_localize("UTC")


def alarm_columns(
    predictions: np.ndarray, probabilities: np.ndarray, names: list[str], config: PreTrainedConfig
) -> dict[str, Any]:
    """
    Returns columns of alarms (posts,), under the names of [`~decisions_tempoformer.read_answers`]; no value for a
    post that the model was not asked about.
    """
    is_target, watched = predictions >= 0, config.watched
    alarms = pd.Series(alarms_of(predictions, probabilities, watched, config.calibration), dtype="boolean")
    threshold = watched_threshold(config, config.calibration)
    return {
        "alarm": alarms.where(is_target),
        "watched": names[watched],
        "watched_probability": pd.Series(probabilities[:, watched]).where(is_target),
        "watched_threshold": pd.Series(threshold, index=range(len(is_target)), dtype="float64"),
    }


def state_columns(timelines: Sequence[Timeline], config: PreTrainedConfig | None) -> pd.DataFrame:
    """
    Returns a table of the answers about states (posts,): `state_prediction`, the `state_mean` of numbers, and the
    probability of each state; no columns without answers or configuration. A post that the model was not asked about
    has no values.
    """
    if config is None or any(timeline.state_logits is None for timeline in timelines):
        return pd.DataFrame()
    state_logits = torch.cat([timeline.state_logits for timeline in timelines])
    targets = (~state_logits.isnan().any(-1)).nonzero().squeeze(-1)
    answers = read_states(state_logits[targets], config)
    columns = {"state_prediction": pd.Series([answer["label"] for answer in answers], dtype="string")}
    if config.state_values is not None:
        columns["state_mean"] = pd.Series([answer["mean"] for answer in answers], dtype="float64")
    for name in config.states:
        shares = [answer["probabilities"][name] for answer in answers]
        columns[STATE_PROBABILITY + name] = pd.Series(shares, dtype="float64")
    return pd.DataFrame(columns).set_axis(targets.tolist()).reindex(range(len(state_logits)))


def write_predictions(output_dir: str, rows: pd.DataFrame | Iterable[dict[str, Any]]):
    """
    Writes a table of predictions as `_predictions.csv`, with times in ISO-8601, and with its types as
    `_predictions.parquet`.

    Args:
        output_dir (`str`): The folder.
        rows (`pd.DataFrame` or `Iterable[dict]`): The table, such as [`prediction_rows`] gives.
    """
    table, path = pd.DataFrame(rows), Path(output_dir) / PREDICTIONS
    with written_whole(path) as partial, written_whole(path.with_name(PREDICTIONS_PARQUET)) as partial_parquet:
        to_csv(table, partial)
        parquet.write_table(to_arrow(table), partial_parquet)
    logger.info("Predictions: %s", path)


def write_held_out(output_dir: str, table: pd.DataFrame, timelines: Sequence[Timeline]):
    """
    Writes a table of [`prediction_rows`] as `_held_out.parquet`, with the `unit` of each post's timeline, which no
    split divides ([`~posts.metadata.unit_of`]); empty where that is the timeline itself.
    """
    units = {timeline.timeline_id: timeline.metadata[0].unit if timeline.metadata else "" for timeline in timelines}
    path = Path(output_dir) / HELD_OUT
    with written_whole(path) as partial:
        parquet.write_table(to_arrow(table.assign(unit=table["timeline_id"].map(units))), partial)


def read_held_out(folder: str | Path) -> tuple[list[Timeline], np.ndarray]:
    """
    Reads the posts that a training held out, with what its model said of them: `_held_out.parquet` of a run.

    Args:
        folder (`str` or `Path`): The folder of the run.

    Returns:
        The timelines, with ids, times in seconds, labels, units and empty texts; and the probabilities (posts,
        classes), timeline after timeline, without the temperature of a calibration, 0 of posts without a label. Raises
        a `FileNotFoundError` if there is no such file.
    """
    path = Path(folder) / HELD_OUT
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} has no {HELD_OUT}, the posts that its model held out: train it with --do_eval by this version."
        )
    table = pd.read_parquet(path)
    # In the order of the ids of classes
    shares = [name for name in table if name.startswith(PROBABILITY)]
    ids = {name.removeprefix(PROBABILITY): label for label, name in enumerate(shares)}
    timelines, probabilities = [], []
    for timeline_id, posts in table.groupby("timeline_id", sort=False):
        times = None
        if "time" in posts:
            posts = posts.sort_values("time", kind="stable")
            is_date = isinstance(posts["time"].dtype, pd.DatetimeTZDtype)
            seconds = (posts["time"] - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(1, "s") if is_date else posts["time"]
            times = seconds.tolist()
        labels = posts["label"].map(ids).fillna(NO_LABEL).astype(int).tolist()
        metadata = [Metadata(None, unit) for unit in posts["unit"]]
        rows = list(range(len(posts)))
        timelines.append(
            Timeline(timeline_id, rows, [""] * len(posts), times, posts["post_id"].tolist(), labels, metadata=metadata)
        )
        probabilities.append(posts[shares].to_numpy())
    return timelines, np.concatenate(probabilities)


def write_mistakes(output_dir: str, table: pd.DataFrame, timelines: Sequence[Timeline]):
    """
    Writes the 20 surest mistakes of a table of [`prediction_rows`] as `_mistakes.csv`, the surest first: the posts
    whose prediction is not their label, with the largest probability of the prediction. Beside each stand the
    [`earlier_columns`]. Writes nothing if there is no mistake.
    """
    wrong = table[(table["label"] != table["prediction"]).fillna(False)]
    if wrong.empty:
        return
    sure = [row[PROBABILITY + row["prediction"]] for _, row in wrong.iterrows()]
    wrong = wrong.assign(probability=sure).sort_values("probability", ascending=False, kind="stable")
    wrong = wrong.join(earlier_columns(table, timelines))
    columns = ["timeline_id", "post_id", "time", "speaker", "label", "prediction", "probability"]
    columns += [*(COMPARED + name for name in STATES), *STATES, "previous_text", f"{COMPARED}text", "text"]
    path = Path(output_dir) / MISTAKES
    with written_whole(path) as partial:
        to_csv(wrong.reindex(columns=[name for name in columns if name in wrong]).head(MOST_MISTAKES), partial)
    logger.info("The surest mistakes: %s", path)


def earlier_columns(table: pd.DataFrame, timelines: Sequence[Timeline]) -> pd.DataFrame:
    """
    Returns what stands beside each post of a table of [`prediction_rows`]: of the post that it is compared with
    ([`Timeline.compared_posts`]) `compared_state` and `compared_state_prediction`, if the table has states; if it has
    texts, the `previous_text`, of the post before, and where timelines have speakers, whose own previous post may be
    another one, its `compared_text`.
    """
    rows = np.concatenate([timeline.input_rows for timeline in timelines])
    positions = np.concatenate([np.arange(len(timeline)) for timeline in timelines])
    contexts = np.repeat([timeline.num_context for timeline in timelines], list(map(len, timelines)))
    posts = np.flatnonzero(positions >= contexts)
    posts = posts[np.argsort(rows[posts])]
    compared = compared_places(timelines)[posts]
    columns = {}
    # The last place stands for no post.
    for name in STATES:
        if name in table:
            values = np.full(len(rows) + 1, None, dtype=object)
            values[posts] = table[name]
            columns[COMPARED + name] = values[compared]
    if "text" in table:
        texts = np.array([*chain.from_iterable(timeline.texts for timeline in timelines), ""], dtype=object)
        columns["previous_text"] = texts[np.where(positions[posts] > 0, posts - 1, -1)]
        if any(timeline.speakers is not None for timeline in timelines):
            columns[f"{COMPARED}text"] = texts[compared]
    return pd.DataFrame(columns, index=table.index)


def to_csv(table: pd.DataFrame, path: Path | None = None) -> str | None:
    """Writes a table of predictions as CSV, with times in ISO-8601. Without a path, returns the text."""
    as_text = table.copy(deep=False)
    for name in table.select_dtypes("datetimetz"):
        times = table[name].dt.tz_localize(None).to_numpy("datetime64[us]")
        unit = "s" if (times == times.astype("datetime64[s]")).all() else "us"
        as_text[name] = np.datetime_as_string(times, unit=unit, timezone="UTC")
    # A text may have any kind of line break, and Python quotes only some of them by itself.
    return as_text.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)


def read_predictions(path: str | Path) -> pd.DataFrame:
    """
    Reads a table of predictions, without its texts.

    Args:
        path (`str` or `Path`): `_predictions.parquet` or `_predictions.csv`, a folder of a run that holds the former,
            or a folder of `tempoformer score`.

    Returns:
        `pd.DataFrame`: The columns of [`prediction_rows`], and others that the file has, as texts. Raises a
        `ValueError` for a file or a folder without predictions, and a `FileNotFoundError` if there is none.
    """
    path = Path(path)
    source = path / PREDICTIONS_PARQUET if (path / PREDICTIONS_PARQUET).exists() else path
    if not source.exists():
        raise FileNotFoundError(f"There are no predictions at {path}: there is no such file or folder.")
    if source.is_dir() and not any(source.glob("part-*.parquet")):
        raise ValueError(f"{path} has neither {PREDICTIONS_PARQUET} nor files of `tempoformer score`.")
    if source.suffix == ".csv":
        table = read_cells(source)
    else:
        names = parquet.ParquetDataset(source).schema.names
        table = pd.read_parquet(source, columns=[name for name in names if name != "text"])
    if missing := [name for name in (*KEY, "prediction") if name not in table]:
        raise ValueError(f"{path} is not a file of predictions: it has no column {missing[0]}.")
    return table


def read_cells(path: Path) -> pd.DataFrame:
    """Reads the columns of a CSV file with the types of [`prediction_rows`]. Only an empty cell has no value."""
    # A class may be named None, and an id be 007.
    table = pd.read_csv(path, usecols=lambda name: name != "text", dtype="string", keep_default_na=False)
    for name, cells in table.items():
        if name == "time":
            table[name] = time_column(cells.map(to_seconds).astype("float64"))
        elif name not in KEY:
            table[name] = cells.mask(cells == "")
        if name == "alarm":
            table[name] = table[name].map({"True": True, "False": False}).astype("boolean")
        elif is_number(name):
            table[name] = [np.nan if pd.isna(cell) else float(cell) for cell in table[name]]
    return table


def is_number(name: str) -> bool:
    """Tells whether a column of predictions has numbers."""
    return name in NUMBERS or name.startswith((PROBABILITY, STATE_PROBABILITY))


def is_prediction_column(name: str, names: Collection[str]) -> bool:
    """
    Tells whether the [`prediction_rows`] of a model, without any of `given`, may have a column.

    Args:
        name (`str`): The name of the column.
        names (`Collection[str]`): The model's classes.
    """
    columns = (*KEY, "time", "prediction", *(PROBABILITY + each for each in names), "alarm", "watched")
    columns += ("state_prediction",)
    return name in columns or name in NUMBERS or name.startswith(STATE_PROBABILITY)
