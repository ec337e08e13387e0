"""Attention within posts: by groups, in pieces, and flash attention with a plain computation in its place."""

import pytest
import torch
from helpers import MODELS, fixed_batch, tiny_encoder, tiny_model
from transformers import AttentionInterface

from modeling_tempoformer import packing_tempoformer


WITH_BOTH_MODELS = pytest.mark.parametrize("kind", MODELS, ids=str)


def one_by_one(query, key, value, bounds, scale, window=(-1, -1)):
    """Attention of queries, keys and values (tokens, heads, d) in each sequence between two of the bounds."""
    contexts = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        scores = torch.einsum("qhd,khd->hqk", query[first:last], key[first:last]) * scale
        places = torch.arange(last - first)
        distance = places - places.unsqueeze(-1)
        if window != (-1, -1):
            scores = scores.masked_fill((distance < -window[0]) | (distance > window[1]), -torch.inf)
        contexts.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value[first:last]))
    return torch.cat(contexts)


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_flash_attention_gets_the_library_s_arguments_for_packed_sequences(family):
    def flash(module, query, key, value, attention_mask, scaling, dropout, sliding_window=None, **kwargs):
        assert attention_mask is None and torch.equal(kwargs["cu_seq_lens_q"], kwargs["cu_seq_lens_k"])
        assert kwargs["max_length_q"] == kwargs["max_length_k"] == kwargs["cu_seq_lens_q"].diff().max()
        assert module.config._attn_implementation == "flash_attention_plain"
        window = (-1, -1) if sliding_window is None else (sliding_window - 1, sliding_window - 1)
        states = (states.squeeze(0).transpose(0, 1) for states in (query, key, value))
        return one_by_one(*states, kwargs["cu_seq_lens_q"], scaling, window).unsqueeze(0), None

    AttentionInterface.register("flash_attention_plain", flash)
    model, batch = tiny_model(encoder_config=tiny_encoder(family)), fixed_batch()
    with torch.no_grad():
        expected = model(**batch).logits
        model.tempoformer.encoder.config._attn_implementation = "flash_attention_plain"
        torch.testing.assert_close(model(**batch).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_pieces_of_a_large_batch_give_what_the_whole_gives(monkeypatch, family):
    encoder = {**tiny_encoder(family), "initializer_range": 0.3}
    whole, cut = (tiny_model(encoder_config=encoder, attn_implementation="eager") for _ in range(2))
    outputs = {"output_attentions": True, "output_hidden_states": True}
    expected = whole(**fixed_batch(), **outputs)
    expected.logits.square().sum().backward()
    # At most 16 tokens, or one post.
    monkeypatch.setattr(packing_tempoformer, "CPU_VALUES", 16 * 16)
    calls = []
    layer = cut.tempoformer.adapter.layers(cut.tempoformer.encoder)[0]
    layer.register_forward_hook(lambda module, args, output: calls.append(args[0].shape[1]))
    output = cut(**fixed_batch(), **outputs)
    output.logits.square().sum().backward()
    assert calls == [3 + 4 + 9, 13, 20, 17]
    for name in ("logits", "hidden_states", "attentions", "stream_attentions"):
        torch.testing.assert_close(output[name], expected[name], atol=1e-5, rtol=1e-5)
    for (name, parameter), other in zip(cut.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, atol=1e-5, rtol=1e-4, msg=lambda m: f"{name} {m}")


def test_an_encoder_that_is_called_by_itself_is_the_family_s():
    model, batch = tiny_model(num_stream_layers=0), fixed_batch()
    posts = {name: batch[name][0] for name in ("input_ids", "attention_mask")}
    states = model.tempoformer.encoder(**posts).last_hidden_state
    expected = model.tempoformer(**batch, output_hidden_states=True).hidden_states[-1][0]
    torch.testing.assert_close(states * posts["attention_mask"].unsqueeze(-1), expected, atol=1e-5, rtol=1e-5)


@WITH_BOTH_MODELS
def test_a_post_whose_first_token_is_masked_reads_no_other_post(kind):
    model, batch = tiny_model(window=1, **kind), fixed_batch()
    batch["stream_index"], batch["elapsed"] = batch["stream_index"][..., -1:], batch["elapsed"][..., -1:]
    batch["attention_mask"][0, 3, 0] = 0
    other = {**batch, "input_ids": batch["input_ids"].clone()}
    other["input_ids"][0, 2] = other["input_ids"][0, 2].flip(-1)
    with torch.no_grad():
        first, second = model(**batch).logits[0], model(**other).logits[0]
    assert not torch.allclose(first[2], second[2], atol=1e-3)
    torch.testing.assert_close(first[3], second[3])


def test_the_context_of_a_stream_may_have_another_dtype_than_the_states():
    """As under autocast on CUDA, where LayerNorm returns 32 bits and a projection 16."""
    model, batch = tiny_model(num_stream_layers=2), fixed_batch()
    expected = model(**batch).logits
    projection = model.tempoformer.stream_layers[0].attention.o_proj
    projection.register_forward_hook(lambda module, args, output: output.bfloat16())
    torch.testing.assert_close(model(**batch).logits, expected, atol=2e-2, rtol=0)
