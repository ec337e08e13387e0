"""Checks the content of the page of timelines without a browser, and the scripts that write it."""

import random
import re
import shutil
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from helpers import MODELS, data_of, read_json, save_encoder, tiny_reader, write_posts
from stand_ins import NAMES, explained_timelines, page_of, with_states
from transformers import AutoConfig, pipeline

import run_glue_style
from modeling_tempoformer.commands import threshold
from modeling_tempoformer.commands.view import main as write_page_of
from modeling_tempoformer.common.files import write_json
from modeling_tempoformer.common.silences import find_silences
from modeling_tempoformer.evaluation.prediction_table import read_predictions
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.view import show
from modeling_tempoformer.view.timeline_page import (
    first_thresholds,
    floor_units,
    pack_timeline,
    rarest_class,
)
from modeling_tempoformer.view.timelines import to_timeline


ATTACK = "</script><script>document.title='x'</script><img src=x onerror=\"document.title='y'\">\u2028<!--<script>"


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> str:
    """Returns the folder of a tiny model whose window is four posts."""
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: label for label, name in enumerate(NAMES)}}
    folder = tmp_path_factory.mktemp("saved")
    tiny_reader(folder, num_labels=2, timed=True, **labels)
    return str(folder)


def test_2000_posts_take_less_than_5_megabytes():
    """Posts have 150 words, and streams 20 posts. The library of charts takes less than 1 megabyte."""
    timelines = explained_timelines(8, 50, words=150)
    num_posts = sum(len(timeline["posts"]) for timeline in timelines)
    assert len(page_of(timelines, NAMES).encode()) < 1_000_000 + 2000 * num_posts


def test_posts_and_names_are_data():
    """No text can end its element. Each text is unchanged, and a browser loads nothing."""
    timelines = explained_timelines(1, 3, names=[ATTACK, "B"])
    timelines[0]["id"] = timelines[0]["posts"][0]["text"] = ATTACK
    page, harmless = page_of(timelines, [ATTACK, "B"], title=ATTACK), page_of([], NAMES)
    for dangerous in ("</script", "<script", "<img", "<!--"):
        assert page.count(dangerous) == harmless.count(dangerous)
    data = data_of(page)
    assert data["names"][0] == data["timelines"][0]["id"] == data["timelines"][0]["texts"][0] == ATTACK
    assert "default-src 'none'" in page


def test_posts_come_in_order_of_time():
    """Indices of posts in the input become indices of posts on the page."""
    posts = explained_timelines(1, 6, window=2)[0]["posts"][:4]
    times = [30, 10, 20, 10]
    for post, time, stream in zip(posts, times, ([2, 0], [1], [3, 2], [1, 3]), strict=True):
        effects = {name: [0.25 * (label + 1)] * (len(stream) + 2) for label, name in enumerate(NAMES)}
        post.update(timestamp=float(time), stream=stream, effects=effects, log_odds_effects=effects)
    packed = pack_timeline(to_timeline("a", posts, NAMES), NAMES)
    assert packed["times"] == [10, 10, 20, 30]
    assert packed["texts"] == [posts[number]["text"] for number in (1, 3, 2, 0)]
    assert packed["stream"] == [[0], [0, 1], [1, 2], [2, 3]]
    assert packed["effects"][1] == [[5000] * 3, [5000] * 4, [5000] * 4, [5000] * 4]
    assert packed["log_odds_effects"][0] == [[25] * 3, [25] * 4, [25] * 4, [25] * 4]


def test_a_silence_is_ten_times_the_usual_time():
    """The gaps are 0, 5, 5, 50 and 51. The median without 0 is 27.5, and without the last gap it is 5."""
    assert find_silences([0, 0, 5, 10, 60]) == (50, [])
    assert find_silences([0, 0, 5, 10, 15, 66]) == (50, [5])
    assert find_silences([3, 3]) == (None, [])


def test_a_rounded_probability_reaches_the_same_thresholds():
    chance = random.Random(0)
    for probability in (chance.random() for _ in range(2000)):
        assert floor_units(probability) == int(probability * 10_000)
    assert [floor_units(units / 10_000) for units in range(10_001)] == list(range(10_001))


def test_the_watched_class_is_the_rarest():
    names = ["A", "B", "C"]
    packed = [pack_timeline(to_timeline("a", explained_timelines(1, 9, names=names)[0]["posts"], names), names)]
    packed[0]["actual"] = [0, 0, 0, 0, 2, 1, 1, 1, -1]
    assert rarest_class(packed, 3, None) == 2
    # The class that is no change is not watched, however rare it is.
    assert rarest_class(packed, 3, no_change=2) == 1
    # With labels of a single class, the other classes cannot be compared.
    packed[0]["actual"] = [0] * 9
    packed[0]["probabilities"] = [[5000] * 9, [2000] * 9, [3000] * 9]
    assert rarest_class(packed, 3, None) == 1


def test_states_go_from_the_post_that_each_is_compared_with():
    """Two people take turns, and one post is by nobody who is known. NumPy gives the same spreads."""
    names = ["-1", "0.5", "4"]
    (timeline,) = with_states(explained_timelines(1, 7), names)
    for post, speaker in zip(timeline["posts"], ["ann", "bob", "ann", "", "bob"], strict=True):
        post["speaker"] = speaker
    read = to_timeline("a", timeline["posts"], NAMES)
    read.states = ["4", "", "0.7", "-1", ""]
    states = pack_timeline(read, NAMES)["states"]
    assert states["before"] == [-1, -1, 0, 2, 1] and states["given"] == read.states
    values = np.array(names, dtype=float)
    for number, post in enumerate(timeline["posts"]):
        shares = np.array(list(post["state"]["probabilities"].values()))
        assert states["likeliest"][number] == shares.argmax()
        assert states["sure"][number] == int(shares.max() * 10_000)
        mean = (shares * values).sum()
        assert states["mean"][number] == pytest.approx(mean, rel=1e-3)
        assert states["spread"][number] == pytest.approx((shares * (values - mean) ** 2).sum() ** 0.5, rel=1e-3)


def test_eight_states_at_most_have_colours():
    names = [f"mood {number}" for number in range(12)]
    few, many = with_states(explained_timelines(2, 20), names[:8]), with_states(explained_timelines(9, 40), names)
    assert data_of(page_of(few, NAMES))["states"]["coloured"] == names[:8]
    data = data_of(page_of(many, NAMES))
    counts = Counter(state for timeline in data["timelines"] for state in timeline["states"]["likeliest"])
    coloured = [names.index(name) for name in data["states"]["coloured"]]
    assert len(coloured) == 7 and coloured == sorted(coloured)
    assert min(counts[state] for state in coloured) >= max(counts[state] for state in set(counts) - set(coloured))
    assert data_of(page_of(explained_timelines(1, 5), NAMES))["states"] is None


def test_the_first_threshold_is_the_calibrated_one():
    """With two classes the second has the largest p / t if p is above its share of the sum of both thresholds."""
    assert first_thresholds({}, 2) == [5000, 5000]
    assert first_thresholds({"thresholds": [0.6, 0.2]}, 2) == [7500, 2500]
    assert first_thresholds({"thresholds": [0.2, 0.3, 0.5]}, 3) == [None] * 3
    # An alarm's threshold comes first. The other one of two classes keeps its own.
    for thresholds, other in ((None, 5000), ([0.6, 0.2], 2500)):
        alarm = {"thresholds": thresholds, "alarm": {"label": 0, "threshold": 0.7}}
        assert first_thresholds(alarm, 2) == pytest.approx([7000, other])
    assert first_thresholds({"alarm": {"label": 1, "threshold": 0.7}}, 3) == [None, 7000, None]


def test_all_pages_of_a_model_watch_its_class(saved, tmp_path):
    """A model without the field watches the rarest class of each page. An option wins over both."""
    rare, frequent = synthetic_posts(3, seed=0, posts_per_timeline=5), synthetic_posts(3, seed=1, posts_per_timeline=5)
    pages = {"Switch": [dict(post) for post in rare], "No-Switch": [dict(post) for post in frequent]}
    for name, posts in pages.items():
        for number, post in enumerate(posts):
            post["label"] = name if number == 4 else NAMES[1 - NAMES.index(name)]
        assert NAMES[data_of(write_view(saved, tmp_path, posts))["watched"]] == name
    model = Path(shutil.copytree(saved, tmp_path / "model"))
    config = AutoConfig.from_pretrained(model)
    config.watched = 1
    config.save_pretrained(model)
    for posts in pages.values():
        assert data_of(write_view(str(model), tmp_path, posts))["watched"] == 1
        assert data_of(write_view(str(model), tmp_path, posts, "--watch", "No-Switch"))["watched"] == 0
    with pytest.raises(ValueError, match="--watch must be one of No-Switch, Switch, got 'switch'"):
        write_view(str(model), tmp_path, posts, "--watch", "switch")


def test_show_in_a_notebook(saved):
    """A timeline and a list of timelines from `explain` are shown in a frame."""
    pipe = pipeline("stream-classification", model=saved, trust_remote_code=True)
    timelines = [{"text": [f"post {post}" for post in range(6)], "timestamp": list(range(6))} for _ in range(2)]
    for given, number in ((timelines[0], 1), (timelines, 2)):
        shown = show(pipe.explain(given))
        frame = re.fullmatch(r'<iframe [^>]*srcdoc="([^"]*)"[^>]*></iframe>', shown._repr_html_())
        assert unescape(frame[1]) == shown.html
        packed = data_of(shown.html)["timelines"]
        assert [timeline["texts"] for timeline in packed] == [timelines[0]["text"]] * number
    # The page has the class to watch and the alarm of the model.
    for label in (0, 1):
        pipe.model.config.watched = label
        pipe.model.config.calibration = {"alarm": {"label": label, "threshold": 0.625}}
        data = data_of(show(pipe.explain(timelines)).html)
        assert data["watched"] == label and data["thresholds"][label] == 6250
        assert "at least 0.625, the model's own threshold" in data["rules"][label]
        assert f"predicts as {NAMES[1 - label]} (from 0.5 on)" in data["rules"][1 - label]
        for timeline, posts in zip(data["timelines"], pipe.explain(timelines), strict=True):
            assert timeline["alarms"][label] == [post["alarm"] for post in posts]
            assert timeline["alarms"][1 - label] == [post["label"] == NAMES[1 - label] for post in posts]
    # Of two classes the label has such a number, too, which is no alarm.
    pipe.model.config.calibration = None
    rules = data_of(show(pipe.explain(timelines)).html)["rules"]
    assert all(f"predicts as {name} (from 0.5 on)" in rule for name, rule in zip(NAMES, rules, strict=True))


def write_view(saved: str, folder: Path, posts: list[dict], *more: str) -> str:
    """Returns the page that the script writes."""
    file, output = write_posts(folder / "posts.csv", posts), folder / "timelines.html"
    given = ["--model_name_or_path", saved, "--test_file", file, "--output", str(output)]
    write_page_of([*given, *more])
    return output.read_text(encoding="utf-8")


def test_the_command_of_the_page_sets_the_threshold_of_the_model(saved, tmp_path, monkeypatch):
    """Other fields of the configuration stay, the card says it, and the page of the model has it."""
    model = Path(shutil.copytree(saved, tmp_path / "model"))
    (model / "README.md").write_text("# a\n- Class to watch: No-Switch; x\n- Alarms: y\n- Encoder: z\n")
    before, weights = read_json(model / "config.json"), (model / "model.safetensors").stat().st_mtime_ns
    posts = list(synthetic_posts(3, seed=0, posts_per_timeline=5))
    monkeypatch.chdir(tmp_path)
    threshold.main(["--model_name_or_path", "model", "--watch", "Switch", "--threshold", "0.625"])
    after = read_json(model / "config.json")
    assert (after.pop("watched"), after.pop("calibration")) == (1, {"alarm": {"label": 1, "threshold": 0.625}})
    assert after == {name: value for name, value in before.items() if name not in ("watched", "calibration")}
    assert (model / "model.safetensors").stat().st_mtime_ns == weights
    first, watch, alarms, last = (model / "README.md").read_text().splitlines()
    assert (first, last) == ("# a", "- Encoder: z") and "Switch" in watch and "0.625" in alarms
    data = data_of(write_view("model", tmp_path, posts))
    assert (data["watched"], data["thresholds"], data["model"]) == (1, [5000, 6250], "model")
    for timeline in data["timelines"]:
        shares = timeline["probabilities"][1]
        assert timeline["alarms"][1] == [share >= 6250 for share in shares]
        assert timeline["predicted"] == [int(share >= 5000) for share in shares]
    # A page that is sent to others names no folder of this machine.
    assert data_of(write_view(str(model), tmp_path, posts))["model"] == "model"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"watch": "switch"}, "--watch must be one of No-Switch, Switch"),
        ({"threshold": "1.5"}, "--threshold must be more than 0 and at most 1, got 1.5"),
        ({"threshold": "nan"}, "--threshold must be more than 0"),
        # From 0 on every post would be an alarm, also one that cannot be a change.
        ({"threshold": "0"}, "--threshold must be more than 0 and at most 1, got 0"),
        ({"model_name_or_path": "me/my-model"}, "me/my-model is no folder"),
    ],
)
def test_a_threshold_that_cannot_be_set_is_refused(saved, changed, problem):
    given = {"model_name_or_path": saved, "watch": "Switch", "threshold": "0.5", **changed}
    before = read_json(Path(saved) / "config.json")
    with pytest.raises(ValueError, match=problem):
        threshold.main([f"--{name}={value}" for name, value in given.items()])
    assert read_json(Path(saved) / "config.json") == before


def test_the_script_writes_every_post(saved, tmp_path):
    posts = list(synthetic_posts(3, seed=0, posts_per_timeline=5))
    posts[4]["label"] = ""
    timelines = data_of(write_view(saved, tmp_path, posts))["timelines"]
    assert [timeline["id"] for timeline in timelines] == list(dict.fromkeys(post["timeline_id"] for post in posts))
    shown = [pair for timeline in timelines for pair in zip(timeline["texts"], timeline["actual"], strict=True)]
    in_order = sorted(posts, key=lambda post: (post["timeline_id"], post["timestamp"]))
    labels = {"": -1, **{name: label for label, name in enumerate(NAMES)}}
    assert shown == [(post["text"], labels[post["label"]]) for post in in_order]


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_labels_that_a_model_derives_are_on_the_page(tmp_path, kind):
    """A plain loop gives the same. With fewer timelines than the file has, they are from the whole of it."""
    model, tokenizer = tiny_reader(tmp_path / "model", **kind, num_labels=2, change_step=2.0)
    moods = [[1, 2, -1], [0, 0, 2], [2, 1, 0], [0, 1, 2]]
    posts = [
        {"timeline_id": f"{number}", "timestamp": 60 * line, "text": "the plane", "state": mood}
        for number, grades in enumerate(moods)
        for line, mood in enumerate(grades)
    ]
    timelines = data_of(write_view(str(tmp_path / "model"), tmp_path, posts))["timelines"]
    derived = [[-1, *(int(abs(a - b) >= 2) for a, b in zip(grades, grades[1:], strict=False))] for grades in moods]
    assert [timeline["actual"] for timeline in timelines] == derived
    some = data_of(write_view(str(tmp_path / "model"), tmp_path, posts, "--max_predict_samples", "2"))["timelines"]
    assert [timeline["id"] for timeline in some] == ["0", "2"]


def test_alarms_of_some_speakers_only(saved, tmp_path):
    posts = list(synthetic_posts(2, seed=0, posts_per_timeline=4))
    for number, post in enumerate(posts):
        post["speaker"] = ("client", "therapist")[number % 2]
    page = write_view(saved, tmp_path, posts, "--watched_speakers", " client\u00ad")
    for timeline in data_of(page)["timelines"]:
        assert timeline["heeded"] == [speaker == "client" for speaker in timeline["speakers"]]
        assert set(timeline["heeded"]) == {True, False}
        decided = zip(timeline["predicted"], timeline["heeded"], strict=True)
        assert timeline["alarms"][1] == [label == 1 and heeded for label, heeded in decided]
    with pytest.raises(ValueError, match="Client has no post; the speakers are: client, therapist"):
        write_view(saved, tmp_path, posts, "--watched_speakers", "Client")


@pytest.mark.parametrize("calibration", [{"alarm": {"label": 1, "threshold": 0.51}}, {"thresholds": [0.49, 0.51]}])
def test_the_page_of_a_run_has_the_alarms_of_its_predictions(saved, tmp_path, calibration):
    model = Path(shutil.copytree(saved, tmp_path / "model"))
    config = AutoConfig.from_pretrained(model)
    config.watched, config.calibration = 1, calibration
    config.save_pretrained(model)
    posts = list(synthetic_posts(6, seed=0, posts_per_timeline=9))
    given = ["--model_name_or_path", str(model), "--test_file", write_posts(tmp_path / "posts.csv", posts)]
    run_glue_style.main([*given, "--do_predict", "--view", "--output_dir", str(tmp_path / "out")])
    table = read_predictions(tmp_path / "out").sort_values("time", kind="stable")
    data = data_of((tmp_path / "out" / "_timelines.html").read_text(encoding="utf-8"))
    for timeline in data["timelines"]:
        rows = table[table["timeline_id"] == timeline["id"]]
        assert timeline["alarms"][1] == rows["alarm"].tolist()
        assert [NAMES[label] for label in timeline["predicted"]] == rows["prediction"].tolist()
    assert {alarm for timeline in data["timelines"] for alarm in timeline["alarms"][1]} == {True, False}


def test_the_page_says_how_good_the_model_was_in_its_own_test(saved, tmp_path):
    """The scores are not of the shown posts, which may have no labels."""
    posts = [{**post, "label": ""} for post in synthetic_posts(3, seed=0, posts_per_timeline=5)]
    model = shutil.copytree(saved, tmp_path / "model")
    assert "0.829" not in write_view(str(model), tmp_path, posts).partition("<main")[0]
    test = {"macro_f1": 0.829, "macro_f1_interval": [0.4, 0.95], "labelled_posts": 60, "timelines": 9}
    baseline = {"macro_f1": 0.8, "difference": 0.029, "difference_interval": [-0.2, 0.3], "features": ["position"]}
    write_json(model / "all_results.json", {"test": {**test, "compared_with": {"position_and_time": baseline}}})
    assert "0.829" in write_view(str(model), tmp_path, posts).partition("<main")[0]
    # With --view there is a page beside the predictions. Without it the page of earlier predictions is removed.
    given = ["--model_name_or_path", str(model), "--test_file", str(tmp_path / "posts.csv"), "--do_predict"]
    given += ["--output_dir", str(tmp_path / "out")]
    run_glue_style.main([*given, "--view"])
    beside = tmp_path / "out" / "_timelines.html"
    page = beside.read_text(encoding="utf-8")
    assert "0.829" in page and len(data_of(page)["timelines"]) == 3
    run_glue_style.main(given)
    assert not beside.exists()


def test_refused(saved, tmp_path, monkeypatch):
    """The error is one sentence, and comes before any work."""
    file = write_posts(tmp_path / "posts.csv", list(synthetic_posts(2, seed=0, posts_per_timeline=5)))
    given = ["--model_name_or_path", saved, "--test_file", file]
    in_training = [*given, "--output_dir", str(tmp_path / "out"), "--view"]
    with pytest.raises(ValueError, match="not a TempoFormer"):
        write_page_of(["--model_name_or_path", save_encoder(tmp_path / "encoder"), "--test_file", file])
    with pytest.raises(ValueError, match="--do_predict"):
        run_glue_style.main([*in_training, "--do_eval"])
    with pytest.raises(ValueError, match="no post"):
        show([])
    # Stands in for a missing extra
    monkeypatch.setitem(sys.modules, "altair", None)
    for call in (
        lambda: write_page_of(given),
        lambda: run_glue_style.main([*in_training, "--do_predict"]),
        lambda: show([{}]),
    ):
        with pytest.raises(ValueError, match=r'pip install "modeling-tempoformer\[view\]"'):
            call()
    assert not (tmp_path / "out").exists()
