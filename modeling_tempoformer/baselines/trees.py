"""Boosted trees on what a post and the one before it say, and on position and time: a rival that takes seconds."""

from dataclasses import dataclass

import numpy as np
from datasets import Dataset, concatenate_datasets
from transformers.utils import logging

from ..data.arguments import DataTrainingArguments
from ..data_collator_tempoformer import tokenize_posts
from ..evaluation.predictions import labels_of
from ..evaluation.references import boosted_trees
from ..training.frozen_encoder import embed
from .base import UntrainedBaseline, learned_posts
from .history import DEFAULT_LENGTH, load_embedder


logger = logging.get_logger(__name__)


@dataclass(kw_only=True)
class Method(UntrainedBaseline):
    """As in the results of every training over a frozen encoder ([`boosted_trees`])."""

    def predict(
        self, timelines: dict[str, Dataset], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        learned = learned_posts(timelines)
        # Together, so that each split of the same posts finds their vectors in the cache.
        vectors = self.embed(concatenate_datasets([learned, timelines["test"]]), data)
        known, asked = np.split(vectors, [len(labels_of(learned))])
        probabilities = boosted_trees(learned, timelines["test"], known, asked, len(names), seed)
        return probabilities.argmax(-1), probabilities

    def embed(self, timelines: Dataset, data: DataTrainingArguments) -> np.ndarray:
        """The vectors (posts, hidden) of all posts."""
        model, tokenizer = load_embedder(self.model_name_or_path, self.download_settings)
        length = min(data.max_seq_length or DEFAULT_LENGTH, tokenizer.model_max_length)
        texts = [text for of_timeline in timelines["texts"] for text in of_timeline]
        columns, cut = tokenize_posts(tokenizer, texts, length)
        if cut:
            logger.warning(f"Truncated {cut} posts to {length} tokens.")
        posts = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        return embed(posts, model, tokenizer)
