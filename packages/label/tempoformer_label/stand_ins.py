"""
Scores what a model would be with fewer labels: fits its experts to parts of its training timelines. They take seconds
over vectors of posts that are kept.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase

from modeling_tempoformer import (
    PostTempoFormerForStreamClassification,
    StreamCollator,
    embed_rows,
    fit_words,
    grow_experts,
)

from .more_labels import expect_more, f1_counts


# All timelines, both halves, and the four quarters
PARTS = (1, 2, 4)
# With fewer, a quarter has no timeline of some fold. With more, the fits would take minutes.
FEWEST_TIMELINES, MOST_TIMELINES, MOST_POSTS = 20, 400, 8_000
BATCH_SIZE = 256  # rows


def measure_more_labels(
    model: PostTempoFormerForStreamClassification,
    tokens: Mapping[str, Dataset],
    tokenizer: PreTrainedTokenizerBase,
    seed: int = 42,
) -> dict[str, Any]:
    """
    Measures what more labels would be worth to a trained model with experts ([`expect_more`]).

    The experts but the network, which are fitted in seconds, stand in for the model: they are fitted anew to all, to
    halves and to quarters of its training timelines. Each fit predicts the posts of all these timelines, by the member
    that has learned nothing from the timeline.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model, with its experts. It is put in evaluation mode.
        tokens (`Mapping[str, Dataset]`): Rows of [`to_rows`]: of `train` those from which the model has learned, with
            `held_out`; the posts of others are encoded with them, so that vectors which the training kept are found.
        tokenizer (`PreTrainedTokenizerBase`): Their tokenizer.
        seed (`int`, *optional*, defaults to 42): Seed of the parts and of the trees.

    Returns the result of [`expect_more`]. Raises a `ValueError` for a model without experts, for fewer than 20 or more
    than 400 timelines with labels, for more than 8,000 labelled posts, and where a quarter lacks a class or a state.
    """
    learned = tokens["train"]
    if model.mixture is None:
        raise ValueError("The model has no experts beside its network: each number of timelines would be a training.")
    num_timelines = len(set(learned["timeline"]))
    num_posts = sum(label >= 0 for labels in learned["labels"] for label in labels)
    if not FEWEST_TIMELINES <= num_timelines <= MOST_TIMELINES or num_posts > MOST_POSTS:
        raise ValueError(
            f"What more labels would be worth needs {FEWEST_TIMELINES} to {MOST_TIMELINES} training timelines with up "
            f"to {MOST_POSTS:,} labelled posts, and these are {num_timelines:,} with {num_posts:,}."
        )
    parts = deal_rows(learned, seed)
    if not all(can_learn(learned.select(part), model) for part in parts[max(PARTS)]):
        raise ValueError("What more labels would be worth cannot be told: a quarter of the timelines has one class.")
    rows, counts = embed_rows(tokens, model, tokenizer)["train"], {}
    for count, dealt in parts.items():
        fits = (fit_stand_in(model, tokens, part, tokenizer, seed) for part in dealt)
        counts[count] = np.stack([count_predictions(stand_in, read["train"]) for stand_in, read in fits])
    return expect_more(count_predictions(model, rows), counts)


def deal_rows(rows: Dataset, seed: int) -> dict[int, list[np.ndarray]]:
    """Returns the indices of the rows of all timelines, of both halves and of the quarters ([`deal`])."""
    timelines, folds = (np.array(rows[name]) for name in ("timeline", "held_out"))
    numbers, first = np.unique(timelines, return_index=True)
    return {
        count: [np.flatnonzero(np.isin(timelines, numbers[part])) for part in deal(folds[first], count, seed)]
        for count in PARTS
    }


def deal(folds: np.ndarray, count: int, seed: int) -> list[np.ndarray]:
    """
    Divides timelines at random into parts with about as many timelines of each fold. Returns the indices of each part.

    Args:
        folds (`np.ndarray` of shape `(timelines,)`): The fold of each timeline.
        count (`int`): Number of parts. Two halves of a half are two quarters.
        seed (`int`): Seed of the shuffle.
    """
    order = np.random.default_rng(seed).permutation(len(folds))
    order = order[np.argsort(folds[order], kind="stable")]
    return [np.sort(order[part::count]) for part in range(count)]


def can_learn(tokens: Dataset, model: PostTempoFormerForStreamClassification) -> bool:
    """Tells whether each member has two classes, and of a model with states two states, in the rows of its folds."""
    for name in ["labels"] + ["states"] * (model.states is not None):
        values = list(zip(tokens["held_out"], tokens[name], strict=True))
        for member in range(model.config.num_members):
            # -100 is no label, and an empty text no state.
            seen = {value for fold, classes in values for value in classes if fold != member} - {-100, "", None}
            if len(seen) < 2:
                return False
    return True


@torch.no_grad()
def fit_stand_in(
    model: PostTempoFormerForStreamClassification,
    tokens: Mapping[str, Dataset],
    part: np.ndarray,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
) -> tuple[PostTempoFormerForStreamClassification, dict[str, Dataset]]:
    """
    Returns a stand-in of a model, its experts but the network, that has learned from a part of the training rows, and
    all rows with the vectors that it reads.

    Args:
        model, tokenizer: The model, with its experts, which stays as it is, and its tokenizer.
        tokens: Rows of [`to_rows`] by split. The stand-in learns from some rows of `train`.
        part (`np.ndarray`): Indices of these rows.
        seed (`int`): Seed of the trees.
    """
    # The network is as small as can be, and gives all classes the same logit.
    config = deepcopy(model.config)
    config.num_stream_layers, config.head_hidden_sizes = 1, ()
    config.stream_hidden_size = 2 * config.encoder_config.num_attention_heads
    stand_in = PostTempoFormerForStreamClassification(config, encoder=nn.Identity()).eval()
    stand_in.base_model.encoder = model.base_model.encoder
    for parameter in stand_in.classifier.parameters():
        parameter.zero_()
    fit_words(stand_in, tokens["train"].select(part), tokenizer)
    rows = embed_rows(tokens, stand_in.to(model.device), tokenizer)
    grow_experts(stand_in, rows["train"].select(part), seed)
    # Weights that are chosen from few posts leave out now this expert, now that one: all count alike.
    stand_in.mixture.weights.fill_(1)
    stand_in.mixture.held_out.fill_(1)
    return stand_in, rows


@torch.no_grad()
def count_predictions(model: PostTempoFormerForStreamClassification, rows: Dataset) -> np.ndarray:
    """
    Returns the counts (timelines, 2, classes) of [`f1_counts`] of a model's most probable classes in rows with
    vectors, each row by the member that has not learned from it if rows have `held_out`.
    """
    model.eval()
    columns: Mapping[str, list[np.ndarray]] = {"labels": [], "predictions": [], "timelines": []}
    collator = StreamCollator(None, model.config.window, timed="timestamps" in rows.column_names)
    for part in DataLoader(rows, BATCH_SIZE, collate_fn=list):
        batch = {name: values.to(model.device) for name, values in collator(part).items()}
        labels = batch.pop("labels")
        predictions = model(**batch).logits.argmax(-1)
        timelines = torch.tensor([row["timeline"] for row in part], device=labels.device)
        for values, found in zip(columns.values(), (labels, predictions, timelines[:, None].expand_as(labels))):
            values.append(found[labels >= 0].cpu().numpy())
    return f1_counts(*map(np.concatenate, columns.values()), model.config.num_labels)
