"""Fine-tunes, evaluates and predicts with a TempoFormer on timelines of posts.

    python run_glue_style.py configuration/lrs_fast.yaml --train_file threads.jsonl.gz --learning_rate 1e-5
    python run_glue_style.py configuration/lrs_fast.yaml configuration/variant_no_gate.yaml --train_file ...

First arguments that end in .yaml or .json are recipes: their values are defaults, of which later files and then the
command line win. Dicts such as `config_overrides` are merged across files; the command line's replaces them.
"""

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from transformers import (
    AutoConfig,
    AutoTokenizer,
    EarlyStoppingCallback,
    PreTrainedConfig,
    Trainer,
    TrainingArguments,
    set_seed,
)

from modeling_tempoformer import StreamCollator, TempoFormerConfig, TempoFormerForStreamClassification
from modeling_tempoformer.cards import write_card
from modeling_tempoformer.command_line import load_hub_splits, load_table, parse, report, train, write_predictions
from modeling_tempoformer.corpora import read_annomi, read_rumoureval, read_talklife, read_topic_shift
from modeling_tempoformer.metrics import compute_metrics
from modeling_tempoformer.modeling_tempoformer_encoders import get_encoder_adapter
from modeling_tempoformer.splits import split_timelines
from modeling_tempoformer.timelines import Posts, label_names, to_rows, to_timelines


logger = logging.getLogger(__name__)

TASKS = {"lrs": read_rumoureval, "moc": read_talklife, "topic_shift": read_topic_shift, "annomi": read_annomi}
SHUFFLE_BUFFER = 1000  # rows


@dataclass
class ModelArguments:
    """Which model."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "An encoder or a TempoFormer checkpoint."})
    config_name: str | None = field(default=None, metadata={"help": "An encoder's config, to train from scratch."})
    tokenizer_name: str | None = field(default=None, metadata={"help": "If not that of the model."})
    config_overrides: dict | str | None = field(default=None, metadata={"help": "Fields of TempoFormerConfig (JSON)."})

    def __post_init__(self):
        if (self.model_name_or_path is None) == (self.config_name is None):
            raise ValueError("Give exactly one of --model_name_or_path and --config_name.")
        if isinstance(self.config_overrides, str):
            self.config_overrides = json.loads(self.config_overrides)


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
    timeline_column: str = "timeline_id"
    timestamp_column: str | None = field(default=None, metadata={"help": "'timestamp' if there is one."})
    text_column: str = "text"
    label_column: str | None = field(default=None, metadata={"help": "'label' if there is one."})
    id_column: str | None = None
    labels: list[str] | None = field(default=None, metadata={"help": "Label names; those of the posts if omitted."})
    streaming: bool = field(default=False, metadata={"help": "Never hold the training posts in memory."})
    window: int | None = field(default=None, metadata={"help": "Posts in a stream; that of the checkpoint, or 20."})
    targets_per_row: int = field(default=16, metadata={"help": "Posts classified in a row of a training batch."})
    max_seq_length: int | None = field(default=None, metadata={"help": "Tokens of a post; the checkpoint's, or 128."})
    early_stopping_patience: int | None = field(default=None, metadata={"help": "Evaluations without a better F1."})


def load_posts(path: str, task_name: str | None, streaming: bool = False) -> Posts:
    """Posts from a file: of a corpus in its original form, or a table. CSV cells are text, an empty one is empty."""
    if task_name is not None:
        if streaming:
            return IterableDataset.from_generator(TASKS[task_name], gen_kwargs={"path": path})
        return Dataset.from_list(list(TASKS[task_name](path)))
    return load_table(path, streaming)


def load_splits(data: DataTrainingArguments) -> dict[str, Posts]:
    """The given splits, as posts; with `--streaming` the training part is read anew in each pass."""
    if data.dataset_name is not None:
        return load_hub_splits(data.dataset_name, data.dataset_config_name, data.streaming)
    files = {name: getattr(data, f"{name}_file") for name in ("train", "validation", "test")}
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
        return TempoFormerForStreamClassification.from_pretrained(model_args.model_name_or_path)
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
        ("config_name", model_args.config_name, None),
        ("config_overrides", model_args.config_overrides, None),
        ("window", data.window, saved.window),
        ("labels", data.labels, names),
    ):
        if wanted is not None and wanted != have:
            has = "" if have is None else f"; it has {have}"
            raise ValueError(f"--{argument} {wanted} cannot be given with a TempoFormer checkpoint{has}.")


def prediction_rows(
    timelines: Dataset, rows: Dataset, probabilities: np.ndarray, names: list[str]
) -> Iterator[dict[str, str | float]]:
    """One row for each post in the order of the input: id, timeline, label, prediction, probability of each class."""
    by_post = {}
    for row, row_probabilities in zip(rows["post_ids"], probabilities, strict=True):
        by_post.update(zip(row, row_probabilities, strict=False))
    posts = [
        (row, post_id, timeline["timeline_id"], label)
        for timeline in timelines
        for row, post_id, label in zip(timeline["post_rows"], timeline["post_ids"], timeline["labels"], strict=True)
    ]
    for _, post_id, timeline_id, label in sorted(posts):
        scores = by_post[post_id]
        yield {
            "post_id": post_id,
            "timeline_id": timeline_id,
            "label": "" if label < 0 else names[label],
            "prediction": names[int(scores.argmax())],
            **{f"probability_{name}": float(score) for name, score in zip(names, scores, strict=True)},
        }


class StreamTrainer(Trainer):
    """The stock Trainer, but for the model card."""

    base_model: str | None = None

    def create_model_card(self, **kwargs):
        folder = Path(self.args.output_dir)
        results = folder / "all_results.json"
        scores = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
        scores = {name: value for name, value in scores.items() if "_f1" in name}
        write_card(folder, self.model.config, scores, self.base_model, self.hub_model_id)


def split_posts(
    splits: dict[str, Posts], data: DataTrainingArguments, names: list[str], do_train: bool, seed: int
) -> dict[str, Posts]:
    """Timelines of each split; validation and test are taken from the training part where they are not given."""
    columns = (data.timeline_column, data.timestamp_column, data.text_column, data.label_column)
    id_column = data.id_column or ("post_id" if data.task_name else None)
    timelines = {name: to_timelines(posts, names, *columns, id_column) for name, posts in splits.items()}
    if len(names) < 2:
        raise ValueError(f"There must be at least two labels, the posts have: {', '.join(names) or 'none'}.")
    if data.streaming and do_train and "validation" not in timelines:
        raise ValueError("--streaming needs a validation part of its own: a stream cannot be split by timeline.")
    if set(timelines) == {"train"} and not data.streaming:
        timelines["train"], timelines["test"] = split_timelines(timelines["train"], data.test_fraction, seed)
    if do_train and "validation" not in timelines:
        timelines["train"], timelines["validation"] = split_timelines(
            timelines["train"], data.validation_fraction, seed
        )
    for name in ("train", "validation") if do_train else ():
        if not any(label >= 0 for timeline in timelines[name] for label in timeline["labels"]):
            raise ValueError(f"The {name} part has no labelled post.")
    for name, split in timelines.items():
        logger.info("%s: %s timelines", name, "streamed" if data.streaming and name == "train" else len(split))
    return timelines


def is_timed(timelines: dict[str, Posts]) -> bool:
    """Whether the timelines have times: all, or none."""
    timed = {name: "timestamps" in next(iter(split)) for name, split in timelines.items()}
    if len(set(timed.values())) > 1:
        raise ValueError(f"Some parts have timestamps and others not: {timed}.")
    return all(timed.values())


def main(arguments: list[str]):
    model_args, data, training = parse([ModelArguments, DataTrainingArguments, TrainingArguments], arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    training.remove_unused_columns = False
    # Batches differ in posts and tokens, so that one process cannot cut them for the others.
    training.accelerator_config.dispatch_batches = False
    set_seed(training.seed)

    splits = load_splits(data)
    encoder = AutoConfig.from_pretrained(model_args.model_name_or_path or model_args.config_name)
    is_tempoformer = encoder.model_type == TempoFormerConfig.model_type
    if is_tempoformer:
        check_checkpoint(model_args, data, encoder)
        names = [encoder.id2label[index] for index in range(encoder.num_labels)]
        window = encoder.window
    else:
        posts = splits.get("train", next(iter(splits.values())))
        names = data.labels or label_names(posts, data.label_column or "label")
        window = 20 if data.window is None else data.window
    timelines = split_posts(splits, data, names, training.do_train, training.seed)
    for wanted, name in (
        (training.do_train, "train"),
        (training.do_eval, "validation"),
        (training.do_predict, "test"),
    ):
        if wanted and name not in timelines:
            raise ValueError(f"There is no {name} part: give --{name}_file, or --train_file alone to split it.")

    model = load_model(model_args, encoder, window, names)
    if training.do_train:
        model.config.class_weights = class_weights(timelines["train"], len(names))
    tokenizer = AutoTokenizer.from_pretrained(
        model_args.tokenizer_name or model_args.model_name_or_path or model_args.config_name
    )
    most = get_encoder_adapter(model.config.encoder_config).max_tokens(model.config.encoder_config)
    tokenizer.model_max_length = min(tokenizer.model_max_length, most)
    limit = data.max_seq_length
    if limit is None:
        limit = tokenizer.model_max_length if is_tempoformer else min(128, tokenizer.model_max_length)
    rows = {
        name: to_rows(split, tokenizer, window, data.targets_per_row, limit, only_labelled=name != "test")
        for name, split in timelines.items()
    }
    if data.streaming and "train" in rows:
        rows["train"] = rows["train"].shuffle(seed=training.seed, buffer_size=SHUFFLE_BUFFER)
    # Saved with the model, so that the pipeline cuts posts where training did.
    tokenizer.model_max_length = min(limit, tokenizer.model_max_length)
    trainer = StreamTrainer(
        model=model,
        args=training,
        train_dataset=rows.get("train") if training.do_train else None,
        eval_dataset=rows.get("validation"),
        processing_class=tokenizer,
        data_collator=StreamCollator(tokenizer, window, timed=is_timed(timelines)),
        compute_metrics=compute_metrics(names),
        callbacks=[EarlyStoppingCallback(data.early_stopping_patience)] if data.early_stopping_patience else None,
    )
    trainer.base_model = model_args.model_name_or_path

    if training.do_train:
        train(trainer)
    if training.do_eval:
        report(trainer, "eval", trainer.evaluate())
    if training.do_predict:
        output = trainer.predict(rows["test"], metric_key_prefix="predict")
        report(trainer, "predict", output.metrics)
        probabilities = torch.from_numpy(output.predictions).float().softmax(-1).numpy()
        if trainer.is_world_process_zero():
            write_predictions(
                training.output_dir, list(prediction_rows(timelines["test"], rows["test"], probabilities, names))
            )
    if training.push_to_hub:
        trainer.push_to_hub()
    elif training.do_train and trainer.is_world_process_zero():
        trainer.create_model_card()


if __name__ == "__main__":
    main(sys.argv[1:])
