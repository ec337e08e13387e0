"""
Metadata of a post, which no model reads: its group, the unit that keeps its timeline in one split, and the label that
each annotator gave it.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..common.columns import Columns
from ..timeline_tempoformer import NO_LABEL, Post, Timeline
from .agreement import krippendorff_alpha
from .post_errors import PostError


# Values in which the rows of one post must agree, as attributes of a post or of its metadata, and the roles of their
# columns.
SHARED = {"text": "text", "timestamp": "timestamp", "speaker": "speaker", "state": "state"}
SHARED_METADATA = {"group": "group", "unit": "split"}


class Metadata(NamedTuple):
    """
    Metadata of a post.

    Attributes:
        group (`str`, *optional*): The group by which it is scored; empty if it is missing, None without such a column.
        unit (`str`): The family, clinic and so on of its timeline, which no split divides; empty without one.
        labels (`dict[str, int]`): The class id that each annotator gave it.
    """

    group: str | None = None
    unit: str = ""
    labels: Mapping[str, int] = {}


def merge_annotators(posts: Sequence[Post], columns: Columns) -> list[Post]:
    """
    Merges the rows of a timeline in which annotators have labelled the same post.

    Args:
        posts (`Sequence[Post]`): The rows, each with the label of one annotator in its metadata.
        columns ([`Columns`]): The column of each role. Rows are of one post if they have the same id, or
            without a column of ids the same time and text.

    Returns:
        `list[Post]`: Each post once, at its first row, with the [`majority`] of its labels. Raises a [`PostError`] for
        rows of one post that differ in something else, for an annotator who has labelled a post twice, and for posts
        that have neither ids nor times.
    """
    merged: dict[Hashable, Post] = {}
    for post in posts:
        if columns["id"] is None and post.timestamp is None:
            problem = (
                "posts without times need ids, so that the rows of a post are found: name them by --columns id=NAME"
            )
            raise PostError(post.row, columns["annotator"], next(iter(post.metadata.labels), ""), problem)
        key = (post.timestamp, post.text) if columns["id"] is None else post.post_id
        first = merged.setdefault(key, post)
        if first is not post:
            check_same_post(first, post, columns)
            labels = {**first.metadata.labels, **post.metadata.labels}
            merged[key] = first._replace(metadata=first.metadata._replace(labels=labels))
    return [post._replace(label=majority(post.metadata.labels.values())) for post in merged.values()]


def check_same_post(first: Post, post: Post, columns: Columns):
    """Raises a [`PostError`] unless two rows of one post differ in their annotator and label alone."""
    pairs = [(role, getattr(first, name), getattr(post, name)) for name, role in SHARED.items()]
    pairs += [
        (role, getattr(first.metadata, name), getattr(post.metadata, name)) for name, role in SHARED_METADATA.items()
    ]
    for role, expected, value in pairs:
        if value != expected:
            problem = f"row {first.row} is of the same post, and has {expected!r} there"
            raise PostError(post.row, columns.get(role) or role, value, problem)
    if twice := first.metadata.labels.keys() & post.metadata.labels.keys():
        problem = "this annotator has labelled the post before"
        if columns["id"] is None:
            problem += "; posts of one time and text that are not the same need ids (--columns id=NAME)"
        raise PostError(post.row, columns["annotator"], min(twice), problem)


def majority(labels: Iterable[int]) -> int:
    """Returns the label that most annotators gave, -100 if there is none or a tie."""
    first, second = (Counter(labels).most_common(2) + [(NO_LABEL, 0)] * 2)[:2]
    return first[0] if first[1] > second[1] else NO_LABEL


def check_units(timeline_id: str, posts: Sequence[Post], columns: Columns):
    """Raises a [`PostError`] for a timeline whose posts belong to several units."""
    first = posts[0]
    for post in posts:
        if post.metadata.unit != first.metadata.unit:
            problem = (
                f"timeline {timeline_id!r} has {first.metadata.unit!r} in row {first.row}, but a timeline is never "
                "cut, so that its posts must agree in this column"
            )
            raise PostError(post.row, columns["split"], post.metadata.unit, problem)


def unit_of(timeline: Timeline) -> tuple[str, str | int]:
    """
    Returns what no split divides: the unit that a timeline belongs to, else the timeline itself.

    Args:
        timeline ([`Timeline`]): The timeline.

    Returns:
        `("unit", NAME)`, or `("timeline", ID)` for a timeline without a unit.
    """
    unit = timeline.metadata[0].unit if timeline.metadata else ""
    return ("unit", unit) if unit else ("timeline", timeline.timeline_id)


def all_metadata(timelines: Iterable[Timeline]) -> list[Metadata]:
    """Returns the metadata of all posts, in the order of the timelines."""
    return [metadata for timeline in timelines for metadata in timeline.metadata or [Metadata()] * len(timeline)]


def describe_annotators(timelines: Sequence[Timeline]) -> str:
    """
    Returns in words how many annotators, labels, posts with several labels and ties there are, and how well the
    annotators agree.
    """
    labels = [metadata.labels for metadata in all_metadata(timelines) if metadata.labels]
    several = [given.values() for given in labels if len(given) > 1]
    ties = sum(majority(given) == NO_LABEL for given in several)
    annotators, given = len(set().union(*labels)), sum(map(len, labels))
    classes = 1 + max((label for given in labels for label in given.values()), default=0)
    votes = np.array([[list(given).count(label) for label in range(classes)] for given in several])
    alpha = krippendorff_alpha(votes) if several else None
    return (
        f"{annotators} annotators gave {given} labels to {len(labels)} posts; a post has the label that most of them "
        f"gave. {len(several)} posts have several, and {ties} of these count as posts without a label: no label has "
        "more votes than the others."
        + ("" if alpha is None else f" On these posts they agree by Krippendorff's alpha {alpha:.3f}.")
    )
