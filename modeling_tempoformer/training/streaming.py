"""Training on posts or texts that are read as they are needed."""

import logging
from itertools import islice

from datasets import Dataset, IterableDataset
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy


# Rows among which the next one is drawn.
SHUFFLED_ROWS = 256
# Timelines that methods of comparison learn from, which hold all their posts.
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
    Shuffles a stream and repeats it without end, as one epoch: so that all processes have as many batches however long
    their files are, and a training that resumes finds its place after any number of passes. Every pass has the same
    order: that of the files is drawn, and then each row from the next 256.
    """
    return rows.shuffle(seed=seed, buffer_size=SHUFFLED_ROWS).repeat(None)


def first_timelines(timelines: IterableDataset) -> Dataset:
    """The first 2,000 timelines of a stream, without texts, for what a report compares a model with."""
    logger.info("Position and time, beside the scores, learn from the first %d timelines at most.", COMPARED_TIMELINES)
    kept = ({name: timeline[name] for name in timeline if name != "texts"} for timeline in timelines)
    return Dataset.from_list(list(islice(kept, COMPARED_TIMELINES)))
