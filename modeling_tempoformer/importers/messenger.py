"""Facebook and Instagram: a conversation as JSON, from "Download your information"."""

from collections.abc import Iterator
from typing import Any

from ..common.columns import TIMELINE
from .export import Export, tell_left_out


def is_mine(export: Export) -> bool:
    """Tells whether a file has a conversation of Messenger, and the user does not say where its messages are."""
    value = export.value
    if export.is_described or not isinstance(value, dict):
        return False
    return {"participants", "messages", "thread_path"} <= value.keys()


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the messages with a text: a conversation is a timeline. Times are in milliseconds."""
    left_out = 0
    for place, chat in export.items():
        for number, post in enumerate(chat["messages"]):
            if "content" not in post:
                left_out += 1
                continue
            ours = {TIMELINE: chat["thread_path"], "text": post["content"], "speaker": post["sender_name"]}
            ours["timestamp"] = str(int(post["timestamp_ms"]) / 1000)
            yield f"{place}, message {number} (counting from 0)", ours
    tell_left_out(export, left_out, "messages without a text, such as pictures")
