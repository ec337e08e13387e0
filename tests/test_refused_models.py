"""Prediction ends with the right answer or with one error: calibration, broken weights, states, configurations."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import (
    CHANGES,
    NAMES,
    dated_config,
    read_json,
    read_table,
    run_without_package,
    save_encoder,
    tiny_encoder,
    tiny_model,
    write_posts,
)
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, pipeline

import run_baseline
import run_glue_style
from modeling_tempoformer import (
    BertWithTemporalAttentionForSequenceClassification,
    StreamState,
    TempoFormerForStreamClassification,
    TempoFormerModel,
)
from modeling_tempoformer.baselines.configuration_history import HistoryConfig
from modeling_tempoformer.baselines.modeling_history import HistoryForStreamClassification
from modeling_tempoformer.data.synthetic import synthetic_posts


TIMELINE = {"text": ["sad today", "so glad", "lost"], "timestamp": [0, 60, 7200]}
CALIBRATION = {"temperature": 2.5, "thresholds": [0.6, 0.3, 0.1]}


@pytest.fixture
def saved(tmp_path, tokenization) -> Path:
    """A folder with a calibrated model and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    encoder = {**tiny_encoder(), "vocab_size": len(tokenizer), "initializer_range": 0.3}
    model = tiny_model(**CHANGES, encoder_config=encoder, calibration=CALIBRATION, timed=True)
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
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


# Calibration


def test_a_step_decides_as_the_pipeline_does(saved):
    """One rule for labels and scores, in the pipeline, in `step` and by hand."""
    model = TempoFormerForStreamClassification.from_pretrained(saved)
    tokens = AutoTokenizer.from_pretrained(saved)(TIMELINE["text"], padding=True, return_tensors="pt")
    logits = model.step(**tokens, timeline_ids=["ann"] * 3, timestamps=TIMELINE["timestamp"]).logits
    probabilities, ranked = model.decide(logits)
    expected = (logits / CALIBRATION["temperature"]).softmax(-1)
    torch.testing.assert_close(probabilities, expected)
    labels = (expected / torch.tensor(CALIBRATION["thresholds"])).argmax(-1)
    assert ranked[:, 0].tolist() == labels.tolist() != expected.argmax(-1).tolist()
    for post, label, scores in zip(run_pipeline(saved), labels.tolist(), expected, strict=True):
        assert post["label"] == CHANGES["id2label"][label]
        assert post["score"] == pytest.approx(scores[label].item(), abs=1e-5)


@pytest.mark.parametrize("method", ["post", "concatenated"])
def test_a_model_of_the_stock_pipeline_is_not_calibrated(tmp_path, method):
    """That pipeline would not apply it."""
    command = ["--method", method, "--model_name_or_path", "x", "--train_file", "x", "--output_dir", str(tmp_path)]
    with pytest.raises(ValueError, match=f"--calibrate.*--method {method}"):
        run_baseline.main([*command, "--calibrate"])


def test_calibrating_a_saved_model_writes_a_whole_model(tmp_path):
    encoder, posts = save_encoder(tmp_path / "encoder"), list(synthetic_posts(12, seed=0, posts_per_timeline=5))
    files = ["--validation_file", write_posts(tmp_path / "dev.csv", posts[40:]), "--report_to", "none"]
    train = ["--model_name_or_path", encoder, "--train_file", write_posts(tmp_path / "train.csv", posts[:40])]
    short = ["--do_train", "--max_steps", "1", "--window", "3", "--output_dir", str(tmp_path / "plain")]
    run_glue_style.main([*train, *files, *short])
    saved = ["--model_name_or_path", str(tmp_path / "plain"), "--calibrate", "--output_dir", str(tmp_path / "other")]
    run_glue_style.main([*saved, *files])
    assert read_json(tmp_path / "other" / "config.json")["calibration"]["temperature"] > 0
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "other"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert {post["label"] for post in run_pipeline(tmp_path / "other")} <= set(NAMES)
    assert "- Calibration: " in (tmp_path / "other" / "README.md").read_text()


# Weights


BROKEN = {
    "no classifier": (
        lambda weights: {name: tensor for name, tensor in weights.items() if "classifier" not in name},
        "lack classifier.mlp.0.bias",
    ),
    "a renamed attention": (
        lambda weights: {name.replace("attention.q_proj", "attention.query_proj"): weights[name] for name in weights},
        "lack tempoformer.stream_layers.*q_proj.*besides.*query_proj",
    ),
    "a tensor more": (lambda weights: {**weights, "classifier.extra": torch.zeros(1)}, "besides classifier.extra"),
}


@pytest.mark.parametrize("predict", [run_pipeline, run_script, run_step])
@pytest.mark.parametrize("broken", BROKEN)
def test_weights_that_are_not_whole_do_not_predict(saved, predict, broken):
    change, message = BROKEN[broken]
    change_weights(saved, change)
    with pytest.raises(ValueError, match=message):
        predict(saved)


def test_a_baseline_that_is_not_whole_does_not_load(tmp_path):
    HistoryForStreamClassification(HistoryConfig(architecture="bilstm", embedding_size=4)).save_pretrained(tmp_path)
    change_weights(tmp_path, lambda weights: dict(list(weights.items())[1:]))
    with pytest.raises(ValueError, match="lack network"):
        HistoryForStreamClassification.from_pretrained(tmp_path)


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


REMOTE = """
from transformers import AutoModelForSequenceClassification

try:
    AutoModelForSequenceClassification.from_pretrained(sys.argv[1], trust_remote_code=True)
except ValueError as problem:
    assert "classifier.extra" in str(problem), problem
else:
    raise AssertionError("loaded")
"""


@pytest.mark.slow
def test_code_from_the_hub_refuses_them_too(saved):
    change_weights(saved, BROKEN["a tensor more"][0])
    run_without_package(REMOTE, saved)


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
    assert len(state) == 1 and state.num_dropped == 0
    tokenizer = AutoTokenizer.from_pretrained(saved)
    with torch.no_grad():
        word[tokenizer.convert_tokens_to_ids("glad")] = torch.nan
    pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="Timeline 1, post 0"):
        pipe([{**TIMELINE, "text": ["sad"] * 3}, {"text": ["so glad", "sad"], "timestamp": [60, 0]}])


# States


def state_of(model: TempoFormerForStreamClassification) -> StreamState:
    ids = torch.full((3, 2), 7)
    return model.step(ids, timeline_ids=["ann", "bob", "ann"], timestamps=[0.0, 1.0, 2.0]).state


def next_post(model: TempoFormerForStreamClassification, state: StreamState) -> torch.Tensor:
    return model.step(torch.full((1, 2), 8), timeline_ids=["ann"], timestamps=[3.0], state=state).logits


def same_weights(**settings) -> TempoFormerForStreamClassification:
    """The model with other settings in its configuration."""
    model = tiny_model()
    for name, value in settings.items():
        setattr(model.config, name, value)
    return model


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: tiny_model(seed=1), "other weights"),
        (lambda: tiny_model(stream_form="post"), "other weights"),
        (lambda: same_weights(window=3), "window of 4 posts.*3"),
    ],
)
@pytest.mark.parametrize("restored", [False, True])
def test_a_state_of_another_model_is_refused(tmp_path, other, message, restored):
    state = state_of(tiny_model())
    if restored:
        save_file(state.state_dict(), tmp_path / "state.safetensors")
        state = TempoFormerForStreamClassification.restore_state(load_file(tmp_path / "state.safetensors"))
    with pytest.raises(ValueError, match=message):
        next_post(other(), state)
    expected = next_post(tiny_model(), state_of(tiny_model()))
    torch.testing.assert_close(next_post(tiny_model(), state), expected)


def test_a_state_from_before_a_training_is_refused():
    model = tiny_model()
    state = state_of(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 1e-3
    with pytest.raises(ValueError, match="other weights"):
        next_post(model, state)


@pytest.mark.parametrize("time", [float("nan"), float("inf")])
def test_a_state_with_a_time_that_is_none_is_refused(time):
    tensors = state_of(tiny_model()).state_dict()
    tensors["times"][2] = time
    with pytest.raises(ValueError, match=f"{time}.*'bob'"):
        StreamState.from_state_dict(tensors)


def test_as_many_timelines_as_there_are_can_be_saved(tmp_path):
    """450,000 timelines had more names of tensors than safetensors takes; now their number does not matter."""
    model, ids = tiny_model(), torch.full((300, 2), 7)
    names = [f"user \N{SNOWMAN} {number}" for number in range(300)]
    state = model.step(ids, timeline_ids=names, timestamps=[float(number) for number in range(300)]).state
    few, many = state_of(model).state_dict(), state.state_dict()
    assert few.keys() == many.keys()
    save_file(many, tmp_path / "state.safetensors")
    restored = StreamState.from_state_dict(load_file(tmp_path / "state.safetensors"))
    assert list(restored.posts) == names and restored.times == state.times
    for name in names:
        (post,), (expected,) = restored.posts[name], state.posts[name]
        assert post.keys() == expected.keys() and all(torch.equal(post[key], expected[key]) for key in post)


def test_forgetting_an_unknown_timeline_says_so_and_forgets_none():
    state = state_of(tiny_model())
    with pytest.raises(KeyError, match="no timeline 'ben'"):
        state.evict(["ann", "ben"])
    assert "ann" in state
    state.evict(["ann", "ann"])
    assert "ann" not in state and "bob" in state


REMOTE_STATE = """
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1], trust_remote_code=True)
post = {"input_ids": torch.full((1, 2), 7), "timeline_ids": ["ann"]}
output = model.step(**post, timestamps=[0.0])
save_file(output.state.state_dict(), sys.argv[2])
state = type(model).restore_state(load_file(sys.argv[2]))
again = model.step(**post, timestamps=[1.0], state=state).logits
expected = model.step(**post, timestamps=[1.0], state=output.state).logits
torch.testing.assert_close(again, expected, atol=1e-5, rtol=0)
assert model.decide(again)[0].sum().item() > 0.99
"""


@pytest.mark.slow
def test_a_state_is_restored_without_the_package(saved, tmp_path):
    run_without_package(REMOTE_STATE, saved, tmp_path / "state.safetensors")


# Configurations


NAN = float("nan")
FIELDS = [
    *(("rope_theta", value) for value in (NAN, 0.0, -1.0, float("inf"))),
    *(("focal_gamma", value) for value in (NAN, -1.0, float("inf"))),
    *(("window", value) for value in (0, -3)),
    *(("num_stream_layers", -1), ("stream_hidden_size", -16), ("lstm_hidden_size", 0), ("head_dropout", NAN)),
    *(("stream_position_initializer_range", NAN), ("head_hidden_sizes", [8, -1])),
    ("id2label", {"0": "IS", "1": "O", "3": "IE"}),
    ("label2id", {"IS": 0, "O": 1, "IE": 3}),
]
ENCODER_FIELDS = [
    *(("layer_norm_eps", value) for value in (NAN, 0.0, -1e-5)),
    *(("num_attention_heads", value) for value in (0, -2)),
    *(("num_hidden_layers", 0), ("hidden_size", 0), ("intermediate_size", -1), ("vocab_size", 0)),
    *(("max_position_embeddings", 0), ("hidden_dropout_prob", NAN), ("attention_probs_dropout_prob", 1.5)),
    ("initializer_range", NAN),
]


def load_changed(folder: Path, *fields: str, value):
    """Loads a configuration after its `config.json` got a value at a path of names."""
    values = place = json.loads((folder / "config.json").read_text())
    for name in fields[:-1]:
        place = place[name]
    place[fields[-1]] = value
    (folder / "config.json").write_text(json.dumps(values))
    AutoConfig.from_pretrained(folder)


@pytest.mark.parametrize(("name", "value"), FIELDS)
def test_a_configuration_that_makes_no_sense_is_one_error(tmp_path, name, value):
    form = "post" if name == "stream_hidden_size" else "token"
    tiny_model(**CHANGES, stream_form=form).config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="width" if name == "stream_hidden_size" else f"`{name}`"):
        load_changed(tmp_path, name, value=value)


@pytest.mark.parametrize(("name", "value"), ENCODER_FIELDS)
def test_so_is_that_of_an_encoder(tmp_path, name, value):
    tiny_model().config.save_pretrained(tmp_path / "tempoformer")
    dated_config().save_pretrained(tmp_path / "dated")
    with pytest.raises(ValueError, match=f"`encoder_config.{name}`"):
        load_changed(tmp_path / "tempoformer", "encoder_config", name, value=value)
    with pytest.raises(ValueError, match=f"`{name}`"):
        load_changed(tmp_path / "dated", name, value=value)


@pytest.mark.parametrize(
    ("name", "value"), [("time_initializer_range", NAN), ("id2label", {"0": "a", "2": "b"}), ("hidden_size", "many")]
)
def test_so_is_that_of_a_temporal_encoder(tmp_path, name, value):
    dated_config().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=name):
        load_changed(tmp_path, name, value=value)


def test_so_is_a_field_that_is_given_beside_the_file(tmp_path):
    tiny_model().config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="`focal_gamma`"):
        AutoConfig.from_pretrained(tmp_path, focal_gamma=NAN)
