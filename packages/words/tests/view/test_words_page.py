"""Checks the content of the page of words against the words' usages and vectors."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from helpers import TIMES, data_of
from scipy.spatial.distance import pdist

from semantic_change.attestations import Search
from semantic_change.entries import make_entry
from semantic_change.report import ranked_table
from semantic_change.senses import principal_components
from semantic_change.unranked import unranked_table
from semantic_change.usages import Frequency, Usage, Usages
from semantic_change.view import words_page as page_module
from semantic_change.view.words_page import words_page


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


def entries_of(usages: Usages, vectors: dict) -> dict:
    return {word: make_entry(Search(usages[word], vectors[word])) for word in usages}


def page_of(usages: Usages, vectors: dict, frequencies=None) -> dict:
    times = list(next(iter(usages.values())))
    table = table_of(list(usages), times, frequencies=frequencies)
    return data_of(words_page(table, times, entries_of(usages, vectors), frequencies))


def test_the_table_has_what_the_csv_file_has():
    words = ["null", "plane", "$x$"]
    low = {"null": 0.05, "plane": 0.05, "$x$": math.nan}
    p = {"null": 0.9, "plane": 0.01, "$x$": 0.01}
    table = table_of(words, TIMES, {"null": 0.5}, p=p, change_low=low, times_chance={**p, "plane": math.nan})
    data = data_of(words_page(table, TIMES, entries_of(*some_usages(words, TIMES, 3))))
    assert [row["word"] for row in data["words"]] == ["$x$", "plane", "null"]
    main = {column["name"]: column["cells"] for column in data["columns"] if column["main"]}
    assert main == {
        "word": ["$x$", "plane", "null"],
        "apd": [0.3, 0.2, 0.1],
        "times_chance": [0.01, None, 0.9],
        **{f"usages, {time}": [3, 3, 3] for time in TIMES},
    }
    others = {column["name"]: column["cells"] for column in data["columns"] if not column["main"]}
    assert others["change_low"] == [None, 0.05, 0.05] and others["gold"] == [None, None, 0.5]
    assert others["rank"] == ["1", "2", "3"] and others["p_fdr"] == [0.015, 0.015, 0.9]


def test_an_empty_column_is_not_shown_at_first():
    """If all words are rare between the ends, there is no step."""
    for change_step, step, is_shown in ((math.nan, "", False), (0.0, "a to b", True)):
        table = table_of(["plane"], TIMES, change_step={"plane": change_step}, step={"plane": step})
        columns = data_of(words_page(table, TIMES, entries_of(*some_usages(["plane"], TIMES, 3))))["columns"]
        main = {column["name"]: column["main"] for column in columns}
        assert main["change_step"] == main["step"] == is_shown and main["apd"]


def test_words_after_the_first_ones_are_in_the_table_alone(monkeypatch):
    monkeypatch.setattr(page_module, "MAX_WORDS", 1)
    words = page_of(*some_usages(["tree", "plane"], TIMES, 6))["words"]
    assert [(row["word"], row["entry"] is None) for row in words] == [("plane", False), ("tree", True)]


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
    shown, entry = data["words"][0]["entry"], make_entry(Search(usages["plane"], vectors["plane"]))
    assert shown["time"] == np.repeat([0, 1, 2], 12).tolist() and shown["chosen"] == 2
    for option, senses in zip(shown["options"], entry.options, strict=True):
        assert option["labels"] == senses.labels.tolist() and option["nearest"] == senses.nearest.tolist()
        assert option["keywords"] == senses.keywords
    # Distances on the map are proportional to distances in the projection, and the longer side has length 2.
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
    shown = page_of(usages, vectors)["words"][0]["entry"]
    flat = [one for time_usages in usages["plane"].values() for one in time_usages]
    assert shown["date"] == [one.date for one in flat] and shown["source"] == [one.source for one in flat]


def test_words_without_a_score_come_after_the_others():
    usages, vectors = some_usages(["plane", "drug"], TIMES, 6)
    usages["drug"][TIMES[0]], vectors["drug"][TIMES[0]] = [], np.zeros((0, 5))
    frequencies = {word: {time: Frequency(len(part), 100) for time, part in usages[word].items()} for word in usages}
    unranked = unranked_table({"drug": dict(zip(TIMES, (0, 6), strict=True))}, TIMES, 20, frequencies)
    table = table_of(["plane"], TIMES, frequencies=frequencies)
    data = data_of(words_page(table, TIMES, entries_of(usages, vectors), frequencies, unranked))
    assert [row["word"] for row in data["words"]] == ["plane", "drug"] and data["ranked"] == 1
    cells = {column["name"]: column["cells"] for column in data["unranked"]}
    assert cells["when"] == [f"new in {TIMES[1]}"] and cells[f"per million, {TIMES[1]}"] == [60_000]
    entry = data["words"][1]["entry"]
    assert entry["time"] == [1] * 6 and len(entry["x"]) == 6


def test_invisible_characters_are_written_out():
    usages, vectors = some_usages(["plane"], TIMES, 3)
    usages["plane"][TIMES[0]][0] = usage(TIMES[0], "\u2028a ", "plane", "\x1b[31m\u202e end")
    shown = page_of(usages, vectors)["words"][0]["entry"]["text"]
    assert shown[0][1:] == ["plane", "\\x1b[31m\\u202e end"]


def test_collocates_are_the_words_that_one_time_has_beside_it():
    _, vectors = some_usages(["plane"], TIMES, 4)
    usages = {"plane": {TIMES[0]: [usage(TIMES[0], "the wooden ", "plane", " flew")] * 4}}
    usages["plane"][TIMES[1]] = [usage(TIMES[1], "the ", "plane", " flew")] * 4
    (old, new) = page_of(usages, vectors)["words"][0]["entry"]["collocates"]
    # All four usages against none of four, with a half added.
    assert old == [["wooden ~", 4, 9.0]] and new == [["the ~", 4, 9.0]]
