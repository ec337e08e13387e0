"""The Trainer for streams of posts."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, EarlyStoppingCallback, PreTrainedModel

from ..configuration_streams_tempoformer import StreamFields
from ..data.arguments import DataTrainingArguments, check_positive
from ..data.files import write_json
from ..data.splits import SPLIT
from ..data.surveys import Survey
from ..decisions_tempoformer import check_finite, decide
from ..evaluation.calibration import fit_temperature, tune_thresholds
from ..evaluation.figures import write_test_figures
from ..evaluation.metrics import compute_metrics, score_names
from ..evaluation.predictions import in_order, labels_of, post_ids_of, prediction_rows, targets_of, write_predictions
from ..evaluation.report import results_line, results_table, training_line, warn_of_worthless, worth
from ..evaluation.results import RESULTS, nest, read_test, score_part
from ..view.timelines import TIMELINES, write_view
from .arguments import ModelArguments
from .frozen_encoder import vectors_of
from .hub_trainer import SPLITS, HubTrainer, HubTrainingArguments, kept_evaluation
from .resuming import clear_results, report, train
from .tree_growing import grow_trees


logger = logging.getLogger(__name__)


@dataclass(repr=False)
class StreamTrainingArguments(HubTrainingArguments):
    """
    [`HubTrainingArguments`] for streams of posts.

    Args:
        model_card, hub_strategy, remove_unused_columns: As in [`HubTrainingArguments`].
        new_parameters_learning_rate (`float`, *optional*): Of everything outside the pretrained encoder. Default:
            `learning_rate`.
        min_steps (`int`, *optional*, defaults to 0): Train for more than `num_train_epochs` where these are fewer
            optimiser steps than this.
        freeze_encoder (`bool`, *optional*, defaults to `False`): Train only what is new, over vectors of posts that
            are computed once. For a `post_tempoformer`.
        early_stopping_patience (`int`, *optional*): Stop after this many evaluations without a better
            `metric_for_best_model`.
        restore_callback_states_from_checkpoint (`bool`, *optional*, defaults to `True`): Whether early stopping keeps
            its patience when a training resumes.
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
        metadata={"help": "Train only what is new, over vectors of posts that are computed once (post model only)."},
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Stop after this many evaluations without a better --metric_for_best_model."}
    )
    restore_callback_states_from_checkpoint: bool = True

    def __post_init__(self):
        if self.dataloader_drop_last:
            raise ValueError("--dataloader_drop_last cannot be given: every post is evaluated and predicted.")
        check_positive(self, "early_stopping_patience")
        if self.min_steps < 0:
            raise ValueError(f"--min_steps must be at least 0, got {self.min_steps}.")
        super().__post_init__()
        is_evaluated = self.metric_for_best_model is not None and self.eval_strategy != "no"
        if self.do_train and self.early_stopping_patience is not None and not is_evaluated:
            raise ValueError("--early_stopping_patience needs --metric_for_best_model and --eval_strategy.")

    def extend_epochs(self, num_rows: int):
        """Raises `num_train_epochs` until `num_rows` training rows give `min_steps` optimiser steps."""
        rows_per_step = self.train_batch_size * self.world_size * self.gradient_accumulation_steps
        steps_per_epoch = math.ceil(num_rows / rows_per_step)
        self.num_train_epochs = max(self.num_train_epochs, math.ceil(self.min_steps / steps_per_epoch))


class StreamTrainer(HubTrainer):
    """
    The Trainer for streams of posts: `args.new_parameters_learning_rate`, early stopping, scores and predictions of
    single posts, calibration.

    Args:
        args, kwargs: As in [`Trainer`]. `compute_metrics` defaults to [`compute_metrics`].
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        config = self.model.config
        # Of the training posts that have a label, if they have levels.
        self.levels: np.ndarray | None = None
        self.class_names = [config.id2label[label] for label in range(config.num_labels)]
        if self.compute_metrics is None:
            self.compute_metrics = compute_metrics(self.class_names)
            names, metric = ["loss", *score_names(self.class_names)], self.args.metric_for_best_model
            if metric is not None and metric.removeprefix("eval_") not in names:
                raise ValueError(f"--metric_for_best_model {metric} is none of the scores: {', '.join(names)}.")
        if self.args.early_stopping_patience is not None:
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping_patience))

    def train(self, *args, **kwargs):
        """As in the library; then grows trees ([`grow_trees`]), and warns of a model that has learned nothing."""
        result = super().train(*args, **kwargs)
        kept = kept_evaluation(self.state, self.args.load_best_model_at_end)
        model, rows = self.accelerator.unwrap_model(self.model), self.train_dataset
        if getattr(model, "trees", None) is not None and "held_out" in (getattr(rows, "column_names", None) or ()):
            # Not the Trainer's own loader: of several processes each grows the same trees, on all posts.
            batches = DataLoader(rows, self.args.eval_batch_size, collate_fn=self.data_collator)
            if self.levels is not None:
                logger.info("The trees learn from the levels of %d labelled posts.", np.isfinite(self.levels).sum())
            grow_trees(model, batches, self.args.seed, self.levels)
            if kept:
                # As part of the training: afterwards `--bf16_full_eval` would leave the weights in 16 bits.
                self.is_in_train = True
                kept = self.predict(self.eval_dataset, metric_key_prefix="eval").metrics
                self.is_in_train = False
        elif self.levels is not None:
            logger.warning("The levels of posts are not read: only trees over a frozen encoder learn from them.")
        if self.is_world_process_zero():
            warn_of_worthless(kept, self.class_names)
        return result

    def whole_model(self) -> PreTrainedModel:
        """The model; where FSDP shards it, a copy in the first process, for which all processes must call this."""
        model = self.accelerator.unwrap_model(self.model)
        if not self.is_fsdp_enabled:
            return model
        weights = self.accelerator.get_state_dict(self.model)
        if not self.is_world_process_zero():
            return model
        whole = AutoModelForSequenceClassification.from_config(model.config)
        whole.load_state_dict(weights)
        return whole.to(self.args.device)

    def own_learning_rate(self) -> tuple[float | None, list[nn.Parameter]]:
        # A model without an encoder, over frozen embeddings, is new as a whole and has one rate.
        if not self.model.base_model_prefix:
            return None, []
        encoder = f"{self.model.base_model_prefix}."
        if isinstance(self.model.config, StreamFields):
            encoder += "encoder."
        new = [parameter for name, parameter in self.model.named_parameters() if encoder not in name]
        return self.args.new_parameters_learning_rate, new

    def _determine_best_metric(self, metrics: dict[str, float], trial) -> bool:
        # A tie goes to the lower loss. The Trainer keeps the first, and models that predict one class only all tie.
        metric = (self.args.metric_for_best_model or "").removeprefix("eval_")
        is_tied = self.state.best_metric is not None and metrics.get(f"eval_{metric}") == self.state.best_metric
        best_loss = kept_evaluation(self.state, best=True).get("eval_loss", -math.inf)
        if is_tied and metrics.get("eval_loss", math.inf) < best_loss:
            self.state.best_metric = None
        return super()._determine_best_metric(metrics, trial)

    def predict_posts(
        self, items: Dataset, wanted: Sequence[str], metric_key_prefix: str = "predict"
    ) -> tuple[torch.Tensor, dict[str, float]]:
        """
        The logits (posts, classes) of the posts whose ids are `wanted`, in float32, and the metrics of
        [`Trainer.predict`]. `items` are rows from [`to_rows`], or have one post each, their `post_id`. Raises a
        `ValueError` that names the first post with a logit that is NaN or infinite.
        """
        # With `group_by_length` the Trainer would reorder what it predicts, too.
        strategy, self.args.train_sampling_strategy = self.args.train_sampling_strategy, "sequential"
        try:
            output = self.predict(items, metric_key_prefix=metric_key_prefix)
        finally:
            self.args.train_sampling_strategy = strategy
        # An item may be one post, without a dimension for posts.
        logits = output.predictions if output.predictions.ndim == 3 else output.predictions[:, None]
        logits = torch.from_numpy(in_order(wanted, targets_of(items), logits)).float()
        check_finite(logits, lambda post: f"Post {wanted[post]!r}")
        return logits, output.metrics

    def predict_timelines(
        self,
        split: Literal["validation", "test"],
        items: Mapping[str, Dataset],
        timelines: Mapping[str, Dataset],
    ) -> dict[str, Any]:
        """
        Predicts the posts of a split, with the calibration that the model has, and scores them beside what learns
        from the split `train`, if it is there. Writes predictions (without texts, if the timelines have none) and
        figures of the test split, and logs the metrics of the validation split. `items` are those of
        [`StreamTrainer.predict_posts`] for each split.

        Returns the metrics of [`Trainer.predict`], what [`score_part`] finds and `posts_per_second` (over frozen
        embeddings `embedded_posts_per_second`). All names begin with `eval_` (validation) or `predict_` (test).
        """
        prefix, of_split = "eval" if split == "validation" else "predict", timelines[split]
        names, ids = self.class_names, post_ids_of(of_split)
        asked = set(chain.from_iterable(targets_of(items[split])))
        targets = [index for index, post_id in enumerate(ids) if post_id in asked]
        logits, metrics = self.predict_posts(items[split], [ids[index] for index in targets], prefix)

        def of_all_posts(calibration: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
            decided, ranked = decide(logits, calibration)
            predicted, probabilities = np.full(len(ids), -1), np.zeros((len(ids), len(names)))
            predicted[targets], probabilities[targets] = ranked[:, 0].numpy(), decided.numpy()
            return predicted, probabilities

        calibration = getattr(self.model.config, "calibration", None)
        predicted, vectors = of_all_posts(calibration), None
        if split == "test" and self.is_world_process_zero():
            uncalibrated = None if calibration is None else of_all_posts(None)[1]
            write_predictions(self.args.output_dir, prediction_rows(of_split, *predicted, names))
            write_test_figures(self.args.output_dir, of_split, *predicted, names, uncalibrated)
        if split == "test" and "train" in timelines and "post_index" in (items["train"].column_names or ()):
            parts = ("train", "test")
            vectors = tuple(vectors_of(items[part], post_ids_of(timelines[part])) for part in parts)
        scores = score_part(of_split, *predicted, names, timelines.get("train"), vectors)
        if seconds := metrics[f"{prefix}_runtime"]:
            # Over frozen embeddings the encoder's time is not in it.
            embedded = self.args.freeze_encoder or not self.model.base_model_prefix
            scores["embedded_posts_per_second" if embedded else "posts_per_second"] = len(targets) / seconds
        if not scores["labelled_posts"]:
            metrics.pop(f"{prefix}_loss", None)
        # The Trainer's own scores know no calibration.
        found = metrics | {f"{prefix}_{name}": value for name, value in scores.items()}
        if split == "validation":
            self.log({name: found[name] for name in metrics})
        return found

    def log_metrics(self, split: str, metrics: dict[str, Any]):
        """Prints a table of the last split, and a line of each other one."""
        name, results = SPLITS.get(split, split), nest(metrics, split, self.class_names)
        if not self.is_world_process_zero():
            return
        if split == "train":
            print(training_line(results))
        elif "posts" not in results:
            super().log_metrics(split, metrics)
        elif split == "eval" and self.args.do_predict:
            print(results_line(name, results))
        else:
            print(f"\n{results_table(name, results)}")
            print(f"All numbers: {Path(self.args.output_dir) / RESULTS}")

    def card_verdict(self) -> list[str]:
        return worth(nest(self.saved_metrics.get("predict", {}), "predict", self.class_names))

    def write_results(self):
        parts = {SPLITS.get(of, of): nest(saved, of, self.class_names) for of, saved in self.saved_metrics.items()}
        write_json(Path(self.args.output_dir) / RESULTS, parts)

    def calibrate(self, items: Dataset, timelines: Dataset):
        """
        Fits a temperature and decision thresholds to the labelled posts of validation timelines, and saves the model
        with them. `items` are as in [`StreamTrainer.predict_posts`].
        """
        labels = labels_of(timelines)
        labelled, ids = np.flatnonzero(labels >= 0), post_ids_of(timelines)
        logits, _ = self.predict_posts(items, [ids[index] for index in labelled])
        temperature = fit_temperature(logits.numpy(), labels[labelled])
        probabilities, _ = decide(logits, {"temperature": temperature})
        thresholds = tune_thresholds(probabilities.numpy(), labels[labelled])
        self.model.config.calibration = {"temperature": temperature, "thresholds": thresholds}
        if not self.args.do_train:
            # The weights may be in another folder yet.
            self.save_model()
        elif self.is_world_process_zero():
            self.model.config.save_pretrained(self.args.output_dir)


def run_steps(
    trainer: StreamTrainer,
    items: Mapping[str, Dataset],
    timelines: Mapping[str, Dataset],
    surveys: Mapping[str, Survey],
    split: Mapping[str, Sequence[str]],
    model_args: ModelArguments,
    data: DataTrainingArguments,
):
    """Does what the Trainer's arguments ask for, in this order; `split` is what [`make_split`] returns."""
    training, config = trainer.args, trainer.model.config
    trainer.name_sources(model_args.model_name_or_path, data.dataset_name, data.dataset_config_name)
    if training.do_train:
        train(trainer, surveys["train"].fingerprint, model_args, data, split=split)
    elif training.do_eval or training.do_predict or model_args.calibrate:
        clear_results(training)
    if model_args.calibrate:
        # It is fitted anew below, to the scores of the plain model.
        config.calibration = None
    if training.do_eval:
        report(trainer, "eval", trainer.predict_timelines("validation", items, timelines))
    if model_args.calibrate:
        if not training.do_train and trainer.is_world_process_zero():
            write_json(Path(training.output_dir) / SPLIT, split)
        trainer.calibrate(items["validation"], timelines["validation"])
    if training.do_predict:
        shown = timelines["test"]
        if data.no_text:
            timelines = {**timelines, "test": shown.remove_columns("texts")}
        report(trainer, "predict", trainer.predict_timelines("test", items, timelines))
        model = trainer.whole_model() if model_args.view else None
        if model is not None and trainer.is_world_process_zero():
            page = Path(training.output_dir) / TIMELINES
            said = trainer.card_verdict()
            if not training.do_train:
                said = worth(read_test(model_args.source, **model_args.downloads))
            write_view(page, model, trainer.processing_class, shown, "Test timelines", said)
    trainer.finish(has_changed=training.do_train or model_args.calibrate)
