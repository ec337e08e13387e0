"""Labels posts by what comes: whether one of the posts after a post is a change."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..timeline_tempoformer import NO_LABEL, Timeline


def with_labels_ahead(
    timeline: Timeline, changes: Sequence[int], posts: int | None = None, seconds: float | None = None
) -> Timeline:
    """
    Returns a timeline with the label of each post replaced: 1 if a later post within reach has a label among
    `changes`, 0 if none has, -100 if that is not known.

    Args:
        timeline ([`Timeline`]): Posts in the order of time, with their labels (posts,).
        changes (`Sequence[int]`): The class ids that are a change.
        posts (`int`, *optional*): The number of next posts within reach. Only posts with a label count, and never the
            post itself.
        seconds (`float`, *optional*): Instead of `posts`: all posts are within reach that are later by more than 0 and
            at most this many seconds. Posts of the same time are not later, even if they stand after the post.

    A label is known if the posts of the timeline reach far enough, and each post in a time has a label. A time in
    which nobody writes has no change. Raises a `ValueError` for seconds between posts without times.
    """
    labels, places = np.array(timeline.labels, dtype=np.int64), np.arange(len(timeline))
    # The posts that count; `first` and `end` are places among them.
    counted = places
    if posts is not None:
        counted = np.flatnonzero(labels != NO_LABEL)
        first = np.searchsorted(counted, places, side="right")
        end = first + posts
        reached = end <= len(counted)
    elif timeline.timestamps is None:
        raise ValueError(
            "--days looks ahead by time, but the posts have no times: name their column by --columns timestamp=NAME, "
            "or give --posts."
        )
    else:
        times = np.array(timeline.timestamps)
        first, end = (np.searchsorted(times, since, side="right") for since in (times, times + seconds))
        reached = times + seconds <= times[-1:]

    def counts(mask: np.ndarray) -> np.ndarray:
        """Counts the posts of a mask (posts,) within reach of each post."""
        sums = np.append(0, mask[counted].cumsum())
        return sums[np.minimum(end, len(counted))] - sums[first]

    # If what comes is known in part, a change in that part does not count: labels would be kept where a change comes,
    # and dropped where none does.
    known = reached & (counts(labels == NO_LABEL) == 0)
    return replace(timeline, labels=np.where(known, counts(np.isin(labels, changes)) > 0, NO_LABEL).tolist())
