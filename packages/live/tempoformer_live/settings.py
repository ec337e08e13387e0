"""The settings of the server, by flags and by environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from modeling_tempoformer.common.command_line import parse, split_recipes


# Kubernetes sets variables named after its services (`TEMPOFORMER_PORT`), which would be taken for settings without
# the second word.
PREFIX = "TEMPOFORMER_SERVE_"


def setting(variable: str, description: str, **default: Any) -> Any:
    """Returns a field whose help names its environment variable."""
    return field(**default, metadata={"help": f"{description} Variable: {PREFIX}{variable}."})


@dataclass(kw_only=True)
class ServerSettings:
    """
    The model, the store, and what the server takes and says.

    Args:
        model (`str`): A TempoFormer: a folder or a Hub id.
        redis (`str`, *optional*, defaults to `"redis://127.0.0.1:6379/0"`): The address of the Redis server.
        keep_texts (`int`, *optional*, defaults to 0): Posts of each timeline whose texts Redis keeps.
        max_idle_days (`float`, *optional*, defaults to 90): Days without a post after which a timeline is forgotten.
        max_posts (`int`, *optional*, defaults to 500): The most posts of a request that scores several.
        max_bytes (`int`, *optional*, defaults to 256,000): The most bytes of a request.
        host (`str`, *optional*, defaults to `"127.0.0.1"`): The address to listen on.
        port (`int`, *optional*, defaults to 8000): The port to listen on.
        log_format (`str`, *optional*, defaults to `"text"`): "text", or "json" for one JSON object a line.
        notice_seconds (`float`, *optional*, defaults to 5): How long new requests are answered after SIGTERM.
        drain_seconds (`float`, *optional*, defaults to 30): How long requests in flight are waited for after that.

    Raises a `ValueError` for a number that is too small.
    """

    model: str = setting("MODEL", "A TempoFormer: a folder or a Hub id.")
    redis: str = setting("REDIS", "The address of the Redis server.", default="redis://127.0.0.1:6379/0")
    keep_texts: int = setting(
        "KEEP_TEXTS",
        "Keep the texts of the last posts of each timeline, this many, in Redis, for a new model to read.",
        default=0,
    )
    max_idle_days: float = setting("MAX_IDLE_DAYS", "Forget a timeline after this time without a post.", default=90.0)
    max_posts: int = setting("MAX_POSTS", "The most posts of a request that scores several.", default=500)
    max_bytes: int = setting("MAX_BYTES", "The most bytes of a request.", default=256_000)
    host: str = setting("HOST", "The address to listen on.", default="127.0.0.1")
    port: int = setting("PORT", "The port to listen on.", default=8000)
    log_format: Literal["text", "json"] = setting(
        "LOG_FORMAT", "Log lines of text, or one JSON object a line.", default="text"
    )
    notice_seconds: float = setting(
        "NOTICE_SECONDS", "After SIGTERM, answer new requests for this long while /ready says 503.", default=5.0
    )
    drain_seconds: float = setting(
        "DRAIN_SECONDS", "After that, wait at most this long for the answers to requests in flight.", default=30.0
    )

    def __post_init__(self):
        for name, least in (("keep_texts", 0), ("notice_seconds", 0), ("drain_seconds", 0), ("max_posts", 1)):
            if (value := getattr(self, name)) < least:
                raise ValueError(f"--{name} must be at least {least}, got {value}.")
        if self.max_bytes < 1 or self.max_idle_days <= 0:
            raise ValueError("--max_bytes and --max_idle_days must be more than 0.")


def environment_flags(environment: Mapping[str, str]) -> list[str]:
    """
    Returns the flags that environment variables stand for, to be read before the command line's. Raises a
    `ValueError` for a variable with the prefix that is no setting, such as a misspelled one.
    """
    given = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    flags = {f"{PREFIX}{one.name.upper()}": one.name for one in fields(ServerSettings)}
    if unknown := sorted(given.keys() - flags.keys()):
        raise ValueError(f"The environment variable {unknown[0]} is no setting. These are: {', '.join(flags)}.")
    return [f"--{flags[name]}={value}" for name, value in given.items()]


def read_settings(arguments: list[str], environment: Mapping[str, str]) -> ServerSettings:
    """Reads the arguments of `tempoformer serve`. Flags win over environment variables, and these over recipes."""
    recipes, flags = split_recipes(arguments)
    (settings,) = parse([ServerSettings], [*recipes, *environment_flags(environment), *flags])
    return settings
