"""Reads the posts that a script is given, as timelines of the splits train, validation and test."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from datasets import Dataset, IterableDataset

from ..common.columns import NO_COLUMN
from ..common.command_line import check_read
from ..common.splits import check_given, read_splits
from ..common.table_arguments import columns_of, form_of
from ..names_tempoformer import read_name
from ..timeline_tempoformer import Timeline
from .arguments import DataTrainingArguments
from .column_types import common_features
from .date_splits import split_by_date
from .metadata import unit_of
from .reading import has_only_states, make_timelines, with_source
from .remembered_columns import named_columns
from .spellings import check_labels, compare_splits
from .splits import (
    COLUMNS,
    DATES,
    FOLDS,
    check_apart,
    check_folds,
    hash_id,
    hold_back,
    hold_out,
    make_split,
    read_split,
    select_fold,
    split_timelines,
)
from .states import DERIVED_LABELS
from .surveys import Survey, survey
from .tables import load_table
from .timelines import TimelineStream, label_names


logger = logging.getLogger(__name__)

# Options for the files of tables
OF_FILES = {"records": "--records", "one_timeline": "--columns timeline=none", "missing": "--missing"}


class Splits(NamedTuple):
    """
    The timelines of a run.

    Attributes:
        timelines (`dict[str, list[Timeline] | TimelineStream]`): The timelines of each split, as [`to_timelines`]
            returns them.
        surveys (`dict[str, Survey]`): A summary of the timelines of each split.
        record (`dict[str, Any]`): The content of `_split.json`, as [`make_split`] returns it.
    """

    timelines: dict[str, list[Timeline] | TimelineStream]
    surveys: dict[str, Survey]
    record: dict[str, Any]

    @property
    def timed(self) -> bool:
        """Tells whether the posts have times."""
        return all(summary.timed for summary in self.surveys.values())

    def of(self, split: str) -> tuple[list[Timeline] | TimelineStream, Survey]:
        """Returns the timelines of a split, and their survey."""
        return self.timelines[split], self.surveys[split]


def load_splits(
    arguments: DataTrainingArguments, cache_dir: str | None = None, token: str | None = None
) -> dict[str, Dataset | IterableDataset]:
    """
    Returns the rows of posts of each given split, as [`read_splits`] does. Raises a `ValueError` for an option of
    files that is given with a dataset of the Hub, and for Parquet files of a folder whose columns differ.
    """
    form = form_of(arguments)
    for key, option in OF_FILES.items() if arguments.dataset_name is not None else ():
        if form.get(key):
            raise ValueError(f"{option} reads files, not --dataset_name.")
    name = arguments.dataset_name
    if name is not None and arguments.dataset_config_name is None:
        # Datasets would read the numbers of all files, of other splits too, as the classes of the first one.
        common_features((str(file), pq.read_schema(file)) for file in sorted(Path(name).rglob("*.parquet")))
    return read_splits(arguments, partial(load_table, **form), "file", cache_dir, token)


def choose_label_names(posts: Mapping[str, Dataset | IterableDataset], arguments: DataTrainingArguments) -> list[str]:
    """
    Returns the class names: `--labels`, else the labels of the training posts, or of the first split. Labels that are
    derived from states have names of their own.
    """
    first = posts.get("train", next(iter(posts.values())))
    check_labels(arguments.labels or ())
    given = list(map(read_name, arguments.labels or ()))
    if has_only_states(first, columns_of(arguments)):
        if given and len(given) != len(DERIVED_LABELS):
            raise ValueError("Without a column of labels, --labels are two: the names of no change and of change.")
        return given or DERIVED_LABELS
    column = columns_of(arguments)["label"]
    if column == NO_COLUMN and not given:
        raise ValueError("--columns label=none leaves nothing to learn: there is no column of states, either.")
    return given or label_names(first, column or "label")


def choose_change_step(
    posts: Mapping[str, Dataset | IterableDataset], arguments: DataTrainingArguments
) -> float | None:
    """
    Returns the `--change_step` by which labels are derived from states, 0 for states that are classes; None if posts
    have labels. Raises a `ValueError` for a `--change_step` that is given with labels.
    """
    if has_only_states(posts.get("train", next(iter(posts.values()))), columns_of(arguments)):
        return arguments.change_step or 0.0
    if arguments.change_step is not None:
        raise ValueError(
            "--change_step derives the labels of posts that have states and no labels: these have labels."
        )
    return None


def split_posts(
    posts: Mapping[str, Dataset | IterableDataset],
    arguments: DataTrainingArguments,
    names: list[str],
    wanted: Sequence[str],
    seed: int,
    model: str | None,
    members: int = 1,
    calibrates: bool = False,
    change_step: float | None = None,
    given: Collection[str] = (),
) -> Splits:
    """
    Makes timelines of posts, and divides them into splits.

    Args:
        posts (`Mapping[str, Dataset | IterableDataset]`): The posts of each given split. A stream is not divided, and
            is read through once.
        arguments ([`DataTrainingArguments`]): The script's arguments.
        names (`list[str]`): Names of the classes in the order of their ids.
        wanted (`Sequence[str]`): The splits that the run reads. Without `train` the posts are not divided, and only
            wanted splits are returned.
        seed (`int`): Seed of the shuffles; the division has `arguments.split_seed`, if it is given.
        model (`str`, *optional*): The checkpoint to start from. It is not scored on timelines that it has learned from
            ([`hold_back`]).
        members (`int`, *optional*, defaults to 1): Number of members of the ensemble. If there are several, each has
            its own held-out fold of the training timelines ([`hold_out`]).
        calibrates (`bool`, *optional*, defaults to `False`): True if the model is calibrated on the validation split.
        change_step (`float`, *optional*): The smallest difference of states that is a change, by which the labels of
            posts without a column of labels are derived (0 for classes). By default labels are not derived.
        given (`Collection[str]`, *optional*): The options of the command line.
    """
    if len(names) < 2:
        raise ValueError(f"--labels must name at least two labels; got: {', '.join(names) or 'none'}.")
    trains, has_members = "train" in wanted, members > 1
    if not trains:
        refuse_training_posts(arguments)
        posts = {name: posts_of_split for name, posts_of_split in posts.items() if name in wanted}
    is_streamed = isinstance(posts.get("train"), IterableDataset)
    if is_streamed and (arguments.fold is not None or columns_of(arguments)["split"] is not None):
        raise ValueError(
            "No fold and no --columns split=NAME can split the posts of --streaming: give a file for each split."
        )
    if trains and arguments.fold is None:
        check_division(given, posts, arguments, is_streamed, has_members)

    timelines, dates = make_timelines(posts, arguments, names, change_step), {}
    compare_splits({name: read for name, read in timelines.items() if isinstance(read, list)})
    if not is_streamed:
        report_units(timelines, arguments)
        if trains and divides_by_date(posts, arguments):
            validation = None if has_members else arguments.validation_fraction
            timelines, dates = split_by_date(timelines["train"], arguments.test_fraction, validation)
        else:
            split_seed = seed if arguments.split_seed is None else arguments.split_seed
            timelines = divide(timelines, arguments, split_seed, has_members)
            check_apart(timelines)
    earlier = read_split(model)
    if trains and dates != earlier[DATES]:
        # By other dates, posts from which the model has learned might be tested: its timelines are refused as a whole.
        earlier[DATES] = {}
    for name in ("validation", "test"):
        if name in timelines and name in wanted:
            timelines[name] = hold_back(name, timelines[name], earlier, model)
    must_exist = [name for name in wanted if not (has_members and name == "validation")]
    option = "file, or --train_file alone to split it" if trains and not is_streamed else "file"
    timelines = check_given(timelines, arguments, must_exist, option)
    if has_members:
        timelines["train"] = hold_out(timelines["train"], members, seed)

    surveys = survey_timelines(timelines, arguments)
    record = make_split({name: summary.timeline_ids for name, summary in surveys.items()}, earlier, dates)
    if columns := earlier[COLUMNS] | named_columns(arguments):
        record[COLUMNS] = columns
    if has_members:
        record[FOLDS] = {hash_id(timeline.timeline_id): timeline.held_out for timeline in timelines["train"]}
    check_surveys(surveys)
    for name, summary in surveys.items():
        logger.info("%s: %s", name, summary.describe(names))
    if has_members and "validation" not in timelines:
        # Each training timeline is predicted by the member that has not learned from it.
        timelines["validation"], surveys["validation"] = timelines["train"], surveys["train"]
        logger.info("validation: the timelines of train, held out in turn from training")
    if calibrates:
        check_calibration(surveys["validation"].labels, names)
    return Splits(timelines, surveys, record)


def divides_by_date(posts: Mapping[str, Dataset | IterableDataset], arguments: DataTrainingArguments) -> bool:
    """Tells whether the training posts are divided by date: where no other split is given."""
    return arguments.split_by == "date" and set(posts) == {"train"} and arguments.fold is None


def check_division(
    given: Collection[str],
    posts: Mapping[str, Dataset | IterableDataset],
    arguments: DataTrainingArguments,
    is_streamed: bool,
    has_members: bool,
):
    """Raises a `ValueError` for a given option that divides training posts, if this run does not divide them by it."""
    cuts_test = set(posts) == {"train"} and not is_streamed
    cuts_validation = "validation" not in posts and not is_streamed and not has_members
    reads = {
        "test_fraction": (cuts_test, "where the splits are given (by files or the dataset)"),
        "validation_fraction": (
            cuts_validation,
            "where the validation split is given, or each member is validated on training posts that it has not "
            "learned from",
        ),
        "split_by": (cuts_test, "where the splits are given (by files or the dataset)"),
        "split_seed": (
            (cuts_test or cuts_validation) and not divides_by_date(posts, arguments),
            "where the training posts are not divided by a seed",
        ),
    }
    check_read(given, reads)


def refuse_training_posts(arguments: DataTrainingArguments):
    """Raises a `ValueError` for a file that only a training reads."""
    if arguments.train_file is not None:
        raise ValueError(
            "--train_file is read by --do_train alone: a model that is not trained now may have been trained on these "
            "posts. --do_predict reads --test_file, --do_eval and --calibrate read --validation_file."
        )


def report_units(timelines: Mapping[str, list[Timeline]], arguments: DataTrainingArguments):
    """Logs how many units of `--columns split=` the timelines belong to, and how many timelines belong to none."""
    if (column := columns_of(arguments)["split"]) is None:
        return
    for name, timelines_of_split in timelines.items():
        units = [unit_of(timeline) for timeline in timelines_of_split]
        alone = sum(kind == "timeline" for kind, _ in units)
        logger.info(
            "%s: the %d timelines belong to %d different values of the column '%s', which splits keep together%s.",
            *(name, len(units), len(set(units)) - alone, column),
            f"; {alone} have none, and stand alone" if alone else "",
        )


def divide(
    timelines: Mapping[str, list[Timeline]], arguments: DataTrainingArguments, seed: int, has_members: bool
) -> dict[str, list[Timeline]]:
    """
    Returns all splits: those that are not given are taken from the training timelines, by a fold or by
    fractions.

    The test split is taken only if no other split is given. With several members there is no validation split, because
    each member is validated on its held-out fold. Splits that the run does not need are taken as well, so that the
    training timelines stay the same.
    """
    splits = dict(timelines)
    if arguments.fold is not None:
        given = list(chain.from_iterable(timelines.values()))
        (fold,) = check_folds([arguments.fold], given, "The folds")
        splits = select_fold(given, fold)
        if has_members:
            splits["train"] = splits["train"] + splits.pop("validation")
    if set(splits) == {"train"}:
        splits["train"], splits["test"] = split_timelines(splits["train"], arguments.test_fraction, seed)
    if "train" in splits and "validation" not in splits and not has_members:
        fraction = arguments.validation_fraction
        splits["train"], splits["validation"] = split_timelines(splits["train"], fraction, seed)
    return splits


def survey_timelines(
    timelines: Mapping[str, list[Timeline] | TimelineStream], arguments: DataTrainingArguments
) -> dict[str, Survey]:
    """Returns the survey of each split. Errors name the file, or the dataset."""
    surveys = {}
    for name, timelines_of_split in timelines.items():
        try:
            surveys[name] = survey(timelines_of_split)
        except ValueError as problem:
            raise with_source(problem, name, arguments) from None
    return surveys


def check_surveys(surveys: Mapping[str, Survey]):
    """Raises a `ValueError` for a training or validation split without labels, and for times in some splits only."""
    for name in ("train", "validation"):
        if name in surveys and not surveys[name].labels.total() - surveys[name].labels[-100]:
            raise ValueError(f"The {name} split has no labelled post.")
    timed = {name: summary.timed for name, summary in surveys.items()}
    if len(set(timed.values())) > 1:
        raise ValueError(f"Some splits have timestamps and others not: {timed}.")


def check_calibration(labels: Counter[int], names: list[str]):
    """
    Raises a `ValueError` if a class has no validation post, so that its threshold cannot be fitted. `labels` counts
    the posts of each class id.
    """
    if missing := [name for label, name in enumerate(names) if not labels[label]]:
        raise ValueError(
            f"--calibrate needs posts of every class in the validation split; none of: {', '.join(missing)}."
        )
