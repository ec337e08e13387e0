"""What a corpus is like: its size, its classes, its times, and how much the posts of a timeline differ."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import numpy as np
from datasets import Dataset


def dataset_statistics(timelines: Dataset, label_names: Sequence[str]) -> dict[str, Any]:
    """
    The sizes of a corpus (paper, Table 1).

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them, at least one.
        label_names (`Sequence[str]`): The classes in the order of their ids.

    Returns:
        `timelines`, `posts` and `labelled_posts`, their numbers; `posts_per_timeline` (`mean`, `median`, `min`,
        `max`); `words_per_post`, the mean number of words between white space; `classes`, for each name its `count`
        and its `share` of the labelled posts (NaN if there are none). With timestamps also `seconds_between_posts`,
        from each post to the next of its timeline (NaN if none has two), and `seconds_per_timeline`, from its first
        post to its last, both as `mean` and `median`. Raises a `ValueError` if there are no timelines, or for a label
        that is no class.
    """
    if not len(timelines):
        raise ValueError("`timelines` has no timeline.")
    sizes, words, gaps, spans = [], [], [], []
    labels: Counter[int] = Counter()
    timed = "timestamps" in timelines.column_names
    for timeline in timelines:
        sizes.append(len(timeline["texts"]))
        words += [len(text.split()) for text in timeline["texts"]]
        for post_id, label in zip(timeline["post_ids"], timeline["labels"], strict=True):
            if label != -100 and not 0 <= label < len(label_names):
                place = f"Timeline {timeline['timeline_id']!r}, post {post_id!r}"
                raise ValueError(f"{place}: the label {label} is none of the {len(label_names)} classes.")
        labels.update(label for label in timeline["labels"] if label != -100)
        if timed:
            gaps += np.diff(timeline["timestamps"]).tolist()
            spans.append(timeline["timestamps"][-1] - timeline["timestamps"][0])
    labelled = labels.total()
    statistics = {
        "timelines": len(sizes),
        "posts": sum(sizes),
        "labelled_posts": labelled,
        "posts_per_timeline": {**center(sizes), "min": min(sizes), "max": max(sizes)},
        "words_per_post": fmean(words),
        "classes": {
            name: {"count": labels[label], "share": labels[label] / labelled if labelled else math.nan}
            for label, name in enumerate(label_names)
        },
    }
    if timed:
        statistics |= {"seconds_between_posts": center(gaps), "seconds_per_timeline": center(spans)}
    return statistics


def center(values: Sequence[float]) -> dict[str, float]:
    """Mean and median, NaN where there is nothing."""
    if not values:
        return {"mean": math.nan, "median": math.nan}
    return {"mean": fmean(values), "median": float(median(values))}


def dataset_diversity(embeddings: np.ndarray, timelines: Dataset) -> dict[str, float | int]:
    """
    How alike the posts of a timeline are, and those of the whole corpus, by any embeddings of the posts (compare
    Table 5 of the paper; the measures are defined here, and `outlier_score` is our own reading of the paper's).

    Args:
        embeddings (`np.ndarray` of shape `(posts, width)`): In the order of the timelines, then of their posts. None
            may be 0.
        timelines (`Dataset`): As [`to_timelines`] returns them.

    Returns:
        `within_timeline_similarity`: the mean cosine similarity of all pairs of posts of a timeline, averaged over the
        timelines.
        `corpus_similarity`: the same over all pairs of posts of the corpus.
        `outlier_score`: 1 - the cosine similarity of a post to the mean of the other posts of its timeline, each of
        them scaled to length 1; averaged over the posts of a timeline, then over the timelines. It is 0 if all posts
        are the same. Where the others cancel each other out, the similarity counts as 0.
        `single_post_timelines`: how many timelines have one post only; they are left out of the first and the last.
        Scores without any pair of posts are NaN. Raises a `ValueError` if the numbers of posts differ or an embedding
        is 0 or not finite.
    """
    embeddings = np.asarray(embeddings, dtype=np.float64)
    sizes = [len(texts) for texts in timelines["texts"]]
    if embeddings.ndim != 2 or len(embeddings) != sum(sizes):
        problem = f"must have the shape (posts, width) for {sum(sizes)} posts, got {embeddings.shape}"
        raise ValueError(f"`embeddings` {problem}.")
    lengths = np.linalg.norm(embeddings, axis=1)
    bad = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
    if bad.size:
        raise ValueError(f"`embeddings`: row {bad[0]} (counting from 0) is 0 or not finite.")
    units = embeddings / lengths[:, None]
    similarities, outliers = [], []
    for posts in np.split(units, np.cumsum(sizes)[:-1]):
        if len(posts) > 1:
            similarities.append(mean_similarity(posts))
            outliers.append(mean_outlier_score(posts))
    return {
        "within_timeline_similarity": fmean(similarities) if similarities else math.nan,
        "corpus_similarity": mean_similarity(units),
        "outlier_score": fmean(outliers) if outliers else math.nan,
        "single_post_timelines": sizes.count(1),
    }


def mean_similarity(units: np.ndarray) -> float:
    """The mean product of all pairs of different rows (rows of length 1), NaN if there is one row only."""
    number = len(units)
    if number < 2:
        return math.nan
    # The square of the sum is the sum of all products, those of a row with itself included.
    total = units.sum(axis=0)
    return float((total @ total - number) / (number * (number - 1)))


def mean_outlier_score(units: np.ndarray) -> float:
    """The mean over the rows (of length 1) of 1 - their cosine similarity to the sum of the other rows."""
    others = units.sum(axis=0) - units
    lengths = np.linalg.norm(others, axis=1)
    products = np.einsum("ph,ph->p", units, others)
    # Shorter than this is the rounding of a sum that is 0.
    is_some = lengths > 1e-12 * len(units)
    return float(1 - np.divide(products, lengths, out=np.zeros_like(lengths), where=is_some).mean())


def neighbour_bertscore(timelines: Dataset, model_type: str = "roberta-large") -> float:
    """
    The mean BERTScore F1 (Zhang et al., 2020) of each post and the one before it in its timeline.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        model_type (`str`, *optional*, defaults to `"roberta-large"`): A model that the package `bert-score` knows the
            best layer of.

    Returns:
        NaN if no timeline has two posts. A pair with a post without words counts as 0. Raises an `ImportError` without
        `bert-score`, and a `ValueError` for a model that it does not know.
    """
    try:
        from bert_score import score
        from bert_score.utils import model2layers
    except ImportError as problem:
        raise ImportError('BERTScore needs bert-score: pip install "modeling-tempoformer[diversity]".') from problem
    if model_type not in model2layers:
        raise ValueError(f"`model_type` is {model_type!r}, of which bert-score does not know the best layer.")
    pairs = [pair for texts in timelines["texts"] for pair in zip(texts, texts[1:], strict=False)]
    if not pairs:
        return math.nan
    # The package scores pairs without words as 0 too, but not with the tokenizers of Transformers 5.
    scored = [(earlier, later) for earlier, later in pairs if earlier.strip() and later.strip()]
    if not scored:
        return 0.0
    earlier, later = zip(*scored, strict=True)
    _, _, f1 = score(list(later), list(earlier), model_type=model_type)
    return float(f1.double().sum() / len(pairs))
