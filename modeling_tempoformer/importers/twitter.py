"""Twitter: pages of posts, as twarc writes them."""

from collections.abc import Iterator
from typing import Any

from ..common.columns import TIMELINE
from .export import Export, tell_left_out


def is_mine(export: Export) -> bool:
    """Tells whether a file has pages of Twitter, and the user does not say where the posts are."""
    value = export.value
    if export.is_described or not isinstance(value, dict) or not isinstance(value.get("data"), list):
        return False
    return bool(value["data"]) and all({"author_id", "created_at"} <= post.keys() for post in value["data"])


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the posts of all pages: a person is a timeline."""
    left_out = 0
    for place, page in export.items():
        if "data" not in page:
            left_out += 1
            continue
        for number, post in enumerate(page["data"]):
            ours = {TIMELINE: post["author_id"], "timestamp": post["created_at"], "text": post["text"]}
            ours["post_id"] = post["id"]
            yield f"{place}, post {number} (counting from 0)", ours
    tell_left_out(export, left_out, "pages without posts, such as errors")
