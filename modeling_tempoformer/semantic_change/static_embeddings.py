"""Change of words by static embeddings of each time point (SGNS): baselines for the contextual measures."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import orthogonal_procrustes
from transformers.utils import logging

from .corpora import DatedSentence
from .measures import unit


if TYPE_CHECKING:
    from gensim.models import KeyedVectors

logger = logging.get_logger(__name__)


def train_sgns(
    sentences: Iterable[DatedSentence],
    times: Sequence[str],
    vector_size: int = 300,
    window: int = 10,
    negative: int = 5,
    min_count: int = 5,
    epochs: int = 5,
    seed: int = 0,
) -> dict[str, "KeyedVectors"]:
    """
    Skip-gram with negative sampling (Mikolov et al., 2013) on the tokens of each time point by itself. The defaults
    are those with which SGNS serves as a baseline for semantic change (Schlechtweg et al., 2019); small corpora need
    more epochs. One thread, so that the same sentences always give the same vectors.

    Args:
        sentences (`Iterable[DatedSentence]`): In any order; those of other times are passed over. The tokens are kept
            in memory.
        times (`Sequence[str]`): The names of the time points.
        vector_size (`int`, *optional*, defaults to 300): Width of the vectors.
        window (`int`, *optional*, defaults to 10): Tokens on each side of a word that are its contexts.
        negative (`int`, *optional*, defaults to 5): Random words for each context.
        min_count (`int`, *optional*, defaults to 5): Words with fewer occurrences at a time point get no vector there.
        epochs (`int`, *optional*, defaults to 5): Passes over the sentences.
        seed (`int`, *optional*, defaults to 0): Of each time point's model.

    Returns:
        gensim's `KeyedVectors` for each time point. Raises a `ValueError` for a time point without sentences, or with
        no word that is frequent enough, and an `ImportError` without gensim.
    """
    try:
        from gensim.models import Word2Vec
    except ImportError as problem:
        raise ImportError('SGNS needs gensim: pip install "modeling-tempoformer[change]".') from problem
    tokens: dict[str, list[list[str]]] = {time: [] for time in times}
    seen = set()
    for sentence in sentences:
        seen.add(sentence.time)
        if sentence.time in tokens:
            # Each word once in memory.
            tokens[sentence.time].append([sys.intern(token) for token in sentence.tokens])
    vectors = {}
    for time, corpus in tokens.items():
        if not corpus:
            raise ValueError(f"There are no sentences of '{time}', only of: {', '.join(sorted(seen)) or 'no time'}.")
        model = Word2Vec(
            vector_size=vector_size,
            window=window,
            sg=1,
            negative=negative,
            min_count=min_count,
            epochs=epochs,
            seed=seed,
            workers=1,
        )
        model.build_vocab(corpus)
        if not len(model.wv):
            raise ValueError(f"No word occurs {min_count} times (`min_count`) in the sentences of '{time}'.")
        model.train(corpus, total_examples=model.corpus_count, epochs=epochs)
        vectors[time] = model.wv
    return vectors


def shared_words(vectors: dict[str, "KeyedVectors"], times: tuple[str, str]) -> list[str]:
    """The words with a vector at both times, the most frequent first."""
    return [word for word in vectors[times[0]].index_to_key if word in vectors[times[1]].key_to_index]


def procrustes_change(
    vectors: dict[str, "KeyedVectors"], targets: list[str], times: tuple[str, str]
) -> dict[str, float]:
    """
    SGNS+OP+CD: the vectors of the words that two times share are centred and scaled to length 1, those of the first
    time are rotated onto those of the second as well as a rotation can (orthogonal Procrustes), and the change of a
    word is the cosine distance between its two vectors then (Hamilton et al., 2016; centred as in Schlechtweg et al.,
    2019).

    Args:
        vectors (`dict[str, KeyedVectors]`): As [`train_sgns`] returns them.
        targets (`list[str]`): The words.
        times (`tuple[str, str]`): The names of the two time points.

    Returns:
        The cosine distance (0 to 2) of each target, NaN if it has no vector at one of the times. Raises a `ValueError`
        if the times share fewer words than the vectors are wide: any could then be rotated onto any.
    """
    shared, width = shared_words(vectors, times), vectors[times[0]].vector_size
    if len(shared) < width:
        raise ValueError(
            f"'{times[0]}' and '{times[1]}' share {len(shared)} words, too few to align vectors of width {width}."
        )
    before, after = (vectors[time][shared].astype(np.float64) for time in times)
    before, after = (unit(space - space.mean(axis=0)) for space in (before, after))
    rotation, _ = orthogonal_procrustes(before, after)
    distances = 1 - ((before @ rotation) * after).sum(axis=1)
    by_word = dict(zip(shared, distances.tolist(), strict=True))
    return {target: by_word.get(target, math.nan) for target in targets}


def neighbour_change(
    vectors: dict[str, "KeyedVectors"],
    targets: list[str],
    times: tuple[str, str],
    k: int = 1000,
    min_frequency: int = 20,
) -> dict[str, float]:
    """
    The share of a word's `k` nearest neighbours at the first time that are not among its `k` nearest at the second
    (Gonen et al., 2020). Needs no alignment.

    Args:
        vectors (`dict[str, KeyedVectors]`): As [`train_sgns`] returns them.
        targets (`list[str]`): The words.
        times (`tuple[str, str]`): The names of the two time points.
        k (`int`, *optional*, defaults to 1000): Number of neighbours, at least 1. If they are chosen from fewer than
            `2k` words, half of these are taken, and a warning says so: with all of them, no word would ever change.
        min_frequency (`int`, *optional*, defaults to 20): Neighbours are chosen from the words that occur at least
            this often at both times.

    Returns:
        The change (0 to 1) of each target, NaN if it has no vector at one of the times. Raises a `ValueError` if there
        are fewer than two words to choose neighbours from.
    """
    if k < 1:
        raise ValueError(f"`k` must be at least 1, got {k}.")
    shared = shared_words(vectors, times)
    candidates = [
        word for word in shared if all(vectors[time].get_vecattr(word, "count") >= min_frequency for time in times)
    ]
    if len(candidates) < 2:
        raise ValueError(
            f"'{times[0]}' and '{times[1]}' share {len(candidates)} words that occur {min_frequency} times "
            f"(`min_frequency`) in each: too few for neighbours."
        )
    if 2 * k > len(candidates):
        half = len(candidates) // 2
        logger.warning(f"Only {len(candidates)} words can be neighbours: `k={k}` is cut to {half}.")
        k = half
    place = {word: index for index, word in enumerate(candidates)}
    spaces = {time: unit(vectors[time][candidates]) for time in times}
    changes = dict.fromkeys(targets, math.nan)
    for target in set(targets).intersection(shared):
        nearest = []
        for time, space in spaces.items():
            similarities = space @ vectors[time][target]
            if target in place:
                similarities[place[target]] = -np.inf
            nearest.append(np.argpartition(-similarities, k - 1)[:k])
        changes[target] = 1 - np.intersect1d(*nearest).size / k
    return changes
