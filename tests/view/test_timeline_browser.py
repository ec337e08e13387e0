"""Checks the page of timelines in a browser: a person's actions, and the numbers that the page shows."""

import math
import re
import shlex
from xml.etree import ElementTree

import numpy as np
import pytest
from modeling_tempoformer.metrics.change_detection import change_detection
from stand_ins import NAMES, explained_timelines, page_of, with_states

from modeling_tempoformer.common.pages import write_html


pytestmark = pytest.mark.slow

ATTACK = "</script><script>document.title='x'</script><img src=x onerror=\"document.title='y'\">"
READY = "#why-title"
MARKS = "#timeline_chart .mark-symbol [aria-label^='Post']"


@pytest.fixture(scope="module")
def timelines() -> list[dict]:
    """Returns more timelines than the list shows at once."""
    timelines = explained_timelines(60, 30)
    timelines[7]["posts"][3]["text"] = f"A heron. {ATTACK}"
    timelines[9]["posts"][5]["text"] = "The Heron and the heron"
    for timeline in timelines:
        timeline["posts"][20]["log_odds_effects"]["Switch"][7:9] = 0.0049, -0.0049
        for measure in ("effects", "log_odds_effects"):
            timeline["posts"][22][measure]["Switch"][-1] = None
    return timelines


@pytest.fixture(scope="module")
def page(timelines, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "timelines.html"
    write_html(path, page_of(timelines, NAMES))
    return path


@pytest.fixture
def opened(browser, page):
    """Opens the page. Checks at the end of the test that it reported no problem and requested nothing."""
    browser.open(page, READY)
    yield browser
    assert browser.problems() == []


@pytest.fixture
def open_page(browser, tmp_path):
    """Yields a function that opens a page of other timelines. Checks at the end that there was no problem."""

    def write_and_open(*arguments, **settings):
        write_html(tmp_path / "page.html", page_of(*arguments, **settings))
        browser.open(tmp_path / "page.html", READY)
        return browser

    yield write_and_open
    assert browser.problems() == []


def counts_of(timelines: list[dict], threshold: float) -> dict:
    """Computes the counts of the page, with the project's own delays."""
    names = ("posts", "alarms", "barely", "judged", "ofClass", "hits", "calm", "calmAlarmed")
    counts = {**dict.fromkeys(names, 0), "delays": []}
    for timeline in timelines:
        posts = timeline["posts"]
        raised = np.array([is_alarm(post, threshold) for post in posts])
        labelled = np.array([post["actual"] is not None for post in posts])
        is_class = np.array([post["actual"] == "Switch" for post in posts])
        times = np.array([post["timestamp"] for post in posts])
        barely = [units_of(post) < threshold * 10_000 + 500 for post in posts] & raised
        sums = len(posts), raised.sum(), barely.sum(), (raised & labelled).sum()
        sums += is_class.sum(), (raised & is_class).sum()
        is_calm = labelled.any() and not is_class.any()
        sums += is_calm, is_calm and (raised & labelled).any()
        for name, number in zip(counts, sums, strict=False):
            counts[name] += int(number)
        judged = change_detection.Posts(is_class[labelled], raised[labelled], times[labelled])
        for late, seconds in change_detection.judge_alarms(judged).delays:
            delay = {"posts": pytest.approx(late), "seconds": pytest.approx(seconds, abs=0.002)}
            counts["delays"].append(None if math.isnan(late) else delay)
    return counts


def table_rows(browser, selector: str) -> list[list[str]]:
    """Returns the texts of the cells of each row."""
    cells = "(row) => [...row.cells].map((cell) => cell.textContent)"
    return browser.driver.execute_script(
        f"return [...document.querySelector(arguments[0]).rows].map({cells})", selector
    )


def units_of(post: dict) -> int:
    """Returns the probability as the page has it."""
    return int(post["probabilities"]["Switch"] * 10_000)


def is_alarm(post: dict, threshold: float = 0.5) -> bool:
    return post["probabilities"]["Switch"] >= threshold


def shown_timeline(browser, timelines: list[dict]) -> dict:
    return next(timeline for timeline in timelines if timeline["id"] == browser.text("#timeline-title"))


def chosen(browser) -> int:
    """Returns the number of the explained post."""
    return browser.driver.execute_script("return state.chosen")


def test_counts_follow_the_threshold(opened, timelines):
    assert opened.find("#watched").get_property("value") == "1"
    shown = shown_timeline(opened, timelines)
    # At first alarms are those that the model has decided on, by 0.5 of two classes.
    for control, threshold in ((None, 0.5), ("#threshold", 0.5), ("#threshold", 0.731), ("#threshold-number", 0.25)):
        if control is not None:
            opened.set_value(control, threshold)
        here, overall = opened.driver.execute_script("return [counts[state.timeline], addCounts(counts)]")
        assert here == counts_of([shown], threshold) and overall == counts_of(timelines, threshold)


def test_alarms_are_the_predictions_until_the_threshold_moves(open_page):
    """The last of three classes has the smallest threshold, so that the model prefers it."""
    names, thresholds = ["A", "B", "C"], np.array([0.5, 0.4, 0.1])
    timelines = explained_timelines(3, 30, names=names)
    posts = [post for timeline in timelines for post in timeline["posts"]]
    probabilities = np.array([list(post["probabilities"].values()) for post in posts])
    predicted = (probabilities / thresholds).argmax(-1)
    for post, label in zip(posts, predicted, strict=True):
        post["label"] = names[label]
    opened = open_page(timelines, names, calibration={"thresholds": thresholds.tolist()}, watched=2)

    def counts() -> dict:
        return opened.driver.execute_script("return addCounts(counts)")

    actual = np.array([post["actual"] for post in posts])
    at_first = counts()
    assert at_first["alarms"] == (predicted == 2).sum()
    assert at_first["hits"] == ((predicted == 2) & (actual == "C")).sum()
    # Barely: another class gets the post if it has 0.05 of this one's probability.
    units = np.floor(probabilities * 10_000 + 1e-6)
    baselines = ((units[:, :2] + 500) / thresholds[:2]).max(-1)
    barely = (predicted == 2) & ((units[:, 2] - 500) / thresholds[2] < baselines)
    assert at_first["barely"] == barely.sum() > 0
    opened.set_value("#threshold", 0.3)
    assert counts()["alarms"] == (units[:, 2] >= 3000).sum() != at_first["alarms"]
    opened.find("#as-predicted").click()
    assert counts() == at_first and not opened.find("#as-predicted").is_displayed()
    # Another class begins with its predictions, too.
    opened.set_value("#threshold", 0.3)
    opened.set_value("#watched", 1)
    assert counts()["alarms"] == (predicted == 1).sum()


@pytest.mark.parametrize("watched", [1, 2])
def test_the_alarm_of_a_model_is_barely_one_near_its_threshold(open_page, watched):
    """The second class has it. The third is an alarm where it is the label, which the alarm of the second leaves."""
    names = ["A", "B", "C"]
    timelines = explained_timelines(3, 30, names=names)
    posts = [post for timeline in timelines for post in timeline["posts"]]
    probabilities = np.array([list(post["probabilities"].values()) for post in posts])
    labels = probabilities.argmax(-1)
    alarms = probabilities[:, 1] >= 0.3 if watched == 1 else labels == 2
    for post, label in zip(posts, labels, strict=True):
        post["label"] = names[label]
    opened = open_page(timelines, names, calibration={"alarm": {"label": 1, "threshold": 0.3}}, watched=watched)
    units = np.floor(probabilities * 10_000 + 1e-6)
    if watched == 1:
        barely = units[:, 1] - 500 < 3000
    else:
        barely = (units[:, :2] + 500 > units[:, 2:] - 500).any(-1)
    counts = opened.driver.execute_script("return addCounts(counts)")
    assert counts["alarms"] == alarms.sum() and counts["barely"] == (alarms & barely).sum() > 0
    assert opened.find("#threshold-number").get_property("value") == ("0.3" if watched == 1 else "")


def test_the_rule_has_all_digits_of_the_threshold_of_a_model(open_page):
    """With two classes the slider has fewer."""
    alarm = {"label": 1, "threshold": 0.77776}
    opened = open_page(explained_timelines(2, 10, names=NAMES), NAMES, calibration={"alarm": alarm}, watched=1)
    assert opened.find("#threshold-number").get_property("value") == "0.778"
    assert "at least 0.77776, the model's own threshold" in opened.text("#rule")
    opened.set_value("#threshold", 0.5)
    assert "at least 0.5." in opened.text("#rule")


def test_the_page_has_the_command_that_keeps_a_threshold(open_page):
    """It is shown while the slider is moved, and its words survive a shell."""
    names = ["calm", 'it\'s "bad" $now']
    opened = open_page(explained_timelines(2, 10, names=names), names, watched=1, model="my models/-a")
    assert not opened.find("#keep").is_displayed()
    opened.set_value("#threshold", 0.621)
    command = ["tempoformer", "threshold", "--model_name_or_path=my models/-a"]
    assert shlex.split(opened.text("#keep-command")) == [*command, f"--watch={names[1]}", "--threshold=0.621"]
    # From 0 on every post would be an alarm, which the command refuses.
    opened.set_value("#threshold", 0)
    assert not opened.find("#keep").is_displayed()
    opened.find("#as-predicted").click()
    assert not opened.find("#keep").is_displayed()
    # Without a folder there is nothing to change.
    opened = open_page(explained_timelines(2, 10, names=names), names, watched=1)
    opened.set_value("#threshold", 0.621)
    assert not opened.find("#keep").is_displayed()


def test_a_change_of_class_keeps_the_timeline_and_the_post(opened):
    opened.find_all("#timelines button")[3].click()
    opened.driver.execute_script("document.querySelectorAll('#posts .post')[11].click()")
    name = opened.text("#timeline-title")
    opened.set_value("#watched", 0)
    assert opened.text("#timeline-title") == name and chosen(opened) == 11
    (current,) = opened.find_all("#timelines button[aria-current='true']")
    assert current.is_displayed() and name in current.text


def test_outcomes_of_posts_follow_the_threshold(opened, timelines):
    opened.set_value("#threshold", 0.6)
    words = {None: ("no alarm", "alarm"), "Switch": ("miss", "hit"), "No-Switch": ("no alarm", "false alarm")}
    posts = shown_timeline(opened, timelines)["posts"]
    expected = [words[post["actual"]][is_alarm(post, 0.6)] for post in posts]
    assert opened.driver.execute_script("return shown().texts.map((_, post) => outcome(post))") == expected


def test_sort_and_search(opened, timelines):
    def listed():
        return opened.texts("#timelines strong")

    by_alarms = sorted(timelines, key=lambda timeline: -sum(map(is_alarm, timeline["posts"])))
    by_alarms = [timeline["id"] for timeline in by_alarms]
    assert listed() == by_alarms[:50]
    opened.find("#more").click()
    assert listed() == by_alarms
    opened.set_value("#sort", "length")
    lengths = {timeline["id"]: len(timeline["posts"]) for timeline in timelines}
    assert [lengths[name] for name in listed()] == sorted(lengths.values(), reverse=True)[: len(listed())]
    opened.set_value("#sort", "id")
    assert listed() == [f"person {number}" for number in range(60)]
    opened.set_value("#search", "HERON")
    assert listed() == ["person 7", "person 9"]
    opened.find_all("#timelines button")[1].click()
    assert opened.texts("#posts mark") == ["Heron", "heron"]
    opened.set_value("#search", "nothing of the kind")
    assert listed() == []


def test_only_mistakes(opened, timelines):
    """The filter leaves the posts whose prediction is not their label, and the timelines that have some."""
    wrong = {
        timeline["id"]: [post["actual"] not in (None, post["label"]) for post in timeline["posts"]]
        for timeline in timelines
    }
    timeline = shown_timeline(opened, timelines)
    opened.find("#only-mistakes").click()
    opened.set_value("#sort", "id")
    assert opened.texts("#timelines strong") == [name for name, posts in wrong.items() if any(posts)][:50]
    shown = "[...document.querySelectorAll('#posts .post')].map((post) => post.checkVisibility())"
    assert opened.driver.execute_script(f"return {shown}") == wrong[timeline["id"]]
    assert wrong[timeline["id"]][chosen(opened)]
    opened.find("#only-mistakes").click()
    assert all(opened.driver.execute_script(f"return {shown}"))
    assert len(opened.texts("#timelines strong")) == 50


def test_a_page_whose_predictions_are_right_or_unlabelled(open_page):
    """Without a label there is no filter. Without a mistake nothing is left."""
    assert not open_page(explained_timelines(3, 5, labelled=False), NAMES).find("#mistakes").is_displayed()
    right = explained_timelines(3, 5)
    for post in (post for timeline in right for post in timeline["posts"]):
        post["actual"] = post["label"]
    opened = open_page(right, NAMES)
    opened.find("#only-mistakes").click()
    assert opened.texts("#timelines strong") == []


def test_why(opened, timelines):
    """
    A click on a post lists its earlier posts with their effects, the strongest first. Two that are rounded to 0 are
    counted.
    """
    shown = shown_timeline(opened, timelines)
    opened.driver.execute_script("document.querySelectorAll('#posts .post')[20].click()")
    post = shown["posts"][20]
    assert opened.text("#why-text") == post["text"]
    names = [*(f"post {number + 1}" for number in post["stream"][:-1]), "what", "the", "being"]
    effects, log_odds = (post[measure]["Switch"] for measure in ("effects", "log_odds_effects"))
    moving = [number for number in range(len(names)) if abs(log_odds[number]) > 0.005]
    strongest = sorted(moving, key=lambda number: -abs(round(log_odds[number], 2)))
    for most in (6, len(moving)):
        *rows, last = table_rows(opened, "#why-table tbody")
        assert last[0].split()[0] == str(len(names) - len(moving)) and (most == 6 or len(rows) == len(moving))
        rows = rows[:most]
        for row, number in zip(rows, strongest[:most], strict=True):
            assert re.split(r"[ ,]", row[0])[: len(names[number].split())] == names[number].split()
            moved = [float(cell.replace("−", "-")) for cell in row[1:3]]
            assert moved[0] == pytest.approx(log_odds[number], abs=0.0051)
            assert moved[1] == pytest.approx(effects[number], abs=0.0006)
            looked = [float(cell.split()[0]) / 100 for cell in row[3:] if cell]
            weights = [layer[number] for layer in post["attention"]] if number < len(post["stream"]) else []
            assert looked == pytest.approx(weights, abs=0.0006)
        if most == 6:
            opened.find("#why-table button").click()


def test_why_has_no_number_where_a_rule_decides(opened, timelines):
    opened.driver.execute_script("document.querySelectorAll('#posts .post')[22].click()")
    effects = shown_timeline(opened, timelines)["posts"][22]["log_odds_effects"]["Switch"]
    opened.find("#why-table button").click()
    rows = table_rows(opened, "#why-table tbody")
    (place,) = [row for row in rows if row[0].startswith("being post 23")]
    assert "rule" in place[1] and not re.search("[0-9]", "".join(place[1:]))
    assert len(rows) >= sum(effect is None or abs(effect) > 0.005 for effect in effects)


def own_effect(post: dict) -> float:
    """Returns by how much the text of a post moves it, as the page has it."""
    return round(post["log_odds_effects"]["Switch"][-3], 2)


def test_it_opens_at_a_typical_alarm(opened, timelines):
    """Its text raised the probability, by the median of such alarms or next to it."""
    posts = shown_timeline(opened, timelines)["posts"]
    effects = {number: own_effect(post) for number, post in enumerate(posts) if is_alarm(post)}
    raised = {number: effect for number, effect in effects.items() if effect > 0}
    assert 0 < len(raised) < len(effects)
    middle = np.median(list(raised.values()))
    nearest = min(abs(effect - middle) for effect in raised.values())
    assert abs(effects[chosen(opened)] - middle) == pytest.approx(nearest)


def test_it_opens_at_a_timeline_with_a_typical_alarm(open_page):
    """The texts of all alarms lower the probability in the timeline with most alarms."""
    timelines = explained_timelines(4, 20)
    most = max(timelines, key=lambda timeline: sum(map(is_alarm, timeline["posts"])))
    for post in most["posts"]:
        post["log_odds_effects"]["Switch"][-3] = -1.0
    opened = open_page(timelines, NAMES)
    shown = shown_timeline(opened, timelines)
    assert shown is not most and own_effect(shown["posts"][chosen(opened)]) > 0


def test_silences_are_short_and_the_rest_is_to_scale(opened, timelines):
    """Silences of weeks between hours take at most a quarter of the axis."""
    times = [post["timestamp"] for post in shown_timeline(opened, timelines)["posts"]]
    gaps, shown = np.diff(times), np.diff(opened.driver.execute_script("return positions"))
    is_silent = np.arange(len(gaps)) % 10 == 8
    assert gaps[is_silent].sum() > 0.9 * gaps.sum() and 0 < shown[is_silent].sum() <= 0.2501 * shown.sum()
    assert shown[~is_silent] == pytest.approx(gaps[~is_silent], abs=0.002)


def test_seconds_since_a_start_are_no_dates(open_page):
    timelines = explained_timelines(1, 9)
    for number, post in enumerate(timelines[0]["posts"]):
        post["timestamp"] = 3599.0 + 61 * number
    opened = open_page(timelines, NAMES)
    assert "1970" not in opened.text("main")


def test_a_chart_is_saved_as_svg(opened, tmp_path):
    """The file contains no CSS variables of the page."""
    opened.save_into(tmp_path)
    for number, button in enumerate(("save-timeline", "save-why"), 1):
        opened.find(f"#{button}").click()
        opened.wait_for(lambda number=number: len(list(tmp_path.glob("*.svg"))) == number)
    for path in tmp_path.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert ElementTree.fromstring(text).tag.endswith("svg") and "var(" not in text


def test_click_in_the_chart(opened, timelines):
    """Posts are at equal distances if they are shown by position. A click on the middle of a mark selects it."""
    opened.find('#axis [value="position"]').click()
    posts = shown_timeline(opened, timelines)["posts"]
    opened.wait_for(lambda: len(opened.find_all(MARKS)) == len(posts))
    script = """
        const box = document.querySelectorAll(arguments[0])[arguments[1]].getBoundingClientRect();
        const at = { clientX: box.left + box.width / 2, clientY: box.top, bubbles: true };
        for (const kind of ["pointermove", "click"]) {
            document.querySelector("#timeline_chart svg").dispatchEvent(new MouseEvent(kind, at));
        }
        return document.getElementById("tip").textContent;
    """
    for number in (0, 17):
        assert posts[number]["text"] in opened.driver.execute_script(script, MARKS, number)
        assert chosen(opened) == number


def test_keys(opened, timelines):
    def keys(*names: str, at: str | None = None) -> dict:
        """Presses keys at the focus or at an element, and returns the attributes of the focused element."""
        if at:
            opened.driver.execute_script("document.querySelector(arguments[0]).focus()", at)
        for name in names:
            opened.driver.switch_to.active_element.send_keys(getattr(opened.keys, name))
        return opened.driver.execute_script("return document.activeElement.dataset")

    posts = shown_timeline(opened, timelines)["posts"]
    keys("HOME", "RIGHT", "RIGHT", "LEFT", "ENTER", at="#chart")
    assert chosen(opened) == 1
    keys("END", "RIGHT", at="#chart")
    assert posts[-1]["text"] in opened.text("#tip")
    # Tab reaches one post of the list, and arrow keys reach the others.
    (reached,) = opened.find_all('#posts .post[tabindex="0"]')
    assert reached.get_attribute("data-post") == "1"
    assert keys("DOWN", at='#posts .post[tabindex="0"]')["post"] == "2"
    second = opened.find_all("#timelines button")[1].get_attribute("data-timeline")
    assert keys("DOWN", at="#timelines button")["timeline"] == second
    keys("ENTER")
    assert opened.text("#timeline-title") == timelines[int(second)]["id"]


def test_a_post_that_is_a_script_is_a_text(opened, timelines):
    opened.set_value("#search", "heron")
    (shown,) = (button for button in opened.find_all("#timelines button") if "person 7" in button.text)
    shown.click()
    assert ATTACK in opened.texts("#posts .post-text")[3]
    opened.driver.execute_script("document.querySelectorAll('#posts .post')[3].click()")
    assert ATTACK in opened.text("#why-text")
    assert opened.driver.title == "Timelines" and opened.find_all("img") == []


@pytest.mark.parametrize("settings", [{"timed": False}, {"labelled": False}, {"names": ["A", "B", "C"]}])
def test_other_posts(open_page, settings):
    """The timelines have no times, no labels, or three classes."""
    names = settings.get("names", NAMES)
    timelines = explained_timelines(3, 12, **settings)
    opened = open_page(timelines, names)
    opened.wait_for(lambda: opened.find_all(".chart .mark-line path"))
    rows = table_rows(opened, "#scores tbody")
    assert ("precision" in [row[0] for row in rows]) == settings.get("labelled", True)
    assert opened.find("#axis").is_displayed() == settings.get("timed", True)
    assert len(opened.find_all("#watched option")) == len(names)
    opened.set_value("#watched", 0)
    alarms = sum(post["label"] == names[0] for timeline in timelines for post in timeline["posts"])
    assert opened.driver.execute_script("return addCounts(counts)")["alarms"] == alarms


def test_posts_of_other_speakers_give_no_alarm(open_page):
    timelines = explained_timelines(5, 30)
    posts = [post for timeline in timelines for post in timeline["posts"]]
    for number, post in enumerate(posts):
        post["speaker"] = "client" if number % 3 else "therapist"
    opened = open_page(timelines, NAMES, watched_speakers=["client"])
    alarms = sum(post["speaker"] == "client" and is_alarm(post) for post in posts)
    assert opened.driver.execute_script("return addCounts(counts)")["alarms"] == alarms > 0


def test_a_post_says_from_which_state_it_comes(open_page):
    """One person's post comes from that person's last one. A strip is fainter where the model is less sure."""
    names = ["calm", "low", "tense"]
    (timeline,) = timelines = with_states(explained_timelines(1, 8, timed=False), names)
    posts = timeline["posts"]
    for number, post in enumerate(posts):
        post["speaker"] = ("ann", "bob")[number % 2]
    opened = open_page(timelines, NAMES)
    opened.driver.execute_script("document.querySelectorAll('.post')[4].click()")

    def words_of(post: dict) -> str:
        return f"{post['state']['label']} {100 * post['state']['score']:.0f} %"

    text = opened.text("#why-state")
    assert words_of(posts[4]) in text.partition("(")[0] and words_of(posts[2]) in text.partition("(")[2]
    assert "same speaker" in text and words_of(posts[5]) in opened.text(".post[data-post='5'] .post-head")
    strips = opened.find_all("#timeline_chart .mark-rect.role-mark path[opacity]")
    colours = {name: f"var(--group-{number})" for number, name in enumerate(names)}
    assert [strip.get_attribute("fill") for strip in strips] == [colours[post["state"]["label"]] for post in posts]
    sure = sorted(range(len(posts)), key=lambda number: posts[number]["state"]["score"])
    opacities = [float(strips[number].get_attribute("opacity")) for number in sure]
    assert opacities == sorted(opacities) and opacities[0] < opacities[-1]


def test_numbers_have_a_line_and_a_band(open_page):
    opened = open_page(with_states(explained_timelines(1, 8), ["-2", "0", "2"]), NAMES)
    assert "±" in opened.text("#why-state")
    assert opened.find_all("#timeline_chart .mark-area path")
    assert not open_page(explained_timelines(1, 8), NAMES).find("#why-state").is_displayed()
