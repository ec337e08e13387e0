"""Prepares training on a stream of posts or texts, which are read as they are needed."""

from datasets import IterableDataset
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy


# Size of the shuffle buffer, from which the next row is drawn
SHUFFLED_ROWS = 256


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
