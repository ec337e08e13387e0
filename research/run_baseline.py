r"""Runs a baseline on the same posts and with the same arguments as run_glue_style.py.

    python -m research.run_baseline --method bilstm --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 \
        --train_file posts.csv --output_dir outputs/bilstm
    python -m research.run_baseline configuration/lrs_fast.yaml research/baselines/bilstm.yaml \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file threads.jsonl.gz --output_dir outputs

`--method` is one of

- class_prior, few_shot, position_and_time, trees: not trained by the Trainer;
- post, concatenated: a stock sequence classifier on the post alone or after its history;
- ffn_history, bilstm, swnu, seq_sig_net: small networks over frozen embeddings.

Without a recipe, research/baselines/METHOD.yaml is read.
"""

from collections.abc import Collection
from pathlib import Path

from transformers import AutoConfig, set_seed

from modeling_tempoformer.data.arguments import DataTrainingArguments, check_read
from modeling_tempoformer.data.files import lock_folder, write_json
from modeling_tempoformer.data.post_splits import choose_change_step, choose_label_names, load_splits, split_posts
from modeling_tempoformer.evaluation.figures import print_figures, write_test_figures
from modeling_tempoformer.evaluation.latex import write_test_table
from modeling_tempoformer.evaluation.method_names import checkpoint_name
from modeling_tempoformer.evaluation.predictions import prediction_rows, write_mistakes, write_predictions
from modeling_tempoformer.evaluation.report import RESULTS, group_by_class, results_table, score_part
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.training.arguments import check_asked, read_of_posts, wanted_splits
from modeling_tempoformer.training.recipes import options_given, parse, run_script
from modeling_tempoformer.training.reporting import report_results
from modeling_tempoformer.training.resuming import clear_results, train_or_resume
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments

from .baselines.base import Baseline, TrainedBaseline, UntrainedBaseline, with_own_recipe


def check_arguments(baseline: Baseline, data: DataTrainingArguments, training: StreamTrainingArguments):
    """Raises a `ValueError` for arguments that a baseline does not support."""
    method, is_trained = f"--method {baseline.method}", isinstance(baseline, TrainedBaseline)
    if training.freeze_encoder:
        raise ValueError(f"{method} does not support --freeze_encoder: leave it out.")
    if data.streaming:
        raise ValueError(f"{method} does not support --streaming: leave it out.")
    if is_trained and not training.do_train:
        raise ValueError(f"{method} needs --do_train.")
    if not is_trained and not training.do_predict:
        raise ValueError(f"{method} needs --do_predict.")
    if training.push_to_hub and not baseline.is_stock:
        raise ValueError(f"--push_to_hub: a model of {method} cannot be loaded without this package.")


def main(arguments: list[str]):
    kind, arguments = with_own_recipe(arguments)
    baseline, data, training = parse([kind, DataTrainingArguments, StreamTrainingArguments], arguments)
    check_arguments(baseline, data, training)
    check_asked(training, baseline.calibrate)
    given = options_given(arguments)
    # Untrained methods divide the posts of a training, too.
    reads = read_of_posts(data, training, baseline.calibrate) if isinstance(baseline, TrainedBaseline) else {}
    check_read(given, {**reads, "no_change_label": (False, f"by --method {baseline.method}")})
    with lock_folder(training.output_dir, training.process_index == 0):
        run(given, baseline, data, training)


def run(given: Collection[str], baseline: Baseline, data: DataTrainingArguments, training: StreamTrainingArguments):
    """
    Trains if the method is trained, evaluates, predicts and pushes, as the arguments ask. `given` is the argument of
    [`check_read`].
    """
    set_seed(training.seed)

    # Read
    if baseline.reads == "encoder":
        encoder = AutoConfig.from_pretrained(baseline.model_name_or_path, **baseline.download_settings)
        if getattr(encoder, "temporal_attention", "none") != "none" or getattr(encoder, "prepend_time", False):
            raise ValueError(
                f"--method {baseline.method} cannot read an encoder with temporal attention; use a plain one."
            )
    posts = load_splits(data, baseline.cache_dir, baseline.token)
    names = choose_label_names(posts, data)

    # Split
    # Untrained methods also need training posts, for class shares or prompt examples.
    wanted = list(dict.fromkeys(["train", *wanted_splits(training, baseline.calibrate)]))
    splits = split_posts(
        posts,
        data,
        names,
        wanted,
        training.seed,
        model=baseline.model_name_or_path,
        calibrates=baseline.calibrate,
        change_step=choose_change_step(posts, data),
        given=given,
    )

    if isinstance(baseline, UntrainedBaseline):
        predict(baseline, splits.timelines, names, data, training)
        return

    # Model and rows
    prepared = baseline.prepare(splits.timelines, names, data)

    # Train
    trainer = StreamTrainer(
        model=prepared.model,
        args=training,
        train_dataset=prepared.items["train"],
        eval_dataset=prepared.items.get("validation"),
        processing_class=prepared.tokenizer,
        data_collator=prepared.collator,
        compute_loss_func=prepared.compute_loss,
        base_model=baseline.model_name_or_path,
        dataset=data.dataset_name,
        dataset_config=data.dataset_config_name,
        split=splits.record,
    )
    train_or_resume(trainer, splits.surveys["train"].fingerprint, baseline, data)

    # Report
    report_results(trainer, prepared.items, splits.timelines, baseline, data)


def predict(
    baseline: UntrainedBaseline,
    timelines: dict[str, list[Timeline]],
    names: list[str],
    data: DataTrainingArguments,
    training: StreamTrainingArguments,
):
    """Predicts the test part without training, and writes the files that a training writes."""
    predictions, probabilities = baseline.predict(timelines, names, data, training.seed)
    test = timelines["test"]
    scores = score_part(test, predictions, probabilities, names, timelines["train"])
    results = group_by_class(scores, "predict", names)
    print(results_table("test", results))
    clear_results(training)
    write_json(Path(training.output_dir) / RESULTS, {"test": results})
    table = prediction_rows(test, predictions, probabilities, names, with_texts=not data.no_text)
    write_predictions(training.output_dir, table)
    write_mistakes(training.output_dir, table, test)
    write_test_figures(training.output_dir, test, predictions, probabilities, names)
    write_test_table(training.output_dir, results, baseline.method, checkpoint_name(baseline.source))
    print_figures(training.output_dir)


if __name__ == "__main__":
    run_script(main, "research")
