"""The Trainer for streams of posts."""

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import EarlyStoppingCallback

from ..common.command_line import check_positive
from ..common.files import write_json
from ..configuration_streams_tempoformer import StreamFields
from ..decisions_tempoformer import class_names, watched_threshold
from ..evaluation.alarm_goals import AlarmGoal
from ..evaluation.alarms import alarm_sentence
from ..evaluation.calibration import fit_calibration
from ..evaluation.figures import write_alarm_figure, write_test_figures
from ..evaluation.metrics import compute_metrics, score_names
from ..evaluation.prediction_table import (
    GIVEN,
    GIVEN_BUT_TEXTS,
    prediction_rows,
    write_held_out,
    write_mistakes,
    write_predictions,
)
from ..evaluation.predictions import attach_logits, decide_experts, decide_posts
from ..evaluation.report import (
    RESULTS,
    confusion_rows,
    cost_rows,
    group_by_class,
    group_rows,
    results_line,
    results_table,
    score_part,
    test_summary,
    training_line,
)
from ..evaluation.state_scores import score_states
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..posts.surveys import Survey
from ..timeline_tempoformer import Timeline
from .frozen_encoder import embed_rows, post_vectors
from .hub_trainer import SPLIT_NAMES, HubTrainer, HubTrainingArguments


logger = logging.getLogger(__name__)

# Outputs of models that predictions do not need
OUTPUTS_LEFT_OUT = ["stream_attentions", "hidden_states", "attentions"]


@dataclass(repr=False)
class StreamTrainingArguments(HubTrainingArguments):
    """
    [`HubTrainingArguments`] for streams of posts.

    Args:
        model_card, push_to_hub_dry_run: Fields of [`HubTrainingArguments`].
        min_steps (`int`, *optional*, defaults to 0): Fewest optimiser steps. The training has as many epochs as they
            take, if these are more than `num_train_epochs`.
        new_parameters_learning_rate (`float`, *optional*): Learning rate of everything outside the pretrained encoder.
            Default: `learning_rate`.
        freeze_encoder (`bool`, *optional*, defaults to `False`): If True, only new parts learn, over vectors of
            posts that are computed once. For a `post_tempoformer`.
        freeze_layers (`int`, *optional*): Number of the encoder's lowest layers that do not learn, nor the embeddings.
        early_stopping_patience (`int`, *optional*): Number of evaluations without a better `metric_for_best_model`
            after which the training stops, if it has evaluations.
        restore_callback_states_from_checkpoint (`bool`, *optional*, defaults to `True`): If True, early stopping
            keeps its patience when a training resumes.
    """

    min_steps: int = field(
        default=0,
        metadata={
            "help": "Train for more epochs where --num_train_epochs would be fewer steps than this. A recipe's is not "
            "read where the command line has --num_train_epochs."
        },
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
    freeze_layers: int | None = field(
        default=None,
        metadata={"help": "Keep the embeddings and this many of the encoder's lowest layers as they are."},
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Stop after this many evaluations without a better --metric_for_best_model."}
    )
    restore_callback_states_from_checkpoint: bool = True

    def __post_init__(self):
        if self.dataloader_drop_last:
            raise ValueError("--dataloader_drop_last cannot be given: every post is evaluated and predicted.")
        check_positive(self, "early_stopping_patience", "freeze_layers")
        if self.freeze_layers is not None and self.freeze_encoder:
            raise ValueError("--freeze_encoder keeps all layers as they are: leave out --freeze_layers.")
        if self.min_steps < 0:
            raise ValueError(f"--min_steps must be at least 0, got {self.min_steps}.")
        super().__post_init__()

    @property
    def finds_best(self) -> bool:
        """True if evaluations during a training find its best step, so that it may stop early."""
        return self.metric_for_best_model is not None and self.eval_strategy != "no"

    def extend_epochs(self, num_rows: int):
        """Raises `num_train_epochs` until `num_rows` training rows give `min_steps` optimiser steps."""
        steps = self.min_steps / self.steps_per_epoch(num_rows)
        self.num_train_epochs = max(self.num_train_epochs, math.ceil(steps))

    def steps_per_epoch(self, num_rows: int) -> int:
        """Returns the number of optimiser steps in an epoch of `num_rows` training rows."""
        return math.ceil(num_rows / (self.train_batch_size * self.world_size * self.gradient_accumulation_steps))


class StreamTrainer(HubTrainer):
    """
    The Trainer for streams of posts: `args.new_parameters_learning_rate`, early stopping, scores and predictions of
    single posts, calibration.

    Args:
        args, kwargs: Passed on to [`Trainer`]. `compute_metrics` defaults to [`compute_metrics`].
        base_model, dataset, dataset_config, split: Passed on to [`HubTrainer`].
        train_survey ([`Survey`], *optional*): The survey of the training posts, for the card.
    """

    def __init__(self, *args, train_survey: Survey | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        config = self.model.config
        self.train_survey = train_survey
        self.class_names = class_names(config)
        if self.compute_metrics is None:
            self.compute_metrics = compute_metrics(self.class_names)
            names, metric = ["loss", *score_names(self.class_names)], self.args.metric_for_best_model
            if metric is not None and metric.removeprefix("eval_") not in names:
                raise ValueError(f"--metric_for_best_model {metric} is none of the scores: {', '.join(names)}.")
        if self.args.early_stopping_patience is not None and self.args.finds_best:
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping_patience))

    def extra_learning_rate(self) -> tuple[float | None, list[nn.Parameter]]:
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
            output = self.predict(items, OUTPUTS_LEFT_OUT, metric_key_prefix)
        finally:
            self.args.train_sampling_strategy = strategy
        logits, *others = output.predictions if isinstance(output.predictions, tuple) else (output.predictions,)
        experts = others.pop() if len(getattr(self.model.config, "experts", ())) > 1 else None
        # An item may be one post, without a dimension for posts.
        attach_logits(timelines, items, logits if logits.ndim == 3 else logits[:, None], *(others or [None]), experts)
        return output.metrics

    def predict_timelines(
        self,
        split: Literal["validation", "test"],
        items: Mapping[str, Dataset],
        timelines: Mapping[str, Sequence[Timeline]],
        with_texts: bool = True,
        keeps_vectors: bool = False,
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
            keeps_vectors (`bool`, *optional*, defaults to `False`): If True, the timelines get the vectors of a post
                model's posts, each encoded once, before the prediction, also in several processes, where otherwise
                each encodes its own. A model that FSDP shards gives none.

        Returns:
            The metrics of [`Trainer.predict`], the scores of [`score_part`], and `posts_per_second` (over frozen
            embeddings `embedded_posts_per_second`). All names begin with `eval_` (validation) or `predict_` (test).
        """
        prefix, tested, names = "eval" if split == "validation" else "predict", timelines[split], self.class_names
        rows, begun = items[split], time.perf_counter()
        # Each of several processes would encode all posts.
        if keeps_vectors or self.args.world_size == 1:
            rows = self.embed_posts(rows, tested)
        seconds = time.perf_counter() - begun
        config, unknown = self.model.config, None
        if getattr(config, "reads_known_states", False):
            bare = [replace(timeline) for timeline in tested]
            self.predict_posts(rows.remove_columns("earlier_states"), bare, prefix)
            unknown = decide_posts(bare, getattr(config, "calibration", None))[1]
        metrics = self.predict_posts(rows, tested, prefix)
        metrics[f"{prefix}_runtime"] += seconds
        calibration = getattr(self.model.config, "calibration", None)
        predictions, probabilities = decide_posts(tested, calibration)
        if split == "test" and self.is_world_process_zero():
            uncalibrated = None if calibration is None else decide_posts(tested, None)[1]
            given = GIVEN if with_texts else GIVEN_BUT_TEXTS
            table = prediction_rows(tested, predictions, probabilities, names, given, self.model.config)
            write_predictions(self.args.output_dir, table)
            write_mistakes(self.args.output_dir, table, tested)
            write_test_figures(self.args.output_dir, tested, predictions, probabilities, names, uncalibrated)
        if split == "validation" and self.is_world_process_zero():
            table = prediction_rows(tested, *decide_posts(tested, None), names, GIVEN_BUT_TEXTS)
            write_held_out(self.args.output_dir, table, tested)
        vectors = None
        if split == "test" and "train" in timelines and "post_index" in (items["train"].column_names or ()):
            # Without what the words of this model say; networks of `research` have vectors of an encoder alone.
            encoder = getattr(config, "encoder_config", None)
            hidden = None if encoder is None else encoder.hidden_size
            vectors = tuple(post_vectors(items[part], timelines[part])[:, :hidden] for part in ("train", "test"))
        train = timelines.get("train")
        mixture = getattr(self.model, "mixture", None)
        experts = None
        if split == "test" and mixture is not None:
            weights = dict(zip(config.experts, mixture.weights.tolist(), strict=True))
            experts = decide_experts(tested, weights, calibration)
        scores = score_part(tested, predictions, probabilities, names, train, vectors, experts, config, unknown)
        watched = getattr(config, "watched", None)
        if watched is not None:
            scores["watched"] = names[watched]
            scores["watched_threshold"] = watched_threshold(config, calibration)
        if split == "test" and "alarm" in scores and self.is_world_process_zero():
            write_alarm_figure(self.args.output_dir, tested, probabilities, config, scores["alarm"])
        if split == "test" and tested[0].state_logits is not None:
            scores["states"] = score_states(tested, self.model.config, train)
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

    def embed_posts(self, rows: Dataset, timelines: Sequence[Timeline]) -> Dataset:
        """
        Encodes each post once, unless rows of [`to_rows`] have vectors. Returns rows with vectors, which the timelines
        get, too; the same rows for the paper's model and for one that FSDP shards.
        """
        if "post_index" not in rows.column_names:
            if self.is_fsdp_enabled or not isinstance(self.model, PostTempoFormerForStreamClassification):
                return rows
            # In the precision in which the Trainer predicts
            with self.accelerator.autocast():
                rows = embed_rows({"rows": rows}, self.model, self.processing_class, keeps=False)["rows"]
        vectors = torch.from_numpy(post_vectors(rows, timelines))
        for timeline, part in zip(timelines, vectors.split(list(map(len, timelines))), strict=True):
            timeline.vectors = part
        return rows

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
        """The results of the test of these weights, as `all_results.json` has them; empty without a test."""
        if "predict" not in self.saved_metrics:
            return self.kept_results.get("test", {})
        return group_by_class(self.saved_metrics["predict"], "predict", self.class_names)

    def card_titles(self) -> dict[str, str]:
        no_change = self.test_results().get("no_change")
        named = {} if no_change is None else {"change_f1": f"F1 of all classes but {no_change}"}
        return super().card_titles() | named

    def card_verdict(self) -> list[str]:
        return test_summary(self.test_results())

    def card_alarm(self) -> str | None:
        return alarm_sentence(self.model.config)

    def card_groups(self) -> list[list[str]]:
        return group_rows(self.test_results())

    def card_costs(self) -> list[list[str]]:
        return cost_rows(self.test_results())

    def card_confusion(self) -> list[list[str]]:
        return confusion_rows(self.test_results())

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
        write_json(Path(self.args.output_dir) / RESULTS, self.kept_results | results)

    def calibrate(self, items: Dataset, timelines: Sequence[Timeline], goal: AlarmGoal | None = None):
        """
        Fits a temperature, and decision thresholds or the threshold of alarms, to the labelled posts of validation
        timelines, and saves the model with them.

        Args:
            items (`Dataset`): Rows from [`to_rows`], or items of one post, of the validation timelines.
            timelines (`Sequence[Timeline]`): The timelines of the items.
            goal ([`AlarmGoal`], *optional*): As [`fit_calibration`] takes it.

        Raises the errors of [`fit_calibration`].
        """
        self.predict_posts(items, timelines)
        config = self.model.config
        config.calibration = fit_calibration(timelines, config, goal)
        if self.is_world_process_zero() and (sentence := alarm_sentence(config)):
            print(f"Alarms: {sentence}")
        if not self.args.do_train:
            # The weights may still be only in another folder.
            self.save_model()
        elif self.is_world_process_zero():
            config.save_pretrained(self.args.output_dir)
