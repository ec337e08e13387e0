"""Compares posts that are packed without padding with padded ones, by a plain attention function."""

from itertools import pairwise, product

import pytest
import torch
from datasets import Dataset
from helpers import ENCODERS, MODELS, OTHER_ENCODERS, tiny_encoder, tiny_model
from test_encoders import family_batch, family_model, no_dropout
from transformers import AttentionInterface, AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from modeling_tempoformer import TempoFormerForStreamClassification, modeling_post_tempoformer
from modeling_tempoformer.packing_tempoformer import TORCH_VARLEN, varlen_attention
from modeling_tempoformer.training.kept_hidden_states import keep_lower_states
from tempoformer_live.stepping import Stepper


POST_MODEL = {"model_type": "post_tempoformer"}
FLASH_FAMILIES = [family for family in ENCODERS if not family.startswith(("deberta", "mpnet"))]
VARIANTS = [
    {},
    {"num_stream_layers": 0},
    {"num_stream_layers": 1, "stream_attention": "full"},
    {"num_stream_layers": 3, "stream_residual": True, "head": "lstm"},
    POST_MODEL,
    {**POST_MODEL, "post_pooling": "cls"},
]


def plain_attention(module, query, key, value, attention_mask, scaling, sliding_window=None, **kwargs):
    """Computes attention inside each segment of a packed sequence, one segment after the other."""
    bounds, longest = kwargs["cu_seq_lens_q"], kwargs["max_length_q"]
    assert attention_mask is None and bounds.dtype == torch.int32 and type(longest) is int
    assert torch.equal(bounds, kwargs["cu_seq_lens_k"]) and longest == kwargs["max_length_k"] == bounds.diff().max()
    parts = []
    for begin, end in pairwise(bounds.tolist()):
        scores = query[:, :, begin:end] @ key[:, :, begin:end].mT * scaling
        if sliding_window is not None:
            places = torch.arange(end - begin)
            scores = scores.masked_fill((places - places.unsqueeze(1)).abs() >= sliding_window, -torch.inf)
        parts.append(scores.softmax(-1) @ value[:, :, begin:end])
    return torch.cat(parts, dim=2).transpose(1, 2), None


@pytest.fixture
def plain():
    """Puts the plain function in the place of the GPU's."""
    AttentionInterface.register(TORCH_VARLEN, plain_attention)
    yield
    AttentionInterface.register(TORCH_VARLEN, varlen_attention)


def both_forms(family: str, **settings) -> list[TempoFormerForStreamClassification]:
    """Returns a model that pads posts, and one with the same weights that packs them."""
    padded, packed = (family_model(family, encoder=no_dropout(family), **settings) for _ in range(2))
    packed.set_attn_implementation(TORCH_VARLEN)
    return [padded, packed]


CASES = [*product(("bert", "roberta", "modernbert"), VARIANTS), *product(FLASH_FAMILIES, MODELS)]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(("family", "settings"), CASES, ids=str)
def test_packed_and_padded_posts_have_the_same_logits_and_gradients(family, settings):
    padded, packed = both_forms(family, **settings)
    batch = family_batch(family)
    for model in (padded, packed):
        model(**batch).logits.square().sum().backward()
    with torch.no_grad():
        torch.testing.assert_close(packed(**batch).logits, padded(**batch).logits, atol=1e-5, rtol=1e-5)
    for (name, weight), other in zip(packed.named_parameters(), padded.parameters(), strict=True):
        assert (weight.grad is None) == (other.grad is None), name
        if weight.grad is not None:
            tolerance = 1e-5 * max(1.0, float(other.grad.abs().max()))
            torch.testing.assert_close(
                weight.grad, other.grad, atol=tolerance, rtol=1e-4, msg=lambda message: f"{name}: {message}"
            )


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_empty_posts_and_empty_batches(kind):
    padded, packed = both_forms("roberta", **kind)
    batch = family_batch("roberta")
    batch["attention_mask"][:, ::2] = 0
    for _ in range(2):
        with torch.no_grad():
            torch.testing.assert_close(packed(**batch).logits, padded(**batch).logits, atol=1e-5, rtol=1e-5)
        batch["attention_mask"][:] = 0
    output = packed.train()(**batch)
    assert not output.logits.any()


def posts_of_all_lengths() -> tuple[torch.Tensor, torch.Tensor]:
    """Returns tokens and mask of posts of 0 to 20 tokens, in no order; two have the id of padding in the middle."""
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(20) < torch.randperm(21, generator=generator).unsqueeze(-1)).long()
    input_ids = torch.randint(5, 60, mask.shape, generator=generator)
    input_ids[mask.sum(-1) > 18, 3] = 1
    return input_ids.masked_fill(mask == 0, 1), mask


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("by", ["input_ids", "inputs_embeds"])
@pytest.mark.parametrize("family", [*FLASH_FAMILIES, "albert"])
def test_a_packed_post_has_the_vector_that_its_encoder_gives_it_alone(family, by):
    """The family's own model, which is asked without positions, begins them where it does."""
    encoder = {"model_type": family, **OTHER_ENCODERS[family]} if family == "albert" else tiny_encoder(family)
    encoder = {**encoder, "initializer_range": 0.3, "pad_token_id": 1}
    model = tiny_model(encoder_config=encoder, attn_implementation=TORCH_VARLEN, **POST_MODEL)
    config = AutoConfig.for_model(**encoder)
    alone = AutoModel.from_config(config, attn_implementation="eager").eval()
    alone.load_state_dict(model.tempoformer.encoder.state_dict(), strict=False)
    (input_ids, mask), table = posts_of_all_lengths(), model.get_input_embeddings()
    with torch.no_grad():
        given = {by: input_ids if by == "input_ids" else table(input_ids)}
        vectors = model.tempoformer.embed_posts(**given, attention_mask=mask)
        for vector, tokens, length in zip(vectors, given[by], mask.sum(-1).tolist(), strict=True):
            expected = torch.zeros_like(vector)
            if length:
                expected = alone(**{by: tokens[None, :length]}).last_hidden_state[0].mean(0)
            torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("plain")
def test_many_tokens_are_packed_in_several_sequences(monkeypatch):
    model, (input_ids, mask), sizes = (
        tiny_model(attn_implementation=TORCH_VARLEN, **POST_MODEL),
        posts_of_all_lengths(),
        [],
    )
    embed = model.tempoformer.embed_posts
    model.tempoformer.encoder.embeddings.register_forward_hook(lambda _, given, output: sizes.append(output.shape[1]))
    with torch.no_grad():
        expected = embed(input_ids, mask)
        monkeypatch.setattr(modeling_post_tempoformer, "GPU_TOKENS", 50)
        torch.testing.assert_close(embed(input_ids, mask), expected, atol=1e-5, rtol=1e-5)
    assert sizes[0] == mask.sum() == sum(sizes[1:]) and max(sizes[1:]) <= 50


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_steps_answer_as_with_padded_posts(kind):
    answers = []
    for model in both_forms("roberta", **kind):
        stepper, memory, logits = Stepper(model), None, []
        for time in range(3):
            tokens = torch.full((2, 4), 7 + time)
            given = {"timeline_ids": ["a", "b"], "timestamps": [60.0 * time, 3600.0 * time]}
            output = stepper.step(tokens, torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), **given, memory=memory)
            memory = output.memory
            logits.append(output.logits)
        answers.append(torch.stack(logits))
    torch.testing.assert_close(*answers, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_models_load_with_packed_attention(tmp_path, kind):
    padded, batch = family_model("roberta", **kind), family_batch("roberta")
    batch["timeline_position"] = torch.zeros(*batch.pop("labels").shape, 2)
    padded.save_pretrained(tmp_path / "model")
    padded.tempoformer.encoder.save_pretrained(tmp_path / "encoder")
    packed = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model", attn_implementation=TORCH_VARLEN)
    new = type(padded).from_encoder_pretrained(tmp_path / "encoder", window=4, attn_implementation=TORCH_VARLEN)
    for model in (packed, new):
        assert model.tempoformer.encoder.config._attn_implementation == TORCH_VARLEN
        with torch.no_grad():
            logits = model(**batch).logits
            model.set_attn_implementation("sdpa")
            torch.testing.assert_close(logits, model(**batch).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("family", ["mpnet", "deberta-v2"])
def test_a_family_without_such_attention_is_refused(family, kind):
    model = tiny_model(family, attn_implementation=TORCH_VARLEN, **kind)
    with pytest.raises(ValueError, match=f"Encoders of type '{family}' do not have"):
        model(**family_batch(family))


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_a_cpu_has_no_such_kernel(kind):
    with pytest.raises(ValueError, match="on a GPU in 16 bits"):
        tiny_model(attn_implementation=TORCH_VARLEN, **kind)(**family_batch("bert"))
    # The library refuses flash attention where its package is missing, and not because of the model.
    with pytest.raises(ImportError, match="FlashAttention2"):
        tiny_model(attn_implementation="flash_attention_2", **kind)


@pytest.mark.usefixtures("plain")
def test_hidden_states_of_frozen_layers_are_not_kept_of_packed_posts(caplog):
    model, batch = both_forms("bert", **POST_MODEL)[1], family_batch("bert")
    tokenizer = AutoTokenizer.from_pretrained("tokenization")
    with torch.no_grad(), keep_lower_states(model, 1, [Dataset.from_dict({"input_ids": [[[5, 6]]]})], tokenizer):
        kept = model(**batch).logits
    torch.testing.assert_close(kept, model(**batch).logits)
    assert "computed anew" in caplog.text
