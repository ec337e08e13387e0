"""Keeps memories of timelines in Redis, shared by all processes that reach it, each model's apart."""

import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import redis


# The keys are `tempoformer:memory:MODEL:ID` and `tempoformer:texts:ID`; the third is the set of models.
MEMORY, TEXTS, MODELS = "tempoformer:memory:", "tempoformer:texts:", "tempoformer:models"
VERSION_BYTES = 16
# Writes a memory and the texts of new posts, unless another process has written the memory since it was read. A
# timeline that was forgotten or has expired meanwhile is not written, and counts as written. Redis runs a script
# atomically. Two models that get the same post keep its text once.
SAVE = f"""
local memory, texts, models = unpack(KEYS)
local read_version, had_texts, value, milliseconds, model, most_texts = unpack(ARGV)
local version = redis.call('GETRANGE', memory, 0, {VERSION_BYTES - 1})
local is_gone = read_version ~= '' or had_texts == '1' and redis.call('EXISTS', texts) == 0
if version == '' and is_gone then return 1 end
if version ~= read_version then return 0 end
redis.call('SET', memory, value, 'PX', milliseconds)
redis.call('SADD', models, model)
if most_texts == '0' then return 1 end
for number = 7, #ARGV do
    if not redis.call('LPOS', texts, ARGV[number]) then redis.call('RPUSH', texts, ARGV[number]) end
end
redis.call('LTRIM', texts, -most_texts, -1)
redis.call('PEXPIRE', texts, milliseconds)
return 1
"""
FORGET = """
local texts, models = unpack(KEYS)
local before_model, after_model = unpack(ARGV)
local deleted = redis.call('DEL', texts)
for _, model in ipairs(redis.call('SMEMBERS', models)) do
    deleted = deleted + redis.call('DEL', before_model .. model .. after_model)
end
return deleted
"""


class StoredTimeline(NamedTuple):
    """
    A stored timeline: the version and the bytes of a model's memory, both empty without one, and the texts
    of its last posts, oldest first, which all models share.
    """

    version: bytes = b""
    memory: bytes = b""
    texts: tuple[bytes, ...] = ()


class RedisStore:
    """
    Stores one memory for each timeline and model, with the key `tempoformer:memory:MODEL:ID`, so that models which run
    side by side do not overwrite each other. That of a model that is not used any more expires.

    A memory begins with its version, random bytes that are new at each write. A write succeeds only if the stored
    version is the one that was read: if two processes step a timeline at the same time, one of them must read again.
    No lock is held.

    Args:
        client (`redis.Redis`): A client that returns bytes (`decode_responses=False`, the default).
        max_idle_seconds (`float`, *optional*, defaults to 90 days):
            Time without a post, by the server's clock, after which a model's memory of a timeline is deleted, and so
            are its texts. At least 0.001.
        keep_texts (`int`, *optional*, defaults to 0):
            Number of posts of each timeline whose texts are stored, with the key `tempoformer:texts:ID`, so that a new
            model can read them. 0 stores none, and reads none. More than 0 needs Redis 6.0.6.
    """

    def __init__(self, client: redis.Redis, max_idle_seconds: float = 90 * 86400, keep_texts: int = 0):
        self.client, self.milliseconds, self.keep_texts = client, round(1000 * max_idle_seconds), keep_texts
        self.save_script, self.forget_script = client.register_script(SAVE), client.register_script(FORGET)

    def load(self, model: str, timeline_ids: Iterable[str]) -> dict[str, StoredTimeline]:
        """Returns what a model remembers of each timeline, at least one, and the stored texts."""
        timeline_ids = list(timeline_ids)
        pipeline = self.client.pipeline(transaction=False)
        pipeline.mget([f"{MEMORY}{model}:{timeline_id}" for timeline_id in timeline_ids])
        for timeline_id in timeline_ids if self.keep_texts else ():
            pipeline.lrange(TEXTS + timeline_id, 0, -1)
        values, *texts = execute(pipeline)
        texts = map(tuple, texts or [()] * len(timeline_ids))
        parts = [((value or b"")[:VERSION_BYTES], (value or b"")[VERSION_BYTES:]) for value in values]
        return {
            timeline_id: StoredTimeline(*part, kept)
            for timeline_id, part, kept in zip(timeline_ids, parts, texts, strict=True)
        }

    def save(self, model: str, timelines: Mapping[str, tuple[StoredTimeline, bytes, list[str]]]) -> set[str]:
        """
        Replaces memories, each by itself, and adds texts. Each timeline is given with what was read of it, the new
        memory and the texts of new posts. Returns the timelines that no other process has written since. Raises
        Redis's own error for the first one that it refuses.
        """
        pipeline = self.client.pipeline(transaction=False)
        for timeline_id, (read, memory, texts) in timelines.items():
            keys = [f"{MEMORY}{model}:{timeline_id}", TEXTS + timeline_id, MODELS]
            value, had_texts = secrets.token_bytes(VERSION_BYTES) + memory, int(bool(read.texts))
            values = [read.version, had_texts, value, self.milliseconds, model, self.keep_texts, *texts]
            self.save_script(keys, values, client=pipeline)
        return {timeline_id for timeline_id, done in zip(timelines, execute(pipeline), strict=True) if done}

    def forget(self, timeline_id: str) -> bool:
        """
        Deletes a timeline, its texts and the memories of all models. A step under way does not write it back. Returns
        whether it existed.
        """
        return bool(self.forget_script([TEXTS + timeline_id, MODELS], [MEMORY, f":{timeline_id}"]))


def execute(pipeline: redis.client.Pipeline) -> list:
    """Returns the results of a pipeline. Raises its first error, without the ids and values of the command."""
    # By default the library puts them into the error.
    results = pipeline.execute(raise_on_error=False)
    for error in (result for result in results if isinstance(result, redis.RedisError)):
        raise error
    return results
