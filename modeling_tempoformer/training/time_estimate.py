"""Tells before a training over a frozen encoder about how long it will take."""

import logging
import math
import time

import torch
from datasets import Dataset

from ..data_collator_tempoformer import StreamCollator
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from .stream_trainer import StreamTrainingArguments


logger = logging.getLogger(__name__)

# The first one is slower.
PASSES_TIMED = 3


def tell_minutes(
    model: PostTempoFormerForStreamClassification,
    rows: Dataset,
    collator: StreamCollator,
    training: StreamTrainingArguments,
):
    """
    Logs about how many minutes a training over a frozen encoder takes and what comes after it, if it is a minute or
    more. A few passes are timed, on vectors of zeros, from which nothing is learned. The encoder's own time is told
    when it reads the posts.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model, on the device of the training.
        rows (`Dataset`): The training rows with tokens, as [`to_rows`] makes them.
        collator ([`StreamCollator`]): The collator of the training.
        training ([`StreamTrainingArguments`]): The arguments of the training, whose epochs are known.
    """
    epochs = math.ceil(training.num_train_epochs * training.steps_per_epoch(len(rows)))
    steps = training.max_steps if training.max_steps > 0 else epochs
    passes = steps * training.gradient_accumulation_steps
    minutes = passes * seconds_per_pass(model, rows, collator, training.train_batch_size) / 60
    if minutes >= 0.5:
        duration = "a minute" if minutes < 1.5 else f"{minutes:.0f} minutes"
        logger.info(
            f"Once the posts are read: about {duration} for {steps} steps of training, less if it stops early, "
            "and up to as long again for its evaluations, trees, the test and its baselines."
        )


def seconds_per_pass(
    model: PostTempoFormerForStreamClassification, rows: Dataset, collator: StreamCollator, batch_size: int
) -> float:
    """Returns the least seconds of a forward and a backward pass over the first rows. The model stays as it is."""
    width, batch = model.config.vector_size, []
    for row in rows.select(range(min(batch_size, len(rows)))):
        batch.append({**row, "post_embeds": torch.zeros(len(row["input_ids"]), width)})
    seconds, is_training = [], model.training
    # Dropout draws numbers, which the training draws anew.
    with torch.random.fork_rng():
        model.train()
        for _ in range(PASSES_TIMED):
            begun = time.perf_counter()
            inputs = {name: values.to(model.device) for name, values in collator(batch).items()}
            model(**inputs).loss.backward()
            seconds.append(time.perf_counter() - begun)
        model.zero_grad()
        model.train(is_training)
    return min(seconds)
