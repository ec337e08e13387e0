r"""
Computes the table of benchmarks/results/semantic_change.md on known senses.

    python -m research.known_senses --dwug dwug_en_v3 --definitions research/dwug_definitions.csv \
        --models sentence-transformers/all-MiniLM-L6-v2

Usages of DWUG EN are assigned to people's clusters with twelve usages or more, in words that have two of them. A few
usages of each cluster are its quotations, drawn 20 times; the others are assigned. Columns, means over words:
right, balanced: the share of the usages with their cluster, of all and as a mean over clusters; none is refused.
known to none: the share that is too far from all senses.
left out to none: the share of a cluster that is too far, if its quotations are left out.
left-one-out: the share of the quotations that have their sense by the others. largest: that of the largest sense.
told: the share of draws whose shares are counted. held, as counted and corrected: the share of the 95 % intervals of a
sense's share at a time that hold people's share; of corrected shares where they are told, with their width.
`--half` takes one half of the words, as `benchmarks.senses` does.
The table of definitions has the words with definitions alone. In it a definition counts as one text more.
"""

import argparse
import csv
import random
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist
from transformers import AutoModel, AutoTokenizer

from benchmarks.workload import table
from semantic_change.kept_vectors import KeptVectors
from semantic_change.known_senses import read_known_senses
from semantic_change.reading.passages import untagged
from semantic_change.sense_shares import Groups, corrected_shares
from semantic_change.senses import SenseSpace, assign, learn_known
from semantic_change.usages import Usage, embed_usages

from .word_tables import read_uses, usages_of


DRAWS = 20
NUMBERS = (1, 3, 5, 10)
MIN_USAGES = 12


def judge(
    points: np.ndarray, truth: np.ndarray, is_first: np.ndarray, definitions: np.ndarray | None, number: int, rng
) -> list[float]:
    """Draws `number` quotations of each sense, and returns the shares of the columns."""
    senses = np.unique(truth)
    true_senses = np.searchsorted(senses, truth)
    drawn = [rng.choice(np.flatnonzero(truth == sense), number, replace=False) for sense in senses]
    quoted, labels = np.concatenate(drawn).astype(int), np.repeat(np.arange(len(senses)), number)
    texts, is_quotation = points[quoted], np.full(len(quoted), True)
    if definitions is not None:
        texts, labels = np.vstack([texts, definitions]), np.append(labels, np.arange(len(senses)))
        is_quotation = np.arange(len(labels)) < len(quoted)
    is_quoted = np.isin(np.arange(len(truth)), quoted)
    rest, true_rest = points[~is_quoted], true_senses[~is_quoted]
    means = np.stack([texts[labels == sense].mean(axis=0) for sense in range(len(senses))])
    found = assign(rest, [], means)
    right = found == true_rest
    row = [right.mean(), np.mean([right[true_rest == sense].mean() for sense in range(len(senses))])]
    known = learn_known(texts, labels, is_quotation, points, {})

    def too_far(left_out: int) -> float:
        kept = labels != left_out
        renumbered = labels[kept] - (labels[kept] > left_out)
        reach = learn_known(texts[kept], renumbered, is_quotation[kept], points, {}).reach
        distances = cdist(rest[true_rest == left_out], np.delete(means, left_out, axis=0))
        return float((distances.min(axis=1) > reach).mean())

    found = np.where(cdist(points, means).min(axis=1) > known.reach, len(senses), assign(points, [], means))
    row += [(found[~is_quoted] == len(senses)).mean(), np.mean([too_far(sense) for sense in range(len(senses))])]
    found[is_quoted] = true_senses[is_quoted]
    groups = Groups((~is_first).astype(int), np.arange(len(truth)), 2)
    people = np.array([groups.shares(true_senses == sense)[:, 0] for sense in range(len(senses))])
    counted = np.array([groups.shares(found == sense) for sense in range(len(senses))])
    corrected = corrected_shares(found, is_quoted, groups, known.outcomes)[: len(senses)]
    held = [
        ((part[..., 1] <= people + 1e-9) & (people <= part[..., 2] + 1e-9)).mean() for part in (counted, corrected)
    ]
    corrected_held = [held[1], np.diff(corrected[..., 1:]).mean()] if known.tells_senses else [np.nan] * 2
    largest = np.bincount(true_rest).max() / len(true_rest)
    return [*row, known.share_right, largest, known.tells_senses, held[0], *corrected_held]


def main(args: argparse.Namespace):
    clusters = pd.read_csv(args.dwug / "sense_clusters.tsv", sep="\t", quoting=csv.QUOTE_NONE)
    sense_of = clusters.set_index(["lemma", "use_id"])["cluster"].to_dict()
    usages = usages_of(read_uses(args.dwug))
    words = sorted(set(clusters["lemma"]))
    random.Random(0).shuffle(words)
    half = len(words) // 2
    parts = {"all": words, "chosen": words[:half], "other": words[half:]}
    usages = {word: usages[word] for word in parts[args.half]}
    given = read_known_senses(args.definitions)
    names = ["right", "balanced", "known to none", "left out to none", "left-one-out", "largest", "told"]
    names += ["held, as counted", "held, corrected", "width"]
    for name in args.models:
        model, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
        vectors, rows = embed_usages(model, tokenizer, usages, kept_vectors=KeptVectors(model)), {}
        for word, by_time in usages.items():
            truth = np.array([sense_of.get((word, usage.source), -1) for part in by_time.values() for usage in part])
            counts = dict(zip(*np.unique(truth[truth >= 0], return_counts=True), strict=True))
            joined = np.concatenate(list(vectors[word].values()))
            space = SenseSpace(joined)
            kinds = {"quotations": ([s for s, count in counts.items() if count >= MIN_USAGES], None)}
            if word in given:
                head = untagged(word)
                read = [Usage("", f"{head}: {row.text}", 0, len(head)) for row in given[word]]
                defined = space.place(embed_usages(model, tokenizer, {word: {"": read}})[word][""])
                senses = [int(row.sense) for row in given[word]]
                kinds |= {"quotations, words with definitions": (senses, None), "definition": (senses, defined)}
            for kind, (senses, definitions) in kinds.items():
                is_in = np.isin(truth, senses)
                for number in (0, *NUMBERS) if definitions is not None else NUMBERS:
                    enough = min(counts[sense] for sense in senses) > number if senses else False
                    if len(senses) < 2 or not enough:
                        continue
                    rng = np.random.default_rng(0)
                    is_first = np.arange(len(truth)) < len(next(iter(by_time.values())))
                    part = space.place(joined)[is_in], truth[is_in], is_first[is_in]
                    each = [judge(*part, definitions, number, rng) for _ in range(DRAWS if number else 1)]
                    rows.setdefault((kind, number), []).append(np.nanmean(each, axis=0))
        shown = [
            {"encoder": Path(name).name, "texts": kind, "quotations": number, "words": len(found)}
            | {column: f"{value:.2f}" for column, value in zip(names, np.nanmean(found, axis=0), strict=True)}
            for (kind, number), found in rows.items()
        ]
        table(list(shown[0]), [list(map(str, row.values())) for row in shown])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dwug", type=Path, required=True)
    parser.add_argument("--definitions", type=Path, required=True)
    parser.add_argument("--half", choices=("all", "chosen", "other"), default="all")
    parser.add_argument("--models", nargs="+", required=True)
    main(parser.parse_args())
