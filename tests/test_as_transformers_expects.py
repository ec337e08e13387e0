"""Checks that our models do what any model of Transformers does, or raise one clear error."""

import pytest
import torch
from helpers import CHANGES, MODELS, dated_config, inputs_only, make_trainer, tiny_model, tiny_reader
from transformers import AutoModelForSequenceClassification, Trainer, pipeline

from modeling_tempoformer import TempoFormerConfig, TempoFormerForStreamClassification, modeling_temporal_bert
from modeling_tempoformer.training.frozen_encoder import embed_rows


# The post model as it is trained by default.
DEFAULT = {"model_type": "post_tempoformer", "num_members": 5, "num_trees": 40, "num_words": 50}
DEFAULT |= {"expert_weights": [0.9, 0.8, 0.4]}
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
    """With one class the loss is 0 for any logits."""
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
    # All present posts, as one group.
    step = step[batch["attention_mask"].any(-1)]
    model.tempoformer.encoder.embeddings.register_forward_hook(lambda module, args, states: states + step)
    moved = model(**batch).logits.square().sum()
    assert (moved - total).item() == pytest.approx(1e-5 * gradient.norm().item(), rel=0.01)


@pytest.mark.parametrize("saved", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("way", ["to", "load", "autocast"])
@pytest.mark.parametrize("kind", [MODELS[0], DEFAULT], ids=str)
def test_16_bits_give_almost_the_same_probabilities(tmp_path, kind, way, saved):
    """The first post of a timeline has no earlier post."""
    model, tokenizer = tiny_reader(tmp_path, **CHANGES, **kind)
    timeline = {"text": ["sad today", "so glad", "", "lost", "so glad"], "timestamp": [0, 60, 60, 7200, 400000]}

    def probabilities(**settings) -> torch.Tensor:
        pipe = pipeline("stream-classification", tokenizer=tokenizer, top_k=9, **settings)
        by_name = [{entry["label"]: entry["score"] for entry in post} for post in pipe(timeline)]
        return torch.tensor([[post[name] for name in CHANGES["label2id"]] for post in by_name])

    expected, dtype = probabilities(model=model), getattr(torch, saved)
    if way == "load":
        actual = probabilities(model=type(model).from_pretrained(tmp_path, dtype=dtype))
    elif way == "to":
        actual = probabilities(model=model.to(dtype))
    else:
        with torch.autocast("cpu", torch.bfloat16, enabled=saved == "bfloat16"):
            actual = probabilities(model=model)
    torch.testing.assert_close(actual, expected, atol=2e-2 if saved != "float32" else 1e-5, rtol=0)


def test_trees_stay_in_32_bits(tmp_path):
    """In 16 bits posts would cross the thresholds. A model that is saved in 16 bits keeps its trees in 32."""
    model = tiny_model(**DEFAULT)
    expected = {name: values.clone() for name, values in model.trees.state_dict().items()}
    for changed in (model.half(), model.bfloat16(), model.to(torch.float16)):
        changed.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert loaded.dtype == torch.bfloat16
        for name, values in loaded.trees.state_dict().items():
            assert values.dtype == expected[name].dtype and torch.allclose(values, expected[name], rtol=1e-6, atol=0)


@pytest.mark.parametrize("precision", ["fp16_full_eval", "bf16_full_eval"])
def test_vectors_of_posts_are_read_in_16_bits(tmp_path, tokenization, precision):
    """The vectors of a frozen encoder are in 32 bits."""

    def predict(**settings) -> torch.Tensor:
        trainer = make_trainer(tmp_path, tokenization, kind=DEFAULT, **settings)
        rows = embed_rows({"train": trainer.train_dataset}, trainer.model, trainer.processing_class)["train"]
        return torch.from_numpy(trainer.predict(rows).predictions).float().softmax(-1)

    torch.testing.assert_close(predict(**{precision: True}), predict(), atol=2e-2, rtol=0)


@WITH_BOTH_MODELS
@pytest.mark.parametrize("with_head", [True, False])
def test_what_the_library_passes_to_any_model_changes_nothing(batch, kind, with_head):
    model, batch = tiny_model(**kind), inputs_only(batch)
    model = model if with_head else model.tempoformer
    with torch.no_grad():
        expected = model(**batch)
        # The head refuses the number of labels without labels: so a Trainer with another loss calls it.
        passed = {"use_cache": False, "output_router_logits": False, "output_attentions": None}
        passed |= {} if with_head else {"num_items_in_batch": torch.tensor(7)}
        found = model(**batch, **passed)
        as_tuple = model(**batch, **passed, return_dict=False)
    assert list(found) == list(expected) and isinstance(as_tuple, tuple)
    for name, other in zip(expected, as_tuple, strict=True):
        torch.testing.assert_close(found[name], expected[name])
        torch.testing.assert_close(other, expected[name])


@WITH_BOTH_MODELS
@pytest.mark.parametrize("name", ["elapsd", "position_ids"])
def test_an_input_that_the_model_does_not_read_is_refused(batch, kind, name):
    """A misspelled column would be lost, and so would an input of other models."""
    model = tiny_model(**kind)
    for one in (model, model.tempoformer):
        with pytest.raises(TypeError, match=name):
            one(**inputs_only(batch), **{name: batch["elapsed"]})


@pytest.mark.parametrize("kind", [*MODELS, {"model_type": "temporal_bert"}], ids=str)
def test_the_number_of_classes_is_an_attribute(kind):
    if kind in MODELS:
        assert tiny_model(**kind, num_labels=4).num_labels == 4
    else:
        for head in ("SequenceClassification", "TokenClassification"):
            cls = getattr(modeling_temporal_bert, f"BertWithTemporalAttentionFor{head}")
            assert cls(dated_config(num_labels=4)).num_labels == 4


def test_a_loss_of_ones_own_is_possible_and_label_smoothing_is_not(tmp_path, tokenization):
    """The loss gets the labels, and the Trainer logs its value."""
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
