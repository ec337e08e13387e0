"""Checks the pipeline against the model on the collated timeline."""

import logging
import random
from datetime import UTC, datetime

import pytest
import torch
from datasets import Dataset
from helpers import CHANGES as LABELS
from helpers import MODELS, WITH_STATES, assert_same, read_json, run_without_package, tiny_reader
from transformers import pipeline

from modeling_tempoformer import StreamClassificationPipeline, StreamCollator, Timeline


TIMELINES = [
    {"text": ["sad today", "so glad", "", "tired again at home", "calm"], "timestamp": [0, 60, 60, 7200, 90000]},
    {"text": ["lost"], "timestamp": ["2024-05-01T10:00:00Z"]},
    {"text": ["fine", "hopeful really"]},
    {"text": [], "timestamp": []},
    {"text": ["glad", "sad", "glad"], "timestamp": [5.5, 6.5, 8.0]},
]


CALIBRATION = {"temperature": 2.5, "thresholds": [0.6, 0.3, 0.1]}
KINDS = [*MODELS, {**MODELS[1], "num_trees": 20, "expert_weights": [0.5, 0.8]}]


@pytest.fixture(params=KINDS, ids=str)
def saved(tmp_path, request):
    """Saves a model with its tokenizer."""
    return tmp_path / "saved", *tiny_reader(tmp_path / "saved", **LABELS, **request.param)


def load(folder, **settings):
    return pipeline("stream-classification", model=str(folder), trust_remote_code=True, **settings)


def probabilities(model, tokenizer, timeline) -> torch.Tensor:
    """Returns each post's probabilities from a batch that has the timeline in one row."""
    row = {"input_ids": tokenizer(timeline["text"])["input_ids"]}
    if "timestamp" in timeline:
        times = timeline["timestamp"]
        row["timestamps"] = [datetime.fromisoformat(t).timestamp() if isinstance(t, str) else t for t in times]
    batch = StreamCollator(tokenizer, model.config.window, timed="timestamp" in timeline)([row])
    with torch.no_grad():
        return model(**batch).logits[0].softmax(-1)


@pytest.mark.parametrize(("batch_size", "targets_per_row"), [(1, 1), (3, 2), (50, 64)])
def test_every_post_gets_the_model_s_answer(saved, batch_size, targets_per_row):
    folder, model, tokenizer = saved
    pipe = load(folder)
    results = pipe(TIMELINES, batch_size=batch_size, targets_per_row=targets_per_row)
    assert [len(result) for result in results] == [5, 1, 2, 0, 3]
    for timeline, result in zip(TIMELINES, results, strict=True):
        if not timeline["text"]:
            continue
        expected = probabilities(model, tokenizer, timeline)
        scores = torch.tensor([post["score"] for post in result])
        torch.testing.assert_close(scores, expected.amax(-1), atol=1e-5, rtol=0)
        assert [post["label"] for post in result] == [LABELS["id2label"][int(i)] for i in expected.argmax(-1)]
    # Answers are in the order of the input, whatever the order of time is.
    order = [3, 0, 4, 1, 2]
    shuffled = {name: [values[i] for i in order] for name, values in TIMELINES[0].items()}
    assert_same(pipe(shuffled), [pipe(TIMELINES[0])[number] for number in order])


def test_one_timeline_or_a_generator(saved):
    folder, *_ = saved
    pipe = load(folder)
    whole = pipe(TIMELINES)
    torch.testing.assert_close(pipe(TIMELINES[0])[3]["score"], whole[0][3]["score"], atol=1e-5, rtol=0)
    read = []

    def endless():
        while True:
            read.append(1)
            yield TIMELINES[0]

    results = pipe(endless(), batch_size=2)
    assert [post["label"] for post in next(results)] == [post["label"] for post in whole[0]]
    # The post model encodes the posts of sixteen batches at once.
    assert len(read) == (2 * 16 if pipe.model.tempoformer.reads_vectors else 2)


@pytest.mark.parametrize("parts", [("temperature", "thresholds"), ("temperature",), ("thresholds",)], ids=str)
def test_all_scores_of_a_post_and_its_calibration_unless_it_is_refused(saved, parts):
    folder, model, tokenizer = saved
    model.config.calibration = {part: CALIBRATION[part] for part in parts}
    model.save_pretrained(folder)
    thresholds = model.config.calibration.get("thresholds", [1.0] * 3)
    pipe, moved = load(folder), 0
    for timeline in (timeline for timeline in TIMELINES if timeline["text"]):
        plain = probabilities(model, tokenizer, timeline)
        # The probabilities give `softmax(logits / T)`: p ** (1 / T), normalised to a sum of 1.
        powers = plain ** (1 / model.config.calibration.get("temperature", 1))
        expected = (powers / powers.sum(-1, keepdim=True)).tolist()
        for post, ranked, scores in zip(pipe(timeline), pipe(timeline, top_k=9), expected, strict=True):
            order = sorted(range(3), key=lambda label: -scores[label] / thresholds[label])
            assert [entry["label"] for entry in ranked] == [LABELS["id2label"][label] for label in order]
            assert [entry["score"] for entry in ranked] == pytest.approx([scores[label] for label in order], abs=1e-5)
            assert_same(post, ranked[0])
            moved += scores[order[0]] < max(scores)
        for refusing in (pipe(timeline, calibrated=False), load(folder, calibrated=False)(timeline)):
            assert [post["score"] for post in refusing] == pytest.approx(plain.amax(-1).tolist(), abs=1e-5)
        assert_same(pipe(timeline, top_k=2), [ranked[:2] for ranked in pipe(timeline, top_k=9)])
    assert bool(moved) == ("thresholds" in parts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_timelines_keep_their_answers(saved, dtype):
    """Logits are in float32 and in the order of time. Timelines may share a batch, occur twice, or be empty."""
    _, model, tokenizer = saved
    pipe = StreamClassificationPipeline(model=model.to(dtype), tokenizer=tokenizer)
    timelines = [Timeline.read(name, given["text"], given.get("timestamp")) for name, given in zip("abcde", TIMELINES)]
    timelines.append(timelines[0])
    results = pipe(timelines)
    for timeline, result in zip(timelines, results, strict=True):
        assert timeline.logits.dtype == torch.float32 and timeline.logits.shape == (len(timeline), 3)
        assert timeline.logits.softmax(-1).amax(-1).tolist() == pytest.approx([post["score"] for post in result])
    explained = pipe.explain(timelines)
    assert_same([timeline.explanations for timeline in timelines], explained)


def test_a_row_of_a_dataset_with_other_columns_is_a_timeline(saved):
    """They are not read, and "timestamp_2" is no misspelling beside "timestamp"."""
    pipe, timelines = load(saved[0]), [TIMELINES[0], TIMELINES[4]]
    others = {"id": "ann", "label": [0], "state": ["1"], "speaker_id": ["a"], "timestamp_2": [1.0]}
    rows = [{**timeline, "timestamp": list(map(float, timeline["timestamp"])), **others} for timeline in timelines]
    dataset = Dataset.from_list(rows)
    assert_same(pipe(dataset[0]), pipe(timelines[0]))
    assert_same(list(pipe(dataset)), pipe(timelines))


def test_messages_of_chats_are_timelines(tmp_path):
    """A model that reads who speaks reads them in any form; a picture and a call of a tool are no text."""
    tiny_reader(tmp_path, **WITH_STATES)
    pipe = load(tmp_path)
    texts, times = ["sad", "", "so glad\nagain", "calm"], [0, 5, 60, 7200]
    roles = ["user", "assistant", "user", "tool"]
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/sad.png"}}
    parts = [{"type": "text", "text": "so glad"}, picture, {"type": "text", "text": "again"}]
    contents = ["sad", None, parts, [{"type": "text", "text": "calm"}]]
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=True)]
    timed = [{**message, "timestamp": time} for message, time in zip(messages, times, strict=True)]
    timeline = {"text": texts, "speaker": roles}
    expected = pipe([timeline, {**timeline, "timestamp": times}])
    assert_same([pipe(messages), pipe(timed)], expected)
    assert_same(pipe([messages, {"messages": timed, "id": "c1"}]), expected)
    assert_same(list(pipe(chat for chat in (messages, timed))), expected)
    assert_same(pipe.explain(timed), pipe.explain({**timeline, "timestamp": times}))
    for wrong, words in (
        ({"role": "user"}, "Timeline 0, message 4 .*content"),
        ({"role": "user", "content": {"text": "sad"}}, "Timeline 0, post 4: text"),
        ({"role": "user", "content": "sad", "timestamp": "soon"}, "Timeline 0, post 4: timestamp"),
    ):
        with pytest.raises(ValueError, match=words):
            pipe([*messages, wrong])
    # A table of messages is none.
    with pytest.raises(ValueError, match="list of strings as 'text'"):
        pipe([{"role": ["user"], "content": ["sad"]}])


def test_no_trust_is_asked_where_the_package_is_imported(saved):
    """Its own class answers, with trust and without, and the folder still names the task."""
    folder, *_ = saved
    expected = load(folder)(TIMELINES[0])
    for given in (
        {"task": "stream-classification"},
        {},
        {"task": "stream-classification", "trust_remote_code": False},
    ):
        pipe = pipeline(model=str(folder), **given)
        assert type(pipe) is StreamClassificationPipeline
        assert_same(pipe(TIMELINES[0]), expected)
    pipe.save_pretrained(folder)
    assert list(read_json(folder / "config.json")["custom_pipelines"]) == ["stream-classification"]


def test_rows_of_datasets_that_are_no_dicts(saved):
    pipe = load(saved[0])
    timelines = [TIMELINES[0], TIMELINES[4]]
    rows = Dataset.from_list(
        [
            {name: list(map(float, column)) if name == "timestamp" else column for name, column in timeline.items()}
            for timeline in timelines
        ]
    )
    answers = rows.map(lambda row: {"label": [post["label"] for post in pipe(row)]})["label"]
    assert list(answers) == [[post["label"] for post in result] for result in pipe(timelines)]


def test_options_of_other_pipelines_are_taken_or_refused(saved):
    pipe = load(saved[0])
    expected = pipe(TIMELINES[0])
    assert_same(pipe(TIMELINES[0], num_workers=2, truncation=True), expected)
    assert_same(load(saved[0], num_workers=2, truncation=True)(TIMELINES[0]), expected)
    with pytest.raises(ValueError, match="`truncation` must be True"):
        pipe(TIMELINES[0], truncation=False)


def test_times_in_any_form_or_none(saved):
    pipe = load(saved[0])
    forms = [
        [1714557600, 1714557700],
        ["2024-05-01T10:00:00", "2024-05-01T12:01:40+02:00"],
        [datetime(2024, 5, 1, 10, tzinfo=UTC), datetime(2024, 5, 1, 10, 1, 40)],
    ]
    first, *others = [pipe({"text": ["sad", "glad"], "timestamp": form}) for form in forms]
    for other in others:
        assert_same(other, first)
    assert_same(pipe({**TIMELINES[2], "timestamp": [None, None]}), pipe(TIMELINES[2]))


def test_bad_options_are_named_by_the_constructor_too(saved):
    with pytest.raises(ValueError, match="`top_k`"):
        load(saved[0], top_k=0)


def test_long_posts_are_cut_to_what_the_encoder_reads(saved):
    pipe = load(saved[0])
    pipe.tokenizer.model_max_length = int(1e30)
    assert_same(pipe({"text": ["sad " * 60]}), pipe({"text": ["sad " * 22]}))


def test_many_long_posts_are_one_warning(tmp_path, caplog, monkeypatch):
    tiny_reader(tmp_path, **LABELS)
    pipe = load(tmp_path)
    # The library's logger hands no records on.
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    pipe([{"text": ["sad " * 60, "so glad", "glad " * 60]}] * 9 + [{"text": ["calm"]}])
    (message,) = [record.getMessage() for record in caplog.records if "runcated" in record.getMessage()]
    assert {"18", "28"} <= set(message.split())


ELSEWHERE = """
import json
from pathlib import Path
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

for folder in map(Path, sys.argv[1:]):
    for number in range(2):
        source = folder / str(number)
        pipe = pipeline("stream-classification", model=str(source), trust_remote_code=True)
        timeline = {"text": ["sad today", "so glad"], "timestamp": [0, 60]}
        found = [pipe(timeline, calibrated=False), pipe(timeline), pipe.explain(timeline)]
        # From parts that were loaded before, too.
        model = AutoModelForSequenceClassification.from_pretrained(source, trust_remote_code=True)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=True)
        made = pipeline("stream-classification", model=model, tokenizer=tokenizer)
        assert type(made).__name__ == "StreamClassificationPipeline" and len(made(timeline)) == 2
        (source / "found.json").write_text(json.dumps(found, allow_nan=False))
        pipe.save_pretrained(folder / str(number + 1))
"""


@pytest.mark.slow
def test_it_travels_with_the_model(tmp_path):
    expected, timeline = {}, {"text": ["sad today", "so glad"], "timestamp": [0, 60]}
    for number, kind in enumerate(KINDS):
        folder = tmp_path / str(number)
        tiny_reader(folder / "0", calibration=CALIBRATION, **LABELS, **kind)
        pipe = load(folder / "0")
        expected[folder] = [pipe(timeline, calibrated=False), pipe(timeline), pipe.explain(timeline)]
        assert expected[folder][0] != expected[folder][1]
    run_without_package(ELSEWHERE, *expected)
    for folder, answers in expected.items():
        for number in range(2):
            assert_same(read_json(folder / str(number) / "found.json"), answers)


def test_the_post_model_reads_equal_posts_once_and_posts_of_like_length_together(tmp_path):
    model, tokenizer = tiny_reader(tmp_path / "saved", **LABELS, model_type="post_tempoformer")
    pipe, read = load(tmp_path / "saved"), []

    def count(module, args, kwargs):
        read.append(kwargs["attention_mask"])

    pipe.model.base_model.encoder.register_forward_pre_hook(count, with_kwargs=True)
    # Each timeline has a long post, a short one, and one that all have.
    choose, words = random.Random(0), ["sad", "glad", "tired", "fine", "lost", "home"]
    timelines = [
        {"text": [*(" ".join(choose.choices(words, k=length)) for length in (12, 3)), "calm"], "timestamp": [0, 1, 2]}
        for _ in range(100)
    ]
    answers = pipe(timelines, batch_size=8)
    distinct = {text for timeline in timelines for text in timeline["text"]}
    real, padded = (sum(int(values) for values in some) for some in zip(*((m.sum(), m.numel()) for m in read)))
    assert sum(map(len, read)) == len(distinct)
    assert padded <= 1.25 * real
    for number in (0, 99):
        for answer, expected in zip(answers[number], probabilities(model, tokenizer, timelines[number]), strict=True):
            assert answer["score"] == pytest.approx(float(expected.max()), abs=1e-5)
