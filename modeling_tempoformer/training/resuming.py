"""Training that goes on from its last checkpoint, if that is of the same training."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from accelerate import load_checkpoint_in_model
from datasets import Dataset, IterableDataset
from transformers import Trainer
from transformers.trainer_callback import TrainerState
from transformers.trainer_utils import get_last_checkpoint

from ..data.files import write_json
from ..evaluation.predictions import RESULTS


logger = logging.getLogger(__name__)

# The Trainer writes it into a checkpoint as the last file, and into the output folder when a training has ended.
TRAINER_STATE = "trainer_state.json"
# The Trainer does not push files whose names begin with an underscore.
TRAINED_ON = "_trained_on.json"
# The arguments of the Trainer that decide which model a training ends with.
TRAINING_SETTINGS = (
    *("learning_rate", "new_parameters_learning_rate", "time_learning_rate", "lr_scheduler_type"),
    *("lr_scheduler_kwargs", "warmup_steps", "num_train_epochs", "max_steps", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "train_sampling_strategy", "dataloader_drop_last", "seed", "data_seed"),
    *("optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("bf16", "fp16", "neftune_noise_alpha", "load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
    "early_stopping_patience",
)
# The arguments of the scripts that say where posts are (the training posts themselves are compared), or that only
# choose what is evaluated and predicted.
NOT_COMPARED = (
    *("train_file", "validation_file", "test_file", "train_files", "validation_files", "test_files", "folds_file"),
    *("max_eval_samples", "max_predict_samples", "cache_dir", "token"),
)


def train(trainer: Trainer, data: Dataset | IterableDataset, *arguments: Any):
    """
    Trains, saves and reports. Goes on from the last checkpoint in the output folder, if there is one; a training that
    has ended is loaded and not trained again.

    Args:
        trainer (`Trainer`): With the new model. `args.resume_from_checkpoint` names another checkpoint.
        data (`Dataset` or `IterableDataset`): The training part. A stream is not compared; resumed, it is passed over
            from its beginning.
        arguments: The script's other dataclasses.

    Raises a `ValueError` where the checkpoint is of other posts, or of other settings.
    """
    args, output_dir = trainer.args, Path(trainer.args.output_dir)
    settings = {name: getattr(args, name, None) for name in TRAINING_SETTINGS}
    for of_script in arguments:
        settings |= {name: value for name, value in vars(of_script).items() if name not in NOT_COMPARED}
    trained_on = {
        "posts": fingerprint(data) if isinstance(data, Dataset) else None,
        "settings": fingerprint([settings]),
    }
    checkpoint = get_last_checkpoint(output_dir)
    if checkpoint is not None:
        check_same(Path(checkpoint), trained_on)
    if args.resume_from_checkpoint is not None:
        checkpoint = args.resume_from_checkpoint
        check_same(Path(checkpoint), trained_on, was_named=True)
    elif checkpoint is not None:
        if (output_dir / TRAINER_STATE).exists():
            logger.warning("The training in %s has ended: loading its model.", output_dir)
            load_checkpoint_in_model(trainer.model, output_dir)
            trainer.state = TrainerState.load_from_json(str(output_dir / TRAINER_STATE))
            return
        with args.main_process_first():
            checkpoint = drop_incomplete(output_dir)
        if checkpoint is not None:
            logger.warning("Resuming from %s; to start afresh give another --output_dir.", checkpoint)
    if trainer.is_world_process_zero():
        write_json(output_dir / TRAINED_ON, trained_on)
        for name in (TRAINER_STATE, *([RESULTS] if checkpoint is None else [])):
            # They are of the model before.
            (output_dir / name).unlink(missing_ok=True)
    result = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()
    report(trainer, "train", result.metrics)
    trainer.save_state()


def check_same(checkpoint: Path, trained_on: dict[str, str | None], was_named: bool = False):
    """Raises a `ValueError` where a checkpoint is of another training. One that a user names may have no record."""
    record = checkpoint.parent / TRAINED_ON
    if not record.exists() and was_named:
        return
    before = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    if differ := [name for name, value in trained_on.items() if before.get(name) != value]:
        raise ValueError(
            f"{checkpoint} was trained with other {' and '.join(differ)}: "
            "give another --output_dir, or delete this one's checkpoints."
        )


def drop_incomplete(output_dir: Path) -> str | None:
    """The last complete checkpoint. Newer ones that were not written to their end are deleted."""
    while (checkpoint := get_last_checkpoint(output_dir)) is not None:
        if (Path(checkpoint) / TRAINER_STATE).exists():
            return checkpoint
        logger.warning("Deleting %s, which was not written to its end.", checkpoint)
        shutil.rmtree(checkpoint)
    return None


def report(trainer: Trainer, split: str, metrics: dict[str, float]):
    """Prints the metrics of a part, and saves them, also in `all_results.json`."""
    trainer.log_metrics(split, metrics)
    trainer.save_metrics(split, metrics)


def fingerprint(rows: Iterable[dict[str, Any]]) -> str:
    """SHA-256 of all rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(sorted(row.items())).encode())
    return digest.hexdigest()
