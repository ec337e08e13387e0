"""Checks the server of `tempoformer serve`: its limits, its back-pressure, and its answers over a socket."""

import asyncio
import gzip
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import sleep

import httpx
import pytest
import redis
import torch
from arrivals import SPOKEN, TIMELINES, DictStore, assert_same, free_port, make_pipe, wait_until_ready
from fastapi.testclient import TestClient
from forked import run_forked
from helpers import ROOT, WITH_STATES
from served import counts_of, hold_first_reading, open_app, post_of

from tempoformer_live import server
from tempoformer_live.batches import MAX_BATCH, MAX_TOKENS, MAX_WAITING, MAX_WAITING_TOKENS, Batches
from tempoformer_live.live_classifier import LiveClassifier, LivePost
from tempoformer_live.metrics import ServerMetrics
from tempoformer_live.redis_store import MEMORY, MODELS, WRITABLE, hash_for_key
from tempoformer_live.settings import ServerSettings


def serve_while_busy(jobs: list[tuple]) -> list:
    """
    Returns the answers, or exceptions, of jobs that arrive while another one is computed. Each is a function, an item,
    which is also the id of its timeline by default, and more arguments of [`Batches.answer`].
    """
    busy, go_on = threading.Event(), threading.Event()

    def first(items):
        busy.set()
        go_on.wait(30)
        return items

    async def arrive():
        batches = Batches(ServerMetrics())
        serving = asyncio.create_task(batches.serve())
        begun = asyncio.create_task(batches.answer(first, 0, "another timeline"))
        await asyncio.to_thread(busy.wait, 30)
        jobs_of = [(function, item, *(more or [str(item)])) for function, item, *more in jobs]
        others = [asyncio.create_task(batches.answer(*job)) for job in jobs_of]
        await asyncio.sleep(0)
        go_on.set()
        _, *answers = await asyncio.gather(begun, *others, return_exceptions=True)
        serving.cancel()
        return answers

    return asyncio.run(asyncio.wait_for(arrive(), 60))


class Doubler:
    """Doubles numbers, or raises the error of an item. Remembers the batches that it got."""

    def __init__(self, **errors: Exception):
        self.requested, self.errors = [], errors

    def __call__(self, items: list) -> list:
        self.requested.append(items)
        for item in items:
            if item in self.errors:
                raise self.errors[item]
        return [2 * item for item in items]


def test_posts_that_arrive_while_others_are_read_share_a_step_and_too_many_are_refused():
    double, most_waiting = Doubler(), MAX_WAITING
    answers = serve_while_busy([(double, number) for number in range(most_waiting + 1)])
    assert answers[:-1] == [2 * number for number in range(most_waiting)]
    assert answers[-1].status_code == 503 and answers[-1].headers["Retry-After"] == "1"
    assert max(map(len, double.requested)) == MAX_BATCH and sum(map(len, double.requested)) == most_waiting


def test_a_post_that_fails_fails_alone():
    """If Redis is gone, the posts are not tried one by one."""
    double = Doubler(bad=RuntimeError("broken"), late=redis.ResponseError("of one key"))
    answers = serve_while_busy([(double, item) for item in (1, "bad", 2, "late", 3)])
    assert [str(answer) for answer in answers] == ["2", "broken", "4", "of one key", "6"]
    double = Doubler(bad=redis.ConnectionError("nobody there"))
    answers = serve_while_busy([(double, item) for item in (1, "bad", 2)])
    assert [str(answer) for answer in answers] == ["nobody there"] * 3 and len(double.requested) == 1


def test_who_is_forgotten_is_forgotten_after_the_posts_that_were_waiting():
    done = []

    def score(posts):
        done.append(("score", posts))
        return posts

    def forget(names):
        done.append(("forget", names))
        return names

    serve_while_busy([(score, "ann"), (score, "bob"), (forget, "ann"), (score, "ann"), (score, "cy")])
    assert [did for did, names in done if "ann" in names] == ["score", "forget", "score"]
    # Nobody else waits for it.
    assert done[0] == ("score", ["ann", "bob", "cy"])


def live_post(*lengths: int) -> LivePost:
    """Returns a post after earlier ones, with these numbers of tokens."""
    columns = {"input_ids": [[7] * length for length in lengths]}
    return LivePost("long", "1", columns, None, "missing", None, "why", None, "texts")


def test_short_posts_do_not_wait_for_a_long_history_which_goes_on():
    """A history of ten batches is read text by text. Its timeline is forgotten afterwards."""
    requested = []

    def read(items):
        requested.append([item if isinstance(item, str) else item.num_posts for item in items])
        results = [item if isinstance(item, str) or item.num_posts == 1 else item.after(1) for item in items]
        return ["done" if isinstance(one, LivePost) and one is item else one for one, item in zip(results, items)]

    def forget(items):
        requested.append(items)
        return items

    half, long = MAX_TOKENS // 2, live_post(*[MAX_TOKENS] * 10)
    jobs = [(read, long, "long", long.num_tokens), (forget, "gone", "long")]
    jobs += [(read, f"short {number}", f"short {number}", half) for number in range(3)]
    answers = serve_while_busy(jobs)
    assert answers == ["done", "gone", "short 0", "short 1", "short 2"]
    # The other half of each batch is for short posts.
    assert [one[:2] for one in requested[:3]] == [[10, "short 0"], [9, "short 1"], [8, "short 2"]]
    assert [one[0] for one in requested[3:]] == [7, 6, 5, 4, 3, 2, 1, "gone"]


def test_posts_of_too_many_tokens_do_not_wait():
    double, most = Doubler(), MAX_WAITING_TOKENS
    answers = serve_while_busy([(double, n, str(n), tokens) for n, tokens in enumerate((most, 1, 0))])
    assert answers[0] == 0 and answers[2] == 4 and answers[1].status_code == 503


class Caller:
    """Stands for a request whose client stays, or has gone."""

    def __init__(self, has_gone: bool):
        self.has_gone = has_gone

    async def is_disconnected(self) -> bool:
        return self.has_gone


def test_a_post_whose_client_has_gone_is_not_computed():
    double = Doubler()
    jobs = [(double, number, str(number), 1, Caller(number % 2 == 1)) for number in range(4)]
    answers = serve_while_busy(jobs)
    assert double.requested == [[0, 2]] and answers[::2] == [0, 4]
    assert [answer.status_code for answer in answers[1::2]] == [499, 499]


def test_the_service_sees_that_a_client_has_gone(pipe, tmp_path):
    """The request is given to the app as a server does that has read its body, and then sees the connection close."""
    store = DictStore()
    pipe.save_pretrained(tmp_path / "model")
    app = open_app(tmp_path / "model", store)
    scope = {"type": "http", "method": "POST", "path": "/score", "raw_path": b"/score", "query_string": b""}
    scope |= {"headers": [(b"content-type", b"application/json")], "http_version": "1.1", "scheme": "http"}

    async def ask(body: bytes) -> int:
        messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": body}]
        sent = []

        async def receive():
            return messages.pop() if len(messages) > 1 else messages[0]

        async def send(message):
            sent.append(message)

        await app(scope, receive, send)
        return sent[0]["status"]

    with TestClient(app) as client:
        before = counts_of(client).get(("posts_total", "gone"), 0)
        assert client.portal.call(ask, json.dumps(post_of("ann", 0)).encode()) == 499
        assert store.memories == {} and counts_of(client)["posts_total", "gone"] == before + 1
        assert client.post("/score", json=post_of("ann", 0)).status_code == 200


def test_spellings_of_an_id_wait_as_one_timeline(pipe, tmp_path):
    """
    A timeline stays forgotten whose posts were waiting under another spelling. Another forgetting stands first, and
    would take this one along, before the post, if they were two timelines.
    """
    store = DictStore()
    pipe.save_pretrained(tmp_path / "model")
    app = open_app(tmp_path / "model", store)
    reading, go_on = hold_first_reading(app)
    requests = [
        ("/forget", {"timeline_id": "cy"}),
        ("/score", {**post_of("ann", 0), "timeline_id": " ann\u00ad"}),
        ("/forget", {"timeline_id": "ann\u200b"}),
    ]
    with TestClient(app) as client, ThreadPoolExecutor() as pool:
        answers = [pool.submit(client.post, "/score", json=post_of("bob", 0))]
        assert reading.wait(60)
        for number, (path, body) in enumerate(requests):
            answers.append(pool.submit(client.post, path, json=body))
            while counts_of(client)["waiting_posts",] <= number:
                sleep(0.01)
        go_on.set()
        _, other, scored, forgotten = (answer.result(60) for answer in answers)
    assert scored.status_code == 200 and list(store.memories) == ["bob"]
    assert forgotten.json()["forgotten"] and not other.json()["forgotten"]


def test_no_post_waits_for_an_explanation(client):
    """The explanation ends only after the post has its answer."""
    explaining, scored = hold_first_reading(client.app)
    with ThreadPoolExecutor() as pool:
        explained = pool.submit(client.post, "/explain", json=TIMELINES["bob"])
        assert explaining.wait(60)
        answer = client.post("/score", json=post_of("ann", 0))
        busy = client.post("/explain", json=TIMELINES["bob"])
        scored.set()
        assert explained.result(60).status_code == 200
    assert answer.status_code == 200 and busy.status_code == 503


@pytest.fixture
def reader_of_long_posts(tmp_path):
    """Yields the server of a model that cuts posts to 256 tokens. A word is one; each text has two special ones."""
    encoder = make_pipe().model.config.encoder_config.to_dict()
    pipe = make_pipe(encoder_config={**encoder, "max_position_embeddings": 256})
    pipe.tokenizer.model_max_length = 256
    pipe.save_pretrained(tmp_path / "long")
    with TestClient(open_app(tmp_path / "long", DictStore())) as client:
        yield client


def test_a_post_with_a_history_of_too_many_tokens_is_refused_as_it_is_cut(reader_of_long_posts):
    """A text is cut before it counts. 64 texts of 256 tokens are 16,384."""
    for words, posts, status in ((300, 63, 200), (254, 63, 200), (254, 64, 413), (300, 64, 413)):
        earlier = [{"text": "so " * words, "timestamp": 1}] * posts
        post = post_of("ann", 0, post_id=f"{words} {posts}", text="so " * 300, history=earlier)
        answer = reader_of_long_posts.post("/score", json=post)
        assert answer.status_code == status, answer.text
        if status == 413:
            assert "16640 tokens" in answer.json()["detail"] and "16384" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/score", "/forget"])
def test_an_id_with_a_line_break_is_refused(client, path):
    body = {**(post_of("ann", 0) if path == "/score" else {}), "timeline_id": "ann\ntempoformer:models"}
    answer = client.post(path, json=body)
    assert answer.status_code == 422 and "timeline_id" in answer.json()["detail"]
    assert "models" not in answer.text


def test_times_that_cannot_follow_are_refused(client):
    """A number after a date of an earlier request, and a year that is a typing error."""
    answers = [
        client.post("/score", json=post_of("ann", 0, post_id=str(number), timestamp=timestamp))
        for number, timestamp in enumerate(("2024-05-01", 1.75e9, "2924-05-01", "2024-05-02"))
    ]
    assert [answer.status_code for answer in answers] == [200, 422, 422, 200]
    assert "a date" in answers[1].json()["detail"] and "later than now" in answers[2].json()["detail"]
    assert answers[3].json()["stream_length"] == 2


def test_a_timeline_of_too_many_tokens_is_not_explained(reader_of_long_posts):
    """16 texts of 256 tokens are 4,096."""
    bodies = [{"text": ["so " * 254] * posts} for posts in (16, 17)]
    assert [reader_of_long_posts.post("/explain", json=body).status_code for body in bodies] == [200, 422]


def test_the_service_scores_explains_and_forgets(pipe, client):
    expected = pipe(TIMELINES["ann"])
    answers = [client.post("/score", json=post_of("ann", number)) for number in range(4)]
    assert {answer.status_code for answer in answers} == {200}
    assert_same([answer.json() for answer in answers], expected[:4])

    # The post is sent again, sent late, sent after its timeline was forgotten, and sent with earlier texts.
    assert client.post("/score", json=post_of("ann", 3)).json() == answers[3].json()
    assert client.post("/score", json=post_of("ann", 1, post_id="late")).status_code == 409
    for models in (["model"], []):
        expected_answer = {"forgotten": bool(models), "models": models, "texts": False}
        assert client.post("/forget", json={"timeline_id": "ann"}).json() == expected_answer
    earlier = [{key: values[number] for key, values in TIMELINES["ann"].items()} for number in range(4)]
    answer = client.post("/score", json=post_of("ann", 4, history=earlier)).json()
    assert_same([answer], expected[4:5])
    assert (answer["context"], answer["stream_length"]) == ("texts", 4)

    explained = client.post("/explain", json=TIMELINES["bob"]).json()
    assert explained[-1]["stream"] == [2, 3, 4, 5]
    assert_same(explained, pipe.explain(TIMELINES["bob"]))
    # An explanation stores nothing.
    assert not client.post("/forget", json={"timeline_id": "bob"}).json()["forgotten"]

    assert client.get("/").headers["content-type"].startswith("text/html")
    assert "/score" in client.get("/openapi.json").json()["paths"]
    assert counts_of(client)["posts_total", "scored"] == 6


def test_an_answer_says_what_chose_its_label_and_the_description_for_programs_too(pipe, tmp_path):
    pipe.model.config.calibration = {"thresholds": [0.9, 0.05, 0.05]}
    pipe.save_pretrained(tmp_path / "model")
    with TestClient(open_app(tmp_path / "model", DictStore())) as client:
        answer = client.post("/score", json=post_of("ann", 0)).json()
        described = client.get("/openapi.json").json()
    assert list(answer["thresholds"].values()) == [0.9, 0.05, 0.05]
    response = described["paths"]["/score"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    one = response["anyOf"][0]["$ref"].split("/")[-1]
    assert set(described["components"]["schemas"][one]["properties"]) == set(answer)


def test_what_to_watch_is_counted(pipe, tmp_path):
    """The numbers are counted from the answers. A post that is sent again does not count again."""
    pipe.model.config.watched = 1
    # From here on all posts are alarms, whatever their label.
    pipe.model.config.calibration = {"alarm": {"label": 1, "threshold": 1e-9}}
    pipe.save_pretrained(tmp_path / "model")
    with TestClient(open_app(tmp_path / "model", DictStore())) as client:
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


def test_a_model_that_fails_is_no_mistake_of_the_client(pipe, tmp_path):
    """Its weights are not finite. The answer names nobody."""
    with torch.no_grad():
        next(pipe.model.classifier.parameters()).fill_(float("nan"))
    pipe.save_pretrained(tmp_path / "model")
    app = open_app(tmp_path / "model", DictStore())
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.post("/score", json=post_of("ann", 0))
        assert answer.status_code == 500 and "ann" not in answer.text
        assert counts_of(client)["posts_total", "failed"] >= 1


def test_a_model_that_watches_nothing_has_no_alarms(client):
    client.post("/score", json=post_of("ann", 0))
    counts = counts_of(client)
    assert counts["post_contexts_total", "none"] == 1 and ("alarms_total",) not in counts


def test_posts_with_speakers_get_states(tmp_path):
    pipe = make_pipe(**WITH_STATES)
    pipe.save_pretrained(tmp_path / "model")
    timeline, expected = SPOKEN["bob"], pipe(SPOKEN["bob"])
    posts = [{name: values[number] for name, values in timeline.items()} for number in range(6)]
    with TestClient(open_app(tmp_path / "model", DictStore())) as client:
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


def test_messages_of_a_chat_are_posts(tmp_path):
    pipe = make_pipe(**WITH_STATES)
    pipe.save_pretrained(tmp_path / "model")
    timeline, expected = SPOKEN["bob"], pipe(SPOKEN["bob"])
    rows = [{name: values[number] for name, values in timeline.items()} for number in range(6)]
    # Who is not known has no role.
    messages = [
        {"role": row.pop("speaker"), "content": [{"type": "text", "text": row.pop("text")}], **row}
        if row["speaker"]
        else row
        for row in rows
    ]
    ids = [{"timeline_id": "bob", "post_id": str(number)} for number in range(6)]
    with TestClient(open_app(tmp_path / "model", DictStore())) as client:
        placed = [{**message, **place} for message, place in zip(messages, ids, strict=True)]
        assert_same(client.post("/score", json={"posts": placed}).json()["answers"], expected)
        answers = [client.post("/score", json={**placed[3], "history": messages[:3]}).json()]
        answers += [client.post("/score", json=post).json() for post in placed[4:]]
        assert_same(answers, expected[3:])
        for content in ({"secret": 1}, 5, "secret" * 2000):
            answer = client.post("/score", json={**ids[5], "role": "user", "content": content})
            assert answer.status_code == 422 and "secret" not in answer.text


def test_a_memory_that_was_damaged_is_counted(pipe, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    store = DictStore()
    with TestClient(open_app(tmp_path / "model", store)) as client:
        client.post("/score", json=post_of("ann", 0))
        version, memory = store.memories["ann"]
        store.memories["ann"] = version, memory[:-1]
        answer = client.post("/score", json=post_of("ann", 1))
        assert (answer.status_code, answer.json()["context"]) == (200, "none")
        assert counts_of(client)["memories_dropped_total", "damaged"] == 1


def test_the_process_answers_before_it_is_ready_and_while_it_drains(pipe, tmp_path):
    """The model is not loaded before the pipe that stands for its results has been written to."""
    pipe.save_pretrained(tmp_path / "model")
    results = tmp_path / "model" / "all_results.json"
    os.mkfifo(results)
    app = server.create_app(ServerSettings(model=str(tmp_path / "model")), DictStore())
    with TestClient(app) as client:

        def statuses() -> list[int]:
            paths = ("/live", "/metrics", "/ready", "/health", "/")
            return [client.get(path).status_code for path in paths]

        before, early = statuses(), client.post("/score", json=post_of("ann", 0))
        results.write_text("{}")
        app.state.loading.result(60)
        assert before == [200, 200, 503, 503, 503]
        assert early.status_code == 503 and early.headers["Retry-After"] == "1"
        assert statuses() == [200] * 5
        app.state.draining = True
        assert statuses() == [200, 200, 503, 200, 200]
        assert client.post("/score", json=post_of("ann", 0)).status_code == 200


def test_a_model_that_does_not_load_ends_the_server_with_its_error(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    command = ["tempoformer", "serve", "--model", str(tmp_path), "--port", str(free_port())]
    status, output = run_forked("-m", command)
    assert status == 1 and "not a TempoFormer" in output.splitlines()[-1]


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
    ("/score", {"posts": "secret"}),
    ("/score", {"posts": [{**GOOD, "timeline_id": "secret"}]}),
    ("/score", {"posts": [{**GOOD, "timeline_id": "nan", "post_id": "secret"}]}),
    ("/score", {"posts": [{**GOOD, "timeline_id": "secret\n", "post_id": "1"}]}),
    ("/score", {"posts": [{"text": "secret", "timeline_id": "secret", "post_id": "1"}]}),
]
for time in (True, "secret", 1e12, None, float("nan"), {"secret": 1}):
    bad = {"text": "secret", "timestamp": time}
    REFUSED.append(("/score", {"posts": [{**bad, "timeline_id": "secret", "post_id": "1"}]}))
    REFUSED += [("/score", bad), ("/score", {"history": [GOOD, bad]})]
    REFUSED.append(("/explain", {"text": ["word", "secret"], "timestamp": [1, time]}))


def test_what_cannot_be_read_is_refused_and_no_answer_repeats_a_text(client):
    """Texts are too long, unknown or missing, or times are invalid."""
    for path, body in REFUSED:
        is_one = path == "/score" and "posts" not in body
        whole = json.dumps(post_of("ann", 5, **body) if is_one else body)
        answer = client.post(path, content=whole, headers=JSON)
        assert answer.status_code == 422, (path, body, answer.text)
        assert "secret" not in answer.text and "98765" not in answer.text, (path, body, answer.text)
    assert client.post("/score", content=b"{", headers=JSON).status_code == 422
    assert client.post("/score", json={"text": "x" * 2_000_000}).status_code == 413


def test_what_is_no_json_in_utf_8_is_refused_by_its_cause(client):
    body = json.dumps(post_of("ann", 0, text="schön"), ensure_ascii=False)
    causes = [
        (body.encode(), {}, "content-type"),
        (body.encode(), {"Content-Type": "text/plain"}, "content-type"),
        (body.encode("latin-1"), JSON, "utf-8"),
        (gzip.compress(body.encode()), {**JSON, "Content-Encoding": "gzip"}, "compressed"),
        (gzip.compress(body.encode()), JSON, "compressed"),
    ]
    for content, headers, cause in causes:
        answer = client.post("/score", content=content, headers=headers)
        assert answer.status_code in (400, 415) and cause in answer.json()["detail"].lower(), answer.text
    for kind in ("application/json; charset=utf-8", "application/vnd.api+json", "Application/JSON"):
        assert client.post("/score", content=body.encode(), headers={"Content-Type": kind}).status_code == 200


def test_a_health_check_may_ask_for_the_head_alone(client):
    for path in ("/live", "/ready", "/health"):
        head, got = client.head(path), client.get(path)
        assert head.status_code == got.status_code == 200 and head.content == b"" and got.content
    client.app.state.draining = True
    assert client.head("/ready").status_code == client.get("/ready").status_code == 503


def test_a_time_that_cannot_be_read_is_explained_to_whoever_has_sent_it(client):
    answer = client.post("/score", json=post_of("ann", 0, timestamp="01.05.2024 9:00 AM"))
    assert answer.status_code == 422 and "ISO-8601" in answer.text
    assert not any(word in answer.text for word in ("column", "spreadsheet", "pd."))


@pytest.mark.slow
def test_where_redis_refuses_or_is_gone(pipe, redis_url, tmp_path):
    pipe.save_pretrained(tmp_path / "model")
    database = redis.Redis.from_url(redis_url)
    # A foreign value is an error of its timeline alone, and no answer names another timeline.
    model_id = LiveClassifier(pipe, DictStore()).model_id
    foreign = f"{MEMORY}{model_id}:{hash_for_key('bob')}"
    database.lpush(foreign, "no memory")
    with TestClient(open_app(tmp_path / "model", redis=redis_url)) as client, ThreadPoolExecutor() as pool:
        health = client.get("/health").json()
        assert health["status"] == "ok" and "No score" in health["test"][0]
        names = ["ann", "bob"] * 10
        answers = list(pool.map(lambda name: client.post("/score", json=post_of(name, 5)), names))
        assert [answer.status_code for answer in answers] == [200, 503] * 10
        assert not any("bob" in answer.text or "EVALSHA" in answer.text for answer in answers)
        forgotten = client.post("/forget", json={"timeline_id": "ann"}).json()
        assert forgotten == {"forgotten": True, "models": [model_id], "texts": False}
        assert set(database.keys()) - {WRITABLE.encode()} == {foreign.encode(), MODELS.encode()}
        # Without Redis there are no answers, and the service continues.
        database.shutdown(nosave=True)
        assert client.get("/health").status_code == 503
        answer = client.post("/score", json=post_of("ann", 5))
        assert answer.status_code == 503 and "Redis" in answer.json()["detail"]
        assert client.post("/explain", json=TIMELINES["bob"]).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"maxmemory": 1}, {"replicaof": "127.0.0.1 1"}], ids=str)
def test_the_service_is_not_healthy_while_redis_does_not_write(pipe, redis_url, tmp_path, settings):
    """Redis is full, or a copy that is read-only."""
    pipe.save_pretrained(tmp_path / "model")
    database = redis.Redis.from_url(redis_url)
    with TestClient(open_app(tmp_path / "model", redis=redis_url)) as client:
        assert client.get("/health").status_code == 200
        for command, value in settings.items():
            if command == "replicaof":
                database.execute_command("replicaof", *value.split())
            else:
                database.config_set(command, value)
        answer = client.get("/health")
        assert answer.status_code == client.get("/ready").status_code == 503
        assert ("maxmemory" if "maxmemory" in settings else "read only") in answer.json()["detail"]
        assert client.post("/score", json=post_of("ann", 5)).status_code == 503
        # Redis reads, and so the ping of earlier versions was answered.
        assert database.ping()
        database.execute_command("replicaof", "no", "one")
        database.config_set("maxmemory", 0)
        assert client.get("/health").status_code == 200


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_that_was_answered(pipe, redis_url, tmp_path):
    """Sends posts of two timelines at once, each to two workers in turn until it is answered. One worker is killed."""
    model, port = str(tmp_path / "model"), str(free_port())
    pipe.save_pretrained(model)
    command = [sys.executable, "tempoformer.py", "serve", "--model", model, "--redis", redis_url, "--port", port]
    process = subprocess.Popen(command, cwd=ROOT)
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
        wait_until_ready(dying)
        with TestClient(open_app(model, redis=redis_url)) as living, ThreadPoolExecutor() as pool:
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
