"""Surveys timelines in one pass: their ids, their labels, whether they have times, and a fingerprint."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..timeline_tempoformer import Timeline


# A model adds the first three to a timeline, and reads none of them.
NOT_READ = ("logits", "state_logits", "explanations", "facts")


class Survey(NamedTuple):
    """
    Facts about the timelines of a split.

    Attributes:
        timeline_ids (`list[str]`): The id of each timeline, in their order.
        labels (`Counter[int]`): The number of posts of each class id; -100 counts those without a label.
        timed (`bool`): True if the posts have times.
        fingerprint (`str`): The [`fingerprint`] of the timelines.
    """

    timeline_ids: list[str]
    labels: Counter[int]
    timed: bool
    fingerprint: str

    def describe(self, names: list[str]) -> str:
        """The numbers of timelines, of posts and of posts of each class, in words."""
        classes = [f"{self.labels[label]} {name}" for label, name in enumerate(names) if self.labels[label]]
        classes += [f"{self.labels[-100]} without label"] if self.labels[-100] else []
        return f"{len(self.timeline_ids)} timelines, {self.labels.total()} posts ({', '.join(classes)})"


def survey(timelines: Iterable[Timeline]) -> Survey:
    """
    Reads timelines once, one after the other. Raises the errors of a stream, and a `ValueError` that names a timeline
    with times where the first one has none, or without times where the first one has some.
    """
    ids: list[str] = []
    labels: Counter[int] = Counter()
    timed, digest = True, hashlib.sha256()
    for timeline in timelines:
        has_times = timeline.timestamps is not None
        timed = timed if ids else has_times
        ids.append(timeline.timeline_id)
        if has_times != timed:
            problem = "has times" if has_times else "has no times"
            raise ValueError(
                f"Timeline {ids[-1]!r} {problem}, unlike timeline {ids[0]!r}: give all posts times or none."
            )
        labels.update(timeline.labels)
        values = {name: value for name, value in vars(timeline).items() if name not in NOT_READ}
        digest.update(to_bytes(values))
    return Survey(ids, labels, timed, digest.hexdigest())


def fingerprint(rows: Iterable[Mapping[str, Any]]) -> str:
    """The SHA-256 of all rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(to_bytes(row))
    return digest.hexdigest()


def to_bytes(row: Mapping[str, Any]) -> bytes:
    """The names and values of a row."""
    return repr(sorted(row.items())).encode()
