"""
Checks timelines in a real Redis server: one key for each model, one writer at a time, texts only where they are asked
for, and nothing left after forgetting.
"""

import pytest
import redis
from arrivals import TIMELINES, assert_same, cut, make_pipe, send

from modeling_tempoformer.serving.live_classifier import LiveClassifier
from modeling_tempoformer.serving.redis_store import MEMORY, MODELS, TEXTS, RedisStore, StoredTimeline


pytestmark = pytest.mark.slow
NEW = StoredTimeline()
# The SHA-256 of "ann" in UTF-8, by another program
ANN = "49915e0d7d4b402e3017d010bc1c0e83cac6c797d6c16e66340fe3268693a6a1"


@pytest.fixture
def client(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


def test_only_who_read_the_last_version_writes(client):
    store, other = RedisStore(client), RedisStore(client)
    names = ["ann", "bob \N{SNOWMAN}"]
    assert store.load("old", names) == dict.fromkeys(names, NEW)
    assert store.save("old", {"ann": (NEW, b"one", []), names[1]: (NEW, b"\x00\xff", [])}) == set(names)
    read, unprintable = other.load("old", names).values()
    assert (read.memory, unprintable.memory) == (b"one", b"\x00\xff")
    assert other.save("old", {"ann": (read, b"two", []), "cy": (NEW, b"new", [])}) == {"ann", "cy"}
    # Each timeline is written separately.
    assert store.save("old", {"ann": (read, b"three", []), "dee": (NEW, b"new", [])}) == {"dee"}
    # A writer that has read nothing must not overwrite anything or restore a forgotten timeline. The latter counts as
    # written.
    assert store.save("old", {"ann": (NEW, b"four", [])}) == set()
    read = store.load("old", ["ann"])["ann"]
    assert read.memory == b"two" and other.forget("ann") == (("old",), False)
    assert other.forget("ann") == ((), False)
    assert store.save("old", {"ann": (read, b"five", [])}) == {"ann"} and store.load("old", ["ann"])["ann"] == NEW


def test_an_idle_timeline_expires_and_each_write_begins_the_time_of_its_model_anew(client):
    store = RedisStore(client, max_idle_seconds=1000, keep_texts=1)
    for model in ("old", "new"):
        store.save(model, {"ann": (NEW, b"one", ["text"])})
    keys = [f"{MEMORY}old:{ANN}", f"{MEMORY}new:{ANN}", f"{TEXTS}{ANN}"]
    assert set(client.keys()) == {key.encode() for key in (*keys, MODELS)}
    assert all(990_000 < client.pttl(key) <= 1_000_000 for key in keys)
    for key in keys:
        client.pexpire(key, 5_000)
    store.save("new", {"ann": (store.load("new", ["ann"])["ann"], b"two", ["text"])})
    # The model that gets no more posts is on its way out.
    assert [client.pttl(key) > 990_000 for key in keys] == [False, True, True]


def test_texts_are_kept_on_request_once_and_as_many_as_asked_for(client):
    plain, store = RedisStore(client), RedisStore(client, keep_texts=2)
    plain.save("old", {"ann": (NEW, b"one", ["first"])})
    assert not client.exists(f"{TEXTS}{ANN}")
    for model, texts in (("new", ["first", "second"]), ("other", ["second", "third"])):
        store.save(model, {"bob": (NEW, b"one", texts)})
    assert store.load("old", ["bob"])["bob"] == StoredTimeline(texts=(b"second", b"third"))
    assert plain.load("old", ["bob"])["bob"] == NEW
    # Nothing of a timeline that was forgotten is written again, also by a model that has read its texts alone.
    read = store.load("third", ["bob"])["bob"]
    assert plain.forget("bob") == (("new", "other"), True)
    assert set(client.keys()) == {f"{MEMORY}old:{ANN}".encode(), MODELS.encode()}
    assert store.save("third", {"bob": (read, b"all", ["fourth"])}) == {"bob"}
    assert store.load("third", ["bob"])["bob"] == NEW


def test_models_side_by_side_answer_as_if_each_were_alone(client):
    """The model that comes later reads the texts. A person who is forgotten is forgotten by both."""
    old, new = make_pipe(model_type="post_tempoformer"), make_pipe(seed=1)
    store = RedisStore(client, keep_texts=100)
    first, second = LiveClassifier(old, store), LiveClassifier(new, store)
    answers = {old: [], new: []}
    for number in range(6):
        answers[old] += send(first, TIMELINES, [("ann", number)])
        if number > 2:
            answers[new] += send(second, TIMELINES, [("ann", number)])
    assert_same(answers[old], old(TIMELINES["ann"]))
    assert_same(answers[new], new(TIMELINES["ann"])[3:])
    assert [answer["context"] for answer in answers[new]] == ["kept", "memory", "memory"]
    assert first.forget("ann") == (tuple(sorted((first.model_id, second.model_id))), True)
    assert set(client.keys()) == {MODELS.encode()}
    (answer,) = send(second, TIMELINES, [("ann", 5)])
    assert_same([answer], new(cut("ann", 5)))
