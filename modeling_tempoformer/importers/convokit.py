"""ConvoKit: the utterances of a corpus, `utterances.jsonl`."""

import re
from collections.abc import Iterator
from typing import Any

from ..common.columns import TIMELINE
from .export import Export


# Stands for a value that JSON cannot write.
PICKLE_MARK = re.compile(r"<##bin\{\d+\}&&@\*\*>")
IN_PICKLE = (
    "ConvoKit has written the value itself, such as an integer of NumPy or a date, to a pickle beside the file: write "
    'the corpus as a table by Corpus("folder").get_utterances_dataframe().to_csv("posts.csv")'
)


def is_mine(export: Export) -> bool:
    """Tells whether a file has utterances of ConvoKit, and the user does not say where their values are."""
    value = export.value
    if export.is_described or not isinstance(value, dict) or TIMELINE in value:
        return False
    return {"conversation_id", "speaker", "text", "meta"} <= value.keys()


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the utterances: a conversation is a timeline. What the corpus itself says of them is in `meta`."""
    for place, post in export.items():
        yield place, {**post, TIMELINE: post["conversation_id"], "post_id": post["id"]}
