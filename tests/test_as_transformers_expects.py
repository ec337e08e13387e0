"""What works with any model of Transformers works with ours, or ends in one clear error."""

import pytest
import torch
from helpers import MODELS, make_trainer, tiny_model
from transformers import AutoModelForSequenceClassification, Trainer

from modeling_tempoformer import TempoFormerConfig, TempoFormerForStreamClassification


WITH_BOTH_MODELS = pytest.mark.parametrize("kind", MODELS, ids=str)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_labels": 1},
        {"id2label": {0: "change"}},
        {"problem_type": "regression"},
        {"problem_type": "multi_label_classification"},
    ],
    ids=str,
)
def test_a_problem_that_the_focal_loss_is_not_for(tmp_path, fields):
    """With one class its loss is 0 whatever the model says."""
    with pytest.raises(Exception, match="ValueError: The focal loss"):
        TempoFormerConfig(**fields)
    tiny_model().save_pretrained(tmp_path)
    for cls in (TempoFormerForStreamClassification, AutoModelForSequenceClassification):
        with pytest.raises(Exception, match="ValueError: The focal loss"):
            cls.from_pretrained(tmp_path, ignore_mismatched_sizes=True, **fields)


@pytest.mark.parametrize("family", ["bert", "deberta-v2, with convolution", "modernbert"])
def test_returned_hidden_states_get_the_gradient_of_the_logits(batch, family):
    """A small step along the gradient of the embeddings changes a sum by the step's length times the gradient's."""
    model = tiny_model(family).double()
    output = model(**batch, output_hidden_states=True)
    torch.testing.assert_close(output.logits, model(**batch).logits)
    for states in output.hidden_states:
        states.retain_grad()
    total = output.logits.square().sum()
    total.backward()
    assert all(states.grad.any() for states in output.hidden_states)
    gradient = output.hidden_states[0].grad
    step = 1e-5 * gradient / gradient.norm()
    # The posts that are there, as one group.
    step = step[batch["attention_mask"].any(-1)]
    model.tempoformer.encoder.embeddings.register_forward_hook(lambda module, args, states: states + step)
    moved = model(**batch).logits.square().sum()
    assert (moved - total).item() == pytest.approx(1e-5 * gradient.norm().item(), rel=0.01)


def test_a_loss_of_ones_own_is_possible_and_label_smoothing_is_not(tmp_path, tokenization):
    """It gets the labels, and what the Trainer logs is its value."""
    with pytest.raises(ValueError, match="label_smoothing_factor"):
        make_trainer(tmp_path, tokenization, max_steps=1, label_smoothing_factor=0.1).train()
    trainer = make_trainer(tmp_path, tokenization, max_steps=1, logging_steps=1)
    trainer.model.accepts_loss_kwargs = False
    given = []

    def loss(outputs, labels, num_items_in_batch=None):
        given.append(labels)
        return 0 * outputs["logits"].sum() + 7

    parts = {"train_dataset": trainer.train_dataset, "data_collator": trainer.data_collator}
    trainer = Trainer(trainer.model, trainer.args, **parts, compute_loss_func=loss)
    trainer.train()
    assert (given[0] >= 0).any() and trainer.state.log_history[0]["loss"] == pytest.approx(7)
