"""The stock Trainer on rows of timelines: evaluation, best model, early stopping, accumulation, resuming."""

import torch
from conftest import tiny_encoder, tiny_model
from datasets import Dataset
from transformers import AutoTokenizer, EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

from modeling_tempoformer import StreamCollator, TempoFormerForStreamClassification
from modeling_tempoformer.metrics import compute_metrics
from modeling_tempoformer.synthetic import synthetic_posts
from modeling_tempoformer.timelines import to_rows, to_timelines


NAMES = ["No-Switch", "Switch"]


def make_trainer(
    folder, tokenization, num_timelines: int = 8, callbacks=(), dropout: float = 0.1, **arguments
) -> Trainer:
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    posts = Dataset.from_list(list(synthetic_posts(num_timelines, seed=0, posts_per_timeline=6)))
    rows = to_rows(to_timelines(posts, NAMES), tokenizer, window=4, targets_per_row=3)
    encoder = {**tiny_encoder(), "vocab_size": len(tokenizer), "hidden_dropout_prob": dropout}
    encoder["attention_probs_dropout_prob"] = dropout
    model = tiny_model(encoder_config=encoder, num_labels=2, head_dropout=dropout)
    settings = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "remove_unused_columns": False,
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "seed": 0,
    }
    return Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **{**settings, **arguments}),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        data_collator=StreamCollator(tokenizer, window=4),
        compute_metrics=compute_metrics(NAMES),
        callbacks=list(callbacks),
    )


class KeepGradientNorms(TrainerCallback):
    def __init__(self):
        self.norms = []

    def on_log(self, args, state, control, logs, **kwargs):
        if "grad_norm" in logs:
            self.norms.append(float(logs["grad_norm"]))


def test_accumulated_small_batches_are_one_large_batch(tmp_path, tokenization):
    """Rows hold different numbers of labelled streams, so a mean of means would differ."""
    weights, norms = [], []
    for size, steps in ((8, 1), (2, 4)):
        set_seed(0)
        keep = KeepGradientNorms()
        trainer = make_trainer(
            tmp_path, tokenization, callbacks=[keep], dropout=0.0, per_device_train_batch_size=size,
            gradient_accumulation_steps=steps, max_steps=2, logging_steps=1, save_strategy="no",
        )  # fmt: skip
        trainer.train()
        weights.append(trainer.model.classifier.mlp[0].weight.detach().clone())
        norms.append(torch.tensor(keep.norms))
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-4, atol=0)
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-5)


def test_resumed_training_ends_in_the_same_weights(tmp_path, tokenization):
    settings = {"max_steps": 6, "save_steps": 3, "logging_steps": 1}
    set_seed(0)
    whole = make_trainer(tmp_path / "whole", tokenization, **settings)
    whole.train()
    set_seed(1)
    resumed = make_trainer(tmp_path / "resumed", tokenization, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    assert resumed.state.global_step == 6
    for (name, weight), other in zip(
        whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True
    ):
        assert torch.equal(weight, other), name
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    assert {"config.json", "modeling_tempoformer.py", "windows_tempoformer.py", "tokenizer.json"} <= {
        path.name for path in checkpoint.iterdir()
    }


def test_the_best_model_is_kept_and_training_stops(tmp_path, tokenization):
    """A learning rate that ruins the model: the first evaluation stays the best."""
    trainer = make_trainer(
        tmp_path, tokenization, callbacks=[EarlyStoppingCallback(2)], learning_rate=10.0, num_train_epochs=20,
        eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="macro_f1",
    )  # fmt: skip
    trainer.train()
    scores = [entry["eval_macro_f1"] for entry in trainer.state.log_history if "eval_macro_f1" in entry]
    assert len(scores) < 20 and trainer.state.best_metric == max(scores)
    assert max(scores[-2:]) <= max(scores[:-2])
    best = TempoFormerForStreamClassification.from_pretrained(trainer.state.best_model_checkpoint)
    for weight, other in zip(trainer.model.parameters(), best.parameters(), strict=True):
        assert torch.equal(weight, other)
    assert trainer.evaluate()["eval_macro_f1"] == max(scores)


def test_predictions_do_not_depend_on_the_batch_size(tmp_path, tokenization):
    logits = []
    for size in (1, 5):
        trainer = make_trainer(tmp_path, tokenization, per_device_eval_batch_size=size, num_timelines=3)
        output = trainer.predict(trainer.eval_dataset)
        assert output.metrics["test_support_Switch"] == (output.label_ids == 1).sum()
        logits.append(torch.from_numpy(output.predictions))
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)
