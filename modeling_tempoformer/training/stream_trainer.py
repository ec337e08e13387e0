"""The stock Trainer for streams of posts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from ..configuration_tempoformer import TempoFormerConfig
from ..decisions_tempoformer import class_probabilities
from ..evaluation.calibration import fit_temperature, tune_thresholds
from ..evaluation.predictions import in_order, labels_of, post_ids_of
from .hub_trainer import HubTrainer, HubTrainingArguments
from .learning_rates import set_learning_rate


# Arguments of the Trainer with the only value that makes sense here, and why.
ONLY_VALUES = {
    "label_smoothing_factor": (0, "it would take the place of the focal loss and of the class weights"),
    "prediction_loss_only": (False, "scores and predictions need the logits"),
    "batch_eval_metrics": (False, "scores are those of all posts"),
    "eval_do_concat_batches": (True, "scores are those of all posts"),
}


@dataclass(repr=False)
class StreamTrainingArguments(HubTrainingArguments):
    """
    Those of the Trainer, and how fast learns what is new on a pretrained encoder.

    Args:
        model_card (`dict` or `str`, *optional*): As in [`HubTrainingArguments`].
        head_learning_rate (`float`, *optional*): Of what is not the encoder: stream attention, fusion, head;
            `learning_rate` if omitted.

    Raises a `ValueError` for `label_smoothing_factor`, `prediction_loss_only`, `batch_eval_metrics` and
    `eval_do_concat_batches=False`, which make no sense here.
    """

    head_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Of what is not the encoder: stream attention, fusion, head; else --learning_rate."},
    )

    def __post_init__(self):
        for name, (only, reason) in ONLY_VALUES.items():
            if (value := getattr(self, name)) != only:
                raise ValueError(f"--{name} {value} cannot be given: {reason}.")
        super().__post_init__()


@contextmanager
def changed(arguments: TrainingArguments, name: str, value: Any) -> Iterator[None]:
    """One of the Trainer's arguments has another value."""
    before = getattr(arguments, name)
    setattr(arguments, name, value)
    try:
        yield
    finally:
        setattr(arguments, name, before)


class StreamTrainer(HubTrainer):
    """
    The stock Trainer, but for the learning rate of what is new on the encoder (`args.head_learning_rate`), the model
    card of a TempoFormer, logits by post, calibration, and evaluation on all posts (`args.dataloader_drop_last` is for
    training alone).

    Args:
        args, kwargs: As in [`Trainer`].
    """

    def create_optimizer(self, model=None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(model)
        if is_new and self.args.head_learning_rate is not None:
            if not self.model.base_model_prefix:
                # It has no encoder to tell its head from.
                return optimizer
            encoder = f"{self.model.base_model_prefix}."
            if isinstance(self.model.config, TempoFormerConfig):
                encoder += "encoder."
            named = self.model.named_parameters()
            head = [parameter for name, parameter in named if encoder not in name]
            set_learning_rate(optimizer, head, self.args.head_learning_rate)
        return optimizer

    def get_eval_dataloader(self, eval_dataset=None) -> DataLoader:
        with changed(self.args, "dataloader_drop_last", False):
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset) -> DataLoader:
        with changed(self.args, "dataloader_drop_last", False):
            return super().get_test_dataloader(test_dataset)

    def predict_posts(
        self, items, post_ids: Sequence[Sequence[str]], wanted: Sequence[str]
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """
        Logits of single posts.

        Args:
            items: A dataset that this Trainer reads.
            post_ids (`Sequence[Sequence[str]]`): The posts that each item classifies.
            wanted (`Sequence[str]`): Ids of the posts whose logits are returned.

        Returns:
            `torch.Tensor` of shape `(posts, classes)` in float32, and the metrics of [`Trainer.predict`].
        """
        # Grouped by length, the Trainer would shuffle what it predicts, too.
        with changed(self.args, "train_sampling_strategy", "sequential"):
            output = self.predict(items, metric_key_prefix="predict")
        # A baseline classifies one post in each item, and has no dimension for it.
        logits = output.predictions if output.predictions.ndim == 3 else output.predictions[:, None]
        return torch.from_numpy(in_order(wanted, post_ids, logits)).float(), output.metrics

    def calibrate(self, items, post_ids: Sequence[Sequence[str]], timelines: Dataset):
        """
        Fits a temperature and decision thresholds on a validation part, and saves them with the model's configuration.

        Args:
            items, post_ids: As in [`StreamTrainer.predict_posts`].
            timelines (`Dataset`): What the items were made of; its labelled posts are used.
        """
        labels = labels_of(timelines)
        labelled = np.flatnonzero(labels >= 0)
        wanted = post_ids_of(timelines)
        logits, _ = self.predict_posts(items, post_ids, [wanted[place] for place in labelled])
        config = self.model.config
        config.calibration_temperature = fit_temperature(logits.numpy(), labels[labelled])
        probabilities = class_probabilities(logits, config.calibration_temperature)
        config.decision_thresholds = tune_thresholds(probabilities.numpy(), labels[labelled])
        if self.is_world_process_zero():
            config.save_pretrained(self.args.output_dir)
