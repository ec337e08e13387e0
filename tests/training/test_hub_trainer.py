"""The card that a training writes, and what must not be on it."""

import pytest
import torch
from datasets import Dataset
from helpers import CHANGES, tiny_encoder, tiny_model
from huggingface_hub import ModelCard
from transformers import AutoTokenizer

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.evaluation.metrics import compute_metrics
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments


TEXTS = ["sad today", "so glad", "tired again"]


def make(tokenization, output_dir, **settings) -> StreamTrainer:
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    tokenizer.model_max_length = 16
    model = tiny_model(**CHANGES, encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)})
    row = {"input_ids": tokenizer(TEXTS)["input_ids"], "timestamps": [0, 60, 90000], "labels": [0, 1, 2]}
    defaults = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": 2,
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "load_best_model_at_end": True,
        "metric_for_best_model": "macro_f1",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }
    arguments = StreamTrainingArguments(str(output_dir), **{**defaults, **settings})
    return StreamTrainer(
        model,
        arguments,
        StreamCollator(tokenizer, model.config.window),
        train_dataset=Dataset.from_list([row] * 4),
        eval_dataset=Dataset.from_list([row]),
        processing_class=tokenizer,
        compute_metrics=compute_metrics(["IS", "O", "IE"]),
    )


def shown_scores(folder) -> dict[tuple[str, str], float]:
    results = ModelCard.load(folder / "README.md").data.eval_results or ()
    return {(result.dataset_split, result.metric_name): result.metric_value for result in results}


def test_the_card_tells_of_the_training(tmp_path, tokenization):
    facts = {"language": "en", "dataset": "Made up", "finetuned_from": str(tmp_path)}
    trainer = make(tokenization, tmp_path / "mine", model_card=facts, learning_rate=0.003)
    trainer.train()
    trainer.save_model()
    card = ModelCard.load(tmp_path / "mine" / "README.md")
    assert card.data.base_model is None
    # The scores describe the best weights, which were loaded, and not the last evaluation.
    scores, shown = trainer.evaluate(), shown_scores(tmp_path / "mine")
    assert shown["validation", "Macro F1"] == pytest.approx(scores["eval_macro_f1"])
    assert shown["validation", "Loss"] == pytest.approx(scores["eval_loss"], abs=1e-5)
    for label in ("IS", "O", "IE"):
        assert shown["validation", f"F1 ({label})"] == pytest.approx(scores[f"eval_f1_{label}"])
    evaluations = [entry for entry in trainer.state.log_history if "eval_loss" in entry][:2]
    losses = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    assert "| Epoch | Step | Training Loss | Validation Loss | Macro F1 |" in card.text
    for number, entry in enumerate(evaluations, start=1):
        numbers = [losses[entry["step"]], entry["eval_loss"], entry["eval_macro_f1"]]
        row = [str(number), str(entry["step"]), *(f"{value:.4g}" for value in numbers)]
        assert f"| {' | '.join(row)} |" in card.text
    for line in (r"| learning\_rate | 0.003 |", "- Dataset: Made up", "- Language: en"):
        assert line in card.text.splitlines()
    assert "16 tokens" in card.text
    for secret in (str(tmp_path), *TEXTS):
        assert secret not in card.content


def test_scores_are_those_that_were_saved_since_the_last_training(tmp_path, tokenization):
    never = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    trainer = make(tokenization, tmp_path, max_steps=1, **never)
    trainer.save_metrics("predict", {"predict_macro_f1": 0.25, "predict_f1_IS": 0.75, "predict_windows_IS_1": 3.0})
    trainer.save_metrics("eval", {"eval_macro_f1": 0.5})
    trainer.create_model_card()
    test_scores = {("test", "Macro F1"): 0.25, ("test", "F1 (IS)"): 0.75}
    assert shown_scores(tmp_path) == {**test_scores, ("validation", "Macro F1"): 0.5}
    # Only the test part is scored with the calibration, which is fitted after the validation part was scored.
    trainer.model.config.calibration = {"temperature": 2.0, "thresholds": None}
    trainer.create_model_card()
    assert shown_scores(tmp_path) == test_scores
    trainer.model.config.calibration = None
    trainer.train()
    trainer.save_model()
    assert shown_scores(tmp_path) == {}
