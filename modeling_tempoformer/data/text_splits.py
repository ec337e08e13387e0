"""The dated texts that `run_temporal_mlm.py` is given, in the splits train, validation and test."""

import logging
from collections.abc import Sequence
from textwrap import shorten

from datasets import Dataset

from ..time_points_temporal_bert import TimePoints, is_missing
from .arguments import TextDataTrainingArguments
from .dated_texts import (
    TEXT_SUFFIXES,
    find_times,
    name_sources,
    read_text_files,
    split_texts,
)
from .post_splits import load_file, load_splits, take_samples
from .tables import check_column


logger = logging.getLogger(__name__)


def load_texts(paths: list[str], task_name: str | None) -> Dataset:
    """Texts from files named by time point, from a table, or from a corpus in its original form."""
    if task_name is None and all(path.endswith(TEXT_SUFFIXES) for path in paths):
        return read_text_files(paths)
    if len(paths) > 1:
        raise ValueError(f"Give text files named by time point, or one table; got {', '.join(paths)}.")
    return load_file(paths[0], task_name)


def load_text_splits(
    arguments: TextDataTrainingArguments, cache_dir: str | None = None, token: str | None = None
) -> dict[str, Dataset]:
    """As [`load_splits`], with the column that says where each text comes from. Texts to test may lack times."""
    splits = load_splits(arguments, cache_dir, token, load_texts, "files")
    for name, texts in splits.items():
        check_column(texts.column_names, arguments.text_column, "text")
        if name == "test" and arguments.time_column not in texts.column_names:
            texts = texts.add_column(arguments.time_column, [None] * len(texts))
        check_column(texts.column_names, arguments.time_column, "time")
        splits[name] = name_sources(texts)
    return splits


def choose_times(splits: dict[str, Dataset], arguments: TextDataTrainingArguments, saved: Sequence[str]) -> list[str]:
    """The time points: `--times`, else those of a saved model, else those of the texts."""
    times = arguments.times or list(saved)
    if not times:
        texts = splits.get("train", next(iter(splits.values())))
        only_dates = arguments.unknown_times == "error"
        times = find_times(texts, arguments.time_column, arguments.time_granularity, only_dates)
    if len(times) < 2:
        raise ValueError(f"There must be at least two time points, got: {', '.join(times) or 'none'}.")
    logger.info("%d time points: %s", len(times), shorten(", ".join(times), 200))
    return times


def split_dated_texts(
    splits: dict[str, Dataset],
    arguments: TextDataTrainingArguments,
    times: TimePoints,
    wanted: Sequence[str],
    seed: int,
) -> dict[str, Dataset]:
    """
    The texts of each split, at most `--max_..._samples` of each. The validation split is taken from the training
    texts if both are wanted and no file is given for it.
    """
    splits = {name: settle_unknown_times(texts, arguments, times, name) for name, texts in splits.items()}
    if "train" in wanted and "validation" in wanted and "validation" not in splits and "train" in splits:
        splits["train"], splits["validation"] = split_texts(splits["train"], arguments.validation_fraction, seed)
    return take_samples(splits, arguments, wanted, "files")


def settle_unknown_times(
    texts: Dataset, arguments: TextDataTrainingArguments, times: TimePoints, name: str
) -> Dataset:
    """
    Drops texts outside all time points if `--unknown_times` is `drop`, and logs how many there are. Raises a
    `ValueError` where no text is in a time point.
    """
    drops = arguments.unknown_times == "drop"
    # The time of a text to test is predicted.
    if arguments.unknown_times == "error" or (name == "test" and not drops):
        return texts
    values = texts[arguments.time_column]
    known = [row for row, time in enumerate(values) if times.holds(time) or (name == "test" and is_missing(time))]
    if not known:
        raise ValueError(f"No text of the {name} split is in any of the time points {', '.join(times.names)}.")
    if len(known) < len(texts):
        what = "left out" if drops else "of unknown time"
        logger.warning("%s: %d of %d texts are in no time point: %s.", name, len(texts) - len(known), len(texts), what)
    return texts.select(known) if drops else texts
