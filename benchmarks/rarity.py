r"""
Which measure of change follows how rare a word is, and which its gold score?

    python benchmarks/rarity.py --model_name_or_path MINILM --dwug uses.jsonl.gz --truth graded.txt

Each repeat draws other numbers of usages for each word and time, up to all, evenly in their logarithm. A measure's
rank correlation with the smaller number should be 0: what a word means does not depend on how much of it was drawn.
"""

import argparse

import numpy as np
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer
from workload import show, table

import modeling_tempoformer  # noqa: F401  Registers the models and tokenizers.
from modeling_tempoformer.semantic_change.corpora import read_dwug, read_truth
from modeling_tempoformer.semantic_change.measures import (
    average_pairwise_distance,
    prototype_distance,
    shuffled_prototypes,
)
from modeling_tempoformer.semantic_change.usages import embed_usages, sample_usages


TIMES = ("1810-1860", "1960-2010")


def measure(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    both = np.concatenate([before, after])
    by_chance, p = shuffled_prototypes(both, both, len(before), resamples=499)
    return {
        "apd": average_pairwise_distance(before, after),
        "prt": prototype_distance(before, after),
        "prt_corrected": prototype_distance(before, after) - by_chance,
        "1 - p": 1 - p,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name_or_path", required=True, help="An encoder without time.")
    parser.add_argument("--dwug", required=True, help="Uses of a word usage graph.")
    parser.add_argument("--truth", required=True)
    parser.add_argument("--fewest", type=int, nargs="+", default=[3, 20], help="Smallest number of usages drawn.")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    truth = read_truth(args.truth)
    model = AutoModel.from_pretrained(args.model_name_or_path, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    usages = sample_usages(read_dwug(args.dwug, TIMES), list(truth), TIMES, num_samples=200)
    vectors = embed_usages(model, tokenizer, usages)
    rows = []
    for fewest in args.fewest:
        generator = np.random.default_rng(0)
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(args.repeats):
            scores, smaller = [], []
            for by_time in vectors.values():
                most = [len(by_time[time]) for time in TIMES]
                counts = [round(np.exp(generator.uniform(np.log(fewest), np.log(count)))) for count in most]
                drawn = [
                    generator.permutation(by_time[time])[:count] for time, count in zip(TIMES, counts, strict=True)
                ]
                scores.append(measure(*drawn))
                smaller.append(min(counts))
            for name in scores[0]:
                of_words = [score[name] for score in scores]
                with_counts, with_gold = (
                    spearmanr(of_words, other).statistic for other in (smaller, list(truth.values()))
                )
                found.setdefault(name, []).append((with_counts, with_gold))
        for name, correlations in found.items():
            rarity, gold = np.mean(correlations, axis=0)
            show(benchmark="rarity", fewest=fewest, measure=name, with_counts=rarity, with_gold=gold)
            rows.append([f"{fewest} or more", name, f"{rarity:.2f}", f"{gold:.2f}"])
    table(["usages at a time", "measure", "rho with the smaller number of usages", "rho with gold"], rows)


if __name__ == "__main__":
    main()
