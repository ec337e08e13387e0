r"""
Computes the table of benchmarks/results/semantic_change.md on known senses.

    python -m research.known_senses --dwug dwug_en_v3 --definitions research/dwug_definitions.csv \
        --models sentence-transformers/all-MiniLM-L6-v2

Usages of DWUG EN are assigned to people's clusters with twelve usages or more, in words that have two of them. A few
usages of each cluster are its quotations, drawn 20 times; the others are assigned. Columns, means over words:
right, balanced: the share of the usages with their cluster, of all and as a mean over clusters; none is refused.
known to none: the share that is too far from all senses.
left out to none: the share of a cluster that is too far, if its quotations are left out.
The table of definitions has the words with definitions alone. In it a definition counts as one text more.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import AutoModel, AutoTokenizer

from benchmarks.workload import table
from semantic_change.known_senses import read_known_senses
from semantic_change.reading.passages import untagged
from semantic_change.senses import SenseSpace, assign, find_reach
from semantic_change.usages import Usage, embed_usages

from .word_tables import read_uses, usages_of


DRAWS = 20
NUMBERS = (1, 3, 5, 10)
MIN_USAGES = 12


def judge(points: np.ndarray, truth: np.ndarray, definitions: np.ndarray | None, number: int, rng) -> list[float]:
    """Draws `number` quotations of each sense, and returns the shares of the columns."""
    senses = np.unique(truth)
    drawn = [rng.choice(np.flatnonzero(truth == sense), number, replace=False) for sense in senses]
    quoted, labels = np.concatenate(drawn).astype(int), np.repeat(np.arange(len(senses)), number)
    rest = np.setdiff1d(np.arange(len(truth)), quoted)
    true_senses = np.searchsorted(senses, truth[rest])
    texts = [points[part] if definitions is None else np.vstack([points[part], definitions[i]]) for i, part in
             enumerate(drawn)]  # fmt: skip
    means = np.stack([part.mean(axis=0) for part in texts])
    found = assign(points[rest], [], means)
    right = found == true_senses
    row = [right.mean(), np.mean([right[true_senses == sense].mean() for sense in range(len(senses))])]

    def too_far(kept: np.ndarray) -> np.ndarray:
        is_kept = np.isin(labels, kept)
        reach = find_reach(points[quoted[is_kept]], labels[is_kept], points)
        return np.linalg.norm(points[rest, None] - means[kept], axis=2).min(axis=1) > reach

    left_out = [
        too_far(np.delete(np.arange(len(senses)), sense))[true_senses == sense].mean() for sense in range(len(senses))
    ]
    return [*row, too_far(np.arange(len(senses))).mean(), np.mean(left_out)]


def main(args: argparse.Namespace):
    clusters = pd.read_csv(args.dwug / "sense_clusters.tsv", sep="\t", quoting=csv.QUOTE_NONE)
    sense_of = clusters.set_index(["lemma", "use_id"])["cluster"].to_dict()
    usages = usages_of(read_uses(args.dwug))
    usages = {word: usages[word] for word in sorted(set(clusters["lemma"]))}
    given = read_known_senses(args.definitions)
    names = ["right", "balanced", "known to none", "left out to none"]
    for name in args.models:
        model, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
        vectors, rows = embed_usages(model, tokenizer, usages), {}
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
                    part = space.place(joined)[is_in], truth[is_in]
                    each = [judge(*part, definitions, number, rng) for _ in range(DRAWS if number else 1)]
                    rows.setdefault((kind, number), []).append(np.mean(each, axis=0))
        shown = [
            {"encoder": Path(name).name, "texts": kind, "quotations": number, "words": len(found)}
            | {column: f"{value:.2f}" for column, value in zip(names, np.mean(found, axis=0), strict=True)}
            for (kind, number), found in rows.items()
        ]
        table(list(shown[0]), [list(map(str, row.values())) for row in shown])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dwug", type=Path, required=True)
    parser.add_argument("--definitions", type=Path, required=True)
    parser.add_argument("--models", nargs="+", required=True)
    main(parser.parse_args())
