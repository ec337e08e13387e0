"""Fine-tunes, evaluates and predicts with a TempoFormer, or what it is compared with, on timelines of posts.

    python run_glue_style.py configuration/lrs_fast.yaml --train_file threads.jsonl.gz --learning_rate 1e-5
    python run_glue_style.py configuration/lrs_fast.yaml configuration/variant_no_gate.yaml --train_file ...
    python run_glue_style.py configuration/lrs_fast.yaml configuration/baseline_bilstm.yaml --train_file ...

First arguments that end in .yaml or .json are recipes: their values are defaults, of which later files and then the
command line win. Dicts such as `config_overrides` are merged across files; the command line's replaces them.
"""

import csv
import json
import logging
import sys
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from transformers import (
    AutoConfig,
    AutoTokenizer,
    EarlyStoppingCallback,
    PreTrainedConfig,
    set_seed,
)

from modeling_tempoformer import StreamCollator, TempoFormerConfig, TempoFormerForStreamClassification
from modeling_tempoformer.baselines.class_prior import class_prior_predictions
from modeling_tempoformer.baselines.frozen_embeddings import reads_times
from modeling_tempoformer.baselines.prepare import BASELINES, BaselineSettings, Prepared
from modeling_tempoformer.baselines.prompting import few_shot_predictions
from modeling_tempoformer.data.corpora import read_annomi, read_rumoureval, read_talklife, read_topic_shift
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.splits import read_folds, select_fold, split_timelines
from modeling_tempoformer.data.tables import load_hub_splits, load_table
from modeling_tempoformer.data.timelines import Posts, label_names, to_timelines
from modeling_tempoformer.decisions_tempoformer import class_probabilities, rank_classes
from modeling_tempoformer.evaluation.metrics import compute_metrics
from modeling_tempoformer.evaluation.predictions import (
    labels_of,
    post_ids_of,
    prediction_rows,
    score_posts,
    targets_of,
    write_predictions,
    write_results,
)
from modeling_tempoformer.modeling_tempoformer_encoders import get_encoder_adapter
from modeling_tempoformer.training.hub_trainer import name_dataset
from modeling_tempoformer.training.recipes import check_overrides, parse, read_overrides
from modeling_tempoformer.training.resuming import report, train
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments


logger = logging.getLogger(__name__)

TASKS = {"lrs": read_rumoureval, "moc": read_talklife, "topic_shift": read_topic_shift, "annomi": read_annomi}
SHUFFLE_BUFFER = 1000  # rows
DEFAULT_WINDOW = 20
DEFAULT_EXAMPLES = 5
UNTRAINED = ("class_prior", "few_shot")
STOCK_BASELINES = ("post", "concatenated")  # models of Transformers
# Fields of configurations that the script sets itself, and what they are set by.
SETTLED = {
    "window": "give --window",
    "timed": "the posts' times settle it (--timestamp_column)",
    "class_weights": "they are counted in the training part",
    **dict.fromkeys(("num_labels", "id2label", "label2id"), "give --labels"),
    "encoder_config": "give --model_name_or_path or --config_name",
    "architecture": "give --method",
    "embedding_size": "it is that of --model_name_or_path",
}


@dataclass
class ModelArguments:
    """Which model."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "An encoder or a TempoFormer checkpoint."})
    config_name: str | None = field(default=None, metadata={"help": "An encoder's config, to train from scratch."})
    tokenizer_name: str | None = field(default=None, metadata={"help": "If not that of the model."})
    config_overrides: dict | str | None = field(default=None, metadata={"help": "Fields of TempoFormerConfig (JSON)."})
    method: Literal["tempoformer", "class_prior", "few_shot", *BASELINES] = field(
        default="tempoformer", metadata={"help": "TempoFormer, or what the paper compares it with."}
    )
    num_examples: int | None = field(default=None, metadata={"help": "Of --method few_shot; 5 if omitted."})
    calibrate: bool = field(
        default=False, metadata={"help": "Fit a temperature and decision thresholds on the validation part."}
    )

    def __post_init__(self):
        given = [name for name in ("model_name_or_path", "config_name") if getattr(self, name) is not None]
        if self.method == "class_prior" and given:
            raise ValueError(f"--method class_prior takes no --{given[0]}.")
        if self.method == "tempoformer" and len(given) != 1:
            raise ValueError("Give exactly one of --model_name_or_path and --config_name.")
        if self.method not in ("tempoformer", "class_prior") and given != ["model_name_or_path"]:
            raise ValueError(f"--method {self.method} needs --model_name_or_path, and no --config_name.")
        if self.num_examples is not None and self.num_examples < 1:
            raise ValueError(f"--num_examples must be at least 1, got {self.num_examples}.")
        for name, takers in (
            ("num_examples", ("few_shot",)),
            ("tokenizer_name", ("tempoformer",)),
            ("config_overrides", ("tempoformer", *BASELINES)),
        ):
            if getattr(self, name) is not None and self.method not in takers:
                raise ValueError(f"--{name} cannot be given with --method {self.method}.")
        if self.calibrate and self.method in UNTRAINED:
            raise ValueError(f"--calibrate cannot be given with --method {self.method}, which is not trained.")
        self.config_overrides = read_overrides(self.config_overrides)
        for name in self.config_overrides or ():
            if name in SETTLED:
                raise ValueError(f"--config_overrides cannot hold '{name}': {SETTLED[name]}.")


@dataclass
class DataTrainingArguments:
    """Which posts, and how they are cut to streams."""

    task_name: Literal["lrs", "moc", "topic_shift", "annomi"] | None = field(
        default=None, metadata={"help": "The files are in this corpus's original form; else tables of posts."}
    )
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset of posts instead of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Which configuration of it."})
    train_file: str | None = field(default=None, metadata={"help": "CSV, JSON lines or Parquet of posts."})
    validation_file: str | None = None
    test_file: str | None = None
    validation_fraction: float = field(default=0.25, metadata={"help": "Of what is left of --train_file."})
    test_fraction: float = field(default=0.2, metadata={"help": "Of --train_file where only that is given."})
    folds_file: str | None = field(
        default=None, metadata={"help": "Parts of --train_file by timeline (run_cross_validation.py writes it)."}
    )
    fold: int = field(default=0, metadata={"help": "Which fold of --folds_file, counting from 0."})
    timeline_column: str = "timeline_id"
    timestamp_column: str | None = field(default=None, metadata={"help": "'timestamp' if there is one."})
    text_column: str = "text"
    label_column: str | None = field(default=None, metadata={"help": "'label' if there is one."})
    id_column: str | None = None
    labels: list[str] | None = field(default=None, metadata={"help": "Label names; those of the posts if omitted."})
    streaming: bool = field(default=False, metadata={"help": "Never hold the training posts in memory."})
    window: int | None = field(
        default=None, metadata={"help": "Posts in a stream; the checkpoint's, or 20, or 1 of few_shot."}
    )
    targets_per_row: int = field(default=16, metadata={"help": "Posts classified in a row of a training batch."})
    max_seq_length: int | None = field(default=None, metadata={"help": "Tokens of a post; the checkpoint's, or 128."})
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Evaluations without a better --metric_for_best_model."}
    )

    def __post_init__(self):
        if self.window is not None and self.window < 1:
            raise ValueError(f"--window must be at least 1, got {self.window}.")


def load_posts(path: str, task_name: str | None, streaming: bool = False) -> Posts:
    """Posts from a file: of a corpus in its original form, or a table. CSV cells are text, an empty one is empty."""
    if task_name is not None:
        if streaming:
            return IterableDataset.from_generator(TASKS[task_name], gen_kwargs={"path": path})
        try:
            return Dataset.from_list(list(TASKS[task_name](path)))
        except (KeyError, UnicodeDecodeError, json.JSONDecodeError, csv.Error) as problem:
            found = f"{type(problem).__name__}: {problem}"
            raise ValueError(f"{path} is not in the original form of --task_name {task_name} ({found}).") from None
    return load_table(path, streaming)


def load_splits(data: DataTrainingArguments) -> dict[str, Posts]:
    """The given splits, as posts; with `--streaming` the training part is read anew in each pass."""
    files = {name: getattr(data, f"{name}_file") for name in ("train", "validation", "test")}
    if data.dataset_name is not None:
        if given := [name for name, path in files.items() if path is not None]:
            raise ValueError(f"Give --dataset_name or --{given[0]}_file, not both.")
        return load_hub_splits(data.dataset_name, data.dataset_config_name, data.streaming)
    splits = {
        name: load_posts(path, data.task_name, data.streaming and name == "train")
        for name, path in files.items()
        if path is not None
    }
    if not splits:
        raise ValueError("Give --dataset_name, or at least one of --train_file, --validation_file and --test_file.")
    return splits


def class_weights(timelines: Posts, num_labels: int) -> list[float]:
    """`sqrt(1 / p)` of each class's share p of the labelled training posts (paper, section 4.4)."""
    counts = np.zeros(num_labels, dtype=np.int64)
    for timeline in timelines.select_columns(["labels"]):
        labels = np.asarray(timeline["labels"])
        counts += np.bincount(labels[labels >= 0], minlength=num_labels)
    if not counts.all():
        raise ValueError(f"Some class has no post in the training part; posts of each class: {counts.tolist()}.")
    return np.sqrt(counts.sum() / counts).tolist()


def load_model(
    model_args: ModelArguments, encoder: PreTrainedConfig, window: int, names: list[str]
) -> TempoFormerForStreamClassification:
    """A TempoFormer as it was saved, or a new one on a pretrained or a new encoder."""
    if encoder.model_type == TempoFormerConfig.model_type:
        # Whatever it was saved in: mixed precision is the Trainer's `--bf16`.
        return TempoFormerForStreamClassification.from_pretrained(model_args.model_name_or_path, dtype=torch.float32)
    check_overrides(model_args.config_overrides, TempoFormerConfig)
    settings = {
        "window": window,
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
        **(model_args.config_overrides or {}),
    }
    if model_args.config_name is not None:
        return TempoFormerForStreamClassification(TempoFormerConfig(encoder_config=encoder, **settings))
    return TempoFormerForStreamClassification.from_encoder_pretrained(model_args.model_name_or_path, **settings)


def check_checkpoint(model_args: ModelArguments, data: DataTrainingArguments, saved: PreTrainedConfig):
    """What a TempoFormer checkpoint has settled cannot be asked for again."""
    names = [saved.id2label[index] for index in range(saved.num_labels)]
    for argument, wanted, have in (
        ("method", None if model_args.method == "tempoformer" else model_args.method, None),
        ("config_name", model_args.config_name, None),
        ("config_overrides", model_args.config_overrides, None),
        ("window", data.window, saved.window),
        ("labels", data.labels, names),
    ):
        if wanted is not None and wanted != have:
            has = "" if have is None else f"; it has {have}"
            raise ValueError(f"--{argument} {wanted} cannot be given with a TempoFormer checkpoint{has}.")


def timeline_columns(data: DataTrainingArguments) -> tuple[str | None, ...]:
    """The column names as [`to_timelines`] takes them."""
    id_column = data.id_column or ("post_id" if data.task_name else None)
    return data.timeline_column, data.timestamp_column, data.text_column, data.label_column, id_column


def split_posts(
    splits: dict[str, Posts], data: DataTrainingArguments, names: list[str], needs_validation: bool, seed: int
) -> dict[str, Posts]:
    """
    Timelines of each split; validation and test are taken from the training part where they are not given, as the
    fold says if there is one.
    """
    timelines = {name: to_timelines(posts, names, *timeline_columns(data)) for name, posts in splits.items()}
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"--labels has a label twice: {', '.join(repeated)}.")
    if len(names) < 2:
        raise ValueError(f"There must be at least two labels, the posts have: {', '.join(names) or 'none'}.")
    if data.folds_file is not None:
        timelines = fold_of(timelines, data)
    if data.streaming and needs_validation and "validation" not in timelines:
        raise ValueError("--streaming needs a validation part of its own: a stream cannot be split by timeline.")
    if set(timelines) == {"train"} and not data.streaming:
        timelines["train"], timelines["test"] = split_timelines(timelines["train"], data.test_fraction, seed)
    if needs_validation and "train" in timelines and "validation" not in timelines:
        timelines["train"], timelines["validation"] = split_timelines(
            timelines["train"], data.validation_fraction, seed
        )
    for name in ("train", "validation") if needs_validation else ():
        if name in timelines and not any(label >= 0 for timeline in timelines[name] for label in timeline["labels"]):
            raise ValueError(f"The {name} part has no labelled post.")
    for name, split in timelines.items():
        logger.info("%s: %s", name, "streamed" if isinstance(split, IterableDataset) else describe(split, names))
    return timelines


def describe(timelines: Dataset, names: list[str]) -> str:
    """How many timelines and posts a part has, and posts of each class."""
    labels = labels_of(timelines)
    counts = {name: int((labels == label).sum()) for label, name in enumerate(names)}
    counts["without label"] = int((labels < 0).sum())
    shares = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{len(timelines)} timelines, {len(labels)} posts ({shares})"


def fold_of(timelines: dict[str, Posts], data: DataTrainingArguments) -> dict[str, Dataset]:
    """The parts of the wanted fold."""
    if set(timelines) != {"train"} or data.streaming:
        raise ValueError("--folds_file splits --train_file: give no other file, and no --streaming.")
    folds = read_folds(data.folds_file, timelines["train"])
    if not 0 <= data.fold < len(folds):
        raise ValueError(f"--fold {data.fold}: {data.folds_file} has the folds 0 to {len(folds) - 1}.")
    return select_fold(timelines["train"], folds[data.fold])


def is_timed(timelines: dict[str, Posts]) -> bool:
    """Whether the timelines have times: all, or none."""
    timed = {name: "timestamps" in next(iter(split)) for name, split in timelines.items()}
    if len(set(timed.values())) > 1:
        raise ValueError(f"Some parts have timestamps and others not: {timed}.")
    return all(timed.values())


def check_calibration(validation: Posts, names: list[str]):
    """Thresholds need a post of every class."""
    present = {label for labels in validation["labels"] for label in labels}
    if missing := [name for label, name in enumerate(names) if label not in present]:
        raise ValueError(
            f"--calibrate needs posts of every class in the validation part; none of: {', '.join(missing)}."
        )


def prepare_tempoformer(
    model_args: ModelArguments,
    data: DataTrainingArguments,
    seed: int,
    encoder: PreTrainedConfig,
    timelines: dict[str, Posts],
    names: list[str],
    weights: list[float] | None,
) -> Prepared:
    """A TempoFormer, new or as it was saved, and the rows that it reads."""
    is_saved = encoder.model_type == TempoFormerConfig.model_type
    window = DEFAULT_WINDOW if data.window is None else data.window
    if is_saved:
        window = encoder.window
    model = load_model(model_args, encoder, window, names)
    timed = is_timed(timelines)
    if weights is not None:
        model.config.class_weights, model.config.timed = weights, timed
        if not timed and data.task_name is None:
            logger.warning("There is no column of times, so posts are told apart by their distance in posts alone.")
        # Of the weights as they were.
        model.config.calibration_temperature = model.config.decision_thresholds = None
    model.base_model.check_timed(timed)
    tokenizer = AutoTokenizer.from_pretrained(
        model_args.tokenizer_name or model_args.model_name_or_path or model_args.config_name
    )
    most = get_encoder_adapter(model.config.encoder_config).max_tokens(model.config.encoder_config)
    tokenizer.model_max_length = min(tokenizer.model_max_length, most)
    limit = data.max_seq_length
    if limit is None:
        limit = tokenizer.model_max_length if is_saved else min(128, tokenizer.model_max_length)
    rows = {
        name: to_rows(split, tokenizer, window, data.targets_per_row, limit, only_labelled=name != "test")
        for name, split in timelines.items()
    }
    post_ids = {name: targets_of(part) for name, part in rows.items() if isinstance(part, Dataset)}
    if data.streaming and "train" in rows:
        rows["train"] = rows["train"].shuffle(seed=seed, buffer_size=SHUFFLE_BUFFER)
    # Saved with the model, so that the pipeline cuts posts where training did.
    tokenizer.model_max_length = min(limit, tokenizer.model_max_length)
    collator = StreamCollator(tokenizer, window, timed=timed)
    return Prepared(model, rows, post_ids, collator, tokenizer)


def prepare_baseline(
    model_args: ModelArguments,
    data: DataTrainingArguments,
    timelines: dict[str, Posts],
    names: list[str],
    weights: list[float] | None,
) -> Prepared:
    """A baseline, on the same posts with the same loss."""
    if weights is None or data.streaming:
        raise ValueError(f"--method {model_args.method} needs --do_train, and takes no --streaming.")
    settings = BaselineSettings(
        model_name_or_path=model_args.model_name_or_path,
        names=names,
        class_weights=weights,
        window=DEFAULT_WINDOW if data.window is None else data.window,
        timed=is_timed(timelines),
        max_seq_length=data.max_seq_length,
        config_overrides=model_args.config_overrides,
    )
    return BASELINES[model_args.method](timelines, settings)


def predict_untrained(
    model_args: ModelArguments, data: DataTrainingArguments, seed: int, timelines: dict[str, Posts], names: list[str]
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Class ids and probabilities of the test posts by a method that only looks at training posts, and what to say."""
    if not {"train", "test"} <= set(timelines) or data.streaming:
        raise ValueError(f"--method {model_args.method} needs a training and a test part, and takes no --streaming.")
    train_part, test_part = timelines["train"], timelines["test"]
    if model_args.method == "class_prior":
        return *class_prior_predictions(train_part, test_part, len(names), seed), {}
    probabilities, unparsable = few_shot_predictions(
        train_part,
        test_part,
        names,
        model_args.model_name_or_path,
        num_examples=DEFAULT_EXAMPLES if model_args.num_examples is None else model_args.num_examples,
        window=1 if data.window is None else data.window,
        task=data.task_name,
        seed=seed,
    )
    predicted = np.where(probabilities.any(-1), probabilities.argmax(-1), -1)
    return predicted, probabilities, {"unparsable": unparsable, "unparsable_share": unparsable / len(predicted)}


def predict_trained(
    trainer: StreamTrainer, prepared: Prepared, timelines: Dataset, calibrated: bool
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Class ids and probabilities of the test posts, and what the Trainer says of them."""
    wanted = post_ids_of(timelines)
    logits, metrics = trainer.predict_posts(prepared.items["test"], prepared.post_ids["test"], wanted)
    if not calibrated:
        return logits.argmax(-1).numpy(), logits.softmax(-1).numpy(), metrics
    config = trainer.model.config
    probabilities = class_probabilities(logits, config.calibration_temperature)
    return rank_classes(probabilities, config.decision_thresholds)[:, 0].numpy(), probabilities.numpy(), metrics


def main(arguments: list[str]):
    model_args, data, training = parse([ModelArguments, DataTrainingArguments, StreamTrainingArguments], arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    training.remove_unused_columns = False
    # Its patience goes on where it was.
    training.restore_callback_states_from_checkpoint = True
    # Batches differ in posts and tokens, so that one process cannot cut them for the others.
    training.accelerator_config.dispatch_batches = False
    set_seed(training.seed)
    is_watched = training.metric_for_best_model is not None and training.eval_strategy != "no"
    if data.early_stopping_patience is not None and training.do_train and not is_watched:
        raise ValueError("--early_stopping_patience needs --metric_for_best_model and --eval_strategy.")
    if data.streaming and training.dataloader_num_workers > 1:
        raise ValueError(
            f"--streaming is read by one process: --dataloader_num_workers {training.dataloader_num_workers} must be "
            "at most 1."
        )

    splits = load_splits(data)
    encoder = None
    if model_args.method != "class_prior":
        encoder = AutoConfig.from_pretrained(model_args.model_name_or_path or model_args.config_name)
    if model_args.method in BASELINES and reads_times(encoder):
        raise ValueError(
            f"--method {model_args.method} cannot read an encoder with temporal attention; use a plain one."
        )
    if encoder is not None and encoder.model_type == TempoFormerConfig.model_type:
        check_checkpoint(model_args, data, encoder)
        names = [encoder.id2label[index] for index in range(encoder.num_labels)]
    else:
        if model_args.method == "tempoformer" and not training.do_train:
            raise ValueError(
                f"{model_args.model_name_or_path or model_args.config_name} is no TempoFormer but a "
                f"'{encoder.model_type}': without --do_train there is nothing to evaluate or to predict with."
            )
        posts = splits.get("train", next(iter(splits.values())))
        names = data.labels or label_names(posts, data.label_column or "label")
    if training.push_to_hub and model_args.method not in ("tempoformer", *STOCK_BASELINES):
        raise ValueError(f"--push_to_hub: what --method {model_args.method} makes can only be read by this package.")
    untrained = model_args.method in UNTRAINED
    if untrained and (not training.do_predict or training.world_size > 1):
        raise ValueError(f"--method {model_args.method} needs --do_predict, in one process.")
    validates = training.do_eval or model_args.calibrate
    # What is not trained, or not any more, sees the same posts as what is.
    timelines = split_posts(splits, data, names, training.do_train or untrained or validates, training.seed)
    for wanted, name in (
        (training.do_train, "train"),
        (validates, "validation"),
        (training.do_predict, "test"),
    ):
        if wanted and name not in timelines:
            raise ValueError(f"There is no {name} part: give --{name}_file, or --train_file alone to split it.")
    if model_args.calibrate:
        check_calibration(timelines["validation"], names)
    if untrained:
        predicted, probabilities, counts = predict_untrained(model_args, data, training.seed, timelines, names)
        write_results(training.output_dir, score_posts(timelines["test"], predicted, probabilities, names) | counts)
        write_predictions(training.output_dir, prediction_rows(timelines["test"], predicted, probabilities, names))
        return

    weights = class_weights(timelines["train"], len(names)) if training.do_train else None
    if model_args.method == "tempoformer":
        prepared = prepare_tempoformer(model_args, data, training.seed, encoder, timelines, names, weights)
    else:
        prepared = prepare_baseline(model_args, data, timelines, names, weights)
    trainer = StreamTrainer(
        model=prepared.model,
        args=training,
        train_dataset=prepared.items.get("train") if training.do_train else None,
        eval_dataset=prepared.items.get("validation"),
        processing_class=prepared.tokenizer,
        data_collator=prepared.collator,
        compute_loss_func=prepared.compute_loss,
        compute_metrics=compute_metrics(names),
        callbacks=[EarlyStoppingCallback(data.early_stopping_patience)] if data.early_stopping_patience else None,
    )
    trainer.base_model = model_args.model_name_or_path
    name_dataset(training, data.dataset_name, data.dataset_config_name)

    if training.do_train:
        train(trainer, timelines["train"], model_args, data)
    if training.do_eval:
        report(trainer, "eval", trainer.evaluate())
    if model_args.calibrate:
        trainer.calibrate(prepared.items["validation"], prepared.post_ids["validation"], timelines["validation"])
    if training.do_predict:
        test = timelines["test"]
        predicted, probabilities, metrics = predict_trained(trainer, prepared, test, model_args.calibrate)
        if trainer.is_world_process_zero():
            write_predictions(training.output_dir, prediction_rows(test, predicted, probabilities, names))
        scores = score_posts(test, predicted, probabilities, names)
        report(trainer, "predict", metrics | {f"predict_{name}": value for name, value in scores.items()})
    if training.push_to_hub:
        trainer.push_to_hub()
    elif training.do_train and trainer.is_world_process_zero():
        trainer.create_model_card()


if __name__ == "__main__":
    main(sys.argv[1:])
