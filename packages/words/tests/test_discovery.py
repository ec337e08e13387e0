"""Checks the search for the most changed words of a corpus, on texts in which one word was made to change."""

import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import read_table
from transformers import BertConfig, BertModel, BertTokenizer

from semantic_change.commands.words import main as rank_words
from semantic_change.corpora import read_semeval
from semantic_change.dated_sentences import Blocks, Capitals, Compounds, DatedSentence, TargetFinder
from semantic_change.discovery import Searched, Vocabulary, sift, tagged_words
from semantic_change.measures import ReadUsages
from semantic_change.reading.passages import Passage, TextColumns
from semantic_change.usages import Usage, count_frequencies, embed_usages


OLD, NEW = "1810-1860", "1960-2010"
STEADY = ["river", "wagon", "letter", "garden", "mountain", "harbour", "kitchen", "soldier", "music", "winter"]
FUNCTION = ["the", "of", "and"]
CONTEXTS = {"old": ["cattle", "wheat", "plough"], "new": ["engine", "signal", "screen"]}


def finder() -> TargetFinder:
    return TargetFinder("none", {}, False, TextColumns(), Capitals(), Compounds(), Blocks(["none"], TextColumns()))


def sentence(time: str, text: str) -> DatedSentence:
    return finder().find(time, Passage.of_text("", "", text, document="a"))


def search(sentences: list[DatedSentence], min_usages: int, **settings):
    return Vocabulary.of(sentences, 5).search([OLD, NEW], min_usages, **settings)


def test_words_are_what_the_ranking_looks_for():
    text = 'A "Plane," the plane\'s well-known air 1815 it (AIR).'
    found = [(word, text[start:end]) for word, start, end in tagged_words(sentence(OLD, text))]
    assert found == [("Plane", "Plane"), ("the", "the"), ("well-known", "well-known"), ("air", "air"), ("AIR", "AIR")]
    assert list(tagged_words(sentence(OLD, "an attack_nn ,"))) == [("attack_nn", 3, 9)]
    # The text is as it was written; the words are the lemmas, which are looked up.
    passage = Passage("", "", ["Trees", "'", "leaves"], ["tree", "'", "leaf"], {1}, "a")
    of_lemmas = finder().find(OLD, passage)
    assert of_lemmas.text == "Trees' leaves" and list(tagged_words(of_lemmas)) == [("tree", 0, 5), ("leaf", 7, 13)]


def test_what_is_left_out_is_counted():
    """The old texts have five sentences, the new ones four. `the` is half of all words and more."""
    texts = {
        OLD: ["the the the the the Paris river whose thou"] * 4 + ["the gone River"],
        NEW: ["the the the the the Paris river whose thou rare"] * 4,
    }
    sentences = [sentence(time, text) for time, lines in texts.items() for text in lines]
    searched = search(sentences, 3)
    assert searched.forms == {"Paris": ["Paris"], "river": ["River", "river"]} and searched.num_words == 7
    table = searched.table.set_index("word")
    assert table["left_out"].to_dict() == {
        "the": "among the most frequent",
        "whose": "a function word",
        "thou": "a function word",
        "Paris": "",
        "river": "",
        "rare": "rare at a time",
    }
    assert table.loc["river"].tolist() == ["", 5, 4] and table.loc["rare", f"count_{OLD}"] == 0
    without = search(sentences, 3, without_names=True)
    assert list(without.forms) == ["river"] and "a name" in set(without.table["left_out"])


def test_a_word_that_is_printed_in_two_ways_is_one_word():
    """Only one time has ligatures, soft hyphens, long s and typographic hyphens. The texts keep them."""
    printed = "the the the the the the \ufb01eld con\u00adtent \u017fail self\u2010made"
    typed = "the the the the the the field content sail self-made"
    searched = search([sentence(OLD, printed)] * 4 + [sentence(NEW, typed)] * 4, 3)
    assert searched.forms == {word: [word] for word in ("field", "content", "sail", "self-made")}
    assert searched.num_words == 5 and set(searched.table[f"count_{OLD}"]) == {4, 24}
    usages = searched.usages["content"][OLD]
    assert {usage.text[usage.start : usage.end] for usage in usages} == {"con\u00adtent"} and len(usages) == 4


def test_samples_are_of_different_sentences_and_share_them():
    sentences = [sentence(time, f"river river wagon number {n}{8 * ' the'}") for time in (OLD, NEW) for n in range(50)]
    sentences += [sentence(time, "wagon alone") for time in (OLD, NEW)]
    usages = search(sentences, 10).usages
    for time in (OLD, NEW):
        rivers = usages["river"][time]
        assert len({usage.text for usage in rivers}) == 5
        assert all(usage.text[usage.start : usage.end] == "river" for usage in rivers)
        assert len({usage.text for usage in rivers} & {usage.text for usage in usages["wagon"][time]}) >= 4
    others = Vocabulary.of(sentences, 5, seed=1).search([OLD, NEW], 10).usages
    assert others["river"] != usages["river"]


def test_a_sample_is_drawn_from_all_sentences_alike():
    drawn = Counter()
    for seed in range(400):
        sentences = [sentence(time, f"river {n} the the") for time in (OLD, NEW) for n in range(20)]
        usages = Vocabulary.of(sentences, 5, seed).search([OLD, NEW], 5).usages
        drawn.update(usage.text for usage in usages["river"][OLD])
    # 400 draws of 5 of 20 sentences: 100 for each, with a standard deviation of 8.7.
    assert len(drawn) == 20 and all(60 < count < 140 for count in drawn.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """
    Returns an encoder and texts of two times. Each steady word has contexts of its own at both times; `cloud` is about
    a farm and later about a machine.
    """
    path = tmp_path_factory.mktemp("discovery")
    generator = random.Random(0)
    around = {word: [f"{word[:3]}{letter}" for letter in ("aa", "bb", "cc")] for word in STEADY}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *FUNCTION, *STEADY, "cloud", "Cloud"]
    words += [word for group in (*around.values(), *CONTEXTS.values()) for word in group]
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = BertConfig(vocab_size=len(words), max_position_embeddings=16, initializer_range=0.5, **sizes)
    BertModel(config).save_pretrained(path / "bert")
    vocabulary = {word: index for index, word in enumerate(words)}
    BertTokenizer(vocab=vocabulary, model_max_length=16).save_pretrained(path / "bert")
    for time in (OLD, NEW):
        lines = []
        for _ in range(30):
            for word in (*STEADY, "cloud"):
                near = around.get(word) or CONTEXTS["old" if time == OLD else "new"]
                line = [*generator.choices(near, k=2), "the", word, "of", "and", "the", generator.choice(near)]
                lines.append(" ".join(line) + ".")
        lines += ["Cloud, the of and"] * 2 + ["the of and rare"] * (4 if time == OLD else 40)
        (path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    return path


def run(folder: Path, output: Path, *more: str | Path) -> list[dict[str, str]]:
    texts = [folder / f"{time}.txt" for time in (OLD, NEW)]
    given = ["--model_name_or_path", folder / "bert", "--output_dir", output, "--corpora", *texts, *more]
    rank_words(list(map(str, given)))
    return read_table(output / "changes.csv")


def test_the_word_that_changed_is_found(folder, tmp_path, capsys):
    rows = run(folder, tmp_path / "found", "--discover", "3")
    assert [row["word"] for row in rows][0] == "cloud" and len(rows) == 3
    searched = read_table(tmp_path / "found" / "searched.csv")
    by_more = [float(row["change_by_40"]) for row in searched if row["change_by_40"]]
    by_few = [float(row["change_by_10"]) for row in searched if row["change_by_10"] and not row["change_by_40"]]
    assert searched[0]["word"] == "cloud" and by_more[0] > by_more[1] and len(by_more) == 6 * 3
    assert all(scores == sorted(scores, reverse=True) for scores in (by_more, by_few))
    left_out = {row["word"]: row["left_out"] for row in searched}
    assert left_out["rare"] == "rare at a time" and left_out["the"] == "among the most frequent"
    compared = [row for row in searched if not row["left_out"]]
    assert {row["word"] for row in compared} == {*STEADY, "cloud"} | {
        row["word"] for row in compared if row["word"][3:] in ("aa", "bb", "cc")
    }
    # `of` has two letters only. The console and the page tell what was searched.
    page = (tmp_path / "found" / "_changes.html").read_text(encoding="utf-8")
    for output in (capsys.readouterr().out, page):
        assert f"50 words were searched, and {len(compared)} of them" in output
    # The sieve only proposes words: a list of them has the same table, but for p_fdr. A search adjusts it for all
    # words from which it chose, whose p is not known and at most 1.
    (tmp_path / "words.txt").write_text(
        "".join(f"{row['word']}: {row['word']}, {row['word'].title()}\n" for row in rows), encoding="utf-8"
    )
    listed = run(folder, tmp_path / "listed", "--targets", tmp_path / "words.txt")
    p = [float(row["p"]) for row in rows]
    adjusted = [
        min(1, *(other * len(compared) / sum(each <= other for each in p) for other in p if other >= value))
        for value in p
    ]
    assert [float(row.pop("p_fdr")) for row in rows] == pytest.approx(adjusted, abs=1e-12)
    assert all(float(row.pop("p_fdr")) <= other for row, other in zip(listed, adjusted, strict=True))
    assert [row.pop("word") for row in listed] == [row.pop("word") for row in rows]
    for one, other in zip(listed, rows, strict=True):
        assert {name: float(one[name]) for name in one} == pytest.approx({name: float(other[name]) for name in other})


def test_the_best_words_are_read_again():
    """
    Eight words are ordered by the angle by which they turn. But in the first ten usages `false` turns most, `late` too
    little for another look, and `last` least.
    """
    angles = {"a": 0.8, "b": 0.6, "c": 0.5, "d": 0.4, "e": 0.3, "false": -0.3, "late": 0.9, "last": 0.2}
    first = angles | {"false": 1.0, "late": 0.2, "last": 0.1}
    usages = {
        word: {time: [Usage(time, f"{word} {n}", 0, 1) for n in range(40)] for time in (OLD, NEW)} for word in first
    }

    def read(by_word: dict) -> dict[str, ReadUsages]:
        words = {}
        for word, by_time in by_word.items():
            numbers = [int(usage.text.split()[1]) for usage in by_time[NEW]]
            turned = [first[word] if number < 10 else angles[word] for number in numbers]
            vectors = {OLD: np.tile([1.0, 0.0], (len(numbers), 1)), NEW: np.c_[np.cos(turned), np.sin(turned)]}
            documents = {time: np.arange(len(numbers)) for time in (OLD, NEW)}
            # An encoder without times reads a usage alike at both.
            swapped = {OLD: vectors[NEW], NEW: vectors[OLD]}
            words[word] = ReadUsages(vectors, {(OLD, NEW): swapped}, documents)
        return words

    table = sift(usages, 1, read, seed=0)
    assert list(table.index) == ["a", "b", "c", "d", "e", "false", "late", "last"]
    assert list(table["change_by_40"].notna()) == [True] * 6 + [False] * 2
    assert table["change_by_10"].idxmax() == "false"


def test_steady_words_join_a_search_and_are_not_found_by_it(folder, tmp_path):
    """`river` was compared by the search; `of` names a form of a word that was, and is one test more."""
    (tmp_path / "steady.txt").write_text("of: wagon\nriver\n", encoding="utf-8")
    rows = run(folder, tmp_path / "found", "--discover", "4", "--steady", tmp_path / "steady.txt")
    words = [row["word"] for row in rows]
    assert len(words) == 6 and {"of", "river", "cloud"} < {*words} and "wagon" not in words
    compared = [row for row in read_table(tmp_path / "found" / "searched.csv") if not row["left_out"]]
    p = [float(row["p"]) for row in rows]
    number = len(compared) + 1
    adjusted = [
        min(1, *(other * number / sum(each <= other for each in p) for other in p if other >= value)) for value in p
    ]
    assert [float(row["p_fdr"]) for row in rows] == pytest.approx(adjusted, abs=1e-12)


@pytest.mark.parametrize("given", [("--targets", "words.txt"), ("--discover", "2")])
def test_steady_words_are_drawn_from_the_corpora(folder, tmp_path, monkeypatch, capsys, given):
    """They join the words of a list or a search, and a change is compared with nine in ten of them."""
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("cloud: Cloud\nof: wagon\n", encoding="utf-8")
    change = {row["word"]: row for row in run(folder, tmp_path / "out", *given, "--steady", "5")}
    above = {word: float(row["above_steady"]) for word, row in change.items()}
    change = {word: float(row["change"]) for word, row in change.items()}
    output = capsys.readouterr().out
    drawn = re.search(r"steady: 5, .*?\((.*?)\)", output)[1].split(", ")
    others = change.keys() - drawn
    assert len(drawn) == 5 and len(others) == 2
    if given[0] == "--targets":
        assert others == {"cloud", "of"} and "wagon" not in drawn
    third, fourth, fifth = sorted(change[word] for word in drawn)[2:]
    assert above == pytest.approx({word: change[word] - third for word in change}, abs=1e-9)
    larger = sum(change[word] > fourth + 0.6 * (fifth - fourth) for word in others)
    page = (tmp_path / "out" / "_changes.html").read_text(encoding="utf-8")
    assert all(f"{larger} of the other 2 changed more" in text for text in (output, page))


def test_frequent_words_are_drawn_more_often():
    """In proportion to the smaller number, without words that are given as a form."""
    counts = {"rare": (20, 900), "often": (80, 60), "seldom": (40, 20), "named": (500, 500)}
    table = pd.DataFrame([{"word": word, "count_a": a, "count_b": b} for word, (a, b) in counts.items()])
    searched = Searched({word: [word] for word in counts}, {}, table, 4)
    draws = (searched.draw(1, {"x": ["Named"]}, ["a", "b"], seed) for seed in range(1000))
    drawn = Counter(word for words in draws for word in words)
    # 20, 60 and 20 of 100, with standard deviations of 13 and 15 in 1,000 draws
    assert drawn.keys() == {"rare", "often", "seldom"}
    assert drawn["often"] == pytest.approx(600, abs=60) and drawn["rare"] == pytest.approx(200, abs=50)
    assert {*searched.draw(9, {}, ["a", "b"], 0)} == counts.keys()


def test_counts_are_those_of_the_ranking(folder):
    """`Cloud` with a comma is a usage of `cloud`."""
    corpora, frequencies = {time: folder / f"{time}.txt" for time in (OLD, NEW)}, {}
    searched = Vocabulary.of(read_semeval(corpora, {}), 5).search([OLD, NEW], 20)
    for _ in count_frequencies(read_semeval(corpora, searched.forms), searched.forms, [OLD, NEW], frequencies):
        pass
    for row in searched.table[searched.table["left_out"] == ""].to_dict("records"):
        for time in (OLD, NEW):
            assert row[f"count_{time}"] == frequencies[row["word"]][time].count
    assert frequencies["cloud"][OLD].count == 32


def test_usages_in_one_text_have_the_vectors_of_usages_alone(folder):
    model, tokenizer = BertModel.from_pretrained(folder / "bert"), BertTokenizer.from_pretrained(folder / "bert")
    text = "the cloud of river and wagon"
    usages = {
        word: {OLD: [Usage(OLD, text, text.index(word), text.index(word) + len(word))]}
        for word in ("cloud", "river", "wagon")
    }
    together = embed_usages(model, tokenizer, usages)
    for word, by_time in usages.items():
        alone = embed_usages(model, tokenizer, {word: by_time})
        np.testing.assert_allclose(together[word][OLD], alone[word][OLD], atol=1e-5)
    assert not np.allclose(together["cloud"][OLD], together["river"][OLD], atol=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--discover", "0"), "discover"),
        (("--discover", "3", "--min_usages", "100"), "finds no word"),
        (("--targets", "words.txt", "--steady", "5", "--min_usages", "100"), "draws no word"),
    ],
)
def test_a_search_that_finds_nothing_is_refused(folder, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("cloud\n", encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        run(folder, tmp_path, *arguments, "--num_samples", "200")
