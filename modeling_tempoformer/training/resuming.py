"""Training that resumes from its last checkpoint, if that checkpoint belongs to the same training."""

import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainingArguments
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint, has_length

from ..checks_tempoformer import check_whole
from ..data.files import write_json
from ..data.splits import SPLIT
from ..evaluation.figures import FIGURES, LEARNING_CURVE, all_forms, learning_curve, save_figure
from ..evaluation.predictions import PREDICTIONS, PREDICTIONS_PARQUET
from ..evaluation.results import RESULTS
from ..view.timelines import TIMELINES


logger = logging.getLogger(__name__)

# The Trainer writes it as the last file of a checkpoint, and into the output folder when a training has ended.
TRAINER_STATE = "trainer_state.json"
# Files whose names begin with an underscore are never pushed.
TRAINED_ON = "_trained_on.json"
# Arguments of the Trainer that decide which model a training ends with.
TRAINING_SETTINGS = (
    *("learning_rate", "new_parameters_learning_rate", "time_learning_rate", "freeze_encoder", "lr_scheduler_type"),
    *("lr_scheduler_kwargs", "warmup_steps", "num_train_epochs", "max_steps", "per_device_train_batch_size"),
    *("world_size", "gradient_accumulation_steps", "train_sampling_strategy", "seed", "data_seed"),
    *("optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("bf16", "fp16", "neftune_noise_alpha", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
    *("eval_strategy", "eval_steps", "save_strategy", "save_steps", "early_stopping_patience"),
)
# Arguments of the scripts that may change when a run resumes. Training posts are compared themselves.
NOT_COMPARED = (
    *("train_file", "validation_file", "test_file", "train_files", "validation_files", "test_files", "folds_file"),
    *("max_predict_samples", "calibrate", "view", "cache_dir", "token", "trust_remote_code"),
    "no_text",
)


def train(trainer: Trainer, posts: str, *arguments: Any, split: Mapping[str, Sequence[str]] | None = None):
    """
    Trains, saves and reports. Resumes from the last checkpoint of the output folder, which must be of the same posts
    (`posts` is their fingerprint) and settings (the Trainer's and the script's other `arguments`), or from
    `args.resume_from_checkpoint`, whose settings may differ. A training that has ended is loaded. One that starts anew
    writes `split` to `_split.json`.
    """
    args, output_dir = trainer.args, Path(trainer.args.output_dir)
    trained_on = what_decides(trainer, posts, arguments)
    last = get_last_checkpoint(output_dir)
    if last is not None:
        check_same(Path(last), trained_on)
        with args.main_process_first():
            last = drop_incomplete(output_dir)
    if args.resume_from_checkpoint is not None:
        checkpoint = Path(args.resume_from_checkpoint)
        # The folder of a training that has ended has a state, too, but no optimizer.
        if not checkpoint.name.startswith(PREFIX_CHECKPOINT_DIR) or not is_complete(checkpoint):
            raise ValueError(f"--resume_from_checkpoint {checkpoint} is not a complete checkpoint.")
        if (checkpoint.parent / TRAINED_ON).exists():
            check_same(checkpoint, {"posts": trained_on["posts"]})
    else:
        checkpoint = last
    if args.resume_from_checkpoint is None and last is not None and is_complete(output_dir):
        if trainer.is_fsdp_enabled:
            raise ValueError(f"The training in {output_dir} has ended, and --fsdp shards a training: leave it out.")
        metrics = load_ended(trainer)
        clear_results(args)
    else:
        if checkpoint is not None:
            if args.save_only_model:
                raise ValueError(f"{checkpoint} has no optimizer to resume with: give another --output_dir.")
            logger.warning("Resuming from %s.", checkpoint)
        clear_results(args)
        if trainer.is_world_process_zero():
            # It is of a training that was here before.
            (output_dir / TRAINER_STATE).unlink(missing_ok=True)
            write_json(output_dir / TRAINED_ON, trained_on)
            if last is None and split is not None:
                write_json(output_dir / SPLIT, split)
        metrics = trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint)).metrics
        trainer.save_model()
    if not has_length(trainer.train_dataset):
        # The library takes a stream's `max_steps` for an epoch.
        metrics.pop("epoch", None)
    report(trainer, "train", {"train_parameters": trainer.get_num_trainable_parameters(), **metrics})
    trainer.save_state()
    draw_learning_curve(trainer)


def what_decides(trainer: Trainer, posts: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """The posts and settings that decide with which model a training ends."""
    settings = {name: getattr(trainer.args, name, None) for name in TRAINING_SETTINGS}
    for script_arguments in arguments:
        settings |= {name: value for name, value in vars(script_arguments).items() if name not in NOT_COMPARED}
    settings["labels"] = getattr(trainer.model.config, "id2label", None)
    # Through JSON, as the record is read back.
    return json.loads(json.dumps({"posts": posts, **settings}, sort_keys=True, default=str))


def load_ended(trainer: Trainer) -> dict[str, float]:
    """Loads the model of a training that has ended, and its state. Returns its metrics."""
    output_dir = Path(trainer.args.output_dir)
    logger.warning("The training in %s has ended: loading its model.", output_dir)
    model, info = type(trainer.model).from_pretrained(
        output_dir, dtype=torch.float32, use_safetensors=True, output_loading_info=True
    )
    check_whole(output_dir, info["missing_keys"])
    trainer.model.load_state_dict(model.state_dict())
    # They belong to the weights.
    for name in ("calibration", "tree_weights"):
        if hasattr(model.config, name):
            setattr(trainer.model.config, name, getattr(model.config, name))
    trainer.state = TrainerState.load_from_json(str(output_dir / TRAINER_STATE))
    *_, end = (entry for entry in trainer.state.log_history if "train_runtime" in entry)
    return {name: value for name, value in end.items() if name != "step"}


def draw_learning_curve(trainer: Trainer):
    """Writes `learning_curve` of a training that has ended, unless it has logged nothing."""
    args, state = trainer.args, trainer.state
    if not trainer.is_world_process_zero():
        return
    kept_step = (args.load_best_model_at_end and state.best_global_step) or state.global_step
    figure = learning_curve(state.log_history, kept_step, trainer.model.config.num_labels)
    if figure is not None:
        save_figure(figure, Path(args.output_dir) / LEARNING_CURVE)


def clear_results(training: TrainingArguments):
    """Removes an earlier run's scores, predictions and figures, before another run writes its own."""
    if training.process_index == 0:
        figures = [name for figure in FIGURES for name in all_forms(figure)]
        for name in (RESULTS, PREDICTIONS, PREDICTIONS_PARQUET, TIMELINES, *figures):
            (Path(training.output_dir) / name).unlink(missing_ok=True)


def drop_incomplete(output_dir: Path) -> Path | None:
    """The last complete checkpoint. Later ones, whose writing was interrupted, are deleted."""
    while (checkpoint := get_last_checkpoint(output_dir)) is not None:
        if is_complete(Path(checkpoint)):
            return Path(checkpoint)
        logger.warning("Deleting %s, which was not written to its end.", checkpoint)
        shutil.rmtree(checkpoint)
    return None


def is_complete(folder: Path) -> bool:
    """Whether a checkpoint, or a training in its output folder, was written to its end."""
    try:
        json.loads((folder / TRAINER_STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def check_same(checkpoint: Path, trained_on: dict[str, Any]):
    """Raises a `ValueError` that names what differs if a checkpoint belongs to another training."""
    record = checkpoint.parent / TRAINED_ON
    before = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    for name, value in trained_on.items():
        if name not in before or before[name] != value:
            what = "other training posts" if name == "posts" else f"--{name} {before.get(name)}, not {value}"
            raise ValueError(
                f"{checkpoint} was trained with {what}: give another --output_dir to keep its model, or delete "
                "this one's checkpoints to train in its place."
            )


def report(trainer: Trainer, split: str, metrics: dict[str, float]):
    """Prints the metrics of a split, and saves them, also in `all_results.json`."""
    trainer.log_metrics(split, metrics)
    trainer.save_metrics(split, metrics)


def check_posts(training: TrainingArguments, posts: str):
    """Raises the error of [`train`] for a checkpoint of posts with another fingerprint, before a model is made."""
    checkpoint = training.resume_from_checkpoint or get_last_checkpoint(training.output_dir)
    if checkpoint is not None and (Path(checkpoint).parent / TRAINED_ON).exists():
        check_same(Path(checkpoint), {"posts": posts})
