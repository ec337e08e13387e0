"""Which evaluation is the best, and what a training says of a model that has learned nothing."""

import pytest
import torch
from datasets import Dataset
from helpers import NAMES, tiny_encoder, tiny_model
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments


LABELS = [0, 0, 0, 1]


def make(folder, tokenization, **settings) -> StreamTrainer:
    """A training on four rows of four posts, evaluated after each step."""
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    torch.manual_seed(0)
    model = tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)}, num_labels=2)
    model.config.id2label = dict(enumerate(NAMES))
    texts = ["sad today", "so glad", "tired again", "home"]
    row = {"input_ids": tokenizer(texts)["input_ids"], "timestamps": [0, 60, 90, 9000], "labels": LABELS}
    defaults = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    defaults |= {"load_best_model_at_end": True, "metric_for_best_model": "macro_f1", "report_to": "none"}
    defaults |= {"use_cpu": True, "disable_tqdm": True, "learning_rate": 0.0}
    arguments = StreamTrainingArguments(str(folder), **{**defaults, **settings})
    rows = Dataset.from_list([row] * 4)
    return StreamTrainer(model, arguments, StreamCollator(tokenizer, 4), train_dataset=rows, eval_dataset=rows)


def test_of_equal_evaluations_that_with_the_lowest_loss_is_kept(tmp_path, tokenization):
    """Three evaluations tie, and the first of them has not the lowest loss."""
    trainer = make(tmp_path, tokenization, learning_rate=1e-3, max_steps=5, metric_for_best_model="eval_macro_f1")
    scores = iter([0.4, 0.5, 0.5, 0.5, 0.4])
    trainer.compute_metrics = lambda prediction: {"macro_f1": next(scores)}
    trainer.train()
    entries = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    best = max(entries, key=lambda entry: (entry["eval_macro_f1"], -entry["eval_loss"]))
    first = next(entry for entry in entries if entry["eval_macro_f1"] == 0.5)
    assert best["step"] != first["step"] == 2
    assert trainer.state.best_global_step == best["step"] and trainer.state.best_metric == 0.5


def test_a_lower_loss_alone_does_not_win(tmp_path, tokenization):
    trainer = make(tmp_path, tokenization, learning_rate=1e-3)
    scores = iter([0.4, 0.6, 0.5, 0.5])
    trainer.compute_metrics = lambda prediction: {"macro_f1": next(scores)}
    trainer.train()
    losses = {entry["step"]: entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry}
    assert trainer.state.best_global_step == 2 != min(losses, key=losses.get)


def test_a_model_of_one_class_is_called_so_at_the_end(tmp_path, tokenization, caplog):
    """It learns nothing at a learning rate of 0."""
    trainer = make(tmp_path, tokenization)
    head = trainer.model.classifier.mlp[-1]
    torch.nn.init.zeros_(head.weight)
    head.bias.data = torch.tensor([1.0, 0.0])
    trainer.train()
    (said,) = (entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING")
    assert "predicted as No-Switch; macro F1 0.429" in said and "docs/troubleshooting.md" in said


@pytest.mark.parametrize("level", ["passive", "info"])
def test_raw_numbers_are_shown_on_demand(tmp_path, tokenization, capsys, level):
    # What "passive" means, whatever a test before has asked for.
    transformers_logging.set_verbosity_warning()
    make(tmp_path, tokenization, disable_tqdm=False, logging_steps=1, log_level=level).train()
    shown = "".join(capsys.readouterr())
    assert "4/4" in shown
    assert ("'grad_norm'" in shown) == (level == "info")
