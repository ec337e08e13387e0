"""Boosted trees on what a post and the one before it say, and on position and time: a rival that takes seconds."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from datasets import Dataset, concatenate_datasets
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from transformers.utils import logging

from ..data.arguments import DataTrainingArguments
from ..data.timelines import NO_LABEL
from ..data_collator_tempoformer import tokenize_posts
from ..evaluation.predictions import labels_of
from ..evaluation.references import class_probabilities, post_features
from ..training.frozen_encoder import embed
from .base import UntrainedBaseline
from .history import DEFAULT_LENGTH, load_embedder


logger = logging.get_logger(__name__)

COMPONENTS = 48


@dataclass(kw_only=True)
class Method(UntrainedBaseline):
    """
    Gradient-boosted trees with balanced classes. They read the first 48 principal components of a post's vector and of
    the previous post's, their difference, the cosines of the post with the previous one and with the mean of all
    before it, and its position and times.
    """

    def predict(
        self, timelines: dict[str, Dataset], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        # Nothing is chosen on validation posts, so that they are learned from, too.
        learned = [timelines[name] for name in ("train", "validation") if name in timelines]
        posts = concatenate_datasets([*learned, timelines["test"]])
        labels, num_asked = labels_of(posts), len(labels_of(timelines["test"]))
        vectors = self.embed(posts, data)
        known = vectors[:-num_asked]
        components = PCA(min(COMPONENTS, *known.shape), random_state=seed).fit(known).transform(vectors)
        features = self.features(posts, vectors, components)
        labels[-num_asked:] = NO_LABEL
        trees = HistGradientBoostingClassifier(class_weight="balanced", random_state=seed)
        trees.fit(features[labels >= 0], labels[labels >= 0])
        probabilities = class_probabilities(trees, features[-num_asked:], len(names))
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

    def features(self, timelines: Dataset, vectors: np.ndarray, components: np.ndarray) -> np.ndarray:
        """What the trees read of each post; NaN where there is no post before it."""
        place = post_features(timelines)
        is_first = (place["position"] == 0).to_numpy()
        timeline = is_first.cumsum()
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        sums = pd.DataFrame(units).groupby(timeline).cumsum().to_numpy() - units
        before = np.roll(units, 1, axis=0)
        cosines = [(units * before).sum(1), (units * sums).sum(1) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)]
        previous = np.roll(components, 1, axis=0)
        steps = np.column_stack((previous, components - previous, *cosines))
        steps[is_first] = np.nan
        return np.column_stack((components, steps, place))
