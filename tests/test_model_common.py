"""What Transformers asks of every model class; the common tests of its suite that apply, on tiny models."""

import pytest
import torch
from helpers import CLASSES, MODELS, inputs_only, move_to_meta, tiny_batch, tiny_model
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForSequenceClassification

from modeling_tempoformer import TempoFormerConfig, TempoFormerForStreamClassification


VARIANTS = [
    {},
    {"head": "lstm"},
    {"num_stream_layers": 0},
    {"stream_attention": "full", "fusion": "none"},
    {"model_type": "post_tempoformer"},
    {"model_type": "post_tempoformer", "stream_attention": "full", "num_stream_layers": 2},
]
WITH_BOTH_MODELS = pytest.mark.parametrize("kind", MODELS, ids=str)


OTHER_NAMES = {index: f"class {index}" for index in range(5)}


CALIBRATION = {"temperature": 2.0, "thresholds": [0.3, 0.7]}


@pytest.mark.parametrize(
    ("given", "weights", "calibration"),
    [
        ({"num_labels": 5}, None, None),
        ({"num_labels": 5, "class_weights": [1.0, 2.0, 3.0, 4.0, 5.0]}, [1.0, 2.0, 3.0, 4.0, 5.0], None),
        ({"id2label": OTHER_NAMES}, None, None),
        ({"id2label": OTHER_NAMES, "calibration": {"temperature": 3.0}}, None, {"temperature": 3.0}),
        # As many classes as before, or none given.
        ({"num_labels": 2}, [1.0, 3.0], CALIBRATION),
        ({"class_weights": None}, None, CALIBRATION),
        ({"id2label": {0: "no", 1: "yes"}}, [1.0, 3.0], CALIBRATION),
    ],
)
def test_other_classes_leave_the_weights_of_those_before(tmp_path, given, weights, calibration):
    """By model class and Auto class, and the loaded model trains."""
    tiny_model(num_labels=2, class_weights=[1.0, 3.0], calibration=CALIBRATION).save_pretrained(tmp_path)
    count = len(given.get("id2label") or ()) or given.get("num_labels", 2)
    for cls in (TempoFormerForStreamClassification, AutoModelForSequenceClassification):
        model = cls.from_pretrained(tmp_path, ignore_mismatched_sizes=True, **given)
        config = model.config
        assert (config.num_labels, config.class_weights, config.calibration) == (count, weights, calibration)
        assert config.id2label == given.get("id2label", config.id2label)
        assert config.label2id == {name: index for index, name in config.id2label.items()}
        batch = tiny_batch()
        batch["labels"] = batch["labels"].where(batch["labels"] < 0, count - 1)
        assert model(**batch).logits.shape[-1] == count and model(**batch).loss > 0


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_config_survives_dict_json_and_folder(tmp_path, settings):
    calibration = {"temperature": 2, "thresholds": [0.5, 0.25, 1]}
    config = tiny_model(**settings, class_weights=[1, 2.5, 3], focal_gamma=0, calibration=calibration).config
    config.save_pretrained(tmp_path)
    for copy in (
        type(config).from_dict(config.to_dict()),
        type(config).from_pretrained(tmp_path),
        AutoConfig.from_pretrained(tmp_path),
    ):
        # The folder it was read from may differ.
        assert {**copy.to_dict(), "_name_or_path": ""} == config.to_dict() and copy.encoder_config.hidden_size == 16
    assert TempoFormerConfig(num_labels=5).id2label[4] == "LABEL_4"


@WITH_BOTH_MODELS
def test_a_base_checkpoint_leaves_the_head_new(tmp_path, batch, kind):
    base = tiny_model(**kind).tempoformer
    base.save_pretrained(tmp_path)
    model, info = CLASSES[kind["model_type"]].from_pretrained(tmp_path, output_loading_info=True)
    head = {name for name in model.state_dict() if not name.startswith("tempoformer.")}
    assert set(info["missing_keys"]) == head and not info["unexpected_keys"]
    states = model.tempoformer(**inputs_only(batch)).last_hidden_state
    torch.testing.assert_close(states, base(**inputs_only(batch)).last_hidden_state, atol=1e-5, rtol=0)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_embeddings_in_place_of_ids(batch, settings):
    model = tiny_model(**settings)
    expected = model(**batch).logits
    embeddings = model.get_input_embeddings()(batch.pop("input_ids"))
    torch.testing.assert_close(model(**batch, inputs_embeds=embeddings).logits, expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="exactly one"):
        model(**batch)


def test_vocabulary_grows_and_shrinks(batch):
    model = tiny_model()
    logits = model(**batch).logits
    kept = model.get_input_embeddings().weight[:60].clone()
    for size in (75, 60):
        embeddings = model.resize_token_embeddings(size)
        assert embeddings.num_embeddings == size == model.config.encoder_config.vocab_size
        assert torch.equal(embeddings.weight[:60], kept)
        torch.testing.assert_close(model(**batch).logits, logits, atol=1e-5, rtol=0)
    replacement = torch.nn.Embedding(60, 16)
    model.set_input_embeddings(replacement)
    assert model.get_input_embeddings() is replacement and model.get_output_embeddings() is None


def test_backend_can_be_switched(batch):
    model = tiny_model(attn_implementation="sdpa")
    expected = model(**batch).logits
    model.set_attn_implementation("eager")
    assert model.config._attn_implementation == model.tempoformer.encoder.config._attn_implementation == "eager"
    assert len(model(**batch, output_attentions=True).attentions) == 1
    torch.testing.assert_close(model(**batch).logits, expected, atol=1e-5, rtol=0)
    with pytest.raises(ValueError):
        model.set_attn_implementation("telepathy")
    assert model.config._attn_implementation == "eager"


def test_tuples_hold_what_the_output_object_holds(batch):
    model = tiny_model(attn_implementation="eager")
    flags = {"output_hidden_states": True, "output_attentions": True}
    named, plain = model(**batch, **flags), model(**batch, **flags, return_dict=False)
    assert len(plain) == len(named.to_tuple()) == 5
    for one, other in zip(plain, named.to_tuple(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
    model.config.output_hidden_states = True
    assert len(model(**batch).hidden_states) == len(named.hidden_states)


@WITH_BOTH_MODELS
def test_gradients_reach_the_returned_states(batch, kind):
    model = tiny_model(attn_implementation="eager", **kind)
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    of_tokens = [] if output.attentions is None else [output.attentions[0]]
    returned = [output.hidden_states[0], output.stream_attentions[0], *of_tokens]
    for tensor in returned:
        (gradient,) = torch.autograd.grad(
            tensor.square().sum(), model.get_input_embeddings().weight, retain_graph=True
        )
        assert gradient.abs().sum() > 0


PAPER_MODEL_PARTS = {
    "tempoformer.encoder.pooler": "disk",
    "tempoformer.stream_layers": "disk",
    "tempoformer.fusion": "cpu",
}


@pytest.mark.parametrize(
    ("kind", "parts"),
    list(zip(MODELS, (PAPER_MODEL_PARTS, {"tempoformer.stream_layers": "disk", "trees": "disk"}), strict=True)),
    ids=["token", "post"],
)
def test_layers_offloaded_to_disk(tmp_path, batch, kind, parts):
    """Offloaded weights come in through hooks: every layer must be entered by its own call."""
    model = tiny_model(**kind)
    model.save_pretrained(tmp_path / "saved")
    device_map = {
        "tempoformer.encoder.embeddings": "cpu",
        "tempoformer.encoder.encoder": "disk",
        "classifier": "disk",
        **parts,
    }
    offloaded = type(model).from_pretrained(
        tmp_path / "saved", device_map=device_map, offload_folder=tmp_path / "offload"
    )
    assert next(offloaded.tempoformer.encoder.encoder.layer.parameters()).device.type == "meta"
    with torch.no_grad():
        torch.testing.assert_close(offloaded(**batch).logits, model(**batch).logits, atol=1e-5, rtol=0)


@pytest.mark.parametrize("settings", [*VARIANTS, {"stream_residual": True}], ids=str)
def test_layers_on_several_devices(batch, settings):
    """The upper layers on a second device, for which the meta device stands in: shapes and devices, no values."""
    model = tiny_model(attn_implementation="eager", **settings)
    base = model.tempoformer
    new = (base.stream_layers, getattr(base, "fusion", None))
    for module in (*base.encoder.encoder.layer[1:], base.encoder.pooler, *new):
        if module is not None:
            move_to_meta(module)
    move_to_meta(model.classifier)
    # With `output_attentions`, as the mask of other attention looks into values, which meta tensors do not have.
    output = model(**batch, output_hidden_states=True, output_attentions=True)
    assert output.logits.device.type == output.loss.device.type == "meta" and output.logits.shape == (2, 6, 3)


@pytest.mark.parametrize(
    ("kind", "new"),
    list(
        zip(
            MODELS,
            (["position", "o_proj", "fusion", "classifier"], ["tempoformer.stream_layers", "classifier"]),
            strict=True,
        )
    ),
    ids=str,
)
def test_lora_on_the_encoder(tmp_path, batch, kind, new):
    """Only the adapters of the encoder and the new parts train; saved, loaded and merged they give the same logits."""
    model = tiny_model(**kind)
    frozen = {name: weight.clone() for name, weight in model.state_dict().items()}
    settings = LoraConfig(r=2, target_modules=["query", "value"], modules_to_save=new)
    adapted = get_peft_model(model, settings)
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    adapted.train()(**batch).loss.backward()
    trained = {name for name, p in adapted.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    for layer in range(3):
        for projection in ("query", "value"):
            for matrix in "AB":
                name = f"encoder.layer.{layer}.attention.self.{projection}.lora_{matrix}.default.weight"
                assert any(trained_name.endswith(name) for trained_name in trained), name
    adapted.eval()
    logits = adapted(**batch).logits
    plain = tiny_model(**kind)
    assert not torch.allclose(logits, plain(**batch).logits, atol=1e-3)
    assert all(torch.equal(frozen[name], weight) for name, weight in plain.state_dict().items())

    adapted.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(plain, tmp_path).eval()
    torch.testing.assert_close(loaded(**batch).logits, logits, atol=1e-5, rtol=0)
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(**batch).logits, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_a_batch_of_absent_posts_has_zero_logits(attention, settings):
    model = tiny_model(attn_implementation=attention, **settings)
    batch = tiny_batch()
    batch["attention_mask"].zero_()
    output = model(**batch, output_hidden_states=True)
    assert not output.logits.any()
    absent = {name: torch.full_like(batch[name], value) for name, value in (("stream_index", -1), ("labels", -100))}
    assert model(**{**batch, **absent}).logits.abs().sum() == 0


@WITH_BOTH_MODELS
def test_window_of_one_sees_the_post_alone(batch, kind):
    model = tiny_model(window=1, **kind)
    alone = {**inputs_only(batch), "stream_index": torch.arange(6).view(1, 6, 1).repeat(2, 1, 1)}
    del alone["elapsed"]
    logits = model(**alone).logits
    for post in range(6):
        single = model(batch["input_ids"][:1, post : post + 1], batch["attention_mask"][:1, post : post + 1]).logits
        torch.testing.assert_close(logits[:1, post : post + 1], single, atol=1e-5, rtol=0)
