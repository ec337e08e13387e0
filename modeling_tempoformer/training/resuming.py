"""Training from the last checkpoint on."""

import hashlib
import json
import logging
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from ..data.files import write_json
from ..evaluation.predictions import RESULTS


logger = logging.getLogger(__name__)

TRAINER_STATE = "trainer_state.json"
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


def fingerprint(rows: Iterable[dict[str, Any]]) -> str:
    """SHA-256 of all rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(sorted(row.items())).encode())
    return digest.hexdigest()
