"""Checks a run that splits by date: its test is later than all of its training, and the report says so."""

from pathlib import Path

import pandas as pd
import pytest
from helpers import NAMES, ROOT, read_json, write_posts

from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.view.timelines import load_pipeline
from run_glue_style import main


def overlapping_posts() -> list[dict]:
    """Returns twelve timelines of five posts. Each begins a day after the one before it, and has some weeks."""
    posts = list(synthetic_posts(12, seed=0, posts_per_timeline=5))
    first = [post["timestamp"] for post in posts[::5]]
    begin = 1_700_000_000
    return [
        {**post, "timestamp": begin + 86_400 * (row // 5) + post["timestamp"] - first[row // 5]}
        for row, post in enumerate(posts)
    ]


POSTS = overlapping_posts()
PROBABILITIES = [f"probability_{name}" for name in NAMES]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def predictions(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "_predictions.parquet")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_a_run_that_is_split_by_date(tmp_path, encoder, model_type, capsys):
    """Without a frozen encoder (`tempoformer`) there is a validation part of its own, between the other two."""
    posts = write_posts(tmp_path / "posts.csv", POSTS)
    settings = ["--model_name_or_path", encoder, "--model_type", model_type, "--window", "3", "--max_steps", "1"]
    settings += ["--train_file", posts, "--split_by", "date", "--report_to", "none", "--output_dir"]
    main([*settings, str(tmp_path / "out"), "--do_train", "--do_eval", "--do_predict"])
    printed = capsys.readouterr().out

    table, given = predictions(tmp_path / "out"), pd.DataFrame(POSTS)
    times = given["timestamp"]
    tested = table["post_id"].astype(int)
    date = times.drop(tested).max()
    assert tested.tolist() == given.index[times > date].tolist() and 0 < len(tested) < 20
    assert table["text"].tolist() == given["text"][tested].tolist()
    results = read_json(tmp_path / "out" / "all_results.json")
    test, people = results["test"], results["test"]["people"]
    earlier = set(given["timeline_id"].drop(tested))
    assert test["posts"] == len(tested) and people["people"] == table["timeline_id"].nunique()
    dates = read_json(tmp_path / "out" / "_split.json")["dates"]
    assert dates["test"] == date and ("validation" in dates) == (model_type == "tempoformer")
    if "validation" in dates:
        assert results["validation"]["posts"] == ((times > dates["validation"]) & (times <= date)).sum()
        earlier = set(given["timeline_id"][times <= dates["validation"]])
    assert people["in_training"] == len(set(table["timeline_id"]) & earlier) > 0
    assert "the same people later" in printed and people["question"].startswith("the same people later")
    assert f"{people['in_training']} of the {people['people']} people" in (tmp_path / "out" / "README.md").read_text()

    # The pipeline answers the same, of whole timelines.
    pipe = load_pipeline(str(tmp_path / "out"))
    answers = {}
    for name, rows in given.groupby("timeline_id", sort=False):
        timeline = {"text": rows["text"].tolist(), "timestamp": rows["timestamp"].tolist()}
        answers |= dict(zip(rows.index, pipe(timeline, top_k=len(NAMES)), strict=True))
    for post, row in zip(tested, table[PROBABILITIES].to_numpy(), strict=True):
        scores = {answer["label"]: answer["score"] for answer in answers[post]}
        assert row == pytest.approx([scores[name] for name in NAMES], abs=1e-5)

    # Given the whole file, the saved model is scored on the same posts, and predicts them as before.
    main(
        ["--model_name_or_path", str(tmp_path / "out"), "--test_file", posts, "--report_to", "none"]
        + ["--output_dir", str(tmp_path / "again"), "--do_predict"]
    )
    again = predictions(tmp_path / "again")
    assert again["post_id"].tolist() == table["post_id"].tolist()
    assert again[PROBABILITIES].to_numpy() == pytest.approx(table[PROBABILITIES].to_numpy(), abs=1e-5)
    assert read_json(tmp_path / "again" / "all_results.json")["test"]["macro_f1"] == pytest.approx(test["macro_f1"])
