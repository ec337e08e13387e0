"""Keeps memories of timelines in Redis, shared by all processes that reach it."""

import secrets
from collections.abc import Iterable

import redis


KEY = "tempoformer:timeline:"
VERSION_BYTES = 16
# Writes a memory unless another process has written since it was read. A memory that was forgotten or has expired
# meanwhile is not written, and counts as written. Redis runs a script atomically.
SAVE = f"""
local version = redis.call('GETRANGE', KEYS[1], 0, {VERSION_BYTES - 1})
if version == '' and ARGV[1] ~= '' then return 1 end
if version ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""


class RedisStore:
    """
    Stores one memory for each timeline, with the key `tempoformer:timeline:ID`.

    A memory begins with its version, random bytes that are new at each write. A write succeeds only if the stored
    version is the one that was read: if two processes step a timeline at the same time, one of them must read again.
    No lock is held. Every model needs a database of its own (`redis://127.0.0.1:6379/1`).

    Args:
        client (`redis.Redis`): A client that returns bytes (`decode_responses=False`, the default).
        max_idle_seconds (`float`, *optional*, defaults to 90 days):
            Time without a post, by the server's clock, after which a timeline is deleted. At least 0.001.
    """

    def __init__(self, client: redis.Redis, max_idle_seconds: float = 90 * 86400):
        self.client, self.milliseconds = client, round(1000 * max_idle_seconds)
        self.save_script = client.register_script(SAVE)

    def load(self, timeline_ids: Iterable[str]) -> dict[str, tuple[bytes, bytes]]:
        """Returns the version and the memory of each timeline, at least one; both are empty for a new timeline."""
        timeline_ids = list(timeline_ids)
        values = [value or b"" for value in self.client.mget([KEY + timeline_id for timeline_id in timeline_ids])]
        parts = [(value[:VERSION_BYTES], value[VERSION_BYTES:]) for value in values]
        return dict(zip(timeline_ids, parts, strict=True))

    def save(self, memories: dict[str, tuple[bytes, bytes]]) -> set[str]:
        """
        Replaces memories, each by itself. Each is given with the version that was read. Returns the timelines that no
        other process has written since. Raises Redis's own error for the first memory that it refuses.
        """
        pipeline = self.client.pipeline(transaction=False)
        for timeline_id, (version, memory) in memories.items():
            value = secrets.token_bytes(VERSION_BYTES) + memory
            self.save_script([KEY + timeline_id], [version, value, self.milliseconds], client=pipeline)
        # By default the library puts the command into the error, with the id and the memory.
        written = pipeline.execute(raise_on_error=False)
        for error in (done for done in written if isinstance(done, redis.RedisError)):
            raise error
        return {timeline_id for timeline_id, done in zip(memories, written, strict=True) if done}

    def forget(self, timeline_id: str) -> bool:
        """Deletes a timeline. A step under way does not write it back. Returns whether it existed."""
        return bool(self.client.delete(KEY + timeline_id))
