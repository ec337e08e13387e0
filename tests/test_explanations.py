"""`explain`, against the pipeline on timelines without a post, and against the model's own attention."""

import json

import pytest
import torch
from helpers import FORMS, run_without_package, tiny_encoder, tiny_model
from transformers import AutoTokenizer, pipeline

from modeling_tempoformer import StreamCollator


WINDOW = 4
LABELS = {"id2label": {0: "IS", 1: "O", 2: "IE"}, "label2id": {"IS": 0, "O": 1, "IE": 2}}
CALIBRATION = {"temperature": 2.5, "thresholds": [0.6, 0.3, 0.1]}
# Longer than the window, out of order, with equal times.
TIMED = {
    "text": ["tired again at home", "sad today", "", "so glad", "calm", "lost and sad", "fine"],
    "timestamp": [7200, 0, 60, 60, 90000, 90001.5, 400000],
}
UNTIMED = {"text": TIMED["text"]}
SHORT = {"text": ["glad", "sad"], "timestamp": ["2024-05-01T10:00:00Z", "2024-05-01T10:01:00Z"]}
EMPTY = {"text": [], "timestamp": []}
TIMELINES = [TIMED, SHORT, UNTIMED, EMPTY, {"text": ["lost"]}, SHORT]
VARIANTS = [
    *FORMS,
    {"num_stream_layers": 0},
    {"num_stream_layers": 0, "head": "lstm"},
    {"head": "lstm", "recurrent_order": "reverse"},
    {"head": "lstm", "stream_form": "post"},
    {"stream_attention": "full", "stream_residual": True},
    {"stream_attention": "rotary", "stream_form": "post", "fusion": "none", "num_stream_layers": 1},
    {"window": 1},
    {"window": 2, "stream_form": "post", "post_pooling": "cls", "stream_hidden_size": 8},
]


@pytest.fixture
def make(tokenization):
    """Builds a pipeline over a tiny model with some settings."""
    tokenizer = AutoTokenizer.from_pretrained(tokenization)

    def make(family: str = "bert", **settings):
        encoder = {**tiny_encoder(family), "vocab_size": len(tokenizer), "initializer_range": 0.3}
        model = tiny_model(**{**LABELS, "window": WINDOW, "encoder_config": encoder, **settings})
        # So that a post moves the probabilities of others by more than rounding does.
        with torch.no_grad():
            for weight in model.classifier.parameters():
                weight.mul_(3)
        return pipeline("stream-classification", model=model, tokenizer=tokenizer)

    return make


def predict(pipe, timeline: dict, **options) -> list[dict[str, float]]:
    """The probability of each class, for each post."""
    return [{best["label"]: best["score"] for best in post} for post in pipe(timeline, top_k=9, **options)]


def leave_out(timeline: dict, post: int) -> dict:
    return {name: values[:post] + values[post + 1 :] for name, values in timeline.items()}


def oldest_first(timeline: dict) -> list[int]:
    times = timeline.get("timestamp", [0] * len(timeline["text"]))
    return sorted(range(len(times)), key=times.__getitem__)


def check_effects(pipe, timeline: dict, **options):
    """Every effect is what the pipeline says of the timeline minus what it says of the timeline without a post."""
    explained, order = pipe.explain(timeline, **options), oldest_first(timeline)
    usual, moved = predict(pipe, timeline, **options), 0
    others = [predict(pipe, leave_out(timeline, post), **options) for post in range(len(order))]
    for place, post in enumerate(order):
        found = explained[post]
        assert found["stream"] == order[max(0, place + 1 - pipe.model.config.window) : place + 1]
        assert set(found["effects"]) == set(LABELS["label2id"])
        for name, effects in found["effects"].items():
            expected = [usual[post][name] - others[gone][post - (gone < post)][name] for gone in found["stream"][:-1]]
            assert effects == pytest.approx(expected, abs=1e-5)
            moved += sum(abs(effect) > 1e-3 for effect in effects)
    return moved


@pytest.mark.parametrize("timeline", [TIMED, UNTIMED], ids=["timed", "untimed"])
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_effects_are_what_the_pipeline_says_without_a_post(make, settings, timeline):
    pipe = make(**settings)
    reads_stream = pipe.model.config.window > 1 and settings != {"num_stream_layers": 0}
    assert bool(check_effects(pipe, timeline)) == reads_stream
