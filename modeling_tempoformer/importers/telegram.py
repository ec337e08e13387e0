"""Telegram: a chat as JSON, from Telegram Desktop."""

from collections.abc import Iterator
from typing import Any

from ..common.columns import TIMELINE
from .export import Export, tell_left_out


def is_mine(export: Export) -> bool:
    """Tells whether a file has a chat of Telegram, and the user does not say where its messages are."""
    value = export.value
    return not export.is_described and isinstance(value, dict) and {"name", "type", "id", "messages"} <= value.keys()


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the messages of people: a chat is a timeline. Texts with links or bold words are lists of pieces."""
    left_out = 0
    for place, chat in export.items():
        for number, post in enumerate(chat["messages"]):
            if post["type"] != "message":
                left_out += 1
                continue
            text = "".join(part if isinstance(part, str) else part["text"] for part in post["text"])
            # `date` is in the time zone of the computer.
            ours = {TIMELINE: chat["id"], "text": text, "timestamp": post["date_unixtime"]}
            ours |= {"speaker": post.get("from_id"), "post_id": post["id"]}
            yield f"{place}, message {number} (counting from 0)", ours
    tell_left_out(export, left_out, "calls and notices")
