"""Checks the rows of the paper's table and of our own: `configuration/variant_*.yaml`."""

import pytest
import torch
import yaml
from dense_reference import dense_logits, plain_encoder
from helpers import CLASSES, ENCODERS, ROOT, tiny_batch, tiny_encoder, tiny_model
from transformers import AutoConfig, AutoModel

from modeling_tempoformer import (
    TempoFormerConfig,
    TempoFormerForStreamClassification,
)


VARIANTS = sorted(ROOT.glob("configuration/variant_*.yaml"))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda path: path.stem)
def test_a_variant_is_built_runs_and_is_saved(tmp_path, variant):
    family = "roberta" if "roberta" in variant.stem else "bert"
    recipe = yaml.safe_load(variant.read_text())
    fields, model_class = recipe.get("config_overrides", {}), CLASSES[recipe.get("model_type", "tempoformer")]
    torch.manual_seed(0)
    encoder = AutoModel.from_config(AutoConfig.for_model(**tiny_encoder(family), initializer_range=0.3))
    encoder.save_pretrained(tmp_path / "encoder")
    model = model_class.from_encoder_pretrained(tmp_path / "encoder", window=4, num_labels=3, **fields)
    for name, value in fields.items():
        assert getattr(model.config, name) == value
    batch = tiny_batch(pad=ENCODERS[family]["pad_token_id"])
    batch["timeline_position"] = batch["elapsed"][..., :2]
    with torch.no_grad():
        logits = model(**batch).logits
        torch.testing.assert_close(logits, dense_logits(model, batch), atol=1e-5, rtol=1e-5)
    model.save_pretrained(tmp_path / "model")
    loaded = model_class.from_pretrained(tmp_path / "model")
    assert loaded.config.to_diff_dict() | {"_name_or_path": ""} == model.config.to_diff_dict() | {"_name_or_path": ""}
    assert all(torch.equal(loaded.state_dict()[name], weight) for name, weight in model.state_dict().items())
    torch.testing.assert_close(loaded(**batch).logits, logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert"])
def test_the_residual_form_starts_from_the_encoder_s_own_cls(family):
    torch.manual_seed(0)
    encoder = {**tiny_encoder(family), "initializer_range": 0.3}
    settings = {"stream_residual": True, "stream_position_embeddings": False, "window": 4}
    model = TempoFormerForStreamClassification(TempoFormerConfig(encoder_config=encoder, **settings)).eval()
    seen = []
    model.tempoformer.fusion.register_forward_hook(lambda module, args, output: seen.append(args))
    batch = tiny_batch(pad=ENCODERS[family]["pad_token_id"])
    posts = {name: batch[name] for name in ("input_ids", "attention_mask", "stream_index", "elapsed")}
    with torch.no_grad():
        model(**posts)
        post, joined = seen[0]
        torch.testing.assert_close(post, joined, atol=1e-5, rtol=0)
        plain = plain_encoder(model)(batch["input_ids"][0]).last_hidden_state[:, 0]
    # The streams of the first row come first. The newest post of each is the last.
    torch.testing.assert_close(post[:6, -1], plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("settings", [{"stream_residual": True}, {"model_type": "post_tempoformer"}], ids=str)
def test_stream_positions_start_at_a_scale_of_their_own(settings):
    """Only stream positions start at this scale."""
    scales = []
    for scale in (0.02, 0.5):
        model = tiny_model(window=50, stream_position_initializer_range=scale, **settings)
        scales.append({name: weights.std().item() for name, weights in model.named_parameters() if weights.dim() > 1})
    for name, small in scales[0].items():
        expected = (0.02, 0.5) if ".position." in name else (small, small)
        assert (small, scales[1][name]) == pytest.approx(expected, rel=0.1), name


@pytest.mark.parametrize(
    "settings", [{"stream_residual": True}, {"head": "lstm"}, {"model_type": "post_tempoformer"}], ids=str
)
def test_new_weights_start_at_the_scale_of_their_part(settings):
    """Additions start at 0, heads as PyTorch's own layers do, and all else at the encoder's scale."""
    kind = {"model_type": "tempoformer", **settings}
    model_class = CLASSES[kind.pop("model_type")]
    encoder = {**tiny_encoder(), "initializer_range": 0.3}
    torch.manual_seed(0)
    model = model_class(model_class.config_class(encoder_config=encoder, window=4, num_labels=3, **kind))
    weights = {name: values.detach() for name, values in model.named_parameters()}
    for name, values in weights.items():
        if name.startswith("classifier.") and ".dense." not in name:
            is_linear = "lstm" not in name
            inputs = weights[name.replace("bias", "weight")].shape[1] if is_linear else model.config.lstm_hidden_size
            assert 0 < values.abs().max() <= inputs**-0.5, name
            if values.numel() > 500:
                assert values.std() == pytest.approx((3 * inputs) ** -0.5, rel=0.1), name
        elif "o_proj" in name and "head" not in settings:
            assert not values.any(), name
        elif name.endswith("_proj.weight") or (".mlp." in name and "weight" in name):
            assert values.std() == pytest.approx(0.3, rel=0.2), name
