"""Checks outputs and gradients of the model against the same function written out plainly."""

from itertools import product
from unittest import mock

import pytest
import torch
from dense_reference import dense_logits
from helpers import MODELS, fixed_batch, tiny_encoder, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

from modeling_tempoformer import packing_tempoformer
from modeling_tempoformer.streams_tempoformer import elapsed_seconds, stream_windows


OF_BOTH = {
    "family": st.sampled_from(["bert", "roberta"]),
    "attn_implementation": st.sampled_from(["eager", "sdpa"]),
    "stream_attention": st.sampled_from(["temporal_rotary", "rotary", "full"]),
    "window": st.integers(1, 5),
}
CONFIGS = {
    "tempoformer": st.fixed_dictionaries(
        {
            **OF_BOTH,
            "num_stream_layers": st.integers(0, 3),
            "stream_position_embeddings": st.booleans(),
            "stream_residual": st.booleans(),
            "fusion": st.sampled_from(["gate", "none"]),
            "head": st.sampled_from(["mlp", "lstm"]),
            "recurrent_order": st.sampled_from(["forward", "reverse"]),
        }
    ),
    "post_tempoformer": st.fixed_dictionaries(
        {
            **OF_BOTH,
            "num_stream_layers": st.integers(1, 3),
            "post_pooling": st.sampled_from(["mean", "cls"]),
            "stream_hidden_size": st.sampled_from([8, 16, 24]),
        }
    ),
}


@st.composite
def batches(draw, window: int, pad: int) -> dict[str, torch.Tensor]:
    """Draws rows of posts of up to 20 tokens, some of them absent, and streams of up to `window` posts."""
    rows, posts = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    lengths = torch.tensor([draw(st.lists(st.integers(0, 20), min_size=posts, max_size=posts)) for _ in range(rows)])
    mask = (torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(-1)).long()
    input_ids = torch.randint(5, 60, mask.shape, generator=generator).masked_fill(mask == 0, pad)
    counts = [draw(st.integers(0, posts)) for _ in range(rows)]
    index = torch.full((rows, posts, window), -1)
    elapsed = torch.zeros(rows, posts, window)
    for row, count in enumerate(counts):
        times = torch.rand(posts, generator=generator, dtype=torch.float64).mul(12).exp().cumsum(0)
        index[row, :count] = stream_windows(torch.arange(count), window)
        elapsed[row, :count] = elapsed_seconds(times, index[row, :count])
    batch = {"input_ids": input_ids, "attention_mask": mask, "stream_index": index}
    return {**batch, "elapsed": elapsed} if draw(st.booleans()) else batch


@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("model_type", list(CONFIGS))
@given(data=st.data())
def test_agrees_with_the_plain_form(model_type, data):
    config = data.draw(CONFIGS[model_type])
    model = tiny_model(model_type=model_type, **config)
    pad = model.config.encoder_config.pad_token_id
    batch = data.draw(batches(config["window"], pad))
    # These numbers decide how many groups of posts there are.
    cost, most = data.draw(st.sampled_from([4, 64])), data.draw(st.sampled_from([40, 8192]))
    one, other = (
        mock.patch.object(packing_tempoformer, "CPU_COST", cost),
        mock.patch.object(packing_tempoformer, "CPU_TOKENS", most),
    )
    with torch.no_grad(), one, other:
        torch.testing.assert_close(model(**batch).logits, dense_logits(model, batch), atol=1e-5, rtol=1e-5)


VARIANTS = [
    {},
    {"head": "lstm"},
    {"num_stream_layers": 0},
    {"num_stream_layers": 1, "stream_attention": "full"},
    {"num_stream_layers": 3, "stream_residual": True, "fusion": "none", "stream_position_embeddings": False},
    {"model_type": "post_tempoformer"},
    {"model_type": "post_tempoformer", "post_pooling": "cls", "num_stream_layers": 2},
]


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(
    ("variant", "checkpointing"),
    [*((variant, None) for variant in VARIANTS), *product((VARIANTS[0], VARIANTS[-1]), (True, False))],
    ids=str,
)
def test_gradients_agree_with_the_plain_form(variant, checkpointing):
    encoder = {**tiny_encoder(), "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder["initializer_range"] = 0.3
    variant = {**variant, **({"stream_dropout": 0.0} if "model_type" in variant else {})}
    fast, dense = (tiny_model(encoder_config=encoder, head_dropout=0.0, **variant) for _ in range(2))
    if checkpointing is not None:
        fast.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": checkpointing})
        fast.enable_input_require_grads()
        fast.train()
    batch = fixed_batch()
    fast(**batch).logits.square().mean().backward()
    dense_logits(dense, batch).square().mean().backward()
    for (name, parameter), other in zip(fast.named_parameters(), dense.parameters(), strict=True):
        assert parameter.grad is not None, name
        expected = torch.zeros_like(other) if other.grad is None else other.grad
        torch.testing.assert_close(parameter.grad, expected, atol=1e-5, rtol=1e-4, msg=lambda m: f"{name}: {m}")


def many_posts() -> dict[str, torch.Tensor]:
    """Returns a row of 40 posts of 1 to 20 tokens."""
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(20) < torch.randint(1, 21, (1, 40, 1), generator=generator)).long()
    return {
        "input_ids": torch.randint(5, 60, mask.shape, generator=generator) * mask,
        "attention_mask": mask,
        "stream_index": stream_windows(torch.arange(40), 4).unsqueeze(0),
    }


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(("kind", "padding"), list(zip(MODELS, (1.4, 1.5), strict=True)), ids=str)
def test_each_post_passes_a_layer_once_and_with_little_padding(kind, padding):
    model, batch, seen = tiny_model(**kind), many_posts(), []
    model.tempoformer.encoder.encoder.layer[0].register_forward_hook(
        lambda module, args, output: seen.append(tuple(args[0].shape[:2]))
    )
    with torch.no_grad():
        model(**batch)
    assert sum(posts for posts, _ in seen) == batch["input_ids"].shape[1] and len(seen) > 1
    assert sum(posts * tokens for posts, tokens in seen) < padding * batch["attention_mask"].sum()


@pytest.mark.parametrize("kind", MODELS, ids=str)
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
    """Under autocast on CUDA, LayerNorm returns 32 bits and a projection 16."""
    model, batch = tiny_model(num_stream_layers=2), fixed_batch()
    expected = model(**batch).logits
    projection = model.tempoformer.stream_layers[0].attention.o_proj
    projection.register_forward_hook(lambda module, args, output: output.bfloat16())
    torch.testing.assert_close(model(**batch).logits, expected, atol=2e-2, rtol=0)
