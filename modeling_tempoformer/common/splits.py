"""Reads the splits train, validation and test of posts or texts, from files or from a dataset of the Hub."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from datasets import Dataset, IterableDataset, load_dataset

from .arguments import DatasetArguments


logger = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
# Names of splits in datasets, the first one that is there being read
USUAL_SPLITS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev", "development"),
    "test": ("test", "testing"),
}


def read_splits(
    arguments: DatasetArguments,
    load: Callable[..., Dataset | IterableDataset],
    option: str,
    cache_dir: str | None = None,
    token: str | None = None,
) -> dict[str, Dataset | IterableDataset]:
    """
    Returns the rows of each given split. With `--streaming` the training rows are a stream.

    Args:
        arguments ([`DatasetArguments`]): The names of files or of a dataset. Splits of a dataset have one of the
            [`USUAL_SPLITS`]; a warning names others.
        load (`Callable`): Reads the rows of a given file, or list of files, as a stream if `streaming` is True.
        option (`str`): Ends the arguments that name files: `"file"` for `--train_file`, `--validation_file` and
            `--test_file`.
        cache_dir (`str`, *optional*): The folder for downloads from the Hub.
        token (`str`, *optional*): The token for these.

    Raises a `ValueError` for both or neither of files and a dataset, and for a dataset without a usual split.
    """
    files = {name: getattr(arguments, f"{name}_{option}") for name in SPLITS}
    files = {name: path for name, path in files.items() if path}
    name = arguments.dataset_name
    if bool(files) == (name is not None):
        options = " and ".join(f"--{split}_{option}" for split in SPLITS)
        raise ValueError(f"Give either --dataset_name or at least one of {options}.")
    if files:
        return {split: load(path, streaming=arguments.streaming and split == "train") for split, path in files.items()}
    where = {"path": name, "name": arguments.dataset_config_name, "cache_dir": cache_dir, "token": token}
    present = load_dataset(**where, streaming=arguments.streaming)
    names = {split: next(filter(present.__contains__, USUAL_SPLITS[split]), None) for split in SPLITS}
    names = {split: found for split, found in names.items() if found is not None}
    if not names:
        raise ValueError(f"{name} has the splits {', '.join(present)}; none of {', '.join(SPLITS)}.")
    read = ", ".join(found if found == split else f"{found} as {split}" for split, found in names.items())
    if other := [found for found in present if found not in names.values()]:
        logger.warning("%s: read the splits %s, and left out %s.", name, read, ", ".join(other))
    else:
        logger.info("%s: read the splits %s.", name, read)
    streamed = {split: arguments.streaming and split == "train" for split in names}
    return {
        split: present[found] if streamed[split] == arguments.streaming else load_dataset(**where, split=found)
        for split, found in names.items()
    }


def check_given(
    splits: dict[str, Sequence[Any] | Dataset], arguments: DatasetArguments, wanted: Sequence[str], option: str
) -> dict[str, Sequence[Any] | Dataset]:
    """
    Returns the splits of timelines or of texts, and checks that the wanted ones exist. The test split keeps at most
    `--max_predict_samples` timelines or texts, evenly spaced.
    """
    if missing := [name for name in wanted if name not in splits]:
        raise ValueError(f"There is no {missing[0]} split: give --{missing[0]}_{option}.")
    if (test := splits.get("test")) is None:
        return splits
    return splits | {"test": evenly_spaced(test, arguments.max_predict_samples)}


def evenly_spaced(items: Sequence[Any] | Dataset, number: int | None) -> Sequence[Any] | Dataset:
    """Returns `number` of the timelines or texts, evenly spaced; all of them if it is None."""
    if number is None or number >= len(items):
        return items
    chosen = [index * len(items) // number for index in range(number)]
    return items.select(chosen) if isinstance(items, Dataset) else [items[index] for index in chosen]
