"""What follows once a Trainer is made: train, evaluate, calibrate, predict, push."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.arguments import DataTrainingArguments
from ..data.files import write_json
from ..data.split_record import SPLIT
from ..data.timelines import Posts
from ..evaluation.figures import print_figures
from .arguments import ModelArguments
from .hub_trainer import name_dataset
from .resuming import clear_results, report, train
from .stream_trainer import StreamTrainer
from .timeline_view import TIMELINES, write_view


def run_steps(
    trainer: StreamTrainer,
    items: Mapping[str, Any],
    post_ids: Mapping[str, Sequence[Sequence[str]]],
    timelines: Mapping[str, Posts],
    split: Mapping[str, Sequence[str]],
    model_args: ModelArguments,
    data: DataTrainingArguments,
):
    """
    Does what the Trainer's arguments ask for, in this order.

    Args:
        trainer (`StreamTrainer`): With a model, and the items to train and evaluate on.
        items, post_ids, timelines (`dict`): As in [`StreamTrainer.predict_timelines`].
        split (`dict`): As [`make_split`] returns it.
        model_args, data: The script's other arguments.
    """
    training, config = trainer.args, trainer.model.config
    trainer.base_model = model_args.model_name_or_path
    name_dataset(training, data.dataset_name, data.dataset_config_name)
    if training.do_train:
        train(trainer, timelines["train"], model_args, data, split=split)
    elif training.do_eval or training.do_predict or model_args.calibrate:
        clear_results(training)
    if model_args.calibrate:
        if not training.do_train and trainer.is_world_process_zero():
            write_json(Path(training.output_dir) / SPLIT, split)
        # It is fitted anew below, to the scores of the plain model.
        config.calibration = None
    if training.do_eval:
        report(trainer, "eval", trainer.predict_timelines("validation", items, post_ids, timelines))
    if model_args.calibrate:
        trainer.calibrate(items["validation"], post_ids["validation"], timelines["validation"])
    if training.do_predict:
        shown = timelines["test"]
        if data.no_text:
            timelines = {**timelines, "test": timelines["test"].remove_columns("texts")}
        report(trainer, "predict", trainer.predict_timelines("test", items, post_ids, timelines))
        if model_args.view and trainer.is_world_process_zero():
            page = Path(training.output_dir) / TIMELINES
            write_view(page, trainer.model, trainer.processing_class, shown, "Test timelines")
    if trainer.is_world_process_zero():
        print_figures(training.output_dir)
    if training.push_to_hub:
        trainer.push_to_hub()
    elif training.do_train or model_args.calibrate:
        trainer.create_model_card()
