"""Saved models that are refused: weights that are not whole or not finite, and configurations that make no sense."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import (
    CHANGES,
    dated_config,
    read_table,
    save_encoder,
    tiny_encoder,
    tiny_model,
    tiny_reader,
    write_posts,
)
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedConfig,
    pipeline,
)

import run_glue_style
from modeling_tempoformer import (
    BertWithTemporalAttentionForSequenceClassification,
    TempoFormerForStreamClassification,
    TempoFormerModel,
)


TIMELINE = {"text": ["sad today", "so glad", "lost"], "timestamp": [0, 60, 7200]}


@pytest.fixture
def saved(tmp_path) -> Path:
    """A folder with a model and its tokenizer."""
    tiny_reader(tmp_path / "saved", **CHANGES)
    return tmp_path / "saved"


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]):
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def run_pipeline(folder: Path) -> list[dict]:
    return pipeline("stream-classification", model=str(folder), trust_remote_code=True)(TIMELINE)


def run_script(folder: Path) -> list[dict[str, str]]:
    posts = [{"timeline_id": "ann", "post_id": f"ann {place}", "text": text} for place, text in enumerate("abc")]
    posts = [post | {"timestamp": 60 * place} for place, post in enumerate(posts)]
    file, output = write_posts(folder.parent / "posts.csv", posts), folder.parent / "predicted"
    command = ["--model_name_or_path", str(folder), "--test_file", file, "--id_column", "post_id", "--do_predict"]
    run_glue_style.main([*command, "--output_dir", str(output), "--report_to", "none"])
    return read_table(output / "_predictions.csv")


def run_step(folder: Path) -> torch.Tensor:
    model = TempoFormerForStreamClassification.from_pretrained(folder)
    return model.step(torch.tensor([[2, 7, 3], [2, 8, 3]]), timeline_ids=["bob", "ann"], timestamps=[1.0, 2.0]).logits


BROKEN = {
    "no classifier": (
        lambda weights: {name: tensor for name, tensor in weights.items() if "classifier" not in name},
        "lack classifier.mlp.0.bias",
    ),
    "a renamed attention": (
        lambda weights: {name.replace("attention.q_proj", "attention.query_proj"): weights[name] for name in weights},
        "lack tempoformer.stream_layers.*q_proj",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_weights_that_are_not_whole_do_not_load(saved, broken):
    change, message = BROKEN[broken]
    change_weights(saved, change)
    for load in (AutoModelForSequenceClassification.from_pretrained, run_script):
        with pytest.raises(ValueError, match=message):
            load(saved)


def test_who_asks_what_is_missing_gets_new_weights(saved, tmp_path):
    """Also another number of classes, the model without its head, and a temporal encoder from a plain checkpoint."""
    change_weights(saved, BROKEN["no classifier"][0])
    _, info = AutoModelForSequenceClassification.from_pretrained(saved, output_loading_info=True)
    assert all(name.startswith("classifier.") for name in info["missing_keys"]) and len(info["missing_keys"]) == 6
    tiny_model().save_pretrained(tmp_path / "whole")
    model = TempoFormerForStreamClassification.from_pretrained(
        tmp_path / "whole", num_labels=5, ignore_mismatched_sizes=True
    )
    assert model.config.num_labels == 5
    TempoFormerModel.from_pretrained(tmp_path / "whole")
    plain = save_encoder(tmp_path / "plain")
    BertWithTemporalAttentionForSequenceClassification.from_pretrained(plain, times=["1815", "1990"])


@pytest.mark.parametrize(
    ("predict", "post"),
    [(run_pipeline, "Timeline 0, post 0"), (run_script, "Post 'ann 0'"), (run_step, "Post 0 of timeline 'bob'")],
)
def test_logits_that_are_not_finite_are_no_prediction(saved, predict, post):
    change_weights(saved, lambda weights: weights | {"classifier.mlp.0.bias": torch.full((64,), torch.nan)})
    with pytest.raises(ValueError, match=f"{post}.*nan"):
        predict(saved)


def test_the_first_post_that_is_not_finite_is_named(saved):
    """By its place in what was given, and the state is as before."""
    model = TempoFormerForStreamClassification.from_pretrained(saved)
    word = model.get_input_embeddings().weight
    with torch.no_grad():
        word[9] = torch.nan
    ids, names = torch.tensor([[2, 7, 3], [2, 8, 3], [2, 9, 3]]), ["ann", "bob", "ben"]
    state = model.step(ids[:1], timeline_ids=["ann"], timestamps=[100.0]).state
    with pytest.raises(ValueError, match="Post 2 of timeline 'ben'"):
        model.step(ids, timeline_ids=names, timestamps=[0.0, 1.0, 2.0], state=state, drop_late=True)
    assert len(state) == 1
    tokenizer = AutoTokenizer.from_pretrained(saved)
    with torch.no_grad():
        word[tokenizer.convert_tokens_to_ids("glad")] = torch.nan
    pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="Timeline 1, post 0"):
        pipe([{**TIMELINE, "text": ["sad"] * 3}, {"text": ["so glad", "sad"], "timestamp": [60, 0]}])


def load_changed(config: PreTrainedConfig, folder: Path, name: str, value):
    """Loads a configuration after its file got a value."""
    config.save_pretrained(folder)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, name: value}))
    AutoConfig.from_pretrained(folder)


NAN = float("nan")
FIELDS = [
    *(("rope_theta", NAN), ("window", 0), ("head_dropout", NAN), ("lstm_hidden_size", 0), ("focal_gamma", -1.0)),
    *(("head_hidden_sizes", [8, -1]), ("id2label", {"0": "IS", "1": "O", "3": "IE"})),
    *(("label2id", {"IS": 0, "O": 1, "IE": 3}), ("stream_attention", "causal"), ("num_stream_layers", 9)),
]


@pytest.mark.parametrize(("name", "value"), FIELDS)
def test_a_configuration_that_makes_no_sense_is_one_error(tmp_path, name, value):
    with pytest.raises(ValueError, match=name):
        load_changed(tiny_model(**CHANGES).config, tmp_path, name, value)


@pytest.mark.parametrize(
    ("name", "value"), [("time_initializer_range", NAN), ("id2label", {"0": "a", "2": "b"}), ("hidden_size", "many")]
)
def test_so_is_that_of_a_temporal_encoder(tmp_path, name, value):
    with pytest.raises(ValueError, match=name):
        load_changed(dated_config(), tmp_path, name, value)


def test_so_is_a_field_that_is_given_beside_the_file(tmp_path):
    tiny_model().config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="`focal_gamma`"):
        AutoConfig.from_pretrained(tmp_path, focal_gamma=NAN)


@pytest.mark.parametrize(
    ("settings", "named"), [({"model_type": "gpt2"}, "'gpt2'"), ({"is_decoder": True}, "'bert'.*`is_decoder=True`")]
)
def test_an_encoder_that_cannot_read_posts_is_refused(settings, named):
    with pytest.raises(ValueError, match=named):
        tiny_model(encoder_config={**tiny_encoder(), **settings})
