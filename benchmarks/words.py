r"""
Measures whether "more than chance" keeps its promise, what frequency does to scores, and whether a measure is better.

    python -m benchmarks.words chance frequency discovery measures --model_name_or_path MINILM \
        --speeches speeches.csv --dwug dwug_en_v3 --truth truth/graded.txt

`--speeches` is a table with the columns `date` (a year), `doc_id` and `text`. Vectors are computed once, and kept
in the cache of Datasets.

`chance`: usages of one period are dealt to two times by document, by sentence and one by one, so that no word changed.
The rates at which a word is told to have changed, with their standard errors over the deals.
`frequency`: usages of two words, read as one, are two senses whose shares stay or change by a known amount, at three
numbers of usages. The documents of the two times differ. Means of the measures and rates of a small p.
`discovery`: documents of one period are dealt to two times; up to 40 usages find the most changed words, by which they
are then tested, too. The false discoveries among the first words.
`measures`: other measures against `change`, where the truth is known. With `--langchange_python`, the measures of
`benchmarks/word_peers.py` on the same vectors, too.
"""

import argparse
import hashlib
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, pearsonr, rankdata
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_distances
from sklearn.preprocessing import normalize
from transformers import AutoModel, AutoTokenizer

from benchmarks.workload import table
from research.word_tables import distances, read_uses, usages_of
from semantic_change.corpora import read_dated_corpus, read_truth
from semantic_change.dated_sentences import NUM_BLOCKS
from semantic_change.discovery import MORE_USAGES, Vocabulary, rank_by_change
from semantic_change.kept_vectors import KeptVectors
from semantic_change.measures import (
    LEVEL,
    ReadUsages,
    change_score,
    design_effects,
    interval_of_change,
    score_words,
    standardiser,
    sum_by_document,
)
from semantic_change.reading.passages import TextColumns
from semantic_change.senses import SenseSpace, fit_components
from semantic_change.usages import Usage, Usages, embed_usages, sample_usages


SEEDS = 20
PERIOD = "1941-2020"
TIMES = ("first", "last")
# Words, and the largest number of sentences of each
CHANCE_WORDS, FREQUENT_WORDS, SEARCHED_WORDS, KNOWN_USAGES = (30, 200), (4, 1500), (120, MORE_USAGES), 100
FREQUENT, MIN_USAGES, MIXED_USAGES, DWUG_USAGES, BOOTSTRAP = 1400, 20, 100, 50, 1000
COLUMNS = TextColumns(source="doc_id")
# Words of presidents' speeches that got new senses, and words that kept theirs.
KNOWN_TIMES = ["1790-1860", "1950-2020"]
CHANGED = {
    **{word: [word, f"{word}s"] for word in ("union", "balance")},
    **{
        "energy": ["energy", "energies"],
        "economy": ["economy", "economies"],
        "agency": ["agency", "agencies"],
        "industry": ["industry", "industries"],
    },
    **{"intelligence": ["intelligence"], "security": ["security", "securities"]},
}
STEADY = {
    **{
        word: [word, f"{word}s"] for word in ("year", "friend", "people", "war", "interest", "law", "subject", "water")
    },
    **{"money": ["money", "moneys"], "country": ["country", "countries"], "treaty": ["treaty", "treaties"]},
}


class Word(NamedTuple):
    """The usages of a word: their vectors `(usages, width)`, documents and sentences `(usages,)`."""

    vectors: np.ndarray
    documents: np.ndarray
    sentences: np.ndarray

    def deal(self, is_first: np.ndarray, documents: np.ndarray | None = None) -> ReadUsages:
        """Returns the usages, dealt to two times. Documents of two times are different."""
        units = self.documents if documents is None else documents
        sides = dict(zip(TIMES, (is_first, ~is_first), strict=True))
        vectors = {time: self.vectors[side] for time, side in sides.items()}
        numbers = {time: np.unique(units[side], return_inverse=True)[1] for time, side in sides.items()}
        return ReadUsages(vectors, {TIMES: dict(zip(TIMES, reversed(vectors.values()), strict=True))}, numbers)


def encode(args: argparse.Namespace, usages: Usages, **settings) -> dict[str, list[np.ndarray]]:
    """Returns the vectors of usages at each time, by word."""
    model, tokenizer = (auto.from_pretrained(args.model_name_or_path) for auto in (AutoModel, AutoTokenizer))
    vectors = embed_usages(model, tokenizer, usages, kept_vectors=KeptVectors(model), **settings)
    return {word: list(by_time.values()) for word, by_time in vectors.items()}


def read_words(args: argparse.Namespace, times: list[str], words: dict[str, list[str]], most: int) -> Usages:
    """Returns usages of words with their forms in the speeches, with the number of their sentence as the source."""
    sentences = read_dated_corpus(args.speeches, times, words, ignore_case=True, columns=COLUMNS)
    numbered = (replace(sentence, source=str(number)) for number, sentence in enumerate(sentences))
    return sample_usages(numbered, words, times, num_samples=most)


def choose_words(args: argparse.Namespace, number: int, least: int) -> dict[str, list[str]]:
    """
    Returns words that occur often enough in the period and could be discovered, the same for each run. A word that is
    found beside the others takes the place of one of them at most.
    """
    searched = Vocabulary.of(read_dated_corpus(args.speeches, [PERIOD], [], columns=COLUMNS), 1)
    words = searched.search([PERIOD], least, without_names=True).forms
    drawn = sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())[:number]
    return {word: [word] for word in drawn}


def put_together(usages: Usages) -> Usages:
    """Returns pairs of words as one word of two senses: the usages of both, by sense, under the name of the first."""
    parts = [next(iter(by_time.values())) for by_time in usages.values()]
    names, half = list(usages), len(usages) // 2
    return {
        name: {"one": one, "other": other} for name, one, other in zip(names, parts[:half], parts[half:], strict=False)
    }


def as_word(usages: list[Usage], vectors: np.ndarray) -> Word:
    """Makes a word of its usages and their vectors."""
    _, documents = np.unique([usage.document for usage in usages], return_inverse=True)
    return Word(vectors, documents, np.array([int(usage.source) for usage in usages]))


def blocks_of(word: Word, is_first: np.ndarray, num_sentences: int) -> np.ndarray:
    """Returns the block of each usage's sentence, as of a corpus whose documents are not known."""
    place = np.where(is_first, np.cumsum(is_first), np.cumsum(~is_first)) - 1
    length = min(is_first.sum(), (~is_first).sum()) // NUM_BLOCKS
    return (place // length)[word.sentences]


def apd_p(word: ReadUsages, seed: int, resamples: int = 999) -> float:
    """Returns the p-value of the average pairwise distance, by shuffled documents."""
    before, after = (word.documents[time] for time in TIMES)
    documents = np.concatenate([before, before.max() + 1 + after])
    is_before = np.arange(documents.max() + 1) <= before.max()
    shuffles = np.random.default_rng(seed).permuted(np.tile(is_before, (resamples, 1)), axis=1)
    members = np.vstack([is_before, shuffles]).astype(float)
    sums = sum_by_document(normalize(np.concatenate([word.vectors[time] for time in TIMES])), documents)
    sizes = np.bincount(documents)
    means = [part @ sums / (part @ sizes)[:, None] for part in (members, 1 - members)]
    real, *others = 1 - (means[0] * means[1]).sum(axis=1)
    return (1 + np.sum(np.array(others) >= real - 1e-12)) / (1 + resamples)


def shares_differ(senses: np.ndarray, is_first: np.ndarray, documents: np.ndarray) -> bool:
    """Tells whether the intervals of the share of one of two senses do not overlap at the two times."""
    sides = [(senses[side], np.unique(documents[side], return_inverse=True)[1]) for side in (is_first, ~is_first)]
    totals = [np.bincount(numbers) for _, numbers in sides]
    counts = [np.bincount(numbers[part == 1], minlength=len(total)) for (part, numbers), total in zip(sides, totals)]
    effects = design_effects(counts, totals)
    (_, low, high), (_, other_low, other_high) = (
        interval_of_change(count.sum(), total.sum(), effect) for count, total, effect in zip(counts, totals, effects)
    )
    return low > other_high or other_low > high


def adjust_among(p: pd.Series, number: int) -> np.ndarray:
    """Returns p-values, adjusted for the number of words from which theirs were chosen; without a value they are 1."""
    return false_discovery_control(np.append(p.fillna(1), np.ones(number - len(p))))[: len(p)]


def describe_rates(rates: dict[str, list[float]]) -> dict[str, str]:
    """Writes means over deals and their standard errors."""
    return {
        name: f"{np.mean(each):.3f} ({np.std(each, ddof=1) / len(each) ** 0.5:.3f})" for name, each in rates.items()
    }


def chance(args: argparse.Namespace) -> Iterator[dict]:
    """Yields the rates of words that are told to have changed, by what was dealt."""
    number, most = CHANCE_WORDS
    usages = read_words(args, [PERIOD], choose_words(args, number, most), most)
    vectors = encode(args, usages)
    words = {name: as_word(usages[name][PERIOD], part) for name, (part,) in vectors.items()}
    # The clusters are of all usages, whichever time they are dealt to.
    senses = {
        name: KMeans(2, n_init=10, random_state=0).fit_predict(SenseSpace(word.vectors).place(word.vectors))
        for name, word in words.items()
    }
    texts = [text.document for text in read_dated_corpus(args.speeches, [PERIOD], [], columns=COLUMNS)]
    document_of = np.unique(texts, return_inverse=True)[1]
    rates: dict[str, dict[str, list[float]]] = {}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        by_document = (rng.permutation(document_of.max() + 1) % 2 == 0)[document_of]
        by_sentence = rng.random(len(texts)) < 0.5
        deals = {
            "documents": {name: by_document[word.sentences] for name, word in words.items()},
            "sentences": {name: by_sentence[word.sentences] for name, word in words.items()},
            "usages": {name: rng.random(len(word.vectors)) < 0.5 for name, word in words.items()},
        }
        deals["documents, which are not known"] = deals["documents"]
        for dealt, sides in deals.items():
            units = {name: word.documents for name, word in words.items()}
            if dealt.endswith("not known"):
                units = {name: blocks_of(word, by_document, len(texts)) for name, word in words.items()}
            read = {name: word.deal(sides[name], units[name]) for name, word in words.items()}
            scored = pd.DataFrame(score_words(read, ["change"], TIMES, seed))
            is_adjusted = adjust_among(scored["p"], len(scored)) < LEVEL
            found = {
                "p": scored["p"] < LEVEL,
                "p_fdr": is_adjusted,
                "deals with a p_fdr": [is_adjusted.any()],
                "change_low above 0": scored["change_low"] > 0,
                "p of apd": [apd_p(word, seed) < LEVEL for word in read.values()],
                "shares of senses apart": [shares_differ(senses[name], sides[name], units[name]) for name in words],
            }
            for name, each in found.items():
                rates.setdefault(dealt, {}).setdefault(name, []).append(np.mean(each))
    for dealt, by_name in rates.items():
        yield {"dealt": dealt, **describe_rates(by_name)}


def frequency(args: argparse.Namespace) -> Iterator[dict]:
    """Yields means of the measures of two senses, by the number of usages and by what happens to their shares."""
    number, most = FREQUENT_WORDS
    usages = put_together(read_words(args, [PERIOD], choose_words(args, number, FREQUENT), most))
    vectors = encode(args, usages)
    pairs = {
        name: as_word([*by_sense["one"], *by_sense["other"]], np.concatenate(vectors[name]))
        for name, by_sense in usages.items()
    }
    for share, size in product((0.5, 0.6), (10, 100, 1000)):
        rows = []
        for seed, (name, word) in product(range(SEEDS), pairs.items()):
            rng, is_one = np.random.default_rng(seed), np.arange(len(word.vectors)) < len(vectors[name][0])
            is_first = (rng.permutation(word.documents.max() + 1) % 2 == 0)[word.documents]
            drawn = []
            for side, of_one in ((is_first, share), (~is_first, 1 - share)):
                for sense, wanted in ((is_one, of_one), (~is_one, 1 - of_one)):
                    drawn.append(rng.permutation(np.flatnonzero(side & sense))[: round(wanted * size)])
            drawn_usages = np.concatenate(drawn)
            part = Word(word.vectors[drawn_usages], word.documents[drawn_usages], word.sentences[drawn_usages])
            read = part.deal(is_first[drawn_usages])
            scores = {column: each["-"] for column, each in score_words({"-": read}, ["change"], TIMES, seed).items()}
            rows.append(scores | {"amd less within": nearest_less_within(*read.vectors.values(), seed)})
        scored = pd.DataFrame(rows)
        names = ["change", "apd", "prt", "prt_corrected", "amd less within", "times_chance"]
        yield {
            "share of a sense": f"{share:.0%} to {1 - share:.0%}",
            "usages at each time": size,
            **{name: f"{scored[name].mean():.3f} ({scored[name].std():.3f})" for name in names},
            "p below 0.05": f"{(scored['p'] < LEVEL).mean():.2f}",
        }


def discovery(args: argparse.Namespace) -> Iterator[dict]:
    """Yields the words that are told to have changed among the first ones of a discovery in which no word changed."""
    number, most = SEARCHED_WORDS
    usages = read_words(args, [PERIOD], choose_words(args, number, 2 * MIN_USAGES), most)
    vectors = encode(args, usages)
    words = {name: as_word(usages[name][PERIOD], part) for name, (part,) in vectors.items()}
    texts = [text.document for text in read_dated_corpus(args.speeches, [PERIOD], [], columns=COLUMNS)]
    document_of = np.unique(texts, return_inverse=True)[1]
    found: dict[int, dict[str, list[float]]] = {}
    for seed in range(SEEDS):
        by_document = (np.random.default_rng(seed).permutation(document_of.max() + 1) % 2 == 0)[document_of]
        read = {name: word.deal(by_document[word.sentences]) for name, word in words.items()}
        # The words are so few that a search would read all of them again.
        sieve = rank_by_change(read, seed)
        for first in (20, 50):
            scored = score_words({name: read[name] for name in sieve.index[:first]}, ["prt"], TIMES, seed)
            p = pd.Series(scored["p"])
            rates = {
                "p": (p < LEVEL).sum(),
                "p_fdr of these words": (adjust_among(p, len(p)) < LEVEL).sum(),
                "p_fdr of all searched words": (adjust_among(p, len(words)) < LEVEL).sum(),
            }
            for name, count in rates.items():
                found.setdefault(first, {}).setdefault(name, []).append(count)
    for first, by_name in found.items():
        yield {"first words of the sieve": first, "of": len(words), **describe_rates(by_name)}


def nearest_less_within(before: np.ndarray, after: np.ndarray, seed: int = 0) -> float:
    """
    Returns the mean cosine distance of a usage to the nearest one of the other time (the average minimum distance of
    Goworek and Dubossarsky, 2026, in both directions), less that to the nearest other one of its own time. Both are
    sought among as many usages, so that a rare word is no further from its nearest.
    """
    rng, size = np.random.default_rng(seed), min(len(before), len(after))
    one, other = (part[rng.permutation(len(part))[:size]] for part in (before, after))

    def to_nearest(distances: np.ndarray) -> np.ndarray:
        np.fill_diagonal(distances, np.inf)
        return distances.min(axis=1)

    between = cosine_distances(one, other)
    apart = to_nearest(between.copy()).mean() + to_nearest(between.T.copy()).mean()
    return (apart - sum(to_nearest(cosine_distances(part)).mean() for part in (one, other))) / 2


def candidates(read: dict[str, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    """Returns the scores of words by each measure, from their vectors before and after, followed by their texts'."""
    words, texts = (
        {word: tuple(np.split(part, 2, axis=1)[half] for part in pair) for word, pair in read.items()}
        for half in range(2)
    )
    parts = [part for pair in words.values() for part in pair]
    joined = np.concatenate(parts)
    spaces = {"": np.asarray, ", standardised": standardiser(parts)}
    spaces |= {f", {number} components": fit_components(joined, number).transform for number in (20, 50)}
    rows = {}
    for word, pair in words.items():
        rows[word] = {}
        for space, place in spaces.items():
            before, after = map(place, pair)
            apd, prt, corrected = distances(before, after)
            rows[word][f"change{space}"] = change_score(apd, corrected)
            rows[word][f"amd less within{space}"] = nearest_less_within(before, after)
            if not space:
                rows[word] |= {"apd": apd, "prt": prt}
        apd, _, corrected = distances(*texts[word])
        rows[word]["change of texts"] = change_score(apd, corrected)
    return pd.DataFrame.from_dict(rows, orient="index")


def score_samples(args: argparse.Namespace, samples: list[dict[str, tuple]]) -> list[pd.DataFrame]:
    """Returns the [`candidates`] of samples of words, with those of langchange if its Python is given."""
    scored = [candidates(read) for read in samples]
    if args.langchange_python is None:
        return scored
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("vectors.npz", "scores.csv")]
        words = {
            f"{number}/{word}/{side}": np.split(part, 2, axis=1)[0]
            for number, read in enumerate(samples)
            for word, pair in read.items()
            for side, part in enumerate(pair)
        }
        np.savez(files[0], **words)
        subprocess.run([args.langchange_python, Path(__file__).with_name("word_peers.py"), *files], check=True)
        peers = pd.read_csv(files[1]).set_index(["sample", "word"]).add_prefix("langchange, ")
    return [scores.join(peers.loc[number]) for number, scores in enumerate(scored)]


def rank_correlation(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns Spearman's correlation of each row, NaN if all are the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pearsonr(rankdata(scores, axis=1), rankdata(values, axis=1), axis=1).statistic


def pairs_in_order(scores: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Returns the share of pairs of words with different values that are in the right order, in each row."""
    higher = values[:, :, None] > values[:, None, :]
    right = (scores[:, :, None] > scores[:, None, :]) + 0.5 * (scores[:, :, None] == scores[:, None, :])
    with np.errstate(invalid="ignore"):
        return (right * higher).sum(axis=(1, 2)) / higher.sum(axis=(1, 2))


def compare(samples: list[tuple[pd.DataFrame, np.ndarray]], agree: Callable) -> dict[str, str]:
    """
    Writes for each measure its mean agreement with the truth over samples of the same words, and how much it is above
    `change`, with a 95 % interval over words.
    """
    number = len(samples[0][1])
    drawn = np.random.default_rng(0).integers(number, size=(BOOTSTRAP, number))
    drawn[0] = np.arange(number)
    means = {
        name: np.mean([agree(scores[name].to_numpy()[drawn], truth[drawn]) for scores, truth in samples], axis=0)
        for name in samples[0][0]
    }
    written = {}
    for name, mean in means.items():
        low, high = np.nanpercentile(mean - means["change"], (2.5, 97.5))
        written[name] = f"{mean[0]:.3f}"
        if name != "change":
            written[name] += f", {mean[0] - means['change'][0]:+.3f} ({low:+.2f} to {high:+.2f})"
    return written


def draw_mixtures(pairs: dict[str, list[np.ndarray]], seed: int) -> tuple[dict[str, tuple], np.ndarray]:
    """
    Draws 15 to 50 usages of two senses at each time. Returns them and the change of the senses' shares, which is 0 for
    half of the words.
    """
    rng, drawn, changes = np.random.default_rng(seed), {}, []
    for place, (name, senses) in enumerate(pairs.items()):
        size, shares = int(np.exp(rng.uniform(np.log(15), np.log(51)))), rng.random(2)
        if (place + seed) % 2:
            shares[1] = shares[0]
        counts = np.round(size * shares).astype(int)
        one, other = (rng.permutation(part) for part in senses)
        drawn[name] = tuple(
            np.concatenate([one[first : first + count], other[start : start + size - count]])
            for first, start, count in ((0, 0, counts[0]), (counts[0], size - counts[0], counts[1]))
        )
        changes.append(abs(counts[1] - counts[0]) / size)
    return drawn, np.array(changes)


def draw_uses(args: argparse.Namespace, words: Iterable[str]) -> Usages:
    """Returns some of the usages of DWUG EN."""
    uses, rng = usages_of(read_uses(args.dwug)), np.random.default_rng(0)
    return {
        word: {
            time: [part[index] for index in rng.permutation(len(part))[:DWUG_USAGES]]
            for time, part in uses[word].items()
        }
        for word in words
    }


def measures(args: argparse.Namespace) -> Iterator[dict]:
    """
    Yields the agreement of measures with what is known. Half of DWUG's words, words with a known history and mixtures
    are to choose by; the other half and SemEval's scores are to look at once.
    """
    number, most = CHANCE_WORDS
    pairs = put_together(read_words(args, [PERIOD], choose_words(args, number, most), most))
    pairs = {name: {sense: part[:MIXED_USAGES] for sense, part in senses.items()} for name, senses in pairs.items()}
    vectors = encode(args, pairs, with_texts=True)
    mixed, truths = zip(*(draw_mixtures(vectors, seed) for seed in range(SEEDS)), strict=True)
    scored = score_samples(args, list(mixed))
    columns = {"mixtures": compare(list(zip(scored, truths, strict=True)), rank_correlation)}
    known = read_words(args, KNOWN_TIMES, CHANGED | STEADY, KNOWN_USAGES)
    golds = {"DWUG": read_truth(args.dwug / "stats_groupings.tsv"), "SemEval": read_truth(args.truth)}
    uses = draw_uses(args, golds["DWUG"])
    half = np.random.default_rng(0).permutation(sorted(golds["DWUG"]))
    parts = {
        "DWUG, half": half[: len(half) // 2],
        "DWUG, other half": half[len(half) // 2 :],
        "SemEval": golds["SemEval"],
    }
    for reads in args.reads:
        read_names = reads == "names"
        vectors = encode(args, known, read_names=read_names, with_texts=True)
        is_changed = np.array([word in CHANGED for word in vectors])
        columns[f"known, {reads}"] = compare([(*score_samples(args, [vectors]), is_changed)], pairs_in_order)
        (scores,) = score_samples(args, [encode(args, uses, read_names=read_names, max_length=64, with_texts=True)])
        for name, words in parts.items():
            gold, known_words = golds[name.partition(",")[0]], [word for word in words if word in scores.index]
            truth = np.array([gold[word] for word in known_words])
            columns[f"{name}, {reads}"] = compare([(scores.loc[known_words], truth)], rank_correlation)
    yield from (
        {"measure": name, **{column: by_name[name] for column, by_name in columns.items()}}
        for name in columns["mixtures"]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--model_name_or_path", required=True)
    parser.add_argument("--speeches", type=Path, required=True, help="Table of the speeches.")
    parser.add_argument("--dwug", type=Path, help="Folder of DWUG EN.")
    parser.add_argument("--truth", type=Path, help="The gold scores of SemEval-2020.")
    parser.add_argument(
        "--reads",
        nargs="+",
        choices=("forms", "names"),
        default=["names"],
        help="For `measures`: what the encoder reads of a word with a known history, and of one of DWUG.",
    )
    parser.add_argument("--langchange_python", help="For `measures`: the Python that has langchange.")
    args = parser.parse_args()
    for case in args.cases:
        rows = list(CASES[case](args))
        table(list(rows[0]), [list(map(str, row.values())) for row in rows])


CASES: dict[str, Callable[[argparse.Namespace], Iterator[dict]]] = {
    "chance": chance,
    "frequency": frequency,
    "discovery": discovery,
    "measures": measures,
}


if __name__ == "__main__":
    main()
