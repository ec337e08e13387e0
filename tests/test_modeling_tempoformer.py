"""Checks the model: its weights, its variants, and which inputs its outputs depend on."""

import pytest
import torch
from helpers import MODELS, tiny_batch, tiny_encoder, tiny_model
from transformers import AttentionInterface, AttentionMaskInterface, AutoConfig, AutoModel, BertConfig
from transformers.masking_utils import flash_attention_mask

from modeling_tempoformer import TempoFormerConfig, TempoFormerForStreamClassification
from tempoformer_live.stepping import Stepper


VARIANTS = [
    {},
    {"stream_attention": "rotary"},
    {"stream_attention": "full"},
    {"fusion": "none"},
    {"stream_residual": True},
    {"stream_position_embeddings": [True, False]},
    {"num_stream_layers": 1},
    {"num_stream_layers": 3},
    {"head": "lstm", "recurrent_order": "reverse"},
    {"num_stream_layers": 0},
    {"model_type": "post_tempoformer"},
    {"model_type": "post_tempoformer", "stream_attention": "rotary", "post_pooling": "cls"},
    {"model_type": "post_tempoformer", "num_stream_layers": 2, "stream_attention": "full"},
]
WITH_BOTH_MODELS = pytest.mark.parametrize("kind", MODELS, ids=str)


@pytest.mark.parametrize("saved", [torch.float16, torch.bfloat16], ids=str)
def test_a_checkpoint_in_16_bits_gives_a_model_in_32(tmp_path, saved):
    """A configuration with a dtype of 16 bits gives a model in 32, too, unless a dtype is requested."""
    config = TempoFormerConfig(encoder_config={**tiny_encoder(), "dtype": str(saved).removeprefix("torch.")})
    for settings, dtype in (({}, torch.float32), ({"dtype": saved}, saved)):
        built = TempoFormerForStreamClassification._from_config(config, **settings)
        assert {parameter.dtype for parameter in built.parameters()} == {dtype}
    encoder = AutoModel.from_config(AutoConfig.for_model(**tiny_encoder())).to(saved)
    encoder.save_pretrained(tmp_path)
    model = TempoFormerForStreamClassification.from_encoder_pretrained(tmp_path, window=4, num_labels=3)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    for name, weight in encoder.state_dict().items():
        assert torch.equal(model.tempoformer.encoder.state_dict()[name].to(saved), weight), name
    for dtypes in ({"dtype": saved}, {"dtype": "auto"}, {"torch_dtype": saved}):
        same = TempoFormerForStreamClassification.from_encoder_pretrained(tmp_path, **dtypes)
        assert {parameter.dtype for parameter in same.parameters()} == {saved}


def test_size_with_bert_base():
    with torch.device("meta"):
        model = TempoFormerForStreamClassification(TempoFormerConfig(encoder_config=BertConfig(), num_labels=2))
    assert round(model.num_parameters() / 1e6, 1) == 115.5


@pytest.mark.parametrize("settings", [{"attn_implementation": "eager"}, *VARIANTS], ids=str)
def test_logits_do_not_depend_on_the_rest_of_the_batch(batch, settings):
    model = tiny_model(**settings)
    with torch.no_grad():
        together = model(**batch).logits
        for row, (posts, tokens) in enumerate([(6, 7), (4, 5)]):
            alone = model(
                input_ids=batch["input_ids"][row : row + 1, :posts, :tokens],
                attention_mask=batch["attention_mask"][row : row + 1, :posts, :tokens],
                stream_index=batch["stream_index"][row : row + 1, :posts],
                elapsed=batch["elapsed"][row : row + 1, :posts],
            ).logits
            torch.testing.assert_close(together[row : row + 1, :posts], alone, atol=1e-5, rtol=0)
    assert not together[1, 4:].any()


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_nothing_after_a_post_changes_its_logits(batch, settings):
    model = tiny_model(**settings)
    changed = {**batch, "input_ids": batch["input_ids"].clone()}
    changed["input_ids"][0, 3] = (changed["input_ids"][0, 3] - 5 + 17) % 55 + 5
    with torch.no_grad():
        before, after = model(**batch).logits[0], model(**changed).logits[0]
    torch.testing.assert_close(after[:3], before[:3], atol=1e-5, rtol=0)
    assert (after[3] - before[3]).abs().max() > 1e-4


@WITH_BOTH_MODELS
def test_time_matters_only_to_the_temporal_rotation(batch, kind):
    later = {**batch, "elapsed": batch["elapsed"] * 7}
    for attention, differs in (("temporal_rotary", True), ("rotary", False), ("full", False)):
        model = tiny_model(stream_attention=attention, **kind)
        change = (model(**later).logits[0] - model(**batch).logits[0]).abs().max()
        assert change > 1e-3 if differs else change < 1e-5


@WITH_BOTH_MODELS
def test_a_short_stream_keeps_its_positions_from_the_newest(batch, kind):
    """Posts 4 and 5 are a stream alone, in a tensor of width 2 and in one of width 4."""
    model = tiny_model(**kind)
    wide = torch.tensor([[[-1, -1, 4, 5]]])
    elapsed = torch.tensor([[[0.0, 0.0, 900.0, 0.0]]])
    posts = {name: batch[name][:1] for name in ("input_ids", "attention_mask")}
    logits = model(**posts, stream_index=wide, elapsed=elapsed).logits
    narrow = model(**posts, stream_index=wide[..., 2:], elapsed=elapsed[..., 2:]).logits
    torch.testing.assert_close(logits, narrow, atol=1e-5, rtol=0)


@WITH_BOTH_MODELS
def test_posts_without_an_index_are_one_stream(batch, kind):
    model = tiny_model(**kind)
    posts = {name: batch[name][:1, :4] for name in ("input_ids", "attention_mask")}
    explicit = model(**posts, stream_index=torch.arange(4).view(1, 1, 4)).logits
    torch.testing.assert_close(model(**posts).logits, explicit, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="window"):
        model(batch["input_ids"])


def test_outputs_have_the_documented_shapes(batch):
    model = tiny_model(attn_implementation="eager")
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    assert [tuple(states.shape) for states in output.hidden_states] == [(2, 6, 7, 16)] * 2
    assert [tuple(weights.shape) for weights in output.attentions] == [(2, 6, 2, 7, 7)]
    assert [tuple(weights.shape) for weights in output.stream_attentions] == [(2, 6, 2, 4, 4)] * 2
    assert not output.hidden_states[0][1, :, 5:].any() and not output.attentions[0][1, 4:].any()
    full = output.stream_attentions[0][0, 3]
    torch.testing.assert_close(full.sum(-1), torch.ones(2, 4))
    first = output.stream_attentions[0][0, 0, :, -1]
    torch.testing.assert_close(first, torch.tensor([[0.0, 0.0, 0.0, 1.0]] * 2))
    plain = model(**batch)
    torch.testing.assert_close((plain.loss, plain.logits), (output.loss, output.logits), atol=1e-5, rtol=0)
    as_tuple = model(**batch, return_dict=False)
    torch.testing.assert_close(as_tuple[:2], (plain.loss, plain.logits), atol=1e-5, rtol=0)


@WITH_BOTH_MODELS
def test_attention_across_posts_is_there_with_any_backend(batch, kind):
    eager, sdpa = (
        tiny_model(attn_implementation=name, **kind)(**batch, output_attentions=True) for name in ("eager", "sdpa")
    )
    torch.testing.assert_close(eager.stream_attentions, sdpa.stream_attentions, atol=1e-5, rtol=0)
    assert sdpa.attentions is None


def keys_alone(module, query, key, value, attention_mask, scaling=None, **kwargs):
    """Computes attention with a mask (batch, keys), as flash attention takes it."""
    mask = None if attention_mask is None else attention_mask[:, None, None].bool()
    context = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
    return context.transpose(1, 2), None


@WITH_BOTH_MODELS
def test_a_backend_whose_masks_are_about_keys_alone(batch, kind):
    AttentionInterface.register("keys_alone", keys_alone)
    AttentionMaskInterface.register("keys_alone", flash_attention_mask)
    model, other = (tiny_model(attn_implementation=name, **kind) for name in ("sdpa", "keys_alone"))
    torch.testing.assert_close(other(**batch).logits, model(**batch).logits, atol=1e-5, rtol=0)


@WITH_BOTH_MODELS
def test_embeddings_in_place_of_ids(batch, kind):
    model = tiny_model(**kind)
    expected = model(**batch).logits
    embeddings = model.get_input_embeddings()(batch.pop("input_ids"))
    torch.testing.assert_close(model(**batch, inputs_embeds=embeddings).logits, expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="exactly one"):
        model(**batch)


@WITH_BOTH_MODELS
def test_no_label_at_all_is_no_loss(batch, kind):
    model = tiny_model(**kind)
    loss = model(**{**batch, "labels": torch.full((2, 6), -100)}).loss
    loss.backward()
    assert loss.item() == pytest.approx(0)
    assert all(p.grad is None or not p.grad.isnan().any() for p in model.parameters())


@WITH_BOTH_MODELS
@pytest.mark.parametrize("timed", [True, False])
def test_streams_that_do_not_fit_the_times_of_the_training_are_refused(kind, timed):
    batch = tiny_batch()
    fits, other = batch, {name: value for name, value in batch.items() if name != "elapsed"}
    if not timed:
        fits, other = other, fits
    model = tiny_model(timed=timed, **kind)
    with torch.no_grad():
        expected = tiny_model(**kind)(**fits).logits
        torch.testing.assert_close(model(**fits).logits, expected, atol=1e-5, rtol=0)
        with pytest.raises(ValueError, match=f"`timed={timed}` in its configuration"):
            model(**other)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_of_posts_take_the_place_of_their_tokens(batch, pooling):
    model = tiny_model(model_type="post_tempoformer", post_pooling=pooling)
    expected = model(**batch, output_attentions=True)
    posts = {name: batch.pop(name) for name in ("input_ids", "attention_mask")}
    vectors = model.tempoformer.embed_posts(**{name: tensor.flatten(0, 1) for name, tensor in posts.items()})
    assert not vectors[10:].any(), "of absent posts"
    batch |= {"post_embeds": vectors.view(2, 6, 16), "attention_mask": posts["attention_mask"][..., :1]}
    output = model(**batch, output_attentions=True)
    for name in ("loss", "logits", "stream_attentions"):
        torch.testing.assert_close(output[name], expected[name], atol=1e-5, rtol=0)
    # A single post gives the same in a step and as a batch without a mask.
    alone = model.tempoformer.embed_posts(posts["input_ids"][1, :1, :5])
    torch.testing.assert_close(alone, vectors[6:7], atol=1e-5, rtol=0)
    step = Stepper(model).step(posts["input_ids"][1, :1, :5], timeline_ids=["a"]).logits
    torch.testing.assert_close(model(post_embeds=alone.unsqueeze(0)).logits[0], step, atol=1e-5, rtol=0)


def test_settings_are_checked_against_the_encoder_that_is_loaded_whose_folder_is_not_saved(tmp_path):
    deep = AutoConfig.for_model(**{**tiny_encoder(), "num_hidden_layers": 14})
    AutoModel.from_config(deep).save_pretrained(tmp_path / "encoder")
    load = TempoFormerForStreamClassification.from_encoder_pretrained
    with pytest.raises(Exception, match="the encoder's 14 layers"):
        load(tmp_path / "encoder", num_stream_layers=15)
    model = load(tmp_path / "encoder", num_stream_layers=13)
    built = TempoFormerConfig(encoder_config=AutoConfig.from_pretrained(tmp_path / "encoder"))
    for part, name in ((model, "model"), (built, "config")):
        part.save_pretrained(tmp_path / name)
        text = (tmp_path / name / "config.json").read_text()
        assert str(tmp_path) not in text and '"num_hidden_layers": 14' in text
