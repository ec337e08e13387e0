"""The stock Trainer on rows of timelines: accumulation, and predictions in batches."""

import torch
from helpers import make_trainer
from transformers import TrainerCallback, set_seed


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


def test_predictions_do_not_depend_on_the_batch_size(tmp_path, tokenization):
    logits = []
    for size in (1, 5):
        trainer = make_trainer(tmp_path, tokenization, per_device_eval_batch_size=size, num_timelines=3)
        output = trainer.predict(trainer.eval_dataset)
        assert output.metrics["test_support_Switch"] == (output.label_ids == 1).sum()
        logits.append(torch.from_numpy(output.predictions))
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)
