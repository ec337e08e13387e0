"""Checks requests that score several posts, after which nothing is remembered."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from arrivals import SPOKEN, TIMELINES, DictStore, assert_same, make_pipe
from fastapi.testclient import TestClient
from helpers import MODELS, WITH_STATES
from served import counts_of, hold_first_reading, open_app, post_of

from tempoformer_live.policy import Alarm, AlarmState, follow, follow_policy, use_alarm, write_alarm


@pytest.mark.parametrize("kind", [*MODELS, WITH_STATES], ids=["paper", "post", "states"])
def test_the_answers_are_the_pipelines_in_the_order_of_the_request(kind, tmp_path):
    """Posts of two timelines in turn, the newest first; the id of one is spelled in two ways."""
    pipe = make_pipe(**kind)
    timelines = SPOKEN if kind is WITH_STATES else TIMELINES
    # An alarm for half of the posts, one of two in a row, and thresholds
    pipe.model.config.watched = 1
    scores = sorted(post["watched_probability"] for timeline in timelines.values() for post in pipe(timeline))
    alarm = Alarm(1, (scores[5] + scores[6]) / 2, {"cooldown_posts": 1})
    pipe.model.config.calibration = {"thresholds": [0.2, 0.3, 0.5]}
    pipe.save_pretrained(tmp_path / "model")
    write_alarm(tmp_path / "model", pipe.model.config, alarm)
    use_alarm(pipe.model.config, alarm)
    expected = {}
    for name, timeline in timelines.items():
        answers = pipe(timeline)
        watched = [post["watched_probability"] for post in answers]
        events = follow(watched, timeline["timestamp"], alarm.threshold, alarm.policy, AlarmState())
        expected[name] = follow_policy(answers, events)
    places = [(name, number) for number in reversed(range(6)) for name in timelines]
    posts = [post_of(*place) for place in places]
    if kind is WITH_STATES:
        posts = [{**post, "speaker": SPOKEN[name]["speaker"][number]} for post, (name, number) in zip(posts, places)]
    posts[0]["timeline_id"] = " ann\u00ad"
    store = DictStore()
    with TestClient(open_app(tmp_path / "model", store)) as client:
        answers = client.post("/score", json={"posts": posts}).json()["answers"]
        counts = counts_of(client)
    ids = [(post["timeline_id"], post["post_id"]) for post in posts]
    assert [(answer["timeline_id"], answer["post_id"]) for answer in answers] == ids
    rights = [expected[name][number] for name, number in places]
    assert_same(answers, rights)
    for name in ("watched_probability", "alarm", "alarm_event", "watched_threshold", "watched", "reason"):
        assert [answer[name] for answer in answers] == [
            pytest.approx(right[name], abs=1e-5) if isinstance(right[name], float) else right[name] for right in rights
        ]
    assert {answer["alarm_event"] for answer in answers} > {"raised"}
    assert all(sum(answer["probabilities"].values()) == pytest.approx(1) for answer in answers)
    assert all(list(answer["thresholds"].values()) == [0.2, 0.3, 0.5] for answer in answers)
    # Nothing is remembered, and the counts of what arrives stay as they are.
    assert store.memories == {} and counts["stateless_posts_total", "scored"] == 12
    assert counts["alarms_total",] == 0 and ("posts_total", "scored") not in counts


def test_too_many_posts_or_bytes_are_refused(pipe, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    with TestClient(open_app(tmp_path / "model", DictStore(), max_posts=3, max_bytes=2000)) as client:
        for number, status in ((0, 200), (3, 200), (4, 413)):
            answer = client.post("/score", json={"posts": [post_of("ann", post) for post in range(number)]})
            assert answer.status_code == status, answer.text
        assert "4 posts" in answer.json()["detail"] and "3" in answer.json()["detail"]
        assert counts_of(client)["stateless_posts_total", "refused"] == 4
        assert client.post("/score", json={"posts": [post_of("ann", 0, text="x" * 2000)]}).status_code == 413


def test_a_post_that_arrives_does_not_wait_for_several(client):
    """Other requests of several are sent again later."""
    begun, scored = hold_first_reading(client.app)
    several = {"posts": [post_of("bob", number) for number in range(6)]}
    with ThreadPoolExecutor() as pool:
        first = pool.submit(client.post, "/score", json=several)
        assert begun.wait(60)
        assert client.post("/score", json=post_of("ann", 0)).status_code == 200
        busy = client.post("/score", json=several)
        assert busy.status_code == 503 and busy.headers["Retry-After"] == "1"
        scored.set()
        assert first.result(60).status_code == 200
    counts = counts_of(client)
    assert counts["stateless_posts_total", "busy"] == counts["stateless_posts_total", "scored"] == 6


def test_a_model_that_fails_is_no_mistake_of_the_client(pipe, tmp_path):
    """Its weights are not finite."""
    with torch.no_grad():
        next(pipe.model.classifier.parameters()).fill_(float("nan"))
    pipe.save_pretrained(tmp_path / "model")
    with TestClient(open_app(tmp_path / "model", DictStore()), raise_server_exceptions=False) as client:
        answer = client.post("/score", json={"posts": [post_of("ann", 0)]})
        assert answer.status_code == 500 and "ann" not in answer.text
        assert counts_of(client)["stateless_posts_total", "failed"] == 1


def test_a_model_that_reads_speakers_needs_them(tmp_path):
    make_pipe(**WITH_STATES).save_pretrained(tmp_path / "model")
    with TestClient(open_app(tmp_path / "model", DictStore())) as client:
        for more, status in (({"speaker": None}, 200), ({}, 422), ({"speaker": ["secret"]}, 422)):
            posts = [post_of("ann", 0, speaker="dan"), post_of("ann", 1, **more)]
            answer = client.post("/score", json={"posts": posts})
            assert answer.status_code == status and "secret" not in answer.text, answer.text
