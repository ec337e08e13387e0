"""Checks the Trainer of streams: the best evaluation, the card that a training writes, and logits by post."""

import pytest
import torch
from datasets import Dataset
from helpers import MODELS, NAMES, VOCABULARY, make_timeline, rows_of_vectors, tiny_encoder, tiny_model
from huggingface_hub import ModelCard
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    DataCollatorWithPadding,
)
from transformers.utils import logging as transformers_logging

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.training.experts import GrowExperts
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments


TEXTS = ["sad today", "so glad", "tired again", "home"]


def make(folder, tokenization, kind=MODELS[0], **settings) -> StreamTrainer:
    """
    Returns a trainer on four rows of four posts, with an evaluation after each of four steps. The learning rate is 0.
    """
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    tokenizer.model_max_length = 16
    torch.manual_seed(0)
    model = tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)}, num_labels=2, **kind)
    model.config.id2label = dict(enumerate(NAMES))
    row = {"input_ids": tokenizer(TEXTS)["input_ids"], "timestamps": [0, 60, 90, 9000], "labels": [0, 0, 0, 1]}
    defaults = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    defaults |= {"load_best_model_at_end": True, "metric_for_best_model": "macro_f1", "report_to": "none"}
    defaults |= {"use_cpu": True, "disable_tqdm": True, "learning_rate": 0.0, "logging_steps": 1}
    arguments = StreamTrainingArguments(str(folder), **{**defaults, **settings})
    rows = Dataset.from_list([row] * 4)
    collator = StreamCollator(tokenizer, 4)
    return StreamTrainer(model, arguments, collator, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)


def train_with_scores(trainer: StreamTrainer, *scores: float) -> list[dict]:
    """Returns the evaluations of a training with these values of macro F1."""
    left = iter(scores)
    trainer.compute_metrics = lambda prediction: {"macro_f1": next(left)}
    trainer.train()
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]


@pytest.mark.parametrize("precision", ["fp16_full_eval", "bf16_full_eval"])
def test_an_evaluation_in_16_bits_leaves_the_weights_in_32_until_they_are_saved(tmp_path, tokenization, precision):
    """Trees are grown at the end, by the same weights."""
    kind = {"model_type": "post_tempoformer", "num_trees": 2}
    trainer = make(tmp_path, tokenization, kind, **{precision: True})
    trainer.add_callback(GrowExperts())
    timelines = [
        make_timeline([0, 0, 0, 1], str(part), timestamps=[0, 60, 90, 9000], held_out=part % 2) for part in range(4)
    ]
    trainer.train_dataset = rows_of_vectors(timelines, torch.randn(4, 4, 16), 4)
    before = {name: weights.clone() for name, weights in trainer.model.named_parameters()}
    trainer.train()
    assert trainer.model.mixture.weights[1:].any() or trainer.model.trees.leaves.unique().numel() > 1
    for name, weights in trainer.model.named_parameters():
        torch.testing.assert_close(weights.detach(), before[name], atol=1e-6, rtol=0)


def test_a_lower_loss_alone_does_not_win(tmp_path, tokenization):
    trainer = make(tmp_path, tokenization, learning_rate=1e-3)
    entries = train_with_scores(trainer, 0.4, 0.6, 0.5, 0.5)
    assert trainer.state.best_global_step == 2 != min(entries, key=lambda entry: entry["eval_loss"])["step"]


@pytest.mark.parametrize("level", ["passive", "info"])
def test_raw_numbers_are_shown_on_demand(tmp_path, tokenization, capsys, level):
    # "passive" keeps the library's level, which an earlier test may have changed.
    transformers_logging.set_verbosity_warning()
    make(tmp_path, tokenization, disable_tqdm=False, log_level=level).train()
    shown = "".join(capsys.readouterr())
    assert "4/4" in shown
    assert ("'grad_norm'" in shown) == (level == "info")


def shown_scores(folder) -> dict[tuple[str, str], float]:
    results = ModelCard.load(folder / "README.md").data.eval_results or ()
    return {(result.dataset_split, result.metric_name): result.metric_value for result in results}


def test_the_card_tells_of_the_training(tmp_path, tokenization):
    content = {"language": "en", "dataset": "Made up", "finetuned_from": str(tmp_path)}
    trainer = make(tmp_path / "mine", tokenization, model_card=content, learning_rate=0.003)
    trainer.train()
    trainer.save_model()
    card = ModelCard.load(tmp_path / "mine" / "README.md")
    assert (card.data.base_model, card.data.language) == (None, ["en"])
    # The scores belong to the best weights, which were loaded, and not to the last evaluation.
    scores, shown = trainer.evaluate(), shown_scores(tmp_path / "mine")
    assert shown["validation", "Macro F1"] == pytest.approx(scores["eval_macro_f1"])
    assert shown["validation", "Loss"] == pytest.approx(scores["eval_loss"], abs=1e-5)
    for secret in (str(tmp_path), *TEXTS[:3]):
        assert secret not in card.content


def test_scores_are_those_that_were_saved_since_the_last_training(tmp_path, tokenization):
    never = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    trainer = make(tmp_path, tokenization, max_steps=1, **never)
    trainer.save_metrics("predict", {"predict_macro_f1": 0.25, "predict_f1_Switch": 0.75})
    trainer.save_metrics("eval", {"eval_macro_f1": 0.5})
    trainer.create_model_card()
    test_scores = {("test", "Macro F1"): 0.25, ("test", "F1 (Switch)"): 0.75}
    assert shown_scores(tmp_path) == {**test_scores, ("validation", "Macro F1"): 0.5}
    # Only the test part is scored with the calibration. The calibration is fitted after the validation scores.
    trainer.model.config.calibration = {"temperature": 2.0, "thresholds": None}
    trainer.create_model_card()
    assert shown_scores(tmp_path) == test_scores
    trainer.model.config.calibration = None
    trainer.train()
    trainer.save_model()
    assert shown_scores(tmp_path) == {}


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_logits_are_those_of_their_posts(tmp_path, strategy):
    """The Trainer's sampling order does not matter."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    model = BertForSequenceClassification(BertConfig(vocab_size=len(VOCABULARY), initializer_range=1.0, **sizes))
    tokenizer = BertTokenizer(vocab=VOCABULARY, model_max_length=64)
    words = ["the", "tree", "plane", "flew", "air"]
    texts = [" ".join(words[: 1 + post % 5] * (1 + post // 3)) for post in range(12)]
    rows = [
        {**tokenizer(text), "labels": post % 2, "timeline": 0, "num_before": post, "num_context": 0}
        for post, text in enumerate(texts)
    ]
    items = Dataset.from_list(rows[::-1]).with_format(columns=[*tokenizer.model_input_names, "labels"])
    settings = {"per_device_eval_batch_size": 5, "report_to": "none", "use_cpu": True, "disable_tqdm": True}
    arguments = StreamTrainingArguments(str(tmp_path), train_sampling_strategy=strategy, **settings)
    trainer = StreamTrainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer))
    timeline = make_timeline([post % 2 for post in range(12)])
    trainer.predict_posts(items, [timeline])
    model.eval()
    with torch.no_grad():
        expected = torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts])
    assert torch.allclose(timeline.logits, expected, atol=1e-5)
    assert trainer.args.train_sampling_strategy == strategy
