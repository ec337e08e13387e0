"""
Deletes the memories that a live service keeps in Redis for one model, such as one that is not in service any more.

    tempoformer forget --model 0123456789abcdef --redis redis://127.0.0.1:6379/0

Stop the servers of this model first. Texts, and the memories of other models, stay. `POST /forget` of a server forgets
one person, for all models.
"""

from dataclasses import dataclass, field

import redis

from modeling_tempoformer.common.command_line import parse

from ..redis_store import RedisStore


@dataclass(kw_only=True)
class ForgetArguments:
    """The model, and the Redis server."""

    model: str = field(
        metadata={"help": "The name of the model: 16 digits, `model` in the answer of `GET /health` of its server."}
    )
    redis: str = field(default="redis://127.0.0.1:6379/0", metadata={"help": "The address of the Redis server."})


def main(arguments: list[str]):
    (args,) = parse([ForgetArguments], arguments)
    try:
        with redis.Redis.from_url(args.redis, socket_timeout=60, socket_connect_timeout=5) as client:
            store = RedisStore(client)
            number, known = store.forget_model(args.model), ", ".join(store.models()) or "none"
    except redis.RedisError as problem:
        # The address may hold a password.
        raise OSError(f"The server of --redis: {problem}") from None
    print(f"{number:,} memories of the model {args.model} were deleted. Models that have been in service: {known}.")
