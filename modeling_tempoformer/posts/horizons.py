"""Labels that ask what comes: whether one of the posts after a post is a change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedConfig

from ..decisions_tempoformer import class_names
from ..timeline_tempoformer import NO_LABEL, Timeline
from ..times_tempoformer import UNITS, read_horizon
from .states import DERIVED_LABELS


# The classes of a model that is asked what comes; the second one is that of a change.
AHEAD_LABELS = ["no change ahead", "change ahead"]


class Ahead(NamedTuple):
    """
    A question about what comes, in the fields of a configuration.

    Attributes:
        horizon (`str`): How far it looks, as [`~times_tempoformer.read_horizon`] reads it.
        horizon_labels (`list[list[str]]`): The labels of the file that are no change, and those that are one.
    """

    horizon: str
    horizon_labels: list[list[str]]


def saved_question(config: PreTrainedConfig) -> Ahead | None:
    """Returns the question that a saved model answers; None if it is not asked what comes."""
    horizon = getattr(config, "horizon", None)
    return None if horizon is None else Ahead(horizon, config.horizon_labels)


def file_classes(config: PreTrainedConfig) -> list[str]:
    """Returns the names of the labels that files of a saved model have: its classes, unless it is asked what comes."""
    ahead = saved_question(config)
    if ahead is None:
        return class_names(config)
    names = [name for names in ahead.horizon_labels for name in names]
    # Labels that are derived have an order of their own.
    return DERIVED_LABELS if config.change_step is not None and set(names) == set(DERIVED_LABELS) else names


def ask_ahead(timelines: Sequence[Timeline], names: Sequence[str], ahead: Ahead | None) -> list[Timeline]:
    """
    Returns timelines whose labels answer a question about what comes ([`with_labels_ahead`]), the same ones without a
    question. `names` are the classes of their labels. No annotator has answered it, so that their labels are dropped.
    """
    if ahead is None:
        return list(timelines)
    changes = [label for label, name in enumerate(names) if name in ahead.horizon_labels[1]]
    return [with_labels_ahead(timeline, ahead.horizon, changes) for timeline in timelines]


def with_labels_ahead(timeline: Timeline, horizon: str, changes: Sequence[int]) -> Timeline:
    """
    Returns a timeline with the label of each post replaced: 1 if a later post within the horizon has a label among
    `changes`, 0 if none has, -100 if that is not known.

    Args:
        timeline ([`Timeline`]): Posts in the order of time, with their labels (posts,). Only later posts of this
            timeline are looked at, so that a part of one gets no label that depends on another part.
        horizon (`str`): The next posts that have a label, never the post itself (`"3"`), or all posts that are later
            by more than 0 and at most this many days, hours, minutes or seconds (`"2d"`). Posts of the same time are
            not later by any time, and do not count, even if they stand after the post.
        changes (`Sequence[int]`): The class ids that are a change.

    A label is known if the posts of the timeline reach to the end of the horizon, and each post in a time has a label.
    A time in which nobody writes has no change. Context (`num_context`) has no label. Raises a `ValueError` for a
    horizon in time of posts without times.
    """
    number, seconds = read_horizon(horizon)
    labels, posts = np.array(timeline.labels, dtype=np.int64), np.arange(len(timeline))
    # The posts that a horizon counts; `first` and `end` are places among them.
    counted = posts
    if seconds is None:
        counted = np.flatnonzero(labels != NO_LABEL)
        first = np.searchsorted(counted, posts, side="right")
        end = first + number
        reached = end <= len(counted)
    elif timeline.timestamps is None:
        raise ValueError(
            f"The horizon {horizon} is a time, but the posts have no times: name their column by --columns "
            "timestamp=NAME, or give --horizon a number of posts."
        )
    else:
        times = np.array(timeline.timestamps)
        first, end = (np.searchsorted(times, since, side="right") for since in (times, times + seconds))
        reached = times + seconds <= times[-1:]

    def counts(mask: np.ndarray) -> np.ndarray:
        """Counts the posts of a mask (posts,) within the horizon of each post."""
        sums = np.append(0, mask[counted].cumsum())
        return sums[np.minimum(end, len(counted))] - sums[first]

    # If the horizon is known in part, a change in that part does not count: labels would be kept where a change comes,
    # and dropped where none does.
    known = reached & (counts(labels == NO_LABEL) == 0) & (posts >= timeline.num_context)
    ahead = np.where(known, counts(np.isin(labels, changes)) > 0, NO_LABEL).tolist()
    facts = timeline.facts and [fact._replace(labels={}) for fact in timeline.facts]
    return replace(timeline, labels=ahead, facts=facts)


def asked_sentence(config: PreTrainedConfig | Ahead) -> str:
    """Returns the question that a model with a horizon is asked, in words."""
    number, seconds = read_horizon(config.horizon)
    unit = "post" if seconds is None else UNITS[config.horizon[-1]][0]
    asked = f"the next {unit}" if number == 1 else f"the next {number} {unit}s"
    if seconds is not None:
        asked = f"a post in {asked}"
    elif number > 1:
        asked = f"one of {asked}"
    return f"Asked at each post: is {asked} a change ({', '.join(config.horizon_labels[1])})?"
