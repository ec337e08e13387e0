r"""Runs what TempoFormer is compared with, on the same posts and with the same arguments as run_glue_style.py.

    python run_baseline.py --method bilstm --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 \
        --train_file posts.csv --output_dir outputs/bilstm
    python run_baseline.py configuration/lrs_fast.yaml configuration/baseline_bilstm.yaml \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file threads.jsonl.gz --output_dir outputs

`--method` is class_prior or few_shot, which are not trained; post or concatenated, a stock sequence classifier on the
post alone or after its history; or ffn_history, bilstm, swnu, seq_sig_net, small networks over frozen embeddings.
Without a recipe the method's own is read, configuration/baseline_METHOD.yaml.
"""

import logging

import numpy as np
from datasets import Dataset
from transformers import AutoConfig, set_seed

from modeling_tempoformer.baselines.class_prior import class_prior_predictions
from modeling_tempoformer.baselines.prepare import BaselineSettings, prepare
from modeling_tempoformer.baselines.prompting import few_shot_predictions
from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.data.files import lock_folder
from modeling_tempoformer.data.post_splits import (
    check_calibration,
    choose_class_weights,
    is_timed,
    load_splits,
    split_posts,
)
from modeling_tempoformer.data.timelines import label_names
from modeling_tempoformer.evaluation.figures import print_figures, write_test_figures
from modeling_tempoformer.evaluation.predictions import prediction_rows, write_predictions
from modeling_tempoformer.evaluation.report import results_table
from modeling_tempoformer.evaluation.results import nest, score_part, write_results
from modeling_tempoformer.training.arguments import (
    STOCK_MODELS,
    BaselineArguments,
    check_asked,
    with_recipe_of_method,
)
from modeling_tempoformer.training.recipes import parse, run_script
from modeling_tempoformer.training.resuming import clear_results
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments, run_steps


DEFAULT_WINDOW = 20  # posts
DEFAULT_EXAMPLES = 5


def predict_untrained(
    baseline: BaselineArguments,
    data: DataTrainingArguments,
    timelines: dict[str, Dataset],
    names: list[str],
    seed: int,
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Class ids and probabilities of the test posts without training, and counts to report."""
    if baseline.method == "class_prior":
        return *class_prior_predictions(timelines["train"], timelines["test"], len(names), seed), {}
    probabilities, unparsable = few_shot_predictions(
        timelines["train"],
        timelines["test"],
        names,
        baseline.model_name_or_path,
        num_examples=baseline.num_examples or DEFAULT_EXAMPLES,
        window=data.window or 1,
        task=data.task_name,
        seed=seed,
        download_settings=baseline.download_settings,
    )
    predicted = np.where(probabilities.any(-1), probabilities.argmax(-1), -1)
    return predicted, probabilities, {"unparsable": unparsable, "unparsable_share": unparsable / len(predicted)}


def check_arguments(baseline: BaselineArguments, data: DataTrainingArguments, training: StreamTrainingArguments):
    """Raises a `ValueError` for what a baseline cannot do."""
    method = f"--method {baseline.method}"
    if data.streaming:
        raise ValueError(f"{method} does not support --streaming: leave it out.")
    if training.freeze_encoder:
        raise ValueError(f"{method} does not support --freeze_encoder: leave it out.")
    if baseline.is_trained and not training.do_train:
        raise ValueError(f"{method} needs --do_train.")
    if not baseline.is_trained and not training.do_predict:
        raise ValueError(f"{method} needs --do_predict.")
    if not baseline.is_trained and training.world_size > 1:
        raise ValueError(f"{method} runs in one process, got {training.world_size}.")
    if training.push_to_hub and baseline.method not in STOCK_MODELS:
        raise ValueError(f"--push_to_hub: a model of {method} cannot be loaded without this package.")


def main(arguments: list[str]):
    kinds = [BaselineArguments, DataTrainingArguments, StreamTrainingArguments]
    baseline, data, training = parse(kinds, with_recipe_of_method(arguments))
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    check_arguments(baseline, data, training)
    check_asked(training, baseline.calibrate)
    with lock_folder(training.output_dir, training.process_index == 0):
        run(baseline, data, training)


def run(baseline: BaselineArguments, data: DataTrainingArguments, training: StreamTrainingArguments):
    """Trains (if the method has a training), evaluates, predicts and pushes, as the arguments ask."""
    set_seed(training.seed)

    # Data: posts, label names, timelines of each part
    if baseline.is_trained:
        encoder = AutoConfig.from_pretrained(baseline.model_name_or_path, **baseline.download_settings)
        if getattr(encoder, "temporal_attention", "none") != "none" or getattr(encoder, "prepend_time", False):
            raise ValueError(
                f"--method {baseline.method} cannot read an encoder with temporal attention; use a plain one."
            )
    splits = load_splits(data, baseline.cache_dir, baseline.token)
    posts = splits.get("train", next(iter(splits.values())))
    names = data.labels or label_names(posts, data.label_column or "label")
    validates = training.do_eval or baseline.calibrate
    # Untrained methods also need training posts, for class shares or prompt examples.
    asked = {"train": True, "validation": validates, "test": training.do_predict}
    wanted = [part for part in asked if asked[part]]
    timelines, split = split_posts(splits, data, names, wanted, training.seed, baseline.model_name_or_path)

    if not baseline.is_trained:
        predicted, probabilities, counts = predict_untrained(baseline, data, timelines, names, training.seed)
        test = timelines["test"].remove_columns("texts") if data.no_text else timelines["test"]
        scores = score_part(test, predicted, probabilities, names, timelines["train"])
        results = nest(scores | counts, "predict", names)
        print(results_table("test", results))
        clear_results(training)
        write_results(training.output_dir, {"test": results})
        write_predictions(training.output_dir, prediction_rows(test, predicted, probabilities, names))
        write_test_figures(training.output_dir, test, predicted, probabilities, names)
        print_figures(training.output_dir)
        return

    # Model, items and collator
    if baseline.calibrate:
        check_calibration(timelines["validation"], names)
    settings = BaselineSettings(
        model_name_or_path=baseline.model_name_or_path,
        names=names,
        class_weights=choose_class_weights(timelines["train"], names),
        window=data.window or DEFAULT_WINDOW,
        timed=is_timed(timelines),
        max_seq_length=data.max_seq_length,
        config_overrides=baseline.config_overrides,
        download_settings=baseline.download_settings,
    )
    prepared = prepare(baseline.method, timelines, settings)

    # Trainer
    trainer = StreamTrainer(
        model=prepared.model,
        args=training,
        train_dataset=prepared.items["train"],
        eval_dataset=prepared.items.get("validation"),
        processing_class=prepared.tokenizer,
        data_collator=prepared.collator,
        compute_loss_func=prepared.compute_loss,
    )
    run_steps(trainer, prepared.items, prepared.post_ids, timelines, split, baseline, data)


if __name__ == "__main__":
    run_script(main)
