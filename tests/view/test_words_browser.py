"""Checks the page of words after a run, in a browser: a person's actions, and the numbers that the page shows."""

import random
from collections import Counter
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SIZES, VOCABULARY, read_table
from stand_ins import data_of
from transformers import BertConfig, BertModel, BertTokenizer

import run_semantic_change
from modeling_tempoformer.semantic_change.report import ranked_table
from modeling_tempoformer.semantic_change.usages import Usage
from modeling_tempoformer.view.page import write_page
from modeling_tempoformer.view.words_page import words_page


pytestmark = pytest.mark.slow

TIMES = ["1800", "1900", "2000"]
ATTACK = "</script><script>document.title='x'</script><img/src=x/onerror=\"document.title='y'\">"
READY = "#chosen-word"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns the folder of a run over three times. `flew` changes its contexts."""
    path = tmp_path_factory.mktemp("words")
    torch.manual_seed(0)
    BertModel(BertConfig(**SIZES, initializer_range=0.5)).save_pretrained(path / "model")
    BertTokenizer(vocab=VOCABULARY).save_pretrained(path / "model")
    generator = random.Random(0)
    for time, others in zip(TIMES, ("plane tree air", "plane tree air", "sad glad the"), strict=True):
        companies = generator.sample([*product(others.split(), repeat=4)], 30)
        lines = [" ".join([*company, "flew"]) for company in companies]
        lines += [" ".join(generator.sample(["the", "air", "glad", "plane"], 4)) for _ in range(30)]
        lines[0] += f" {ATTACK}"
        (path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    (path / "words.txt").write_text("flew\nthe\nair\nglad\n", encoding="utf-8")
    given = ["--model_name_or_path", str(path / "model"), "--output_dir", str(path / "out")]
    given += ["--corpora", *(str(path / f"{time}.txt") for time in TIMES), "--targets", str(path / "words.txt")]
    run_semantic_change.main(given)
    return path / "out"


@pytest.fixture
def opened(browser, folder):
    """Opens the page. Checks at the end of the test that it reported no problem."""
    browser.open(folder / "_changes.html", READY)
    yield browser
    assert browser.problems() == []


def choose(browser, word: str):
    (link,) = (link for link in browser.find_all("#rows a") if link.text == word)
    link.click()
    browser.wait_for(lambda: browser.text(READY) == word)


def test_words_are_sorted_and_searched(opened, folder):
    rows = read_table(folder / "changes.csv")
    by_change = [row["word"] for row in rows]
    assert opened.texts("#rows a") == by_change and opened.text(READY) == by_change[0]
    headings = opened.texts("#columns button")

    def sort_by(name: str):
        opened.find_all("#columns button")[headings.index(name)].click()

    sort_by("word")
    assert opened.texts("#rows a") == sorted(by_change)
    sort_by("word")
    assert opened.texts("#rows a") == sorted(by_change, reverse=True)
    assert opened.find('th[aria-sort="descending"]').text.startswith("word")
    opened.find("#measures").click()
    sort_by("prt_corrected")
    by_prt = sorted(rows, key=lambda row: -float(row["prt_corrected"]))
    assert opened.texts("#rows a") == [row["word"] for row in by_prt]
    cells = opened.texts("#rows tr:first-child > *")
    assert cells[headings.index("apd")] == f"{float(by_prt[0]['apd']):.3f}"
    assert cells[headings.index("change_low")] == f"{float(by_prt[0]['change_low']):.1f}"
    assert cells[headings.index("usages, 1900")] == by_prt[0]["usages_1900"]
    opened.set_value("#search", "L")
    assert set(opened.texts("#rows a")) == {"flew", "glad"} and opened.text("#found") == "2 of 4 words"


def test_shares_and_sentences_are_those_of_the_page_s_data(opened, folder):
    choose(opened, "flew")
    words = data_of((folder / "_changes.html").read_text(encoding="utf-8"))["words"]
    (usages,) = (row["usages"] for row in words if row["word"] == "flew")
    assert len(opened.find_all("#senses article")) == len(usages["counts"]) > 1
    for sense, (counts, keywords) in enumerate(zip(usages["counts"], usages["keywords"], strict=True)):
        article = f"#senses article:nth-child({sense + 1})"
        assert opened.text(f"{article} h4") == f"Sense {sense + 1}: {', '.join(keywords)}"
        headings = opened.texts(f"{article} .times h5")
        for column, (time, count) in enumerate(zip(TIMES, counts, strict=True)):
            assert headings[column].startswith(f"{time}: {np.floor(100 * count / 30 + 0.5):.0f} % ")
            assert headings[column].endswith(f", {count} of 30")
            where = f"{article} .times > :nth-child({column + 1}) .text"
            assert opened.texts(where) == [
                "".join(usages["text"][usage]) for usage in usages["nearest"][sense][column]
            ]
            assert set(opened.texts(f"{where} mark")) <= {"flew"}
    assert len(opened.find_all("#map .mark-symbol path")) > 90


def test_the_usages_on_the_map_are_read_by_keyboard_and_in_a_list(opened, folder):
    choose(opened, "flew")
    table = pd.read_parquet(folder / "_usages.parquet").query("word == 'flew'")
    opened.find("#map").send_keys(opened.keys.ARROW_RIGHT)
    opened.wait_for(lambda: opened.text("#usage").startswith(tuple(TIMES)))
    first = opened.text("#usage")
    opened.find("#map").send_keys(opened.keys.ARROW_RIGHT)
    opened.wait_for(lambda: opened.text("#usage") != first)
    time, rest = opened.text("#usage").split(", sense ")
    assert rest.split(": ")[1] in set(table.loc[table["time"] == time, "text"])
    opened.find("#all summary").click()
    opened.wait_for(lambda: len(opened.texts("#usages li")) == 90)
    # Markup in a sentence is shown as text.
    assert any(ATTACK in text for text in opened.texts("#usages li"))
    assert opened.driver.title.startswith("Words") and not opened.find_all("main img")
    opened.set_value("#of-time", "3")
    shown = [text.split(": ", 1) for text in opened.texts("#usages li")]
    assert Counter(text for _, text in shown) == Counter(table.loc[table["time"] == "2000", "text"])
    # A sense that is selected on the map is selected in the list.
    opened.find("#senses article:nth-child(2) .title button").click()
    expected = opened.texts("#senses article:nth-child(2) .times h5")[2].split(", ")[1].split(" of ")[0]
    opened.wait_for(lambda: len(opened.texts("#usages li")) == int(expected))
    assert {text.split(", ")[1].split(":")[0] for text in opened.texts("#usages li")} <= {"sense 2"}
    assert opened.find("#senses article:nth-child(2) button").get_attribute("aria-pressed") == "true"
    opened.find_all("#rows a")[0].send_keys(opened.keys.ARROW_DOWN)
    assert opened.driver.switch_to.active_element.text == opened.texts("#rows a")[1]


def test_citations_are_saved_as_a_table(opened, folder, tmp_path):
    opened.save_into(tmp_path)
    assert not opened.find("#citations").is_displayed()
    choose(opened, "flew")
    where = "#senses article:last-child .times > :first-child"
    texts, senses = opened.texts(f"{where} .text"), len(opened.find_all("#senses article"))
    assert texts
    for box in opened.find_all(f"{where} .cite"):
        box.send_keys(opened.keys.SPACE)
    # A choice in one list is also checked in the other.
    opened.find("#all summary").click()
    opened.wait_for(lambda: len(opened.find_all("#usages .cite:checked")) == len(texts))
    choose(opened, "the")
    opened.find("#senses .times .cite").send_keys(opened.keys.SPACE)
    opened.find("#save").click()
    opened.wait_for(lambda: (path := tmp_path / "citations.csv").exists() and path.stat().st_size)
    rows = pd.read_csv(tmp_path / "citations.csv", dtype=str, keep_default_na=False).to_dict("records")
    assert [row["left"] + row["form"] + row["right"] for row in rows[:-1]] == texts
    assert {(row["word"], row["sense"], row["time"]) for row in rows[:-1]} == {("flew", str(senses), "1800")}
    assert rows[-1]["word"] == rows[-1]["form"] == "the" and rows[-1]["date"] == ""
    assert all(row["source"].startswith("1800.txt, line ") for row in rows[:-1])
    opened.find("#forget").click()
    assert not opened.find_all(".cite:checked") and not opened.find("#citations").is_displayed()


def test_the_earliest_usages_are_cited_without_a_sense(browser, tmp_path):
    usages = {word: {time: [Usage(time, f"the {word} flew", 4, 4 + len(word))] * 3 for time in TIMES} for word in "ab"}
    vectors = {word: {time: np.eye(3) for time in TIMES} for word in usages}
    table = ranked_table({"apd": {"a": 0.2, "b": 0.1}}, {word: dict.fromkeys(TIMES, 3) for word in usages})
    earliest = {"a": [Usage(TIMES[1], f"{number} as", 2, 4, f"190{number}", "letter") for number in range(2)]}
    write_page(tmp_path / "page.html", words_page(table, TIMES, usages, vectors, earliest=earliest))
    browser.open(tmp_path / "page.html", READY)
    browser.save_into(tmp_path)
    choose(browser, "b")
    assert not browser.find("#of-corpus").is_displayed()
    choose(browser, "a")
    assert browser.texts("#earliest li") == ["1900, letter: 0 as", "1901, letter: 1 as"]
    for box in ("#earliest li:last-child .cite", "#senses .times .cite"):
        browser.find(box).send_keys(browser.keys.SPACE)
    browser.find("#save").click()
    browser.wait_for(lambda: (path := tmp_path / "citations.csv").exists() and path.stat().st_size)
    rows = pd.read_csv(tmp_path / "citations.csv", dtype=str, keep_default_na=False).to_dict("records")
    assert [row["sense"] for row in rows] == ["", "1"]
    assert rows[0]["date"] == "1901" and rows[0]["time"] == TIMES[1] and rows[0]["form"] == "as"
    assert browser.problems() == []


def test_charts_are_saved_without_variables_of_the_page(opened, tmp_path):
    opened.save_into(tmp_path)
    choose(opened, "flew")
    for name in ("map", "shares"):
        opened.find(f"#{name} + .save").click()
        path = tmp_path / f"flew_{name}.svg"
        # The file exists before its text is written.
        opened.wait_for(lambda path=path: path.exists() and path.stat().st_size)
        assert "<svg" in path.read_text() and "var(" not in path.read_text()
