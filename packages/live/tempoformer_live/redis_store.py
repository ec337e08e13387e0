"""Stores memories of timelines in Redis, which processes share. Each model has its own."""

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

import redis


# The keys are `tempoformer:memory:MODEL:HASH`, `tempoformer:texts:HASH` and `tempoformer:waiting:MODEL`; the last one
# is the set of models.
MEMORY, TEXTS, MODELS = "tempoformer:memory:", "tempoformer:texts:", "tempoformer:models"
WAITING = "tempoformer:waiting:"
# The key that is written to test whether Redis accepts writes.
WRITABLE = "tempoformer:writable"
VERSION_BYTES = 16
# Keys of a batch that are deleted together, so that Redis serves others in between.
KEYS_AT_ONCE = 1000
# Writes a memory and the texts of new posts, and deletes damaged texts, unless another process has written the memory
# since it was read. A timeline that was forgotten or has expired meanwhile is not written, and counts as written.
# Redis runs a script atomically. Two models that get the same post keep its text once.
SAVE = f"""
local memory, texts, models, waiting = unpack(KEYS)
local read_version, had_texts, value, milliseconds, model, most_texts, num_damaged, hash, due = unpack(ARGV)
local version = redis.call('GETRANGE', memory, 0, {VERSION_BYTES - 1})
local is_gone = read_version ~= '' or had_texts == '1' and redis.call('EXISTS', texts) == 0
if version == '' and is_gone then return 2 end
if version ~= read_version then return 0 end
redis.call('SET', memory, value, 'PX', milliseconds)
redis.call('SADD', models, model)
if due == '' then redis.call('ZREM', waiting, hash) else redis.call('ZADD', waiting, due, hash) end
if most_texts == '0' then return 1 end
local first_text = 10 + num_damaged
for number = 10, first_text - 1 do redis.call('LREM', texts, 0, ARGV[number]) end
for number = first_text, #ARGV do
    if not redis.call('LPOS', texts, ARGV[number]) then redis.call('RPUSH', texts, ARGV[number]) end
end
redis.call('LTRIM', texts, -most_texts, -1)
redis.call('PEXPIRE', texts, milliseconds)
return 1
"""
# Takes timelines without a memory out of the waiting ones.
DROP_DUE = """
for number = 2, #KEYS do
    if redis.call('EXISTS', KEYS[number]) == 0 then redis.call('ZREM', KEYS[1], ARGV[number - 1]) end
end
"""
FORGET = """
local texts, models = unpack(KEYS)
local before_model, after_model, waiting, hash = unpack(ARGV)
local deleted = {redis.call('DEL', texts)}
for _, model in ipairs(redis.call('SMEMBERS', models)) do
    if redis.call('DEL', before_model .. model .. after_model) == 1 then deleted[#deleted + 1] = model end
    redis.call('ZREM', waiting .. model, hash)
end
return deleted
"""


def hash_for_key(timeline_id: str) -> str:
    """
    Returns the SHA-256 of an id, which stands for it in keys: an id is the client's, and might hold a line break, the
    parts of another key, or a pattern.
    """
    return hashlib.sha256(timeline_id.encode()).hexdigest()


class StoredTimeline(NamedTuple):
    """
    A stored timeline: the version and the bytes of a model's memory, empty and None without one, and the texts of its
    last posts, oldest first, which all models share. The next save deletes `damaged` texts, which cannot be read.
    `hashed` is the hash of its id, where it was found by an alarm that is due.
    """

    version: bytes = b""
    memory: bytes | None = None
    texts: tuple[bytes, ...] = ()
    damaged: tuple[bytes, ...] = ()
    hashed: str = ""


class Forgotten(NamedTuple):
    """The parts of a timeline that were deleted: the memories of `models`, and whether there were texts."""

    models: tuple[str, ...] = ()
    texts: bool = False


class RedisStore:
    """
    Stores one memory for each timeline and model, with the key `tempoformer:memory:MODEL:HASH`, so that models which
    run side by side do not overwrite each other. HASH is the SHA-256 of the timeline's id. The memory of a model that
    is not used any more expires.

    A memory begins with its version, random bytes that are new at each write. A write succeeds only if the stored
    version is the one read before: if two processes step a timeline at the same time, one of them must read again. No
    lock is held.

    Args:
        client (`redis.Redis`): A client that returns bytes (`decode_responses=False`, the default).
        max_idle_seconds (`float`, *optional*, defaults to 90 days):
            Time without a post, by the server's clock, after which a model's memory of a timeline is deleted, and so
            are its texts. At least 0.001.
        keep_texts (`int`, *optional*, defaults to 0):
            Number of posts of each timeline whose texts are stored, with the key `tempoformer:texts:HASH`, so that a
            new model can read them. 0 stores none, and reads none. More than 0 needs Redis 6.0.6.
    """

    def __init__(self, client: redis.Redis, max_idle_seconds: float = 90 * 86400, keep_texts: int = 0):
        self.client, self.milliseconds, self.keep_texts = client, round(1000 * max_idle_seconds), keep_texts
        self.save_script, self.forget_script = client.register_script(SAVE), client.register_script(FORGET)
        self.drop_script = client.register_script(DROP_DUE)

    def load(self, model: str, timeline_ids: Iterable[str]) -> dict[str, StoredTimeline]:
        """Returns a model's memory of each of one or more timelines, and the stored texts."""
        hashes = {timeline_id: hash_for_key(timeline_id) for timeline_id in timeline_ids}
        return dict(zip(hashes, self.load_hashes(model, list(hashes.values())), strict=True))

    def due(self, model: str, now: float, most: int) -> list[StoredTimeline]:
        """Returns up to `most` timelines with an alarm of the model that was due by now, in seconds since 1970."""
        hashes = self.client.zrangebyscore(WAITING + model, "-inf", now, 0, most)
        hashes = [hashed.decode() for hashed in hashes]
        found = self.load_hashes(model, hashes) if hashes else []
        # Memories that have expired leave nothing to raise.
        if gone := [hashed for hashed, stored in zip(hashes, found, strict=True) if stored.memory is None]:
            self.drop_script([WAITING + model, *(f"{MEMORY}{model}:{hashed}" for hashed in gone)], gone)
        return [stored._replace(hashed=hashed) for hashed, stored in zip(hashes, found, strict=True) if stored.memory]

    def drop_due(self, model: str, stored: StoredTimeline):
        """Takes a timeline of [`due`], whose memory cannot be read, out of the waiting ones."""
        self.client.zrem(WAITING + model, stored.hashed)

    def load_hashes(self, model: str, hashes: list[str]) -> list[StoredTimeline]:
        """Returns a model's memory, and the stored texts, of timelines by the hashes of their ids."""
        pipeline = self.client.pipeline(transaction=False)
        pipeline.mget([f"{MEMORY}{model}:{hashed}" for hashed in hashes])
        for hashed in hashes if self.keep_texts else ():
            pipeline.lrange(TEXTS + hashed, 0, -1)
        values, *texts = execute(pipeline)
        texts = map(tuple, texts or [()] * len(hashes))
        parts = [() if value is None else (value[:VERSION_BYTES], value[VERSION_BYTES:]) for value in values]
        return [StoredTimeline(*part)._replace(texts=kept) for part, kept in zip(parts, texts, strict=True)]

    def save(
        self,
        model: str,
        timelines: Mapping[str, tuple[StoredTimeline, bytes, list[str]]],
        due: Mapping[str, float] | None = None,
    ) -> dict[str, bool]:
        """
        Replaces memories, each by itself, and adds texts. `timelines` has the stored timeline as it was read, the new
        memory and the texts of new posts; `due` has the time at which an alarm of a timeline is to be raised, if one
        waits. Returns the timelines that no other process has written since: True for one that was written, False for
        one that was forgotten meanwhile. Raises Redis's own error for the first one that it refuses.
        """
        pipeline = self.client.pipeline(transaction=False)
        for timeline_id, (read, memory, texts) in timelines.items():
            hashed = hash_for_key(timeline_id)
            keys = [f"{MEMORY}{model}:{hashed}", TEXTS + hashed, MODELS, WAITING + model]
            value, had_texts = secrets.token_bytes(VERSION_BYTES) + memory, int(bool(read.texts))
            values = [read.version, had_texts, value, self.milliseconds, model, self.keep_texts, len(read.damaged)]
            values += [hashed, (due or {}).get(timeline_id, ""), *read.damaged, *texts]
            self.save_script(keys, values, client=pipeline)
        return {name: done == 1 for name, done in zip(timelines, execute(pipeline), strict=True) if done}

    def check(self):
        """Raises Redis's own error if it cannot be reached or does not write, because it is full or read-only."""
        self.client.set(WRITABLE, 1, px=1000)

    def count_dropped(self) -> dict[str, int]:
        """
        Returns how many keys of the whole server Redis has dropped since its start: "evicted", as its memory was full,
        and "expired".
        """
        stats = self.client.info("stats")
        return {reason: stats[f"{reason}_keys"] for reason in ("evicted", "expired")}

    def forget(self, timeline_id: str) -> Forgotten:
        """
        Deletes a timeline, its texts and the memories of all models. A step under way does not write it back. Returns
        the deleted parts.
        """
        hashed = hash_for_key(timeline_id)
        had_texts, *models = self.forget_script([TEXTS + hashed, MODELS], [MEMORY, f":{hashed}", WAITING, hashed])
        return Forgotten(tuple(sorted(model.decode() for model in models)), bool(had_texts))

    def models(self) -> list[str]:
        """Returns the models that have ever had a memory here."""
        return sorted(model.decode() for model in self.client.smembers(MODELS))

    def forget_model(self, model: str) -> int:
        """
        Deletes all memories of a model, and nothing else. Returns how many there were. Stop the model first: a memory
        that it writes meanwhile may stay. Raises a `ValueError` for what is not the name of a model.
        """
        if not re.fullmatch("[0-9a-f]{16}", model):
            raise ValueError(f"A model's name is 16 digits from 0 to f, as `/health` answers it, but got {model!r}.")
        self.client.delete(WAITING + model)
        keys: Iterator[bytes] = self.client.scan_iter(f"{MEMORY}{model}:*", count=KEYS_AT_ONCE)
        number = 0
        while some := list(islice(keys, KEYS_AT_ONCE)):
            number += self.client.unlink(*some)
        return number


def execute(pipeline: redis.client.Pipeline) -> list:
    """Returns the results of a pipeline. Raises its first error, without the ids and values of the command."""
    # By default the library puts them into the error.
    results = pipeline.execute(raise_on_error=False)
    for error in (result for result in results if isinstance(result, redis.RedisError)):
        raise error
    return results
