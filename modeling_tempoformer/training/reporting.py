"""The last step of a run: scores, calibration, predictions, the page, and the push."""

import logging
from collections.abc import Mapping
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedConfig

from ..evaluation.latex import write_test_table
from ..evaluation.method_names import checkpoint_name
from ..evaluation.report import confusion_rows, group_by_class, read_test, test_summary, warn_of_worthless
from ..posts.arguments import DataTrainingArguments
from ..timeline_tempoformer import Timeline
from ..view.timelines import TIMELINES, write_view
from .arguments import ModelArguments
from .hub_trainer import kept_evaluation
from .resuming import clear_results, clear_test
from .stream_trainer import StreamTrainer


logger = logging.getLogger(__name__)


def report_results(
    trainer: StreamTrainer,
    items: Mapping[str, Dataset],
    timelines: Mapping[str, list[Timeline]],
    model_args: ModelArguments,
    data: DataTrainingArguments,
):
    """
    Evaluates, calibrates, predicts and pushes, as far as the arguments ask for it.

    Args:
        trainer ([`StreamTrainer`]): The Trainer, after its training if there is one.
        items (`Mapping[str, Dataset]`): Items of each split, as [`StreamTrainer.predict_posts`] takes them.
        timelines (`Mapping[str, list[Timeline]]`): Timelines of each split.
        model_args, data: The script's arguments.
    """
    training, calibrates = trainer.args, model_args.calibrate
    if not training.do_train and (training.do_eval or training.do_predict or calibrates):
        clear_results(training)
    if calibrates:
        # Validation scores are of the uncalibrated model; a new calibration is fitted below.
        trainer.model.config.calibration = None
    # Without --do_eval, the evaluation of the kept weights during the training
    validation = kept_evaluation(trainer.state, training.load_best_model_at_end) if training.do_train else {}
    if training.do_eval:
        validation = trainer.predict_timelines("validation", items, timelines)
        trainer.report("eval", validation)
    if training.do_train and trainer.is_world_process_zero():
        warn_of_worthless(validation, trainer.class_names)
    if calibrates:
        trainer.calibrate(items["validation"], timelines["validation"], model_args.goal)
    if training.do_predict:
        clear_test(training)
        # The page explains the same posts.
        metrics = trainer.predict_timelines("test", items, timelines, not data.no_text, model_args.view)
        trainer.report("predict", metrics)
        if trainer.is_world_process_zero():
            config, results = trainer.model.config, group_by_class(metrics, "predict", trainer.class_names)
            method = getattr(model_args, "method", None) or config.model_type
            write_test_table(training.output_dir, results, method, encoder_name(model_args, config))
    if model_args.view:
        write_page(trainer, timelines["test"], model_args)
    tell_kept(trainer, model_args)
    trainer.finish(has_changed=training.do_train or calibrates)


def tell_kept(trainer: StreamTrainer, model_args: ModelArguments):
    """Logs what stays from an earlier run with the same weights, whose alarms may have been others."""
    kept = {}
    if "test" in trainer.kept_results and not trainer.args.do_predict:
        kept["--do_predict"] = "the scores and predictions of the test"
    if trainer.kept_results and not model_args.view and (Path(trainer.args.output_dir) / TIMELINES).exists():
        kept["--view"] = f"the page {TIMELINES}"
    if kept and trainer.is_world_process_zero():
        what, options = " and ".join(kept.values()), " ".join(kept)
        logger.warning("Kept from the run before, with its alarms: %s. To make them anew, add %s.", what, options)


def encoder_name(model_args: ModelArguments, config: PreTrainedConfig) -> str | None:
    """Returns the name of the encoder, or its type if a saved model does not know the name."""
    encoder = getattr(config, "encoder_config", None)
    return checkpoint_name(model_args.source if encoder is None else encoder.name_or_path or encoder.model_type)


def write_page(trainer: StreamTrainer, timelines: list[Timeline], model_args: ModelArguments):
    """Writes `_timelines.html`, a page to look at test timelines, with a summary of the model's own test."""
    model = trainer.whole_model()
    if not trainer.is_world_process_zero():
        return
    if trainer.args.do_train:
        results = trainer.test_results()
    else:
        results = read_test(model_args.source, **model_args.downloads)
    path = Path(trainer.args.output_dir) / TIMELINES
    folder = trainer.args.output_dir if trainer.args.do_train or model_args.calibrate else model_args.source
    shown = {"verdict": test_summary(results, model.config), "confusion": confusion_rows(results)}
    write_view(path, model, trainer.processing_class, timelines, "Test timelines", **shown, folder=folder)
