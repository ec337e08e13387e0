"""What the page of words holds, against the words' usages and vectors."""

import json
import math
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from modeling_tempoformer.semantic_change.report import ranked_table
from modeling_tempoformer.semantic_change.senses import Senses, project
from modeling_tempoformer.semantic_change.usages import Frequency, Usage, Usages
from modeling_tempoformer.view import words_page as page_module
from modeling_tempoformer.view.words_page import words_page


def usage(time: str, before: str, word: str, after: str) -> Usage:
    return Usage(time, before + word + after, len(before), len(before + word))


def some_usages(words: list[str], times: list[str], count: int) -> tuple[Usages, dict[str, dict[str, np.ndarray]]]:
    generator = np.random.default_rng(0)
    usages = {
        word: {time: [usage(time, f"{time} {place} ", word, " flew") for place in range(count)] for time in times}
        for word in words
    }
    vectors = {
        word: {time: generator.normal(size=(count, 5)) + shift for shift, time in enumerate(times)} for word in words
    }
    return usages, vectors


def table_of(
    words: list[str], times: list[str], truth: dict[str, float] | None = None, frequencies=None, **more
) -> pd.DataFrame:
    columns = {"apd": {word: 0.1 * place for place, word in enumerate(words, 1)}, **more}
    return ranked_table(columns, {word: dict.fromkeys(times, 3) for word in words}, truth, frequencies)


def data_of(page: str) -> dict:
    """What the page's script reads, as a browser would: up to the first end of the element."""
    (text,) = re.findall(r'<script type="application/json" id="page-data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)["data"]


TIMES = ["1810-1860", "1960-2010"]


def make_senses(vectors: dict[str, np.ndarray], num_senses: int) -> Senses:
    """In turn: the first usage of a time has the first sense, and so on. The last ones are the nearest."""
    labels = [np.arange(len(found)) % num_senses for found in vectors.values()]
    return Senses(
        labels=labels,
        counts=np.stack([np.bincount(of_time, minlength=num_senses) for of_time in labels], axis=1),
        nearest=[[np.flatnonzero(of_time == sense)[::-1] for of_time in labels] for sense in range(num_senses)],
        keywords=[[f"wing {sense}"] for sense in range(num_senses)],
    )


def page_of(times: list[str], usages: Usages, vectors: dict, num_senses: int = 2, **more) -> dict:
    senses = {word: make_senses(by_time, num_senses) for word, by_time in vectors.items()}
    table = table_of(list(vectors), times, **more)
    return data_of(words_page(table, times, usages, vectors, senses, more.get("frequencies")))


def test_the_table_has_what_the_csv_file_has():
    words = ["null", "plane", "$x$"]
    low, high = ({"null": end, "plane": end, "$x$": math.nan} for end in (0.05, 0.35))
    p = {"null": 0.9, "plane": 0.01, "$x$": 0.01}
    table = table_of(words, TIMES, {"null": 0.5}, p=p, change_low=low, change_high=high)
    data = data_of(words_page(table, TIMES, {}, {}, {}))
    assert [row["word"] for row in data["words"]] == ["$x$", "plane", "null"]
    main = {column["kind"]: column["cells"] for column in data["columns"] if column["main"]}
    assert main["sure"] == [True, True, False] and main["count"] == [3, 3, 3]
    assert main["word"] == table["word"].tolist() and main["score"] == [0.3, 0.2, 0.1]
    others = {column["kind"]: column["cells"] for column in data["columns"] if not column["main"]}
    assert others["interval"] == [None, [0.05, 0.35], [0.05, 0.35]]
    assert others["score"] == [None, None, 0.5] and others["p"] == [0.015, 0.015, 0.9]


def test_frequencies_are_those_of_the_whole_corpus():
    times = ["a", "b", "c"]
    frequencies = {"plane": {time: Frequency(count, 2000) for time, count in zip(times, (1, 0, 10), strict=True)}}
    usages, vectors = some_usages(["plane"], times, 12)
    data = page_of(times, usages, vectors, frequencies=frequencies)
    found = data["words"][0]["frequency"]
    assert [value for value, _, _ in found] == [500, 0, 5000]
    for (value, low, high), count in zip(found, (1, 0, 10), strict=True):
        # Wilson's formula.
        share, z = count / 2000, 1.959964
        middle, reach = share + z**2 / 4000, z * math.sqrt(share * (1 - share) / 2000 + z**2 / 16e6)
        ends = [1e6 * (middle + sign * reach) / (1 + z**2 / 2000) for sign in (-1, 1)]
        assert [low, high] == pytest.approx(ends, abs=0.1) and low <= value <= high
    # At first a reader sees the first time and the last.
    shown = [column["cells"] for column in data["columns"] if column["kind"] == "frequency" and column["main"]]
    assert shown == [[500], [5000]]
    assert not any(column["main"] for column in data["columns"] if column["kind"] == "count")
    assert page_of(times, usages, vectors)["words"][0]["frequency"] is None


def test_words_without_vectors_are_in_the_table_alone():
    page = words_page(table_of(["plane"], TIMES), TIMES, *some_usages([], TIMES, 0), {})
    assert data_of(page)["words"][0]["usages"] is None
    assert 'id="rows"' in page and 'id="map"' not in page


@pytest.mark.parametrize("times", [TIMES, ["a", "b", "c"]])
def test_the_numbers_of_a_word(times):
    usages, vectors = some_usages(["plane"], times, 12)
    of_word = list(vectors["plane"].values())
    shown = page_of(times, usages, vectors, num_senses=3)["words"][0]["usages"]
    senses = make_senses(vectors["plane"], 3)
    assert shown["counts"] == senses.counts.tolist()
    for counts, shares in zip(shown["counts"], shown["shares"], strict=True):
        for count, (share, low, high) in zip(counts, shares, strict=True):
            assert share == pytest.approx(count / 12, abs=1e-4) and low <= share <= high
    assert shown["sense"] == np.concatenate(senses.labels).tolist()
    assert shown["time"] == np.repeat(np.arange(len(times)), 12).tolist()
    for sense, by_time in enumerate(shown["nearest"]):
        for time, places in enumerate(by_time):
            assert [place - 12 * time for place in places] == senses.nearest[sense][time][:3].tolist()
    # Distances on the map are those of the projection in another unit, and the longer side is of length 2.
    coordinates, variance = project(of_word)
    points, original = np.array([shown["x"], shown["y"]]).T, np.concatenate(coordinates)
    unit = np.ptp(original, axis=0).max() / 2
    for one, other in combinations(range(len(points)), 2):
        distance = math.dist(points[one], points[other])
        assert distance == pytest.approx(math.dist(original[one], original[other]) / unit, abs=0.003)
    assert np.abs(points).max() == pytest.approx(1)
    assert shown["variance"] == pytest.approx(variance, abs=1e-4)


NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \u2028 &amp; "


def test_quotations_have_date_and_source_and_senses_their_first(monkeypatch):
    monkeypatch.setattr(page_module, "MIN_SHOWN", 5)
    monkeypatch.setattr(page_module, "MAX_SHOWN", 10)
    usages, vectors = some_usages(["plane"], TIMES, 30)
    # The earliest come last, behind those that the page shows anyway.
    for time, year in zip(TIMES, (1810, 1960), strict=True):
        usages["plane"][time] = [
            replace(one, date=f"{year + 29 - place}-05-01", source=f"letter {place % 2}")
            for place, one in enumerate(usages["plane"][time])
        ]
    senses = {"plane": make_senses(vectors["plane"], 2)}
    table = table_of(["plane"], TIMES)
    data = data_of(words_page(table, TIMES, usages, vectors, senses))
    shown, known = data["words"][0]["usages"], data["known"]
    by_text = {one.text: one for found in usages["plane"].values() for one in found}
    for text, date, source in zip(shown["text"], shown["date"], shown["source"], strict=True):
        one = by_text["".join(text)]
        assert (known[date], known[source]) == (one.date, one.source)
    assert shown["keywords"] == [["wing 0"], ["wing 1"]]
    for sense, first in enumerate(shown["first"]):
        members = [
            one.date
            for labels, found in zip(senses["plane"].labels, usages["plane"].values(), strict=True)
            for label, one in zip(labels, found, strict=True)
            if label == sense
        ]
        assert known[shown["date"][first]] == min(members)
    undated, _ = some_usages(["plane"], TIMES, 30)
    shown = data_of(words_page(table, TIMES, undated, vectors, senses))["words"][0]["usages"]
    assert shown["first"] == [None, None]


def test_sentences_are_data():
    """Written as they are, and what is invisible is written out."""
    usages, vectors = some_usages(["<b>plane</b>"], TIMES, 3)
    nasty = usage(TIMES[0], NASTY, "plane", "\x1b[31m\u202e end")
    usages["<b>plane</b>"][TIMES[0]][0] = replace(nasty, source=NASTY)
    senses = make_senses(vectors["<b>plane</b>"], 1)
    page = words_page(
        table_of(list(usages), TIMES), TIMES, usages, vectors, {"<b>plane</b>": replace(senses, keywords=[[NASTY]])}
    )
    start = page.index('id="page-data">') + len('id="page-data">')
    embedded = page[start : page.index("</script>", start)]
    assert "alert(2)" in embedded and not {"<", ">", "\x1b", "\u202e", "\u2028"} & set(embedded)
    assert "alert" not in page[:start]
    (word,) = data_of(page)["words"]
    assert word["word"] == "<b>plane</b>"
    assert word["usages"]["text"][0] == [NASTY.replace("\u2028", "\\u2028"), "plane", "\\x1b[31m\\u202e end"]


def test_long_texts_are_cut_around_the_word_between_words():
    usages, vectors = some_usages(["plane"], TIMES, 3)
    usages["plane"][TIMES[0]][0] = usage(TIMES[0], "before " * 300, "planes", " behind" * 300)
    # Some scripts have no spaces.
    usages["plane"][TIMES[0]][1] = usage(TIMES[0], "字" * 300, "飞机", "字" * 300)
    found = page_of(TIMES, usages, vectors)["words"][0]["usages"]["text"]
    before, word, after = found[0]
    assert word == "planes" and set(before.split()[1:]) == {"before"} and set(after.split()[:-1]) == {"behind"}
    assert before.startswith("…before") and after.endswith("behind…")
    assert 100 < len(before) <= 121 and 100 < len(after) <= 121
    assert found[1] == ["…" + "字" * 120, "飞机", "字" * 120 + "…"]
    assert found[2] == [f"{TIMES[0]} 2 ", "plane", " flew"]


def test_a_sentence_that_has_the_word_twice_is_among_the_nearest_once():
    usages, vectors = some_usages(["plane"], TIMES, 4)
    text = "plane plane"
    usages["plane"][TIMES[0]] = [Usage(TIMES[0], text, start, start + 5) for start in (0, 6, 0, 6)]
    shown = page_of(TIMES, usages, vectors, num_senses=1)
    (((first, *others), last),) = shown["words"][0]["usages"]["nearest"]
    assert not others and len(last) == 3


def test_many_words_have_a_part_of_their_usages_on_the_page(monkeypatch):
    """The first ones, which are a sample, and those nearest to a sense; the numbers are of all usages."""
    monkeypatch.setattr(page_module, "MIN_SHOWN", 5)
    monkeypatch.setattr(page_module, "MAX_SHOWN", 30)
    words = ["plane", "tree"]
    usages, vectors = some_usages(words, TIMES, 50)
    for word in page_of(TIMES, usages, vectors, num_senses=5)["words"]:
        shown = word["usages"]
        assert np.sum(shown["counts"]) == 100 and len(shown["text"]) < 2 * (7 + 15) + 1
        senses = make_senses(vectors[word["word"]], 5)
        texts = ["".join(parts) for parts in shown["text"]]
        for time, name in enumerate(TIMES):
            everything = [one.text for one in usages[word["word"]][name]]
            of_time = [text for text, place in zip(texts, shown["time"], strict=True) if place == time]
            assert of_time[:7] == everything[:7]
            for sense in range(5):
                nearest = [everything[place] for place in senses.nearest[sense][time][:3]]
                assert [texts[place] for place in shown["nearest"][sense][time]] == nearest


def test_collocates_are_the_words_that_one_time_has_beside_it():
    _, vectors = some_usages(["plane"], TIMES, 4)
    usages = {
        "plane": {
            TIMES[0]: [usage(TIMES[0], "the wooden ", "plane", " flew")] * 4,
            TIMES[1]: [usage(TIMES[1], "the ", "plane", " flew")] * 4,
        }
    }
    assert page_of(TIMES, usages, vectors)["words"][0]["usages"]["collocates"] == [["wooden"], []]
