"""Checks timelines in a real Redis server: one key each, one writer at a time, and nothing left after forgetting."""

import pytest
import redis

from modeling_tempoformer.serving.redis_store import RedisStore


pytestmark = pytest.mark.slow


@pytest.fixture
def client(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


def test_only_who_read_the_last_version_writes(client):
    store, other = RedisStore(client), RedisStore(client)
    names = ["ann", "bob \N{SNOWMAN}"]
    assert store.load(names) == dict.fromkeys(names, (b"", b""))
    assert store.save({"ann": (b"", b"one"), names[1]: (b"", b"\x00\xff")}) == set(names)
    (version, memory), (_, unprintable) = other.load(names).values()
    assert (memory, unprintable) == (b"one", b"\x00\xff")
    assert other.save({"ann": (version, b"two"), "cy": (b"", b"new")}) == {"ann", "cy"}
    # Each timeline is written separately.
    assert store.save({"ann": (version, b"three"), "dee": (b"", b"new")}) == {"dee"}
    # A writer that has read nothing must not overwrite anything or restore a forgotten timeline. The latter counts as
    # written.
    assert store.save({"ann": (b"", b"four")}) == set()
    version, memory = store.load(["ann"])["ann"]
    assert memory == b"two" and other.forget("ann") and not other.forget("ann")
    assert store.save({"ann": (version, b"five")}) == {"ann"} and store.load(["ann"])["ann"] == (b"", b"")


def test_an_idle_timeline_expires_and_each_write_begins_the_time_anew(client):
    store = RedisStore(client, max_idle_seconds=1000)
    store.save({"ann": (b"", b"one")})
    (key,) = client.keys()
    assert 990_000 < client.pttl(key) <= 1_000_000
    client.pexpire(key, 5_000)
    store.save({"ann": (store.load(["ann"])["ann"][0], b"two")})
    assert 990_000 < client.pttl(key) <= 1_000_000
