r"""
Compares rules for the number of senses on words whose usages people grouped by sense.

    python -m benchmarks.senses --dwug dwug_en_v3 --model sentence-transformers/all-MiniLM-L6-v2 --half chosen

`--dwug` holds `uses.jsonl.gz` and `sense_clusters.tsv` of DWUG EN. The rules are compared on the `chosen` half of the
words, which are drawn with a fixed seed; the `other` half is for a look at the rule that was chosen. All rules choose
among the same k-means clusterings of the first 20 principal components, but those by BIC, which fit Gaussian mixtures
to fewer components. Columns:
ARI: the mean adjusted Rand index with people's groups over words, with its median.
difference: the mean difference from the present rule, with a 95 % interval from a bootstrap over words.
senses: the mean number of senses, and the number of words with one. People's senses are those with three usages.
false: of the steady words, in which no sense of people changed its share by a tenth, those with more than one sense.
`--read_names` reads names in the place of forms, as `tempoformer words` does in corpora.
"""

import argparse
import csv
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from transformers import AutoModel, AutoTokenizer

from benchmarks.workload import table
from research.word_tables import read_uses, usages_of
from semantic_change import senses
from semantic_change.kept_vectors import KeptVectors
from semantic_change.measures import LEVEL
from semantic_change.usages import embed_usages


# The labels of usages in one sense, in two, and so on.
Options = list[tuple[float, np.ndarray]]
Rule = Callable[[np.ndarray, Options], np.ndarray]


def threshold(least: float, near: float) -> Rule:
    """Returns the largest number of senses with a silhouette near the best one, if that is above the least."""

    def choose(points: np.ndarray, options: Options) -> np.ndarray:
        best = max(score for score, _ in options)
        return options[0][1] if best <= least else [labels for score, labels in options if score >= near * best][-1]

    return choose


def always(number: int) -> Rule:
    return lambda points, options: options[min(number, len(options)) - 1][1]


def people(truth: np.ndarray) -> Rule:
    """Returns as many senses as people found, of three usages or more."""
    return always(int((np.bincount(truth[truth >= 0]) >= senses.MIN_USAGES).sum()))


def gap(points: np.ndarray, options: Options) -> np.ndarray:
    """Chooses by the gap statistic of Tibshirani, Walther and Hastie (2001), from uniform points in the same box."""
    rng = np.random.default_rng(0)
    drawn = [rng.uniform(points.min(axis=0), points.max(axis=0), points.shape) for _ in range(10)]

    def spread(each: np.ndarray, labels: np.ndarray) -> float:
        parts = [each[labels == label] for label in np.unique(labels)]
        return np.log(sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts))

    gaps, errors = [], []
    for number, (_, labels) in enumerate(options, 1):
        expected = [spread(each, KMeans(number, n_init=1, random_state=0).fit_predict(each)) for each in drawn]
        gaps.append(np.mean(expected) - spread(points, labels))
        errors.append(np.std(expected) * (1 + 1 / len(drawn)) ** 0.5)
    enough = (k for k in range(len(gaps) - 1) if gaps[k] >= gaps[k + 1] - errors[k + 1])
    return options[next(enough, len(gaps) - 1)][1]


def bic(components: int, only_number: bool = False) -> Rule:
    """
    Returns the Gaussian mixture with diagonal covariances and the smallest BIC, or the clustering by k-means with as
    many senses.
    """

    def choose(points: np.ndarray, options: Options) -> np.ndarray:
        few = points[:, :components]
        mixtures = (
            GaussianMixture(number, covariance_type="diag", n_init=3, random_state=0).fit(few)
            for number in range(1, senses.MAX_SENSES + 1)
        )
        best = min(mixtures, key=lambda mixture: mixture.bic(few))
        return always(best.n_components)(points, options) if only_number else best.predict(few)

    return choose


def is_steady(truth: np.ndarray, is_first: np.ndarray) -> bool:
    """Tells whether no sense of people changed its share by a tenth."""
    counts = [np.bincount(truth[(truth >= 0) & side], minlength=truth.max() + 1) for side in (is_first, ~is_first)]
    return bool(np.abs(counts[0] / counts[0].sum() - counts[1] / counts[1].sum()).max() < 0.1)


def moving(found: list[senses.Senses], least: float) -> Rule:
    """
    Returns two senses where none stand apart, if their shares change by the least amount and more than chance.
    """

    def choose(points: np.ndarray, options: Options) -> np.ndarray:
        labels = threshold(senses.MIN_SILHOUETTE, senses.NEAR)(points, options)
        shares = found[1].counts[0] / found[1].counts.sum(axis=0)
        is_moved = found[1].p < LEVEL and abs(shares[-1] - shares[0]) >= least
        return found[1].labels if is_moved and not labels.any() else labels

    return choose


def rules(truth: np.ndarray, found: list[senses.Senses]) -> dict[str, Rule]:
    """Returns the rules, the present one first. `truth` is for the number that people found."""
    return {
        "present": threshold(senses.MIN_SILHOUETTE, senses.NEAR),
        **{f"two that move by {least}": moving(found, least) for least in (0.0, 0.2, 0.4)},
        **{f"silhouette above {least}": threshold(least, senses.NEAR) for least in (0.1, 0.12, 0.15, 0.17, 0.25)},
        **{f"near {near}": threshold(senses.MIN_SILHOUETTE, near) for near in (0.7, 0.8, 1.0)},
        "gap statistic": gap,
        **{f"BIC, {components} components": bic(components) for components in (2, 3, 5)},
        **{f"number by BIC, {components} components": bic(components, only_number=True) for components in (2, 3, 5)},
        **{f"always {number}": always(number) for number in (2, 3)},
        "as many as people": people(truth),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dwug", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--read_names", action="store_true")
    parser.add_argument("--half", choices=("chosen", "other"), default="chosen")
    args = parser.parse_args()
    clusters = pd.read_csv(args.dwug / "sense_clusters.tsv", sep="\t", quoting=csv.QUOTE_NONE)
    cluster_of = clusters.set_index(["lemma", "use_id"])["cluster"].to_dict()
    words = sorted(set(clusters["lemma"]))
    random.Random(0).shuffle(words)
    half = len(words) // 2
    usages = usages_of(read_uses(args.dwug))
    usages = {word: usages[word] for word in (words[:half] if args.half == "chosen" else words[half:])}
    model, tokenizer = AutoModel.from_pretrained(args.model), AutoTokenizer.from_pretrained(args.model)
    vectors = embed_usages(model, tokenizer, usages, kept_vectors=KeptVectors(model), read_names=args.read_names)
    indices: dict[str, list[float]] = {}
    numbers: dict[str, list[int]] = {}
    steady: list[bool] = []
    for word, by_time in vectors.items():
        joined = np.concatenate(list(by_time.values()))
        points = senses.SenseSpace(joined).place(joined)
        options = senses.clusterings(points, seed=0)
        numbered = {
            time: [replace(usage, document=usage.source) for usage in part] for time, part in usages[word].items()
        }
        found = senses.find_senses(numbered, by_time)
        both = [usage for part in usages[word].values() for usage in part]
        truth = np.array([cluster_of.get((word, usage.source), -1) for usage in both])
        steady.append(is_steady(truth, np.arange(len(truth)) < len(next(iter(by_time.values())))))
        for name, rule in rules(truth, found).items():
            labels = rule(points, options)
            indices.setdefault(name, []).append(adjusted_rand_score(truth[truth >= 0], labels[truth >= 0]))
            numbers.setdefault(name, []).append(len(np.unique(labels)))
    drawn = np.random.default_rng(0).integers(len(vectors), size=(10_000, len(vectors)))
    rows = []
    for name, each in indices.items():
        less = np.array(each) - indices["present"]
        low, high = np.quantile(less[drawn].mean(axis=1), [0.025, 0.975])
        rows.append(
            [
                name,
                f"{np.mean(each):.3f} ({np.median(each):.3f})",
                f"{less.mean():+.3f} ({low:.2f} to {high:.2f})",
                f"{np.mean(numbers[name]):.1f} (one: {numbers[name].count(1)} of {len(each)})",
                f"{sum(number > 1 for number, is_so in zip(numbers[name], steady) if is_so)} of {sum(steady)}",
            ]
        )
    table(["rule", "ARI", "difference", "senses", "false"], rows)


if __name__ == "__main__":
    main()
