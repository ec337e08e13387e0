"""Checks that a ranking of words follows their change and not their rarity."""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SIZES, TIMES, VOCABULARY, dated_bert, dated_config, read_table
from scipy.spatial.distance import cosine
from scipy.stats import permutation_test, spearmanr
from sklearn.metrics.pairwise import cosine_distances
from sklearn.preprocessing import StandardScaler
from transformers import BertConfig, BertModel, BertTokenizer

from modeling_tempoformer import BertWithTemporalAttention
from semantic_change.commands.words import main as rank_words
from semantic_change.measures import (
    ReadUsages,
    average_pairwise_distance,
    largest_step,
    prototype_distance,
    shuffled_prototypes,
)


def usages(generator: np.random.Generator, before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the vectors of an unchanged word, which have about the same mean at both times."""
    mean = 2 * generator.normal(size=12)
    return mean + generator.normal(size=(before, 12)), mean + generator.normal(size=(after, 12))


def apart(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the documents of usages that have one each."""
    return np.arange(before), np.arange(after)


def test_a_ranking_does_not_follow_rarity():
    """The 40 words did not change and have 3 to 200 usages at a time. Rare words come first by `prt` alone."""
    generator = np.random.default_rng(0)
    counts = np.geomspace(3, 200, 40).round().astype(int)
    samples = [usages(generator, count, generator.integers(count, 201)) for count in counts]
    plain = np.array([prototype_distance(*pair) for pair in samples])
    by_chance = [
        shuffled_prototypes(*[np.concatenate(pair)] * 2, apart(*map(len, pair)), resamples=500)[0] for pair in samples
    ]
    pairwise = [average_pairwise_distance(*pair) for pair in samples]
    assert spearmanr(plain, counts).statistic < -0.8
    for scores in (plain - by_chance, pairwise):
        assert abs(spearmanr(scores, counts).statistic) < 0.3


def test_the_test_is_that_of_scipy():
    before, after = usages(np.random.default_rng(1), 9, 6)
    vectors = np.concatenate([before, after])

    def distance(first: np.ndarray, second: np.ndarray) -> float:
        return cosine(vectors[first.astype(int)].mean(axis=0), vectors[second.astype(int)].mean(axis=0))

    # The test counts all 5005 ways to choose nine of fifteen.
    exact = permutation_test(
        (np.arange(9), np.arange(9, 15)), distance, vectorized=False, n_resamples=np.inf, alternative="greater"
    )
    by_chance, p = shuffled_prototypes(vectors, vectors, apart(9, 6))
    assert p == pytest.approx(exact.pvalue, abs=0.03)
    assert by_chance == pytest.approx(exact.null_distribution.mean(), rel=0.03)


def test_p_values_are_of_change_alone():
    """The p-values of unchanged words are uniform, even if a model moves all vectors with time."""
    generator = np.random.default_rng(2)
    p_values = []
    for _ in range(60):
        at_first = np.concatenate(usages(generator, 20, 30))
        at_last = at_first + 5 * np.eye(12)[0]
        p_values.append(shuffled_prototypes(at_first, at_last, apart(20, 30), resamples=199)[1])
    assert 0.4 < np.mean(p_values) < 0.6 and np.mean(np.array(p_values) <= 0.05) < 0.15
    at_first[20:] += 5 * np.eye(12)[1]
    at_last = at_first + 5 * np.eye(12)[0]
    assert shuffled_prototypes(at_first, at_last, apart(20, 30), resamples=199)[1] == pytest.approx(1 / 200)


def test_the_largest_step_finds_a_word_that_changed_and_changed_back():
    generator = np.random.default_rng(3)
    means = {"1": np.zeros(12), "2": np.zeros(12), "3": 2 * np.eye(12)[0], "4": np.zeros(12)}
    vectors = {time: 2 + mean + generator.normal(size=(30, 12)) for time, mean in means.items()}
    # Half of the peak's usages stay, so the step to it is the larger one.
    vectors["4"] = np.concatenate([vectors["4"], vectors["3"]])
    pairs = [("1", "2"), ("2", "3"), ("3", "4")]
    swapped = {(one, other): {one: vectors[other], other: vectors[one]} for one, other in pairs}
    documents = {time: np.arange(len(part)) for time, part in vectors.items()}
    word = ReadUsages(vectors, swapped, documents)
    step = largest_step(word, list(vectors), seed=0)
    assert step["step"] == "2 to 3"
    apd = np.mean([cosine(one, other) for one in vectors["2"] for other in vectors["3"]])
    prt = cosine(vectors["2"].mean(axis=0), vectors["3"].mean(axis=0))
    # Chance takes little away, because there are 30 usages at each time.
    assert 0.9 * 100 * np.sqrt(apd * prt) < step["change_step"] < 100 * np.sqrt(apd * prt)
    assert largest_step(word, ["1", "2"], seed=0) == {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """
    Returns two encoders, and texts in which `flew` changes its contexts, `the` and `air` do not, and `trees` is rare.
    """
    path = tmp_path_factory.mktemp("change")
    torch.manual_seed(0)
    plain = BertModel(BertConfig(**SIZES, initializer_range=0.5)), BertTokenizer(vocab=VOCABULARY)
    config = dated_config(time_initializer_range=1.0, initializer_range=0.5)
    for name, parts in (("plain", plain), ("dated", (BertWithTemporalAttention(config), dated_bert()))):
        for part in parts:
            part.save_pretrained(path / name)
    generator = random.Random(0)
    for time in TIMES:
        lines = ["The trees"] * (4 if time == TIMES[0] else 30)
        for _ in range(40):
            lines.append("flew " + ("plane " if time == TIMES[0] else "sad ") * 3)
            lines.append(" ".join(generator.sample(["The", "Air", "the", "AIR", "glad"], 4)))
        # Each row is a document.
        (path / f"{time}.csv").write_text("\n".join(["text", *lines]), encoding="utf-8")
    (path / "words.txt").write_text("flew\nthe\nair\ntrees\nThe  Trees\n", encoding="utf-8")
    return path


def rank(texts: Path, output: Path, *more: str | Path) -> list[dict[str, str]]:
    corpora = [str(texts / f"{time}.csv") for time in TIMES]
    words = ["--targets", str(texts / "words.txt"), "--output_dir", str(output)]
    rank_words(["--corpora", *corpora, *words, *map(str, more)])
    return read_table(output / "changes.csv")


@pytest.mark.parametrize("model", ["plain", "dated"])
def test_a_table_of_words_says_how_sure_it_is(folder, tmp_path, capsys, model):
    rows = {row["word"]: row for row in rank(folder, tmp_path, "--model_name_or_path", folder / model)}
    scores = ["change", "apd", "prt", "prt_corrected", "change_of_texts"]
    assert list(rows["flew"])[:12] == [
        "rank",
        "word",
        *scores,
        "times_chance",
        "p",
        "p_fdr",
        "change_low",
        "change_high",
    ]
    assert rows.keys() == {"flew", "the", "air"}
    # The tokenizer lower-cases, so `AIR` is `air`.
    assert int(rows["air"][f"usages_{TIMES[0]}"]) > 40
    assert float(rows["flew"]["p_fdr"]) < 0.01 and float(rows["flew"]["prt_corrected"]) > 0
    for word in ("the", "air"):
        assert float(rows[word]["p_fdr"]) >= float(rows[word]["p"]) > 0.05
        assert float(rows[word]["times_chance"]) < 1.5 < float(rows["flew"]["times_chance"])
        assert abs(float(rows[word]["prt_corrected"])) < 0.2 * float(rows["flew"]["prt_corrected"])
    # `trees` occurs only in the longer phrase.
    out = capsys.readouterr().out
    for word, first, last in (("The Trees", 4, 30), ("trees", 0, 0)):
        assert f"{word} ({TIMES[0]}: {first}, {TIMES[1]}: {last})" in out


def test_a_word_that_is_rare_between_the_ends_is_scored_by_the_ends(folder, tmp_path):
    """The times between have `air` and `the` as often as the ends do, but `flew` three times."""
    between, times = ["1900", "1930"], [TIMES[0], "1900", "1930", TIMES[1]]
    lines = (folder / f"{TIMES[0]}.csv").read_text(encoding="utf-8").splitlines()
    steady = [line for line in lines if "flew" not in line]
    for time in between:
        (tmp_path / f"{time}.csv").write_text("\n".join([*steady, *["flew plane"] * 3]), encoding="utf-8")
    corpora = [(tmp_path if time in between else folder) / f"{time}.csv" for time in times]
    common = ("--model_name_or_path", folder / "plain")
    given = ("--corpora", *corpora, "--times", *times)
    rows = {row["word"]: row for row in rank(folder, tmp_path / "four", *common, *given)}
    ends = {row["word"]: row for row in rank(folder, tmp_path / "two", *common)}
    assert rows.keys() == ends.keys()
    for name in ("change", "apd", "prt", "p", "change_low", "change_high"):
        assert rows["flew"][name] == ends["flew"][name]
    # No neighbours have enough usages of `flew`.
    assert rows["flew"]["step"] == rows["flew"]["change_step"] == rows["flew"]["prt 1900 to 1930"] == ""
    assert rows["air"]["step"] and float(rows["air"]["prt 1930 to 1960-2010"]) > 0
    assert (rows["flew"]["usages_1900"], rows["flew"]["usages_1930"]) == ("3", "3")
    # The page and the files have the rare time's usages, too.
    usages = pd.read_parquet(tmp_path / "four" / "_usages.parquet")
    assert sum((usages["word"] == "flew") & (usages["time"] == "1900")) == 3
    assert "flew" not in set(pd.read_csv(tmp_path / "four" / "unranked.csv")["word"])


def test_a_change_is_compared_with_that_of_steady_words(folder, tmp_path, capsys):
    """`the` is in the list already, `air` joins it, and `trees` has too few usages."""
    (tmp_path / "words.txt").write_text("flew\nthe\n", encoding="utf-8")
    (tmp_path / "steady.txt").write_text("air\nthe\ntrees\n", encoding="utf-8")
    given = ("--model_name_or_path", folder / "plain", "--targets", tmp_path / "words.txt")
    rows = rank(folder, tmp_path / "out", *given, "--steady", tmp_path / "steady.txt")
    change = {row["word"]: float(row["change"]) for row in rows}
    assert change.keys() == {"flew", "the", "air"}
    for row in rows:
        above = change[row["word"]] - (change["the"] + change["air"]) / 2
        assert float(row["above_steady"]) == pytest.approx(above, abs=1e-9)
    assert "1 of the other 1 changed more" in capsys.readouterr().out
    (tmp_path / "steady.txt").write_text("trees\n", encoding="utf-8")
    for refused in (tmp_path / "steady.txt", "0"):
        with pytest.raises(ValueError, match="--steady"):
            rank(folder, tmp_path / "rare", *given, "--steady", refused)


def test_a_corpus_in_another_layout_gives_the_same_table(folder, tmp_path):
    """The same sentences stand in one folder of VRT files with dates, and are found by their lemmas."""
    (tmp_path / "vrt").mkdir()
    for time, date in zip(TIMES, ("1815-06", "1999"), strict=True):
        lines = (folder / f"{time}.csv").read_text(encoding="utf-8").splitlines()[1:]
        sentences = ["\n".join(f"{word}\tX\t{word.lower()}" for word in line.split()) for line in lines]
        begin, end = f'<text date="{date}">\n<s>', "</s>\n</text>"
        content = "".join(f"{begin}\n{sentence}\n{end}\n" for sentence in sentences)
        path = tmp_path / "vrt" / f"{date}.vrt"
        path.write_text(content, encoding="utf-8")
    common = ("--model_name_or_path", folder / "plain")
    expected = rank(folder, tmp_path / "lines", *common)
    given = ("--corpora", tmp_path / "vrt", "--times", *TIMES, "--search_columns", "3")
    rows = rank(folder, tmp_path / "tokens", *common, *given)
    assert rows == expected
    usages = pd.read_parquet(tmp_path / "tokens" / "_usages.parquet")
    assert set(usages["date"]) == {"1815-06", "1999"}
    forms = {usage.text[usage.start : usage.end] for usage in usages.itertuples()}
    assert forms == {"flew", "the", "The", "Air", "AIR", "The trees"}


def test_scores_of_standardised_vectors(folder, tmp_path):
    """Vectors on disk stay as the encoder made them."""
    rows = rank(folder, tmp_path, "--model_name_or_path", folder / "plain", "--standardise")
    usages = pd.read_parquet(tmp_path / "_usages.parquet")
    scored = usages["word"].isin([row["word"] for row in rows])
    vectors = StandardScaler().fit_transform(np.stack(usages["vector"][scored]).astype(np.float64))
    usages = usages[scored].assign(vector=list(vectors))
    for row in rows:
        before, after = (
            np.stack(usages["vector"][(usages["word"] == row["word"]) & (usages["time"] == time)]) for time in TIMES
        )
        assert float(row["apd"]) == pytest.approx(cosine_distances(before, after).mean(), abs=1e-5)
        assert float(row["prt"]) == pytest.approx(cosine(before.mean(axis=0), after.mean(axis=0)), abs=1e-5)


def test_weights_that_an_encoder_lacks_are_named(folder, tmp_path, caplog):
    """The saved model has one of two layers. It has no pooler, either, but none is read."""
    short = tmp_path / "short"
    BertModel(BertConfig(**{**SIZES, "num_hidden_layers": 1}), add_pooling_layer=False).save_pretrained(short)
    BertConfig(**SIZES).save_pretrained(short)
    BertTokenizer(vocab=VOCABULARY).save_pretrained(short)
    rank(folder, tmp_path, "--model_name_or_path", short, "--measures", "apd")
    assert "random numbers: encoder.layer.1." in caplog.text and "pooler" not in caplog.text.split("random numbers")[1]
