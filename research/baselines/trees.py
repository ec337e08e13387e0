"""Boosted trees on the vectors of a post and the post before it, and on position and time; they fit in seconds."""

from itertools import chain

import numpy as np
from transformers.utils import logging

from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.evaluation.predictions import all_labels
from modeling_tempoformer.evaluation.rivals import boosted_trees
from modeling_tempoformer.timeline_tempoformer import Timeline, tokenize_posts
from modeling_tempoformer.training.frozen_encoder import embed

from .base import UntrainedBaseline, learned_posts
from .history import DEFAULT_LENGTH, load_embedder


logger = logging.get_logger(__name__)


class Method(UntrainedBaseline):
    """Predicts by [`boosted_trees`], which the results of every training over a frozen encoder report."""

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        learned, test = learned_posts(timelines), timelines["test"]
        model, tokenizer = load_embedder(self.model_name_or_path, self.download_settings)
        length = min(data.max_seq_length or DEFAULT_LENGTH, tokenizer.model_max_length)
        # Embedded together, so that every split of the same posts uses the same entry of the cache of vectors.
        texts = list(chain.from_iterable(timeline.texts for timeline in (*learned, *test)))
        columns, cut = tokenize_posts(tokenizer, texts, length)
        if cut:
            logger.warning(f"Truncated {cut} posts to {length} tokens.")
        posts = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        train_vectors, test_vectors = np.split(embed(posts, model, tokenizer), [len(all_labels(learned))])
        probabilities = boosted_trees(learned, test, train_vectors, test_vectors, len(names), seed)
        return probabilities.argmax(-1), probabilities
