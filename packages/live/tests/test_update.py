"""Walks a new model into service beside the old one, on one Redis server, and back, as docs/update_a_model.md does."""

import re
import shutil
import subprocess
import sys
from contextlib import ExitStack

import httpx
import pytest
import redis
from arrivals import SPOKEN, assert_same, free_port, make_pipe, wait_for
from fastapi.testclient import TestClient
from helpers import MODELS, ROOT
from prometheus_client.parser import text_string_to_metric_families
from served import open_app

from tempoformer_live.redis_store import MEMORY, TEXTS, RedisStore, StoredTimeline


pytestmark = pytest.mark.slow
PAGE = (ROOT / "packages" / "live" / "docs" / "update_a_model.md").read_text(encoding="utf-8")


class Service:
    """The service of a model in this process, with the number of its posts by where their earlier posts came from."""

    def __init__(self, pipe, folder, redis_url: str, keep_texts: int, opened: ExitStack):
        pipe.save_pretrained(folder)
        self.pipe = pipe
        app = open_app(folder, redis=redis_url, keep_texts=keep_texts)
        self.client = opened.enter_context(TestClient(app))

    def score(self, name: str, number: int, history: bool = False) -> dict:
        posts = [dict(zip(SPOKEN[name], values, strict=True)) for values in zip(*SPOKEN[name].values(), strict=True)]
        earlier = {"history": posts[:number]} if history else {}
        answer = self.client.post(
            "/score", json={"timeline_id": name, "post_id": str(number), **posts[number], **earlier}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def counts(self, name: str) -> dict[str, float]:
        families = text_string_to_metric_families(self.client.get("/metrics").text)
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        return {"".join(v for label, v in one.labels.items() if label != "model"): one.value for one in samples}

    def expect(self, answer: dict, name: str, number: int, context: str):
        """Checks that an answer is the same as for the whole timeline."""
        assert_same([answer], self.pipe(SPOKEN[name])[number : number + 1])
        assert answer["context"] == context


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("source", ["kept", "texts", "none"])
def test_a_new_model_warms_beside_the_old_one_takes_its_place_and_gives_it_back(kind, source, redis_url, tmp_path):
    """
    Texts are kept, or clients send histories, or neither: then the counts say what is lost. Ann writes all the time;
    bob is silent while the new model warms.
    """
    keep_texts, history = 100 * (source == "kept"), source == "texts"
    database = redis.Redis.from_url(redis_url)
    with ExitStack() as opened:
        old = Service(make_pipe(**kind), tmp_path / "old", redis_url, keep_texts, opened)
        new = Service(make_pipe(seed=1, **kind), tmp_path / "new", redis_url, keep_texts, opened)
        for name in ("ann", "bob"):
            for number in range(2):
                old.score(name, number, history)
        # Both get ann's next posts. The old model does not notice.
        for number in (2, 3):
            old.expect(old.score("ann", number, history), "ann", number, "memory")
            answer = new.score("ann", number, history)
            if source != "none":
                new.expect(answer, "ann", number, source if number == 2 else "memory")
        # The new model alone, also with bob, whom it does not know
        for name, number, context in (("ann", 4, "memory"), ("bob", 2, source), ("bob", 3, "memory")):
            answer = new.score(name, number, history)
            if source != "none":
                new.expect(answer, name, number, context)
        expected = {"memory": 3.0, "texts": 0.0, "kept": 0.0, "none": 0.0}
        assert new.counts("post_contexts_total") == {**expected, source: 2.0}
        # Back again: the old model has missed a post of ann's and two of bob's.
        for name, number in (("ann", 5), ("bob", 4)):
            answer = old.score(name, number, history)
            assert answer["context"] == "memory"
            if source != "none":
                old.expect(answer, name, number, "memory")
        assert old.counts("posts_caught_up_total") == {"": 0 if source == "none" else 3}
        for service in (old, new):
            assert service.counts("memories_dropped_total") == {"damaged": 0, "forgotten": 0}
        # No text is anywhere unless the operator asked for it.
        assert len(database.keys(f"{TEXTS}*")) == 2 * (source == "kept")
        assert len(database.keys(f"{MEMORY}*")) == 4
        # A person who is forgotten through one server is forgotten by both models.
        forgotten = old.client.post("/forget", json={"timeline_id": "ann"}).json()
        models = [service.client.get("/health").json()["model"] for service in (old, new)]
        assert forgotten == {"forgotten": True, "models": sorted(models), "texts": source == "kept"}
        assert len(database.keys(f"{TEXTS}*")) == (source == "kept") and len(database.keys(f"{MEMORY}*")) == 2


def test_other_thresholds_are_another_server_on_the_same_memory(redis_url, tmp_path):
    with ExitStack() as opened:
        pipe = make_pipe(model_type="post_tempoformer")
        before = Service(pipe, tmp_path / "before", redis_url, 0, opened)
        for number in range(3):
            before.score("ann", number)
        pipe.model.config.calibration = {"temperature": 3.0, "thresholds": [0.05, 0.05, 0.9]}
        after = Service(pipe, tmp_path / "after", redis_url, 0, opened)
        after.expect(after.score("ann", 3), "ann", 3, "memory")
        # Also of a post that the other one has answered
        after.expect(after.score("ann", 2), "ann", 2, "memory")
        assert after.counts("post_contexts_total")["none"] == 0


ECHO = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print(self.path, self.rfile.read(int(self.headers["Content-Length"])).decode(), flush=True)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())

    def log_message(self, *values):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_the_proxy_of_the_page_sends_scoring_to_both_and_forgetting_to_one(tmp_path):
    """Each service is stood for by a process that writes down what it gets, and answers its port."""
    if shutil.which("nginx") is None:
        pytest.skip("There is no nginx.")
    live, shadow, proxy = (str(free_port()) for _ in range(3))
    text = re.search(r'```nginx title="nginx.conf"\n(.*?)```', PAGE, flags=re.DOTALL)[1]
    for port, free in (("8000", live), ("8001", shadow), ("8080", proxy)):
        text = text.replace(port, free)
    # Nothing outside the folder of the test
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{name}_temp_path {tmp_path}/{name};" for name in names)
    (tmp_path / "nginx.conf").write_text(text.replace("http {", f"http {{ access_log off; {paths}"))
    command = ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "errors")]

    def lines(port: str) -> list[str]:
        got = [line for line in (tmp_path / port).read_text().splitlines() if not line.startswith("/health")]
        if not got:
            raise OSError("Nothing has come yet.")
        return got

    with ExitStack() as opened:
        for port in (live, shadow):
            log = opened.enter_context((tmp_path / port).open("w"))
            opened.callback(subprocess.Popen([sys.executable, "-c", ECHO, port], stdout=log).kill)
            wait_for(lambda port=port: httpx.post(f"http://127.0.0.1:{port}/health", content=b""))
        opened.callback(subprocess.Popen([*command, "-g", f"daemon off; pid {tmp_path}/pid;"]).terminate)
        client = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{proxy}"))
        wait_for(lambda: client.post("/health", content=b""))
        assert client.post("/score", json={"post": 1}).text == live
        assert client.post("/forget", json={"timeline_id": "ann"}).text == live
        assert wait_for(lambda: lines(shadow)) == ['/score {"post":1}']
        assert lines(live) == ['/score {"post":1}', '/forget {"timeline_id":"ann"}']


def test_the_command_of_the_page_deletes_the_memory_of_one_model(redis_url):
    """Ids that hold a line break, the parts of another key or a pattern are ids like others."""
    (command,) = re.findall(r"^tempoformer forget .+", PAGE, flags=re.MULTILINE)
    model, other = "0123456789abcdef", "fedcba9876543210"
    database = redis.Redis.from_url(redis_url)
    store = RedisStore(database, keep_texts=5)
    names = ["ann", "bob it's", "*", "cy\ntempoformer:models", f"dan\n{MEMORY}{other}:ann", f"{model}:eve"]
    for one in (model, other):
        store.save(one, {name: (StoredTimeline(), b"memory", ["text"]) for name in names})
    words = command.replace("redis://127.0.0.1:6379/0", redis_url).split()
    done = subprocess.run(
        [sys.executable, "tempoformer.py", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"{len(names)} memories" in done.stdout and other in done.stdout
    assert not any(one.memory for one in store.load(model, names).values())
    assert [one.memory for one in store.load(other, names).values()] == [b"memory"] * len(names)
    assert len(database.keys(f"{MEMORY}*")) == len(database.keys(f"{TEXTS}*")) == len(names)
    # Whoever is forgotten is still forgotten everywhere.
    assert [store.forget(name) for name in names] == [((other,), True)] * len(names)
