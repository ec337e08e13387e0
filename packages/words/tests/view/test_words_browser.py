"""Checks the page of words after a run, in a browser: a person's actions, and the numbers that the page shows."""

import json
import random
import re
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SIZES, VOCABULARY, read_table
from transformers import BertConfig, BertModel, BertTokenizer

from modeling_tempoformer.common.pages import write_html
from semantic_change.attestations import Search
from semantic_change.commands.words import main as rank_words
from semantic_change.entries import make_entry, write_entries
from semantic_change.report import ranked_table
from semantic_change.usages import Usage
from semantic_change.view.words_page import words_page


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
    (path / "words.txt").write_text("flew\nthe\nair\nglad\nsad\n", encoding="utf-8")
    given = ["--model_name_or_path", str(path / "model"), "--output_dir", str(path / "out")]
    given += ["--corpora", *(str(path / f"{time}.txt") for time in TIMES), "--targets", str(path / "words.txt")]
    rank_words(given)
    return path / "out"


@pytest.fixture
def again(folder, tmp_path):
    """Returns a function that runs again with the senses of a table, and returns the folder of that run."""

    def run(senses):
        given = ["--model_name_or_path", str(folder.parent / "model"), "--output_dir", str(tmp_path / "again")]
        given += ["--corpora", *(str(folder.parent / f"{time}.txt") for time in TIMES), "--senses", str(senses)]
        rank_words([*given, "--targets", str(folder.parent / "words.txt")])
        return tmp_path / "again"

    return run


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


def cell(browser, row: str, column: str) -> str:
    """Returns the text of a cell of the table of words, by the headers of its row and its column."""
    table = browser.by_role("table", "Words")
    place = browser.by_role("columnheader", column, table).get_property("cellIndex")
    line = browser.by_role("rowheader", row, table).get_property("parentElement")
    return line.get_property("cells")[place].text


def part_of(browser, sense: str, role: str, name: str):
    """Returns the element with a role and a name in the part of the page about a sense."""
    return browser.by_role(role, name, browser.by_role("article", sense))


def usages_of(browser, sense: str, time: str):
    """Returns the part of the page with the usages of a sense at a time."""
    return part_of(browser, sense, "group", time)


def merge(browser, sense: str, other: str):
    browser.choose_option(part_of(browser, sense, "combobox", "Merge with"), other)


def give_name(browser, sense: str, name: str):
    browser.set_value(part_of(browser, sense, "textbox", "Name"), name)


def place_in(browser, usage, sense: str):
    """Moves a usage to a sense, or confirms that it has this sense."""
    browser.choose_option(browser.by_role("combobox", "Its sense", usage), sense)


def test_words_are_sorted_and_searched(opened, folder):
    rows = read_table(folder / "changes.csv")
    # `sad` occurs at one time.
    assert opened.texts("#unranked-rows a") == ["sad"]
    by_change = [row["word"] for row in rows]
    assert opened.texts("#rows a") == by_change and opened.text(READY) == by_change[0]

    def sort_by(name: str):
        opened.by_role("button", name, opened.by_role("table", "Words")).click()

    sort_by("word")
    assert opened.texts("#rows a") == sorted(by_change)
    sort_by("word")
    assert opened.texts("#rows a") == sorted(by_change, reverse=True)
    assert opened.find('th[aria-sort="descending"]').text.startswith("word")
    opened.find("#measures").click()
    sort_by("prt_corrected")
    by_prt = sorted(rows, key=lambda row: -float(row["prt_corrected"]))
    assert opened.texts("#rows a") == [row["word"] for row in by_prt]
    word = by_prt[0]["word"]
    assert cell(opened, word, "apd") == f"{float(by_prt[0]['apd']):.3f}"
    assert cell(opened, word, "change_low") == f"{float(by_prt[0]['change_low']):.1f}"
    assert cell(opened, word, "usages, 1900") == by_prt[0]["usages_1900"]
    opened.set_value("#search", "L")
    assert set(opened.texts("#rows a")) == {"flew", "glad"} and opened.text("#found") == "2 of 4 words"


def senses_of(folder, word: str) -> pd.DataFrame:
    """Returns the rows of a word in the file of senses."""
    return pd.read_csv(folder / "senses.csv", keep_default_na=False).query("word == @word")


def test_shares_and_sentences_are_those_of_the_file(opened, folder):
    choose(opened, "flew")
    usages = pd.read_parquet(folder / "_usages.parquet").query("word == 'flew'")
    documents = usages.groupby("time")["document"].nunique()
    text = opened.text("#sample")
    assert all(f"{time}: 30 usages in {documents[time]} documents" in text for time in TIMES)
    senses = senses_of(folder, "flew").to_dict("records")
    assert len(senses) > 1
    titles = [f"Sense {number}: {row['keywords']}" for number, row in enumerate(senses, 1)]
    assert opened.texts("#senses article h4") == titles
    for number, row in enumerate(senses, 1):
        article = opened.by_role("article", f"Sense {number}")
        assert opened.texts("h4", article) == [titles[number - 1]]
        assert [text.split(":")[0] for text in opened.texts(".times h5", article)] == TIMES
        # The middle of a sense is near to one of the sentences that stand below it.
        central = opened.text(".definition q", article).strip("\u2026 ")
        assert any(central in text for text in opened.texts(".times .text", article))
        for time in TIMES:
            share, low, high = (
                np.floor(100 * float(row[f"{name}_{time}"]) + 0.5) for name in ("share", "share_low", "share_high")
            )
            about = f"{share:.0f} % (95 %: {low:.0f} to {high:.0f} %), {row[f'usages_{time}']} of 30 usages"
            about += f" (in {row[f'documents_{time}']} of {documents[time]} documents)"
            where = opened.by_role("group", time, article)
            assert opened.texts("h5", where) == [f"{time}: {about}"]
            shown = opened.texts(".text", where)
            chosen = usages[(usages["time"] == time) & (usages["sense"] == number)]
            assert len(shown) == min(3, len(chosen)) and set(shown) <= set(chosen["sentence"])
            assert set(opened.texts(".text mark", where)) <= {"flew"}
        # The earliest usage in the file is the first on the page.
        first = opened.texts("li", opened.by_role("list", "First attestations, among all usages", article))[0]
        assert f"{row['first_time']}, {row['first_source']}: " in first
        assert f"{round(10 * float(row['first_support']))} of its 10" in first
        assert opened.texts(".verdict", article) == [row["verdict"]]
    assert len(opened.find_all("#map .mark-symbol path")) > 90


def test_words_are_filtered_by_the_verdicts_of_their_senses(opened, folder):
    rows = pd.read_csv(folder / "senses.csv", keep_default_na=False)
    words = opened.texts("#rows a")
    for verdict in sorted({*rows["verdict"]} - {""}):
        opened.set_value("#of-verdict", verdict)
        having = {*rows.loc[rows["verdict"] == verdict, "word"]}
        assert opened.texts("#rows a") == [word for word in words if word in having]
    opened.set_value("#of-verdict", "")
    assert opened.texts("#rows a") == words


def test_a_reader_s_choices_about_senses_stay_and_go_into_a_file(opened, folder, tmp_path):
    opened.save_into(tmp_path)
    choose(opened, "flew")
    opened.set_value("#number", 3)
    assert len(opened.texts("#senses h4")) == 3

    def counts() -> np.ndarray:
        """Returns the numbers of usages by sense and time."""
        texts = [
            [opened.text("h5", opened.by_role("group", time, article)) for time in TIMES]
            for article in opened.find_all("#senses article")
        ]
        return np.array([[int(text.rsplit(", ", 1)[1].split(" of ")[0]) for text in row] for row in texts])

    before = counts()
    assert before.sum(axis=0).tolist() == [30, 30, 30]
    merge(opened, "Sense 3", "Sense 1")
    assert counts().tolist() == [(before[0] + before[2]).tolist(), before[1].tolist()]
    assert opened.text("#senses h4").startswith("Sense 1 + 3")
    give_name(opened, "Sense 1 + 3", "to fly")
    opened.wait_for(lambda: opened.texts("#senses h4")[0].startswith("to fly"))
    place = next(index for index, row in enumerate(counts()[1]) if row)
    where = usages_of(opened, "Sense 2", TIMES[place])
    usage = opened.item(where, opened.texts(".text", where)[0])
    opened.by_role("button", "misfiled", usage).click()
    after = counts()
    assert after[1][place] == before[1][place] - 1 and after.sum() == before.sum() - 1
    opened.find("#all summary").click()
    opened.set_value("#of-sense", -1)
    opened.wait_for(lambda: len(opened.texts("#usages li")) == 1)
    # They stay after the page is closed.
    opened.open(folder / "_changes.html", READY)
    choose(opened, "flew")
    assert counts().tolist() == after.tolist() and opened.text("#senses h4").startswith("to fly")
    opened.find("#save-choices").click()
    saved = tmp_path / "choices.json"
    opened.wait_for(lambda: saved.exists() and saved.stat().st_size)
    opened.find("#forget-choices").click()
    assert len(opened.texts("#senses h4")) == len(senses_of(folder, "flew"))
    opened.find("#load-choices").send_keys(str(saved))
    opened.wait_for(lambda: opened.texts("#senses h4")[0].startswith("to fly"))
    assert counts().tolist() == after.tolist()
    part_of(opened, "to fly", "button", "Split again").click()
    assert len(opened.texts("#senses h4")) == 3
    # The numbers of usages mean others on another page.
    other = tmp_path / "other.json"
    other.write_text(json.dumps({**json.loads(saved.read_text()), "page": "x"}))
    opened.find("#load-choices").send_keys(str(other))
    opened.wait_for(lambda: "another page" in opened.text("#choices-said"))
    assert len(opened.texts("#senses h4")) == 3
    opened.find("#forget-choices").click()


def test_what_a_reader_looks_at_stays_after_a_choice(opened):
    choose(opened, "flew")
    opened.set_value("#number", 3)
    # Naming by keyboard, and a click that ends it
    part_of(opened, "Sense 1", "textbox", "Name").send_keys("to fly", opened.keys.TAB)
    opened.wait_for(lambda: opened.texts("#senses h4")[0].startswith("to fly"))
    assert opened.driver.switch_to.active_element == part_of(opened, "to fly", "combobox", "Merge with")
    part_of(opened, "Sense 2", "textbox", "Name").send_keys("to flee")
    part_of(opened, "Sense 2", "button", "Show on the map").click()
    opened.wait_for(lambda: opened.texts("#senses h4")[1].startswith("to flee"))
    assert [show.get_attribute("aria-pressed") for show in opened.find_all("#senses .show")] == [
        "false",
        "true",
        "false",
    ]
    # Usages of a list are misfiled one after the other.
    opened.find("#all summary").click()
    opened.wait_for(lambda: opened.find_all("#usages .misfiled"))
    listed = opened.texts("#usages li")

    def misfiled(place: int):
        usages = opened.by_role("list", "All 90 usages in the sample")
        return opened.by_role("button", "misfiled", opened.item(usages, listed[place]))

    misfiled(1).send_keys(opened.keys.ENTER)
    opened.driver.switch_to.active_element.send_keys(opened.keys.ENTER)
    assert opened.texts("#usages li") == [text for place, text in enumerate(listed) if place not in (1, 2)]
    assert opened.driver.switch_to.active_element == misfiled(3)
    assert part_of(opened, "to flee", "button", "Show on the map").get_attribute("aria-pressed") == "true"
    # Another number of senses has others.
    opened.set_value("#number", 2)
    assert len(opened.texts("#usages li")) == 90 and not opened.find_all("#senses .show[aria-pressed=true]")
    opened.find("#forget-choices").click()


def test_a_reader_s_senses_are_those_of_the_next_run(browser, folder, again, tmp_path):
    browser.open(folder / "_changes.html", READY)
    browser.save_into(tmp_path)
    choose(browser, "flew")
    browser.set_value("#number", 4)
    merge(browser, "Sense 4", "Sense 3")
    give_name(browser, "Sense 1", 'to "fly"')
    give_name(browser, "Sense 3 + 4", "merged")
    # A usage of the first sense is moved to a new one, another one to the second, and a third one is confirmed.
    browser.find("#new-sense").click()
    browser.driver.switch_to.active_element.send_keys("unheard of", browser.keys.TAB)
    browser.wait_for(lambda: browser.texts("#senses h4")[3:] == ["unheard of"])
    first = usages_of(browser, 'to "fly"', TIMES[0])
    unheard, moved, confirmed = browser.texts(".text", first)[:3]
    place_in(browser, browser.item(first, unheard), "unheard of")
    firsts = part_of(browser, "unheard of", "list", "First attestations, among all usages")
    assert browser.texts(".text", firsts) == [unheard]
    place_in(browser, browser.item(usages_of(browser, 'to "fly"', TIMES[0]), moved), "Sense 2")
    place_in(browser, browser.item(usages_of(browser, 'to "fly"', TIMES[0]), confirmed), 'to "fly"')
    browser.find("#save-senses").click()
    saved = tmp_path / "known_senses.csv"
    browser.wait_for(lambda: saved.exists() and saved.stat().st_size)
    browser.find("#forget-choices").click()
    rows = pd.read_csv(saved)
    assert list(rows) == ["word", "sense", "text", "start"] and set(rows["word"]) == {"flew"}
    assert all(row.text[row.start :].startswith("flew") for row in rows.itertuples())
    by_sense = rows.groupby("sense")["text"].agg(list).to_dict()
    assert by_sense['to "fly"'] == [confirmed] and by_sense["Sense 2"] == [moved]
    assert by_sense["unheard of"] == [unheard]
    # A sense without a chosen usage has ten of its own.
    assert len(by_sense["merged"]) == 10 and len(by_sense) == 4

    out = again(saved)
    usages = pd.read_parquet(out / "_usages.parquet").query("word == 'flew'")
    names = senses_of(out, "flew").set_index("sense")["name"]
    of = dict(zip(usages["sentence"], usages["sense"].map(names), strict=True))
    assert (
        of[moved] == "Sense 2"
        and of[unheard] == "unheard of"
        and of[confirmed] == 'to "fly"'
        and {of[text] for text in by_sense["merged"]} == {"merged"}
    )
    assert set(names) >= set(by_sense) and all(name.startswith("none of these") for name in {*names} - {*by_sense})
    assert (senses_of(out, "the")["name"] == "").all()
    # The page of that run has the names and the texts, and saves them again, with what was changed since.
    browser.open(out / "_changes.html", READY)
    choose(browser, "flew")
    assert [text.split(":")[0] for text in browser.texts("#senses h4")] == names.tolist()
    give_name(browser, "merged", "renamed")
    saved.unlink()
    browser.find("#save-senses").click()
    browser.wait_for(lambda: saved.exists() and saved.stat().st_size)
    renamed = rows.replace({"sense": {"merged": "renamed"}}).sort_values(["sense", "text"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(
        pd.read_csv(saved).sort_values(["sense", "text"]).reset_index(drop=True), renamed, check_dtype=False
    )
    # A quotation of the table that is moved is no longer one of its old sense: the next run refuses one of two senses.
    browser.find("#all summary").click()
    browser.wait_for(lambda: browser.find_all("#usages .place"))
    place_in(browser, browser.item(browser.by_role("list", "All 90 usages in the sample"), confirmed), "renamed")
    saved.unlink()
    browser.find("#save-senses").click()
    browser.wait_for(lambda: saved.exists() and saved.stat().st_size)
    rows = pd.read_csv(saved)
    assert rows.loc[rows["text"] == confirmed, "sense"].tolist() == ["renamed"]
    # A merged sense keeps the name of the first.
    first, second = names.replace("merged", "renamed")[:2]
    merge(browser, second, first)
    assert browser.text("#senses h4").startswith(first)
    browser.find("#forget-choices").click()
    assert browser.problems() == []


def test_a_word_of_one_time_has_its_page(opened):
    opened.find("#unranked-rows a").click()
    opened.wait_for(lambda: opened.text(READY) == "sad")
    assert "when: new in 2000" in opened.text("#facts")
    assert all(text.startswith("2000, 2000.txt, line ") for text in opened.texts("#earliest li"))
    for time in ("1800", "1900"):
        assert opened.texts("h5", usages_of(opened, "Sense 1", time)) == [f"{time}: no usage"]


def test_usages_are_sorted_by_the_words_beside_them(opened):
    choose(opened, "glad")
    opened.find("#all summary").click()
    opened.wait_for(lambda: opened.find_all("#usages li"))
    texts = opened.texts("#usages .text")
    # The texts before and after the word.
    script = (
        "return [...document.querySelectorAll('#usages mark')].map((mark) => mark[arguments[0]]?.textContent ?? '')"
    )
    for order, side, step in (("right", "nextSibling", 1), ("left", "previousSibling", -1)):
        opened.set_value("#sort", order)
        beside = [text.split()[::step] for text in opened.driver.execute_script(script, side)]
        assert beside == sorted(beside) and len({*map(tuple, beside)}) > 5
        assert sorted(opened.texts("#usages .text")) == sorted(texts)


def test_the_usages_on_the_map_are_read_by_keyboard_and_in_a_list(opened, folder):
    choose(opened, "flew")
    table = pd.read_parquet(folder / "_usages.parquet").query("word == 'flew'")
    opened.find("#map").send_keys(opened.keys.ARROW_RIGHT)
    opened.wait_for(lambda: opened.text("#usage").startswith(tuple(TIMES)))
    first = opened.text("#usage")
    opened.find("#map").send_keys(opened.keys.ARROW_RIGHT)
    opened.wait_for(lambda: opened.text("#usage") != first)
    time, rest = opened.text("#usage").removesuffix(" misfiled").split(", Sense ")
    assert rest.split(": ")[1] in set(table.loc[table["time"] == time, "text"])
    opened.find("#all summary").click()
    opened.wait_for(lambda: len(opened.texts("#usages li")) == 90)
    # Markup in a sentence is shown as text.
    assert any(ATTACK in text for text in opened.texts("#usages li"))
    assert opened.driver.title.startswith("Words") and not opened.find_all("main img")
    opened.set_value("#of-time", "3")
    assert Counter(opened.texts("#usages .text")) == Counter(table.loc[table["time"] == "2000", "text"])
    # A sense that is selected on the map is selected in the list.
    show = part_of(opened, "Sense 2", "button", "Show on the map")
    show.click()
    expected = opened.text("h5", usages_of(opened, "Sense 2", "2000")).split(", ")[1].split(" of ")[0]
    opened.wait_for(lambda: len(opened.texts("#usages li")) == int(expected))
    assert {text.split(", ")[1].split(":")[0] for text in opened.texts("#usages li")} <= {"Sense 2"}
    assert show.get_attribute("aria-pressed") == "true"
    opened.find_all("#rows a")[0].send_keys(opened.keys.ARROW_DOWN)
    assert opened.driver.switch_to.active_element.text == opened.texts("#rows a")[1]


def test_citations_are_saved_as_a_table(opened, folder, tmp_path):
    opened.save_into(tmp_path)
    assert not opened.find("#citations").is_displayed()
    choose(opened, "flew")
    senses = len(opened.find_all("#senses article"))
    where = usages_of(opened, f"Sense {senses}", "1800")
    texts = opened.texts(".text", where)
    assert texts
    for text in texts:
        opened.by_role("checkbox", "Cite", opened.item(where, text)).send_keys(opened.keys.SPACE)
    # A choice in one list is also checked in the other.
    opened.find("#all summary").send_keys(opened.keys.ENTER)
    opened.wait_for(lambda: len(opened.find_all("#usages .cite:checked")) == len(texts))
    choose(opened, "the")
    opened.find("#senses .times .cite").send_keys(opened.keys.SPACE)
    opened.find("#save").click()
    opened.wait_for(lambda: (path := tmp_path / "citations.csv").exists() and path.stat().st_size)
    rows = pd.read_csv(tmp_path / "citations.csv", dtype=str, keep_default_na=False).to_dict("records")
    assert [row["left"] + row["form"] + row["right"] for row in rows[:-1]] == texts
    assert {(row["word"], row["sense"], row["time"]) for row in rows[:-1]} == {("flew", str(senses), "1800")}
    assert rows[-1]["word"] == rows[-1]["form"] == "the"
    # The name of the file is a year.
    assert {row["date"] for row in rows} == {"1800"}
    assert all(row["source"].startswith("1800.txt, line ") for row in rows[:-1])
    opened.find("#forget").click()
    assert not opened.find_all(".cite:checked") and not opened.find("#citations").is_displayed()


def test_a_text_has_one_of_the_earliest_usages(browser, tmp_path):
    """The first text has the word in two sentences."""
    texts = ["One plane left. Two plane left.", "Three plane left."]
    found = [Usage(time, text, match.start(), match.end()) for time in TIMES for text in texts
             for match in re.finditer("plane", text)]  # fmt: skip
    usages = {time: [usage for usage in found if usage.time == time] for time in TIMES}
    entry = make_entry(Search(usages, {time: np.eye(3) for time in TIMES}))
    scores = {"change": {"plane": 0.2}, "change_step": {"plane": np.nan}}
    table = ranked_table(scores, {"plane": dict.fromkeys(TIMES, 3)})
    write_html(tmp_path / "page.html", words_page(table, TIMES, {"plane": entry}))
    browser.open(tmp_path / "page.html", READY)
    sentences = [text.split(": ")[1].split(".")[0] for text in browser.texts("#earliest li")]
    assert sentences == ["One plane left", "Three plane left"]
    # A word without a step has none beside its name.
    assert browser.text("#facts").startswith("change: 0.2 · usages, 1800: 3")


def test_the_sentences_of_a_sense_are_of_different_documents(browser, tmp_path):
    """The letter has the five usages nearest to the middle, the diary the farthest but one."""
    letters = [
        Usage("1800", f"letter {number} plane", 9, 14, source="letter", document="letter") for number in range(5)
    ]
    others = [Usage("1800", f"{source} plane", len(source) + 1, len(source) + 6, source=source, document=source)
              for source in ("diary", "bill")]  # fmt: skip
    usages = {"1800": [*others, *letters], "1900": [replace(letter, time="1900") for letter in letters]}
    distances = {"1800": [3, 4, 0.5, 0.6, 0.7, 0.8, 0.9], "1900": [0.5, 0.6, 0.7, 0.8, 0.9]}
    # Unit vectors on both sides of the middle, by the angle between.
    angles = {time: np.array(far) * (-1.0) ** np.arange(len(far)) / 5 for time, far in distances.items()}
    vectors = {time: np.stack([np.cos(far), np.sin(far)], axis=1) for time, far in angles.items()}
    entry = make_entry(Search(usages, vectors))
    table = ranked_table({"apd": {"plane": 0.2}}, {"plane": {"1800": 7, "1900": 5}})
    write_html(tmp_path / "page.html", words_page(table, ["1800", "1900"], {"plane": entry}))
    browser.open(tmp_path / "page.html", READY)
    browser.set_value("#number", 1)
    old, new = (browser.texts(".text", usages_of(browser, "Sense 1", time)) for time in ("1800", "1900"))
    assert old[0].startswith("letter") and old[1:] == ["diary plane", "bill plane"]
    # If documents are too few, one has several.
    assert len(set(new)) == 3


def test_the_earliest_usages_outside_the_sample_are_cited_with_their_sense(browser, tmp_path):
    usages = {word: {time: [Usage(time, f"the {word} flew", 4, 4 + len(word))] * 3 for time in TIMES} for word in "ab"}
    vectors = {word: {time: np.eye(3) for time in TIMES} for word in usages}
    table = ranked_table({"apd": {"a": 0.2, "b": 0.1}}, {word: dict.fromkeys(TIMES, 3) for word in usages})
    earlier = [Usage(TIMES[0], f"{number} as", 2, 4, f"180{number}", "letter") for number in range(2)]
    searches = {word: Search(usages[word], vectors[word], earlier) for word in usages}
    searches["a"].add(2, earlier, np.eye(3)[:2])
    entries = {word: make_entry(search) for word, search in searches.items()}
    write_html(tmp_path / "page.html", words_page(table, TIMES, entries))
    browser.open(tmp_path / "page.html", READY)
    browser.save_into(tmp_path)
    choose(browser, "b")
    assert "that were read" in browser.text("#is-whole")
    choose(browser, "a")
    assert "of all usages" in browser.text("#is-whole")
    # A date that is the name of its time is not repeated.
    first = [text.split(" (")[0].removesuffix(" misfiled") for text in browser.texts("#earliest li")]
    assert first[:2] == ["1800, letter: 0 as", "1800, 1801, letter: 1 as"]
    # They are neither on the map nor in the shares.
    assert len(browser.find_all("#map .mark-symbol path")) >= 9
    assert all("of 3" in text for text in browser.texts("#senses .times h5"))
    second = browser.item(browser.by_role("list", "First attestations"), "letter: 1 as")
    browser.by_role("checkbox", "Cite", second).send_keys(browser.keys.SPACE)
    browser.find("#save").click()
    browser.wait_for(lambda: (path := tmp_path / "citations.csv").exists() and path.stat().st_size)
    (row,) = pd.read_csv(tmp_path / "citations.csv", dtype=str, keep_default_na=False).to_dict("records")
    assert row["date"] == "1801" and row["time"] == TIMES[0] and row["form"] == "as" and row["sense"].isdigit()
    assert browser.problems() == []


def test_all_names_of_senses_are_seen(opened):
    """The legend grows with the number of senses that the reader chooses."""
    most = len(opened.find_all("#number option"))
    assert most > 3
    opened.set_value("#number", most)
    inside = """
        const chart = document.querySelector("#shares svg").getBoundingClientRect();
        const labels = [...document.querySelectorAll("#shares .role-legend-label text")];
        return labels.filter((label) => label.getBoundingClientRect().top >= chart.top - 1).length;
    """
    opened.wait_for(lambda: opened.driver.execute_script(inside) == most)


def test_a_word_of_one_sense_has_no_shares_and_its_first_attestations_once(opened):
    choose(opened, "flew")
    widths = []
    for number in (2, 1, 2):
        opened.set_value("#number", number)
        shown = opened.find("#shares").is_displayed()
        assert shown == opened.find(".firsts").is_displayed() == (number > 1)
        assert opened.find("#earliest li").is_displayed() and opened.find("#senses .times").is_displayed()
        if shown:
            opened.wait_for(lambda: opened.find("#shares svg").size["width"] > 200)
            widths.append(opened.find("#shares svg").size["width"])
    assert widths[0] == widths[1]


def test_no_two_senses_look_alike(opened):
    """Also where they are more than the colours, such as senses of a table and clusters beside them."""
    while len(opened.find_all("#senses article")) < 10:
        opened.find("#new-sense").click()
    look = """
        const symbols = [...document.querySelectorAll("#shares .role-legend-symbol path")];
        return symbols.map((symbol) => symbol.getAttribute("fill") + symbol.getAttribute("d"));
    """
    opened.wait_for(lambda: len(opened.driver.execute_script(look)) >= 10)
    assert len(set(opened.driver.execute_script(look))) == len(opened.find_all("#senses article"))
    opened.find("#forget-choices").click()


def test_the_trend_of_a_sense_is_that_of_the_file(browser, tmp_path):
    """Usages of two decades in each of two times, some without a date, in documents of three usages."""
    chance, usages = np.random.default_rng(0), {}
    for time, start in (("1800", 1800), ("1900", 1900)):
        dates = [f"{start + 2 * (number % 8)}" if number % 7 else "" for number in range(40)]
        usages[time] = [
            Usage(time, f"{time} plane {number}", 5, 10, date, document=f"{date} {number // 3}")
            for number, date in enumerate(dates)
        ]
    vectors = {time: chance.normal(size=(40, 4)) + 4 * chance.integers(2, size=(40, 1)) for time in usages}
    table = ranked_table({"apd": {"plane": 0.2}}, {"plane": dict.fromkeys(usages, 40)})
    entries = {"plane": make_entry(Search(usages, vectors))}
    write_entries(tmp_path, entries, list(usages))
    write_html(tmp_path / "page.html", words_page(table, list(usages), entries))
    browser.open(tmp_path / "page.html", READY)
    expected = pd.read_csv(tmp_path / "trends.csv")
    shown = browser.driver.execute_script("return [spans, state.senses.map((sense) => sense.trend)]")
    assert shown[0] == [f"{first}-{first + 9}" for first in (1800, 1810, 1900, 1910)]
    assert len(shown[1]) == expected["sense"].max() > 1
    for sense, trend in enumerate(shown[1], start=1):
        rows = expected.query("sense == @sense")[["share", "share_low", "share_high"]].to_numpy()
        np.testing.assert_allclose(np.array(trend), rows, atol=2e-4)
    assert len(browser.find_all("#trend .mark-symbol path")) >= expected["share"].count()


def test_charts_are_saved_without_variables_of_the_page(opened, tmp_path):
    opened.save_into(tmp_path)
    choose(opened, "flew")
    for name in ("map", "shares"):
        opened.find(f"#{name} + .save").click()
        path = tmp_path / f"flew_{name}.svg"
        # The file exists before its text is written.
        opened.wait_for(lambda path=path: path.exists() and path.stat().st_size)
        assert "<svg" in path.read_text() and "var(" not in path.read_text()


def test_a_narrow_table_stands_beside_the_word_in_a_wide_window_and_above_it_in_a_narrow_one(browser, tmp_path):
    usages = {time: [Usage(time, "the plane flew", 4, 9)] * 3 for time in TIMES[:2]}
    table = ranked_table({"apd": {"plane": 0.2}}, {"plane": dict.fromkeys(usages, 3)})
    entry = make_entry(Search(usages, {time: np.eye(3) for time in usages}))
    write_html(tmp_path / "page.html", words_page(table, TIMES[:2], {"plane": entry}))
    browser.open(tmp_path / "page.html", READY)
    sides = "return ['#lists', '#word'].map((each) => document.querySelector(each).getBoundingClientRect().toJSON())"
    lists, word = browser.driver.execute_script(sides)
    assert lists["right"] < word["left"] and abs(lists["top"] - word["top"]) < 10
    size = browser.driver.get_window_size()
    browser.driver.set_window_size(500, 900)
    lists, word = browser.driver.execute_script(sides)
    wide = browser.driver.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    browser.driver.set_window_size(size["width"], size["height"])
    assert lists["bottom"] <= word["top"] and wide <= 0
