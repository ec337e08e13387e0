"""Splits posts by date: the test is later than all of the training, and people may be in both."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..timeline_tempoformer import NO_LABEL, Timeline
from ..times_tempoformer import are_since_start, to_date


logger = logging.getLogger(__name__)


def split_by_date(
    timelines: Sequence[Timeline], test_fraction: float, validation_fraction: float | None
) -> tuple[dict[str, list[Timeline]], dict[str, float]]:
    """
    Splits posts by date. A timeline may be in several parts: in the later ones its earlier posts are context, which
    streams read, and which is neither predicted nor scored.

    Args:
        timelines (`Sequence[Timeline]`): As [`to_timelines`] returns them, with times.
        test_fraction (`float`): Share of the labelled posts that are tested.
        validation_fraction (`float`, *optional*): Share of the other ones for validation; without it there is none.

    Returns:
        The timelines of each part, and for each but `train` the moment in seconds after which its posts are. Raises a
        `ValueError` for posts without dates, and for fractions and labelled posts that give no two parts.
    """
    times = [time for timeline in timelines for time in timeline.timestamps or ()]
    if len(times) < sum(map(len, timelines)) or are_since_start(min(times), max(times)):
        raise ValueError(
            "--split_by date needs the date of each post, and these have none: name their column by "
            "--columns timestamp=NAME, or split by timeline."
        )
    rest, splits, dates = list(timelines), {}, {}
    for name, fraction in (("test", test_fraction), ("validation", validation_fraction)):
        if fraction is not None:
            dates[name] = choose_date(rest, fraction)
            splits[name] = [part for timeline in rest if (part := after(timeline, dates[name])) is not None]
            rest = [part for timeline in rest if (part := until(timeline, dates[name])) is not None]
            logger.info("%s: all posts after %s.", name, to_date(dates[name]).isoformat(timespec="seconds"))
    return {"train": rest, **splits}, dates


def choose_date(timelines: Sequence[Timeline], fraction: float) -> float:
    """
    Returns the moment of a post, after which about a fraction of the labelled posts are. Raises a `ValueError` if no
    moment leaves some on both sides, and for a fraction that is none.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"Cannot split by a fraction of {fraction}: it must be between 0 and 1.")
    times = [
        time
        for timeline in timelines
        for time, label in zip(timeline.timestamps, timeline.labels, strict=True)
        if label != NO_LABEL
    ]
    moments, counts = np.unique(times, return_counts=True)
    if len(moments) < 2:
        raise ValueError("Cannot split by date: there must be labelled posts of at least two moments.")
    later = len(times) - counts.cumsum()[:-1]
    return float(moments[np.abs(later - fraction * len(times)).argmin()])


def until(timeline: Timeline, date: float) -> Timeline | None:
    """Returns a timeline without the posts after a moment; None if no other post is asked about."""
    number = np.searchsorted(timeline.timestamps, date, side="right")
    if number <= timeline.num_context:
        return None
    lists = {name: values[:number] for name, values in vars(timeline).items() if isinstance(values, list)}
    return replace(timeline, **lists)


def after(timeline: Timeline, date: float) -> Timeline | None:
    """
    Returns a timeline whose posts up to a moment are context, without their labels; None if there is no later one.
    """
    number = max(timeline.num_context, int(np.searchsorted(timeline.timestamps, date, side="right")))
    if number == len(timeline):
        return None
    labels, metadata = [NO_LABEL] * number + timeline.labels[number:], timeline.metadata
    if metadata is not None:
        # Nor are annotators judged by these posts.
        metadata = [*(one._replace(labels={}) for one in metadata[:number]), *metadata[number:]]
    return replace(timeline, num_context=number, labels=labels, metadata=metadata)
