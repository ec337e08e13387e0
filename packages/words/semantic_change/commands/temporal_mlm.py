"""
Post-pretrains a BERT or RoBERTa with temporal attention, or a TempoBERT, on dated texts.

    tempoformer temporal_mlm temporal_english.yaml --model_name_or_path bert-base-uncased \
        --train_files 1810-1860.txt 1960-2010.txt --output_dir out

If the first argument ends in .yaml or .json, it is a recipe: its values are defaults that the command line overrides.
"""

import logging
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
import torch
from datasets import Dataset
from sklearn.metrics import accuracy_score, f1_score
from transformers import AutoConfig, PreTrainedConfig, set_seed

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    RobertaWithTemporalAttentionForMaskedLM,
    TemporalBertConfig,
    TemporalBertTokenizer,
    TemporalRobertaConfig,
    TemporalRobertaTokenizer,
    clear_results,
    train_or_resume,
    write_predictions,
)
from modeling_tempoformer.common.arguments import CheckpointArguments, check_steps, wanted_splits
from modeling_tempoformer.common.command_line import check_overrides, check_read, options_given, parse
from modeling_tempoformer.common.files import lock_folder
from modeling_tempoformer.common.hashes import fingerprint
from modeling_tempoformer.common.streaming import check_streaming, shuffle_forever

from ..arguments import TextDataTrainingArguments, read_of_texts
from ..reading.dated_texts import (
    SOURCE,
    check_texts,
    choose_times,
    load_text_splits,
    split_dated_texts,
    to_mlm_rows,
    token_limit,
)
from ..temporal_mlm_collator import TemporalMlmCollator
from ..temporal_trainer import TIME_PARAMETERS, TemporalTrainer, TemporalTrainingArguments
from ..time_prediction import predict_times


logger = logging.getLogger(__name__)

BERT = (TemporalBertConfig, BertWithTemporalAttentionForMaskedLM, TemporalBertTokenizer)
ROBERTA = (TemporalRobertaConfig, RobertaWithTemporalAttentionForMaskedLM, TemporalRobertaTokenizer)
FAMILIES = {"bert": BERT, "temporal_bert": BERT, "roberta": ROBERTA, "temporal_roberta": ROBERTA}


@dataclass
class TemporalModelArguments(CheckpointArguments):
    """The model, and how it uses time. By default it is as in the checkpoint, or in its class of configurations."""

    temporal_attention: Literal["attention", "scaled", "none"] | None = None
    temporal_residual: bool | None = field(
        default=None, metadata={"help": "Start as the plain encoder: I + alpha T'T instead of T'T."}
    )
    time_scaling: Literal["linear", "exponential", "documents"] | None = None
    prepend_time: bool | None = field(default=None, metadata={"help": "Begin each text with a token of its time."})
    mask_token_time: bool | None = field(
        default=None, metadata={"help": "Give masked tokens the time id of the mask instead of their text's."}
    )

    def config_fields(self) -> dict[str, Any]:
        """The fields of the model's configuration that are given."""
        names = ("temporal_attention", "temporal_residual", "time_scaling", "prepend_time")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**given, **(self.config_overrides or {})}


def count_texts(texts: Dataset | None, tokenizer, time_column: str, before: dict[str, int]) -> list[int]:
    """Counts the training texts of each time point, and adds the counts `before`, of earlier trainings."""
    if texts is None:
        raise ValueError("--time_scaling documents counts the training texts, which must be given.")
    counts = Counter(before) + Counter(map(tokenizer.time_points.get, texts[time_column]))
    return [counts[name] for name in tokenizer.times]


def load_model_and_tokenizer(
    model_args: TemporalModelArguments,
    data: TextDataTrainingArguments,
    config: PreTrainedConfig,
    splits: dict[str, Dataset],
):
    """Loads a saved temporal model, or makes one with a plain encoder's weights. Returns it with its tokenizer."""
    if config.model_type not in FAMILIES:
        raise ValueError(f"{model_args.source} is a '{config.model_type}'; supported: {', '.join(sorted(FAMILIES))}.")
    config_class, model_class, tokenizer_class = FAMILIES[config.model_type]
    saved_times = list(getattr(config, "times", ()))
    times = choose_times(splits, data, saved_times)
    check_overrides(model_args.config_overrides, config_class)
    fields = model_args.config_fields()
    for name, value in fields.items() if saved_times else ():
        if getattr(config, name) != value:
            raise ValueError(f"--{name} {value} cannot be given with this checkpoint; it has {getattr(config, name)}.")

    given = {
        "time_granularity": data.time_granularity,
        "mask_token_time": model_args.mask_token_time,
        "prepend_time": fields.get("prepend_time"),
    }
    tokenizer = tokenizer_class.from_pretrained(
        model_args.tokenizer_name or model_args.source,
        times=times,
        unknown_times="unknown" if data.unknown_times == "unknown" else None,
        **{name: value for name, value in given.items() if value is not None},
        **model_args.download_settings,
    )

    has_new_times = bool(saved_times) and saved_times != times
    counts = None
    is_scaled = fields.get("time_scaling", getattr(config, "time_scaling", None)) == "documents"
    if is_scaled and (has_new_times or not saved_times):
        before = dict(zip(saved_times, config.time_document_counts, strict=True)) if has_new_times else {}
        counts = count_texts(splits.get("train"), tokenizer, data.time_column, before)
    if not saved_times:
        fields |= {"times": times} | ({} if counts is None else {"time_document_counts": counts})

    if model_args.model_name_or_path is None:
        plain = {name: value for name, value in config.to_diff_dict().items() if name != "model_type"}
        model = model_class(config_class(**{**plain, **fields}))
    else:
        # Float32 whatever the saved dtype: mixed precision is the Trainer's `--bf16`.
        fields = {"dtype": torch.float32, **model_args.download_settings, **fields}
        model, info = model_class.from_pretrained(model_args.source, output_loading_info=True, **fields)
        new = sorted(name for name in info["missing_keys"] if not any(part in name for part in TIME_PARAMETERS))
        if new:
            logger.warning("Not in %s, and trained from scratch: %s.", model_args.source, ", ".join(new))
    if has_new_times:
        model.base_model.resize_time_embeddings(times, counts)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        # Without `mean_resizing`, because the model needs long to tell apart time tokens that begin alike.
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return model, tokenizer


def evaluate_times(
    trainer: TemporalTrainer, texts: Dataset, data: TextDataTrainingArguments
) -> tuple[dict[str, float], pd.DataFrame]:
    """
    Predicts the times of texts. Returns accuracy and macro F1 on the texts of known time, and a table of all
    predictions.
    """
    tokenizer, batch_size = trainer.processing_class, trainer.args.per_device_eval_batch_size
    predicted = predict_times(trainer.model, tokenizer, list(texts[data.text_column]), batch_size)
    probabilities = pd.DataFrame(predicted, columns=tokenizer.times)
    times = [tokenizer.time_points.get(value) or "" for value in texts[data.time_column]]
    table = pd.DataFrame({"source": texts[SOURCE], "time": times, "prediction": probabilities.idxmax(axis=1)})
    table = table.join(probabilities.add_prefix("probability_"))
    dated = table[table["time"] != ""]
    metrics = {"predict_samples": len(table), "predict_dated_samples": len(dated)}
    if len(dated):
        metrics["predict_accuracy"] = accuracy_score(dated["time"], dated["prediction"])
        metrics["predict_macro_f1"] = f1_score(dated["time"], dated["prediction"], average="macro")
    return metrics, table


def main(arguments: list[str]):
    # Arguments
    model_args, data, training = parse(
        [TemporalModelArguments, TextDataTrainingArguments, TemporalTrainingArguments], arguments
    )
    check_steps(training)
    if data.streaming:
        check_streaming(training)
    config = AutoConfig.from_pretrained(model_args.source, **model_args.download_settings)
    fields = {"prepend_time": getattr(config, "prepend_time", False), **model_args.config_fields()}
    check_read(options_given(arguments), read_of_texts(data, training, fields["prepend_time"]))
    with lock_folder(training.output_dir, training.process_index == 0):
        train_dated(config, model_args, data, training)


def train_dated(
    config: PreTrainedConfig,
    model_args: TemporalModelArguments,
    data: TextDataTrainingArguments,
    training: TemporalTrainingArguments,
):
    """Trains, evaluates, predicts and pushes, as the arguments say. `config` is the checkpoint's."""
    set_seed(training.seed)

    # Read
    splits = load_text_splits(data, model_args.cache_dir, model_args.token)

    # Model
    model, tokenizer = load_model_and_tokenizer(model_args, data, config, splits)
    model.sparse_prediction = True
    if training.do_predict and not tokenizer.prepend_time:
        raise ValueError("Times are predicted from time tokens: --do_predict needs a model with --prepend_time.")

    # Split
    texts = split_dated_texts(splits, data, tokenizer.time_points, wanted_splits(training), training.seed)
    if training.do_predict:
        check_texts(texts["test"], tokenizer, data.time_column, data.text_column, must_have_time=False)

    # Rows
    longest = token_limit(model, tokenizer)
    if data.max_seq_length > longest:
        raise ValueError(f"--max_seq_length {data.max_seq_length}: the model reads at most {longest} tokens.")
    settings = (tokenizer, data.time_column, data.text_column, data.max_seq_length, data.line_by_line)
    rows = {split: to_mlm_rows(texts[split], *settings) for split in ("train", "validation") if split in texts}
    if data.streaming:
        rows["train"] = shuffle_forever(rows["train"], training.seed)

    # Train
    trainer = TemporalTrainer(
        model=model,
        args=training,
        train_dataset=rows["train"] if training.do_train else None,
        eval_dataset=rows.get("validation"),
        processing_class=tokenizer,
        data_collator=TemporalMlmCollator(
            tokenizer, mlm_probability=data.mlm_probability, time_mlm_probability=data.time_mlm_probability
        ),
        base_model=model_args.model_name_or_path,
        dataset=data.dataset_name,
        dataset_config=data.dataset_config_name,
    )
    if training.do_train:
        train_or_resume(trainer, fingerprint(texts["train"]), model_args, data)

    # Report
    if not training.do_train and (training.do_eval or training.do_predict):
        clear_results(training)
    if training.do_eval:
        # The masks are the same in every evaluation, so that runs can be compared.
        set_seed(training.seed)
        metrics = trainer.evaluate()
        perplexity = math.exp(min(metrics["eval_loss"], 700.0))
        trainer.report("eval", {**metrics, "eval_perplexity": perplexity})
    if training.do_predict:
        metrics, predictions = evaluate_times(trainer, texts["test"], data)
        trainer.report("predict", metrics)
        if trainer.is_world_process_zero():
            write_predictions(training.output_dir, predictions)
    trainer.finish(has_changed=training.do_train)
