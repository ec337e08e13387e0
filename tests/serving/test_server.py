"""Checks the service of examples/server.py: its limits, its back-pressure, and its answers over a socket."""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import redis
from arrivals import SPOKEN, TIMELINES, DictStore, assert_same, free_port, make_pipe, wait_for
from fastapi.testclient import TestClient
from helpers import ROOT, WITH_STATES
from prometheus_client.parser import text_string_to_metric_families

from modeling_tempoformer.serving.live_classifier import LiveClassifier
from modeling_tempoformer.serving.redis_store import MEMORY, MODELS


SERVER = ROOT / "examples" / "server.py"


@pytest.fixture
def server():
    """Imports the module, which does not serve yet."""
    spec = importlib.util.spec_from_file_location("server", SERVER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve_while_busy(server, jobs: list[tuple]) -> list:
    """Returns the answers, or exceptions, of jobs (function, item) that arrive while another one is computed."""
    busy, go_on = threading.Event(), threading.Event()

    def first(items):
        busy.set()
        go_on.wait(30)
        return items

    async def arrive():
        batches = server.Batches()
        serving = asyncio.create_task(batches.serve())
        begun = asyncio.create_task(batches.answer(first, 0))
        await asyncio.to_thread(busy.wait, 30)
        others = [asyncio.create_task(batches.answer(*job)) for job in jobs]
        await asyncio.sleep(0)
        go_on.set()
        _, *answers = await asyncio.gather(begun, *others, return_exceptions=True)
        serving.cancel()
        return answers

    return asyncio.run(asyncio.wait_for(arrive(), 60))


class Doubler:
    """Doubles numbers, or raises the error of an item. Remembers the batches that it got."""

    def __init__(self, **errors: Exception):
        self.asked, self.errors = [], errors

    def __call__(self, items: list) -> list:
        self.asked.append(items)
        for item in items:
            if item in self.errors:
                raise self.errors[item]
        return [2 * item for item in items]


def test_posts_that_arrive_while_others_are_read_share_a_step_and_too_many_are_refused(server):
    double, most_waiting = Doubler(), server.MAX_WAITING
    answers = serve_while_busy(server, [(double, number) for number in range(most_waiting + 1)])
    assert answers[:-1] == [2 * number for number in range(most_waiting)]
    assert answers[-1].status_code == 503 and answers[-1].headers["Retry-After"] == "1"
    assert max(map(len, double.asked)) == server.MAX_BATCH and sum(map(len, double.asked)) == most_waiting


def test_a_post_that_fails_fails_alone(server):
    """If Redis is gone, the posts are not tried one by one."""
    double = Doubler(bad=RuntimeError("broken"), late=redis.ResponseError("of one key"))
    answers = serve_while_busy(server, [(double, item) for item in (1, "bad", 2, "late", 3)])
    assert [str(answer) for answer in answers] == ["2", "broken", "4", "of one key", "6"]
    double = Doubler(bad=redis.ConnectionError("nobody there"))
    answers = serve_while_busy(server, [(double, item) for item in (1, "bad", 2)])
    assert [str(answer) for answer in answers] == ["nobody there"] * 3 and len(double.asked) == 1


def test_who_is_forgotten_is_forgotten_after_the_posts_that_were_waiting(server):
    done = []

    def score(posts):
        done.append(("score", posts))
        return posts

    def forget(names):
        done.append(("forget", names))
        return names

    serve_while_busy(server, [(score, "ann"), (score, "bob"), (forget, "ann"), (score, "cy")])
    assert done == [("score", ["ann", "bob"]), ("forget", ["ann"]), ("score", ["cy"])]


@pytest.fixture
def client(server, pipe, tmp_path, monkeypatch):
    """Yields the service in this process, with a store of its own."""
    pipe.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(server, "RedisStore", lambda *settings: DictStore())
    with TestClient(server.create_app(str(tmp_path / "model"), "redis://127.0.0.1:1")) as client:
        yield client


def test_no_post_waits_for_an_explanation(server, client, monkeypatch):
    """The explanation ends only after the post has its answer."""
    explaining, scored = threading.Event(), threading.Event()
    explain = server.StreamClassificationPipeline.explain

    def wait(pipe, *arguments, **settings):
        explaining.set()
        assert scored.wait(60)
        return explain(pipe, *arguments, **settings)

    monkeypatch.setattr(server.StreamClassificationPipeline, "explain", wait)
    with ThreadPoolExecutor() as pool:
        explained = pool.submit(client.post, "/explain", json=TIMELINES["bob"])
        assert explaining.wait(60)
        answer = client.post("/score", json=post_of("ann", 0))
        busy = client.post("/explain", json=TIMELINES["bob"])
        scored.set()
        assert explained.result(60).status_code == 200
    assert answer.status_code == 200 and busy.status_code == 503


def test_a_timeline_of_too_many_tokens_is_not_explained(server, client, monkeypatch):
    """A word is a token, and each post has two special tokens."""
    # Posts of a tiny model are too short for the bound of the example.
    monkeypatch.setattr(server, "MAX_EXPLAINED_TOKENS", 120)
    statuses = [client.post("/explain", json={"text": ["so " * 22] * posts}).status_code for posts in (5, 6)]
    assert statuses == [200, 422]


def post_of(name: str, number: int, **more) -> dict:
    """Returns the body of a request to score a post."""
    timeline = {key: values[number] for key, values in TIMELINES[name].items()}
    return {"timeline_id": name, "post_id": str(number), **timeline, **more}


def counts_of(client) -> dict[tuple, float]:
    """Returns the numbers of `/metrics` by name and by the values of labels other than the model's, in their order."""
    return {
        (sample.name, *(value for label, value in sorted(sample.labels.items()) if label != "model")): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }


def test_the_service_scores_explains_and_forgets(pipe, client):
    expected = pipe(TIMELINES["ann"])
    answers = [client.post("/score", json=post_of("ann", number)) for number in range(4)]
    assert {answer.status_code for answer in answers} == {200}
    assert_same([answer.json() for answer in answers], expected[:4])

    # The post is sent again, sent late, sent after its timeline was forgotten, and sent with earlier texts.
    assert client.post("/score", json=post_of("ann", 3)).json() == answers[3].json()
    assert client.post("/score", json=post_of("ann", 1, post_id="late")).status_code == 409
    for was_there in (True, False):
        assert client.post("/forget", json={"timeline_id": "ann"}).json() == {"forgotten": was_there}
    earlier = [{key: values[number] for key, values in TIMELINES["ann"].items()} for number in range(4)]
    answer = client.post("/score", json=post_of("ann", 4, history=earlier)).json()
    assert_same([answer], expected[4:5])
    assert (answer["context"], answer["stream_length"]) == ("texts", 4)

    explained = client.post("/explain", json=TIMELINES["bob"]).json()
    assert explained[-1]["stream"] == [2, 3, 4, 5]
    assert_same(explained, pipe.explain(TIMELINES["bob"]))
    # An explanation stores nothing.
    assert client.post("/forget", json={"timeline_id": "bob"}).json() == {"forgotten": False}

    assert client.get("/").headers["content-type"].startswith("text/html")
    assert "/score" in client.get("/openapi.json").json()["paths"]
    assert counts_of(client)["posts_total", "scored"] == 6


def test_an_answer_says_what_chose_its_label_and_the_description_for_programs_too(server, pipe, tmp_path, monkeypatch):
    pipe.model.config.calibration = {"thresholds": [0.9, 0.05, 0.05]}
    pipe.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(server, "RedisStore", lambda *settings: DictStore())
    with TestClient(server.create_app(str(tmp_path / "model"), "redis://127.0.0.1:1")) as client:
        answer = client.post("/score", json=post_of("ann", 0)).json()
        described = client.get("/openapi.json").json()
    assert list(answer["thresholds"].values()) == [0.9, 0.05, 0.05]
    response = described["paths"]["/score"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert set(described["components"]["schemas"][response["$ref"].split("/")[-1]]["properties"]) == set(answer)


def test_what_to_watch_is_counted(server, pipe, tmp_path, monkeypatch):
    """The numbers are counted from the answers. A post that is sent again does not count again."""
    pipe.model.config.watched = 1
    # From here on all posts are alarms, whatever their label.
    pipe.model.config.calibration = {"alarm": {"label": 1, "threshold": 1e-9}}
    pipe.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(server, "RedisStore", lambda *settings: DictStore())
    with TestClient(server.create_app(str(tmp_path / "model"), "redis://127.0.0.1:1")) as client:
        before = counts_of(client)
        posts = [post_of(name, number) for name in ("ann", "bob") for number in range(6)]
        posts.append({**post_of("ann", 5), "timeline_id": "cy", "history": [{"text": "so sad", "timestamp": 1}]})
        answers = [client.post("/score", json=post).json() for post in posts]
        assert client.post("/score", json=posts[-1]).json() == answers[-1]
        client.post("/forget", json={"timeline_id": "ann"})
        counts = counts_of(client)
        info = client.get("/metrics").text
    names = list(pipe.model.config.id2label.values())
    for name in names:
        assert before["predictions_total", name] == 0
        assert counts["predictions_total", name] == sum(answer["label"] == name for answer in answers)
    assert counts["alarms_total",] == len(answers) != counts["predictions_total", names[1]]
    contexts = [answer["context"] for answer in answers]
    for name in ("memory", "texts", "kept", "none"):
        assert counts["post_contexts_total", name] == contexts.count(name)
    assert contexts.count("none") == 2 and contexts.count("texts") == 1
    probabilities = [answer["probabilities"][names[1]] for answer in answers]
    for bound in (0.1, 0.5, 0.95):
        assert counts["watched_probability_bucket", str(bound)] == sum(one <= bound for one in probabilities)
    assert counts["watched_probability_sum",] == pytest.approx(sum(probabilities))
    assert (counts["memories_dropped_total", "forgotten"], counts["memories_dropped_total", "damaged"]) == (1, 0)
    # Nobody is there who could say what Redis dropped.
    assert ("redis_keys_dropped_total", "evicted") not in counts
    model_id = LiveClassifier(pipe, DictStore()).model_id
    assert f'folder="{tmp_path}/model",model="{model_id}",watched="{names[1]}"' in info


def test_a_model_that_watches_nothing_has_no_alarms(client):
    client.post("/score", json=post_of("ann", 0))
    counts = counts_of(client)
    assert counts["post_contexts_total", "none"] == 1 and ("alarms_total",) not in counts


def test_posts_with_speakers_get_states(server, tmp_path, monkeypatch):
    pipe = make_pipe(**WITH_STATES)
    pipe.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(server, "RedisStore", lambda *settings: DictStore())
    timeline, expected = SPOKEN["bob"], pipe(SPOKEN["bob"])
    posts = [{name: values[number] for name, values in timeline.items()} for number in range(6)]
    with TestClient(server.create_app(str(tmp_path / "model"), "redis://127.0.0.1:1")) as client:
        answers = []
        for number in range(3, 6):
            earlier = {"history": posts[:3]} if number == 3 else {}
            answers.append(
                client.post("/score", json=post_of("bob", number, speaker=posts[number]["speaker"], **earlier)).json()
            )
        assert_same(answers, expected[3:])
        assert_same(client.post("/explain", json=timeline).json(), expected)
        # A speaker who is not known is null, which is not the same as a post without a speaker.
        assert client.post("/score", json=post_of("ann", 0, speaker=None)).status_code == 200
        for path, body in (
            ("/score", post_of("ann", 1)),
            ("/score", post_of("ann", 1, speaker="secret" * 50)),
            ("/score", post_of("ann", 1, speaker=["secret"])),
            ("/score", post_of("ann", 1, speaker="dan", history=[{"text": "secret", "timestamp": 1}])),
            ("/explain", TIMELINES["bob"]),
            ("/explain", {**TIMELINES["bob"], "speaker": ["secret"]}),
        ):
            answer = client.post(path, json=body)
            assert answer.status_code == 422 and "secret" not in answer.text, answer.text


def test_a_memory_that_was_damaged_is_counted(server, pipe, tmp_path, monkeypatch):
    pipe.save_pretrained(tmp_path / "model")
    store = DictStore()
    monkeypatch.setattr(server, "RedisStore", lambda *settings: store)
    with TestClient(server.create_app(str(tmp_path / "model"), "redis://127.0.0.1:1")) as client:
        client.post("/score", json=post_of("ann", 0))
        version, memory = store.memories["ann"]
        store.memories["ann"] = version, memory[:-1]
        answer = client.post("/score", json=post_of("ann", 1))
        assert (answer.status_code, answer.json()["context"]) == (200, "none")
        assert counts_of(client)["memories_dropped_total", "damaged"] == 1


JSON = {"Content-Type": "application/json"}
GOOD = {"text": "word", "timestamp": 1}
REFUSED = [
    ("/score", {"timestamp": "2024-05-01", "history": [{"text": "secret", "timestamp": 987654321.5}]}),
    ("/explain", {"text": ["word", "secret"], "timestamp": [987654321.5, "2024-05-01"]}),
    ("/score", {"text": "secret " * 10_000}),
    ("/score", {"text": "\ud83d secret"}),
    ("/score", {"timeline_id": "x" * 201}),
    ("/score", {"txt": "secret"}),
    ("/score", {"history": [GOOD] * 101}),
    ("/explain", {"text": ["secret"] * 101}),
    ("/explain", {"text": ["secret"], "timestamp": [1, 2]}),
]
for time in (True, "secret", 1e12, None, float("nan"), {"secret": 1}):
    bad = {"text": "secret", "timestamp": time}
    REFUSED += [("/score", bad), ("/score", {"history": [GOOD, bad]})]
    REFUSED.append(("/explain", {"text": ["word", "secret"], "timestamp": [1, time]}))


def test_what_cannot_be_read_is_refused_and_no_answer_repeats_a_text(client):
    """Texts are too long, unknown or missing, or times are invalid."""
    for path, body in REFUSED:
        whole = json.dumps(post_of("ann", 5, **body) if path == "/score" else body)
        answer = client.post(path, content=whole, headers=JSON)
        assert answer.status_code == 422, (path, body, answer.text)
        assert "secret" not in answer.text and "98765" not in answer.text, (path, body, answer.text)
    assert client.post("/score", content=b"{", headers=JSON).status_code == 422
    assert client.post("/score", json={"text": "x" * 2_000_000}).status_code == 413


@pytest.mark.slow
def test_where_redis_refuses_or_is_gone(server, pipe, redis_url, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    database = redis.Redis.from_url(redis_url)
    # A foreign value is an error of its timeline alone, and no answer names another timeline.
    foreign = f"{MEMORY}{LiveClassifier(pipe, DictStore()).model_id}:bob"
    database.lpush(foreign, "no memory")
    with TestClient(server.create_app(str(tmp_path / "model"), redis_url)) as client, ThreadPoolExecutor() as pool:
        health = client.get("/health").json()
        assert health["status"] == "ok" and "No score" in health["test"][0]
        names = ["ann", "bob"] * 10
        answers = list(pool.map(lambda name: client.post("/score", json=post_of(name, 5)), names))
        assert [answer.status_code for answer in answers] == [200, 503] * 10
        assert not any("bob" in answer.text or "EVALSHA" in answer.text for answer in answers)
        assert client.post("/forget", json={"timeline_id": "ann"}).json() == {"forgotten": True}
        assert set(database.keys()) == {foreign.encode(), MODELS.encode()}
        # Without Redis there are no answers, and the service continues.
        database.shutdown(nosave=True)
        assert client.get("/health").status_code == 503
        answer = client.post("/score", json=post_of("ann", 5))
        assert answer.status_code == 503 and "Redis" in answer.json()["detail"]
        assert client.post("/explain", json=TIMELINES["bob"]).status_code == 200


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_that_was_answered(server, pipe, redis_url, tmp_path):
    """Sends posts of two timelines at once, each to two workers in turn until it is answered. One worker is killed."""
    model, port = str(tmp_path / "model"), str(free_port())
    pipe.save_pretrained(model)
    command = [sys.executable, str(SERVER), "--model", model, "--redis", redis_url, "--port", port]
    path = f"{ROOT}:{os.environ['PYTHONPATH']}"
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path})
    dying = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    killed = threading.Event()

    def write(name: str) -> list[dict]:
        answers = []
        for number in range(6):
            if number == 3:
                killed.wait(60)
            for turn in range(100):
                try:
                    answer = workers[(number + turn) % 2].post("/score", json=post_of(name, number))
                except httpx.TransportError:
                    continue
                assert answer.status_code == 200, answer.text
                answers.append(answer.json())
                break
        return answers

    try:
        wait_for(lambda: dying.get("/health"))
        with TestClient(server.create_app(model, redis_url)) as living, ThreadPoolExecutor() as pool:
            workers = [dying, living]
            writing = {name: pool.submit(write, name) for name in TIMELINES}
            process.kill()
            process.wait()
            killed.set()
            answers = {name: future.result() for name, future in writing.items()}
    finally:
        process.kill()
    for name, timeline in TIMELINES.items():
        assert_same(answers[name], pipe(timeline))
        assert [answer["stream_length"] for answer in answers[name]] == [1, 2, 3, 4, 4, 4]
