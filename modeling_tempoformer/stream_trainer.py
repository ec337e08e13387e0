"""The stock Trainer for streams of posts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from datasets import Dataset

from .calibration import fit_temperature, tune_thresholds
from .configuration_tempoformer import TempoFormerConfig
from .decisions_tempoformer import class_probabilities
from .hub_trainer import HubTrainer, HubTrainingArguments
from .learning_rates import set_learning_rate
from .predictions import in_order, labels_of, post_ids_of


@dataclass(repr=False)
class StreamTrainingArguments(HubTrainingArguments):
    """
    Those of the Trainer, and how fast learns what is new on a pretrained encoder.

    Args:
        model_card (`dict` or `str`, *optional*): As in [`HubTrainingArguments`].
        head_learning_rate (`float`, *optional*): Of what is not the encoder: stream attention, fusion, head;
            `learning_rate` if omitted.
    """

    head_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Of what is not the encoder: stream attention, fusion, head; else --learning_rate."},
    )


class StreamTrainer(HubTrainer):
    """
    The stock Trainer, but for the learning rate of what is new on the encoder (`args.head_learning_rate`), the model
    card of a TempoFormer, logits by post, and calibration.

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
        strategy, self.args.train_sampling_strategy = self.args.train_sampling_strategy, "sequential"
        try:
            output = self.predict(items, metric_key_prefix="predict")
        finally:
            self.args.train_sampling_strategy = strategy
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
