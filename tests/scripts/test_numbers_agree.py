"""Reads the numbers that a run writes on page, card, console and in tables, and compares each with the results."""

import re
from collections.abc import Iterator
from html import unescape

import pytest
from helpers import ROOT, read_json, save_encoder, write_posts
from test_runs_with_states import derived, scenes

from modeling_tempoformer.evaluation.method_names import baseline_name
from modeling_tempoformer.evaluation.report import COSTS
from run_glue_style import main


pytestmark = pytest.mark.slow

NUMBER = re.compile(r"(?<![\w.])[+-]?\d[\d,]*(?:\.\d+)?(?![\w.]*\w)")


def numbers_of(words: str) -> list[float]:
    """Returns the numbers in words. The percentage of an interval is none of a run."""
    return [float(found.replace(",", "")) for found in NUMBER.findall(words.replace("95 %", ""))]


def leaves(results) -> Iterator[float]:
    """Yields each number of results, at any depth."""
    for value in results.values() if isinstance(results, dict) else results:
        if isinstance(value, (dict, list)):
            yield from leaves(value)
        elif isinstance(value, (int, float)):
            yield float(value)


def table_rows(test: dict, always: bool) -> dict[tuple[str, str], list[float]]:
    """
    Returns the numbers that belong into the row of a table, by a piece of the table's title and the row's name. A
    macro F1 `always` stands beside its difference, or else only if that is sure, as in other tables.
    """

    def compared(score: dict, always: bool = False) -> list[float]:
        low, high = score.get("difference_interval", (0, 0))
        return [*([score["difference"]] if always or low > 0 or high < 0 else []), low, high]

    rows = {("macro F1", "this model"): [test["macro_f1"], *test["macro_f1_interval"]]}
    for name, score in test["compared_with"].items():
        rows["macro F1", baseline_name(name, score)] = [score["macro_f1"], *compared(score, always)]
    for name, score in test["classes"].items():
        rows["precision", name] = [score[kind] for kind in ("precision", "recall", "f1", "posts")]
    alarm = test["alarm"]
    rows["labelled posts", "this model"] = [alarm["precision"], alarm["recall"], alarm["alarms"]]
    for name, score in alarm["compared_with"].items():
        shares = [score[kind] for kind in ("precision", "recall") if kind in score]
        rows["labelled posts", baseline_name(name, score)] = [*shares, score["alarms"], *compared(score)]
    for name, words in COSTS.items():
        if name in alarm["costs"] and not name.endswith("seconds"):
            rows["cost of alarms", words] = [alarm["costs"][name], *alarm["costs"].get(f"{name}_interval", [])]
    names = list(test["states"]["confusion"])
    for state in names:
        rows["State given", state] = test["states"]["confusion"][state]
    return rows


def check_tables(text: str, rows: dict[tuple[str, str], list[float]]) -> set[tuple[str, str]]:
    """Checks the numbers in the tables of a text, and returns the titles and names of the rows that it found."""
    found = set()
    # A header may have a shorter title, too.
    titles = sorted({title for title, _ in rows}, key=len, reverse=True)
    title = ""
    for line in text.splitlines():
        title = next((one for one in titles if one in line), title) if line.strip() else ""
        cells = line.replace("|", "  ").replace("\\", "").strip()
        for one, name in rows:
            if one == title and (cells.startswith(f"{name}  ") or cells.startswith(f"{name} & ")):
                found.add((one, name))
                given = numbers_of(cells.removeprefix(name))
                assert given == pytest.approx(rows[one, name], abs=0.00051, rel=0.00051), line
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trains on scenes whose speakers' moods change, a tenth of them without a label. Returns the folder."""
    folder = tmp_path_factory.mktemp("run")
    posts = scenes(number=False)
    labels = derived(posts, 0)
    for row, (post, label) in enumerate(zip(posts, labels, strict=True)):
        post["label"] = "" if row % 10 == 3 else label
    file = write_posts(folder / "posts.csv", posts)
    arguments = ["--model_name_or_path", save_encoder(folder / "encoder"), "--train_file", file, "--max_steps", "4"]
    steps = ["--do_train", "--do_eval", "--do_predict", "--view", "--watch", "Change", "--report_to", "none"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        main([*arguments, *steps, "--output_dir", str(folder / "out")])
    return folder / "out"


@pytest.fixture(scope="module")
def test(run) -> dict:
    return read_json(run / "all_results.json")["test"]


def sentences_of_page(run) -> list[str]:
    page = (run / "_timelines.html").read_text(encoding="utf-8")
    verdict = page.partition('<div id="verdict">')[2].partition("</div>")[0]
    return [unescape(sentence) for sentence in re.findall("<li>(.*?)</li>", verdict, re.DOTALL)]


def test_every_row_of_console_and_tables_has_the_numbers_of_the_results(run, test):
    from modeling_tempoformer.evaluation.report import results_table

    rows = table_rows(test, always=False)
    console = check_tables(results_table("test", test), rows)
    assert console == set(rows)
    latex = (run / "test_table.tex").read_text(encoding="utf-8").replace("the default &", "this model &")
    in_latex = check_tables(
        latex.replace(" Macro F1 & ", " macro F1 & ").replace("Precision", "precision"), table_rows(test, always=True)
    )
    assert {title for title, _ in in_latex} == {"macro F1", "labelled posts", "precision"}
    card = (run / "README.md").read_text(encoding="utf-8").partition("On the test part")[2]
    found = check_tables(card, rows)
    assert {row for row in rows if row[0] in ("cost of alarms", "State given")} <= found


def test_page_card_and_console_say_the_same_sentences_of_the_results(run, test):
    from modeling_tempoformer.evaluation.report import results_table

    card = re.sub(r"\\(.)", r"\1", (run / "README.md").read_text(encoding="utf-8"))
    console, known = results_table("test", test), [round(abs(value), 6) for value in leaves(test)]
    sentences = sentences_of_page(run)
    assert len(sentences) > 6
    for sentence in sentences:
        assert sentence in card
        for number in numbers_of(sentence):
            digits = 10 ** -len(str(number).partition(".")[2])
            assert any(abs(abs(number) - value) <= max(digits / 2, 0.005 * value) + 1e-6 for value in known), sentence
    assert any(sentence in console for sentence in sentences if sentence.startswith("Who decides"))


def test_the_page_counts_what_the_results_count(run, test, browser):
    browser.open(run / "_timelines.html", "#why-title")
    cells = "(row) => [...row.cells].map((cell) => cell.textContent)"
    script = f"return [...document.querySelector('#scores').tBodies[0].rows].map({cells})"
    page = {name: overall for name, _, overall in browser.driver.execute_script(script)}
    confusion = browser.driver.execute_script(script.replace("#scores", "#confusion table"))
    assert {name: list(map(int, counts)) for name, *counts in confusion} == test["states"]["confusion"]
    alarm, costs = test["alarm"], test["alarm"]["costs"]
    assert numbers_of(page["posts"]) == [test["posts"]]
    assert numbers_of(page["alarms on labelled posts"]) == [alarm["alarms"]]
    for kind in ("precision", "recall"):
        assert numbers_of(page[kind])[0] == pytest.approx(alarm[kind], abs=0.00051)
    runs_found, runs = numbers_of(page["runs found"].replace(" of ", " "))
    assert runs == costs["num_changes"] and runs_found / runs == pytest.approx(costs["found_changes"])
    # The model has no threshold of alarms: an alarm is a predicted label, so that the scores of the class agree, too.
    assert test["classes"]["Change"]["missed"] == pytest.approx(costs["missed_changes"])
    assert test["classes"]["Change"]["recall"] == pytest.approx(alarm["recall"])
    (sentence,) = [sentence for sentence in sentences_of_page(run) if sentence.startswith("Alarms find")]
    assert f"{runs_found:.0f} of the {runs:.0f} runs" in sentence
    assert numbers_of(page["median delay"])[0] == costs["median_alarm_delay_posts"]
    assert test["classes"]["Change"]["median_delay_posts"] == costs["median_alarm_delay_posts"]
    if "falsely_alarmed_timelines" in costs:
        alarmed, calm = numbers_of(page["alarmed without Change"].replace(" of ", " "))
        assert alarmed / calm == pytest.approx(costs["falsely_alarmed_timelines"])
