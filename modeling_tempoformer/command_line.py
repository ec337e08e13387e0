"""What the scripts share: recipes, tables, training from the last checkpoint on, reports."""

import csv
import glob
import json
import logging
import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import datasets
import yaml
from datasets import Dataset, Features, IterableDataset, Value, get_dataset_split_names, load_dataset
from datasets.exceptions import DatasetGenerationError
from pyarrow import ArrowInvalid
from pyarrow.parquet import ParquetFile
from transformers import EarlyStoppingCallback, HfArgumentParser, PreTrainedConfig, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .cards import public_id
from .hub_trainer import HubTrainingArguments
from .splits import fingerprint, write_json


logger = logging.getLogger(__name__)

TRAINER_STATE, RESULTS = "trainer_state.json", "all_results.json"
# What the Trainer pushes does not begin with an underscore.
TRAINED_ON = "_trained_on.json"
# Of earlier versions: the training part alone.
OLD_TRAINED_ON = "_trained_on.sha256"
# Beginnings of names of the Trainer's arguments that a training can change on its way without becoming another one:
# when it ends, what is written and said, how it is evaluated, on which machine, in how much time and memory.
RUN_SETTINGS = (
    *("num_train_epochs", "max_steps", "do_", "resume_", "ignore_data_skip", "restore_", "load_best_model_at_end"),
    *("output_dir", "save_", "enable_jit_checkpoint", "push_to_hub", "hub_", "model_card"),
    *("log", "include_", "disable_tqdm", "report_to", "run_name", "project", "trackio_", "debug", "skip_memory_"),
    *("eval_", "per_device_eval_", "prediction_loss_only", "batch_eval_", "bf16_full_eval", "fp16_full_eval"),
    *("dataloader_num_workers", "dataloader_pin_", "dataloader_persistent_", "dataloader_prefetch_"),
    *("dataloader_multiprocessing_", "dataloader_in_order", "full_determinism", "use_cpu", "accelerator_config"),
    *("parallelism_", "average_tokens_", "ddp_", "fsdp", "deepspeed", "local_rank", "_"),
    *("torch_compile", "torch_empty_", "gradient_checkpointing", "activation_checkpointing", "auto_find_"),
    *("use_liger_", "liger_", "use_cache"),
)
# Ends of names of arguments that say which posts, which are compared themselves, or when to stop.
NOT_SETTINGS = ("_file", "_files", "_fraction", "fold", "_column", "labels", "early_stopping_patience", "calibrate")
WAY_OUT = "give another --output_dir, or delete its checkpoints"
ALL_THE_SAME = "--resume_from_checkpoint goes on from it all the same"
# Of a JSON file, in bytes: its reader counts them in 32 bits.
LARGEST_CHUNK = 1 << 30
RECIPES = (".yaml", ".yml", ".json")
# Else a server is told of every table that is read, local ones too.
datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False


def parse(dataclasses: list[type], arguments: list[str], only_these: bool = True) -> tuple[Any, ...]:
    """
    One object of each dataclass. First arguments that end in .yaml or .json are recipes of defaults; of several, the
    later ones win, and dicts that both have are merged. Without `only_these` other arguments are passed over.
    """
    parser = HfArgumentParser(dataclasses)
    known = {action.dest for action in parser._actions}
    recipe: dict = {}
    while arguments and arguments[0].endswith(RECIPES):
        path, *arguments = arguments
        try:
            values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as problem:
            parser.error(f"{path} is no recipe: {problem}")
        if not isinstance(values, dict):
            parser.error(f"{path} is no recipe: it must hold names and values, got {values!r:.80}")
        if (unknown := sorted(set(values) - known)) and only_these:
            parser.error(f"{path} has unknown arguments: {', '.join(unknown)}")
        recipe = merge(recipe, values)
    objects = parser.parse_args_into_dataclasses(
        [*recipe_arguments(recipe), *arguments], look_for_args_file=False, return_remaining_strings=not only_these
    )
    return objects if only_these else objects[: len(dataclasses)]


def merge(first: dict, second: dict) -> dict:
    """Both dicts in one, at every depth; where they differ, the second wins."""
    merged = {**first, **second}
    for name in first.keys() & second.keys():
        if isinstance(first[name], dict) and isinstance(second[name], dict):
            merged[name] = merge(first[name], second[name])
    return merged


def recipe_arguments(recipe: dict) -> list[str]:
    """A recipe as on the command line, so that its values are checked like those."""
    arguments = []
    for name, value in recipe.items():
        if isinstance(value, dict):
            value = json.dumps(value)
        if isinstance(value, list):
            arguments += [f"--{name}", *map(str, value)]
        elif value is not None:
            arguments.append(f"--{name}={value}")
    return arguments


def read_overrides(value: dict | str | None) -> dict | None:
    """`--config_overrides` as a dict. Raises a `ValueError` for what is no JSON object."""
    if not isinstance(value, str):
        return value
    try:
        fields = json.loads(value)
    except json.JSONDecodeError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError(f"--config_overrides must be a JSON object, got {value!r}.")
    return fields


def check_overrides(overrides: dict | None, config_class: type[PreTrainedConfig]):
    """Raises a `ValueError` for fields that a configuration does not have, which it would take in silence."""
    known = {*config_class.__dataclass_fields__, "num_labels"}
    if unknown := sorted(set(overrides or {}) - known):
        raise ValueError(f"--config_overrides has unknown fields: {', '.join(unknown)}.")


def load_table(path: str, streaming: bool = False) -> Dataset | IterableDataset:
    """
    The rows of a table.

    Args:
        path (`str`): A `.csv`, `.tsv`, `.json`, `.jsonl` or `.parquet` file, UTF-8 where it is text. CSV cells are
            text, and an empty one is empty.
        streaming (`bool`, *optional*, defaults to `False`): Whether rows are read as they are needed.

    Returns:
        `Dataset` or `IterableDataset`. Raises a `ValueError` that names the file, and the line where there
        is one, for what is no such table or has no rows.
    """
    kind = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}.get(
        Path(path).suffix.lower()
    )
    if kind is None:
        raise ValueError(f"{path}: not a .csv, .tsv, .json, .jsonl or .parquet file.")
    settings = {}
    if kind == "csv":
        separator = "\t" if path.lower().endswith(".tsv") else ","
        columns = check_csv(path, separator)
        # As text, so that an id such as 007 stays what it is.
        features = Features({column: Value("string") for column in columns})
        settings = {"sep": separator, "features": features, "keep_default_na": False, "encoding": "utf-8-sig"}
    if kind == "json":
        columns = check_json(path)
        if streaming and columns:
            # A tuple, because a list would be taken for shards.
            return IterableDataset.from_generator(stream_json, gen_kwargs={"path": path, "columns": tuple(columns)})
        # Else its reader takes columns and their types from the first 10 MB, and fails on what comes later.
        settings = {"chunksize": min(Path(path).stat().st_size, LARGEST_CHUNK)}
    if kind == "parquet":
        check_parquet(path)
    try:
        # What is meant is this file, and none that its name would match as a pattern.
        return load_dataset(kind, data_files=glob.escape(path), split="train", streaming=streaming, **settings)
    except (DatasetGenerationError, ArrowInvalid) as problem:
        raise ValueError(f"{path} cannot be read as {kind}: {problem.__cause__ or problem}") from None


def check_csv(path: str, separator: str) -> list[str]:
    """
    The columns of a file. What reads it afterwards would shift cells, or take those that are missing for empty ones.
    """
    number, longest = 0, csv.field_size_limit(sys.maxsize)
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            last: list[str] = []
            lines = csv.reader(keep_last(file, last), delimiter=separator, strict=True)
            columns = next(lines, [])
            check_separator(path, columns)
            for place, column in enumerate(columns):
                if not column or column in columns[:place]:
                    hint = "" if column else " The index of a pandas table? Write it by to_csv(index=False)."
                    raise ValueError(
                        f"{path}: column {place} (counting from 0) must have a name of its own: {column!r}.{hint}"
                    )
            number = lines.line_num
            has_rows = False
            for cells in lines:
                number = lines.line_num
                # A blank line is passed over.
                if cells and len(cells) != len(columns):
                    what = f"{len(cells)} cells in a table of {len(columns)} columns"
                    raise ValueError(f"{path}, line {number}: {what}.")
                if not cells and last == ["\r"]:
                    raise ValueError(f"{path}, line {number}: a blank line ends in a carriage return alone.")
                if any("\0" in cell for cell in cells):
                    raise ValueError(f"{path}, line {number}: a cell has the character NUL.")
                has_rows = has_rows or bool(cells)
    except UnicodeDecodeError:
        raise ValueError(name_bad_byte(path)) from None
    except csv.Error as problem:
        raise ValueError(f"{path}, after line {number}: {problem}.") from None
    finally:
        csv.field_size_limit(longest)
    if not has_rows:
        raise ValueError(f"{path} has no rows.")
    return columns


def keep_last(lines: Iterable[str], last: list[str]) -> Iterator[str]:
    """The same lines, of which the last one that was given out is the only entry of `last`."""
    for line in lines:
        last[:] = [line]
        yield line


def check_separator(path: str, columns: list[str]):
    """Raises a `ValueError` where a table has one column, as its cells are separated by something else."""
    for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
        if len(columns) == 1 and other in columns[0]:
            raise ValueError(
                f"{path} seems to be separated by {name}; a .csv file is read by its commas, a .tsv file by its tabs."
            )


def check_parquet(path: str):
    """Raises a `ValueError` for a table without rows, which its reader fails on."""
    try:
        num_rows = ParquetFile(path).metadata.num_rows
    except ArrowInvalid as problem:
        raise ValueError(f"{path} cannot be read as parquet: {problem}") from None
    if not num_rows:
        raise ValueError(f"{path} has no rows.")


def check_json(path: str) -> list[str]:
    """
    The columns of a file, each line of which must be an object; none, unlooked at, where the file is one list of them,
    which its reader checks.
    """
    number, has_rows = 0, False
    columns: dict[str, None] = {}
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.lstrip().startswith("["):
                    has_rows = "{" in line + file.read(100)
                    columns = {}
                    break
                if not line.strip():
                    continue
                has_rows = True
                if not isinstance(row := json.loads(line), dict):
                    raise ValueError(f"{path}, line {number}: {line.strip()!r:.80} is no JSON object.")
                columns |= dict.fromkeys(row)
    except UnicodeDecodeError:
        raise ValueError(name_bad_byte(path)) from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"{path}, line {number}: no JSON object ({problem}).") from None
    if not has_rows:
        raise ValueError(f"{path} has no rows.")
    return list(columns)


def stream_json(path: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The objects of a file's lines, with null in columns that one does not have."""
    with open(path, encoding="utf-8-sig") as file:
        for line in file:
            if line.strip():
                row = json.loads(line)
                yield {column: row.get(column) for column in columns}


def name_bad_byte(path: str) -> str:
    """Where a file is no UTF-8 text."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as problem:
                return f"{path}, line {number}: the byte 0x{line[problem.start]:02x} is no UTF-8 text."
    return f"{path} is no UTF-8 text."


def load_hub_splits(
    name: str, config_name: str | None, streaming: bool = False
) -> dict[str, Dataset | IterableDataset]:
    """The train, validation and test splits that a dataset has; only the first is streamed."""
    present = get_dataset_split_names(name, config_name)
    wanted = ("train", "validation", "test")
    splits = {
        split: load_dataset(name, config_name, split=split, streaming=streaming and split == "train")
        for split in wanted
        if split in present
    }
    if not splits:
        raise ValueError(f"{name} has the splits {', '.join(present)}; none of {', '.join(wanted)}.")
    return splits


def name_dataset(training: HubTrainingArguments, name: str | None, config_name: str | None):
    """The dataset's Hub id on the model card, unless the card is told another; a folder has none."""
    if public_id(name) is not None:
        training.model_card = {"dataset_tags": name, "dataset_args": config_name, **training.model_card}


def train(trainer: Trainer, data: Dataset | IterableDataset, *arguments: Any):
    """
    Trains from the last checkpoint of the output folder on, if there is one, and saves and reports.

    Args:
        trainer (`Trainer`): Of the model.
        data (`Dataset` or `IterableDataset`): The training part. A checkpoint of another one is refused with a
            `ValueError`: its test posts may be among those that the model has seen. A stream is not looked at.
        arguments: The script's other dataclasses. A checkpoint that was found, not named by
            `--resume_from_checkpoint`, is refused too where they or the learning rate and its like are others, or
            where it has no optimizer to go on with; any is refused that has more steps than are asked for.
    """
    checkpoint = trainer.args.resume_from_checkpoint
    was_named = checkpoint is not None
    if was_named and not (Path(checkpoint) / TRAINER_STATE).is_file():
        raise ValueError(f"--resume_from_checkpoint {checkpoint} is no checkpoint: it has no {TRAINER_STATE}.")
    if checkpoint is None:
        checkpoint = last_checkpoint(trainer.args.output_dir)
        if checkpoint is not None:
            logger.warning("Resuming from %s; to start afresh give another --output_dir.", checkpoint)
    output_dir = Path(trainer.args.output_dir)
    trained_on = {
        "data": fingerprint(data) if isinstance(data, Dataset) else None,
        "settings": settings_of(trainer.args, *arguments),
    }
    check_trained_on(checkpoint, trained_on, was_named)
    # What goes on stays what it was begun as.
    if trainer.is_world_process_zero() and (checkpoint is None or not (output_dir / TRAINED_ON).exists()):
        write_json(output_dir / TRAINED_ON, trained_on)
    if checkpoint is None and trainer.is_world_process_zero():
        # Scores of a model that was there before are not this one's.
        (output_dir / RESULTS).unlink(missing_ok=True)
    has_ended = False
    if checkpoint is not None:
        before = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE))
        check_steps(checkpoint, before, trainer.args)
        has_ended = before.global_step == steps_wanted(trainer.args, before)
        if has_stopped_early(before, trainer):
            logger.warning("It had stopped early, after %d steps.", before.global_step)
            has_ended = True
        if not has_ended and not was_named:
            check_whole(checkpoint)
        if not has_ended and isinstance(data, IterableDataset):
            logger.warning(
                "A stream is passed over from its beginning: after more than one pass through it, the training goes "
                "on at the beginning of a pass, and ends in other weights than one that was not stopped."
            )
    if has_ended:
        load_trained(trainer, checkpoint, before.global_step)
    else:
        result = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    trainer.save_state()
    if not has_ended:
        report(trainer, "train", result.metrics)


def load_trained(trainer: Trainer, checkpoint: str, steps: int):
    """Loads what a training has ended with, the best weights where they are wanted, and makes no step more."""
    path = Path(trainer.args.output_dir) / TRAINER_STATE
    last = TrainerState.load_from_json(str(path)) if path.exists() else None
    asked, trainer.args.max_steps = trainer.args.max_steps, steps
    # Of no batches, as the Trainer looks only behind a step whether it was the last one.
    trainer.get_train_dataloader = list
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.args.max_steps = asked
    # What it says of its time and loss is of no step; what was said when the last one was made stands.
    if last is not None and last.global_step == steps:
        trainer.state.log_history = last.log_history
    else:
        trainer.state.log_history = [entry for entry in trainer.state.log_history if "train_runtime" not in entry]


def settings_of(training: TrainingArguments, *arguments: Any) -> dict[str, Any]:
    """What is trained, and how, as JSON has it; not which posts are given, nor what may change on the way."""
    names = [name for name in training.__dataclass_fields__ if not name.startswith(RUN_SETTINGS)]
    settings = {name: getattr(training, name) for name in names}
    for of_script in arguments:
        settings |= {name: value for name, value in vars(of_script).items() if not name.endswith(NOT_SETTINGS)}
    for name, value in settings.items():
        if name in ("model_name_or_path", "config_name", "tokenizer_name") and value and Path(value).exists():
            settings[name] = str(Path(value).resolve())
    # An enumeration as it is written.
    return json.loads(json.dumps(settings, default=lambda value: getattr(value, "value", str(value))))


def check_trained_on(checkpoint: str | None, found: dict[str, Any], was_named: bool):
    """Raises a `ValueError` where a checkpoint is of another training part, or unless it was named, of others."""
    if checkpoint is None:
        return
    before: dict[str, Any] = {"data": None, "settings": {}}
    if (path := Path(checkpoint).parent / TRAINED_ON).exists():
        before = json.loads(path.read_text(encoding="utf-8"))
    elif (path := path.with_name(OLD_TRAINED_ON)).exists():
        before["data"] = path.read_text(encoding="utf-8").strip()
    if None not in (before["data"], found["data"]) and before["data"] != found["data"]:
        raise ValueError(f"{checkpoint} was trained on other posts or texts, or on another split of them: {WAY_OUT}.")
    for name, value in found["settings"].items() if not was_named else ():
        if (old := before["settings"].get(name, value)) != value:
            raise ValueError(f"{checkpoint} was trained with --{name} {old}, not {value}: {WAY_OUT}; {ALL_THE_SAME}.")


def check_steps(checkpoint: str, state: TrainerState, training: TrainingArguments):
    """Raises a `ValueError` where a checkpoint has more steps than are asked for."""
    if state.global_step > (wanted := steps_wanted(training, state)):
        name = "max_steps" if training.max_steps > 0 else "num_train_epochs"
        raise ValueError(
            f"{checkpoint} has {state.global_step} steps, and --{name} {getattr(training, name)} asks for {wanted}: "
            f"{WAY_OUT}."
        )


def steps_wanted(training: TrainingArguments, state: TrainerState) -> int:
    """The step at which a training that has got to `state` ends, as the Trainer reckons."""
    if training.max_steps > 0:
        return training.max_steps
    # Rounded up, as the last step of an epoch may be of fewer accumulated batches.
    steps_per_epoch = math.ceil(round(state.global_step / state.epoch, 6))
    return math.ceil(training.num_train_epochs * steps_per_epoch)


def check_whole(checkpoint: str):
    """Raises a `ValueError` where a checkpoint has not all that a training goes on with."""
    files = [path.name for path in Path(checkpoint).iterdir()]
    for part in ("optimizer", "scheduler"):
        # Of sharded weights the optimizer is a folder; DeepSpeed keeps both in a folder of the step.
        if not any(part in name or name.startswith("global_step") for name in files):
            raise ValueError(
                f"{checkpoint} has no {part}, as saved with --save_only_model, and would begin anew with it: "
                f"{WAY_OUT}; {ALL_THE_SAME}."
            )


def last_checkpoint(output_dir: str) -> str | None:
    """The newest checkpoint that was written to its end: its state comes last, and is cut short on a full disk."""
    folders = []
    for state in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{TRAINER_STATE}"):
        # Whoever keeps a copy of one may give it another name.
        if not re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-\d+", state.parent.name):
            continue
        try:
            json.loads(state.read_text(encoding="utf-8"))
        except ValueError:
            logger.warning("%s was not written to its end; passing over that checkpoint.", state)
        else:
            folders.append(state.parent)
    return str(max(folders, key=lambda folder: int(folder.name.rsplit("-", 1)[1]))) if folders else None


def has_stopped_early(state: TrainerState, trainer: Trainer) -> bool:
    """Whether a training ran out of patience, which the Trainer would forget."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, EarlyStoppingCallback):
            saved = state.stateful_callbacks.get(EarlyStoppingCallback.__name__, {}).get("attributes", {})
            return saved.get("early_stopping_patience_counter", 0) >= callback.early_stopping_patience
    return False


def report(trainer: Trainer, split: str, metrics: dict[str, float]):
    """Prints and saves the figures of a split; they end up in `all_results.json`."""
    trainer.log_metrics(split, metrics)
    trainer.save_metrics(split, metrics)


def write_results(output_dir: str, scores: dict[str, float]):
    """Prints the scores of a method that no Trainer has trained, and saves them as one would."""
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    scores = {f"predict_{name}": value for name, value in scores.items()}
    for name, value in scores.items():
        print(f"{name:40} = {value:.4f}")
    (folder / RESULTS).write_text(json.dumps(scores, indent=4) + "\n", encoding="utf-8")


def write_predictions(output_dir: str, rows: Iterable[dict[str, Any]]):
    """`_predictions.csv`: the Trainer never pushes a name that starts with an underscore."""
    path = Path(output_dir) / "_predictions.csv"
    rows = list(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    logger.info("Predictions: %s", path)
