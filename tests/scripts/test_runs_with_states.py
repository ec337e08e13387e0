"""Checks run_glue_style.py on posts that have states and speakers: what is derived, learned, said and never read."""

import random
from pathlib import Path

import pytest
from helpers import ROOT, read_json, read_table, with_other_ids, write_posts

from modeling_tempoformer.view.timelines import load_pipeline
from run_glue_style import main


NAMES = {"No-Change", "Change"}
PIPELINE_KEYS = ("text", "timestamp", "speaker", "state")


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def scenes(number: bool) -> list[dict]:
    """Returns scenes of three speakers, whose states, classes or numbers, are in their words."""
    chance, posts = random.Random(0), []
    for scene in range(30):
        for line in range(8):
            mood = chance.choice([-2, 0, 1])
            text = {-2: "sad", 0: "the plane", 1: "glad"}[mood]
            state = str(mood) if number else {-2: "sad", 0: "calm", 1: "glad"}[mood]
            post = {"timeline_id": f"scene {scene}", "timestamp": 1.7e9 + 60 * line, "text": text}
            posts.append({**post, "speaker": chance.choice("abc"), "state": state})
    return posts


def derived(posts: list[dict], step: float) -> list[str]:
    """Returns the labels that follow from the states, by a search backwards for the same speaker's post."""
    labels = []
    for row, post in enumerate(posts):
        kept = [
            earlier["state"]
            for earlier in posts[:row]
            if (earlier["timeline_id"], earlier["speaker"]) == (post["timeline_id"], post["speaker"])
        ]
        if not kept:
            labels.append("")
        elif step:
            labels.append("Change" if abs(float(kept[-1]) - float(post["state"])) >= step else "No-Change")
        else:
            labels.append("Change" if kept[-1] != post["state"] else "No-Change")
    return labels


def train(folder: Path, encoder: str, posts: list[dict], *arguments: str) -> list[dict[str, str]]:
    file = write_posts(folder.parent / "posts.csv", posts)
    steps = ["--do_train", "--do_eval", "--do_predict", "--report_to", "none", "--train_file", file]
    settings = ["--num_train_epochs", "1", "--window", "3", "--output_dir", str(folder)]
    main(["--model_name_or_path", encoder, *steps, *settings, *arguments])
    return read_table(folder / "_predictions.csv")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "step"), [(False, 0), (True, 2)])
def test_changes_are_derived_and_no_state_is_read_in_prediction(tmp_path, encoder, number, step):
    posts = scenes(number)
    options = ["--change_step", str(step)] if step else []
    rows = train(tmp_path / "out", encoder, posts, *options)
    expected = dict(enumerate(derived(posts, step)))
    assert all(row["label"] == expected[int(row["post_id"])] for row in rows)
    config = read_json(tmp_path / "out" / "config.json")
    assert config["states"] == (["-2", "0", "1"] if number else ["calm", "glad", "sad"])
    assert config.get("state_values") == ([-2.0, 0.0, 1.0] if number else None)
    assert config["reads_speakers"] and config["first_posts"] == "speaker"
    # A speaker's first post is never predicted as a change.
    assert all(row["prediction"] == "No-Change" for row in rows if not row["label"])
    steps = {row["timeline_id"] for row in rows}
    columns = ["timeline_id", "timestamp", "text", "speaker"]
    new = write_posts(tmp_path / "new.csv", [post for post in posts if post["timeline_id"] in steps], columns)
    predict = ["--do_predict", "--test_file", new, "--output_dir", str(tmp_path / "new"), "--report_to", "none"]
    main(["--model_name_or_path", str(tmp_path / "out"), *predict])
    for before, after in zip(rows, read_table(tmp_path / "new" / "_predictions.csv"), strict=True):
        for name in NAMES:
            assert float(after[f"probability_{name}"]) == pytest.approx(float(before[f"probability_{name}"]), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_a_saved_model_derives_labels_by_its_own_step(tmp_path, encoder, model_type):
    train(tmp_path / "out", encoder, scenes(number=True), "--change_step", "2", "--model_type", model_type)
    new = with_other_ids(scenes(number=True), "new")
    test = [
        "--do_predict",
        "--test_file",
        write_posts(tmp_path / "new.csv", new),
        "--output_dir",
        str(tmp_path / "new"),
    ]
    saved = ["--model_name_or_path", str(tmp_path / "out"), "--report_to", "none"]
    main([*saved, *test, "--change_step", "2"])
    assert [row["label"] for row in read_table(tmp_path / "new" / "_predictions.csv")] == derived(new, 2)
    with pytest.raises(ValueError, match="--change_step 1.0.*2"):
        main([*saved, *test, "--change_step", "1"])


@pytest.mark.slow
@pytest.mark.parametrize("is_paper_s", [False, True])
def test_a_model_that_learns_no_states_says_so_and_learns_their_changes(tmp_path, encoder, caplog, is_paper_s):
    posts = scenes(number=False)
    kind = ["--model_type", "tempoformer"] if is_paper_s else ["--freeze_encoder", "false"]
    rows = train(tmp_path / "out", encoder, posts, *kind)
    expected = dict(enumerate(derived(posts, 0)))
    assert all(row["label"] == expected[int(row["post_id"])] for row in rows)
    assert any("not learned" in entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING")
    assert read_json(tmp_path / "out" / "config.json").get("states") is None


def test_numbers_without_a_step_are_refused(tmp_path, encoder):
    with pytest.raises(ValueError, match="change_step"):
        train(tmp_path / "out", encoder, scenes(number=True))
    with pytest.raises(ValueError, match="change_step"):
        train(tmp_path / "out", encoder, scenes(number=False), "--change_step", "2")


@pytest.mark.slow
def test_a_stream_says_that_it_learns_neither_speakers_nor_states(tmp_path, encoder, caplog):
    posts = [{**post, "label": label} for post, label in zip(scenes(False), derived(scenes(False), 0), strict=True)]
    # A stream is not divided.
    others = {
        part: write_posts(tmp_path / f"{part}.csv", with_other_ids(posts, part)) for part in ("validation", "test")
    }
    files = [f"--{part}_file={path}" for part, path in others.items()]
    train(tmp_path / "out", encoder, posts, "--freeze_encoder=false", "--streaming", "--max_steps=2", *files)
    assert any("stream are not learned" in entry.getMessage() for entry in caplog.records)
    config = read_json(tmp_path / "out" / "config.json")
    assert config.get("states") is None and not config.get("reads_speakers")


@pytest.mark.slow
def test_known_states_of_earlier_posts_are_read_and_scored_beside_none(tmp_path, encoder):
    # Only every other text tells the state.
    posts = [
        {**post, "text": "the plane" if row % 2 else post["text"]} for row, post in enumerate(scenes(number=True))
    ]
    rows = train(tmp_path / "out", encoder, posts, "--change_step", "2", "--known_states")
    results = read_json(tmp_path / "out" / "all_results.json")["test"]["compared_with"]
    assert {"history", "without_known_states", "words", "position_and_time"} <= set(results)
    steps = {row["timeline_id"] for row in rows}
    saved = ["--do_predict", "--report_to", "none", "--model_name_or_path", str(tmp_path / "out")]

    def predict(name: str, posts: list[dict]) -> list[float]:
        file = write_posts(tmp_path / f"{name}.csv", [post for post in posts if post["timeline_id"] in steps])
        main([*saved, "--test_file", file, "--output_dir", str(tmp_path / name)])
        table = read_table(tmp_path / name / "_predictions.csv")
        return [float(row["probability_Change"]) for row in table]

    before = [float(row["probability_Change"]) for row in rows]
    assert predict("again", posts) == pytest.approx(before, abs=1e-5)
    unknown = predict("unknown", [{**post, "state": ""} for post in posts])
    assert max(abs(one - other) for one, other in zip(unknown, before, strict=True)) > 0.01
    pipe = load_pipeline(str(tmp_path / "out"))
    scene = [post for post in posts if post["timeline_id"] == next(iter(steps))]
    answers = pipe({name: [post[name] for post in scene] for name in PIPELINE_KEYS})
    given = [float(row["probability_Change"]) for row in rows if row["timeline_id"] == scene[0]["timeline_id"]]
    assert [answer["watched_probability"] for answer in answers] == pytest.approx(given, abs=1e-5)
    with pytest.raises(ValueError, match="--known_states"):
        labelled = [{**post, "label": "ab"[row % 2], "state": ""} for row, post in enumerate(posts)]
        train(tmp_path / "no", encoder, labelled, "--known_states")
