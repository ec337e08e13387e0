"""The service of examples/server.py: its bounds, its back-pressure, and what it answers over a socket."""

import asyncio
import http.client
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from arrivals import TIMELINES, assert_same, free_port, wait_for
from fastapi import HTTPException
from helpers import ROOT


SERVER = ROOT / "examples" / "server.py"


def test_posts_that_arrive_while_others_are_read_share_a_step_and_too_many_are_refused():
    server = runpy.run_path(str(SERVER))
    batches, most_waiting, most = server["Batches"], server["MAX_WAITING"], server["MAX_BATCH"]
    busy, go_on, sizes = threading.Event(), threading.Event(), []

    def score(posts):
        busy.set()
        go_on.wait(10)
        sizes.append(len(posts))
        return [-post for post in posts]

    async def arrive():
        served = batches(score)
        serving = asyncio.create_task(served.serve())
        first = asyncio.create_task(served.answer(0))
        await asyncio.to_thread(busy.wait, 60)
        others = [asyncio.create_task(served.answer(number)) for number in range(1, most_waiting + 1)]
        await asyncio.sleep(0)
        with pytest.raises(HTTPException) as refused:
            await served.answer(most_waiting + 1)
        assert refused.value.status_code == 503 and refused.value.headers["Retry-After"] == "1"
        go_on.set()
        answers = await asyncio.gather(first, *others)
        serving.cancel()
        return answers

    assert asyncio.run(asyncio.wait_for(arrive(), 30)) == [-number for number in range(most_waiting + 1)]
    assert sum(sizes) == most_waiting + 1 and sizes[0] == 1 and max(sizes) == most


def test_a_step_that_fails_fails_its_posts_and_not_the_next():
    batches = runpy.run_path(str(SERVER))["Batches"]

    def score(posts):
        if "bad" in posts:
            raise RuntimeError("broken")
        return posts

    async def arrive():
        served = batches(score)
        serving = asyncio.create_task(served.serve())
        with pytest.raises(RuntimeError, match="broken"):
            await served.answer("bad")
        answer = await served.answer("good")
        serving.cancel()
        return answer

    assert asyncio.run(asyncio.wait_for(arrive(), 30)) == "good"


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
    status, _ = service.ask("POST", "/score", json.dumps({"text": "x" * 2_000_000}).encode())
    assert status == 413

    _, metrics = service.ask("GET", "/metrics")
    for line in ('posts_total{outcome="scored"} 6.0', 'posts_total{outcome="late"} 1.0', "waiting_posts 0.0"):
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
