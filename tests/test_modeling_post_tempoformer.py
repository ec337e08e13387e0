"""Checks the post model over encoders of many types, in batches and step by step, and what its members learn."""

import pytest
import torch
from helpers import OTHER_ENCODERS, make_trainer, tiny_batch, tiny_encoder, tiny_model
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

from modeling_tempoformer import (
    PostTempoFormerForStreamClassification,
    StreamCollator,
    TempoFormerForStreamClassification,
    focal_loss,
)
from modeling_tempoformer.modeling_post_tempoformer import project_slots


@pytest.mark.parametrize("family", list(OTHER_ENCODERS))
def test_any_encoder_that_the_auto_classes_load(tmp_path, family):
    """Each post's vector is the mean of the encoder's own output for the post alone."""
    auto_class = AutoModelForTextEncoding if family == "t5" else AutoModel
    torch.manual_seed(0)
    encoder = auto_class.from_config(AutoConfig.for_model(family, pad_token_id=0, **OTHER_ENCODERS[family])).eval()
    encoder.save_pretrained(tmp_path / "encoder")
    model = PostTempoFormerForStreamClassification.from_encoder_pretrained(
        tmp_path / "encoder", window=4, num_labels=3, stream_hidden_size=8
    )
    batch = tiny_batch()
    with torch.no_grad():
        vectors = model.tempoformer.embed_posts(batch["input_ids"][1], batch["attention_mask"][1])
        for post in range(4):
            alone = encoder(batch["input_ids"][1, post : post + 1, :5]).last_hidden_state.mean(1)
            torch.testing.assert_close(vectors[post : post + 1], alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", [PostTempoFormerForStreamClassification, TempoFormerForStreamClassification])
def test_weights_that_an_encoder_lacks_are_named(tmp_path, caplog, kind):
    encoder = AutoModel.from_config(AutoConfig.for_model(**tiny_encoder()))
    lost = "encoder.layer.1.output.dense.weight"
    weights = {name: weight for name, weight in encoder.state_dict().items() if name != lost}
    encoder.save_pretrained(tmp_path, state_dict=weights)
    with caplog.at_level("WARNING"):
        kind.from_encoder_pretrained(tmp_path, num_labels=2)
    assert [entry for entry in caplog.records if lost in entry.getMessage() and "random" in entry.getMessage()]


def test_its_streams_have_the_documented_shapes():
    model, batch = tiny_model(model_type="post_tempoformer", num_stream_layers=2), tiny_batch()
    del batch["labels"]
    output = model.tempoformer(**batch, output_attentions=True, output_hidden_states=True)
    # Each of two members has the newest post, the step from the previous post, its absolute value, and two cosines.
    assert output.last_hidden_state.shape == (2, 6, 2 * (3 * 8 + 2)) and not output.last_hidden_state[1, 4:].any()
    assert [tuple(weights.shape) for weights in output.stream_attentions] == [(2, 6, 4, 4, 4)] * 2
    assert [tuple(states.shape) for states in output.hidden_states] == [(2, 6, 4, 16)] * 3
    torch.testing.assert_close(output.stream_attentions[0][0, 3].sum(-1), torch.ones(4, 4))
    plain = model.tempoformer(**batch).last_hidden_state
    torch.testing.assert_close(plain, output.last_hidden_state, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("reentrant", "times"), [(None, 1), (True, 2), (False, 2)])
def test_checkpointed_stream_layers_are_computed_again_for_their_gradients(reentrant, times):
    """That the gradients are the same is in `tests/test_encode_once.py`."""
    model, calls = tiny_model(model_type="post_tempoformer", num_stream_layers=2).train(), []
    if reentrant is not None:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        model.enable_input_require_grads()
    for layer in model.tempoformer.stream_layers.layers:
        layer.mlp_norm.register_forward_hook(lambda module, args, states: calls.append(module))
    model(**tiny_batch()).loss.backward()
    assert [calls.count(layer.mlp_norm) for layer in model.tempoformer.stream_layers.layers] == [times] * 2


def test_a_member_does_not_learn_from_what_it_holds_out_and_predicts_it_alone():
    model, batch = tiny_model(model_type="post_tempoformer", num_members=3), tiny_batch()
    labels = batch.pop("labels")
    member_logits = [model(**batch, held_out=torch.tensor([member, member])).logits for member in range(3)]
    torch.testing.assert_close(model(**batch).logits, sum(member_logits) / 3)
    mixed = model(**batch, held_out=torch.tensor([2, 0])).logits
    torch.testing.assert_close(mixed, torch.stack((member_logits[2][0], member_logits[0][1])))
    model.train()
    model(**batch, labels=labels, held_out=torch.tensor([1, 1])).loss.backward()
    gradient = model.tempoformer.stream_layers.projection.weight.grad.abs().amax((1, 2))
    assert (gradient > 1e-4).tolist() == [True, False, True] and gradient[1] == 0


def test_each_member_learns_as_if_it_were_alone():
    """
    Without dropout the loss is the mean of the members' losses, each over the labels that the member learns from. With
    accumulated gradients, all batches together have 20 labelled posts, and one of two members learns from each.
    """
    settings = {"num_members": 2, "stream_dropout": 0.0, "head_dropout": 0.0}
    model, batch = tiny_model(model_type="post_tempoformer", **settings), tiny_batch()
    labels, held_out = batch.pop("labels"), torch.tensor([0, 1])
    member_logits = [model(**batch, held_out=torch.full((2,), member)).logits for member in range(2)]
    losses = [focal_loss(member_logits[0][1], labels[1]), focal_loss(member_logits[1][0], labels[0])]
    counts = [(labels[1] >= 0).sum(), (labels[0] >= 0).sum()]
    model.tempoformer.encoder.eval()
    model.training = True
    joint_loss = model(**batch, labels=labels, held_out=held_out, num_items_in_batch=20).loss
    expected = sum(loss * count for loss, count in zip(losses, counts, strict=True)) / 20
    torch.testing.assert_close(joint_loss, expected)


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_logged_loss_of_training_is_that_of_an_evaluation(tmp_path, tokenization, accumulated):
    """All members are equal and nothing is learned, so the losses can differ only by the divisor."""
    kind = {"model_type": "post_tempoformer", "num_members": 5, "stream_dropout": 0.0}
    steps = {"gradient_accumulation_steps": accumulated, "max_steps": 1, "logging_steps": 1, "learning_rate": 0.0}
    sizes = {"per_device_train_batch_size": 16 // accumulated}
    trainer = make_trainer(tmp_path, tokenization, kind=kind, dropout=0.0, **steps, **sizes)
    for module in (trainer.model.tempoformer.stream_layers, trainer.model.classifier):
        for name, weights in module.named_parameters():
            by_member = weights.detach().unflatten(1, (5, -1)).movedim(1, 0) if "position" in name else weights
            by_member.data.copy_(by_member[:1].clone().expand_as(by_member))
    rows = trainer.train_dataset
    assert len(rows) == 16
    for held_out in (None, [number % 5 for number in range(16)]):
        trainer.train_dataset = rows if held_out is None else rows.add_column("held_out", held_out)
        trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert logged[0] == pytest.approx(trainer.evaluate()["eval_loss"], rel=1e-4)


@pytest.mark.parametrize("attention", ["temporal_rotary", "full"])
def test_posts_that_stand_in_many_streams_are_projected_as_in_each(attention):
    # Each slot by itself is the plain form: the norm of the sum of a post and its position, then the linear layer.
    torch.manual_seed(0)
    model = tiny_model(model_type="post_tempoformer", stream_attention=attention, num_members=3)
    config, layer = model.config, model.base_model.stream_layers.layers[0]
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    posts, positions = 2 + torch.randn(3, 6, config.stream_hidden_size), torch.randn(3, 4, config.stream_hidden_size)
    posts[:, 2] = -positions[:, 1]  # a sum without any spread
    slot_post = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [0, 0, 5, 5]])
    linears = [layer.attention.k_proj, layer.attention.v_proj]
    states = posts[:, slot_post] + positions.unsqueeze(1)
    found = project_slots(layer.attention_norm, linears, posts, slot_post, positions)
    for linear, projected in zip(linears, found, strict=True):
        for member in range(3):
            normal = nn.functional.layer_norm(states[member], states.shape[-1:])
            normal = normal * layer.attention_norm.weight[member] + layer.attention_norm.bias[member]
            expected = normal @ linear.weight[member] + (0 if linear.bias is None else linear.bias[member])
            has_spread = states[member].std(-1) > 1e-3
            torch.testing.assert_close(projected[member][has_spread], expected[has_spread], atol=1e-4, rtol=1e-4)
    assert all(values.isfinite().all() for values in found)


@pytest.mark.parametrize("attends", [False, True])
def test_many_rows_at_once_are_read_as_each_row_by_itself(attends):
    torch.manual_seed(0)
    model = tiny_model(model_type="post_tempoformer", num_stream_layers=2, window=5).eval()
    config = model.config
    rows = [
        {"post_embeds": torch.randn(30, config.vector_size), "timestamps": list(range(30)), "num_context": number}
        for number in (4, 2, 0)
    ]
    collator = StreamCollator(None, 5)
    outputs = {"output_stream_attentions": attends, "output_hidden_states": attends}
    with torch.no_grad():
        whole = model(**collator(rows), **outputs)
        for number, row in enumerate(rows):
            alone = model(**collator([row]), **outputs)
            count = alone.logits.shape[1]
            torch.testing.assert_close(whole.logits[number, :count], alone.logits[0], atol=1e-5, rtol=0)
            for name in ("stream_attentions", "hidden_states") if attends else ():
                for ours, theirs in zip(whole[name], alone[name], strict=True):
                    torch.testing.assert_close(ours[number, :count], theirs[0], atol=1e-5, rtol=1e-5)
