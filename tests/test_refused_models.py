"""Checks that broken models are refused: incomplete or infinite weights, and configurations that make no sense."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import (
    CHANGES,
    CLASSES,
    MODELS,
    WITH_STATES,
    dated_config,
    read_json,
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
    pipeline,
)

import run_glue_style
from modeling_tempoformer import (
    BertWithTemporalAttentionForSequenceClassification,
    TempoFormerForStreamClassification,
    TempoFormerModel,
)
from modeling_tempoformer.view.timelines import load_pipeline
from tempoformer_live.stepping import Stepper


TIMELINE = {"text": ["sad today", "so glad", "lost"], "timestamp": [0, 60, 7200]}


@pytest.fixture
def saved(tmp_path) -> Path:
    """Returns a folder with a model and its tokenizer."""
    tiny_reader(tmp_path / "saved", **CHANGES)
    return tmp_path / "saved"


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]):
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, {"format": "pt"})


def run_pipeline(folder: Path) -> list[dict]:
    return pipeline("stream-classification", model=str(folder), trust_remote_code=True)(TIMELINE)


def run_script(folder: Path) -> list[dict[str, str]]:
    posts = [{"timeline_id": "ann", "post_id": f"ann {number}", "text": text} for number, text in enumerate("abc")]
    posts = [post | {"timestamp": 60 * number} for number, post in enumerate(posts)]
    file, output = write_posts(folder.parent / "posts.csv", posts), folder.parent / "predicted"
    command = ["--model_name_or_path", str(folder), "--test_file", file, "--columns", "id=post_id", "--do_predict"]
    run_glue_style.main([*command, "--output_dir", str(output), "--report_to", "none"])
    return read_table(output / "_predictions.csv")


def run_step(folder: Path) -> torch.Tensor:
    model = TempoFormerForStreamClassification.from_pretrained(folder)
    return (
        Stepper(model)
        .step(torch.tensor([[2, 7, 3], [2, 8, 3]]), timeline_ids=["bob", "ann"], timestamps=[1.0, 2.0])
        .logits
    )


BROKEN = {
    "no classifier": (
        lambda weights: {name: tensor for name, tensor in weights.items() if "classifier" not in name},
        "lack classifier.mlp.0.bias",
    ),
    "a renamed attention": (
        lambda weights: {name.replace("attention.q_proj", "attention.query_proj"): weights[name] for name in weights},
        "lack tempoformer.stream_layers.*q_proj",
    ),
    "a second classifier": (
        lambda weights: weights | {"classifier.other": torch.zeros(3), "another": torch.zeros(3)},
        "also have another, classifier.other",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_weights_that_are_not_whole_do_not_load(saved, broken):
    change, message = BROKEN[broken]
    change_weights(saved, change)
    for load in (AutoModelForSequenceClassification.from_pretrained, run_script):
        with pytest.raises(ValueError, match=message):
            load(saved)


@pytest.mark.parametrize("index", [-1, 10**6])
def test_a_tree_that_reads_no_feature_does_not_load(tmp_path, index):
    """A number below 0 would be a feature from the end, and give other answers."""
    model = tiny_model(**WITH_STATES)
    model.save_pretrained(tmp_path)
    AutoModelForSequenceClassification.from_pretrained(tmp_path)

    def put(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        weights["trees.feature"][1, 2, 3] = index
        return weights

    change_weights(tmp_path, put)
    with pytest.raises(ValueError, match=f"`trees.feature` of .*index {index},.* to {len(model.trees.center) - 1}"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_a_model_without_a_head_predicts_nothing(tmp_path, kind):
    """A head may be trained on the encoder, unless the encoder lacks weights itself."""
    model, tokenizer = tiny_reader(**CHANGES, **kind)
    for part in (model.tempoformer, tokenizer):
        part.save_pretrained(tmp_path / "base")
    CLASSES[kind["model_type"]].from_pretrained(tmp_path / "base")
    with pytest.raises(ValueError, match="lack classifier"):
        load_pipeline(str(tmp_path / "base"))
    with pytest.raises(ValueError, match="without --do_train"):
        run_script(tmp_path / "base")
    change_weights(tmp_path / "base", lambda weights: dict(list(weights.items())[1:]))
    with pytest.raises(ValueError, match="lack tempoformer.encoder"):
        CLASSES[kind["model_type"]].from_pretrained(tmp_path / "base")


def test_who_asks_what_is_missing_gets_new_weights(saved, tmp_path):
    """New weights are also allowed for other numbers of classes, without the head, and for a plain encoder."""
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
    """The error gives the post's position in the input, and the memory is unchanged."""
    model = TempoFormerForStreamClassification.from_pretrained(saved)
    word = model.get_input_embeddings().weight
    with torch.no_grad():
        word[9] = torch.nan
    ids, names = torch.tensor([[2, 7, 3], [2, 8, 3], [2, 9, 3]]), ["ann", "bob", "ben"]
    memory = Stepper(model).step(ids[:1], timeline_ids=["ann"], timestamps=[100.0]).memory
    with pytest.raises(ValueError, match="Post 2 of timeline 'ben'"):
        Stepper(model).step(ids, timeline_ids=names, timestamps=[0.0, 1.0, 2.0], memory=memory, drop_late=True)
    assert len(memory) == 1
    tokenizer = AutoTokenizer.from_pretrained(saved)
    with torch.no_grad():
        word[tokenizer.convert_tokens_to_ids("glad")] = torch.nan
    pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="Timeline 1, post 0"):
        pipe([{**TIMELINE, "text": ["sad"] * 3}, {"text": ["so glad", "sad"], "timestamp": [60, 0]}])


NAN = float("nan")
# Invalid fields of configurations by model type, each with the words that the error must contain.
NO_SENSE = {
    "tempoformer": [
        *(({"rope_theta": NAN}, "rope_theta"), ({"window": 0}, "window"), ({"head_dropout": 1.0}, "head_dropout")),
        *(({"head_hidden_sizes": [8, -1]}, "head_hidden_sizes"), ({"lstm_hidden_size": 0}, "lstm_hidden_size")),
        *(({"num_stream_layers": 9}, "num_stream_layers"), ({"stream_attention": "causal"}, "stream_attention")),
        ({"stream_position_embeddings": [True]}, "stream_position_embeddings"),
        *(({"class_weights": [1.0]}, "class_weights"), ({"class_weights": [1.0, -1.0, 1.0]}, "class_weights")),
        *(({"focal_gamma": -1.0}, "focal_gamma"), ({"id2label": {"0": "IS", "1": "O", "3": "IE"}}, "id2label")),
        *(({"calibration": {"temperature": number}}, "calibration.*temperature") for number in (NAN, 1e-300, 1e300)),
        ({"calibration": {"thresholds": [0.5, 1e-310, 0.5]}}, "calibration.*thresholds"),
        *(({"class_weights": [1.0, 1e300, 1.0]}, "class_weights"), ({"watched": 3}, "watched.*3")),
        ({"calibration": {"thresholds": [0.5, 0.5]}}, "calibration.*thresholds.*2.*3"),
        ({"calibration": {"threshold": [0.5, 0.5, 0.5]}}, "calibration.*'threshold'"),
        ({"calibration": {"alarm": {"label": 3, "threshold": 0.5}}}, "calibration.*alarm.*label.*3"),
        ({"calibration": {"alarm": {"label": 1, "threshold": 1.5}}}, "calibration.*alarm.*threshold.*1.5"),
        ({"calibration": {"alarm": {"label": 1}}}, "calibration.*alarm.*threshold.*None"),
        ({"id2label": {"0": "IS", "1": "O", "2": "IS"}}, "id2label.*'IS'.*'IS'"),
        *(({"change_step": step}, "change_step") for step in (-1.0, NAN, float("inf"))),
    ],
    "post_tempoformer": [
        *(({"num_stream_layers": 0}, "num_stream_layers"), ({"post_pooling": "max"}, "post_pooling")),
        *(({"stream_hidden_size": 9}, "width.*2 heads.*9"), ({"stream_hidden_size": 6}, "head dimension.*3")),
        ({"states": ["calm", "sad"], "state_values": [0.0, NAN]}, "state_values.*nan"),
    ],
    "temporal_bert": [
        *(({"hidden_size": "many"}, "hidden_size"), ({"time_initializer_range": NAN}, "time_initializer_range")),
        *(({"times": ["a", "a"]}, "times"), ({"temporal_attention": "often"}, "temporal_attention")),
        ({"temporal_attention": "scaled", "time_scaling": "documents"}, "time_document_counts"),
        ({"times": [*map(str, range(65))], "temporal_attention": "scaled", "time_scaling": "exponential"}, "65"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "fields", "named"), [(kind, *case) for kind, cases in NO_SENSE.items() for case in cases]
)
def test_a_configuration_that_makes_no_sense_is_one_error(tmp_path, kind, fields, named):
    """The values are in a file, or given as arguments."""
    config = dated_config() if kind == "temporal_bert" else tiny_model(model_type=kind).config
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=named):
        AutoConfig.from_pretrained(tmp_path, **fields)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**read_json(path), **fields}))
    with pytest.raises(ValueError, match=named):
        AutoConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("attention", ["temporal_rotary", "rotary", "full"])
@pytest.mark.parametrize("kind", [*MODELS, {"model_type": "tempoformer", "num_stream_layers": 0}], ids=str)
@pytest.mark.parametrize("timed", [True, False])
def test_a_model_takes_times_if_it_was_trained_with_them(kind, attention, timed):
    """The model, the pipeline and `step` need times even if the attention does not read them."""
    model, tokenizer = tiny_reader(**CHANGES, **kind, stream_attention=attention, timed=timed)
    pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
    given = {True: TIMELINE, False: {"text": TIMELINE["text"]}}
    ids = tokenizer(TIMELINE["text"], padding=True, return_tensors="pt").input_ids
    times = {True: {"timestamps": TIMELINE["timestamp"]}, False: {}}
    assert (
        len(pipe(given[timed])) == 3
        and len(Stepper(model).step(ids, timeline_ids=["ann"] * 3, **times[timed]).logits) == 3
    )
    for call in (pipe, pipe.explain):
        with pytest.raises(ValueError, match=f"timed={timed}"):
            call(given[not timed])
    with pytest.raises(ValueError, match=f"timed={timed}"):
        Stepper(model).step(ids, timeline_ids=["ann"] * 3, **times[not timed])
    # A model that does not say how it was trained reads both.
    model.config.timed = None
    assert len(pipe(given[not timed])) == 3


@pytest.mark.parametrize(
    ("settings", "named"), [({"model_type": "gpt2"}, "'gpt2'"), ({"is_decoder": True}, "'bert'.*`is_decoder=True`")]
)
def test_an_encoder_that_cannot_read_posts_is_refused(settings, named):
    with pytest.raises(ValueError, match=named):
        tiny_model(encoder_config={**tiny_encoder(), **settings})
