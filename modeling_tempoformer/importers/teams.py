"""Teams: pages of messages, as Microsoft Graph answers them."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

from ..common.columns import TIMELINE
from .export import Export, tell_left_out


TAG = re.compile("<[^>]+>")


def is_mine(export: Export) -> bool:
    """Tells whether a file has a page of messages of Teams, and the user does not say where they are."""
    value = export.value
    if export.is_described or not isinstance(value, dict) or not isinstance(value.get("value"), list):
        return False
    return bool(value["value"]) and all("messageType" in post for post in value["value"])


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the messages of people, HTML as text: a chat or a channel is a timeline."""
    left_out = 0
    for place, page in export.items():
        for number, post in enumerate(page["value"]):
            writer = (post["from"] or {}).get("user")
            if post["messageType"] != "message" or not writer:
                left_out += 1
                continue
            text = post["body"]["content"] or ""
            if post["body"]["contentType"] == "html":
                text = " ".join(unescape(TAG.sub(" ", text)).split())
            ours = {TIMELINE: post.get("chatId") or post["channelIdentity"]["channelId"], "text": text}
            ours |= {"timestamp": post["createdDateTime"], "speaker": writer["id"], "post_id": post["id"]}
            yield f"{place}, message {number} (counting from 0)", ours
    tell_left_out(export, left_out, "events and messages of bots")
