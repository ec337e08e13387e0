"""The first timelines of a stream, from which the methods learn that a report compares the model with."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from ..baselines.features import MOST_POSTS
from ..posts.timelines import TimelineStream
from ..timeline_tempoformer import Timeline


# Number of timelines from which other methods learn, which hold all their posts
COMPARED_TIMELINES = 2000

logger = logging.getLogger(__name__)


def begin_streams(timelines: Mapping[str, list[Timeline] | TimelineStream]) -> dict[str, list[Timeline]]:
    """Returns the timelines of each split, but only the first ones of a stream."""
    return {
        name: first_timelines(split) if isinstance(split, TimelineStream) else split
        for name, split in timelines.items()
    }


def first_timelines(timelines: TimelineStream) -> list[Timeline]:
    """
    The first 2,000 timelines of a stream, for the methods that a report compares the model with. Only those among the
    first 20,000 posts keep their texts.
    """
    logger.info("Position and time, beside the scores, learn from the first %d timelines at most.", COMPARED_TIMELINES)
    first, num_posts = [], 0
    for timeline in islice(timelines, COMPARED_TIMELINES):
        num_posts += len(timeline)
        first.append(timeline if num_posts <= MOST_POSTS else replace(timeline, texts=[]))
    return first
