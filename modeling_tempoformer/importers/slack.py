"""Slack: the export of a workspace, which has a folder for each channel with a file for each day."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..common.columns import TIMELINE
from .export import Export, tell_left_out


# People write those without a subtype, answers that a channel sees too, texts with files, and `/me`.
PEOPLE = (None, "thread_broadcast", "file_share", "me_message")


def is_mine(export: Export) -> bool:
    """Tells whether a file has messages of Slack, and the user does not say where their values are."""
    value = export.value
    if export.is_described or not isinstance(value, dict) or TIMELINE in value:
        return False
    return value.get("type") == "message" and "ts" in value


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the messages of people: a channel, which is the file's folder, is a timeline."""
    left_out, channel = 0, Path(export.path).resolve().parent.name
    for place, post in export.items():
        if post.get("subtype") not in PEOPLE or "bot_id" in post:
            left_out += 1
            continue
        ours = {TIMELINE: channel, "timestamp": post["ts"], "speaker": post.get("user"), "post_id": post["ts"]}
        yield place, {**post, **ours}
    tell_left_out(export, left_out, "notices and messages of bots")
