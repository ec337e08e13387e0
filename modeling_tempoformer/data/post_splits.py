"""The posts that a script is given, as timelines of the splits train, validation and test."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from datasets import Dataset, concatenate_datasets, load_dataset

from .arguments import DatasetArguments, DataTrainingArguments
from .corpora import TASKS
from .splits import SPLITS, hold_back, hold_out, make_split, read_folds, read_split, select_fold, split_timelines
from .tables import load_table
from .timelines import to_timelines


logger = logging.getLogger(__name__)


def load_file(path: str, task_name: str | None) -> Dataset:
    """Posts or dated texts from a file: a corpus in its original form, or a table."""
    if task_name is None:
        return load_table(path)
    try:
        return Dataset.from_list(list(TASKS[task_name](path)))
    except (KeyError, ValueError) as problem:
        found = f"{type(problem).__name__}: {problem}"
        raise ValueError(f"{path} is not in the original form of --task_name {task_name} ({found}).") from None


def load_splits(
    arguments: DatasetArguments,
    cache_dir: str | None = None,
    token: str | None = None,
    load: Callable[..., Dataset] = load_file,
    option: str = "file",
) -> dict[str, Dataset]:
    """What `load` reads of each given split; arguments such as `--train_file`, which end in `option`, name it."""
    files = {name: getattr(arguments, f"{name}_{option}") for name in SPLITS}
    files = {name: path for name, path in files.items() if path}
    name = arguments.dataset_name
    if bool(files) == (name is not None):
        options = " and ".join(f"--{split}_{option}" for split in SPLITS)
        raise ValueError(f"Give either --dataset_name or at least one of {options}.")
    if files:
        return {split: load(path, arguments.task_name) for split, path in files.items()}
    present = load_dataset(name, arguments.dataset_config_name, cache_dir=cache_dir, token=token)
    if splits := {split: present[split] for split in SPLITS if split in present}:
        return splits
    raise ValueError(f"{name} has the splits {', '.join(present)}; none of {', '.join(SPLITS)}.")


def timeline_columns(arguments: DataTrainingArguments) -> tuple[str | None, ...]:
    """The column names, in the order in which [`to_timelines`] takes them."""
    id_column = arguments.id_column or ("post_id" if arguments.task_name else None)
    names = ("timeline_column", "timestamp_column", "text_column", "label_column")
    return *(getattr(arguments, name) for name in names), id_column, arguments.speaker_column


def split_posts(
    splits: dict[str, Dataset],
    arguments: DataTrainingArguments,
    names: list[str],
    wanted: Sequence[str],
    seed: int,
    model: str | None,
    members: int = 1,
) -> tuple[dict[str, Dataset], dict[str, list[str]]]:
    """
    The timelines of each split, and what [`make_split`] records of them. Without a training nothing is split, and only
    wanted splits are returned. With several `members`, which only a training has, each learns from another part of the
    training timelines ([`hold_out`]). `model` is the checkpoint to start from: it is not scored on timelines that it
    has learned from ([`hold_back`]).
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
    for name, posts in splits.items():
        try:
            level = arguments.level_column or ("level" if "level" in posts.column_names else None)
            # A model learns from levels, and never reads them.
            columns = (*timeline_columns(arguments), level if name == "train" else None)
            timelines[name] = to_timelines(posts, names, *columns)
        except ValueError as problem:
            source = getattr(arguments, f"{name}_file") or f"{arguments.dataset_name}, split {name}"
            raise ValueError(f"{source}: {problem}") from None
    if arguments.folds_file is not None:
        timelines = take_fold(timelines, arguments)
        if shares:
            timelines["train"] = concatenate_datasets([timelines["train"], timelines.pop("validation")])
    if set(timelines) == {"train"}:
        timelines["train"], timelines["test"] = split_timelines(timelines["train"], arguments.test_fraction, seed)
    # Also without --do_eval, so that the training posts are the same.
    if "train" in timelines and "validation" not in timelines and not shares:
        fraction = arguments.validation_fraction
        timelines["train"], timelines["validation"] = split_timelines(timelines["train"], fraction, seed)
    before = read_split(model)
    for name in ("validation", "test"):
        if name in timelines and name in wanted:
            timelines[name] = hold_back(name, timelines[name], before, model)
    option = "file, or --train_file alone to split it" if trains else "file"
    given = [name for name in wanted if not (shares and name == "validation")]
    timelines = check_given(timelines, arguments, given, option)
    split = make_split(timelines, before)
    if shares:
        timelines["train"] = hold_out(timelines["train"], members, seed)
        # Each of them is predicted by the member that has not learned from it.
        timelines.setdefault("validation", timelines["train"])
    for name in ("train", "validation"):
        if name in timelines and not any(max(timeline["labels"]) >= 0 for timeline in timelines[name]):
            raise ValueError(f"The {name} split has no labelled post.")
    for name, of_split in timelines.items():
        logger.info("%s: %s", name, describe(of_split, names))
    return timelines, split


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


def describe(timelines: Dataset, names: list[str]) -> str:
    """How many timelines and posts there are, and how many posts of each class."""
    counts = Counter(label for labels in timelines["labels"] for label in labels)
    classes = [f"{counts[label]} {name}" for label, name in enumerate(names) if counts[label]]
    classes += [f"{counts[-100]} without label"] if counts[-100] else []
    return f"{len(timelines)} timelines, {counts.total()} posts ({', '.join(classes)})"


def is_timed(timelines: dict[str, Dataset]) -> bool:
    """Whether the timelines have times. Raises a `ValueError` if only some splits have them."""
    timed = {name: "timestamps" in next(iter(of_split)) for name, of_split in timelines.items()}
    if len(set(timed.values())) > 1:
        raise ValueError(f"Some splits have timestamps and others not: {timed}.")
    return all(timed.values())


def class_weights(timelines: Dataset, num_labels: int) -> list[float]:
    """`sqrt(1 / p)` for each class, with p its share of the labelled training posts (paper, section 4.4)."""
    labels = np.concatenate([np.asarray(of_timeline) for of_timeline in timelines["labels"]])
    counts = np.bincount(labels[labels >= 0], minlength=num_labels)
    if not counts.all():
        raise ValueError(f"Some class has no post in the training split; posts of each class: {counts.tolist()}.")
    return np.sqrt(counts.sum() / counts).tolist()


def choose_class_weights(timelines: Dataset, names: list[str]) -> list[float]:
    """[`class_weights`], said in a log line."""
    weights = class_weights(timelines, len(names))
    said = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights, strict=True))
    logger.info("Class weights in the loss, from the shares of the training posts: %s", said)
    return weights


def check_calibration(validation: Dataset, names: list[str]):
    """Raises a `ValueError` if a class has no validation post: its threshold cannot be fitted."""
    present = {label for labels in validation["labels"] for label in labels}
    if missing := [name for label, name in enumerate(names) if label not in present]:
        raise ValueError(
            f"--calibrate needs posts of every class in the validation split; none of: {', '.join(missing)}."
        )
