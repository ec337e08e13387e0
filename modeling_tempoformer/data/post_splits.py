"""The posts that a script is given, as timelines of the splits train, validation and test."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from datasets import Dataset, IterableDataset, concatenate_datasets, load_dataset

from .arguments import DatasetArguments, DataTrainingArguments
from .corpora import TASKS
from .splits import SPLITS, hold_back, hold_out, make_split, read_folds, read_split, select_fold, split_timelines
from .surveys import Survey, survey
from .tables import find_files, load_table, stream_table
from .timelines import PostError, column_names, to_timelines


logger = logging.getLogger(__name__)


def load_file(path: str, task_name: str | None, streaming: bool = False) -> Dataset | IterableDataset:
    """Posts or dated texts from a file: a corpus in its original form, or a table, which may be streamed."""
    if streaming and task_name is not None:
        raise ValueError(
            f"--streaming reads tables and datasets of the Hub, not the files of --task_name {task_name}."
        )
    if task_name is None:
        return stream_table(find_files(path)) if streaming else load_table(path)
    try:
        return Dataset.from_list(list(TASKS[task_name](path)))
    except (KeyError, ValueError) as problem:
        found = f"{type(problem).__name__}: {problem}"
        raise ValueError(f"{path} is not in the original form of --task_name {task_name} ({found}).") from None


def load_splits(
    arguments: DatasetArguments,
    cache_dir: str | None = None,
    token: str | None = None,
    load: Callable[..., Dataset | IterableDataset] = load_file,
    option: str = "file",
) -> dict[str, Dataset | IterableDataset]:
    """
    Reads each given split by `load`; arguments such as `--train_file`, which end in `option`, name it. With
    `--streaming` the training split is a stream.
    """
    files = {name: getattr(arguments, f"{name}_{option}") for name in SPLITS}
    files = {name: path for name, path in files.items() if path}
    name = arguments.dataset_name
    if bool(files) == (name is not None):
        options = " and ".join(f"--{split}_{option}" for split in SPLITS)
        raise ValueError(f"Give either --dataset_name or at least one of {options}.")
    if files:
        streamed = {split: arguments.streaming and split == "train" for split in files}
        return {split: load(path, arguments.task_name, streamed[split]) for split, path in files.items()}
    where = {"path": name, "name": arguments.dataset_config_name, "cache_dir": cache_dir, "token": token}
    present = load_dataset(**where, streaming=arguments.streaming)
    if splits := {split: present[split] for split in SPLITS if split in present}:
        for split in set(splits) - {"train"} if arguments.streaming else ():
            splits[split] = load_dataset(**where, split=split)
        return splits
    raise ValueError(f"{name} has the splits {', '.join(present)}; none of {', '.join(SPLITS)}.")


def timeline_columns(arguments: DataTrainingArguments) -> tuple[str | None, ...]:
    """The column names, in the order in which [`to_timelines`] takes them."""
    id_column = arguments.id_column or ("post_id" if arguments.task_name else None)
    names = ("timeline_column", "timestamp_column", "text_column", "label_column")
    return *(getattr(arguments, name) for name in names), id_column, arguments.speaker_column


def split_posts(
    splits: dict[str, Dataset | IterableDataset],
    arguments: DataTrainingArguments,
    names: list[str],
    wanted: Sequence[str],
    seed: int,
    model: str | None,
    members: int = 1,
) -> tuple[dict[str, Dataset | IterableDataset], dict[str, Survey], dict[str, list[str]]]:
    """
    The timelines of each split, their surveys, and what [`make_split`] records of them. Without a training nothing is
    split, and only wanted splits are returned; nor is a stream, which is read through once. With several `members`,
    which only a training has, each learns from another part of the training timelines ([`hold_out`]). `model` is the
    checkpoint to start from: it is not scored on timelines that it has learned from ([`hold_back`]).
    """
    if len(names) < 2:
        raise ValueError(f"--labels must name at least two labels; got: {', '.join(names) or 'none'}.")
    trains, shares = "train" in wanted, members > 1
    if not trains:
        for name in ("train_file", "folds_file"):
            if getattr(arguments, name) is not None:
                raise ValueError(
                    f"--{name} is read by --do_train alone: a model that is not trained now may have been trained on "
                    "these posts. --do_predict reads --test_file, --do_eval and --calibrate read --validation_file."
                )
        splits = {name: posts for name, posts in splits.items() if name in wanted}
    timelines = {}
    streams = isinstance(splits.get("train"), IterableDataset)
    if streams and arguments.folds_file is not None:
        raise ValueError("--folds_file cannot split the posts of --streaming: give a file for each split.")
    for name, posts in splits.items():
        try:
            level = arguments.level_column or ("level" if "level" in column_names(posts) else None)
            # A model learns from levels, and never reads them.
            columns = (*timeline_columns(arguments), level if name == "train" else None)
            timelines[name] = to_timelines(posts, names, *columns)
        except ValueError as problem:
            raise with_source(problem, name, arguments) from None
    if arguments.folds_file is not None:
        timelines = take_fold(timelines, arguments)
        if shares:
            timelines["train"] = concatenate_datasets([timelines["train"], timelines.pop("validation")])
    if set(timelines) == {"train"} and not streams:
        timelines["train"], timelines["test"] = split_timelines(timelines["train"], arguments.test_fraction, seed)
    # Also without --do_eval, so that the training posts are the same.
    if "train" in timelines and "validation" not in timelines and not shares and not streams:
        fraction = arguments.validation_fraction
        timelines["train"], timelines["validation"] = split_timelines(timelines["train"], fraction, seed)
    before = read_split(model)
    for name in ("validation", "test"):
        if name in timelines and name in wanted:
            timelines[name] = hold_back(name, timelines[name], before, model)
    option = "file, or --train_file alone to split it" if trains and not streams else "file"
    given = [name for name in wanted if not (shares and name == "validation")]
    timelines = check_given(timelines, arguments, given, option)
    if shares:
        timelines["train"] = hold_out(timelines["train"], members, seed)
    surveys = {}
    for name, of_split in timelines.items():
        try:
            surveys[name] = survey(of_split)
        except ValueError as problem:
            raise with_source(problem, name, arguments) from None
    split = make_split({name: found.timeline_ids for name, found in surveys.items()}, before)
    if shares and "validation" not in timelines:
        # Each of them is predicted by the member that has not learned from it.
        timelines["validation"], surveys["validation"] = timelines["train"], surveys["train"]
    for name in ("train", "validation"):
        if name in surveys and not surveys[name].labels.total() - surveys[name].labels[-100]:
            raise ValueError(f"The {name} split has no labelled post.")
    if len({found.timed for found in surveys.values()}) > 1:
        timed = {name: found.timed for name, found in surveys.items()}
        raise ValueError(f"Some splits have timestamps and others not: {timed}.")
    for name, found in surveys.items():
        logger.info("%s: %s", name, found.describe(names))
    return timelines, surveys, split


def with_source(problem: ValueError, split: str, arguments: DataTrainingArguments) -> ValueError:
    """An error that names the file, or the dataset, with which a split is wrong."""
    path, said = getattr(arguments, f"{split}_file"), str(problem)
    source = path or f"{arguments.dataset_name}, split {split}"
    if path is not None and isinstance(problem, PostError):
        source = find_files(path)[problem.shard or 0]
    # Errors of files name them.
    return ValueError(said if said.startswith(source) else f"{source}: {said}")


def take_fold(timelines: dict[str, Dataset], arguments: DataTrainingArguments) -> dict[str, Dataset]:
    """The splits of `--fold` of `--folds_file`."""
    if set(timelines) != {"train"}:
        raise ValueError("--folds_file splits --train_file: give no other file.")
    folds = read_folds(arguments.folds_file, timelines["train"])
    if not 0 <= arguments.fold < len(folds):
        raise ValueError(f"--fold {arguments.fold}: {arguments.folds_file} has the folds 0 to {len(folds) - 1}.")
    return select_fold(timelines["train"], folds[arguments.fold])


def check_given(
    splits: dict[str, Dataset], arguments: DatasetArguments, wanted: Sequence[str], option: str
) -> dict[str, Dataset]:
    """The wanted splits must be there; of the test split `--max_predict_samples` rows stay, evenly spaced."""
    if missing := [name for name in wanted if name not in splits]:
        raise ValueError(f"There is no {missing[0]} split: give --{missing[0]}_{option}.")
    number, test = arguments.max_predict_samples, splits.get("test")
    if number is None or test is None or number >= len(test):
        return splits
    return splits | {"test": test.select([index * len(test) // number for index in range(number)])}


def class_weights(labels: Counter[int], num_labels: int) -> list[float]:
    """
    `sqrt(1 / p)` for each class, with p its share of the labelled training posts (paper, section 4.4), from the number
    of posts of each class id.
    """
    counts = np.array([labels[label] for label in range(num_labels)])
    if not counts.all():
        raise ValueError(f"Some class has no post in the training split; posts of each class: {counts.tolist()}.")
    return np.sqrt(counts.sum() / counts).tolist()


def choose_class_weights(labels: Counter[int], names: list[str]) -> list[float]:
    """[`class_weights`], said in a log line."""
    weights = class_weights(labels, len(names))
    said = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights, strict=True))
    logger.info("Class weights in the loss, from the shares of the training posts: %s", said)
    return weights


def check_calibration(labels: Counter[int], names: list[str]):
    """
    Raises a `ValueError` if a class has no validation post, so that its threshold cannot be fitted. `labels` counts
    the posts of each class id.
    """
    if missing := [name for label, name in enumerate(names) if not labels[label]]:
        raise ValueError(
            f"--calibrate needs posts of every class in the validation split; none of: {', '.join(missing)}."
        )
