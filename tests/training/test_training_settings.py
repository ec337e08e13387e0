"""Checks settings of the Trainer that change how a model is trained, but not what it learns."""

import pytest
import torch
from helpers import MODELS, make_trainer
from transformers import TrainingArguments, set_seed


# The option's name in old and new versions of Transformers.
CHECKPOINTING = next(
    name for name in ("activation_checkpointing", "gradient_checkpointing") if hasattr(TrainingArguments, name)
)


def train_a_little(folder, tokenization, **settings) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Returns the loss of each of three steps, and the weights after them."""
    set_seed(0)
    trainer = make_trainer(
        folder, tokenization, dropout=0.0, max_steps=3, logging_steps=1, save_strategy="no", **settings
    )
    trainer.train()
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    return losses, {name: weight.detach().float() for name, weight in trainer.model.named_parameters()}


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({"bf16": True}, 2e-2),
        ({CHECKPOINTING: True}, 1e-5),
        pytest.param({"torch_compile": True, "torch_compile_backend": "aot_eager"}, 1e-5, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_the_same_is_learned(tmp_path, tokenization, settings, tolerance, kind):
    losses, weights = train_a_little(tmp_path, tokenization, kind=kind)
    others, other_weights = train_a_little(tmp_path, tokenization, kind=kind, **settings)
    assert len(losses) == 3 and abs(losses[2] - losses[0]) > 1e-3
    assert others == pytest.approx(losses, abs=tolerance)
    for (name, weight), other in zip(weights.items(), other_weights.values(), strict=True):
        torch.testing.assert_close(other, weight, atol=tolerance, rtol=0, msg=name)


def test_accumulated_small_batches_are_one_large_batch(tmp_path, tokenization):
    """Rows have different numbers of labelled streams, so a mean of means would differ."""
    weights, norms = [], []
    for size, steps in ((8, 1), (2, 4)):
        set_seed(0)
        trainer = make_trainer(
            tmp_path, tokenization, dropout=0.0, per_device_train_batch_size=size,
            gradient_accumulation_steps=steps, max_steps=2, logging_steps=1, save_strategy="no",
        )  # fmt: skip
        trainer.train()
        weights.append(trainer.model.classifier.mlp[0].weight.detach().clone())
        norms.append(torch.tensor([entry["grad_norm"] for entry in trainer.state.log_history if "grad_norm" in entry]))
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-4, atol=0)
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-5)
