"""Lexical semantic change by static embeddings of each time point (SGNS): baselines for contextual measures."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import orthogonal_procrustes
from sklearn.preprocessing import normalize
from transformers.utils import logging

from semantic_change.dated_sentences import DatedSentence


if TYPE_CHECKING:
    from gensim.models import KeyedVectors

logger = logging.get_logger(__name__)

# Least number of occurrences of a word that may be a neighbour.
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
    from gensim.models import Word2Vec  # Imported late, because it belongs to the extra `research`.

    tokens: dict[str, list[list[str]]] = {time: [] for time in times}
    for sentence in sentences:
        if sentence.time in tokens:
            # Interned, so that each word is in memory once.
            tokens[sentence.time].append([sys.intern(token) for token in sentence.tokens])
    settings = {"vector_size": vector_size, "window": 10, "negative": 5, "min_count": 5, "epochs": epochs}
    # With one thread, the same sentences give the same vectors.
    return {time: Word2Vec(corpus, sg=1, seed=seed, workers=1, **settings).wv for time, corpus in tokens.items()}


def shared_words(vectors: dict[str, "KeyedVectors"]) -> list[str]:
    """Returns the words with a vector at both times, the most frequent first."""
    first, last = vectors.values()
    return [word for word in first.index_to_key if word in last.key_to_index]


def procrustes_change(vectors: dict[str, "KeyedVectors"], targets: list[str]) -> dict[str, float]:
    """
    Returns SGNS+OP+CD of each target (Hamilton et al., 2016): centres the vectors of the words that two times share
    (Schlechtweg et al., 2019), scales them to length 1, rotates the first time onto the second by orthogonal
    Procrustes, and takes the cosine distance (0 to 2) between the two vectors. NaN for a target without both vectors.
    """
    shared = shared_words(vectors)
    before, after = (space[shared].astype(np.float64) for space in vectors.values())
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
    Returns the share of each target's `k` nearest neighbours at the first time that are not among its `k` nearest at
    the second (Gonen et al., 2020). NaN for a target without both vectors. Neighbours are words that occur 20 times at
    both times. `k` is at most half of these words, with a warning: if all were neighbours, no word would change.
    """
    shared, both = shared_words(vectors), vectors.values()
    frequent = [word for word in shared if all(space.get_vecattr(word, "count") >= MIN_COUNT for space in both)]
    candidates = np.array(frequent)
    if len(candidates) < 2:
        raise ValueError(
            f"{' and '.join(vectors)} share {len(candidates)} words that occur {MIN_COUNT} times: too few."
        )
    if 2 * k > len(candidates):
        half = len(candidates) // 2
        logger.warning(f"Only {len(candidates)} words can be neighbours: `k={k}` becomes {half}.")
        k = half
    spaces = [(space, normalize(space[candidates])) for space in both]
    changes = dict.fromkeys(targets, math.nan)
    for target in set(targets).intersection(shared):
        nearest = []
        for space, candidate_vectors in spaces:
            similarities = candidate_vectors @ space[target]
            # A word is not its own neighbour.
            similarities[candidates == target] = -np.inf
            nearest.append(np.argpartition(-similarities, k - 1)[:k])
        changes[target] = 1 - np.intersect1d(*nearest).size / k
    return changes
