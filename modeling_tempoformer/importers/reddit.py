"""Reddit: comments or submissions as JSON lines, from Pushshift or Arctic Shift."""

from collections.abc import Iterator
from typing import Any

from ..common.columns import TIMELINE
from .export import Export


def is_mine(export: Export) -> bool:
    """Tells whether a file has posts of Reddit, and the user does not say where their values are."""
    value = export.value
    if export.is_described or not isinstance(value, dict) or TIMELINE in value:
        return False
    return {"author", "created_utc", "id"} <= value.keys() and not value.keys().isdisjoint(("body", "selftext"))


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the posts: a person is a timeline."""
    for place, post in export.items():
        ours = {TIMELINE: post["author"], "timestamp": post["created_utc"], "post_id": post["id"]}
        yield place, {**post, **ours, "text": post["body"] if "body" in post else post["selftext"]}
