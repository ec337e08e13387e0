"""Change of words by static embeddings of each time point (SGNS): baselines for the contextual measures."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import orthogonal_procrustes
from sklearn.preprocessing import normalize
from transformers.utils import logging

from modeling_tempoformer.semantic_change.corpora import DatedSentence


if TYPE_CHECKING:
    from gensim.models import KeyedVectors

logger = logging.get_logger(__name__)

# Occurrences of a word that may be a neighbour.
MIN_COUNT = 20


def train_sgns(
    sentences: Iterable[DatedSentence],
    times: Sequence[str],
    vector_size: int = 300,
    epochs: int = 5,
    seed: int = 0,
) -> dict[str, "KeyedVectors"]:
    """
    Trains skip-gram with negative sampling (Mikolov et al., 2013) on the tokens of each time point separately, with
    the baseline settings of Schlechtweg et al. (2019). Sentences of other times are skipped.
    """
    from gensim.models import Word2Vec  # Only here, because it belongs to the extra `research`.

    tokens: dict[str, list[list[str]]] = {time: [] for time in times}
    for sentence in sentences:
        if sentence.time in tokens:
            # Interned, so that each word is in memory once.
            tokens[sentence.time].append([sys.intern(token) for token in sentence.tokens])
    settings = {"vector_size": vector_size, "window": 10, "negative": 5, "min_count": 5, "epochs": epochs}
    # One thread makes the same vectors of the same sentences.
    return {time: Word2Vec(corpus, sg=1, seed=seed, workers=1, **settings).wv for time, corpus in tokens.items()}


def shared_words(vectors: dict[str, "KeyedVectors"]) -> list[str]:
    """The words with a vector at both times, the most frequent first."""
    first, last = vectors.values()
    return [word for word in first.index_to_key if word in last.key_to_index]


def procrustes_change(vectors: dict[str, "KeyedVectors"], targets: list[str]) -> dict[str, float]:
    """
    SGNS+OP+CD: centres the vectors of the words that two times share and scales them to length 1, rotates the first
    time onto the second by orthogonal Procrustes, and returns the cosine distance (0 to 2) between the two vectors of
    each target (Hamilton et al., 2016; centred as in Schlechtweg et al., 2019), NaN if it lacks one.
    """
    shared = shared_words(vectors)
    before, after = (of_time[shared].astype(np.float64) for of_time in vectors.values())
    if len(shared) < before.shape[1]:
        raise ValueError(
            f"{' and '.join(vectors)} share {len(shared)} words, too few to align vectors of width {before.shape[1]}."
        )
    before, after = (normalize(space - space.mean(axis=0)) for space in (before, after))
    rotation, _ = orthogonal_procrustes(before, after)
    distances = 1 - ((before @ rotation) * after).sum(axis=1)
    by_word = dict(zip(shared, distances.tolist(), strict=True))
    return {target: by_word.get(target, math.nan) for target in targets}


def neighbour_change(vectors: dict[str, "KeyedVectors"], targets: list[str], k: int = 1000) -> dict[str, float]:
    """
    The share of a target's `k` nearest neighbours at the first time that are not among its `k` nearest at the second
    (Gonen et al., 2020), NaN if it lacks a vector. Neighbours are words that occur 20 times at both times, and at most
    half of them, with a warning: if all were neighbours, no word would ever change.
    """
    shared, both = shared_words(vectors), vectors.values()
    frequent = [word for word in shared if all(of_time.get_vecattr(word, "count") >= MIN_COUNT for of_time in both)]
    candidates = np.array(frequent)
    if len(candidates) < 2:
        raise ValueError(
            f"{' and '.join(vectors)} share {len(candidates)} words that occur {MIN_COUNT} times: too few."
        )
    if 2 * k > len(candidates):
        half = len(candidates) // 2
        logger.warning(f"Only {len(candidates)} words can be neighbours: `k={k}` becomes {half}.")
        k = half
    spaces = [(of_time, normalize(of_time[candidates])) for of_time in both]
    changes = dict.fromkeys(targets, math.nan)
    for target in set(targets).intersection(shared):
        nearest = []
        for of_time, space in spaces:
            similarities = space @ of_time[target]
            # A word is not its own neighbour.
            similarities[candidates == target] = -np.inf
            nearest.append(np.argpartition(-similarities, k - 1)[:k])
        changes[target] = 1 - np.intersect1d(*nearest).size / k
    return changes
