"""Checks every encoder family against its own code in Transformers, on tiny random models."""

from itertools import product

import pytest
import torch
from dense_reference import dense_logits, plain_encoder
from helpers import (
    ENCODERS,
    fixed_batch,
    move_to_meta,
    tiny_batch,
    tiny_encoder,
    tiny_model,
    without_gradient,
)
from transformers import AutoConfig, AutoModel

from modeling_tempoformer import (
    TempoFormerForStreamClassification,
)
from modeling_tempoformer.modeling_tempoformer_encoders import ENCODER_ADAPTERS, get_encoder_adapter
from tempoformer_live.stepping import Stepper


FAMILIES = pytest.mark.parametrize("family", list(ENCODERS))
POST_MODEL = {"model_type": "post_tempoformer"}
# The paper's model over every family. The post model calls the library's encoder for any family.
EVERY_MODEL = pytest.mark.parametrize(
    ("family", "settings"), [*((family, {}) for family in ENCODERS), ("bert", POST_MODEL)], ids=str
)
VARIANTS = [
    {"num_stream_layers": 0},
    {"num_stream_layers": 1, "stream_attention": "full"},
    {"num_stream_layers": 2, "stream_residual": True},
    {"num_stream_layers": 2, "head": "lstm", "fusion": "none", "stream_position_embeddings": [True, False]},
]


def no_dropout(family: str) -> dict:
    return {
        name: 0.0
        for name in AutoConfig.for_model(**tiny_encoder(family)).to_dict()
        if "dropout" in name and name != "classifier_dropout"
    }


def family_model(family: str, **settings) -> TempoFormerForStreamClassification:
    """Returns a model with nonzero biases and norms, so that padding is not 0 by chance."""
    encoder = {**tiny_encoder(family), "initializer_range": 0.3, **settings.pop("encoder", {})}
    model = tiny_model(encoder_config=encoder, **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
    return model


def family_batch(family: str) -> dict[str, torch.Tensor]:
    return tiny_batch(pad=ENCODERS[family]["pad_token_id"])


def test_every_family_is_tested():
    tested = {family.split(",")[0] for family in ENCODERS}
    assert tested == set(ENCODER_ADAPTERS)


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(
    ("family", "settings"),
    [
        *product(ENCODERS, VARIANTS),
        ("bert", POST_MODEL),
        ("bert", {**POST_MODEL, "post_pooling": "cls", "num_stream_layers": 2}),
    ],
    ids=str,
)
def test_agrees_with_the_family_s_own_model(family, settings):
    """Posts of 3 to 20 tokens form several groups by length."""
    model, batch = family_model(family, **settings), fixed_batch()
    batch["input_ids"][batch["attention_mask"] == 0] = ENCODERS[family]["pad_token_id"]
    with torch.no_grad():
        expected = dense_logits(model, batch)
        torch.testing.assert_close(model(**batch).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["deberta-v2, with convolution", "distilbert", "modernbert", "mpnet"])
def test_compiled_and_padded_is_the_same(family):
    model, batch = family_model(family), family_batch(family)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(**batch).logits, model(**batch).logits, atol=1e-5, rtol=0)


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(("family", "reentrant"), [*((family, False) for family in ENCODERS), ("bert", True)])
def test_every_parameter_gets_a_gradient_and_checkpointing_changes_none(family, reentrant):
    plain, checkpointed = (
        family_model(family, encoder=no_dropout(family), head_dropout=0.0).train() for _ in range(2)
    )
    checkpointed.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    checkpointed.enable_input_require_grads()
    layers = checkpointed.tempoformer.adapter.layers(checkpointed.tempoformer.encoder)
    assert all(layer.gradient_checkpointing for layer in layers)
    plain(**family_batch(family)).loss.backward()
    checkpointed(**family_batch(family)).loss.backward()
    assert without_gradient(plain) == []
    others = dict(checkpointed.named_parameters())
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(
            parameter.grad, others[name].grad, atol=1e-5, rtol=1e-4, msg=lambda m: f"{name} {m}"
        )


@pytest.mark.parametrize(("family", "head"), [*((family, "mlp") for family in ENCODERS), ("bert", "lstm")])
def test_every_weight_of_a_checkpoint_is_loaded(tmp_path, family, head):
    plain = AutoModel.from_config(AutoConfig.for_model(**tiny_encoder(family)))
    plain.save_pretrained(tmp_path)
    model = TempoFormerForStreamClassification.from_encoder_pretrained(tmp_path, window=4, num_labels=3, head=head)
    loaded = model.tempoformer.encoder.state_dict()
    saved = {name: weight for name, weight in plain.state_dict().items() if head == "mlp" or "pooler." not in name}
    assert saved.keys() == loaded.keys()
    assert [name for name, weight in saved.items() if not torch.equal(weight, loaded[name])] == []
    for name, parameter in model.named_parameters():
        assert parameter.isfinite().all() and parameter.abs().max() < 10, name


@pytest.mark.usefixtures("many_groups")
@FAMILIES
def test_attention_inside_posts_is_the_family_s(family):
    model = family_model(family, attn_implementation="eager", num_stream_layers=1)
    batch = family_batch(family)
    output = model(**batch, output_attentions=True, output_hidden_states=True)
    assert [tuple(weights.shape) for weights in output.attentions] == [(2, 6, 2, 7, 7)] * 2
    assert [tuple(states.shape) for states in output.hidden_states] == [(2, 6, 7, 16)] * 3
    expected = plain_encoder(model)(input_ids=batch["input_ids"][0], output_attentions=True).attentions
    for weights, expected_weights in zip(output.attentions, expected, strict=False):
        torch.testing.assert_close(weights[0], expected_weights, atol=1e-5, rtol=1e-5)


@EVERY_MODEL
def test_longest_post(family, settings):
    model = family_model(family, **settings)
    most = 22 if ENCODERS[family]["pad_token_id"] else 24
    assert model(torch.full((1, 1, most), 7)).logits.isfinite().all()
    assert Stepper(model).step(torch.full((1, most), 7), timeline_ids=["a"]).logits.isfinite().all()
    with pytest.raises(ValueError, match=f"at most {most}"):
        Stepper(model).step(torch.full((1, most + 1), 7), timeline_ids=["a"])


@pytest.mark.usefixtures("many_groups")
@pytest.mark.parametrize(
    ("family", "settings"), [*((family, {}) for family in ENCODERS), ("bert", {"head": "lstm"}), ("bert", POST_MODEL)]
)
def test_layers_on_several_devices(family, settings):
    """The upper layers are on a second device. The meta device stands in for it, which has shapes but no values."""
    model, batch = family_model(family, attn_implementation="eager", **settings), family_batch(family)
    base = model.tempoformer
    layers = get_encoder_adapter(base.config.encoder_config).layers(base.encoder)
    assert type(layers[0]).__name__ in model._no_split_modules
    names = ("stream_layers", "pooler", "fusion")
    above = [getattr(base.encoder, "final_norm", None), *(getattr(base, name, None) for name in names)]
    for module in (*layers[1:], *above, model.classifier):
        if module is not None:
            move_to_meta(module)
    # `output_attentions` is needed, because other attention reads values of the mask, which meta tensors do not have.
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    assert output.logits.device.type == output.loss.device.type == "meta" and output.logits.shape == (2, 6, 3)
