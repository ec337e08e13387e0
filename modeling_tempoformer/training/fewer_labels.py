"""
Scores what a model would be with fewer labels: fits the experts of a trained post model to parts of its training
timelines. They take seconds over vectors of posts that are kept.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..data_collator_tempoformer import StreamCollator
from ..evaluation.more_labels import expect_more
from ..evaluation.significance import count_by_timeline
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..timeline_tempoformer import NO_LABEL
from .experts import BATCH_SIZE, grow_experts
from .frozen_encoder import look_up, read_words
from .word_fitting import fit_words


logger = logging.get_logger(__name__)

# All timelines, both halves, and the four quarters
PARTS = (1, 2, 4)
# With fewer, a quarter has no timeline of some fold. With more, the fits would take longer than a minute of a core.
FEWEST_TIMELINES, MOST_TIMELINES, MOST_POSTS = 20, 200, 4_000


def measure_more_labels(
    model: PostTempoFormerForStreamClassification,
    rows: Dataset,
    tokens: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    seed: int = 42,
) -> dict[str, Any] | None:
    """
    Measures what more labels would be worth to a trained model with experts ([`expect_more`]).

    The experts but the network, which are fitted in seconds, stand in for the model: they are fitted anew to all, to
    halves and to quarters of its training timelines. Each fit predicts the posts of all these timelines, by the member
    that has learned nothing from the timeline.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model, with its experts. It is put in evaluation mode.
        rows (`Dataset`): The training rows, as [`grow_experts`] takes them, from [`embed_rows`].
        tokens (`Dataset`): The same rows before that, with tokens.
        tokenizer (`PreTrainedTokenizerBase`): Their tokenizer.
        seed (`int`, *optional*, defaults to 42): Seed of the parts and of the trees.

    Returns the result of [`expect_more`]; None, and a line in the log that says why, for fewer than 20 or more than
    200 timelines with labels, for more than 4,000 labelled posts, and where a quarter lacks a class or a state.
    """
    num_timelines = len(set(tokens["timeline"]))
    num_posts = sum(label != NO_LABEL for labels in tokens["labels"] for label in labels)
    if not FEWEST_TIMELINES <= num_timelines <= MOST_TIMELINES or num_posts > MOST_POSTS:
        logger.info(
            f"What more labels would be worth is not measured: that needs {FEWEST_TIMELINES} to {MOST_TIMELINES} "
            f"training timelines with up to {MOST_POSTS:,} labelled posts, and these are {num_timelines:,} with "
            f"{num_posts:,}."
        )
        return None
    learned = deal_rows(tokens, seed)
    if not all(can_learn(tokens.select(part), model) for part in learned[max(PARTS)]):
        logger.info("What more labels would be worth is not measured: a quarter of the timelines has only one class.")
        return None
    stand_ins, counts = StandIns(model, tokenizer, [(rows, tokens)]), {}
    for count, parts in learned.items():
        fits = [stand_ins.fit(rows.select(part), tokens.select(part), seed) for part in parts]
        counts[count] = np.stack([count_predictions(fit, stand_ins.read(rows, fit)) for fit in fits])
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
            seen = {value for fold, given in values for value in given if fold != member} - {NO_LABEL, "", None}
            if len(seen) < 2:
                return False
    return True


class StandIns:
    """
    Fits stand-ins of a model: its experts but the network.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model.
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer.
        rows (`list[tuple[Dataset, Dataset]]`): All rows that stand-ins learn from or predict, from one call of
            [`embed_rows`], and the same rows before it.
    """

    def __init__(
        self,
        model: PostTempoFormerForStreamClassification,
        tokenizer: PreTrainedTokenizerBase,
        rows: list[tuple[Dataset, Dataset]],
    ):
        self.tokenizer, self.device = tokenizer, model.device
        # The network is as small as can be, and gives all classes the same logit. The encoder has done its work.
        self.config = deepcopy(model.config)
        self.config.num_stream_layers, self.config.head_hidden_sizes = 1, ()
        self.config.stream_hidden_size = 2 * self.config.encoder_config.num_attention_heads
        self.posts: dict[int, dict[str, list[int]]] = {}
        vectors: dict[int, torch.Tensor] = {}
        for embedded, tokens in rows:
            names = [name for name in tokenizer.model_input_names if name in tokens.column_names]
            for row, token_row in zip(embedded, tokens, strict=True):
                for post, index in enumerate(row["post_index"]):
                    if index not in vectors:
                        vectors[index] = row["post_embeds"][post, : self.config.encoder_config.hidden_size]
                        self.posts[index] = {name: token_row[name][post] for name in names}
        self.vectors = torch.stack(list(vectors.values()))
        # The place of each post among the vectors
        self.places = torch.zeros(max(vectors) + 1, dtype=torch.long)
        self.places[list(vectors)] = torch.arange(len(vectors))

    @torch.no_grad()
    def fit(self, rows: Dataset, tokens: Dataset, seed: int) -> PostTempoFormerForStreamClassification:
        """Returns a stand-in that has learned from rows, of which `tokens` are the ones before [`embed_rows`]."""
        stand_in = PostTempoFormerForStreamClassification(self.config, encoder=nn.Identity()).eval()
        for parameter in stand_in.classifier.parameters():
            parameter.zero_()
        fit_words(stand_in, tokens, self.tokenizer)
        stand_in.to(self.device)
        grow_experts(stand_in, self.read(rows, stand_in), seed)
        # Weights that are chosen from few posts leave out now this expert, now that one: all count alike.
        stand_in.mixture.weights.fill_(1)
        stand_in.mixture.held_out.fill_(1)
        return stand_in

    def read(self, rows: Dataset, stand_in: PostTempoFormerForStreamClassification) -> Dataset:
        """Returns rows with the vectors that a stand-in reads, in which its own words are."""
        vectors = self.vectors
        if stand_in.base_model.words is not None:
            words = read_words(list(self.posts.values()), stand_in, self.tokenizer)
            vectors = torch.cat((vectors, torch.from_numpy(words)), dim=1)
        return rows.with_transform(partial(look_up, vectors[self.places]))


@torch.no_grad()
def count_predictions(model: PostTempoFormerForStreamClassification, rows: Dataset) -> np.ndarray:
    """
    Returns the counts (timelines, 2, classes) of [`count_by_timeline`] of a model's most probable classes in rows with
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
        for values, new in zip(columns.values(), (labels, predictions, timelines[:, None].expand_as(labels))):
            values.append(new[labels >= 0].cpu().numpy())
    labels, predictions, timelines = map(np.concatenate, columns.values())
    numbers, timelines = np.unique(timelines, return_inverse=True)
    return count_by_timeline(labels, predictions, timelines, len(numbers), model.config.num_labels)
