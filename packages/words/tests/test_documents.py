"""
Checks that chance and intervals count documents, not usages: which document each reader gives a sentence, and
p-values and intervals where usages of one document are alike.
"""

from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SIZES, TIMES, VOCABULARY, read_table
from scipy.spatial.distance import cosine
from scipy.stats import binom, binomtest, norm, t
from transformers import BertConfig, BertModel, BertTokenizer

from semantic_change.commands.words import main as rank_words
from semantic_change.corpora import read_dated_corpus, read_dwug, read_semeval
from semantic_change.dated_sentences import NUM_BLOCKS, DatedSentence
from semantic_change.measures import (
    design_effects,
    interval_of_change,
    prototype_deviations,
    prototype_distance,
    shuffled_prototypes,
)
from semantic_change.usages import count_documents, count_frequencies, find_usages, sample_usages


WIDTH = 12


TOKENS = "the\tX\tthe\nplane\tX\tplane\n"
CONLLU = "1\tthe\t_\t_\t_\t_\t_\t_\t_\t_\n2\tplane\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
LINES = "".join(f"line {number} of\n" for number in range(60))
TEI = "<TEI><text><p>the plane</p><p>flew</p></text></TEI>"
BOOK = (
    "The Project Gutenberg EBook\n\n*** START OF THE PROJECT GUTENBERG EBOOK ***\n\n"
    "one\n\ntwo\n\n*** END OF THE PROJECT GUTENBERG EBOOK ***\n"
)
FILES = {
    "vrt": (
        "c.vrt",
        f"<text>\n<s>\n{TOKENS}</s>\n<s>\n{TOKENS}</s>\n</text>\n<text>\n<s>\n{TOKENS}</s>\n</text>\n",
        [2, 1],
    ),
    "conllu": ("c.conllu", f"# newdoc id = a\n{CONLLU}{CONLLU}# newdoc\n# sent_id = 3\n{CONLLU}", [2, 1]),
    "coha": ("c.txt", "##11\n" + "the\tthe\tat\n.\t.\ty\n" * 2 + "##12\n" + "sad\tsad\tjj\n.\t.\ty\n" * 3, [2, 3]),
    "coha on lines": ("c.txt", "@@11 the plane\n@@12 the plane\n", [1, 1]),
    "tei": ("c.xml", f"<teiCorpus>{TEI}{TEI}</teiCorpus>", [2, 2]),
    "gutenberg": ("c.txt", BOOK + BOOK.replace("The Project", "Another"), [2, 2]),
    "table": ("c.csv", "source,date,text\na,1815,the\na,1815,plane\na,1816,the\n,1815,air\n,1815,air\n", [2, 1, 1, 1]),
    "lines": ("c.txt", LINES * 4, [240 // NUM_BLOCKS] * NUM_BLOCKS),
}


def sizes(sentences: list[DatedSentence]) -> list[int]:
    """Returns the number of sentences of each document."""
    return pd.Series([sentence.document for sentence in sentences]).value_counts(sort=False).tolist()


@pytest.mark.parametrize("layout", FILES)
def test_each_layout_tells_its_documents_or_has_blocks(tmp_path, caplog, layout):
    name, content, expected = FILES[layout]
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert sizes(list(read_semeval({"t": tmp_path / name}, []))) == expected
    assert ("blocks of 12 neighbouring" in caplog.text) == (layout == "lines")
    # A folder with this file alone is the same corpus.
    (tmp_path / "alone").mkdir()
    (tmp_path / name).rename(tmp_path / "alone" / name)
    if layout != "table":
        assert sizes(list(read_semeval({"t": tmp_path / "alone"}, []))) == expected


def test_a_file_of_a_folder_is_a_document(tmp_path):
    for name, content in (("1815.txt", LINES * 3), ("1816.txt", LINES), ("1817.vrt", FILES["vrt"][1])):
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert sizes(list(read_dated_corpus(tmp_path, ["1815", "1816-1817"], []))) == [180, 60, 2, 1]


def test_blocks_are_as_long_at_each_time(tmp_path):
    """The smaller corpus has 20. With longer blocks in the other one, documents of one kind would not be dealt."""
    for name, number in (("old", 4), ("new", 10)):
        (tmp_path / f"{name}.txt").write_text(LINES * number)
    found = list(read_semeval({name: tmp_path / f"{name}.txt" for name in ("new", "old")}, []))
    assert [sizes([one for one in found if one.time == time]) for time in ("old", "new")] == [[12] * 20, [12] * 50]


def test_one_corpus_of_all_times_has_blocks(tmp_path):
    """One file has dates, but does not mark texts."""
    sentences = [f'<p date="{1800 + number // 100}">\n<s>\n{TOKENS}</s>\n</p>\n' for number in range(200)]
    (tmp_path / "c.vrt").write_text("".join(sentences))
    found = list(read_dated_corpus(tmp_path / "c.vrt", ["1800", "1801"], []))
    for time in ("1800", "1801"):
        assert sizes([sentence for sentence in found if sentence.time == time]) == [5] * 20


def test_a_use_of_a_published_data_set_names_its_document(tmp_path):
    columns = "lemma pos date grouping identifier description context indexes_target_token indexes_target_sentence"
    (tmp_path / "data" / "w").mkdir(parents=True)
    uses = ["fic_1821_7.txt-12-5", "fic_1821_7.txt-90-1", "fic_1821_8.txt-12-5", "corpus-3"]
    rows = [f"w\t \t1821\t1\t{use}\t \ta w\t2:3\t0:3" for use in uses]
    (tmp_path / "data" / "w" / "uses.csv").write_text("\n".join(["\t".join(columns.split()), *rows]))
    assert sizes(list(read_dwug(tmp_path))) == [2, 1, 1]


def test_documents_of_two_times_are_two():
    sentences = [DatedSentence(time, "plane", (("plane", 0, 5),), ("plane",), document="a") for time in TIMES * 2]
    usages = sample_usages(sentences, ["plane", "air"], TIMES, 10)
    assert count_documents(usages) == {"plane": dict.fromkeys(TIMES, 1), "air": dict.fromkeys(TIMES, 0)}


def usages_of(generator: np.random.Generator, number: int, mean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the vectors of usages of a number of documents, which each have their own mean, and their documents."""
    documents = np.repeat(np.arange(number), generator.integers(1, 12, size=number))
    offsets = generator.normal(size=(number, WIDTH))[documents]
    return mean + offsets + 0.5 * generator.normal(size=(len(documents), WIDTH)), documents


def p_of(pairs: list[tuple[np.ndarray, np.ndarray]], by_usage: bool = False) -> float:
    (before, numbers), (after, other) = pairs
    joined = np.concatenate([before, after])
    documents = (np.arange(len(before)), np.arange(len(after))) if by_usage else (numbers, other)
    return shuffled_prototypes(joined, joined, documents, resamples=199)[1]


def test_copies_in_other_documents_are_counted(caplog):
    def find(texts: list[tuple[str, str]]) -> str:
        """Returns what is said of texts and their documents."""
        caplog.clear()
        sentences = (DatedSentence("t", text, (("air", 0, 3),), (), document=document) for text, document in texts)
        find_usages(sentences, ["air"], ["t"])
        return caplog.text

    numbers = [(f"air of a long text that has the number {number}", str(number)) for number in range(94)]
    reprinted = [("air of a long text that was printed again", str(number)) for number in range(7)]
    # Six of 101 texts are copies of another one, five of 100 are too few to tell.
    found = find(numbers + reprinted)
    assert "6 of 101 texts" in found and "printed again" in found
    assert find(numbers + reprinted[:6]) == ""
    # One document may repeat itself, and short texts are alike by chance.
    assert (
        find([(text, "one") for text, _ in numbers + reprinted])
        == find([("air of a text", "1"), ("air of a text", "2")])
        == ""
    )


def test_documents_that_are_dealt_at_random_are_no_change():
    """
    Usages of one document are alike. 5 % of 200 words that did not change have p below 0.05, and many more if usages
    are shuffled. Words that changed are found.
    """
    generator = np.random.default_rng(5)
    mean, step = 3 * np.eye(WIDTH)[0], 2 * np.eye(WIDTH)[1]
    words = [[usages_of(generator, number, mean) for number in (15, 25)] for _ in range(200)]
    found = sum(p_of(pairs) < 0.05 for pairs in words)
    low, high = binom.ppf([0.001, 0.999], 200, 0.05)
    assert low <= found <= high
    assert sum(p_of(pairs, by_usage=True) < 0.05 for pairs in words) > 0.4 * 200
    changed = [[usages_of(generator, 15, mean), usages_of(generator, 25, mean + step)] for _ in range(20)]
    assert sum(p_of(pairs) < 0.05 for pairs in changed) >= 18


def test_chance_is_every_deal_of_the_documents():
    """All 126 ways to choose four of nine documents are counted by a plain loop."""
    generator = np.random.default_rng(3)
    (before, numbers), (after, other) = (usages_of(generator, number, np.ones(WIDTH)) for number in (4, 5))
    vectors, documents = np.concatenate([before, after]), np.concatenate([numbers, 4 + other])
    distances = {}
    for chosen in combinations(range(9), 4):
        is_before = np.isin(documents, chosen)
        distances[chosen] = cosine(vectors[is_before].mean(axis=0), vectors[~is_before].mean(axis=0))
    expected = np.mean(np.array(list(distances.values())) >= distances[0, 1, 2, 3] - 1e-12)
    by_chance, p = shuffled_prototypes(vectors, vectors, (numbers, other))
    assert p == pytest.approx(expected, abs=0.02)
    assert by_chance == pytest.approx(np.mean(list(distances.values())), rel=0.03)


@pytest.mark.parametrize("numbers", [(1, 1), (2, 4), (2, 5), (3, 3), (3, 4), (4, 4), (1, 30)])
def test_no_p_is_given_where_none_can_be_small(numbers):
    """
    The documents of both times are as far apart as can be. If 5 % of the deals or more separate them as well, or a
    time has one document, there is no p and no interval, and the mean by chance counts usages.
    """
    generator = np.random.default_rng(0)
    documents = tuple(np.repeat(np.arange(number), 3) for number in numbers)
    parts = [
        np.eye(WIDTH)[place] + 0.01 * generator.normal(size=(len(part), WIDTH)) for place, part in enumerate(documents)
    ]
    vectors = np.concatenate(parts)
    names = np.concatenate([documents[0], numbers[0] + documents[1]])
    deals = []
    for chosen in combinations(range(sum(numbers)), numbers[0]):
        is_before = np.isin(names, chosen)
        deals.append(prototype_distance(vectors[is_before], vectors[~is_before]))
    smallest = np.mean(np.array(deals) >= deals[0] - 1e-9)
    by_chance, p = shuffled_prototypes(vectors, vectors, documents)
    interval = prototype_deviations(*parts, documents)
    if smallest < 0.05 and min(numbers) > 1:
        assert p == pytest.approx(smallest, abs=0.015) and np.isfinite(interval).all()
    else:
        usages = tuple(np.arange(len(part)) for part in parts)
        assert np.isnan([p, *interval]).all()
        assert by_chance == pytest.approx(shuffled_prototypes(vectors, vectors, usages)[0])


def test_the_interval_of_change_is_of_other_documents():
    """Intervals that count documents hold the distance of the true means; intervals that count usages often do not."""
    generator = np.random.default_rng(1)
    means = np.eye(WIDTH)[0] * 4, np.eye(WIDTH)[0] * 4 + 2 * np.eye(WIDTH)[1]
    true, held = cosine(*means), Counter()
    for draw in range(100):
        (before, numbers), (after, other) = (usages_of(generator, 20, mean) for mean in means)
        joined, prt = np.concatenate([before, after]), prototype_distance(before, after)
        usages = np.arange(len(before)), np.arange(len(after))
        for name, documents in {"documents": (numbers, other), "usages": usages}.items():
            low, high = prototype_deviations(before, after, documents, seed=draw, resamples=300)
            by_chance, _ = shuffled_prototypes(joined, joined, documents, seed=draw, resamples=100)
            held[name] += prt - by_chance - high <= true <= prt - by_chance - low
    assert held["documents"] >= 85 and held["usages"] < 65


def test_an_interval_of_independent_usages_is_that_of_wilson():
    for count, total in ((0, 9), (9, 12), (7, 7)):
        interval = binomtest(count, total).proportion_ci(method="wilson")
        assert interval_of_change(count, total) == pytest.approx([count / total, interval.low, interval.high])
    # Twelve usages that tell as much as four.
    interval = binomtest(3, 4).proportion_ci(method="wilson")
    assert interval_of_change(9, 12, 3) == pytest.approx([0.75, interval.low, interval.high])


def factor(freedom: int) -> float:
    """Returns how much larger few documents make an effect."""
    return (t.ppf(0.975, freedom) / norm.ppf(0.975)) ** 2


def test_usages_that_are_all_alike_tell_as_much_as_their_documents():
    """Half of 20 documents with five usages each have a sense in all of them, the others in none."""
    all_or_none, size = np.repeat([5, 0], 10), np.full(20, 5)
    assert design_effects([all_or_none], [size]) == pytest.approx([5 * factor(19)])
    # Other times have the same likeness: documents of one usage are independent, one of nine counts as one.
    sizes = [size, np.ones(30, int), np.array([9]), np.array([], int)]
    counts = [all_or_none, np.zeros(30, int), np.array([9]), np.array([], int)]
    assert design_effects(counts, sizes)[:3] == pytest.approx(np.array([5, 1, 9]) * factor(19 + 29))
    # Every document has two of five: they are no more alike than independent usages are.
    assert design_effects([np.full(20, 2)], [size]) == pytest.approx([factor(19)])
    # A share of 1 tells no likeness, and one document tells nothing.
    assert design_effects([size], [size]) == pytest.approx([5 * factor(19)])
    assert np.isnan(design_effects([np.array([3])], [np.array([9])])).all()


@pytest.mark.parametrize(("share", "number"), [(0.1, 25), (0.3, 25), (0.3, 5)])
def test_intervals_of_shares_hold_the_true_share(share, number):
    """The share differs by document. The interval of independent usages is too narrow."""
    generator, held = np.random.default_rng(2), Counter()
    for _ in range(400):
        totals = generator.integers(1, 30, size=number)
        counts = generator.binomial(totals, generator.beta(2 * share, 2 * (1 - share), size=number))
        for name, effect in {"documents": design_effects([counts], [totals])[0], "usages": 1}.items():
            _, low, high = interval_of_change(counts.sum(), totals.sum(), effect)
            held[name] += low <= share <= high
    assert held["documents"] >= 0.88 * 400 and held["usages"] < 0.65 * 400


def test_the_interval_of_a_frequency_is_of_other_documents():
    """One of ten documents has all usages of `plane`; each has one of `air`."""
    sentences = []
    for number in range(10):
        for line in range(10):
            found = ["plane"] * (number == 0) + ["air"] * (line == 0)
            text = " ".join([*found, *"sad glad tree the".split()[: 4 - len(found)]])
            targets = tuple((word, text.index(word), text.index(word) + len(word)) for word in found)
            sentences.append(DatedSentence("1", text, targets, tuple(text.split()), document=str(number)))
    frequencies = {}
    assert len(list(count_frequencies(sentences, ["plane", "air"], ["1"], frequencies))) == 100
    plane, air = frequencies["plane"]["1"], frequencies["air"]["1"]
    assert plane[:2] == air[:2] == (10, 400)
    # A document that has `plane` has ten of them, so that the ten tell as much as one.
    assert air.design_effect == pytest.approx(factor(9))
    assert plane.design_effect == pytest.approx(10 * factor(9), rel=0.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    BertModel(BertConfig(**SIZES, initializer_range=0.5)).save_pretrained(path)
    BertTokenizer(vocab=VOCABULARY).save_pretrained(path)
    return path


def run(model: Path, folder: Path, files: int) -> list[dict[str, str]]:
    """Ranks two words in a folder of files for each time. `flew` changes its company, `air` has some in each file."""
    generator = np.random.default_rng(0)
    for time, company in zip(TIMES, ("plane", "sad"), strict=True):
        (folder / time).mkdir(parents=True)
        for number in range(files):
            lines = [f"flew {company} {company} tree"] * 6
            lines += [f"air {generator.choice(['the', 'glad', 'tree'])}"] * 6
            (folder / time / f"{number}.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "words.txt").write_text("flew\nair\n")
    given = ["--corpora", *(str(folder / time) for time in TIMES), "--times", *TIMES, "--min_usages", "5"]
    given += ["--targets", str(folder / "words.txt"), "--output_dir", str(folder / "out")]
    rank_words(["--model_name_or_path", str(model), *given])
    return read_table(folder / "out" / "changes.csv")


def test_a_table_of_words_counts_documents(model, tmp_path):
    rows = {row["word"]: row for row in run(model, tmp_path, 6)}
    for row in rows.values():
        assert [row[f"usages_{time}"] for time in TIMES] == ["36", "36"]
        assert [row[f"documents_{time}"] for time in TIMES] == ["6", "6"]
    # Two of the 924 deals separate the times.
    assert float(rows["flew"]["p"]) == pytest.approx(2 / 924, abs=0.002) and float(rows["air"]["p"]) > 0.05
    senses = pd.read_csv(tmp_path / "out" / "senses.csv")
    assert senses[f"documents_{TIMES[0]}"].max() == 6
    assert set(pd.read_parquet(tmp_path / "out" / "_usages.parquet")["document"]) == {f"{n}.txt" for n in range(6)}


def test_too_few_documents_are_said_and_are_not_reported_as_no_change(model, tmp_path, capsys):
    rows = {row["word"]: row for row in run(model, tmp_path, 3)}
    out = capsys.readouterr().out
    assert "flew (3 and 3)" in out and "0 of 2" not in out
    for row in rows.values():
        assert [row[name] for name in ("p", "p_fdr", "times_chance", "change_low", "change_high")] == [""] * 5
    assert float(rows["flew"]["change"]) > float(rows["air"]["change"])
