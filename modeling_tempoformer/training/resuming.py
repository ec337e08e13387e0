"""Training that resumes from its last checkpoint, if that checkpoint belongs to the same training."""

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint, has_length

from ..cards.pushing import PUSHED
from ..checks_tempoformer import check_whole
from ..common.columns import read_columns
from ..common.figures import all_forms, save_figure
from ..common.files import write_json
from ..evaluation.figures import FIGURES, LEARNING_CURVE, OF_TEST, learning_curve
from ..evaluation.latex import TEST_TABLE
from ..evaluation.prediction_table import HELD_OUT, MISTAKES, PREDICTIONS, PREDICTIONS_PARQUET
from ..evaluation.report import RESULTS
from ..posts.splits import SPLIT, write_split
from ..view.timelines import TIMELINES
from .hub_trainer import HubTrainer


logger = logging.getLogger(__name__)

# The Trainer writes this file last into a checkpoint, and into the output folder when a training has ended.
TRAINER_STATE = "trainer_state.json"
# Files whose names begin with an underscore are never pushed.
TRAINED_ON = "_trained_on.json"
# The model of an earlier training, while another one is trained in its folder
PREVIOUS = "_previous"
# The beginning of a warning of the library
COMPARED_STEPS = "Warning: The following arguments do not match the ones in the `trainer_state.json`"
# The settings that define a training, besides the fingerprint of its posts. Others may change when it resumes.
DEFINING = (
    # The model that it starts from
    *("model_name_or_path", "model_revision", "model_type", "config_name", "config_overrides", "tokenizer_name"),
    # Streams and labels
    *(
        "window",
        "targets_per_row",
        "max_seq_length",
        "labels",
        "no_change_label",
        "change_step",
        "known_states",
        "streaming",
    ),
    # Which posts are held out
    *("validation_fraction", "test_fraction", "split_by", "split_seed", "columns"),
    # Texts with dates and their masks
    *("times", "time_granularity", "line_by_line", "mlm_probability", "time_mlm_probability"),
    *("temporal_attention", "temporal_residual", "time_scaling", "prepend_time", "mask_token_time"),
    # Optimisation
    *("learning_rate", "new_parameters_learning_rate", "time_learning_rate", "weight_decay"),
    *("freeze_encoder", "freeze_layers"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "max_grad_norm", "label_smoothing_factor"),
    *("optim", "optim_args", "optim_target_modules", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("neftune_noise_alpha", "bf16", "fp16", "seed", "data_seed", "train_sampling_strategy"),
    # Batches and length
    *("per_device_train_batch_size", "auto_find_batch_size", "gradient_accumulation_steps", "world_size"),
    *("dataloader_drop_last", "average_tokens_across_devices", "num_train_epochs", "max_steps"),
    # Which weights are kept
    *("eval_strategy", "eval_steps", "eval_delay", "save_strategy", "save_steps", "load_best_model_at_end"),
    *("metric_for_best_model", "greater_is_better", "early_stopping_patience"),
)


def train_or_resume(trainer: HubTrainer, posts: str, *arguments: Any):
    """
    Trains a model and saves it, with its metrics and its learning curve. An older model of the output folder is set
    aside in the meantime ([`set_aside`]).

    The training resumes from the last checkpoint of the output folder, or from `args.resume_from_checkpoint`. A
    training that has ended is loaded, and its results stay until they are computed again. The last checkpoint must be
    of the same posts and settings; a named one, of the same posts.

    Args:
        trainer ([`HubTrainer`]): The Trainer with its model and its data. It has the `split` of a training that starts
            anew, and gets the split that a resumed training began with.
        posts (`str`): Fingerprint of the training posts.
        arguments: The script's arguments besides the Trainer's. The [`DEFINING`] ones are compared.
    """
    args, output_dir = trainer.args, Path(trainer.args.output_dir)
    if trainer.base_model is not None and Path(trainer.base_model).resolve() == output_dir.resolve():
        raise ValueError(f"--output_dir {output_dir} has the model that the training starts from: give another one.")
    trained_on = compared_settings(trainer, posts, arguments)
    last = find_last_checkpoint(args, trained_on)
    if args.resume_from_checkpoint is None and last is not None and is_complete(output_dir):
        metrics = load_ended(trainer)
        trainer.split = read_json(output_dir / SPLIT)
        # What this run does not compute again stays, also if it ends with an error.
        trainer.kept_results = read_json(output_dir / RESULTS) or {}
    else:
        checkpoint = last if args.resume_from_checkpoint is None else find_named_checkpoint(args, posts)
        if checkpoint is not None:
            if args.save_only_model:
                raise ValueError(f"{checkpoint} has no optimizer to resume with: give another --output_dir.")
            logger.warning("Resuming from %s.", checkpoint)
        clear_results(args)
        if last is not None:
            trainer.split = read_json(output_dir / SPLIT)
        # Each process has read the model from which it starts.
        trainer.accelerator.wait_for_everyone()
        if trainer.is_world_process_zero():
            set_aside(output_dir)
            # A leftover of an earlier training
            (output_dir / TRAINER_STATE).unlink(missing_ok=True)
            write_json(output_dir / TRAINED_ON, trained_on)
            if trainer.split is not None:
                write_split(output_dir, trainer.split)
        if args.resume_from_checkpoint is None and checkpoint is not None and (state := stopped_state(checkpoint)):
            metrics = end_training(trainer, checkpoint, state)
        else:
            # The settings of the last checkpoint have been compared.
            with comparing_no_steps() if checkpoint == last else nullcontext():
                metrics = trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint)).metrics
        trainer.save_model()
        if trainer.is_world_process_zero():
            shutil.rmtree(output_dir / PREVIOUS, ignore_errors=True)
    if not has_length(trainer.train_dataset):
        # The library takes the `max_steps` of a stream for an epoch.
        metrics.pop("epoch", None)
    # The library's callback that prints takes it out of the metrics, the one with a progress bar does not.
    metrics.pop("total_flos", None)
    trainer.report("train", {"train_parameters": trainer.get_num_trainable_parameters(), **metrics})
    trainer.save_state()
    draw_learning_curve(trainer)


def stopped_state(checkpoint: Path) -> TrainerState | None:
    """Returns the state of a checkpoint after whose step its training stops, by its length or early; else None."""
    state = TrainerState.load_from_json(str(checkpoint / TRAINER_STATE))
    control = state.stateful_callbacks.get("TrainerControl", {})
    return state if control.get("args", {}).get("should_training_stop") else None


def end_training(trainer: Trainer, checkpoint: Path, state: TrainerState) -> dict[str, float]:
    """
    Ends a training that had stopped, and was not saved: `Trainer.train` would take one more step before it looks.
    Loads the weights that it keeps, and calls the callbacks. Returns the metrics of the training.
    """
    best = state.best_model_checkpoint if trainer.args.load_best_model_at_end else None
    # By its name, as the folder may have been moved.
    load_weights(trainer, checkpoint if best is None else checkpoint.with_name(Path(best).name))
    trainer.state, handler = state, trainer.callback_handler
    state.is_local_process_zero, state.is_world_process_zero = (
        trainer.is_local_process_zero(),
        trainer.is_world_process_zero(),
    )
    handler.train_dataloader = trainer.get_train_dataloader()
    trainer.control = handler.on_train_begin(trainer.args, state, trainer.control)
    losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
    metrics = {"train_runtime": 0.0, "train_loss": sum(losses) / len(losses)} if losses else {"train_runtime": 0.0}
    trainer.log(dict(metrics))
    trainer.control = handler.on_train_end(trainer.args, state, trainer.control)
    return metrics


@contextmanager
def comparing_no_steps() -> Iterator[None]:
    """
    Silences one warning of the library, that arguments do not match a checkpoint's: it takes a share of the steps
    (`--eval_steps 0.2`) and the number that this was in the checkpoint for two settings.
    """
    heard = logging.getLogger("transformers.trainer_utils")

    def is_other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(COMPARED_STEPS)

    heard.addFilter(is_other)
    try:
        yield
    finally:
        heard.removeFilter(is_other)


def set_aside(folder: Path):
    """
    Moves the weights of a model in a folder, with their split and a copy of their configuration, into the folder
    `_previous` below it: if the training that comes next is interrupted, nobody takes the old model for its result.
    """
    weights = list(folder.glob("*model*.safetensors*"))
    if not weights:
        return
    previous = folder / PREVIOUS
    shutil.rmtree(previous, ignore_errors=True)
    previous.mkdir()
    for path in folder.glob("config.json"):
        shutil.copy2(path, previous)
    # The record comes last: weights without it would be scored on posts that they have learned from.
    for path in (*weights, *folder.glob(SPLIT)):
        path.replace(previous / path.name)


def read_json(path: Path) -> Any:
    """Returns the content of a JSON file; None if there is no such file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def compared_settings(trainer: Trainer, posts: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Returns the fingerprint of the posts and the settings that define a training ([`DEFINING`])."""
    settings = {**trainer.args.to_dict(), "world_size": trainer.args.world_size}
    for script_arguments in arguments:
        settings |= vars(script_arguments)
    # Other columns are known by the posts that they give.
    settings["columns"] = {"split": read_columns(settings.get("columns", ())).get("split")}
    settings["labels"] = getattr(trainer.model.config, "id2label", None)
    compared = {name: settings[name] for name in DEFINING if name in settings}
    # Through JSON, because the record is read from JSON
    return json.loads(json.dumps({"posts": posts, **compared}, sort_keys=True, default=str))


def check_same(checkpoint: Path, trained_on: Mapping[str, Any]):
    """Raises a `ValueError` that names the first difference if a checkpoint belongs to another training."""
    record = read_record(checkpoint)
    if "posts" not in record or record["posts"] != trained_on["posts"]:
        refuse(checkpoint, "other training posts")
    for name in sorted(record.keys() | trained_on.keys()):
        if name not in record or name not in trained_on:
            versions = "another script, or another version of this package or of Transformers"
            refuse(checkpoint, f"{versions} (only one of the two has --{name})")
        if record[name] != trained_on[name]:
            refuse(checkpoint, f"--{name} {record[name]}, not {trained_on[name]}")


def check_posts(training: TrainingArguments, posts: str):
    """Raises a `ValueError` if the checkpoint that a training would resume from belongs to other training posts."""
    checkpoint = begun_checkpoint(training)
    if checkpoint is not None and read_record(Path(checkpoint)).get("posts", posts) != posts:
        refuse(Path(checkpoint), "other training posts")


def begun_checkpoint(training: TrainingArguments) -> str | None:
    """Returns the checkpoint that a training would go on from; None if it begins anew."""
    return training.resume_from_checkpoint or get_last_checkpoint(training.output_dir)


def read_record(checkpoint: Path) -> dict[str, Any]:
    """Returns the settings of the training that wrote a checkpoint; empty without a record."""
    return read_json(checkpoint.parent / TRAINED_ON) or {}


def refuse(checkpoint: Path, difference: str):
    """Raises the `ValueError` for a checkpoint of another training."""
    raise ValueError(
        f"{checkpoint} was trained with {difference}: give another --output_dir to keep its model, or delete this "
        "one's checkpoints to train in its place."
    )


def find_last_checkpoint(args: TrainingArguments, trained_on: Mapping[str, Any]) -> Path | None:
    """Returns the last complete checkpoint in the output folder, which must be of the same training, or None."""
    newest = get_last_checkpoint(args.output_dir)
    if newest is None:
        return None
    check_same(Path(newest), trained_on)
    with args.main_process_first():
        return drop_incomplete(Path(args.output_dir))


def find_named_checkpoint(args: TrainingArguments, posts: str) -> Path:
    """Returns `--resume_from_checkpoint`. Raises a `ValueError` unless it is complete and of the same posts."""
    checkpoint = Path(args.resume_from_checkpoint)
    # The folder of a training that has ended has a state, too, but no optimizer.
    if not checkpoint.name.startswith(PREFIX_CHECKPOINT_DIR) or not is_complete(checkpoint):
        raise ValueError(f"--resume_from_checkpoint {checkpoint} is not a complete checkpoint.")
    check_posts(args, posts)
    return checkpoint


def drop_incomplete(output_dir: Path) -> Path | None:
    """Returns the last complete checkpoint. Deletes later ones, whose writing was interrupted."""
    while (checkpoint := get_last_checkpoint(output_dir)) is not None:
        if is_complete(Path(checkpoint)):
            return Path(checkpoint)
        logger.warning("Deleting %s, which was not written to its end.", checkpoint)
        shutil.rmtree(checkpoint)
    return None


def is_complete(folder: Path) -> bool:
    """Tells whether a checkpoint, or a training in its output folder, was written to its end."""
    try:
        json.loads((folder / TRAINER_STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def load_ended(trainer: Trainer) -> dict[str, float]:
    """Loads the model and the state of a training that has ended. Returns the metrics of the training."""
    output_dir = Path(trainer.args.output_dir)
    model = load_weights(trainer, output_dir)
    # A field that belongs to the weights
    if hasattr(model.config, "calibration"):
        trainer.model.config.calibration = model.config.calibration
    # --watch may change after the training.
    watched = getattr(trainer.model.config, "watched", None)
    if watched != getattr(model.config, "watched", None) and trainer.is_world_process_zero():
        model.config.watched = watched
        model.config.save_pretrained(output_dir)
    trainer.state = TrainerState.load_from_json(str(output_dir / TRAINER_STATE))
    *_, end = (entry for entry in trainer.state.log_history if "train_runtime" in entry)
    return {name: value for name, value in end.items() if name != "step"}


def load_weights(trainer: Trainer, folder: Path) -> PreTrainedModel:
    """Loads the weights of a training that has ended into its model. Returns the model of the folder."""
    output_dir = trainer.args.output_dir
    if trainer.is_fsdp_enabled:
        raise ValueError(f"The training in {output_dir} has ended, and --fsdp shards a training: leave it out.")
    logger.warning("The training in %s has ended: loading its model.", output_dir)
    model, info = type(trainer.model).from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True
    )
    check_whole(folder, info["missing_keys"])
    trainer.model.load_state_dict(model.state_dict())
    return model


def clear_results(training: TrainingArguments):
    """
    Removes the scores, predictions and figures of an earlier run from the output folder.

    Args:
        training (`TrainingArguments`): The arguments of the run, which name the folder.
    """
    clear_test(training)
    if training.process_index == 0:
        figures = [name for figure in FIGURES for name in all_forms(figure)]
        for name in (RESULTS, HELD_OUT, TIMELINES, *figures):
            (Path(training.output_dir) / name).unlink(missing_ok=True)
        shutil.rmtree(Path(training.output_dir) / PUSHED, ignore_errors=True)


def clear_test(training: TrainingArguments):
    """Removes the predictions and figures of an earlier test from the output folder."""
    if training.process_index == 0:
        figures = [name for figure in OF_TEST for name in all_forms(figure)]
        for name in (PREDICTIONS, PREDICTIONS_PARQUET, MISTAKES, TEST_TABLE, *figures):
            (Path(training.output_dir) / name).unlink(missing_ok=True)


def draw_learning_curve(trainer: Trainer):
    """Writes `learning_curve` of a training that has ended, unless it has logged nothing."""
    args, state = trainer.args, trainer.state
    if not trainer.is_world_process_zero():
        return
    kept_step = (args.load_best_model_at_end and state.best_global_step) or state.global_step
    figure = learning_curve(state.log_history, kept_step, trainer.model.config.num_labels)
    if figure is not None:
        save_figure(figure, Path(args.output_dir) / LEARNING_CURVE)
