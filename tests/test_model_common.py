"""Checks what Transformers asks of every model class, with those common tests of its suite that apply."""

import logging

import pytest
import torch
from helpers import CLASSES, MODELS, inputs_only, tiny_batch, tiny_model
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForSequenceClassification

from modeling_tempoformer import TempoFormerForStreamClassification


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
        # The number of classes is unchanged or not given.
        ({"num_labels": 2}, [1.0, 3.0], CALIBRATION),
        ({"class_weights": None}, None, CALIBRATION),
        ({"id2label": {0: "no", 1: "yes"}}, [1.0, 3.0], CALIBRATION),
    ],
)
def test_other_classes_leave_the_weights_of_those_before(tmp_path, given, weights, calibration):
    """The model class and the Auto class load the same, and the loaded model trains."""
    tiny_model(num_labels=2, class_weights=[1.0, 3.0], calibration=CALIBRATION, watched=1).save_pretrained(tmp_path)
    count = len(given.get("id2label") or ()) or given.get("num_labels", 2)
    for cls in (TempoFormerForStreamClassification, AutoModelForSequenceClassification):
        model = cls.from_pretrained(tmp_path, ignore_mismatched_sizes=True, **given)
        config = model.config
        assert (config.num_labels, config.class_weights, config.calibration) == (count, weights, calibration)
        assert config.watched == (1 if count == 2 else None)
        assert config.id2label == given.get("id2label", config.id2label)
        assert config.label2id == {name: index for index, name in config.id2label.items()}
        batch = tiny_batch()
        batch["labels"] = batch["labels"].where(batch["labels"] < 0, count - 1)
        assert model(**batch).logits.shape[-1] == count and model(**batch).loss > 0


@WITH_BOTH_MODELS
def test_a_base_checkpoint_leaves_the_head_new(tmp_path, batch, kind, caplog, monkeypatch):
    """The calibration of the earlier head is dropped, too."""
    library = logging.getLogger("transformers.modeling_utils")
    # An earlier script may have silenced the warning.
    monkeypatch.setattr(library, "filters", [])
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    caplog.set_level(logging.WARNING, library.name)
    base = tiny_model(calibration={"temperature": 3.0}, **kind).tempoformer
    base.save_pretrained(tmp_path)
    model_class = CLASSES[kind["model_type"]]
    _, info = model_class.from_pretrained(tmp_path, output_loading_info=True)
    caplog.clear()
    model = model_class.from_pretrained(tmp_path, num_labels=4)
    head = {name for name in model.state_dict() if not name.startswith("tempoformer.")}
    assert set(info["missing_keys"]) == head and not info["unexpected_keys"]
    # The library logs this warning.
    assert "classifier" in caplog.text and "MISSING" in caplog.text
    assert model.config.calibration is None and model(**inputs_only(batch)).logits.shape[-1] == 4
    states = model.tempoformer(**inputs_only(batch)).last_hidden_state
    torch.testing.assert_close(states, base(**inputs_only(batch)).last_hidden_state, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("kind", "new"),
    [
        (MODELS[0], ["position", "o_proj", "fusion", "classifier"]),
        (MODELS[0], ["stream_layers.0", "stream_layers.1", "fusion", "classifier"]),
        (MODELS[1], ["tempoformer.stream_layers", "classifier"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("targets", [["query", "value"], ["query", "key", "value", "dense"]], ids=str)
def test_lora_on_the_encoder(tmp_path, batch, kind, new, targets):
    """Adapters of every layer train. Saved, loaded and merged they give the same logits."""
    model = tiny_model(**kind)
    settings = LoraConfig(r=2, target_modules=targets, modules_to_save=new)
    adapted = get_peft_model(model, settings)
    torch.manual_seed(0)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.5)
    adapted.train()(**batch).loss.backward()
    adapters = [p for name, p in adapted.named_parameters() if "lora_" in name]
    assert len(adapters) >= 12 and all(p.grad.abs().sum() > 0 for p in adapters)
    logits, plain = adapted.eval()(**batch).logits, tiny_model(**kind)
    assert not torch.allclose(logits, plain(**batch).logits, atol=1e-3)
    adapted.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(plain, tmp_path).eval()
    torch.testing.assert_close(loaded(**batch).logits, logits, atol=1e-5, rtol=0)
    merged = loaded.merge_and_unload()
    torch.testing.assert_close(merged(**batch).logits, logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("settings", [{"attn_implementation": "eager"}, *VARIANTS], ids=str)
def test_a_batch_of_absent_posts_has_zero_logits(settings):
    model = tiny_model(**settings)
    batch = tiny_batch()
    batch["attention_mask"].zero_()
    output = model(**batch, output_hidden_states=True)
    assert not output.logits.any()
    absent = {name: torch.full_like(batch[name], value) for name, value in (("stream_index", -1), ("labels", -100))}
    assert model(**{**batch, **absent}).logits.abs().sum() == 0
