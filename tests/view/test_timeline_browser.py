"""The page of timelines in a browser: what a person does there, and that the numbers are right."""

import itertools
import math
import re
from statistics import median
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.metrics import precision_score, recall_score
from stand_ins import NAMES, explained_timelines

from modeling_tempoformer.evaluation.timeline_metrics import detection_delays
from modeling_tempoformer.view import show
from modeling_tempoformer.view.page import write_page
from modeling_tempoformer.view.timeline_page import timeline_page


pytestmark = pytest.mark.slow

ATTACK = "</script><script>document.title='x'</script><img src=x onerror=\"document.title='y'\">"
READY = "#why-title"


@pytest.fixture(scope="module")
def timelines() -> list[dict]:
    """More timelines than the list shows at once."""
    timelines = explained_timelines(60, 30)
    timelines[7]["posts"][3]["text"] = f"A heron. {ATTACK}"
    timelines[9]["posts"][5]["text"] = "The Heron and the heron"
    return timelines


@pytest.fixture(scope="module")
def page(timelines, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "timelines.html"
    write_page(path, timeline_page(timelines, NAMES))
    return path


@pytest.fixture
def opened(browser, page):
    """The page, in which nothing goes wrong until the end of the test."""
    browser.open(page, READY)
    yield browser
    assert browser.problems() == []


def expected_scores(timelines: list[dict], threshold: float) -> dict[str, float]:
    """The numbers of the page, from scikit-learn and from the project's own scores of timelines."""
    alarms, actual, predicted, delays = 0, [], [], []
    for timeline in timelines:
        posts = timeline["posts"]
        raised = np.array([post["probabilities"]["Switch"] >= threshold for post in posts])
        alarms += raised.sum()
        labelled = np.array([post["actual"] is not None for post in posts])
        labels = np.array([post["actual"] == NAMES[1] for post in posts])[labelled]
        actual += labels.tolist()
        predicted += raised[labelled].tolist()
        times = np.array([post["timestamp"] for post in posts])
        delays += detection_delays(labels, raised[labelled], times[labelled])
    found = [delay for delay in delays if not math.isnan(delay[0])]
    return {
        "posts": sum(len(timeline["posts"]) for timeline in timelines),
        "alarms": alarms,
        "precision": precision_score(actual, predicted),
        "recall": recall_score(actual, predicted),
        "delay in posts": median([posts for posts, _ in found]),
        "delay in seconds": median([seconds for _, seconds in found]),
        "found": len(found),
        "runs": len(delays),
    }


def table_rows(browser, selector: str) -> list[list[str]]:
    """The texts of the cells of each row."""
    cells = "(row) => [...row.cells].map((cell) => cell.textContent)"
    return browser.driver.execute_script(
        f"return [...document.querySelector(arguments[0]).rows].map({cells})", selector
    )


def number(text: str) -> float:
    return float(text.replace(",", ""))


UNITS = {"s": 1, "min": 60, "h": 3600, "days": 86400, "years": 365.25 * 86400}


def shown_scores(browser) -> list[dict[str, float]]:
    """The numbers of this timeline and of all."""
    scores = [{}, {}]
    for name, *cells in table_rows(browser, "#scores tbody"):
        for score, text in zip(scores, cells, strict=True):
            words = text.split()
            if name == "median delay":
                score["delay in posts"] = number(words[0])
                score["delay in seconds"] = number(words[2]) * UNITS[words[3]]
            elif name == "runs found":
                score["found"], score["runs"] = number(words[0]), number(words[2])
            else:
                score[name] = number(words[0])
    return scores


def assert_scores(browser, timelines: list[dict], shown: dict, threshold: float):
    for scores, of in zip(shown_scores(browser), ([shown], timelines), strict=True):
        # Durations are shown with two digits or more; counts are exact.
        expected = expected_scores(of, threshold)
        assert scores == pytest.approx(expected, rel=0.06, abs=0.0006)
        for name in ("posts", "alarms", "found", "runs"):
            assert scores[name] == expected[name]


def alarms_of(timeline: dict, threshold: float) -> int:
    return sum(post["probabilities"]["Switch"] >= threshold for post in timeline["posts"])


def shown_timeline(browser, timelines: list[dict]) -> dict:
    return next(timeline for timeline in timelines if timeline["id"] == browser.text("#timeline-title"))


def test_counts_follow_the_threshold(opened, timelines):
    assert opened.find("#watched").get_property("value") == "1"
    shown = shown_timeline(opened, timelines)
    assert_scores(opened, timelines, shown, 0.5)
    for control, threshold in (("#threshold", 0.731), ("#threshold-number", 0.25)):
        opened.set_value(control, threshold)
        assert_scores(opened, timelines, shown, threshold)
    expected = [alarms_of(shown, 0.25)]
    assert [text.split()[0] for text in opened.texts('#timelines [aria-current="true"] .small')] == list(
        map(str, expected)
    )


def test_the_words_of_posts_follow_the_threshold(opened, timelines):
    """Hit, miss, false alarm, alarm or none, beside each post and as its mark."""
    opened.set_value("#threshold", 0.6)
    expected = []
    for post in shown_timeline(opened, timelines)["posts"]:
        alarm = post["probabilities"]["Switch"] >= 0.6
        words = {None: ("no alarm", "alarm"), "Switch": ("miss", "hit"), "No-Switch": ("no alarm", "false alarm")}
        expected.append(words[post["actual"]][alarm])
    assert opened.texts("#posts .outcome") == expected
    opened.wait_for(lambda: len(opened.find_all("#timeline_chart .mark-symbol [aria-label^='Post']")) == len(expected))
    marks = [
        mark.get_attribute("aria-label")
        for mark in opened.find_all("#timeline_chart .mark-symbol [aria-label^='Post']")
    ]
    assert [mark.split("; ")[0].split(", ")[1] for mark in marks] == expected


def test_sort_and_search(opened, timelines):
    def listed():
        return opened.texts("#timelines strong")

    by_alarms = [timeline["id"] for timeline in sorted(timelines, key=lambda timeline: -alarms_of(timeline, 0.5))]
    assert listed() == by_alarms[:50]
    opened.find("#more").click()
    assert listed() == by_alarms
    opened.set_value("#sort", "length")
    lengths = {timeline["id"]: len(timeline["posts"]) for timeline in timelines}
    assert [lengths[name] for name in listed()] == sorted(lengths.values(), reverse=True)[: len(listed())]
    opened.set_value("#sort", "id")
    assert listed() == [f"person {place}" for place in range(60)]
    opened.set_value("#search", "HERON")
    assert listed() == ["person 7", "person 9"]
    opened.find_all("#timelines button")[1].click()
    assert opened.texts("#posts mark") == ["Heron", "heron"]
    opened.set_value("#search", "person 3")
    assert listed() == ["person 3", *(f"person {place}" for place in range(30, 40))]
    opened.set_value("#search", "nothing of the kind")
    assert listed() == []


def test_lines_break_where_nobody_writes_and_sparklines_are_drawn_on_the_screen_only(opened, timelines):
    """Every tenth post follows a silence: so many runs has the line of the class."""
    silent = (len(shown_timeline(opened, timelines)["posts"]) - 1) // 10
    opened.wait_for(lambda: len(opened.find_all("#timeline_chart .mark-line path")) == silent + 1)
    assert len(opened.find_all("#posts .silence")) == silent
    opened.wait_for(lambda: opened.find_all("#timelines .sparkline path"))
    assert 0 < len(opened.find_all("#timelines .sparkline svg")) < 30
    opened.driver.execute_script("document.querySelector('#timelines li:last-child').scrollIntoView()")
    opened.wait_for(lambda: opened.find_all("#timelines li:last-child svg"))


def test_why(opened, timelines):
    """The earlier posts of a post that is clicked, the strongest first, with what they did to it."""
    shown = shown_timeline(opened, timelines)
    opened.driver.execute_script("document.querySelectorAll('#posts .post')[20].click()")
    post = shown["posts"][20]
    assert opened.text("#why-text") == post["text"]
    names = [*(f"post {place + 1}" for place in post["stream"][:-1]), "what", "the", "being"]
    effects, log_odds = (post[measure]["Switch"] for measure in ("effects", "log_odds_effects"))
    strongest = sorted(range(len(names)), key=lambda place: -abs(round(log_odds[place], 2)))
    for most in (6, len(names)):
        rows = table_rows(opened, "#why-table tbody")[:most]
        for row, place in zip(rows, strongest[:most], strict=True):
            assert re.split(r"[ ,]", row[0])[: len(names[place].split())] == names[place].split()
            moved = [float(cell.replace("−", "-")) for cell in row[1:3]]
            assert moved == pytest.approx([log_odds[place], effects[place]], abs=0.0051)
            assert moved[1] == pytest.approx(effects[place], abs=0.0006)
            looked = [float(cell.split()[0]) / 100 for cell in row[3:] if cell]
            weights = [layer[place] for layer in post["attention"]] if place < len(post["stream"]) else []
            assert looked == pytest.approx(weights, abs=0.0006)
        if most == 6:
            opened.find("#why-table button").click()
    words = opened.text("#why-words")
    assert words.index("is a measurement") < words.index("is not")
    opened.wait_for(lambda: len(opened.find_all("#why_chart .concat_0_layer_0_marks path")) == 20)


def test_it_opens_at_the_alarm_that_earlier_posts_moved_most(opened, timelines):
    posts = shown_timeline(opened, timelines)["posts"]
    alarms = [place for place, post in enumerate(posts) if post["probabilities"]["Switch"] >= 0.5]

    def moved(place: int) -> float:
        effects = posts[place]["log_odds_effects"]["Switch"]
        return max((round(abs(effect), 2) for effect in effects[: len(posts[place]["stream"]) - 1]), default=0.0)

    assert opened.text(READY).startswith(f"Why post {max(alarms, key=moved) + 1} ")


def test_silences_are_short_and_times_do_not_collide(opened, timelines):
    """All silences, of weeks between hours, take a quarter of the width at most. Words below the axis stand apart."""
    posts = shown_timeline(opened, timelines)["posts"]
    selector = "#timeline_chart .mark-symbol [aria-label^='Post']"
    boxes = "return [...document.querySelectorAll(arguments[0])].map((one) => one.getBoundingClientRect())"
    boxes += ".map((box) => [box.left, box.right])"
    for kind in ("time", "position"):
        opened.find(f'#axis [value="{kind}"]').click()
        words = "#timeline_chart .role-axis[aria-label^='X-axis'] .role-axis-label text"
        opened.wait_for(lambda words=words: len(opened.texts(words)) > 3)
        labels = opened.driver.execute_script(boxes, words)
        assert all(right < left for (_, right), (left, _) in itertools.pairwise(labels))
        if kind == "time":
            opened.wait_for(lambda: len(opened.find_all(selector)) == len(posts))
            middles = [sum(box) / 2 for box in opened.driver.execute_script(boxes, selector)]
            silent = [middles[place] - middles[place - 1] for place in range(9, len(posts), 10)]
            gaps = np.diff([post["timestamp"] for post in posts])
            longest = 10 * np.median(gaps)
            rest = gaps[gaps <= longest].sum()
            expected = min(longest * len(silent), rest / 3)
            assert sum(silent) / (middles[-1] - middles[0]) == pytest.approx(expected / (rest + expected), abs=0.005)
            assert expected < sum(gaps) / 50
            first = np.datetime64(int(posts[0]["timestamp"]), "s").astype(str)[:16].replace("T", " ")
            assert opened.texts(words)[0] == first


def test_seconds_since_a_start_are_no_dates(browser, tmp_path):
    timelines = explained_timelines(1, 9)
    for place, post in enumerate(timelines[0]["posts"]):
        post["timestamp"] = 3599.0 + 61 * place
    write_page(tmp_path / "page.html", timeline_page(timelines, NAMES))
    browser.open(tmp_path / "page.html", READY)
    assert [head.split(" · ")[1][:7] for head in browser.texts("#posts .post-head")[:2]] == ["0:59:59", "1:01:00"]
    assert "1970" not in browser.text("main")


def test_a_chart_is_saved_as_svg(opened, tmp_path):
    """With the colours of paper, since a file has no variables."""
    opened.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    for number, button in enumerate(("save-timeline", "save-why"), 1):
        opened.find(f"#{button}").click()
        opened.wait_for(lambda number=number: len(list(tmp_path.glob("*.svg"))) == number)
    for path in tmp_path.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag.endswith("svg") and "var(" not in text and "#0b5cad" in text


def test_click_in_the_chart(opened, timelines):
    """By position the posts stand at the same distance from each other: a click on the middle of a mark means it."""
    opened.find('#axis [value="position"]').click()
    posts = shown_timeline(opened, timelines)["posts"]
    selector = "#timeline_chart .mark-symbol [aria-label^='Post']"
    opened.wait_for(lambda: len(opened.find_all(selector)) == len(posts))
    for place in (0, 17, len(posts) - 1):
        script = """
            const box = document.querySelectorAll(arguments[0])[arguments[1]].getBoundingClientRect();
            const at = { clientX: box.left + box.width / 2, clientY: box.top, bubbles: true };
            for (const kind of ["pointermove", "click"]) {
                document.querySelector("#timeline_chart svg").dispatchEvent(new MouseEvent(kind, at));
            }
            return document.getElementById("tip").textContent;
        """
        tip = opened.driver.execute_script(script, selector, place)
        assert posts[place]["text"] in tip
        assert opened.text(READY).startswith(f"Why post {place + 1} ")


def test_keys(opened, timelines):
    press = """
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: arguments[0], bubbles: true }));
        return [document.activeElement.dataset.post, document.activeElement.dataset.timeline];
    """

    def keys(*names: str):
        return [opened.driver.execute_script(press, name) for name in names][-1]

    posts = shown_timeline(opened, timelines)["posts"]
    opened.driver.execute_script("document.getElementById('chart').focus()")
    keys("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "Enter")
    assert opened.text(READY).startswith("Why post 2 ")
    keys("End", "ArrowRight")
    assert posts[-1]["text"] in opened.text("#tip")
    keys("Enter")
    assert opened.text(READY).startswith(f"Why post {len(posts)} ")
    # One post of the list is reached by Tab, and the others from it.
    assert [button.get_attribute("data-post") for button in opened.find_all('#posts .post[tabindex="0"]')] == [
        str(len(posts) - 1)
    ]
    opened.driver.execute_script("document.querySelector('#posts .post[tabindex=\"0\"]').focus()")
    assert keys("ArrowUp", "ArrowUp", "ArrowDown")[0] == str(len(posts) - 2)
    opened.driver.execute_script("document.querySelector('#timelines button').focus()")
    second = opened.find_all("#timelines button")[1].get_attribute("data-timeline")
    assert keys("ArrowDown")[1] == second
    opened.driver.execute_script("document.activeElement.click()")
    assert opened.text("#timeline-title") == timelines[int(second)]["id"]
    assert opened.find_all("#timelines button")[1].get_attribute("aria-current") == "true"


def test_a_post_that_is_a_script_is_a_text(opened, timelines):
    opened.set_value("#search", "heron")
    (shown,) = (button for button in opened.find_all("#timelines button") if "person 7" in button.text)
    shown.click()
    assert ATTACK in opened.texts("#posts .post-text")[3]
    opened.driver.execute_script("document.querySelectorAll('#posts .post')[3].click()")
    assert ATTACK in opened.text("#why-text")
    assert opened.driver.title == "Timelines" and opened.find_all("img") == []


@pytest.mark.parametrize("settings", [{"timed": False}, {"labelled": False}, {"names": ["A", "B", "C"]}])
def test_other_posts(browser, tmp_path, settings):
    """Without times, without labels, of three classes."""
    names = settings.get("names", NAMES)
    timelines = explained_timelines(3, 12, **settings)
    write_page(tmp_path / "page.html", timeline_page(timelines, names))
    browser.open(tmp_path / "page.html", READY)
    browser.wait_for(lambda: browser.find_all(".chart .mark-line path"))
    rows = table_rows(browser, "#scores tbody")
    assert ("precision" in [row[0] for row in rows]) == settings.get("labelled", True)
    assert browser.find("#axis").is_displayed() == settings.get("timed", True)
    assert len(browser.find_all("#watched option")) == len(names)
    browser.set_value("#watched", 0)
    assert f"has {names[0]} " in browser.text(READY)
    assert browser.problems() == []


def test_show_in_a_frame(browser, tmp_path):
    """A notebook's page holds the page of one timeline, without a list."""
    posts = explained_timelines(1, 12)[0]["posts"]
    (tmp_path / "notebook.html").write_text(f"<p id='before'>Before</p>{show(posts)._repr_html_()}", encoding="utf-8")
    browser.open(tmp_path / "notebook.html", "#before")
    browser.driver.switch_to.frame(browser.find("iframe"))
    browser.wait_for(lambda: browser.find_all(READY) and browser.text(READY))
    assert browser.texts("#posts .post-text") == [post["text"] for post in posts]
    assert not browser.find("#list").is_displayed()
    browser.driver.switch_to.default_content()
    assert browser.problems() == []
