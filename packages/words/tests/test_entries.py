"""Checks the entries of words: sentences, senses and first attestations over a whole corpus, and their files."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t

from semantic_change.attestations import Search
from semantic_change.citations import sentence_of
from semantic_change.entries import Entry, describe_splits, make_entries, make_entry, write_entries
from semantic_change.unranked import unranked_table, write_unranked
from semantic_change.usages import Frequency, Usage


TIMES = ["1800", "1900"]
# The middles of two senses.
CENTRES = 10 * np.eye(4)[:2]


def dated(year: int, sense: int, number: int = 0) -> Usage:
    return Usage(
        "1900" if year >= 1900 else "1800",
        f"plane {sense} {year} {number}",
        0,
        5,
        str(year),
        f"letter {year}",
        str(year),
    )


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


def entries_of(sample, whole, most: int = 100, seen: list | None = None) -> dict[str, Entry]:
    def read(usages):
        for parts in usages.values() if seen is not None else ():
            seen.extend(usage for part in parts.values() for usage in part)
        return usages, {
            word: {time: vectors_of(part) for time, part in parts.items()} for word, parts in usages.items()
        }

    usages = {"plane": sample}
    vectors = {word: {time: vectors_of(part) for time, part in parts.items()} for word, parts in usages.items()}
    return make_entries(usages, vectors, {"plane": whole}, read, most)


def test_the_earliest_usages_of_a_sense_are_those_of_the_whole_corpus(sample, whole):
    entry = entries_of(sample, whole)["plane"]
    assert entry.num_sure == len(entry.earliest) and entry.senses.counts.tolist() == [[2, 9], [10, 3]]
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
    search = Search(sample, vectors, [between])
    search.add(1, [between], np.array([[10, 9.9, 0, 0]]))
    entry = make_entry(search)
    (usage,) = (index for index, one in enumerate(entry.usages) if one is between)
    assert entry.earliest[0] == usage and 0.2 < entry.support(entry.chosen, usage) < 0.9


@pytest.mark.filterwarnings("error")
def test_a_word_with_one_usage_has_no_neighbours():
    one = [dated(1850, 0)]
    entry = entries_of({"1800": one}, {"1800": [one]})["plane"]
    assert entry.earliest == [0] and math.isnan(entry.support(entry.chosen, 0))


def test_usages_of_one_date_come_in_the_order_of_the_corpus(sample):
    """The sample has been shuffled."""
    same = [Usage("1800", f"plane {number}", 0, 5, "1800") for number in range(5)]
    usages = {"1800": [same[3], same[1], *sample["1800"]], "1900": sample["1900"]}
    vectors = {"1800": np.vstack([CENTRES, vectors_of(sample["1800"])]), "1900": vectors_of(sample["1900"])}
    search = Search(usages, vectors, [*same, *sample["1800"], *sample["1900"]])
    assert search.oldest() == [same[0], same[2], same[4]]
    search.add(3, [same[0], same[2], same[4]], np.tile(CENTRES[0], (3, 1)))
    entry = make_entry(search)
    assert [entry.usages[usage] for usage in entry.first_usages(0, 0)] == same


def test_the_corpus_is_read_from_the_oldest_until_the_first_usages_are_found(sample, whole):
    """Both senses have five old usages. A hundred later ones, none of them in the sample, are not read."""
    later = [[dated(1860 + number % 40, number % 2, number)] for number in range(1, 101)]
    oldest = [[dated(1700 + number, number % 2)] for number in range(60)]
    seen: list[Usage] = []
    entry = entries_of(sample, {"1800": [*later, *oldest, *whole["1800"]], "1900": whole["1900"]}, 1000, seen)["plane"]
    assert len(seen) <= 60 and {usage for (usage,) in oldest[:10]} <= set(seen)
    for sense in range(2):
        first = entry.first_usages(entry.chosen, sense)
        assert [int(entry.usages[usage].date) for usage in first] == [1700 + sense + 2 * number for number in range(5)]
        assert all(map(entry.is_sure, first))


def test_a_new_sense_is_sought_among_all_older_usages(sample):
    old = [dated(1700 + number, 1) for number in range(200)]
    usages = {"1800": [usage for usage in sample["1800"] if sense_of(usage)], "1900": sample["1900"]}
    vectors = {time: vectors_of(part) for time, part in usages.items()}
    whole = {"1800": [[usage] for usage in (*old, *usages["1800"])], "1900": [[usage] for usage in usages["1900"]]}

    def read(by_word):
        return by_word, {word: {time: vectors_of(part) for time, part in by.items()} for word, by in by_word.items()}

    for most, is_sure in ((1000, True), (150, False)):
        entry = make_entries({"plane": usages}, {"plane": vectors}, {"plane": whole}, read, most)["plane"]
        (first, *_) = entry.first_usages(entry.chosen, 0)
        assert entry.usages[first].date == "1950" and entry.is_sure(first) == is_sure
        # The other sense's first usages are among the first that are read.
        assert entry.is_sure(entry.first_usages(entry.chosen, 1)[0])


def test_the_first_usages_of_a_word_are_those_of_the_corpus_even_if_no_more_are_read(sample, whole):
    entry = entries_of(sample, whole, most=0)["plane"]
    first = entry.first_usages(0, 0)
    assert [int(entry.usages[usage].date) for usage in first] == [1800, 1801, 1802, 1803, 1804]
    assert all(map(entry.is_sure, first))
    last = entry.first_usages(entry.chosen, 0)[-1]
    assert not entry.is_sure(last)


def test_a_word_of_one_time_has_an_entry(sample):
    only = {"1800": [], "1900": sample["1900"]}
    vectors = {time: vectors_of(part) for time, part in only.items()}
    entry = make_entry(Search(only, vectors, sample["1900"]))
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


def test_what_holds_of_one_sense_by_construction_is_left_out_and_the_split_into_two_is_written(tmp_path):
    """Two clusters do not stand apart, and have the same shares at both times."""
    numbers = np.random.default_rng(3)
    points = numbers.normal(size=(60, 8)) + 0.3 * np.eye(8)[np.arange(60) % 2]
    sample = {time: [dated(1800 + 100 * n + k, 0, k) for k in range(30)] for n, time in enumerate(TIMES)}
    vectors = dict(zip(TIMES, (points[:30], points[30:]), strict=True))
    entry = make_entry(Search(sample, vectors))
    write_entries(tmp_path, {"plane": entry}, TIMES)
    (row,) = pd.read_csv(tmp_path / "senses.csv").to_dict("records")
    assert row["usages_1800"] == 30 and row["first_date"] == 1800
    assert all(math.isnan(row[name]) for name in row if name.startswith(("share", "first_support")))
    assert "verdict" not in row
    (split,) = pd.read_csv(tmp_path / "splits.csv").to_dict("records")
    first = entry.options[1].labels == 0
    assert (split["senses"], split["p"]) == (1, entry.options[1].p) and split["p"] > 0.05
    assert split["share_1_1800"] == pytest.approx(first[:30].mean(), abs=1e-4)
    assert split["share_2_1900"] == pytest.approx(1 - first[30:].mean(), abs=1e-4)
    (said,) = describe_splits({"plane": entry})
    assert "1 of 1" in said and "for 0 of these" in said


def test_usages_are_written_for_spreadsheets(sample, whole, tmp_path):
    write_entries(tmp_path, {"plane": entries_of(sample, whole)["plane"]}, TIMES)
    table = pd.read_csv(tmp_path / "_usages.csv", dtype=str, keep_default_na=False)
    usages = [usage for part in sample.values() for usage in part]
    assert (table["left"] + table["form"] + table["right"]).tolist() == [usage.text for usage in usages]
    assert table["date"].tolist() == [usage.date for usage in usages] and set(table["form"]) == {"plane"}
    assert [int(sense) - 1 for sense in table["sense"]] == list(map(sense_of, usages))
    assert table["identifier"].is_unique and table["time"].tolist() == ["1800"] * 12 + ["1900"] * 12


def test_trends_are_by_decade_of_the_dated_usages(sample, whole, tmp_path):
    """The first sense has 2 of the 10 usages of the 1850s, and 9 of 10 in the 1950s. Both later decades have 2."""
    undated = [Usage("1900", f"plane 1 {number}", 0, 5, date) for number, date in enumerate(("", "unknown"))]
    sample["1900"] += undated
    whole["1900"] += [[usage] for usage in undated]
    write_entries(tmp_path, {"plane": entries_of(sample, whole)["plane"]}, TIMES)
    table = pd.read_csv(tmp_path / "trends.csv").query("sense == 1")
    assert table["from"].tolist() == [1850, 1860, 1950, 1960] and (table["to"] - table["from"] == 9).all()
    assert table["usages"].tolist() == [2, 0, 9, 0] and table["total"].tolist() == [10, 2, 10, 2]
    assert table["documents"].tolist() == [2, 0, 9, 0] and table["share"].tolist() == [0.2, 0, 0.9, 0]
    assert ((table["share_low"] <= table["share"]) & (table["share"] <= table["share_high"])).all()


def test_trends_are_by_year_if_there_are_few(tmp_path):
    years = [1850, 1850, 1851, 1853] * 3
    old = [dated(year, 0, number) for number, year in enumerate(years)]
    sample = {"1800": old, "1900": []}
    entry = make_entry(Search(sample, {time: vectors_of(part) for time, part in sample.items()}))
    write_entries(tmp_path, {"plane": entry}, TIMES)
    table = pd.read_csv(tmp_path / "trends.csv")
    assert (table["from"] == table["to"]).all()
    assert table.groupby("from")["usages"].sum().to_dict() == {1850: 6, 1851: 3, 1853: 3}
    assert table.groupby("from")["total"].first().to_dict() == {1850: 6, 1851: 3, 1853: 3}


def test_texts_without_dates_have_no_trend(tmp_path):
    sample = {time: [Usage(time, f"plane {time} {number}", 0, 5) for number in range(4)] for time in TIMES}
    vectors = {time: np.random.default_rng(0).normal(size=(4, 4)) for time in TIMES}
    write_entries(tmp_path, {"plane": make_entry(Search(sample, vectors))}, TIMES)
    assert not (tmp_path / "trends.csv").exists() and (tmp_path / "senses.csv").exists()


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
        (
            "Good. Lee et al. (1990, pp. 3) saw the *plane* (cf. Figs. 1). No",
            "Lee et al. (1990, pp. 3) saw the *plane* (cf. Figs. 1).",
        ),
        (
            "Gut. Prof. Lee (geb. Roe) sah, z. B. im Jh. d. Not, bzw. Angst, das *Haus*, vgl. Abs. 3. Nein",
            "Prof. Lee (geb. Roe) sah, z. B. im Jh. d. Not, bzw. Angst, das *Haus*, vgl. Abs. 3.",
        ),
        (
            "Gut. Am 3. Oktober 1990, im 20. Jahrhundert, fiel das *Haus*. Nein",
            "Am 3. Oktober 1990, im 20. Jahrhundert, fiel das *Haus*.",
        ),
        ("Gut . Am 3 . Oktober sah Prof . Lee das *Haus* . Nein", "Am 3 . Oktober sah Prof . Lee das *Haus* ."),
        ("Gut. „Das *Haus* ist alt.“ Nein.", "„Das *Haus* ist alt.“"),
        ("Gut. »Das *Haus* ist alt!« ſagte ſie. Nein.", "»Das *Haus* ist alt!« ſagte ſie."),
        ("In 1815. The *plane* tree stood. It fell.", "The *plane* tree stood."),
        ("M. Tullius vidit. Cn. Pompeius *virtutem* laudat. Deinde", "Cn. Pompeius *virtutem* laudat."),
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
