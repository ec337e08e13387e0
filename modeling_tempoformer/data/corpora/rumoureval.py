"""Longitudinal Rumour Stance (LRS): RumourEval-2017 threads, labelled where the stance switches."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files import read_lines


OPINION = {"support": 1, "deny": -1, "query": -1, "comment": 0}


def stance_switches(stances: list[str]) -> list[str]:
    """
    Switch or No-Switch for each post of a thread in time order (paper, section 5.1).

    With n_i the supports less the denials and queries of posts 0..i, post i > 0 is a Switch if n_i is not 0 and some
    post j with 0 < j <= i took n from 0 to the sign of n_i.
    """
    labels, balance, switched = [], 0, set()
    for position, stance in enumerate(stances):
        previous, balance = balance, balance + OPINION[stance]
        sign = (balance > 0) - (balance < 0)
        if position > 0 and previous == 0 and sign:
            switched.add(sign)
        labels.append("Switch" if position > 0 and sign in switched else "No-Switch")
    return labels


def read_rumoureval(path: str | Path) -> Iterator[dict[str, Any]]:
    """
    Posts of RumourEval-2017 threads, one JSON object in each line (`.gz` or plain): `thread_id`, `source` and
    `replies` with `id`, `created_at`, `text`, `stance`. Posts are sorted by time; ties keep their order.
    """
    for _, line in read_lines(path):
        thread = json.loads(line)
        posts = sorted([thread["source"], *thread["replies"]], key=lambda post: post["created_at"])
        for post in posts:
            if post["stance"] not in OPINION:
                raise ValueError(
                    f"Thread {thread['thread_id']}, post {post['id']}: unknown stance {post['stance']!r}."
                )
        labels = stance_switches([post["stance"] for post in posts])
        for post, label in zip(posts, labels, strict=True):
            yield {
                "post_id": post["id"],
                "timeline_id": thread["thread_id"],
                "timestamp": post["created_at"],
                "text": post["text"],
                "label": label,
            }
