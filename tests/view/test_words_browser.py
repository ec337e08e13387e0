"""The page of words after a run, in a browser: what a person does there, and that the numbers are right."""

import random
from collections import Counter
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SIZES, VOCABULARY, read_table
from transformers import BertConfig, BertModel, BertTokenizer

import run_semantic_change
from modeling_tempoformer.semantic_change.measures import k_means


pytestmark = pytest.mark.slow

TIMES = ["1800", "1900", "2000"]
ATTACK = "</script><script>document.title='x'</script><img/src=x/onerror=\"document.title='y'\">"
READY = "#chosen-word"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run over three times, in which `flew` changes its company."""
    path = tmp_path_factory.mktemp("words")
    torch.manual_seed(0)
    BertModel(BertConfig(**SIZES, initializer_range=0.5)).save_pretrained(path / "model")
    BertTokenizer(vocab=VOCABULARY).save_pretrained(path / "model")
    generator = random.Random(0)
    for place, time in enumerate(TIMES):
        others = ["plane", "tree", "air"] if place < 2 else ["sad", "glad", "the"]
        lines = [" ".join([*before, "flew"]) for before in generator.sample([*product(others, repeat=4)], 30)]
        lines += [" ".join(generator.sample(["the", "air", "glad", "plane"], 4)) for _ in range(30)]
        lines[0] += f" {ATTACK}"
        (path / f"{time}.txt").write_text("\n".join(lines), encoding="utf-8")
    (path / "words.txt").write_text("flew\nthe\nair\nglad\n", encoding="utf-8")
    run_semantic_change.main(
        [
            *("--model_name_or_path", str(path / "model"), "--output_dir", str(path / "out")),
            *("--corpora", *(str(path / f"{time}.txt") for time in TIMES)),
            *("--targets", str(path / "words.txt"), "--num_clusters", "3"),
        ]
    )
    return path / "out"


@pytest.fixture
def opened(browser, folder):
    """The page, in which nothing goes wrong until the end of the test."""
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
    sort_by("prt_corrected")
    by_prt = sorted(rows, key=lambda row: -float(row["prt_corrected"]))
    assert opened.texts("#rows a") == [row["word"] for row in by_prt]
    cells = opened.texts("#rows tr:first-child > *")
    assert cells[headings.index("apd")] == f"{float(by_prt[0]['apd']):.3f}"
    ends = (f"{float(by_prt[0][f'apd_{end}']):.3f}" for end in ("low", "high"))
    assert cells[headings.index("95 % of apd")] == " to ".join(ends)
    assert cells[headings.index("usages 1900")] == by_prt[0]["usages_1900"]
    opened.set_value("#search", "L")
    assert set(opened.texts("#rows a")) == {"flew", "glad"} and opened.text("#found") == "2 of 4 words"


def test_shares_and_sentences_are_those_of_the_vectors_in_the_file(opened, folder):
    choose(opened, "flew")
    table = pd.read_parquet(folder / "_usages.parquet").query("word == 'flew'").reset_index()
    vectors = np.stack(table["vector"]).astype(np.float64)
    table["sense"] = k_means(3, 42).fit_predict(vectors)
    counts = table.groupby(["sense", "time"]).size().unstack(fill_value=0)
    found = {}
    for article in range(1, 4):
        headings = opened.texts(f"#senses article:nth-child({article}) h5")
        numbers = [int(heading.split("(")[1].split(" of ")[0]) for heading in headings]
        assert [heading.split(":")[0] for heading in headings] == TIMES
        assert [heading.split(": ")[1].split(" %")[0] for heading in headings] == [
            f"{np.floor(100 * number / 30 + 0.5):.0f}" for number in numbers
        ]
        (sense,) = counts.index[(counts[TIMES] == numbers).all(axis=1)]
        found[sense] = numbers
        mean = vectors[table["sense"] == sense].mean(axis=0)
        for place, time in enumerate(TIMES, 1):
            own = table[(table["sense"] == sense) & (table["time"] == time)]
            far = np.linalg.norm(vectors[own.index] - mean, axis=1)
            nearest = dict.fromkeys(own["text"].iloc[np.argsort(far, kind="stable")])
            where = f"#senses article:nth-child({article}) .times > :nth-child({place}) li"
            assert opened.texts(where) == list(nearest)[:3]
            assert set(opened.texts(f"{where} mark")) <= {"flew"}
    # The first grew most.
    growth = [(numbers[2] - numbers[0]) for numbers in found.values()]
    assert growth == sorted(growth, reverse=True) and growth[0] > 0
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
    opened.set_value("#of-time", "3")
    shown = [text.split(": ", 1) for text in opened.texts("#usages li")]
    assert Counter(text for _, text in shown) == Counter(table.loc[table["time"] == "2000", "text"])
    # A sense that is chosen for the map is chosen for the list.
    opened.find("#senses article:nth-child(2) button").click()
    expected = opened.texts("#senses article:nth-child(2) h5")[2].split("(")[1].split(" of ")[0]
    opened.wait_for(lambda: len(opened.texts("#usages li")) == int(expected))
    assert {text.split(", ")[1].split(":")[0] for text in opened.texts("#usages li")} <= {"sense 2"}
    assert opened.find("#senses article:nth-child(2) button").get_attribute("aria-pressed") == "true"
    opened.find_all("#rows a")[0].send_keys(opened.keys.ARROW_DOWN)
    assert opened.driver.switch_to.active_element.text == opened.texts("#rows a")[1]


def test_a_sentence_that_is_markup_is_text(opened, folder):
    title = opened.driver.title
    choose(opened, "flew")
    opened.find("#all summary").click()
    opened.wait_for(lambda: any(ATTACK in text for text in opened.texts("#usages li")))
    assert opened.driver.title == title and not opened.find_all("main img")


@pytest.mark.parametrize("width", [400, 1280])
def test_nothing_is_wider_than_the_screen(browser, folder, width):
    settings = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", settings)
    try:
        browser.open(folder / "_changes.html", READY)
        browser.wait_for(lambda: len(browser.find_all("#curve svg")) == 1)
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
