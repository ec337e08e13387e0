"""Checks the entries of words: sentences, senses and first attestations over a whole corpus, and their files."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from semantic_change.citations import sentence_of
from semantic_change.entries import Entry, make_entries, make_entry, write_entries
from semantic_change.unranked import unranked_table, write_unranked
from semantic_change.usages import Frequency, Usage


TIMES = ["1800", "1900"]
# The middles of two senses.
CENTRES = 10 * np.eye(4)[:2]


def dated(year: int, sense: int, number: int = 0) -> Usage:
    return Usage(f"{year // 100}00", f"plane {sense} {year} {number}", 0, 5, str(year), f"letter {year}", str(year))


def sense_of(usage: Usage) -> int:
    return int(usage.text.split()[1])


def vectors_of(usages: list[Usage]) -> np.ndarray:
    return np.array([CENTRES[sense_of(usage)] for usage in usages]).reshape(-1, 4) + np.random.default_rng(
        len(usages)
    ).normal(size=(len(usages), 4))


@pytest.fixture
def sample() -> dict[str, list[Usage]]:
    """Returns a sample of two senses: the first grows from 2 of 12 to 9 of 12."""
    old = [dated(1850 + number, int(number > 1)) for number in range(12)]
    return {"1800": old, "1900": [dated(1950 + number, int(number > 8)) for number in range(12)]}


@pytest.fixture
def whole(sample) -> dict[str, list[list[Usage]]]:
    """Returns all usages in the corpus, by text. Eight are not in the sample, and one has the text of another."""
    others = [dated(1800 + number, number % 2) for number in range(7)]
    again = Usage("1900", others[0].text, 0, 5, "1999", "reprint")
    return {
        "1800": [[usage] for usage in (*sample["1800"], *others)],
        "1900": [[one] for one in (*sample["1900"], again)],
    }


def entries_of(sample, whole, most: int = 100) -> dict[str, Entry]:
    def read(usages):
        return usages, {
            word: {time: vectors_of(part) for time, part in parts.items()} for word, parts in usages.items()
        }

    return make_entries(*read({"plane": sample}), {"plane": whole}, read, most)


def test_the_earliest_usages_of_a_sense_are_those_of_the_whole_corpus(sample, whole):
    entry = entries_of(sample, whole)["plane"]
    assert entry.is_whole and entry.senses.counts.tolist() == [[2, 9], [10, 3]]
    for sense, years in enumerate([(1800, 1802, 1804, 1806, 1850), (1801, 1803, 1805, 1852, 1853)]):
        first = entry.first_usages(entry.chosen, sense)
        assert [int(entry.usages[usage].date) for usage in first] == list(years)
        assert {sense_of(entry.usages[usage]) for usage in first} == {sense}
        # All usages of a sense are near each other; the sense with 11 usages has ten others.
        assert [entry.support(entry.chosen, usage) for usage in first] == pytest.approx([1] * 5)
    # The word itself is the only sense of the first option.
    assert [int(entry.usages[usage].date) for usage in entry.first_usages(0, 0)] == [1800, 1801, 1802, 1803, 1804]


def test_a_usage_between_two_senses_is_unsure(sample):
    between = Usage("1800", "plane between", 0, 5, "1700")
    vectors = {time: vectors_of(part) for time, part in sample.items()}
    entry = make_entry(sample, vectors, [between], ([between], np.array([[10, 9.9, 0, 0]])))
    (usage,) = (index for index, one in enumerate(entry.usages) if one is between)
    assert entry.earliest[0] == usage and 0.2 < entry.support(entry.chosen, usage) < 0.9


def test_a_word_with_too_many_usages_has_the_earliest_of_its_sample(sample, whole):
    entry = entries_of(sample, whole, most=7)["plane"]
    assert not entry.is_whole and len(entry.usages) == 24
    assert entry.usages[entry.first_usages(entry.chosen, 0)[0]].date == "1850"


def test_a_word_of_one_time_has_an_entry(sample):
    only = {"1800": [], "1900": sample["1900"]}
    entry = make_entry(only, {time: vectors_of(part) for time, part in only.items()}, sample["1900"])
    assert entry.senses.counts.tolist() == [[0, 9], [0, 3]]
    assert [entry.usages[usage].date for usage in entry.first_usages(entry.chosen, 1)] == ["1959", "1960", "1961"]


def test_senses_and_usages_are_written(sample, whole, tmp_path):
    entry = entries_of(sample, whole)["plane"]
    write_entries(tmp_path, {"plane": entry}, TIMES)
    senses = pd.read_csv(tmp_path / "senses.csv", keep_default_na=False).to_dict("records")
    assert [(row["word"], row["sense"], row["usages_1800"], row["usages_1900"]) for row in senses] == [
        ("plane", 1, 2, 9),
        ("plane", 2, 10, 3),
    ]
    assert [senses[0][f"documents_{time}"] for time in TIMES] == [2, 9]
    # Each usage is a document of its own. 22 degrees of freedom tell how alike others would be.
    assert senses[0]["share_1900"] == 0.75
    for name in ("share_low_1900", "share_high_1900"):
        end = senses[0][name]
        assert abs(0.75 - end) / math.sqrt(end * (1 - end) / 12) == pytest.approx(t.ppf(0.975, 22), abs=0.002)
    assert (senses[0]["first_date"], senses[0]["first_source"]) == (1800, "letter 1800")
    assert (senses[0]["first_support"], senses[0]["first_among"]) == (1, "all usages")
    usages = pd.read_parquet(tmp_path / "_usages.parquet")
    assert usages["text"].tolist() == [usage.text for part in sample.values() for usage in part]
    assert [sense - 1 for sense in usages["sense"]] == [sense_of(usage) for part in sample.values() for usage in part]
    np.testing.assert_array_equal(np.stack(usages["vector"]), entry.vectors)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("It rained. The *plane* left at noon! Then", "The *plane* left at noon!"),
        ("*plane*", "*plane*"),
        ("Mr. J. Smith saw the *plane* of Dr. Who. He", "Mr. J. Smith saw the *plane* of Dr. Who."),
        (
            'He said: "Go." The *plane* of 3.5 tons (so... it seems) left. Yes',
            "The *plane* of 3.5 tons (so... it seems) left.",
        ),
        ("下雨了。*飞机*走了。是", "*飞机*走了。"),
    ],
)
def test_a_citation_is_the_whole_sentence(text, sentence):
    before, word, after = text.split("*")
    cut = sentence_of(Usage("1", before + word + after, len(before), len(before + word)))
    assert "*".join(cut) == sentence


def test_a_sentence_without_an_end_is_cut_between_words():
    text = "before " * 300 + "plane" + " behind" * 300
    before, word, after = sentence_of(Usage("1", text, 2100, 2105))
    assert word == "plane" and before.startswith("…before ") and after.endswith(" behind…")
    assert 550 < len(before) <= 601 and 550 < len(after) <= 601


def test_words_without_a_score_are_ranked_by_their_frequency(tmp_path):
    times = ["a", "b", "c"]
    counts = {"drug": (0, 0, 60), "virus": (0, 0, 3), "bank": (50, 5, 40), "plough": (9, 0, 0), "radio": (0, 9, 0)}
    left_out = {word: dict(zip(times, (min(n, 30) for n in row), strict=True)) for word, row in counts.items()}
    left_out["none"] = dict.fromkeys(times, 0)
    frequencies = {
        word: {time: Frequency(count, 1000) for time, count in zip(times, row, strict=True)}
        for word, row in counts.items()
    }
    documents = {word: {time: min(count, 4) for time, count in row.items()} for word, row in left_out.items()}
    table = unranked_table(left_out, times, 20, frequencies, documents)
    assert table["documents_c"].tolist() == [4, 0, 0, 3, 4]
    assert dict(zip(table["word"], table["when"], strict=True)) == {
        "drug": "new in c",
        "plough": "last in a",
        "radio": "only in b",
        "virus": "new in c",
        "bank": "rare in b",
    }
    assert table["word"].tolist() == ["drug", "plough", "radio", "virus", "bank"]
    # G² of 'drug': 2 * sum of O * ln(O / E), for the word and for all other words.
    observed, expected = np.array([[0, 0, 60], [1000, 1000, 940]]), np.array([[20] * 3, [980] * 3])
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.nan_to_num(observed * np.log(observed / expected))
    assert table["frequency_change"][0] == pytest.approx(2 * terms.sum())
    assert table["per_million_c"][0] == 60_000 and table["usages_c"][0] == 30
    written = write_unranked(tmp_path, left_out, times, 20)
    assert written["word"].tolist() == ["drug", "plough", "radio", "virus", "bank"]
    assert pd.read_csv(tmp_path / "unranked.csv")["usages_c"].tolist() == [30, 0, 0, 3, 30]
    # A file of an earlier run does not stay.
    assert write_unranked(tmp_path, {}, times, 20).empty and not (tmp_path / "unranked.csv").exists()
