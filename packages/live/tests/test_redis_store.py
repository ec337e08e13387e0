"""
Checks timelines in a real Redis server: one key for each model, one writer at a time, texts only where they are asked
for, and nothing left after forgetting.
"""

import re

import pytest
import redis
from arrivals import TIMELINES, assert_same, cut, make_pipe, send

from tempoformer_live.live_classifier import LiveClassifier
from tempoformer_live.redis_store import MEMORY, MODELS, TEXTS, WAITING, RedisStore, StoredTimeline


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
    assert store.save("old", {"ann": (NEW, b"one", []), names[1]: (NEW, b"\x00\xff", [])}) == dict.fromkeys(
        names, True
    )
    read, unprintable = other.load("old", names).values()
    assert (read.memory, unprintable.memory) == (b"one", b"\x00\xff")
    assert other.save("old", {"ann": (read, b"two", []), "cy": (NEW, b"new", [])}) == {"ann": True, "cy": True}
    # Each timeline is written separately.
    assert store.save("old", {"ann": (read, b"three", []), "dee": (NEW, b"new", [])}) == {"dee": True}
    # A writer that has read nothing must not overwrite anything or restore a forgotten timeline. The latter counts as
    # written.
    assert store.save("old", {"ann": (NEW, b"four", [])}) == {}
    read = store.load("old", ["ann"])["ann"]
    assert read.memory == b"two" and other.forget("ann") == (("old",), False)
    assert other.forget("ann") == ((), False)
    assert (
        store.save("old", {"ann": (read, b"five", [])}) == {"ann": False} and store.load("old", ["ann"])["ann"] == NEW
    )


def test_a_full_redis_refuses_writes_and_still_forgets(client):
    """It refuses even to delete what stands in a transaction."""
    store = RedisStore(client, keep_texts=5)
    store.save("0" * 16, {name: (NEW, b"one", [b"a text"]) for name in ("ann", "bob")})
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.RedisError, match="maxmemory"):
        store.save("0" * 16, {"cy": (NEW, b"one", [])})
    assert store.forget("ann") == (("0" * 16,), True)
    assert store.forget_model("0" * 16) == 1
    client.config_set("maxmemory", 0)
    assert store.load("0" * 16, ["ann"])["ann"] == NEW
    assert store.load("0" * 16, ["bob"])["bob"] == StoredTimeline(texts=(b"a text",))


def test_waiting_timelines_are_found_when_they_are_due(client):
    store = RedisStore(client)
    store.save("old", {name: (NEW, name.encode(), []) for name in ("ann", "bob", "cy")}, {"ann": 10.5, "bob": 20.0})
    store.save("new", {"ann": (NEW, b"another", [])}, {"ann": 1.0})
    assert [found.memory for found in store.due("old", 10.4, 9)] == []
    assert [found.memory for found in store.due("old", 30, 9)] == [b"ann", b"bob"]
    assert [found.memory for found in store.due("old", 30, 1)] == [b"ann"]
    # A later write takes the place of the time.
    store.save("old", {"ann": (store.load("old", ["ann"])["ann"], b"later", [])})
    assert [found.memory for found in store.due("old", 30, 9)] == [b"bob"]
    store.drop_due("old", store.due("old", 30, 9)[0])
    assert store.due("old", 30, 9) == []
    store.save("old", {"bob": (store.load("old", ["bob"])["bob"], b"again", [])}, {"bob": 20.0})
    store.forget("bob")
    client.delete(f"{MEMORY}new:{ANN}")
    assert store.due("old", 30, 9) == store.due("new", 30, 9) == []
    assert not client.keys(f"{WAITING}*")


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
    assert store.save("third", {"bob": (read, b"all", ["fourth"])}) == {"bob": False}
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


# The parts of other keys, patterns and separators of the shell and of lines
STRANGE = (
    "*",
    "bob it's",
    "a\ntempoformer:models",
    f"b\n{MEMORY}fedcba9876543210:ann",
    "0123456789abcdef:cy",
    "?[a-z]",
)


def test_no_id_shows_in_a_key_or_names_another_one(client):
    store = RedisStore(client, keep_texts=2)
    for model in ("0123456789abcdef", "fedcba9876543210"):
        store.save(model, {name: (NEW, name.encode(), [name]) for name in (*STRANGE, "ann")})
    keys = {key.decode() for key in client.keys()} - {MODELS}
    assert len(keys) == 3 * (len(STRANGE) + 1)
    assert all(re.fullmatch("tempoformer:(memory:[0-9a-f]{16}|texts):[0-9a-f]{64}", key) for key in keys)
    assert f"{MEMORY}0123456789abcdef:{ANN}" in keys and f"{TEXTS}{ANN}" in keys
    # Each name has its own, and forgetting one leaves the others.
    for number, name in enumerate(STRANGE):
        assert store.load("fedcba9876543210", [name])[name].memory == name.encode()
        assert store.forget(name) == (("0123456789abcdef", "fedcba9876543210"), True)
        assert len(client.keys()) == 3 * (len(STRANGE) - number) + 1


def test_the_memory_of_one_model_is_deleted_however_much_it_is(client):
    store = RedisStore(client)
    many = {str(number): (NEW, b"memory", []) for number in range(2500)}
    for model in ("0123456789abcdef", "fedcba9876543210"):
        store.save(model, many)
    assert store.forget_model("0123456789abcdef") == 2500 and store.forget_model("0123456789abcdef") == 0
    assert {one.memory for one in store.load("fedcba9876543210", many).values()} == {b"memory"}
    for wrong in ("*", "", "0123456789ABCDEF", "0123456789abcde?", "0123456789abcdef:*"):
        with pytest.raises(ValueError, match="16 digits"):
            store.forget_model(wrong)
    assert store.models() == ["0123456789abcdef", "fedcba9876543210"] and client.dbsize() == 2501


def test_a_memory_that_is_cut_is_damaged_and_replaced(client):
    """Also if its version alone is left, or nothing."""
    pipe = make_pipe(model_type="post_tempoformer")
    classifier = LiveClassifier(pipe, RedisStore(client))
    key = f"{MEMORY}{classifier.model_id}:{ANN}"
    for number, length in enumerate((0, 1, 16, 17, 500)):
        send(classifier, TIMELINES, [("ann", number)])
        client.set(key, client.get(key)[:length])
        (answer,) = send(classifier, TIMELINES, [("ann", number + 1)])
        assert (answer["context"], classifier.dropped["damaged"]) == ("none", number + 1)
        client.delete(key)
    send(classifier, TIMELINES, [("ann", 0)])
    assert classifier.dropped["damaged"] == 5


def test_a_damaged_text_is_deleted_at_the_next_write(client):
    store = RedisStore(client, keep_texts=100)
    old, new = make_pipe(model_type="post_tempoformer"), make_pipe(seed=1)
    for number in range(3):
        send(LiveClassifier(old, store), TIMELINES, [("ann", number)])
    client.lset(f"{TEXTS}{ANN}", 1, "no text")
    classifier = LiveClassifier(new, store)
    (answer,) = send(classifier, TIMELINES, [("ann", 3)])
    assert_same([answer], new(cut("ann", 2, 3))[1:])
    assert b"no text" not in client.lrange(f"{TEXTS}{ANN}", 0, -1) and client.llen(f"{TEXTS}{ANN}") == 3
    assert classifier.dropped["damaged"] == 1
    # If it was the only one, the timeline is not taken for one that was forgotten.
    client.delete(f"{TEXTS}{ANN}", *client.keys(f"{MEMORY}*"))
    client.rpush(f"{TEXTS}{ANN}", "no text")
    assert send(classifier, TIMELINES, [("ann", 4)])[0]["context"] == "none"
    assert send(classifier, TIMELINES, [("ann", 5)])[0]["context"] == "memory"
