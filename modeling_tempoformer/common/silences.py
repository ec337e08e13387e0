"""Finds the silences of a timeline, which pages show between its posts."""

from collections.abc import Sequence

import numpy as np


# A silence is more than this many times the timeline's median time between two posts.
SILENCE = 10


def find_silences(times: Sequence[float]) -> tuple[float | None, list[int]]:
    """Returns the longest time between two posts that is no silence, in seconds, and the posts that end silences."""
    gaps = np.diff(times)
    if not gaps.any():
        return None, []
    longest = SILENCE * float(np.median(gaps[gaps > 0]))
    return longest, (np.flatnonzero(gaps > longest) + 1).tolist()
