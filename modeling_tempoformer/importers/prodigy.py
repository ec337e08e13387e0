"""Prodigy: answers of the interface with choices, from `db-out`."""

from collections.abc import Iterator
from typing import Any

from .export import Export, tell_left_out


ANSWER, ACCEPT = "answer", "accept"


def is_mine(export: Export) -> bool:
    """Tells whether a file has answers of Prodigy."""
    return isinstance(export.value, dict) and {ANSWER, "_task_hash"} <= export.value.keys()


def as_table(export: Export) -> Iterator[tuple[str, Any]]:
    """Yields the answers that were accepted, not those that were rejected or ignored."""
    left_out = 0
    for place, answer in export.items():
        if answer[ANSWER] == ACCEPT:
            yield place, answer
        else:
            left_out += 1
    tell_left_out(export, left_out, "answers that were rejected or ignored")
