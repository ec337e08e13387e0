"""Checks runs that ask what comes: a saved model is asked the same of other files, beside rivals that are asked it."""

from pathlib import Path

import pytest
from helpers import NAMES, ROOT, read_json, read_table, with_other_ids, write_posts

from modeling_tempoformer.commands import compare, rival, view
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.training.rivals import RIVALS
from run_glue_style import main


POSTS = list(synthetic_posts(12, seed=0, posts_per_timeline=8))
QUESTION = "Asked at each post: is one of the next 2 posts a change (Switch)?"
OPTIONS = ["--report_to", "none", "--window", "3", "--num_train_epochs", "1"]
ASKED = ["--do_train", "--do_eval", "--do_predict"]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def expected(posts: list[dict], number: int) -> list[str]:
    """Returns the label of each post, by a look at the next posts of its timeline."""
    labels = []
    for row, post in enumerate(posts):
        after = [other["label"] for other in posts[row + 1 :] if other["timeline_id"] == post["timeline_id"]][:number]
        word = "change ahead" if "Switch" in after else "no change ahead"
        labels.append(word if len(after) == number else "")
    return labels


def labels_of(folder: Path) -> dict[int, str]:
    return {int(row["post_id"]): row["label"] for row in read_table(folder / "_predictions.csv")}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["post_tempoformer", "tempoformer"])
def test_a_saved_model_is_asked_what_it_was_trained_for(tmp_path, encoder, model_type, capsys):
    out, posts = tmp_path / "out", write_posts(tmp_path / "posts.csv", POSTS)
    new = ["--model_type", model_type, "--horizon", "2", "--train_file", posts, "--output_dir", str(out)]
    main(["--model_name_or_path", encoder, *new, *OPTIONS, *ASKED])
    truth = expected(POSTS, 2)
    assert labels_of(out) == {row: truth[row] for row in labels_of(out)}
    config, test = read_json(out / "config.json"), read_json(out / "all_results.json")["test"]
    assert config["horizon"] == "2" and config["horizon_labels"] == [["No-Switch"], ["Switch"]]
    assert config["watched"] == 1 and config.get("first_posts") is None
    assert test["asked"] == QUESTION and test["no_change"] == "no change ahead"
    assert test["labelled_posts"] == test["posts"] - 2 * test["timelines"]
    assert {"position_and_time", "words"} <= set(test["compared_with"])
    assert QUESTION in capsys.readouterr().out
    # In Markdown the brackets are escaped.
    assert "Asked at each post: is one of the next 2 posts a change" in (out / "README.md").read_text()

    others = with_other_ids(POSTS, "new")
    file = write_posts(tmp_path / "new.csv", others)
    saved = ["--model_name_or_path", str(out), "--report_to", "none", "--do_predict", "--test_file", file]
    main([*saved, "--output_dir", str(tmp_path / "new"), "--horizon", "2", "--watch", "Switch", "--labels", *NAMES])
    assert list(labels_of(tmp_path / "new").values()) == truth
    assert read_json(tmp_path / "new" / "all_results.json")["test"]["asked"] == QUESTION
    for option, value, has in (("horizon", "3", "2"), ("horizon", "2d", "2"), ("watch", "No-Switch", "Switch")):
        with pytest.raises(ValueError, match=f"--{option} {value}.*it has {has}"):
            main([*saved, "--output_dir", str(tmp_path / "no"), f"--{option}", value])

    page = tmp_path / "page.html"
    view.main(["--model_name_or_path", str(out), "--test_file", file, "--output", str(page)])
    assert "is one of the next 2 posts a change" in page.read_text(encoding="utf-8")


def test_rivals_are_asked_the_same(tmp_path):
    posts = write_posts(tmp_path / "posts.csv", POSTS)
    asked = ["--horizon", "2", "--train_file", posts]
    rival.main(["--method", "position_and_time", *asked, "--do_predict", "--output_dir", str(tmp_path / "one")])
    truth = expected(POSTS, 2)
    assert labels_of(tmp_path / "one") == {row: truth[row] for row in labels_of(tmp_path / "one")}
    assert read_json(tmp_path / "one" / "all_results.json")["test"]["no_change"] == "no change ahead"
    # A cross-validation checks its folds, and collects the scores of all runs, by the same labels.
    model_args, data, _ = compare.read_run(["--method", "words", *asked, "--output_dir", "out"], RIVALS)
    settings = compare.CompareArguments(output_dir="out", num_folds=3)
    _, names, timelines = compare.prepare_folds(settings, model_args, data)
    rows = [
        (row, label) for timeline in timelines for row, label in zip(timeline.post_ids, timeline.labels, strict=True)
    ]
    assert {int(row): names[label] if label >= 0 else "" for row, label in rows} == dict(enumerate(truth))
