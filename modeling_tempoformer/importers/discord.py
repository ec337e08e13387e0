"""Discord: a channel as JSON, from DiscordChatExporter."""

from collections.abc import Iterator
from typing import Any

from ..common.columns import TIMELINE
from .export import Export, tell_left_out


# Other kinds are notices of Discord itself (somebody joined, pinned a message, began a thread) under a person's name.
PEOPLE = ("Default", "Reply")


def is_mine(export: Export) -> bool:
    """Tells whether a file has the messages of a channel of Discord, and the user does not say where they are."""
    value = export.value
    return not export.is_described and isinstance(value, dict) and {"guild", "channel", "messages"} <= value.keys()


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the messages of people: a channel is a timeline."""
    left_out = 0
    for place, chat in export.items():
        for number, post in enumerate(chat["messages"]):
            if post["type"] not in PEOPLE or post["author"]["isBot"]:
                left_out += 1
                continue
            ours = {TIMELINE: chat["channel"]["id"], "timestamp": post["timestamp"], "text": post["content"]}
            ours |= {"speaker": post["author"]["id"], "post_id": post["id"]}
            yield f"{place}, message {number} (counting from 0)", ours
    tell_left_out(export, left_out, "notices and messages of bots")
