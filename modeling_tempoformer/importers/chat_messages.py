"""Chats: messages with `role` and `content`, as programs send them to language models."""

from collections.abc import Iterator
from typing import Any

from ..common.columns import TIMELINE
from ..common.files import name_of_timeline
from ..timeline_tempoformer import is_message, read_message
from .export import Export


MESSAGES = "messages"


def is_mine(export: Export) -> bool:
    """Tells whether a file has messages, or objects with a list of them, and the user does not say where they are."""
    value = export.value
    return not export.is_described and (is_message(value) or has_messages(value))


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the messages. An object with a list of them is a timeline, named by its number if it has no id."""
    for number, (place, value) in enumerate(export.items()):
        if not has_messages(value):
            yield place, read_message(value)
            continue
        name = value.get(TIMELINE, f"{name_of_timeline(export.path)}-{number}")
        timeline = {} if export.form.one_timeline else {TIMELINE: name}
        for row, message in enumerate(value[MESSAGES]):
            yield f"{place}, message {row} (counting from 0)", {**read_message(message), **timeline}


def has_messages(value: Any) -> bool:
    """Tells whether an object has a list of messages."""
    messages = value.get(MESSAGES) if isinstance(value, dict) else None
    return isinstance(messages, list) and bool(messages) and all(map(is_message, messages))
