"""Labels posts in a browser by its keys, and reads what the page saves."""

from pathlib import Path

import pandas as pd
import pytest
from helpers import NAMES, save_encoder, write_posts

from modeling_tempoformer import load_table
from modeling_tempoformer.commands import train
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.posts.timelines import to_timelines
from tempoformer_label.commands import label


pytestmark = pytest.mark.slow

ATTACK = "</script><script>document.title='x'</script><img src=x onerror=\"document.title='y'\">"
HEBREW = 'שלום "x", 😀\nline'
NO, YES = NAMES


def write_page(folder: Path, posts: list[dict], *arguments: str, name: str = "posts.csv") -> Path:
    path = folder / name
    write_posts(path, posts)
    page = path.with_suffix(".html")
    label.main(["--files", str(path), *arguments, "--output", str(page)])
    return page


@pytest.fixture(scope="module")
def posts() -> list[dict]:
    """Returns the unlabelled posts of ten people. Every third was said by another one."""
    posts = list(synthetic_posts(10, seed=0, posts_per_timeline=8))
    posts[2]["text"], posts[3]["text"] = ATTACK, HEBREW
    return [{**post, "label": "", "speaker": "bob" if n % 3 else "ann"} for n, post in enumerate(posts)]


@pytest.fixture
def opened(browser, tmp_path):
    """Yields a function that opens a page. Checks that no problem was reported and that the focus was never lost."""

    def open_page(page: Path):
        browser.open(page, "#where")
        return browser

    browser.save_into(tmp_path)
    yield open_page
    assert browser.problems() == []
    assert browser.driver.execute_script("return document.activeElement.tagName") == "INPUT"


def press(browser, *keys: str, held: str | None = None):
    """Presses keys one after the other, wherever the focus is."""
    chain = browser.new_chain()
    if held is not None:
        chain.key_down(held)
    chain.send_keys(*keys)
    if held is not None:
        chain.key_up(held)
    chain.perform()


def current(browser) -> tuple[str, str]:
    """Returns the head and the text of the current post, in which the focus is."""
    script = "const at = document.activeElement.closest('[aria-current]'); return at && at === "
    script += "document.querySelector('[aria-current]') && [...at.querySelectorAll('p')].map((one) => one.textContent)"
    return tuple(browser.driver.execute_script(script))


def labels_of(browser) -> list[str]:
    return browser.driver.execute_script("return rows.map((_, row) => labelWords(row))")


def saved(browser, path: Path) -> pd.DataFrame:
    """Saves among the downloads, and returns the table."""
    browser.driver.execute_script("window.showSaveFilePicker = undefined")
    press(browser, "s", held=browser.keys.CONTROL)
    browser.wait_for(lambda: path.exists() and path.stat().st_size)
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def test_fifty_posts_are_labelled_by_keys_and_a_training_reads_them(opened, posts, tmp_path):
    page = write_page(tmp_path, posts, "--labels", *NAMES)
    browser, keys = opened(page), opened(page).keys
    assert browser.text("#done") == "0 of 10 stretches, 0 of 80 posts"
    assert "person-0, posts 1 to 8 of 8" in browser.text("#where")
    # From the name to the post lie the file, Next, Save and Keys.
    browser.find("#annotator").send_keys("An")
    press(browser, *[keys.TAB] * 5)
    assert current(browser)[1] == posts[0]["text"]
    browser.find("#annotator").send_keys("n", keys.ENTER)
    wanted = [(NO, YES, "cannot say")[(n * n) % 7 % 3] for n in range(50)]
    for number, name in enumerate(wanted):
        head, text = current(browser)
        assert head.startswith(f"Post {number % 8 + 1} · ") and text == posts[number]["text"]
        assert posts[number]["speaker"] in head and (number % 8 == 0 or "later" in head or number in silent(browser))
        # Digits and letters are the same.
        press(browser, {NO: "1n", YES: "2s", "cannot say": "--"}[name][number % 2])
    assert labels_of(browser) == [*wanted, *["no label"] * 30]
    assert browser.text("#done") == "6 of 10 stretches, 50 of 80 posts"
    assert browser.text("#said").startswith(f"Post 2: {wanted[49]}.")
    # Twice back, one of them by another key, and again.
    press(browser, keys.BACKSPACE)
    press(browser, "z", held=keys.CONTROL)
    assert labels_of(browser)[48:50] == ["no label"] * 2 and current(browser)[0].startswith("Post 1 ")
    assert browser.text("#said") == "Undone. Post 1: no label."
    press(browser, *({NO: "1", YES: "2", "cannot say": "-"}[name] for name in wanted[48:]))
    # A note is kept at each key, and signs in it are no commands.
    press(browser, keys.ARROW_UP, keys.ENTER, "1 s - ? ", HEBREW[:4], keys.ESCAPE)
    assert labels_of(browser) == [*wanted, *["no label"] * 30] and current(browser)[0].startswith("Post 2 ")
    assert browser.text("#said") == "Post 2: note written."
    # An earlier post changes, and is left without a label.
    press(browser, keys.ARROW_UP, keys.DELETE)
    wanted[48] = "no label"
    assert labels_of(browser)[48] == "no label"
    # The page goes on where it was after a crash.
    opened(page)
    assert labels_of(browser) == [*wanted, *["no label"] * 30] and current(browser)[0].startswith("Post 1 ")
    assert browser.find("#annotator").get_property("value") == "Ann"
    note = "1 s - ? " + HEBREW[:4]
    table = saved(browser, tmp_path / "posts_Ann.csv")
    assert browser.text("#said") == "Saved among your downloads: posts_Ann.csv."
    expected = [name if name in NAMES else "" for name in wanted] + [""] * 30
    assert list(table["label"]) == expected and list(table["text"]) == [post["text"] for post in posts]
    assert list(table["cannot_say"]) == ["yes" if name == "cannot say" else "" for name in wanted] + [""] * 30
    assert list(table["annotator"]) == ["Ann" if name != "no label" else "" for name in wanted] + [""] * 30
    assert [(n, cell) for n, cell in enumerate(table["note"]) if cell] == [(49, note)]
    given = to_timelines(load_table(str(tmp_path / "posts_Ann.csv")), NAMES)
    assert [NAMES[found] if found >= 0 else "" for one in given for found in one.labels] == expected
    assert [text for one in given for text in one.texts] == [post["text"] for post in posts]
    # A page of the saved file goes on from it, and so does the first page once it opens the file.
    label.main(["--files", str(tmp_path / "posts_Ann.csv"), "--output", str(tmp_path / "again.html")])
    opened(tmp_path / "again.html")
    assert labels_of(browser)[:49] == wanted[:49] and browser.text("#done") == "6 of 10 stretches, 49 of 80 posts"
    assert browser.find("#annotator").get_property("value") == "Ann"
    classes = ["--labels", *NAMES, "other"]
    label.main(["--files", str(tmp_path / "posts.csv"), *classes, "--output", str(tmp_path / "new.html")])
    opened(tmp_path / "new.html")
    browser.find("#open").send_keys(str(tmp_path / "posts_Ann.csv"))
    browser.wait_for(lambda: "Read" in browser.text("#said"))
    assert browser.text("#said") == "Read 49 answers."
    assert labels_of(browser)[:49] == wanted[:49]
    press(browser, keys.BACKSPACE)
    assert labels_of(browser) == ["no label"] * 80
    encoder = save_encoder(tmp_path / "encoder")
    settings = ["--max_steps", "2", "--config_overrides", '{"num_trees": 2, "num_members": 2}', "--report_to", "none"]
    files = ["--train_file", str(tmp_path / "posts_Ann.csv"), "--output_dir", str(tmp_path / "out")]
    train.main(["--model_name_or_path", encoder, *files, *settings])
    assert (tmp_path / "out" / "model.safetensors").exists()


def silent(browser) -> list[int]:
    """Returns the rows that end silences."""
    return browser.driver.execute_script("return timelines.flatMap((one) => one.silences.map((at) => one.rows[at]))")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_stretch_after_a_long_context_is_on_the_screen(opened, width, tmp_path):
    """Texts stay texts, and nothing is wider than the screen."""
    # A browser keeps the labels of a page, which must not be the same for both widths.
    shared = {"timeline_id": f"at {width}", "stretch": ""}
    posts = [{**shared, "timestamp": 1e9 + 60 * n, "text": f"{n} " * 200} for n in range(3000)]
    for row, number in ((2000, 1), (2001, 1), (2500, 2)):
        posts[row]["stretch"] = number
    posts[2000]["text"], posts[2001]["text"], posts[1999]["text"] = ATTACK, HEBREW, "x" * 500
    posts[2000]["timestamp"] = (posts[1999]["timestamp"] + posts[2001]["timestamp"]) / 2
    for post in posts[2500:]:
        post["timestamp"] += 3 * 86400
    guideline = tmp_path / "guide.md"
    guideline.write_text(f"# Rules {ATTACK}\n" + "line\n" * 200, encoding="utf-8")
    page = write_page(tmp_path, posts, "--labels", *NAMES, ATTACK, "--guideline", str(guideline))
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser = opened(page)
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        opened(page)
        places = "const [bar, at] = ['.bar', '[aria-current]'].map((name) => document.querySelector(name)"
        places += ".getBoundingClientRect()); return [bar.bottom, at.top, at.bottom, innerHeight]"
        bar, top, bottom, height = browser.driver.execute_script(places)
        assert bar <= top < bottom <= height and current(browser)[1] == ATTACK
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.driver.title == "Label posts" and browser.find_all("img") == []
        assert ATTACK in browser.text(".guideline") and len(browser.find_all("#posts .context")) == 10
        browser.driver.execute_script("document.getElementById('earlier').focus()")
        top = browser.driver.execute_script(places)[1]
        press(browser, browser.keys.ENTER)
        assert len(browser.find_all("#posts .context")) == 60
        after = browser.driver.execute_script(places)
        assert after[1] == pytest.approx(top, abs=2)
        press(browser, "2", "3")
        assert "3 days later" in browser.texts("#posts .silence")
        assert labels_of(browser)[2000:2002] == [YES, ATTACK] and current(browser)[1] == posts[2500]["text"]
        assert browser.text("#done") == "1 of 2 stretches, 2 of 3 posts"
        # The keys are shown over the page, and the focus comes back.
        press(browser, "?")
        assert browser.find("#keys").is_displayed() and ATTACK in browser.text("#keys-table")
        press(browser, "1", browser.keys.ESCAPE)
        assert not browser.find("#keys").is_displayed() and labels_of(browser)[2500] == "no label"
        press(browser, "1")
        assert "All posts are done" in browser.text("#said")
        press(browser, browser.keys.ARROW_UP, held=browser.keys.SHIFT)
        assert browser.text("#said") == "Stretch 1 of 2." and current(browser)[1] == ATTACK
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_differences_of_annotators_are_decided(opened, posts, tmp_path):
    """A browser that lets the page write a file writes the same one again."""
    ann = [{**post, "label": NAMES[n % 2], "annotator": "Ann", "note": f"<b>{n}</b>"} for n, post in enumerate(posts)]
    bob = [{**post, "label": NAMES[(n + (n in (5, 7, 40))) % 2]} for n, post in enumerate(posts)]
    bob[50]["label"] = ""
    for name, rows in (("ann", ann), ("bob", bob)):
        write_posts(tmp_path / f"{name}.csv", rows)
    files = [str(tmp_path / f"{name}.csv") for name in ("ann", "bob")]
    label.main(["--files", *files, "--output", str(tmp_path / "both.html")])
    browser = opened(tmp_path / "both.html")
    assert browser.text("#done") == "0 of 2 stretches, 0 of 3 posts"
    assert "79 posts have several labels, and on 76 of them (96 %)" in browser.text("header")
    assert browser.texts("[aria-current] .given li") == [f"Ann: {YES}: <b>5</b>", f"bob: {NO}"]
    script = """
        window.written = [];
        const write = async (content) => written.push(content);
        const writer = { createWritable: async () => ({ write, close: async () => {} }), name: "both.csv" };
        window.asked = 0;
        window.showSaveFilePicker = async () => { asked += 1; return writer; };
    """
    browser.driver.execute_script(script)
    press(browser, "1", "2", "-")
    for number in (1, 2):
        press(browser, "s", held=browser.keys.CONTROL)
        browser.wait_for(lambda: browser.driver.execute_script("return written.length") == number)
    assert browser.text("#said") == "Saved: both.csv."
    assert browser.driver.execute_script("return [asked, written[0] === written[1]]") == [1, True]
    path = tmp_path / "decided.csv"
    path.write_text(browser.driver.execute_script("return written[0]"), encoding="utf-8", newline="")
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    expected = [NAMES[n % 2] for n in range(80)]
    expected[5], expected[7], expected[40] = NO, YES, ""
    assert list(table["label"]) == expected
    assert list(table["label_Ann"]) == [post["label"] for post in ann]
    assert list(table["label_bob"]) == [post["label"] for post in bob]
    assert table["cannot_say"][40] == "yes" and set(table["cannot_say"].drop(40)) == {""}
    (timelines,) = {len(to_timelines(load_table(str(path)), NAMES))}
    assert timelines == 10
