"""Surveys timelines in one pass: their ids, their labels, whether they have times, and a fingerprint."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ..common.hashes import to_bytes
from ..timeline_tempoformer import NO_LABEL, Timeline
from .states import first_of, same_state


# A model adds the first four to a timeline, and reads none of them. The member that holds it out follows from seeds,
# and no training post is context alone.
NOT_READ = ("logits", "state_logits", "expert_logits", "explanations", "metadata", "held_out", "num_context")


class Survey(NamedTuple):
    """
    A summary of the timelines of a split.

    Attributes:
        timeline_ids (`list[str]`): The id of each timeline, in their order.
        labels (`Counter[int]`): The number of posts of each class id; -100 counts those without a label. Posts that
            are context alone do not count.
        timed (`bool`): True if the posts have times.
        fingerprint (`str`): The [`fingerprint`] of the timelines.
        first_posts (`dict[str, Counter[tuple[bool, bool]]]`): For `"timeline"` and `"speaker"`, the number of posts by
            whether they are the first of it, and whether they have a label. Without speakers both are the same.
        unchanged (`Counter[int]`): The number of posts of each class id whose state is the same as in the post that
            they are compared with.
    """

    timeline_ids: list[str]
    labels: Counter[int]
    timed: bool
    fingerprint: str
    first_posts: dict[str, Counter[tuple[bool, bool]]]
    unchanged: Counter[int]

    def describe(self, names: list[str]) -> str:
        """Returns the numbers of timelines, of posts and of posts of each class, in words."""
        classes = [f"{self.labels[label]} {name}" for label, name in enumerate(names) if self.labels[label]]
        classes += [f"{self.labels[-100]} without label"] if self.labels[-100] else []
        return f"{len(self.timeline_ids)} timelines, {self.labels.total()} posts ({', '.join(classes)})"


def survey(timelines: Iterable[Timeline]) -> Survey:
    """
    Reads timelines once, one after the other. Raises the errors of a stream, and a `ValueError` that names a timeline
    with times where the first one has none, or without times where the first one has some.
    """
    ids: list[str] = []
    labels, unchanged = Counter(), Counter()
    first_posts = {"timeline": Counter(), "speaker": Counter()}
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
        labels.update(timeline.labels[timeline.num_context :])
        is_labelled = [label != NO_LABEL for label in timeline.labels]
        for rule, counts in first_posts.items():
            counts.update(zip(first_of(timeline, rule).tolist(), is_labelled, strict=True))
        states = timeline.states or [""] * len(timeline)
        for label, state, post in zip(timeline.labels, states, timeline.compared_posts(), strict=True):
            if label != NO_LABEL and state and post >= 0 and same_state(states[post], state):
                unchanged[label] += 1
        values = {name: value for name, value in vars(timeline).items() if name not in NOT_READ}
        digest.update(to_bytes(values))
    return Survey(ids, labels, timed, digest.hexdigest(), first_posts, unchanged)
