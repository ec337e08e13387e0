r"""Runs a baseline on the same posts and with the same arguments as run_glue_style.py.

    python -m research.run_baseline --method bilstm --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 \
        --train_file posts.csv --output_dir outputs/bilstm
    python -m research.run_baseline configuration/lrs_fast.yaml research/baselines/bilstm.yaml \
        --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --train_file lrs.csv --output_dir outputs

`--method` is one of

- class_prior, few_shot, position_and_time, trees, words: not trained by the Trainer;
- post, concatenated: a stock sequence classifier on the post alone or after its history;
- ffn_history, bilstm, swnu, seq_sig_net: small networks over frozen embeddings.

Without a recipe, research/baselines/METHOD.yaml is read.
"""

from collections.abc import Collection

from transformers import AutoConfig, set_seed

from modeling_tempoformer.commands.baseline import predict_test, split_for_baseline, start
from modeling_tempoformer.common.command_line import run_script
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.training.reporting import report_results
from modeling_tempoformer.training.resuming import train_or_resume
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments

from .baselines.base import PAPER_BASELINES, Baseline, UntrainedBaseline


def main(arguments: list[str], fold: dict[str, list[str]] | None = None):
    kind, arguments = PAPER_BASELINES.read(arguments)
    start(kind, arguments, run, fold)


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
    splits, names = split_for_baseline(given, baseline, data, training)

    if isinstance(baseline, UntrainedBaseline):
        predict_test(baseline, splits.timelines, names, data, training)
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


if __name__ == "__main__":
    run_script(main, "research")
