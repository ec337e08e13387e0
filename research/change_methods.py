"""Published measures of lexical semantic change, from the vectors of a word's usages or from predicted times."""

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np
from scipy.spatial.distance import jensenshannon
from sklearn.cluster import AffinityPropagation, KMeans
from sklearn.metrics.pairwise import cosine_distances
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from semantic_change.time_prediction import predict_times
from semantic_change.usages import Usages


def cluster_distances(before: np.ndarray, after: np.ndarray, seed: int = 0, num_clusters: int = 5) -> dict[str, float]:
    """
    Clusters a word's usages of two time points together, and compares the distributions of the two time points over
    the clusters (Martinc et al., 2020; Montariol et al., 2021). Returns the Jensen-Shannon distance (square root of
    the divergence, base 2) and the Wasserstein distance, whose cost is the cosine distance between the means of
    clusters. NaN if a clustering does not converge.
    """
    vectors = np.concatenate([before, after]).astype(np.float64)
    algorithms = {
        "affinity_propagation": AffinityPropagation(random_state=seed),
        "k_means": KMeans(min(num_clusters, len(vectors)), n_init=10, random_state=seed),
    }
    distances = {
        f"{name}_{distance}": math.nan for name in algorithms for distance in ("jensen_shannon", "wasserstein")
    }
    for name, algorithm in algorithms.items():
        labels = algorithm.fit_predict(vectors)
        # Affinity propagation labels all usages -1 if it does not converge.
        if labels.min() >= 0:
            parts = np.split(labels, [len(before)])
            counts = (np.bincount(part, minlength=labels.max() + 1) for part in parts)
            distances[f"{name}_jensen_shannon"] = float(jensenshannon(*counts, base=2))
            distances[f"{name}_wasserstein"] = move_clusters((before, after), parts)
    return distances


def move_clusters(usages: tuple[np.ndarray, np.ndarray], labels: list[np.ndarray]) -> float:
    """Returns the Wasserstein distance between the clusters before and after, represented by means of usages."""
    import ot  # Imported late, because it belongs to the extra `research`.

    means, shares = [], []
    for vectors, part in zip(usages, labels, strict=True):
        clusters, counts = np.unique(part, return_counts=True)
        means.append([np.mean(vectors[part == cluster], axis=0, dtype=np.float64) for cluster in clusters])
        shares.append(counts / len(part))
    return float(ot.emd2(*shares, cosine_distances(*means)))


def time_differences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    usages: Usages,
    times: Sequence[str],
    batch_size: int = 32,
) -> dict[str, float]:
    """
    Returns the time-diff of each word (TempoBERT; Rosin, Guy and Radinsky, 2022): the mean over its sentences of
    |p(last time) - p(first time)|, with the probabilities of [`predict_times`]. It is between 0 and 1.
    """
    # Each sentence of a time once, even if it has the word several times.
    texts = {
        word: [text for at_time in by_time.values() for text in dict.fromkeys(usage.text for usage in at_time)]
        for word, by_time in usages.items()
    }
    distinct = list(dict.fromkeys(chain.from_iterable(texts.values())))
    probabilities = predict_times(model, tokenizer, distinct, batch_size)
    first, last = (tokenizer.times.index(tokenizer.time_points.find(time)) for time in (times[0], times[-1]))
    differences = dict(zip(distinct, np.abs(probabilities[:, last] - probabilities[:, first]), strict=True))
    return {word: float(np.mean([differences[text] for text in sentences])) for word, sentences in texts.items()}
