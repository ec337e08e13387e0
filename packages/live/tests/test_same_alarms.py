"""Checks that all who answer give the same alarms, and that other thresholds keep what a service remembers."""

import json

import pytest
from arrivals import TIMELINES, DictStore, assert_same, make_pipe, send
from helpers import MODELS
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tempoformer_live.live_classifier import LiveClassifier
from tempoformer_live.policy import EVENTS, Alarm, AlarmState, follow
from tempoformer_live.stepping import Stepper


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
    stepper = Stepper(model)
    step = stepper.step(**tokens, timeline_ids=["ann"] * len(expected), timestamps=TIMELINES["ann"]["timestamp"])
    for answers in (live, pipe.explain(TIMELINES["ann"]), stepper.answer(step)):
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


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("policy", [{"cooldown_posts": 1, "mean_of": 2}, {"wait_seconds": 500.0}], ids=str)
def test_the_service_follows_the_policy_of_its_alarm(kind, policy):
    """The service gets the posts one by one; a post that is sent again has its event and moves nothing."""
    pipe = make_pipe(**kind, watched=1)
    scores = [post["watched_probability"] for post in pipe(TIMELINES["ann"])]
    alarm = Alarm(1, sorted(scores)[1] - 1e-4, policy)
    times = TIMELINES["ann"]["timestamp"]
    wanted = [EVENTS[event] for event in follow(scores, times, alarm.threshold, policy, AlarmState())]
    assert {"raised", "held back"} <= set(wanted)
    store, live = DictStore(), []
    classifier = LiveClassifier(pipe, store, alarm)
    for number in range(len(scores)):
        live += send(classifier, TIMELINES, [("ann", number)])
        assert send(classifier, TIMELINES, [("ann", number)]) == [live[-1]]
    assert [answer["alarm_event"] for answer in live] == wanted
    for answer, event, score in zip(live, wanted, scores, strict=True):
        assert answer["alarm"] == (event == "raised") and answer["watched_threshold"] == alarm.threshold
        assert ("policy" in (answer["reason"] or "")) == ((score >= alarm.threshold) != (event == "raised"))
    # The model by itself knows the threshold alone.
    assert [post["alarm"] for post in pipe(TIMELINES["ann"])] == [score >= alarm.threshold for score in scores]
    # An event of another alarm says nothing of this one.
    last = len(scores) - 1
    other = LiveClassifier(pipe, store, Alarm(1, 1.0, policy))
    (again,) = send(other, TIMELINES, [("ann", last)])
    assert not again["alarm"] and other.raise_due(1e12) == []
    # A post from before the policy has no event, and its threshold decides.
    store = DictStore()
    send(LiveClassifier(pipe, store), TIMELINES, [("ann", 0)])
    (again,) = send(LiveClassifier(pipe, store, alarm), TIMELINES, [("ann", 0)])
    assert again["alarm"] == (scores[0] >= alarm.threshold) and again["alarm_event"] is None


def test_alarms_that_wait_are_raised_once_when_their_time_is_over():
    """Bob's posts come within six seconds. An alarm waits for a minute from the first of them on."""
    pipe, store = make_pipe(model_type="post_tempoformer", watched=1), DictStore()
    threshold = min(post["watched_probability"] for post in pipe(TIMELINES["bob"])) - 1e-4
    alarm = Alarm(1, threshold, {"wait_seconds": 60.0, "end_below": 0.0})
    classifier, other = LiveClassifier(pipe, store, alarm), LiveClassifier(pipe, store, alarm)
    answers = send(classifier, TIMELINES, [("bob", number) for number in range(4)])
    assert [answer["alarm_event"] for answer in answers] == ["held back"] * 4
    start = TIMELINES["bob"]["timestamp"][0]
    assert classifier.raise_due(start + 59) == []
    # Another process writes the timeline meanwhile, so that the alarm is left to the next call.
    store.meanwhile.append(lambda: send(other, TIMELINES, [("bob", 4)]))
    assert classifier.raise_due(start + 60) == []
    due = {"timeline_id": "bob", "post_id": "post 4", "since": start, "due": start + 60}
    assert classifier.raise_due(start + 61) == [due] and other.raise_due(start + 62) == []
    # The stretch has had its alarm.
    (answer,) = send(classifier, TIMELINES, [("bob", 5)])
    assert answer["alarm_event"] == "held back" and classifier.raise_due(start + 1000) == []


def test_other_thresholds_keep_the_memory_of_a_live_service():
    """The later post is read with the earlier ones, and its alarm follows the new threshold."""
    pipe, store = make_pipe(model_type="post_tempoformer", watched=1), DictStore()
    send(LiveClassifier(pipe, store), TIMELINES, [("ann", 0), ("ann", 1)])
    for number, threshold in ((2, 0.0), (3, 1.0)):
        pipe.model.config.calibration = {"temperature": 2.0, "alarm": {"label": 1, "threshold": threshold}}
        (answer,) = send(LiveClassifier(pipe, store), TIMELINES, [("ann", number)])
        assert (answer["context"], answer["alarm"]) == ("memory", threshold == 0)
