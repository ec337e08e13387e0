"""Settings of the Trainer that change how a model is trained but not what it learns; adapters, search, export."""

import pytest
import torch
from helpers import MODELS, make_trainer, tiny_batch, tiny_model
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import TrainingArguments, set_seed


# Its name in old and new versions of Transformers.
CHECKPOINTING = next(
    name for name in ("activation_checkpointing", "gradient_checkpointing") if hasattr(TrainingArguments, name)
)


def train_a_little(folder, tokenization, **settings) -> tuple[list[float], dict[str, torch.Tensor]]:
    """The loss of each of three steps, and the weights after them."""
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
    others, found = train_a_little(tmp_path, tokenization, kind=kind, **settings)
    assert len(losses) == 3 and abs(losses[2] - losses[0]) > 1e-3
    assert others == pytest.approx(losses, abs=tolerance)
    for (name, weight), other in zip(weights.items(), found.values(), strict=True):
        torch.testing.assert_close(other, weight, atol=tolerance, rtol=0, msg=name)


def test_an_adapter_through_the_trainer(tmp_path, tokenization):
    """The adapter and the new head are saved; merged into the base model they are the trained one."""
    trainer = make_trainer(tmp_path, tokenization, max_steps=3, learning_rate=1e-2, save_strategy="no")
    base = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    settings = LoraConfig(r=2, target_modules=["query", "value", "q_proj"], modules_to_save=["classifier"])
    trainer.model = trainer.model_wrapped = get_peft_model(trainer.model, settings)
    trainer.train()
    trainer.save_model()
    assert (tmp_path / "adapter_model.safetensors").exists() and not (tmp_path / "model.safetensors").exists()

    plain = tiny_model(encoder_config=trainer.model.config.encoder_config, num_labels=2)
    plain.load_state_dict(base)
    batch = {name: tensor for name, tensor in tiny_batch().items() if name != "labels"}
    before = plain(**batch).logits
    merged = PeftModel.from_pretrained(plain, tmp_path).merge_and_unload().eval()
    trained = trainer.model.eval()(**batch).logits
    torch.testing.assert_close(merged(**batch).logits, trained, atol=1e-5, rtol=0)
    assert (before - trained).abs().max() > 1e-3


def test_accumulated_small_batches_are_one_large_batch(tmp_path, tokenization):
    """Rows hold different numbers of labelled streams, so a mean of means would differ."""
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
