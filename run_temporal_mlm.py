"""Post-pretrains a BERT or RoBERTa with temporal attention, or a TempoBERT, on dated texts.

    python run_temporal_mlm.py configuration/temporal_english.yaml --model_name_or_path bert-base-uncased \
        --train_files 1810-1860.txt 1960-2010.txt --output_dir out

A first argument that ends in .yaml or .json is a recipe: its values are defaults, which the command line overrides.
"""

import logging
import math
import sys
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Literal

import torch
from datasets import Dataset, IterableDataset
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoConfig, PreTrainedConfig, Trainer, set_seed

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    RobertaWithTemporalAttentionForMaskedLM,
    TemporalBertConfig,
    TemporalBertTokenizer,
    TemporalRobertaConfig,
    TemporalRobertaTokenizer,
)
from modeling_tempoformer.data.corpora import read_speeches
from modeling_tempoformer.data.dated_texts import (
    SOURCE,
    TEXT_SUFFIXES,
    DatedTexts,
    check_columns,
    check_texts,
    find_times,
    name_sources,
    read_text_files,
    split_texts,
    to_mlm_rows,
    token_limit,
)
from modeling_tempoformer.data.tables import load_hub_splits, load_table
from modeling_tempoformer.data.temporal_mlm_collator import TemporalMlmCollator
from modeling_tempoformer.evaluation.predictions import write_predictions
from modeling_tempoformer.semantic_change.time_prediction import predict_times
from modeling_tempoformer.time_points_temporal_bert import TimePoints, is_missing
from modeling_tempoformer.training.hub_trainer import name_dataset
from modeling_tempoformer.training.recipes import check_overrides, parse, read_overrides
from modeling_tempoformer.training.resuming import report, train
from modeling_tempoformer.training.temporal_trainer import TIME_PARAMETERS, TemporalTrainer, TemporalTrainingArguments


logger = logging.getLogger(__name__)

TASKS = {"speeches": read_speeches}
SHUFFLE_BUFFER = 10_000  # rows
BERT = (TemporalBertConfig, BertWithTemporalAttentionForMaskedLM, TemporalBertTokenizer)
ROBERTA = (TemporalRobertaConfig, RobertaWithTemporalAttentionForMaskedLM, TemporalRobertaTokenizer)
FAMILIES = {"bert": BERT, "temporal_bert": BERT, "roberta": ROBERTA, "temporal_roberta": ROBERTA}


@dataclass
class ModelArguments:
    """Which model, and how it knows of time."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "A BERT or RoBERTa checkpoint, or ours."})
    config_name: str | None = field(default=None, metadata={"help": "A configuration, to train from scratch."})
    tokenizer_name: str | None = field(default=None, metadata={"help": "If not that of the model."})
    temporal_attention: Literal["attention", "scaled", "none"] | None = field(
        default=None, metadata={"help": "That of the checkpoint, or 'attention'."}
    )
    temporal_residual: bool | None = field(default=None, metadata={"help": "Start as the plain encoder (I + alpha)."})
    time_scaling: Literal["linear", "exponential", "documents"] | None = None
    prepend_time: bool | None = field(default=None, metadata={"help": "Begin texts with a token of their time."})
    mask_token_time: bool | None = field(default=None, metadata={"help": "Masked tokens lose their text's time."})
    config_overrides: dict | str | None = field(default=None, metadata={"help": "Other fields of the config (JSON)."})

    def __post_init__(self):
        if (self.model_name_or_path is None) == (self.config_name is None):
            raise ValueError("Give exactly one of --model_name_or_path and --config_name.")
        self.config_overrides = read_overrides(self.config_overrides)

    @property
    def source(self) -> str:
        return self.model_name_or_path or self.config_name

    def config_fields(self) -> dict:
        """The fields of the model's configuration that were asked for."""
        names = ("temporal_attention", "temporal_residual", "time_scaling", "prepend_time")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**given, **(self.config_overrides or {})}


@dataclass
class DataTrainingArguments:
    """Which texts, and of which times."""

    task_name: Literal["speeches"] | None = field(
        default=None, metadata={"help": "The files are in this corpus's original form."}
    )
    train_files: list[str] | None = field(
        default=None, metadata={"help": "Text files named by time point, or one table (CSV, JSON lines, Parquet)."}
    )
    validation_files: list[str] | None = None
    test_files: list[str] | None = field(
        default=None, metadata={"help": "Texts whose time is to be predicted; scored where it is known."}
    )
    validation_fraction: float = field(default=0.05, metadata={"help": "Of the training texts, if not given."})
    dataset_name: str | None = field(default=None, metadata={"help": "A dataset of texts instead of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Which configuration of it."})
    time_column: str = "time"
    text_column: str = "text"
    times: list[str] | None = field(default=None, metadata={"help": "Time points in order; those of the texts."})
    time_granularity: Literal["century", "decade", "year", "month", "day"] | None = None
    unknown_times: Literal["error", "unknown", "drop"] = field(
        default="error", metadata={"help": "What becomes of texts outside all time points."}
    )
    line_by_line: bool = field(default=False, metadata={"help": "One text in a row, instead of packing."})
    max_seq_length: int = field(default=128, metadata={"help": "Tokens of a row."})
    mlm_probability: float = 0.15
    time_mlm_probability: float = field(default=0.15, metadata={"help": "Time tokens to predict, if prepended."})
    streaming: bool = field(default=False, metadata={"help": "Never hold the training texts in memory."})


def load_texts(paths: list[str], task_name: str | None, streaming: bool = False) -> DatedTexts:
    """Texts from files named by time point, from a table, or from a corpus in its original form."""
    if task_name is None and all(path.endswith(TEXT_SUFFIXES) for path in paths):
        return read_text_files(paths, streaming)
    if len(paths) > 1:
        raise ValueError(f"Give text files named by time point, or one table; got {', '.join(paths)}.")
    if task_name is not None:
        if streaming:
            return IterableDataset.from_generator(TASKS[task_name], gen_kwargs={"path": paths[0]})
        return Dataset.from_list(list(TASKS[task_name](paths[0])))
    return load_table(paths[0], streaming)


def load_splits(data: DataTrainingArguments) -> dict[str, DatedTexts]:
    """The given splits, as texts."""
    files = {name: getattr(data, f"{name}_files") for name in ("train", "validation", "test")}
    if data.dataset_name is not None:
        if given := [name for name, paths in files.items() if paths]:
            raise ValueError(f"Give --dataset_name or --{given[0]}_files, not both.")
        return load_hub_splits(data.dataset_name, data.dataset_config_name, data.streaming)
    splits = {
        name: load_texts(paths, data.task_name, data.streaming and name == "train")
        for name, paths in files.items()
        if paths
    }
    if not splits:
        raise ValueError("Give --dataset_name, or --train_files, --validation_files or --test_files.")
    return splits


def choose_times(
    splits: dict[str, DatedTexts], data: DataTrainingArguments, config: PreTrainedConfig
) -> tuple[list[str], list[str]]:
    """All time points, and those of the checkpoint among them."""
    saved = list(getattr(config, "times", ()))
    wanted = data.times
    if wanted is None and saved:
        wanted = saved
    elif wanted is None:
        if data.streaming:
            raise ValueError("--streaming needs --times: a stream cannot be searched for its time points.")
        texts = splits.get("train", next(iter(splits.values())))
        wanted = find_times(texts, data.time_column, data.time_granularity, data.unknown_times == "error")
    if len(wanted) < 2:
        raise ValueError(f"There must be at least two time points, got: {', '.join(wanted) or 'none'}.")
    logger.info("%d time points: %s", len(wanted), shorten(", ".join(wanted), 200))
    return wanted, saved


def load_model_and_tokenizer(
    model_args: ModelArguments, data: DataTrainingArguments, config: PreTrainedConfig, splits: dict[str, DatedTexts]
):
    """A model of dated texts as it was saved, or a plain encoder's weights in a new one, and its tokenizer."""
    if config.model_type not in FAMILIES:
        raise ValueError(f"{model_args.source} is a '{config.model_type}'; supported: {', '.join(sorted(FAMILIES))}.")
    config_class, model_class, tokenizer_class = FAMILIES[config.model_type]
    times, saved_times = choose_times(splits, data, config)
    check_overrides(model_args.config_overrides, config_class)
    fields = model_args.config_fields()
    if saved_times:
        for name, value in fields.items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"--{name} {value} cannot be given with this checkpoint; it has {getattr(config, name)}."
                )
    tokenizer_fields = {
        "times": times,
        "time_granularity": data.time_granularity,
        "mask_token_time": model_args.mask_token_time,
        "prepend_time": fields.get("prepend_time"),
    }
    tokenizer = tokenizer_class.from_pretrained(
        model_args.tokenizer_name or model_args.source,
        unknown_times="unknown" if data.unknown_times == "unknown" else "error",
        **{name: value for name, value in tokenizer_fields.items() if value is not None},
    )
    if not saved_times:
        fields = {**fields, "times": times}
    is_grown = bool(saved_times) and saved_times != times
    scaling = fields.get("time_scaling", getattr(config, "time_scaling", None))
    counts = None
    if scaling == "documents" and (is_grown or not saved_times):
        if not isinstance(splits.get("train"), Dataset):
            raise ValueError(
                "--time_scaling documents counts the training texts, which must be given and not streamed."
            )
        # What the model was trained on before counts, too.
        before = zip(saved_times, config.time_document_counts, strict=True) if is_grown else ()
        counts = dict.fromkeys(times, 0) | dict(before)
        for value in splits["train"][data.time_column]:
            if tokenizer.time_points.holds(value):
                counts[tokenizer.time_points.find(value)] += 1
        if not is_grown:
            fields["time_document_counts"] = list(counts.values())
    if model_args.model_name_or_path is None:
        plain = {name: value for name, value in config.to_diff_dict().items() if name != "model_type"}
        model = model_class(config_class(**{**plain, **fields}))
    else:
        # Whatever it was saved in: mixed precision is the Trainer's `--bf16`.
        fields = {"dtype": torch.float32, **fields}
        model, info = model_class.from_pretrained(model_args.source, output_loading_info=True, **fields)
        new = sorted(name for name in info["missing_keys"] if not any(part in name for part in TIME_PARAMETERS))
        if new:
            logger.warning("Not in %s, and trained from scratch: %s.", model_args.source, ", ".join(new))
    if is_grown:
        model.base_model.resize_time_embeddings(times, None if counts is None else list(counts.values()))
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        model.resize_token_embeddings(len(tokenizer))
    return model, tokenizer


def keep_known(texts: DatedTexts, times: TimePoints, time_column: str, name: str) -> DatedTexts:
    """Leaves out what is in none of the time points, and says how much; undated texts of a test part stay."""
    is_wanted = (lambda time: is_missing(time) or times.holds(time)) if name == "test" else times.holds
    known = texts.filter(is_wanted, input_columns=time_column)
    if isinstance(texts, Dataset):
        logger.warning(
            "%s: %d of %d texts are in no time point and left out.", name, len(texts) - len(known), len(texts)
        )
        if not len(known):
            raise ValueError(f"No text of the {name} part is in any of the time points {', '.join(times.names)}.")
    else:
        logger.warning("%s: texts in no time point are left out; a stream is not counted.", name)
    return known


def count_unknown(texts: Dataset, times: TimePoints, time_column: str, name: str):
    """Says how many texts are in none of the time points. Raises a `ValueError` if all are."""
    unknown = sum(not times.holds(value) for value in texts[time_column])
    if unknown == len(texts):
        raise ValueError(f"No text of the {name} part is in any of the time points {', '.join(times.names)}.")
    if unknown:
        logger.warning("%s: %d of %d texts are in no time point; their time is unknown.", name, unknown, len(texts))


def evaluate_times(trainer: Trainer, texts: Dataset, data: DataTrainingArguments) -> tuple[dict, list[dict]]:
    """Accuracy and macro F1 of the predicted times of texts whose time is known, and a row for each text."""
    tokenizer = trainer.processing_class
    names, points = tokenizer.times, tokenizer.time_points
    gold = [points.find(value) if points.holds(value) else "" for value in texts[data.time_column]]
    probabilities = predict_times(
        trainer.model, tokenizer, list(texts[data.text_column]), trainer.args.per_device_eval_batch_size
    )
    predicted = [names[index] for index in probabilities.argmax(-1)]
    dated = [(time, guess) for time, guess in zip(gold, predicted, strict=True) if time]
    metrics = {"predict_samples": len(gold), "predict_dated_samples": len(dated)}
    if dated:
        known, guessed = zip(*dated, strict=True)
        metrics["predict_accuracy"] = accuracy_score(known, guessed)
        metrics["predict_macro_f1"] = f1_score(known, guessed, average="macro")
    rows = [
        {"source": source, "time": time, "prediction": guess, **dict(zip(map("probability_{}".format, names), scores))}
        for source, time, guess, scores in zip(texts[SOURCE], gold, predicted, probabilities.tolist(), strict=True)
    ]
    return metrics, rows


def main(arguments: list[str]):
    model_args, data, training = parse([ModelArguments, DataTrainingArguments, TemporalTrainingArguments], arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    training.remove_unused_columns = False
    training.accelerator_config.dispatch_batches = False
    set_seed(training.seed)

    splits = load_splits(data)
    for name, texts in splits.items():
        if name == "test" and data.time_column not in check_columns(texts, data.text_column):
            texts = texts.add_column(data.time_column, [None] * len(texts))
        check_columns(texts, data.time_column, data.text_column)
        splits[name] = name_sources(texts)
    config = AutoConfig.from_pretrained(model_args.source)
    model, tokenizer = load_model_and_tokenizer(model_args, data, config, splits)
    if training.do_predict and not tokenizer.prepend_time:
        raise ValueError("Times are predicted from time tokens: --do_predict needs a model with --prepend_time.")
    if data.unknown_times == "drop":
        splits = {
            name: keep_known(texts, tokenizer.time_points, data.time_column, name) for name, texts in splits.items()
        }
    elif data.unknown_times == "unknown":
        for name in ("train", "validation"):
            if isinstance(splits.get(name), Dataset):
                count_unknown(splits[name], tokenizer.time_points, data.time_column, name)
    if training.do_train and training.do_eval and "validation" not in splits:
        if data.streaming:
            raise ValueError("--streaming needs --validation_files: a stream cannot be split.")
        parts = split_texts(splits["train"], data.validation_fraction, training.seed)
        splits["train"], splits["validation"] = parts
    for wanted, name in (
        (training.do_train, "train"),
        (training.do_eval, "validation"),
        (training.do_predict, "test"),
    ):
        if wanted and name not in splits:
            raise ValueError(f"There is no {name} part: give --{name}_files.")
    if training.do_predict:
        check_texts(splits["test"], tokenizer, data.time_column, data.text_column, must_have_time=False)
    most = token_limit(model.config, tokenizer)
    if data.max_seq_length > most:
        raise ValueError(f"--max_seq_length {data.max_seq_length}: the model reads at most {most} tokens.")
    rows = {
        name: to_mlm_rows(
            splits[name], tokenizer, data.time_column, data.text_column, data.max_seq_length, data.line_by_line
        )
        for name in ("train", "validation")
        if name in splits
    }
    if data.streaming and "train" in rows:
        rows["train"] = rows["train"].shuffle(seed=training.seed, buffer_size=SHUFFLE_BUFFER)
    model.sparse_prediction = True
    trainer = TemporalTrainer(
        model=model,
        args=training,
        train_dataset=rows.get("train") if training.do_train else None,
        eval_dataset=rows.get("validation"),
        processing_class=tokenizer,
        data_collator=TemporalMlmCollator(
            tokenizer, mlm_probability=data.mlm_probability, time_mlm_probability=data.time_mlm_probability
        ),
    )
    trainer.base_model = model_args.model_name_or_path
    name_dataset(training, data.dataset_name, data.dataset_config_name)
    if training.do_train:
        train(trainer, splits["train"], model_args, data)
    if training.do_eval:
        # Masks differ from call to call; the same ones make runs comparable.
        set_seed(training.seed)
        metrics = trainer.evaluate()
        report(trainer, "eval", {**metrics, "eval_perplexity": math.exp(min(metrics["eval_loss"], 700.0))})
    if training.do_predict:
        metrics, predictions = evaluate_times(trainer, splits["test"], data)
        report(trainer, "predict", metrics)
        if trainer.is_world_process_zero():
            write_predictions(training.output_dir, predictions)
    if training.push_to_hub:
        trainer.push_to_hub()
    elif training.do_train:
        trainer.create_model_card()


if __name__ == "__main__":
    main(sys.argv[1:])
