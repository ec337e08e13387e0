"""Prepares training on a stream of posts or texts, which are read as they are needed."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

from datasets import IterableDataset
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from ..baselines.words import MOST_POSTS
from ..posts.timelines import TimelineStream
from ..timeline_tempoformer import Timeline


# Size of the shuffle buffer, from which the next row is drawn
SHUFFLED_ROWS = 256
# Number of timelines from which other methods learn, which hold all their posts
COMPARED_TIMELINES = 2000

logger = logging.getLogger(__name__)


def check_streaming(training: TrainingArguments):
    """Raises a `ValueError` for arguments that do not fit a stream, whose length is not known."""
    if not training.do_train:
        raise ValueError("--streaming is how --do_train reads its posts or texts: give both.")
    if training.max_steps <= 0:
        raise ValueError("--streaming needs --max_steps: nobody knows how long a stream is.")
    for name in ("eval_strategy", "save_strategy"):
        if getattr(training, name) == IntervalStrategy.EPOCH:
            raise ValueError(f"--{name} epoch cannot be given with --streaming, whose passes have no end: give steps.")


def shuffle_forever(rows: IterableDataset, seed: int) -> IterableDataset:
    """
    Shuffles a stream and repeats it without end, as one epoch.

    All processes then have equally many batches, however long their files are, and a training that resumes finds its
    place after any number of passes. Every pass has the same order: the files are shuffled, and then each row is drawn
    from a buffer of 256 rows.
    """
    return rows.shuffle(seed=seed, buffer_size=SHUFFLED_ROWS).repeat(None)


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
