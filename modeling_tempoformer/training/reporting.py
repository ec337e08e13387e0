"""The last step of a run: scores, calibration, predictions, the page, and the push."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from datasets import Dataset
from transformers import PreTrainedConfig

from ..data.arguments import DataTrainingArguments
from ..evaluation.latex import write_test_table
from ..evaluation.method_names import checkpoint_name
from ..evaluation.predictions import all_labels
from ..evaluation.report import group_by_class, read_test, test_summary, warn_of_worthless
from ..timeline_tempoformer import Timeline, row_bounds
from ..view.timelines import TIMELINES, write_view
from .arguments import ModelArguments
from .hub_trainer import kept_evaluation
from .resuming import clear_results, report_metrics
from .seeds import score_seeds, seed_folders
from .stream_trainer import StreamTrainer


# Labelled training posts from which a trained encoder was better than a frozen one (docs/results.md)
ENOUGH_LABELS = 5000
# The setting of configuration/trained_encoder.yaml
TARGETS_PER_ROW = 16
SAMPLE = 64  # posts
GAIN_OF_BFLOAT16 = 0.8


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
        # The scores are those of the plain model, to which a new calibration is fitted below.
        trainer.model.config.calibration = None
    # After a training without an evaluation, the last one of the training
    validation = kept_evaluation(trainer.state, training.load_best_model_at_end) if training.do_train else {}
    if training.do_eval:
        validation = trainer.predict_timelines("validation", items, timelines)
        report_metrics(trainer, "eval", validation)
    if training.do_train and trainer.is_world_process_zero():
        warn_of_worthless(validation, trainer.class_names)
    if calibrates:
        trainer.calibrate(items["validation"], timelines["validation"], getattr(model_args, "wanted_share", None))
    if training.do_predict:
        metrics = trainer.predict_timelines("test", items, timelines, not data.no_text)
        if seed_folders(model_args, training) and metrics["predict_labelled_posts"]:
            own = {name.removeprefix("predict_"): value for name, value in metrics.items()}
            metrics["predict_seeds"] = score_seeds(own, trainer.class_names, model_args, training)
        report_metrics(trainer, "predict", metrics)
        if trainer.is_world_process_zero():
            config, results = trainer.model.config, group_by_class(metrics, "predict", trainer.class_names)
            method = getattr(model_args, "method", None) or config.model_type
            write_test_table(training.output_dir, results, method, encoder_name(model_args, config))
    if model_args.view:
        write_page(trainer, timelines["test"], model_args)
    if training.do_train and training.freeze_encoder:
        advise_to_train_encoder(trainer, timelines["train"])
    trainer.finish(has_changed=training.do_train or calibrates)


def encoder_name(model_args: ModelArguments, config: PreTrainedConfig) -> str | None:
    """The name of the encoder; its type, where a saved model does not know more."""
    encoder = getattr(config, "encoder_config", None)
    return checkpoint_name(model_args.source if encoder is None else encoder.name_or_path or encoder.model_type)


def advise_to_train_encoder(trainer: StreamTrainer, timelines: Sequence[Timeline]):
    """
    Prints how to train the encoder, too, and how long that takes here, if there are so many labelled posts that it
    learns more. A model with states is not told so, because only a frozen encoder learns them.
    """
    labelled = int((all_labels(timelines) >= 0).sum())
    if labelled < ENOUGH_LABELS or trainer.model.config.states or not trainer.is_world_process_zero():
        return
    model, window = trainer.accelerator.unwrap_model(trainer.model), trainer.model.config.window
    bounds = [bound for timeline in timelines for bound in row_bounds(len(timeline), window, TARGETS_PER_ROW)]
    texts = [text for timeline in timelines for text in timeline.texts]
    sample = texts[:: max(1, len(texts) // SAMPLE)][:SAMPLE]
    inputs = trainer.processing_class(sample, truncation=True, padding=True, return_tensors="pt").to(model.device)
    embed, device = partial(model.base_model.embed_posts, **inputs), model.device.type
    seconds, in_bfloat16 = (seconds_of(embed, device, in_16_bits) for in_16_bits in (False, True))
    options = ""
    # Only some processors compute in bfloat16; on others it is slower.
    if in_bfloat16 < GAIN_OF_BFLOAT16 * seconds:
        seconds, options = in_bfloat16, f", and add {'--use_cpu ' * (device == 'cpu')}--bf16"
    # A pass back costs two passes forward.
    seconds *= 3 * trainer.args.min_epochs * sum(end - begin for begin, _, end in bounds) / len(sample)
    print(
        f"{labelled:,} labelled posts may be enough for the encoder to learn, too (macro F1 was 4.7 points higher on "
        "Ubuntu IRC with 8,891, and the same on MELD with 7,174): give configuration/default.yaml and "
        f"configuration/trained_encoder.yaml before the options of this command{options}. "
        f"It takes about {max(1, round(seconds / 60))} minutes here."
    )


@torch.no_grad()
def seconds_of(embed: Callable[[], torch.Tensor], device: str, in_bfloat16: bool) -> float:
    """Returns the seconds that encoding posts takes on a device, as training would do it, from its second run."""
    with torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
        for _ in range(2):
            start = time.perf_counter()
            # The sum waits for the device.
            float(embed().float().sum())
    return time.perf_counter() - start


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
    verdict = test_summary(results, model.config)
    write_view(path, model, trainer.processing_class, timelines, "Test timelines", verdict, folder=folder)
