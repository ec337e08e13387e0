"""The stock Trainer on rows of timelines: evaluation, best model, early stopping, accumulation, resuming."""

import torch
from helpers import make_trainer
from transformers import EarlyStoppingCallback, TrainerCallback, set_seed

from modeling_tempoformer import TempoFormerForStreamClassification


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
