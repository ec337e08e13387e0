r"""
Computes the tables of benchmarks/results/semantic_change.md on words.

    python -m research.word_tables order --dwug dwug_en_v3 --truth truth/graded.txt --layers 1 4 all \
        --models sentence-transformers/all-MiniLM-L6-v2 sentence-transformers/all-mpnet-base-v2
    python -m research.word_tables methods --corpora 1810-1860.txt 1960-2010.txt --truth graded.txt \
        --models google-bert/bert-base-uncased --output_dir out \
        -- configuration/temporal_texts.yaml --train_files 1810-1860.txt 1960-2010.txt

`order` compares measures, encoders and layers on the annotations of DWUG EN. A good score orders words as people do,
and does not depend on a word's frequency or number of senses. With `--read_names` the encoder reads names in the place
of forms. `--dwug` holds `uses.jsonl.gz`, `sense_clusters.tsv` and
`stats_groupings.tsv`. Columns:
semeval, dwug: Spearman correlation with the gold scores of SemEval-2020 and of DWUG 3, with 95 % intervals over words.
rarity: correlation with the number of usages, if 20 to 100 are drawn for each word and time; 0 is best.
ambiguity: correlation with the entropy of the senses, if the usages of each word are assigned to the times at random,
so that no word changed; 0 is best.
controlled: correlation with the true change of samples that are drawn by sense. The shares of the senses change by a
known amount in half of the words of several senses, and not at all in the other half.
The row "change, standardised" divides each dimension by its standard deviation over the usages of all words. A second
table has the adjusted Rand index of the senses.

`methods` computes tables 2 and 3 of Rosin and Radinsky (2022): all methods, and the ways to give a model the time.
Each training gets the arguments after `--`; without them nothing is trained. The same command resumes a stopped
training.
"""

import argparse
import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, rankdata, spearmanr
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import normalize
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from benchmarks.workload import ROOT, show, table
from semantic_change import measures
from semantic_change.corpora import read_semeval, read_truth
from semantic_change.dated_sentences import DatedSentence
from semantic_change.kept_vectors import KeptVectors
from semantic_change.senses import choose_senses, find_senses
from semantic_change.usages import (
    Usage,
    drop_rare,
    embed_usages,
    ignores_case,
    sample_usages,
)

from .change_methods import cluster_distances, time_differences
from .static_embeddings import neighbour_change, procrustes_change, train_sgns


DRAWS = 20
# For a controlled change: the usages of each time, and of a sense at least.
CONTROLLED_USAGES, SENSE_USAGES = 60, 8
TIMES = ("1810-1860", "1960-2010")
# The ways to give a model the time.
MODES = {
    "none": ["--temporal_attention", "none"],
    "scaled, linear": ["--temporal_attention", "scaled"],
    "attention": [],
    "attention, residual": ["--temporal_residual", "true"],
    "prepend": ["--temporal_attention", "none", "--prepend_time", "true"],
    "attention and prepend": ["--prepend_time", "true"],
    "residual and prepend": ["--temporal_residual", "true", "--prepend_time", "true"],
}


def read_uses(folder: Path) -> list[DatedSentence]:
    """Reads the uses of DWUG EN."""
    sentences = []
    with gzip.open(folder / "uses.jsonl.gz", "rt", encoding="utf-8") as file:
        for use in map(json.loads, file):
            tokens = use["lemmas"]
            tokens[use["target_token"]] = use["lemma"]
            targets = ((use["lemma"], *use["target_span"]),)
            time = TIMES[use["period"] - 1]
            sentences.append(DatedSentence(time, use["text"], targets, tuple(tokens), source=use["use_id"]))
    return sentences


def usages_of(sentences: list[DatedSentence]) -> dict[str, dict[str, list[Usage]]]:
    """Groups sentences with one target each into usages by word and time."""
    usages = {}
    for sentence in sentences:
        ((word, start, end),) = sentence.targets
        by_time = usages.setdefault(word, {time: [] for time in TIMES})
        by_time[sentence.time].append(Usage.of(sentence, start, end))
    return usages


def distances(before: np.ndarray, after: np.ndarray) -> tuple[float, float, float]:
    """Computes apd, prt and prt less chance."""
    apd, prt = measures.average_pairwise_distance(before, after), measures.prototype_distance(before, after)
    both, documents = np.concatenate([before, after]), (np.arange(len(before)), np.arange(len(after)))
    return apd, prt, prt - measures.shuffled_prototypes(both, both, documents, resamples=300)[0]


def measure(read: dict[str, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    """Computes each measure of each word from its vectors before and after, which its texts' vectors follow."""
    words, texts = (
        {word: tuple(np.split(part, 2, axis=1)[half] for part in pair) for word, pair in read.items()}
        for half in range(2)
    )
    rows, scale = {}, measures.standardiser(part for pair in words.values() for part in pair)
    for word, (before, after) in words.items():
        apd, prt, corrected = distances(before, after)
        scaled_apd, _, scaled_corrected = distances(scale(before), scale(after))
        # The mean distance between two different usages of one time.
        within = [
            measures.average_pairwise_distance(part, part) * len(part) / (len(part) - 1) for part in (before, after)
        ]
        rows[word] = {
            **{"apd": apd, "prt": prt, "prt_corrected": corrected, "apd less within": apd - np.mean(within)},
            "change": measures.change_score(apd, corrected),
            "cube root of apd, apd and prt_corrected": np.cbrt(apd**2 * max(corrected, 0)),
            "change, standardised": measures.change_score(scaled_apd, scaled_corrected),
        }
        text_apd, text_prt, text_corrected = distances(*texts[word])
        rows[word] |= {"prt of texts": text_prt, "change of texts": measures.change_score(text_apd, text_corrected)}
    scores = pd.DataFrame.from_dict(rows, orient="index")
    scores["mean rank of apd and prt"] = rankdata(scores["apd"]) + rankdata(scores["prt"])
    return scores


def spearman(figures: dict) -> str:
    return "{:.3f} ({:.2f} to {:.2f})".format(figures["spearman"], *figures["spearman_interval"])


def correlations(samples: list[tuple[pd.DataFrame, list]]) -> pd.Series:
    """Averages over samples the rank correlation of each measure with the sample's values."""
    each = [scores.apply(lambda column, to=values: spearmanr(column, to).statistic) for scores, values in samples]
    return pd.concat(each, axis=1).mean(axis=1)


def draw_controlled(
    vectors: dict, senses: dict[str, np.ndarray], rng: np.random.Generator
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], list[float]]:
    """
    Draws usages of both times together, by their sense. Returns the vectors before and after of each word with two
    senses or more, and the change of the senses' shares (Jensen-Shannon distance), which is 0 for half of the words.
    """
    drawn, changes = {}, []
    for word, labels in senses.items():
        by_sense = [rng.permutation(np.flatnonzero(labels == sense)) for sense in np.unique(labels[labels >= 0])]
        by_sense = [usages for usages in by_sense if len(usages) >= SENSE_USAGES]
        shares = rng.dirichlet(np.ones(len(by_sense)), 2) if len(by_sense) > 1 else np.zeros((2, 0))
        if rng.random() < 0.5:
            shares[1] = shares[0]
        wanted, sizes = CONTROLLED_USAGES * shares, np.array([len(usages) for usages in by_sense])
        # No usage is drawn twice, so there may be fewer of a sense than wanted, at both times alike.
        counts = (wanted * np.minimum(1, sizes / np.maximum(wanted.sum(axis=0), 1))).astype(int)
        if not counts.size or counts.sum(axis=1).min() < 10:
            continue
        joined = np.concatenate(vectors[word])
        before, after = (
            np.concatenate([joined[usages[start:end]] for usages, start, end in zip(by_sense, *ends, strict=True)])
            for ends in ((0 * counts[0], counts[0]), (counts[0], counts.sum(axis=0)))
        )
        drawn[word] = before, after
        changes.append(float(np.nan_to_num(jensenshannon(*counts))))
    return drawn, changes


def rank_words(vectors: dict, senses: dict[str, np.ndarray], golds: dict[str, dict[str, float]]) -> list[dict]:
    """Returns a row for each measure."""
    rng, rng_controlled = np.random.default_rng(0), np.random.default_rng(1)
    rarity, ambiguity, controlled = [], [], []
    for _ in range(DRAWS):
        drawn, sizes = {}, []
        for word in senses:
            size = min(int(np.exp(rng.uniform(np.log(20), np.log(101)))), *map(len, vectors[word]))
            drawn[word] = tuple(part[rng.permutation(len(part))[:size]] for part in vectors[word])
            sizes.append(size)
        rarity.append((measure(drawn), sizes))
        shuffled, entropies = {}, []
        for word, labels in senses.items():
            joined = rng.permutation(np.concatenate(vectors[word]))
            shuffled[word] = joined[::2], joined[1::2]
            entropies.append(entropy(np.unique(labels[labels >= 0], return_counts=True)[1]))
        ambiguity.append((measure(shuffled), entropies))
        drawn, changes = draw_controlled(vectors, senses, rng_controlled)
        controlled.append((measure(drawn), changes))
    rarity, ambiguity, controlled = map(correlations, (rarity, ambiguity, controlled))
    rows = []
    for name, scores in measure(vectors).items():
        row = {"measure": name, **{gold: spearman(measures.agreement(scores, truth)) for gold, truth in golds.items()}}
        rows.append({**row, "rarity": f"{rarity[name]:.2f}", "ambiguity": f"{ambiguity[name]:.2f}"})
        rows[-1]["controlled"] = f"{controlled[name]:.2f}"
    return rows


def judge_senses(usages: dict, vectors: dict, senses: dict[str, np.ndarray]) -> dict[str, str]:
    """Computes the adjusted Rand index, over words, of this package's senses and of five clusters."""
    indices, numbers = [], []
    for word, truth in senses.items():
        options = find_senses(usages[word], vectors[word])
        ours, has_sense = options[choose_senses(options)].labels, truth >= 0
        joined = normalize(np.concatenate(list(vectors[word].values())))
        five = KMeans(5, n_init=10, random_state=0).fit_predict(joined)
        indices.append([adjusted_rand_score(truth[has_sense], labels[has_sense]) for labels in (ours, five)])
        numbers.append(ours.max() + 1)
    row = {}
    for name, (index, five_index) in {
        "mean": np.mean(indices, axis=0),
        "median": np.median(indices, axis=0),
    }.items():
        row |= {f"senses, {name}": f"{index:.3f}", f"k = 5, {name}": f"{five_index:.3f}"}
    return {**row, "number of senses": f"{np.mean(numbers):.1f} (one: {numbers.count(1)} of {len(numbers)})"}


def order(args: argparse.Namespace) -> list[list[dict]]:
    """Returns the rows of the tables of measures and of senses."""
    usages = usages_of(read_uses(args.dwug))
    golds = {"semeval": read_truth(args.truth), "dwug": read_truth(args.dwug / "stats_groupings.tsv")}
    clusters = pd.read_csv(args.dwug / "sense_clusters.tsv", sep="\t", quoting=csv.QUOTE_NONE)
    # The sense of each usage, -1 without one.
    sense_of = clusters.set_index(["lemma", "use_id"])["cluster"].to_dict()
    senses = {
        word: np.array([sense_of.get((word, usage.source), -1) for part in usages[word].values() for usage in part])
        for word in golds["dwug"]
    }
    ranked, judged = [], []
    for name in args.models:
        model, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
        for layers in [*args.layers, *(["marked"] if args.target_marks else [])]:
            marks = args.target_marks if layers == "marked" else None
            number = 1 if marks else model.config.num_hidden_layers if layers == "all" else int(layers)
            vectors = embed_usages(
                *(model, tokenizer, usages, number),
                **{"target_marks": marks, "read_names": args.read_names, "kept_vectors": KeptVectors(model)},
                with_texts=True,
            )
            setting = {"encoder": Path(name).name, "last layers": layers}
            parts = {word: tuple(by_time.values()) for word, by_time in vectors.items()}
            width = model.config.hidden_size
            vectors = {
                word: {time: part[:, :width] for time, part in by_time.items()} for word, by_time in vectors.items()
            }
            ranked += [{**setting, **row} for row in rank_words(parts, senses, golds)]
            judged.append({**setting, **judge_senses(usages, vectors, senses)})
    return [ranked, judged]


def train(args: argparse.Namespace, mode: str) -> Path:
    """Trains a model, or resumes its training."""
    folder = args.output_dir / mode.replace(", ", "_").replace(" ", "_")
    options = ("--model_name_or_path", args.models[0], "--output_dir", folder, "--do_train", "--report_to", "none")
    command = (sys.executable, ROOT / "tempoformer.py", "temporal_mlm", *args.passed_on, *MODES[mode], *options)
    subprocess.run([str(word) for word in command], check=True)
    return folder


def methods(args: argparse.Namespace) -> list[list[dict]]:
    """Returns the rows of the table of methods, with the seed of `tempoformer words`."""
    truth, seed, rows = read_truth(args.truth), 42, []

    def add(mode: str, scores: dict[str, dict[str, float]]):
        for name, by_word in scores.items():
            figures = measures.agreement(by_word, truth, seed)
            pearson = f"{figures['pearson']:.3f}"
            rows.append({"model": mode, "measure": name, "Pearson r": pearson, "Spearman rho": spearman(figures)})

    def score(model, tokenizer, clusters: bool = False) -> pd.DataFrame:
        by_word = {}
        vectors = embed_usages(model, tokenizer, usages, int(args.layers[0]), read_names=bool(args.corpora))
        for word, pair in vectors.items():
            pair = tuple(pair.values())
            distances = {"prt": measures.prototype_distance(*pair), "apd": measures.average_pairwise_distance(*pair)}
            by_word[word] = distances | (cluster_distances(*pair, seed) if clusters else {})
        return pd.DataFrame.from_dict(by_word, orient="index")

    tokenizer = AutoTokenizer.from_pretrained(args.models[0])
    if args.corpora:
        corpora = {Path(path).name.partition(".")[0]: path for path in args.corpora}
        times, sentences = list(corpora), list(read_semeval(corpora, truth, ignores_case(tokenizer)))
    else:
        times, sentences = TIMES, read_uses(args.dwug)
    usages, _ = drop_rare(sample_usages(sentences, truth, times, num_samples=200), min_usages=20)
    add("plain encoder", score(AutoModel.from_pretrained(args.models[0]), tokenizer, clusters=True))
    static, words = train_sgns(sentences, times, seed=seed), list(usages)
    add("", {"sgns": procrustes_change(static, words), "neighbours": neighbour_change(static, words)})
    for mode in MODES if args.passed_on else ():
        folder = train(args, mode)
        show(mode=mode, eval_loss=json.loads((folder / "all_results.json").read_text())["eval_loss"])
        tokenizer = AutoTokenizer.from_pretrained(folder)
        add(mode, score(AutoModel.from_pretrained(folder), tokenizer))
        if tokenizer.prepend_time:
            model = AutoModelForMaskedLM.from_pretrained(folder)
            add(mode, {"time_diff": time_differences(model, tokenizer, usages, times)})
    return [rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=("order", "methods"))
    parser.add_argument("--models", nargs="+", required=True, help="Encoders; for `methods` one, a plain BERT.")
    parser.add_argument("--dwug", type=Path, help="Folder of DWUG EN.")
    parser.add_argument("--corpora", nargs="+", help="For `methods`, instead of --dwug: two files named by time.")
    parser.add_argument("--truth", help="For `order` and `methods`, the gold scores of SemEval-2020.")
    parser.add_argument("--layers", nargs="+", default=["1"], help="Numbers of last layers to average, or all.")
    parser.add_argument("--target_marks", nargs=2, help="Adds a row in which words are marked, with the last layer.")
    parser.add_argument("--read_names", action="store_true", help="For `order`: read names in the place of forms.")
    parser.add_argument("--output_dir", type=Path, help="Folder of the trainings.")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:end])
    args.passed_on = sys.argv[end + 1 :]
    for rows in {"order": order, "methods": methods}[args.table](args):
        table(list(rows[0]), [list(row.values()) for row in rows])


if __name__ == "__main__":
    main()
