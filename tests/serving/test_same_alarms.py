"""Checks that all who answer give the same alarms, and that other thresholds keep what a service remembers."""

import json

import pytest
from arrivals import TIMELINES, DictStore, assert_same, make_pipe, send
from helpers import MODELS
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from modeling_tempoformer.serving.live_classifier import LiveClassifier


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_pipeline_step_explanation_and_live_service_give_the_same_alarms(kind, tmp_path):
    """So does a copy with its own code only. The fields are JSON."""
    pipe = make_pipe(**kind, watched=1)
    shares = sorted(post["watched_probability"] for post in pipe(TIMELINES["ann"]))
    alarm = {"label": 1, "threshold": (shares[2] + shares[3]) / 2}
    pipe.model.config.calibration = {"alarm": alarm}
    expected = pipe(TIMELINES["ann"])
    assert sum(post["alarm"] for post in expected) == len(expected) - 3
    for post in expected:
        assert post["alarm"] == (post["watched_probability"] >= post["watched_threshold"] == alarm["threshold"])
    assert json.loads(json.dumps(expected)) == expected
    live = send(LiveClassifier(pipe, DictStore()), TIMELINES, [("ann", number) for number in range(len(expected))])
    pipe.save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    tokens = AutoTokenizer.from_pretrained(tmp_path)(TIMELINES["ann"]["text"], padding=True, return_tensors="pt")
    step = model.eval().step(**tokens, timeline_ids=["ann"] * len(expected), timestamps=TIMELINES["ann"]["timestamp"])
    for answers in (live, pipe.explain(TIMELINES["ann"]), model.answer(step.logits, step.state_logits)):
        assert_same(answers, expected)
        assert [answer["alarm"] for answer in answers] == [post["alarm"] for post in expected]
        for answer, post in zip(answers, expected, strict=True):
            assert answer["watched_probability"] == pytest.approx(post["watched_probability"], abs=1e-5)
            assert (answer["watched"], answer["watched_threshold"]) == (post["watched"], alarm["threshold"])
            assert (answer["reason"] is None) == (post["reason"] is None)
    # Each of the best classes comes with what is said of the post.
    for ranked, post in zip(pipe(TIMELINES["ann"], top_k=3), expected, strict=True):
        assert_same([ranked[0]], [post])
        assert [entry["alarm"] for entry in ranked] == [post["alarm"]] * 3
    # An uncalibrated answer knows no alarm's threshold.
    assert {post["watched_threshold"] for post in pipe(TIMELINES["ann"], calibrated=False)} == {None}


def test_other_thresholds_keep_the_memory_of_a_live_service():
    """The later post is read with the earlier ones, and its alarm follows the new threshold."""
    pipe, store = make_pipe(model_type="post_tempoformer", watched=1), DictStore()
    send(LiveClassifier(pipe, store), TIMELINES, [("ann", 0), ("ann", 1)])
    for number, threshold in ((2, 0.0), (3, 1.0)):
        pipe.model.config.calibration = {"temperature": 2.0, "alarm": {"label": 1, "threshold": threshold}}
        (answer,) = send(LiveClassifier(pipe, store), TIMELINES, [("ann", number)])
        assert (answer["context"], answer["alarm"]) == ("memory", threshold == 0)
