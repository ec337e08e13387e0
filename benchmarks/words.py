r"""
How words are ranked and their senses found, judged by DWUG EN's annotations: which measure, encoder and layers order
words as people do, without following how rare a word is or how many steady senses it has.

    python benchmarks/words.py --data dwug_en_v3 --truth truth/graded.txt \
        --models sentence-transformers/all-MiniLM-L6-v2 sentence-transformers/all-mpnet-base-v2 --layers 1 4 all

`--data` holds `uses.jsonl.gz`, `sense_clusters.tsv` and `stats_groupings.tsv`. Columns of the table:

semeval, dwug: Spearman correlation with the gold scores of SemEval-2020 and of DWUG 3, with 95 % intervals over words.
rarity: correlation with the number of usages, of which 20 to 100 of each word and time are drawn; 0 is best.
ambiguity: correlation with the entropy of the senses, when the usages of each word are dealt to both times at random,
so that none changed; 0 is best. The second table has the adjusted Rand index of the senses.
"""

import argparse
import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import entropy, rankdata, spearmanr
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize
from transformers import AutoModel, AutoTokenizer
from workload import table

from modeling_tempoformer.semantic_change.corpora import read_truth
from modeling_tempoformer.semantic_change.measures import (
    agreement,
    average_pairwise_distance,
    change_score,
    prototype_distance,
    shuffled_prototypes,
)
from modeling_tempoformer.semantic_change.senses import find_senses
from modeling_tempoformer.semantic_change.usages import Usage, context, embed_usages


DRAWS = 20


def read(folder: Path) -> tuple[dict, dict[str, np.ndarray], dict[str, float]]:
    """The usages of each word and period, the sense of each usage (-1: none) and DWUG's own scores."""
    usages, ids = {}, {}
    with gzip.open(folder / "uses.jsonl.gz", "rt", encoding="utf-8") as file:
        for use in map(json.loads, file):
            of_time = usages.setdefault(use["lemma"], {1: [], 2: []})[use["period"]]
            of_time.append(Usage(str(use["period"]), use["text"], *use["target_span"]))
            ids.setdefault(use["lemma"], {1: [], 2: []})[use["period"]].append(use["use_id"])
    rows = {}
    for name in ("sense_clusters", "stats_groupings"):
        with (folder / f"{name}.tsv").open(encoding="utf-8", newline="") as file:
            rows[name] = list(csv.DictReader(file, delimiter="\t"))
    sense_of = {(row["lemma"], row["use_id"]): int(row["cluster"]) for row in rows["sense_clusters"]}
    scores = {row["lemma"]: float(row["change_graded"]) for row in rows["stats_groupings"]}
    senses = {
        word: np.array([sense_of.get((word, use), -1) for time in (1, 2) for use in ids[word][time]])
        for word in scores
    }
    return usages, senses, scores


def measure(words: dict[tuple, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    """Each measure of each word, from its vectors before and after."""
    rows = {}
    for word, (before, after) in words.items():
        apd, prt = average_pairwise_distance(before, after), prototype_distance(before, after)
        both = np.concatenate([before, after])
        corrected = prt - shuffled_prototypes(both, both, len(before), resamples=300)[0]
        # The mean distance of two different usages of one time.
        within = [average_pairwise_distance(part, part) * len(part) / (len(part) - 1) for part in (before, after)]
        rows[word] = {
            **{"apd": apd, "prt": prt, "prt_corrected": corrected, "apd less within": apd - np.mean(within)},
            "change": change_score(apd, corrected),
        }
    found = pd.DataFrame.from_dict(rows, orient="index")
    found["mean rank of apd and prt"] = rankdata(found["apd"]) + rankdata(found["prt"])
    return found


def draw(vectors: dict, rng: np.random.Generator) -> tuple[dict, list[int]]:
    """20 to 100 usages of each word and time, and how many."""
    drawn, sizes = {}, []
    for word, parts in vectors.items():
        size = min(int(np.exp(rng.uniform(np.log(20), np.log(101)))), *map(len, parts))
        drawn[word] = tuple(part[rng.permutation(len(part))[:size]] for part in parts)
        sizes.append(size)
    return drawn, sizes


def deal(vectors: dict, senses: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict, list[float]]:
    """Each word's usages of both times, dealt to two times at random; and the entropy of their senses."""
    dealt, entropies = {}, []
    for word, parts in vectors.items():
        joined = rng.permutation(np.concatenate(parts))
        dealt[word] = joined[::2], joined[1::2]
        entropies.append(entropy(np.unique(senses[word][senses[word] >= 0], return_counts=True)[1]))
    return dealt, entropies


def correlations(samples: list[tuple[pd.DataFrame, list]]) -> pd.Series:
    """Of each measure with the second of each sample, averaged."""
    found = [scores.apply(lambda column, to=to: spearmanr(column, to).statistic) for scores, to in samples]
    return pd.concat(found, axis=1).mean(axis=1)


def rank_words(vectors: dict, senses: dict, golds: dict[str, dict[str, float]], seed: int) -> list[dict]:
    """A row for each measure."""
    rng = np.random.default_rng(seed)
    known = {word: vectors[word] for word in senses}
    rarity, steady = [], []
    for _ in range(DRAWS):
        drawn, sizes = draw(known, rng)
        rarity.append((measure(drawn), sizes))
        dealt, entropies = deal(known, senses, rng)
        steady.append((measure(dealt), entropies))
    rarity, steady = correlations(rarity), correlations(steady)
    rows = []
    for name, scores in measure(vectors).items():
        found = {gold: agreement(scores, truth, seed) for gold, truth in golds.items()}
        shown = {
            gold: "{:.3f} ({:.2f} to {:.2f})".format(value.spearman, *value.spearman_interval)
            for gold, value in found.items()
        }
        rows.append({"measure": name, **shown, "rarity": f"{rarity[name]:.2f}", "ambiguity": f"{steady[name]:.2f}"})
    return rows


def judge_senses(usages: dict, vectors: dict, senses: dict[str, np.ndarray], seed: int) -> dict[str, str]:
    """The adjusted Rand index over words of our senses and of five clusters."""
    ours, five, numbers = [], [], []
    for word, truth in senses.items():
        contexts = [[context(usage) for usage in usages[word][time]] for time in (1, 2)]
        labels = np.concatenate(find_senses(vectors[word], contexts, seed).labels)
        k_means = KMeans(5, n_init=10, random_state=seed).fit_predict(normalize(np.concatenate(vectors[word])))
        known = truth >= 0
        ours.append(adjusted_rand_score(truth[known], labels[known]))
        five.append(adjusted_rand_score(truth[known], k_means[known]))
        numbers.append(labels.max() + 1)
    return {
        **{"senses, mean": f"{np.mean(ours):.3f}", "k = 5, mean": f"{np.mean(five):.3f}"},
        **{"senses, median": f"{np.median(ours):.3f}", "k = 5, median": f"{np.median(five):.3f}"},
        "number of senses": f"{np.mean(numbers):.1f} (one: {numbers.count(1)} of {len(numbers)})",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--truth", required=True, help="Gold scores of SemEval-2020.")
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--layers", nargs="+", default=["4"], help="Numbers of last layers that are averaged, or all.")
    parser.add_argument("--target_marks", nargs=2, help="Marked words, once more, with the last layer.")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    usages, senses, scores = read(args.data)
    golds = {"semeval": read_truth(args.truth), "dwug": scores}
    ranked, found = [], []
    for name in args.models:
        model, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
        settings = [(layers, None) for layers in args.layers]
        settings += [("marked", tuple(args.target_marks))] if args.target_marks else []
        for layers, marks in settings:
            number = model.config.num_hidden_layers if layers == "all" else None if marks else int(layers)
            embedded = embed_usages(model, tokenizer, usages, number, target_marks=marks)
            vectors = {word: tuple(by_time.values()) for word, by_time in embedded.items()}
            place = {"encoder": Path(name).name, "last layers": layers}
            ranked += [{**place, **row} for row in rank_words(vectors, senses, golds, args.seed)]
            found.append({**place, **judge_senses(usages, vectors, senses, args.seed)})
    for rows in (ranked, found):
        table(list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
