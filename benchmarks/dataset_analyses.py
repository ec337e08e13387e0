"""Statistics of a corpus: its size, its classes, its times, and how different the posts of a timeline are."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from sklearn.preprocessing import normalize

from modeling_tempoformer.evaluation.predictions import labels_of


def dataset_statistics(timelines: Dataset, label_names: Sequence[str]) -> dict[str, Any]:
    """
    The sizes of a corpus (TempoFormer paper, Table 1).

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them, at least one.
        label_names (`Sequence[str]`): Names of the classes in the order of their ids.

    Returns:
        `timelines`, `posts` and `labelled_posts`: their numbers.
        `posts_per_timeline`: `mean`, `median`, `min` and `max`.
        `words_per_post`: the mean number of words, separated by whitespace.
        `classes`: for each class its `count` and its `share` of the labelled posts (NaN if there are none).
        `seconds_between_posts` (neighbours of a timeline) and `seconds_per_timeline` (first to last post), with
        timestamps only: `mean` and `median`, NaN if there are none.
    """
    sizes = pd.Series([len(texts) for texts in timelines["texts"]])
    words = pd.Series([len(text.split()) for texts in timelines["texts"] for text in texts])
    labels = labels_of(timelines)
    counts = [int((labels == label).sum()) for label in range(len(label_names))]
    statistics = {
        "timelines": len(sizes),
        "posts": len(words),
        "labelled_posts": sum(counts),
        "posts_per_timeline": {**mean_and_median(sizes), "min": int(sizes.min()), "max": int(sizes.max())},
        "words_per_post": float(words.mean()),
        "classes": {
            name: {"count": count, "share": count / sum(counts) if any(counts) else math.nan}
            for name, count in zip(label_names, counts, strict=True)
        },
    }
    if "timestamps" in timelines.column_names:
        gaps = [gap for times in timelines["timestamps"] for gap in np.diff(times)]
        spans = [times[-1] - times[0] for times in timelines["timestamps"]]
        statistics["seconds_between_posts"] = mean_and_median(pd.Series(gaps, dtype=float))
        statistics["seconds_per_timeline"] = mean_and_median(pd.Series(spans, dtype=float))
    return statistics


def mean_and_median(values: pd.Series) -> dict[str, float]:
    return {"mean": float(values.mean()), "median": float(values.median())}


def dataset_diversity(embeddings: np.ndarray, timelines: Dataset) -> dict[str, float | int]:
    """
    How similar the posts of a timeline and the posts of the whole corpus are, by any embeddings (compare Table 5 of
    the TempoFormer paper; the measures are defined here, and `outlier_score` is our reading of the paper's).

    Args:
        embeddings (`np.ndarray` of shape `(posts, width)`): In the order of the timelines, then of their posts. A
            vector of zeros has a similarity of 0 to every other.
        timelines (`Dataset`): As [`to_timelines`] returns them.

    Returns:
        `within_timeline_similarity`: the mean cosine similarity of all pairs of posts of a timeline, averaged over
        timelines.
        `corpus_similarity`: the mean cosine similarity of all pairs of posts of the corpus.
        `outlier_score`: 1 - the cosine similarity between a post and the sum of the other posts of its timeline, all
        scaled to length 1; averaged over the posts of a timeline, then over timelines. It is 0 if all posts are the
        same. If the other posts cancel out, the similarity counts as 0.
        `single_post_timelines`: the number of timelines with one post, which the first and the last score leave out.
        A score without any pair of posts is NaN.
    """
    sizes = np.array([len(texts) for texts in timelines["texts"]])
    units = normalize(np.asarray(embeddings, dtype=np.float64))
    several = [posts for posts in np.split(units, np.cumsum(sizes)[:-1]) if len(posts) > 1]
    return {
        "within_timeline_similarity": float(pd.Series(map(mean_similarity, several), dtype=float).mean()),
        "corpus_similarity": mean_similarity(units) if len(units) > 1 else math.nan,
        "outlier_score": float(pd.Series(map(mean_outlier_score, several), dtype=float).mean()),
        "single_post_timelines": int((sizes == 1).sum()),
    }


def mean_similarity(units: np.ndarray) -> float:
    """The mean dot product over all pairs of different rows."""
    # The squared sum is the sum over all pairs, including each row with itself.
    total = units.sum(axis=0)
    return float((total @ total - np.square(units).sum()) / (len(units) * (len(units) - 1)))


def mean_outlier_score(units: np.ndarray) -> float:
    """The mean over rows of 1 - the cosine similarity between a row and the sum of the other rows."""
    others = units.sum(axis=0) - units
    return float(1 - (units * normalize(others)).sum(axis=1).mean())
