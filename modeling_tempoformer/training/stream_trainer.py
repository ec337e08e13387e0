"""The Trainer for streams of posts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import EarlyStoppingCallback, EvalPrediction

from ..configuration_tempoformer import TempoFormerConfig
from ..decisions_tempoformer import decide
from ..evaluation.calibration import fit_temperature, tune_thresholds
from ..evaluation.metrics import compute_metrics
from ..evaluation.predictions import (
    in_order,
    labels_of,
    post_ids_of,
    prediction_rows,
    score_posts,
    write_predictions,
)
from .hub_trainer import HubTrainer, HubTrainingArguments


# Arguments of the Trainer that must not be given, and why.
REFUSED = {
    "label_smoothing_factor": "it would replace the focal loss and its class weights",
    "dataloader_drop_last": "every post is evaluated and predicted",
}


@dataclass(repr=False)
class StreamTrainingArguments(HubTrainingArguments):
    """
    TrainingArguments plus a learning rate for new parameters, with defaults for streams of posts.

    Args:
        model_card (`dict` or `str`, *optional*): As in [`HubTrainingArguments`].
        new_parameters_learning_rate (`float`, *optional*): Learning rate of everything outside the pretrained encoder:
            stream attention, fusion and head. Default: `learning_rate`.
        min_steps (`int`, *optional*, defaults to 0): Train for more than `num_train_epochs` where these are fewer
            optimiser steps than this.
        freeze_encoder (`bool`, *optional*, defaults to `False`): Train only what is new, over vectors of posts that
            are computed once. For `stream_form="post"`.
        early_stopping_patience (`int`, *optional*): Stop after this many evaluations without a better
            `metric_for_best_model`.
        remove_unused_columns (`bool`, *optional*): As in [`HubTrainingArguments`].
        restore_callback_states_from_checkpoint (`bool`, *optional*, defaults to `True`): Whether early stopping keeps
            its patience when a training resumes.

    Raises a `ValueError` for `label_smoothing_factor` and `dataloader_drop_last`, which make no sense here.
    """

    new_parameters_learning_rate: float | None = field(
        default=None,
        metadata={
            "help": "Learning rate of stream attention, fusion and head, which are new. Default: --learning_rate."
        },
    )
    min_steps: int = field(
        default=0, metadata={"help": "Train for more epochs where --num_train_epochs would be fewer steps than this."}
    )
    freeze_encoder: bool = field(
        default=False,
        metadata={"help": "Train only what is new, over vectors of posts that are computed once (post form)."},
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Stop after this many evaluations without a better --metric_for_best_model."}
    )
    restore_callback_states_from_checkpoint: bool = field(
        default=True, metadata={"help": "Whether early stopping goes on where it was when a training resumes."}
    )

    def __post_init__(self):
        for name, reason in REFUSED.items():
            if value := getattr(self, name):
                raise ValueError(f"--{name} {value} cannot be given: {reason}.")
        super().__post_init__()
        is_evaluated = self.metric_for_best_model is not None and self.eval_strategy != "no"
        if self.do_train and self.early_stopping_patience is not None and not is_evaluated:
            raise ValueError("--early_stopping_patience needs --metric_for_best_model and --eval_strategy.")

    def extend_epochs(self, num_rows: int):
        """Raises `num_train_epochs` until `num_rows` training rows give `min_steps` optimiser steps."""
        rows_per_step = self.train_batch_size * self.world_size * self.gradient_accumulation_steps
        steps_per_epoch = math.ceil(num_rows / rows_per_step)
        self.num_train_epochs = max(self.num_train_epochs, math.ceil(self.min_steps / steps_per_epoch))


def decision_metrics(config, names: list[str]) -> Callable[[EvalPrediction], dict[str, float]]:
    """[`compute_metrics`] on the classes that a model decides for, with the calibration in its configuration."""
    compute = compute_metrics(names)

    def compute_calibrated(prediction: EvalPrediction) -> dict[str, float]:
        _, ranked = decide(torch.from_numpy(prediction.predictions), getattr(config, "calibration", None))
        return compute(EvalPrediction(np.eye(len(names))[ranked[..., 0].numpy()], prediction.label_ids))

    return compute_calibrated


class StreamTrainer(HubTrainer):
    """
    The Trainer for streams of posts: `args.new_parameters_learning_rate`, early stopping, scores and predictions of
    single posts, calibration.

    Args:
        args, kwargs: As in [`Trainer`]. `compute_metrics` defaults to [`decision_metrics`].
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        config = self.model.config
        self.class_names = [config.id2label[label] for label in range(config.num_labels)]
        if self.compute_metrics is None:
            self.compute_metrics = decision_metrics(config, self.class_names)
        if self.args.early_stopping_patience is not None:
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping_patience))

    def own_learning_rate(self) -> tuple[float | None, list[nn.Parameter]]:
        # A model without an encoder, over frozen embeddings, is new as a whole and has one rate.
        if not self.model.base_model_prefix:
            return None, []
        encoder = f"{self.model.base_model_prefix}."
        if isinstance(self.model.config, TempoFormerConfig):
            encoder += "encoder."
        new = [parameter for name, parameter in self.model.named_parameters() if encoder not in name]
        return self.args.new_parameters_learning_rate, new

    def predict_posts(
        self, items, post_ids: Sequence[Sequence[str]], wanted: Sequence[str]
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """
        Logits of single posts.

        Args:
            items: A dataset that this Trainer reads.
            post_ids (`Sequence[Sequence[str]]`): Ids of the posts that each item classifies.
            wanted (`Sequence[str]`): Ids of the posts whose logits are returned.

        Returns:
            `torch.Tensor` of shape `(posts, classes)` in float32, and the metrics of [`Trainer.predict`].
        """
        # With `group_by_length` the Trainer would reorder what it predicts, too.
        strategy, self.args.train_sampling_strategy = self.args.train_sampling_strategy, "sequential"
        try:
            output = self.predict(items, metric_key_prefix="predict")
        finally:
            self.args.train_sampling_strategy = strategy
        # An item of a baseline is one post, without a dimension for posts.
        logits = output.predictions if output.predictions.ndim == 3 else output.predictions[:, None]
        return torch.from_numpy(in_order(wanted, post_ids, logits)).float(), output.metrics

    def predict_timelines(self, items, post_ids: Sequence[Sequence[str]], timelines: Dataset) -> dict[str, float]:
        """
        Predicts every post of a test part, with the calibration that the model has, and writes `_predictions.csv`.

        Args:
            items, post_ids: As in [`StreamTrainer.predict_posts`].
            timelines (`Dataset`): The timelines of the items.

        Returns:
            The metrics of [`Trainer.predict`] and [`score_posts`], with the prefix `predict_`.
        """
        names = self.class_names
        logits, metrics = self.predict_posts(items, post_ids, post_ids_of(timelines))
        probabilities, ranked = decide(logits, getattr(self.model.config, "calibration", None))
        decided = (ranked[:, 0].numpy(), probabilities.numpy(), names)
        if self.is_world_process_zero():
            write_predictions(self.args.output_dir, prediction_rows(timelines, *decided))
        scores = score_posts(timelines, *decided)
        return metrics | {f"predict_{name}": value for name, value in scores.items()}

    def calibrate(self, items, post_ids: Sequence[Sequence[str]], timelines: Dataset):
        """
        Fits a temperature and decision thresholds on a validation part, and saves them in the model's configuration.

        Args:
            items, post_ids: As in [`StreamTrainer.predict_posts`].
            timelines (`Dataset`): The timelines of the items; their labelled posts are used.
        """
        labels = labels_of(timelines)
        labelled = np.flatnonzero(labels >= 0)
        ids = post_ids_of(timelines)
        logits, _ = self.predict_posts(items, post_ids, [ids[place] for place in labelled])
        temperature = fit_temperature(logits.numpy(), labels[labelled])
        probabilities, _ = decide(logits, {"temperature": temperature})
        thresholds = tune_thresholds(probabilities.numpy(), labels[labelled])
        self.model.config.calibration = {"temperature": temperature, "thresholds": thresholds}
        if self.is_world_process_zero():
            self.model.config.save_pretrained(self.args.output_dir)
