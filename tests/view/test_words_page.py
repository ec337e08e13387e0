"""Checks the content of the page of words against the words' usages and vectors."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import TIMES
from scipy.spatial.distance import pdist
from stand_ins import data_of

from modeling_tempoformer.semantic_change.report import ranked_table
from modeling_tempoformer.semantic_change.senses import find_senses, principal_components
from modeling_tempoformer.semantic_change.usages import Frequency, Usage, Usages
from modeling_tempoformer.view import words_page as page_module
from modeling_tempoformer.view.words_page import words_page


def usage(time: str, before: str, word: str, after: str) -> Usage:
    return Usage(time, before + word + after, len(before), len(before + word))


def some_usages(words: list[str], times: list[str], count: int) -> tuple[Usages, dict[str, dict[str, np.ndarray]]]:
    """Returns usages of three senses in turn."""
    generator = np.random.default_rng(0)
    usages = {
        word: {time: [usage(time, f"{time} {number} ", word, " flew") for number in range(count)] for time in times}
        for word in words
    }
    centres = 20 * np.eye(5)[np.arange(count) % 3]
    vectors = {word: {time: centres + generator.normal(size=(count, 5)) for time in times} for word in words}
    return usages, vectors


def table_of(words: list[str], times: list[str], truth=None, frequencies=None, **more) -> pd.DataFrame:
    columns = {"apd": {word: 0.1 * number for number, word in enumerate(words, 1)}, **more}
    return ranked_table(columns, {word: dict.fromkeys(times, 3) for word in words}, truth, frequencies)


def page_of(usages: Usages, vectors: dict, frequencies=None) -> dict:
    times = list(next(iter(usages.values())))
    table = table_of(list(usages), times, frequencies=frequencies)
    return data_of(words_page(table, times, usages, vectors, frequencies))


def test_the_table_has_what_the_csv_file_has():
    words = ["null", "plane", "$x$"]
    low = {"null": 0.05, "plane": 0.05, "$x$": math.nan}
    p = {"null": 0.9, "plane": 0.01, "$x$": 0.01}
    table = table_of(words, TIMES, {"null": 0.5}, p=p, change_low=low)
    data = data_of(words_page(table, TIMES, *some_usages(words, TIMES, 3)))
    assert [row["word"] for row in data["words"]] == ["$x$", "plane", "null"]
    main = {column["name"]: column["cells"] for column in data["columns"] if column["main"]}
    assert main == {
        "word": ["$x$", "plane", "null"],
        "apd": [0.3, 0.2, 0.1],
        "more than chance": [True, True, False],
        **{f"usages, {time}": [3, 3, 3] for time in TIMES},
    }
    others = {column["name"]: column["cells"] for column in data["columns"] if not column["main"]}
    assert others["change_low"] == [None, 0.05, 0.05] and others["gold"] == [None, None, 0.5]
    assert others["rank"] == ["1", "2", "3"] and others["p_fdr"] == [0.015, 0.015, 0.9]


def test_words_after_the_first_ones_are_in_the_table_alone(monkeypatch):
    monkeypatch.setattr(page_module, "MAX_WORDS", 1)
    words = page_of(*some_usages(["tree", "plane"], TIMES, 6))["words"]
    assert [(row["word"], row["usages"] is None) for row in words] == [("plane", False), ("tree", True)]


def test_frequencies_are_those_of_the_whole_corpus():
    times = ["a", "b", "c"]
    frequencies = {"plane": {time: Frequency(count, 2000) for time, count in zip(times, (1, 0, 10), strict=True)}}
    data = page_of(*some_usages(["plane"], times, 12), frequencies)
    frequencies_shown = data["words"][0]["frequency"]
    assert [value for value, _, _ in frequencies_shown] == [500, 0, 5000]
    # Wilson's interval for a count of 0 is from 0 to z² / (n + z²).
    assert frequencies_shown[1] == pytest.approx([0, 0, 1e6 * 1.96**2 / (2000 + 1.96**2)], abs=0.2)
    assert all(low <= value <= high for value, low, high in frequencies_shown)
    # By default the page shows the first and the last time.
    shown = [column["cells"] for column in data["columns"] if column["kind"] == "frequency" and column["main"]]
    assert shown == [[500], [5000]]
    assert not any(column["main"] for column in data["columns"] if column["kind"] == "count")


def test_the_numbers_of_a_word():
    times = ["a", "b", "c"]
    usages, vectors = some_usages(["plane"], times, 12)
    data = page_of(usages, vectors)
    assert data["words"][0]["frequency"] is None
    shown, senses = data["words"][0]["usages"], find_senses(usages["plane"], vectors["plane"])
    assert shown["counts"] == senses.counts.tolist() == [[4, 4, 4]] * 3
    for share, low, high in (share for sense_shares in shown["shares"] for share in sense_shares):
        assert share == pytest.approx(1 / 3, abs=1e-4) and low <= share <= high
    assert shown["sense"] == senses.labels.tolist() and shown["time"] == np.repeat([0, 1, 2], 12).tolist()
    for sense, by_time in enumerate(shown["nearest"]):
        for time, nearest in enumerate(by_time):
            expected = [one for one in senses.nearest if senses.labels[one] == sense and one // 12 == time]
            assert nearest == expected[:3]
    # Distances on the map are proportional to those of the projection, and the longer side has length 2.
    original, variance = principal_components(np.concatenate(list(vectors["plane"].values())), 2)
    points, unit = np.array([shown["x"], shown["y"]]).T, np.ptp(original, axis=0).max() / 2
    assert pdist(points) == pytest.approx(pdist(original) / unit, abs=0.003)
    assert np.abs(points).max() == pytest.approx(1)
    assert shown["variance"] == pytest.approx(variance, abs=1e-4)


def test_quotations_have_date_and_source():
    usages, vectors = some_usages(["plane"], TIMES, 30)
    for time, undated in usages["plane"].items():
        dates = (f"{time[:2]}{40 - number}-05-01" for number in range(30))
        usages["plane"][time] = [replace(one, date=date, source=f"of {date}") for one, date in zip(undated, dates)]
    shown = page_of(usages, vectors)["words"][0]["usages"]
    dated = [one for time_usages in usages["plane"].values() for one in time_usages]
    assert shown["date"] == [one.date for one in dated] and shown["source"] == [one.source for one in dated]


def test_the_earliest_usages_need_not_be_in_the_sample():
    usages, vectors = some_usages(["plane", "tree"], TIMES, 6)
    first = [replace(usage(TIMES[1], "a ", "Planes", " left"), date="1961", source="letter")]
    table = table_of(list(usages), TIMES)
    words = data_of(words_page(table, TIMES, usages, vectors, earliest={"plane": first}))["words"]
    earliest_of = {row["word"]: row["earliest"] for row in words}
    assert earliest_of["plane"] == {
        "time": [1],
        "text": [["a ", "Planes", " left"]],
        "date": ["1961"],
        "source": ["letter"],
    }
    assert earliest_of["tree"]["text"] == []


def test_long_texts_are_cut_around_the_word_between_words():
    usages, vectors = some_usages(["plane"], TIMES, 3)
    usages["plane"][TIMES[0]] = [
        usage(TIMES[0], "before " * 300, "planes", " behind" * 300),
        # Some scripts have no spaces.
        usage(TIMES[0], "字" * 300, "飞机", "字" * 300),
        # Invisible characters are written out.
        usage(TIMES[0], "\u2028", "plane", "\x1b[31m\u202e end"),
    ]
    shown = page_of(usages, vectors)["words"][0]["usages"]["text"]
    before, word, after = shown[0]
    assert word == "planes" and set(before.split()[1:]) == {"before"} and set(after.split()[:-1]) == {"behind"}
    assert before.startswith("…before") and after.endswith("behind…")
    assert 100 < len(before) <= 121 and 100 < len(after) <= 121
    assert shown[1] == ["…" + "字" * 120, "飞机", "字" * 120 + "…"]
    assert shown[2] == ["\\u2028", "plane", "\\x1b[31m\\u202e end"]


def test_a_sentence_that_has_the_word_twice_is_among_the_nearest_once():
    usages, vectors = some_usages(["plane"], TIMES, 12)
    usages["plane"][TIMES[0]] = [Usage(TIMES[0], "plane plane", start, start + 5) for start in (0, 6)] * 6
    for at_first, at_last in page_of(usages, vectors)["words"][0]["usages"]["nearest"]:
        assert len(at_first) == 1 and len(at_last) == 3


def test_collocates_are_the_words_that_one_time_has_beside_it():
    _, vectors = some_usages(["plane"], TIMES, 4)
    usages = {"plane": {TIMES[0]: [usage(TIMES[0], "the wooden ", "plane", " flew")] * 4}}
    usages["plane"][TIMES[1]] = [usage(TIMES[1], "the ", "plane", " flew")] * 4
    assert page_of(usages, vectors)["words"][0]["usages"]["collocates"] == [["wooden"], []]
