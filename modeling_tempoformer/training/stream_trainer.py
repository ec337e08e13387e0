"""The Trainer for streams of posts."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, EarlyStoppingCallback, PreTrainedModel

from ..configuration_streams_tempoformer import StreamFields
from ..data.arguments import check_positive
from ..data.files import write_json
from ..data.surveys import Survey
from ..decisions_tempoformer import decide, watched_threshold
from ..evaluation.alarms import alarm_sentence, choose_alarm
from ..evaluation.calibration import fit_temperature, tune_thresholds
from ..evaluation.figures import write_test_figures
from ..evaluation.metrics import compute_metrics, score_names
from ..evaluation.predictions import (
    all_labels,
    attach_logits,
    decide_posts,
    prediction_rows,
    write_mistakes,
    write_predictions,
)
from ..evaluation.report import (
    RESULTS,
    group_by_class,
    group_rows,
    results_line,
    results_table,
    score_part,
    test_summary,
    training_line,
    warn_of_worthless,
)
from ..evaluation.state_scores import score_states
from ..timeline_tempoformer import Timeline
from .frozen_encoder import post_vectors
from .hub_trainer import SPLIT_NAMES, HubTrainer, HubTrainingArguments, kept_evaluation
from .tree_growing import grow_experts


logger = logging.getLogger(__name__)


@dataclass(repr=False)
class StreamTrainingArguments(HubTrainingArguments):
    """
    [`HubTrainingArguments`] for streams of posts.

    Args:
        model_card, push_to_hub_dry_run, hub_strategy, remove_unused_columns: Fields of [`HubTrainingArguments`].
        num_train_epochs (`float`, *optional*): Number of epochs, in the place of `min_epochs` and `min_steps`.
        min_epochs (`float`, *optional*, defaults to 3.0): Fewest epochs.
        min_steps (`int`, *optional*, defaults to 0): Fewest optimiser steps. The training has as many epochs as it
            takes.
        new_parameters_learning_rate (`float`, *optional*): Learning rate of everything outside the pretrained encoder.
            Default: `learning_rate`.
        freeze_encoder (`bool`, *optional*, defaults to `False`): If True, only new parts learn, over vectors of
            posts that are computed once. For a `post_tempoformer`.
        early_stopping_patience (`int`, *optional*): Number of evaluations without a better `metric_for_best_model`
            after which the training stops.
        restore_callback_states_from_checkpoint (`bool`, *optional*, defaults to `True`): If True, early stopping
            keeps its patience when a training resumes.
    """

    num_train_epochs: float | None = field(
        default=None, metadata={"help": "Epochs, in the place of --min_epochs and --min_steps."}
    )
    min_epochs: float = field(default=3.0, metadata={"help": "Train for at least as many epochs."})
    min_steps: int = field(
        default=0, metadata={"help": "Train for more epochs where --min_epochs would be fewer steps than this."}
    )
    new_parameters_learning_rate: float | None = field(
        default=None,
        metadata={
            "help": "Learning rate of stream attention, fusion and head, which are new. Default: --learning_rate."
        },
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
        if not 0 < self.min_epochs < math.inf:
            raise ValueError(f"--min_epochs must be more than 0, got {self.min_epochs}.")
        if self.num_train_epochs is None:
            self.num_train_epochs = self.min_epochs
        else:
            self.min_steps = 0
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
        args, kwargs: The arguments of [`Trainer`]. `compute_metrics` defaults to [`compute_metrics`].
        base_model, dataset, dataset_config, split: Arguments of [`HubTrainer`].
        train_timelines (`Sequence[Timeline]`, *optional*): The timelines of the training rows, for a model that
            learns states.
        train_survey ([`Survey`], *optional*): The survey of the training posts, for the card.
    """

    def __init__(
        self,
        *args,
        train_timelines: Sequence[Timeline] | None = None,
        train_survey: Survey | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        config = self.model.config
        self.train_timelines, self.train_survey = train_timelines, train_survey
        self.class_names = [config.id2label[label] for label in range(config.num_labels)]
        if self.compute_metrics is None:
            self.compute_metrics = compute_metrics(self.class_names)
            names, metric = ["loss", *score_names(self.class_names)], self.args.metric_for_best_model
            if metric is not None and metric.removeprefix("eval_") not in names:
                raise ValueError(f"--metric_for_best_model {metric} is none of the scores: {', '.join(names)}.")
        if self.args.early_stopping_patience is not None:
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping_patience))

    def train(self, *args, **kwargs):
        """Trains as the library does, grows experts ([`grow_experts`]), and warns if the model has learned nothing."""
        result = super().train(*args, **kwargs)
        kept = kept_evaluation(self.state, self.args.load_best_model_at_end)
        model, rows = self.accelerator.unwrap_model(self.model), self.train_dataset
        has_experts = len(getattr(model.config, "experts", ())) > 1
        if has_experts and "held_out" in (getattr(rows, "column_names", None) or ()):
            # Each process grows the same experts on all posts, which the Trainer's own loader would share out.
            batches = DataLoader(rows, self.args.eval_batch_size, collate_fn=self.data_collator)
            posts = self.train_timelines if model.config.states else None
            grow_experts(model, batches, self.args.seed, posts, None if posts is None else post_vectors(rows, posts))
            if kept:
                # Evaluated inside the training, since after it `--bf16_full_eval` would leave the weights in 16 bits.
                self.is_in_train = True
                kept = self.predict(self.eval_dataset, metric_key_prefix="eval").metrics
                self.is_in_train = False
        if self.is_world_process_zero():
            warn_of_worthless(kept, self.class_names)
        return result

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """
        Evaluates as the library does. In a training, an evaluation that ties with the best one becomes the best if its
        loss is lower. The library keeps the first, and models that predict only one class all tie.
        """
        metrics = super().evaluate(*args, **kwargs)
        metric = (self.args.metric_for_best_model or "").removeprefix("eval_")
        is_tied = self.state.best_metric is not None and metrics.get(f"eval_{metric}") == self.state.best_metric
        best_loss = kept_evaluation(self.state, best=True).get("eval_loss", -math.inf)
        if self.is_in_train and is_tied and metrics.get("eval_loss", math.inf) < best_loss:
            # The library compares next, and finds no best evaluation.
            self.state.best_metric = None
        return metrics

    def whole_model(self) -> PreTrainedModel:
        """The model. If FSDP shards it, all processes must call this, and the first one gets a whole copy."""
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

    def predict_posts(
        self, items: Dataset, timelines: Sequence[Timeline], metric_key_prefix: str = "predict"
    ) -> dict[str, float]:
        """
        Predicts posts, and attaches the logits to their timelines.

        Args:
            items (`Dataset`): Rows from [`to_rows`], or items of one post, as [`attach_logits`] takes them.
            timelines (`Sequence[Timeline]`): The timelines of the rows.
            metric_key_prefix (`str`, *optional*, defaults to `"predict"`): Prefix of the metrics.

        Returns:
            The metrics of [`Trainer.predict`]. Raises a `ValueError` that names the first post with a logit that is
            NaN or infinite.
        """
        # With `group_by_length` the Trainer would reorder what it predicts, too.
        strategy, self.args.train_sampling_strategy = self.args.train_sampling_strategy, "sequential"
        try:
            output = self.predict(items, metric_key_prefix=metric_key_prefix)
        finally:
            self.args.train_sampling_strategy = strategy
        logits, states = output.predictions if isinstance(output.predictions, tuple) else (output.predictions, None)
        # An item may be one post, without a dimension for posts.
        attach_logits(timelines, items, logits if logits.ndim == 3 else logits[:, None], states)
        return output.metrics

    def predict_experts(
        self, items: Dataset, timelines: Sequence[Timeline]
    ) -> dict[str, tuple[float, np.ndarray]] | None:
        """
        Predicts posts by each expert alone. The arguments are those of [`StreamTrainer.predict_posts`].

        Returns the weight of each expert and the class ids (posts,) of its largest logits, by name. None for a model
        without other experts than its network, and for posts that the encoder would have to read for each once more.
        """
        config = self.model.config
        weights = getattr(config, "expert_weights", None)
        if weights is None or "post_index" not in items.column_names:
            return None
        alone = {}
        try:
            for number, name in enumerate(config.experts):
                config.expert_weights = np.eye(len(weights))[number].tolist()
                copies = [replace(timeline) for timeline in timelines]
                self.predict_posts(items, copies)
                alone[name] = weights[number], decide_posts(copies, None)[0]
        finally:
            config.expert_weights = weights
        return alone

    def predict_timelines(
        self,
        split: Literal["validation", "test"],
        items: Mapping[str, Dataset],
        timelines: Mapping[str, Sequence[Timeline]],
        with_texts: bool = True,
    ) -> dict[str, Any]:
        """
        Predicts the posts of a split, with the calibration that the model has, and scores them beside methods that
        learn from the split `train`, if it is given. Writes the predictions and figures of the test split, and logs
        the metrics of the validation split.

        Args:
            split (`"validation"` or `"test"`): The split.
            items (`Mapping[str, Dataset]`): Items of each split, as [`StreamTrainer.predict_posts`] takes them.
            timelines (`Mapping[str, Sequence[Timeline]]`): Timelines of each split.
            with_texts (`bool`, *optional*, defaults to `True`): If True, texts are written with the predictions.

        Returns:
            The metrics of [`Trainer.predict`], the scores of [`score_part`], and `posts_per_second` (over frozen
            embeddings `embedded_posts_per_second`). All names begin with `eval_` (validation) or `predict_` (test).
        """
        prefix, asked, names = "eval" if split == "validation" else "predict", timelines[split], self.class_names
        metrics = self.predict_posts(items[split], asked, prefix)
        calibration = getattr(self.model.config, "calibration", None)
        predictions, probabilities = decide_posts(asked, calibration)
        if split == "test" and self.is_world_process_zero():
            uncalibrated = None if calibration is None else decide_posts(asked, None)[1]
            table = prediction_rows(asked, predictions, probabilities, names, with_texts, self.model.config)
            write_predictions(self.args.output_dir, table)
            write_mistakes(self.args.output_dir, table, asked)
            write_test_figures(self.args.output_dir, asked, predictions, probabilities, names, uncalibrated)
        vectors = None
        if split == "test" and "train" in timelines and "post_index" in (items["train"].column_names or ()):
            vectors = tuple(post_vectors(items[part], timelines[part]) for part in ("train", "test"))
        train = timelines.get("train")
        experts = self.predict_experts(items[split], asked) if split == "test" else None
        config = self.model.config
        scores = score_part(asked, predictions, probabilities, names, train, vectors, experts, config)
        watched = getattr(config, "watched", None)
        if watched is not None:
            scores["watched"] = names[watched]
            scores["watched_threshold"] = watched_threshold(config, calibration)
        if split == "test" and asked[0].state_logits is not None:
            scores["states"] = score_states(asked, self.model.config, train)
        if seconds := metrics[f"{prefix}_runtime"]:
            # Over frozen embeddings, this time does not include the encoder's.
            embedded = self.args.freeze_encoder or not self.model.base_model_prefix
            number = np.count_nonzero(predictions >= 0)
            scores["embedded_posts_per_second" if embedded else "posts_per_second"] = number / seconds
        if not scores["labelled_posts"]:
            metrics.pop(f"{prefix}_loss", None)
        # The Trainer's own scores ignore the calibration.
        results = metrics | {f"{prefix}_{name}": value for name, value in scores.items()}
        if split == "validation":
            self.log({name: results[name] for name in metrics})
        return results

    def log_metrics(self, split: str, metrics: dict[str, Any]):
        """Prints a table of the last split, and a line of each other one."""
        name, results = SPLIT_NAMES.get(split, split), group_by_class(metrics, split, self.class_names)
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

    def test_results(self) -> dict[str, Any]:
        """The results of the test of this run, as `all_results.json` has them; empty without a test."""
        return group_by_class(self.saved_metrics.get("predict", {}), "predict", self.class_names)

    def card_verdict(self) -> list[str]:
        return test_summary(self.test_results())

    def card_alarm(self) -> str | None:
        return alarm_sentence(self.model.config)

    def card_groups(self) -> list[list[str]]:
        return group_rows(self.test_results())

    def training_posts(self) -> dict[str, Any] | None:
        if self.train_survey is None:
            return None
        counts = self.train_survey.labels
        labels = {name: counts[label] for label, name in enumerate(self.class_names)}
        return {"timelines": len(self.train_survey.timeline_ids), "posts": counts.total(), "labels": labels}

    def write_results(self):
        results = {
            SPLIT_NAMES.get(split, split): group_by_class(metrics, split, self.class_names)
            for split, metrics in self.saved_metrics.items()
        }
        write_json(Path(self.args.output_dir) / RESULTS, results)

    def calibrate(self, items: Dataset, timelines: Sequence[Timeline], wanted: Mapping[str, float] | None = None):
        """
        Fits a temperature, and decision thresholds or the threshold of alarms, to the labelled posts of validation
        timelines, and saves the model with them.

        Args:
            items (`Dataset`): As in [`StreamTrainer.predict_posts`].
            timelines (`Sequence[Timeline]`): The timelines of the items.
            wanted (`dict[str, float]`, *optional*): The precision or the recall that alarms shall have, as
                [`choose_threshold`] takes it. Labels are then the most probable classes; without it thresholds are
                fitted, by which labels maximise macro F1.

        Raises a `ValueError` for a precision that no threshold gives, and without a class to watch.
        """
        self.predict_posts(items, timelines)
        labels = all_labels(timelines)
        labelled, config = labels >= 0, self.model.config
        logits = torch.cat([timeline.logits for timeline in timelines])[torch.from_numpy(labelled)]
        calibration = {"temperature": fit_temperature(logits.numpy(), labels[labelled])}
        if wanted:
            decided = decide_posts(timelines, calibration)
            rule = config.watched, wanted, config.first_posts
            calibration["alarm"] = choose_alarm(timelines, *decided, self.class_names, *rule)
        else:
            probabilities, _ = decide(logits, calibration)
            calibration["thresholds"] = tune_thresholds(probabilities.numpy(), labels[labelled])
        config.calibration = calibration
        if self.is_world_process_zero() and (sentence := alarm_sentence(config)):
            print(f"Alarms: {sentence}")
        if not self.args.do_train:
            # The weights may still be only in another folder.
            self.save_model()
        elif self.is_world_process_zero():
            config.save_pretrained(self.args.output_dir)
