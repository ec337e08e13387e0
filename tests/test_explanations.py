"""Checks `explain` against the pipeline on timelines without a post, and against the model's attention."""

import math

import pytest
import torch
from helpers import CHANGES as LABELS
from helpers import (
    MODELS,
    WITH_STATES,
    assert_same,
    tiny_reader,
)
from transformers import pipeline

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.decisions_tempoformer import decide, log_odds
from modeling_tempoformer.timeline_tempoformer import Timeline


# A timeline longer than the window of 4, out of order, with equal times.
TIMED = {
    "text": ["tired again at home", "sad today", "", "so glad", "calm", "lost and sad", "fine"],
    "timestamp": [7200, 0, 60, 60, 90000, 90001.5, 400000],
}
UNTIMED = {"text": TIMED["text"]}
SHORT = {"text": ["glad", "sad"], "timestamp": ["2024-05-01T10:01:00Z", "2024-05-01T10:00:00Z"]}
TIMELINES = [TIMED, SHORT, UNTIMED, {"text": [], "timestamp": []}, {"text": ["lost"]}, SHORT]
WITH_TREES = {"model_type": "post_tempoformer", "num_trees": 20, "expert_weights": [0.5, 0.8]}
VARIANTS = [
    *MODELS,
    {"num_stream_layers": 0},
    {"num_stream_layers": 3, "stream_position_embeddings": [False, True, False]},
    {"head": "lstm", "recurrent_order": "reverse"},
    {"stream_attention": "full", "stream_residual": True},
    {"window": 1},
    {"window": 2, "model_type": "post_tempoformer", "post_pooling": "cls"},
    {"calibration": {"temperature": 2.5, "thresholds": [0.6, 0.3, 0.1]}},
    {"family": "modernbert"},
    WITH_TREES,
    {**WITH_TREES, "window": 2},
    {**WITH_TREES, "window": 20},
]


def make(tokenizer=None, **settings):
    """Returns a pipeline over a tiny model with these settings."""
    # A post and its position must move the probabilities by more than rounding does.
    model, model_tokenizer = tiny_reader(**{**LABELS, "stream_position_initializer_range": 1.0, **settings})
    with torch.no_grad():
        for weight in model.classifier.parameters():
            weight.mul_(3)
    return pipeline("stream-classification", model=model, tokenizer=tokenizer or model_tokenizer)


def probabilities(pipe, timeline: dict) -> list[dict[str, float]]:
    """Returns the pipeline's score of each class for each post."""
    return [{entry["label"]: entry["score"] for entry in post} for post in pipe(timeline, top_k=9)]


def odds(probability: float) -> float:
    return math.log(probability / (1 - probability))


def changed(timeline: dict, post: int, **values) -> dict:
    """Returns the timeline in the order of time up to a post, with other values of that post."""
    order = sorted(range(len(timeline["text"])), key=timeline.get("timestamp", [0] * 99).__getitem__)
    order = order[: order.index(post) + 1]
    cut = {name: [values_of_posts[other] for other in order] for name, values_of_posts in timeline.items()}
    for name, value in values.items():
        cut[name][-1] = value
    return cut


@pytest.mark.parametrize("settings", [WITH_TREES, WITH_STATES, {"model_type": "post_tempoformer", "window": 20}])
def test_a_timeline_with_vectors_is_explained_by_these(settings):
    """Vectors of posts that were encoded one by one give what texts give, and only an empty text is encoded again."""
    pipe = make(**settings)
    texts, limit = TIMED["text"] * 9, pipe.tokenizer.model_max_length
    speakers = ["ann", "ben", ""] * 21 if "reads_speakers" in settings else None
    given = [texts[:1], texts]
    timelines, others = (
        [Timeline.read(0, part, list(range(len(part))), speakers=speakers and speakers[: len(part)]) for part in given]
        for _ in range(2)
    )
    shapes = []
    pipe.model.base_model.encoder.register_forward_pre_hook(
        lambda module, args, given: shapes.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    expected = [*pipe.explain(timelines), *pipe(timelines)]
    for timeline in others:
        tokens = [
            pipe.tokenizer(text, return_tensors="pt", truncation=True, max_length=limit) for text in timeline.texts
        ]
        with torch.no_grad():
            timeline.vectors = torch.cat([pipe.model.base_model.embed_posts(**post) for post in tokens])
    assert shapes
    shapes.clear()
    actual = [*pipe.explain(others), *pipe(others)]
    assert_same(actual, expected)
    # [CLS] and [SEP]
    assert set(shapes) == {(1, 2)}


def check_effects(pipe, timeline: dict) -> float:
    """
    Checks that each effect is the pipeline's answer for the timeline less its answer without an earlier post, with an
    empty text, or with the time of the previous post. Returns the largest effect of an earlier post.
    """
    usual, sizes = probabilities(pipe, timeline), [0.0]
    without = []
    for post in range(len(usual)):
        others = {name: values[:post] + values[post + 1 :] for name, values in timeline.items()}
        # An entry for the left-out post keeps the indices of later posts.
        without.append(probabilities(pipe, others))
        without[post].insert(post, {})
    order = sorted(range(len(usual)), key=timeline.get("timestamp", [0] * 99).__getitem__)
    for post, explained in enumerate(pipe.explain(timeline)):
        previous = order[max(0, order.index(post) - 1)]
        no_text = changed(timeline, post, text="")
        same_time = changed(timeline, post, **{name: timeline[name][previous] for name in timeline if name != "text"})
        otherwise = [without[other][post] for other in explained["stream"][:-1]]
        otherwise += [probabilities(pipe, timeline)[-1] for timeline in (no_text, same_time)]
        for name in LABELS["label2id"]:
            expected = [usual[post][name] - other[name] for other in otherwise]
            assert explained["effects"][name][:-1] == pytest.approx(expected, abs=1e-5)
            in_odds = [odds(usual[post][name]) - odds(other[name]) for other in otherwise]
            assert explained["log_odds_effects"][name][:-1] == pytest.approx(in_odds, abs=1e-3)
            sizes += map(abs, expected[:-2])
    return max(sizes)


@pytest.mark.parametrize(
    ("settings", "is_timed"),
    [*((settings, True) for settings in VARIANTS), *((kind, False) for kind in (*MODELS, WITH_TREES))],
)
def test_effects_are_what_the_pipeline_says_without_a_post(settings, is_timed):
    largest = check_effects(make(**settings), TIMED if is_timed else UNTIMED)
    if settings in ({"num_stream_layers": 0}, {"window": 1}):
        assert largest < 1e-6
    else:
        assert largest > 1e-3


@pytest.mark.parametrize("settings", [WITH_TREES, MODELS[0]], ids=str)
def test_the_effect_of_the_position_is_that_of_the_trees(settings):
    """The trees read that the post is the first. Without trees there is no effect."""
    pipe, number = make(**settings), 5
    row = {"input_ids": pipe.tokenizer(UNTIMED["text"])["input_ids"]}
    batch = StreamCollator(pipe.tokenizer, 4, timed=False)([row])
    batch["timeline_position"].zero_()
    with torch.no_grad():
        first = pipe.model(**batch).logits[0, number].softmax(-1).tolist()
    post = pipe.explain(UNTIMED)[number]
    changes = [p - other for p, other in zip(post["probabilities"].values(), first, strict=True)]
    assert [effects[-1] for effects in post["effects"].values()] == pytest.approx(changes, abs=1e-5)
    assert (max(map(abs, changes)) > 1e-3) == (settings is WITH_TREES)


@pytest.mark.parametrize("settings", [*MODELS, WITH_TREES], ids=str)
def test_what_a_post_says_counts_though_the_one_before_says_the_same(settings):
    pipe = make(**settings)
    last = pipe.explain({"text": ["sad today", "sad today"]})[-1]
    empty = probabilities(pipe, {"text": ["sad today", ""]})[-1]
    for name, effects in last["effects"].items():
        assert effects[1] == pytest.approx(last["probabilities"][name] - empty[name], abs=1e-5)
    assert max(abs(effects[1]) for effects in last["effects"].values()) > 1e-3


def test_log_odds_tell_apart_what_is_rounded_to_1():
    """The logits differ by 60, and by 90 without the post. Both probabilities are 1, but the log-odds differ by 30."""
    logits = torch.tensor([[60.0, 0.0], [90.0, 0.0]])
    assert decide(logits)[0][:, 0].tolist() == pytest.approx([1.0, 1.0])
    assert log_odds(logits)[:, 0].tolist() == pytest.approx([60.0, 90.0])
    assert log_odds(logits, {"temperature": 2.0})[:, 1].tolist() == pytest.approx([-30.0, -45.0])


def test_posts_their_times_and_streams_are_those_of_the_input():
    explained = make().explain([TIMED, UNTIMED, SHORT])
    for timeline, posts in zip([TIMED, UNTIMED, SHORT], explained, strict=True):
        assert [post["text"] for post in posts] == timeline["text"]
    assert [post["timestamp"] for post in explained[0]] == TIMED["timestamp"]
    assert {post["timestamp"] for post in explained[1]} == {None}
    assert [post["timestamp"] for post in explained[2]] == [1714557660.0, 1714557600.0]
    # In the order of time: 1, 2, 3, 0, 4, 5, 6.
    expected = [[1, 2, 3, 0], [1], [1, 2], [1, 2, 3], [2, 3, 0, 4], [3, 0, 4, 5], [0, 4, 5, 6]]
    assert [post["stream"] for post in explained[0]] == expected
    assert [post["stream"] for post in explained[1]][-2:] == [[2, 3, 4, 5], [3, 4, 5, 6]]
    assert [post["stream"] for post in explained[2]] == [[1, 0], [1]]


@pytest.mark.parametrize("settings", [*MODELS, {"attn_implementation": "eager"}, {"num_stream_layers": 0}], ids=str)
def test_attention_is_the_model_s(settings):
    """The attention is the newest post's mean over heads, in a batch that has the timeline in one row."""
    pipe = make(**settings)
    order = sorted(range(7), key=TIMED["timestamp"].__getitem__)
    row = {name: [values[post] for post in order] for name, values in TIMED.items()}
    row = {"input_ids": pipe.tokenizer(row["text"])["input_ids"], "timestamps": row["timestamp"]}
    with torch.no_grad():
        output = pipe.model(**StreamCollator(pipe.tokenizer, 4)([row]), output_attentions=True)
    explained = pipe.explain(TIMED)
    for number, post in enumerate(order):
        attention = explained[post]["attention"]
        assert len(attention) == pipe.model.config.num_stream_layers
        for weights, layer_attention in zip(attention, output.stream_attentions, strict=True):
            expected = layer_attention[0, number].mean(0)[-1, -len(explained[post]["stream"]) :]
            assert weights == pytest.approx(expected.tolist(), abs=1e-5)
            assert sum(weights) == pytest.approx(1, abs=1e-5)


def test_a_network_without_weight_has_no_attention():
    """The explanation is the same but for it."""
    settings = {"model_type": "post_tempoformer", "num_trees": 20}
    with_network, without = (make(**settings, expert_weights=[weight, 0.8]) for weight in (0.5, 0.0))
    assert all(len(post["attention"]) == 1 for post in with_network.explain(TIMED))
    assert all(post["attention"] == [] for post in without.explain(TIMED))
    check_effects(without, TIMED)


@pytest.mark.parametrize("calibration", [None, {"temperature": 2.5, "thresholds": [0.6, 0.3, 0.1]}], ids=str)
def test_labels_and_probabilities_are_the_pipeline_s(calibration):
    pipe = make(calibration=calibration)
    for options in ({}, {"calibrated": False}):
        for post, ranked in zip(pipe.explain(TIMED, **options), pipe(TIMED, top_k=9, **options), strict=True):
            assert_same([post["label"], post["score"]], [ranked[0]["label"], ranked[0]["score"]])
            expected = {entry["label"]: entry["score"] for entry in ranked}
            assert_same(post["probabilities"], {name: expected[name] for name in LABELS["label2id"]})


@pytest.mark.parametrize("kind", [*MODELS, WITH_TREES], ids=str)
def test_rows_and_batches_change_nothing(kind):
    pipe = make(**kind)
    alone = [pipe.explain(timeline) for timeline in TIMELINES]
    assert [len(explained) for explained in alone] == [7, 2, 7, 0, 1, 2]
    for batch_size, targets_per_row in ((1, 1), (3, 2), (50, 64)):
        assert_same(pipe.explain(TIMELINES, batch_size=batch_size, targets_per_row=targets_per_row), alone)


def test_it_says_what_is_wrong_as_a_call_does():
    pipe = make()
    with pytest.raises(ValueError, match="Timeline 1, post 1: text 3"):
        pipe.explain([SHORT, {"text": ["a", 3]}])
    with torch.no_grad():
        pipe.model.classifier.mlp[0].weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="Timeline 0, post 1"):
        pipe.explain(SHORT)
