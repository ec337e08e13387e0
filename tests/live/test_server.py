"""The service of examples/server.py: its bounds, its back-pressure, and what it answers over a socket."""

import asyncio
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from arrivals import TIMELINES, DictStore, assert_same, free_port, wait_for
from fastapi.testclient import TestClient
from helpers import ROOT

from modeling_tempoformer.live.redis_store import KEY


SERVER = ROOT / "examples" / "server.py"


@pytest.fixture
def server():
    """The module, not yet serving."""
    spec = importlib.util.spec_from_file_location("server", SERVER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def serve_while_busy(server, jobs: list[tuple], most_seconds: float = 30) -> list:
    """
    The answers of jobs (function, item, tokens) that arrive, in this order, while another one is computed; also those
    that are exceptions.
    """
    busy, go_on = threading.Event(), threading.Event()

    def first(items):
        busy.set()
        go_on.wait(most_seconds)
        return items

    async def arrive():
        batches = server.Batches()
        serving = asyncio.create_task(batches.serve())
        begun = asyncio.create_task(batches.answer(first, 0))
        await asyncio.to_thread(busy.wait, most_seconds)
        others = [asyncio.create_task(batches.answer(*job)) for job in jobs]
        await asyncio.sleep(0)
        go_on.set()
        answers = await asyncio.gather(begun, *others, return_exceptions=True)
        serving.cancel()
        return answers[1:]

    return asyncio.run(asyncio.wait_for(arrive(), most_seconds))


class Doubler:
    """Doubles numbers; fails with the error of an item that has one. Remembers what it was asked for at once."""

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
    answers = serve_while_busy(server, [(double, number, 1) for number in range(most_waiting + 1)])
    assert answers[:-1] == [2 * number for number in range(most_waiting)]
    assert answers[-1].status_code == 503 and answers[-1].headers["Retry-After"] == "1"
    assert max(map(len, double.asked)) == server.MAX_BATCH and sum(map(len, double.asked)) == most_waiting


def test_long_posts_share_no_step(server):
    double, most = Doubler(), server.MAX_TOKENS
    serve_while_busy(server, [(double, number, tokens) for number, tokens in enumerate([most, 1, 1, most - 2, 1, 1])])
    assert double.asked == [[0], [1, 2, 3], [4, 5]]


def test_a_post_that_fails_fails_alone(server):
    """Not where Redis is gone, which would be asked for every post again."""
    double = Doubler(bad=RuntimeError("broken"), late=redis.ResponseError("of one key"))
    answers = serve_while_busy(server, [(double, item, 1) for item in (1, "bad", 2, "late", 3)])
    assert [str(answer) for answer in answers] == ["2", "broken", "4", "of one key", "6"]
    double = Doubler(bad=redis.ConnectionError("nobody there"))
    answers = serve_while_busy(server, [(double, item, 1) for item in (1, "bad", 2)])
    assert [str(answer) for answer in answers] == ["nobody there"] * 3 and len(double.asked) == 1


def test_who_is_forgotten_is_forgotten_after_the_posts_that_were_waiting(server):
    kept, done = [], []

    def score(posts):
        kept.extend(posts)
        done.append(("score", len(posts)))
        return posts

    def forget(names):
        done.append(("forget", len(names)))
        return [kept.remove(name) for name in names]

    serve_while_busy(server, [(score, "ann", 1), (score, "bob", 1), (forget, "ann"), (score, "cy", 1)])
    assert done == [("score", 2), ("forget", 1), ("score", 1)] and kept == ["bob", "cy"]


@pytest.fixture
def client(server, pipe, tmp_path, monkeypatch):
    """The service in this process, with a store of its own."""
    pipe.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(server, "RedisStore", lambda *settings: DictStore())
    with TestClient(server.create_app(str(tmp_path / "model"), "redis://nobody")) as client:
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
        answer = client.post("/score", json={"timeline_id": "ann", "post_id": "1", "text": "why", "timestamp": 1})
        busy = client.post("/explain", json=TIMELINES["bob"])
        scored.set()
        assert explained.result(60).status_code == 200
    assert answer.status_code == 200 and busy.status_code == 503


def test_a_timeline_of_too_many_tokens_is_not_explained(server, client, monkeypatch):
    """A word is a token, each post has two special ones, and the model reads no more than 24."""
    monkeypatch.setattr(server, "MAX_EXPLAINED_TOKENS", 120)
    statuses = [client.post("/explain", json={"text": ["so " * words] * 5}).status_code for words in (22, 23, 99)]
    assert statuses == [200, 200, 200]
    assert client.post("/explain", json={"text": ["so " * 22] * 5 + [""]}).status_code == 422
    assert client.post("/explain", json={"text": []}).json() == []


@pytest.mark.parametrize(
    "timestamp",
    [True, "secret", "9999-12-31", 1e12, None, float("nan"), "1" * 400, [1], {"secret": 1}],
    ids=str,
)
def test_a_time_that_is_none_is_refused_and_no_text_is_repeated(client, timestamp):
    secret = {"text": "secret", "timestamp": timestamp}
    good = {"text": "word", "timestamp": 1}
    requests = [
        ("/score", {**secret, "timeline_id": "ann", "post_id": "1"}),
        ("/score", {**good, "timeline_id": "ann", "post_id": "1", "history": [good, secret]}),
        ("/explain", {"text": ["word", "secret"], "timestamp": [1, timestamp]}),
    ]
    for path, body in requests:
        answer = client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert answer.status_code == 422 and "secret" not in answer.text, (path, answer.text)


class Service:
    """A process of examples/server.py on a port of its own."""

    def __init__(self, model, redis_url: str):
        self.port = free_port()
        command = [sys.executable, str(SERVER), "--model", str(model), "--redis", redis_url, "--port", str(self.port)]
        self.process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ['PYTHONPATH']}"}
        )

    def wait(self):
        """Until it serves."""

        def healthy():
            assert self.process.poll() is None, "The service has ended."
            return self.ask("GET", "/health")

        wait_for(healthy)

    def ask(self, method: str, path: str, body=None) -> tuple[int, object]:
        """Status and answer; a body of bytes is sent as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if is_json else text

    def score(self, name: str, number: int, **more) -> tuple[int, dict]:
        timeline = TIMELINES[name]
        post = {"timeline_id": name, "post_id": str(number), "text": timeline["text"][number]}
        return self.ask("POST", "/score", {**post, "timestamp": timeline["timestamp"][number], **more})


@pytest.fixture
def start(pipe, redis_url, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    services = []

    def start_one() -> Service:
        services.append(Service(tmp_path / "model", redis_url))
        return services[-1]

    yield start_one
    for service in services:
        service.process.kill()
        service.process.wait()


@pytest.mark.slow
def test_the_service_scores_explains_forgets_and_refuses(pipe, start, redis_url):
    service, client = start(), redis.Redis.from_url(redis_url)
    service.wait()
    assert service.ask("GET", "/health") == (200, {"status": "ok"})
    expected = pipe(TIMELINES["ann"])
    answers = [service.score("ann", number) for number in range(4)]
    assert {status for status, _ in answers} == {200}
    assert_same([answer for _, answer in answers], expected[:4])

    # Again, late, forgotten, and with its texts.
    assert service.score("ann", 3) == answers[3]
    status, answer = service.score("ann", 1, post_id="late")
    assert status == 409 and "older" in answer["detail"]
    assert service.ask("POST", "/forget", {"timeline_id": "ann"}) == (200, {"forgotten": True})
    assert client.keys() == []
    assert service.ask("POST", "/forget", {"timeline_id": "ann"}) == (200, {"forgotten": False})
    earlier = [
        {"text": text, "timestamp": time}
        for text, time in zip(TIMELINES["ann"]["text"][:4], TIMELINES["ann"]["timestamp"][:4], strict=True)
    ]
    _, answer = service.score("ann", 4, history=earlier)
    assert_same([answer], expected[4:5])
    assert (answer["context"], answer["stream_length"]) == ("texts", 4)

    # Explained by the same model, with nothing remembered.
    status, explained = service.ask("POST", "/explain", TIMELINES["bob"])
    assert status == 200 and [post["stream"] for post in explained][-1] == [2, 3, 4, 5]
    assert_same(explained, pipe.explain(TIMELINES["bob"]))
    assert len(client.keys()) == 1

    # What is too long, unknown or no text at all. No answer repeats the text.
    refused = [
        service.score("ann", 5, text="secret " * 10_000),
        service.score("ann", 5, text=None),
        service.score("ann", 5, timeline_id="x" * 201),
        service.score("ann", 5, txt="secret"),
        service.score("ann", 5, timestamp="secret"),
        service.score("ann", 5, timestamp=None),
        service.score("ann", 5, text="\ud83d secret"),
        service.score("ann", 5, history=[{"text": "secret", "timestamp": 1}] * 101),
        service.ask("POST", "/score", b"{"),
        service.ask("POST", "/explain", {"text": ["secret"] * 101}),
        service.ask("POST", "/explain", {"text": ["secret"], "timestamp": [1, 2]}),
    ]
    assert [status for status, _ in refused] == [422] * len(refused), refused
    assert "secret" not in str(refused)

    # A value in Redis that is none of ours is an error of that timeline alone, and no answer names another one.
    client.delete(f"{KEY}bob")
    client.lpush(f"{KEY}bob", "no memory")
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda name: service.score(name, 5, post_id="5"), ["ann", "bob"] * 10))
    assert {(name, status) for name, (status, _) in zip(["ann", "bob"] * 10, answers, strict=True)} == {
        ("ann", 200),
        ("bob", 503),
    }
    assert "bob" not in str(answers) and "EVALSHA" not in str(answers)
    status, _ = service.ask("POST", "/score", json.dumps({"text": "x" * 2_000_000}).encode())
    assert status == 413

    _, metrics = service.ask("GET", "/metrics")
    for line in ('posts_total{outcome="scored"} 16.0', 'posts_total{outcome="late"} 1.0', "waiting_posts 0.0"):
        assert line in metrics.splitlines(), metrics

    # Without Redis nothing is answered, and nothing breaks.
    client.shutdown(nosave=True)
    assert service.ask("GET", "/health")[0] == 503
    status, answer = service.score("ann", 5)
    assert status == 503 and "Redis" in answer["detail"]
    assert service.ask("POST", "/explain", TIMELINES["bob"])[0] == 200


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_that_was_answered(pipe, start):
    """Two workers, posts of two timelines at once, each sent until there is an answer; one worker dies."""
    workers = [start(), start()]
    for worker in workers:
        worker.wait()
    killed = threading.Event()

    def write(name: str) -> list[dict]:
        answers = []
        for number in range(6):
            if number == 3:
                killed.wait(60)
            for turn in range(100):
                try:
                    status, answer = workers[(number + turn) % 2].score(name, number)
                except OSError:
                    continue
                assert status == 200, answer
                answers.append(answer)
                break
        return answers

    with ThreadPoolExecutor() as pool:
        writing = {name: pool.submit(write, name) for name in TIMELINES}
        workers[0].process.send_signal(signal.SIGKILL)
        workers[0].process.wait()
        killed.set()
        answers = {name: future.result() for name, future in writing.items()}
    for name, timeline in TIMELINES.items():
        assert_same(answers[name], pipe(timeline))
        assert [answer["stream_length"] for answer in answers[name]] == [1, 2, 3, 4, 4, 4]
