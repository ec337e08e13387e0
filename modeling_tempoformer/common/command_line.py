"""Reads command lines and recipes, which are files of defaults, and prints a user's error in one line."""

import json
import logging
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from datasets import disable_progress_bars
from huggingface_hub.errors import StrictDataclassError
from tqdm.contrib.logging import logging_redirect_tqdm
from transformers import HfArgumentParser, PreTrainedConfig
from transformers.utils import logging as transformers_logging

from ..names_tempoformer import read_name
from .files import data_folder
from .renamed_options import check_renamed


logger = logging.getLogger(__name__)

RECIPES = (".yaml", ".yml", ".json")
# Fields of configurations that other arguments set (--window, --labels, --calibrate, --watch, the checkpoint), or the
# training posts (times, class weights, speakers, states, first posts)
SET_ELSEWHERE = {
    *("window", "num_labels", "id2label", "label2id", "calibration", "encoder_config"),
    *("embedding_size", "timed", "class_weights", "watched"),
    *("first_posts", "no_change", "reads_speakers", "states", "state_values", "reads_known_states", "change_step"),
}


@dataclass
class ConsoleArguments:
    """The level of a script's log, as in the Trainer's arguments."""

    log_level: str = "passive"


def run_script(main: Callable[[list[str]], None], *packages: str):
    """
    Runs a script's `main` on the command line, and shows the logs of this package and of `packages`. A user's error is
    one line; a bug keeps its traceback.
    """
    arguments = sys.argv[1:]
    try:
        without_help = [word for word in arguments if word not in ("-h", "--help")]
        set_up_console(*parse([ConsoleArguments], without_help, only_these=False), packages)
        with logging_redirect_tqdm():
            main(arguments)
    except (ValueError, OSError, ImportError, StrictDataclassError) as problem:
        logger.debug("Traceback of the error:", exc_info=True)
        sys.exit(f"error: {' '.join(str(problem).split())}")


def set_up_console(console: ConsoleArguments, packages: Collection[str] = ()):
    """
    Sets the levels of all loggers. By default this package and `packages` log their steps, and other libraries only
    warn. With `--log_level info` all log their steps.
    """
    level = transformers_logging.get_log_levels_dict().get(console.log_level, logging.INFO)
    if console.log_level != "passive" and level <= logging.INFO:
        logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
        return
    logging.basicConfig(format="%(message)s")
    for name in (__package__.split(".")[0], "__main__", *packages):
        logging.getLogger(name).setLevel(level)
    # A level of WARNING or more would make the library check its plans for many devices, and warn of them.
    logging.getLogger("transformers.modeling_utils").addFilter(lambda record: record.levelno > logging.WARNING)
    transformers_logging.disable_progress_bar()
    disable_progress_bars()


def parse(dataclasses: list[type], arguments: list[str], only_these: bool = True) -> tuple[Any, ...]:
    """
    Parses recipes of defaults and a command line into one object of each dataclass.

    The command line wins over recipes, and later recipes win over earlier ones. Dicts are merged. An argument that no
    dataclass has is an error only with `only_these`.
    """
    parser = HfArgumentParser(dataclasses, allow_abbrev=False)
    names = {field.name for dataclass in dataclasses for field in fields(dataclass) if field.init}
    recipe: dict = {}
    paths, arguments = split_recipes(arguments)
    for path in paths:
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            raise ValueError(f"{path} is not a recipe: {problem}")
        if not isinstance(values, dict):
            raise ValueError(f"{path} is not a recipe: it must hold names and values, got {values!r:.80}")
        if only_these:
            check_renamed(values, names)
        if (unknown := sorted(set(values) - names)) and only_these:
            raise ValueError(f"{path} has unknown arguments: {', '.join(unknown)}")
        recipe = merge(recipe, values)
    if only_these:
        check_renamed(options_given(arguments), names)
    objects = parser.parse_args_into_dataclasses(
        [*recipe_arguments(recipe), *arguments], look_for_args_file=False, return_remaining_strings=not only_these
    )
    for parsed in objects[: len(dataclasses)]:
        for name, value in recipe.items():
            if isinstance(value, dict) and isinstance(getattr(parsed, name, None), dict):
                setattr(parsed, name, merge(value, getattr(parsed, name)))
    return objects if only_these else objects[: len(dataclasses)]


def split_recipes(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Returns the paths of the recipes at the beginning of the command line, and the other arguments."""
    recipes = list(takewhile(lambda argument: argument.endswith(RECIPES), arguments))
    return list(map(find_recipe, recipes)), arguments[len(recipes) :]


def options_given(arguments: list[str]) -> set[str]:
    """Returns the options of a command line, with underscores for hyphens, without its recipes' options."""
    options = split_recipes(arguments)[1]
    names = (option.removeprefix("--").split("=")[0] for option in options if option.startswith("--"))
    return {name.replace("-", "_") for name in names}


def without_options(arguments: list[str], names: Collection[str]) -> list[str]:
    """Returns a command line without some options and their values."""
    kept, is_kept = [], True
    for word in arguments:
        if word.startswith("--"):
            is_kept = not options_given([word]) & set(names)
        kept += [word] * is_kept
    return kept


def find_recipe(path: str) -> str:
    """
    Returns the path of a recipe. If there is no such file, `NAME.yaml` and `configuration/NAME.yaml` are recipes of
    the package. Raises a `ValueError` that lists these for any other path.
    """
    if Path(path).exists():
        return path
    folder = data_folder("configuration")
    names = sorted(recipe.name for recipe in folder.glob("*.yaml"))
    if Path(path).name in names and Path(path).parent in (Path(), Path("configuration")):
        return str(folder / Path(path).name)
    raise ValueError(f"There is no recipe {path}. The package has: {', '.join(names)}.")


def merge(first: dict, second: dict) -> dict:
    """Merges two dicts at every depth. The second wins if they differ."""
    merged = {**first, **second}
    for name in first.keys() & second.keys():
        if isinstance(first[name], dict) and isinstance(second[name], dict):
            merged[name] = merge(first[name], second[name])
    return merged


def recipe_arguments(recipe: dict) -> list[str]:
    """Writes a recipe as command-line arguments, so that its values are checked in the same way."""
    arguments = []
    for name, value in recipe.items():
        if isinstance(value, dict):
            value = json.dumps(value)
        if isinstance(value, list):
            arguments += [f"--{name}", *map(str, value)]
        elif value is not None:
            arguments.append(f"--{name}={value}")
    return arguments


def read_overrides(value: dict | str | None, name: str = "config_overrides") -> dict | None:
    """Reads the option of that name. Raises a `ValueError` unless it is a JSON object, or null for none."""
    try:
        overrides = json.loads(value) if isinstance(value, str) else value
    except json.JSONDecodeError:
        overrides = value
    if not isinstance(overrides, dict | None):
        raise ValueError(f"--{name} must be a JSON object, got {value!r}.")
    return overrides


def check_overrides(overrides: dict | None, config_class: type[PreTrainedConfig]):
    """Raises a `ValueError` for fields that do not exist, or that other arguments or the training posts set."""
    allowed = set(config_class.__dataclass_fields__) - SET_ELSEWHERE
    if refused := sorted(set(overrides or {}) - allowed):
        raise ValueError(
            f"--config_overrides has fields that do not exist or that other arguments set: {', '.join(refused)}."
        )


def check_read(given: Collection[str], reads: Mapping[str, tuple[Any, str]]):
    """
    Raises a `ValueError` for an option that a run would ignore.

    Args:
        given (`Collection[str]`): The options of the command line ([`~common.command_line.options_given`]). Values of
            recipes are defaults, which a run need not read.
        reads (`Mapping[str, tuple[Any, str]]`): For each option, whether this run reads it, and words for the error
            that say which runs do not.
    """
    for name, (is_read, when) in reads.items():
        if name in given and not is_read:
            raise ValueError(f"--{name} is not read {when}: leave it out.")


def check_positive(arguments: Any, *names: str):
    """Raises a `ValueError` for a number below 1."""
    for name in names:
        if (value := getattr(arguments, name, None)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}.")


def class_named(name: str, names: Sequence[str], option: str) -> int:
    """Returns the id of the class that an option names. Raises a `ValueError` for a name that no class has."""
    if (read := read_name(name)) not in (known := list(map(read_name, names))):
        raise ValueError(f"--{option} must be one of {', '.join(names)}, got {name!r}.")
    return known.index(read)
