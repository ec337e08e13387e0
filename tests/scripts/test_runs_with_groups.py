"""Checks run_glue_style.py on posts with groups, with several annotators, and with clinics that are never divided."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from helpers import NAMES, ROOT, read_json, read_table, with_other_ids, write_posts
from sklearn.metrics import f1_score

from modeling_tempoformer.posts.synthetic import synthetic_posts
from research.run_baseline import main as run_baseline
from run_glue_style import main


DEMO = ["configuration/demo.yaml", "--num_train_epochs", "1", "--window", "3", "--report_to", "none"]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def posts() -> list[dict]:
    """Returns 24 timelines of six clinics. A post has a group of its own."""
    posts = list(synthetic_posts(24, seed=0, posts_per_timeline=5))
    names = list(dict.fromkeys(post["timeline_id"] for post in posts))
    for number, post in enumerate(posts):
        post |= {"clinic": f"c{names.index(post['timeline_id']) % 6}", "site": "xyy"[number % 3], "id": f"p{number}"}
    return posts


def annotated(posts: list[dict]) -> list[dict]:
    """Returns a row for each of three people's labels of a post; the third often errs."""
    chance = random.Random(0)
    return [
        {**post, "label": label if chance.random() < right else chance.choice(NAMES), "who": who}
        for post in posts
        for label in [post["label"]]
        for who, right in (("ann", 0.95), ("bob", 0.9), ("cy", 0.5))
    ]


def check_groups(folder: Path, posts: list[dict]):
    """Checks the scores of the groups against the written predictions."""
    results, rows = read_json(folder / "all_results.json")["test"], read_table(folder / "_predictions.csv")
    site_of = {(post["timeline_id"], post["text"]): post["site"] for post in posts}
    sites = np.array([site_of[row["timeline_id"], row["text"]] for row in rows])
    actual, predicted = (np.array([row[name] for row in rows]) for name in ("label", "prediction"))
    assert set(results["groups"]) == {"x", "y"}
    for site, scores in results["groups"].items():
        inside = sites == site
        theirs, others = (f1_score(actual[s], predicted[s], average="macro", labels=NAMES) for s in (inside, ~inside))
        assert scores["posts"] == inside.sum()
        assert scores["macro_f1"] == pytest.approx(theirs) and scores["difference"] == pytest.approx(theirs - others)
        sides = [
            {row["timeline_id"] for row, held in zip(rows, side, strict=True) if held} for side in (inside, ~inside)
        ]
        # Few timelines have no interval.
        assert ("difference_interval" in scores) == (min(map(len, sides)) >= 10)
        low, high = scores.get("difference_interval", (-1, 1))
        assert low <= theirs - others <= high


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["paper's", "default"])
def test_groups_after_a_training_with_a_saved_model_and_on_the_card(tmp_path, encoder, posts, kind, capsys):
    model = DEMO if kind == "paper's" else ["--model_name_or_path", encoder, *DEMO[1:], "--do_train", "--do_predict"]
    # Only the test file needs the groups.
    train = write_posts(tmp_path / "train.csv", posts, ["timeline_id", "timestamp", "text", "label"])
    # One label of seven is another one, so that no model is always right.
    new = [
        {**post, "label": NAMES[1 - NAMES.index(post["label"])] if number % 7 == 0 else post["label"]}
        for number, post in enumerate(with_other_ids(posts, "new"))
    ]
    test = ["--test_file", write_posts(tmp_path / "test.csv", new), "--columns", "group=site"]
    main([*model, "--train_file", train, *test, "--output_dir", str(tmp_path / "out")])
    check_groups(tmp_path / "out", new)
    printed, card = capsys.readouterr().out, (tmp_path / "out" / "README.md").read_text()
    scores = read_json(tmp_path / "out" / "all_results.json")["test"]["groups"]
    for score in scores.values():
        assert f" {score['macro_f1']:.3f} " in printed and f"| {score['macro_f1']:.3f} |" in card
    wrong = [row for row in read_table(tmp_path / "out" / "_predictions.csv") if row["label"] != row["prediction"]]
    mistakes = read_table(tmp_path / "out" / "_mistakes.csv")
    assert len(mistakes) == min(20, len(wrong)) and all(row["label"] != row["prediction"] for row in mistakes)

    saved = ["--model_name_or_path", str(tmp_path / "out"), "--do_predict", "--no_text", "--report_to", "none"]
    main([*saved, *test, "--output_dir", str(tmp_path / "saved")])
    again = read_json(tmp_path / "saved" / "all_results.json")["test"]["groups"]
    assert {name: score["macro_f1"] for name, score in again.items()} == pytest.approx(
        {name: score["macro_f1"] for name, score in scores.items()}
    )
    assert "text" not in read_table(tmp_path / "saved" / "_mistakes.csv")[0]


def test_annotators_stand_beside_the_model(tmp_path, posts, capsys):
    """Scores of people need no model, and the model is scored on the same posts."""
    rows = annotated(posts)
    columns = ["--columns", "annotator=who", "--columns", "id=id"]
    main(
        [*DEMO, "--train_file", write_posts(tmp_path / "rows.csv", rows), *columns, "--output_dir", f"{tmp_path}/out"]
    )
    predictions = {row["post_id"]: row for row in read_table(tmp_path / "out" / "_predictions.csv")}
    given: dict[str, dict[str, str]] = {}
    for row in rows:
        given.setdefault(row["id"], {})[row["who"]] = row["label"]
    for post_id, row in predictions.items():
        votes = list(given[post_id].values())
        assert row["label"] == max(set(votes), key=votes.count)
    results = read_json(tmp_path / "out" / "all_results.json")["test"]["annotators"]
    assert results["annotators"] == 3 and results["posts"] == len(predictions)
    for who, score in results["each"].items():
        others = {post: [label for name, label in given[post].items() if name != who] for post in predictions}
        agreed = [post for post, labels in others.items() if len(set(labels)) == 1]
        reference = [others[post][0] for post in agreed]
        theirs = [given[post][who] for post in agreed]
        model = [predictions[post]["prediction"] for post in agreed]
        assert score["posts"] == len(agreed)
        assert score["macro_f1"] == pytest.approx(f1_score(reference, theirs, average="macro"))
        assert score["model_macro_f1"] == pytest.approx(f1_score(reference, model, average="macro"))
    printed, card = capsys.readouterr().out, (tmp_path / "out" / "README.md").read_text()
    assert f"{results['alpha']:.3f}" in printed and f"{results['alpha']:.3f}" in card
    for score in (*results["each"].values(), results["together"]):
        assert f" {score['model_macro_f1']:.3f}" in printed

    # A test file may have one label for each post, and a baseline has the same scores.
    single = write_posts(tmp_path / "single.csv", with_other_ids([{**p, "id": f"n{p['id']}"} for p in posts], "new"))
    baseline = ["--method", "class_prior", "--do_train", "--do_predict", "--report_to", "none", *columns]
    run_baseline([*baseline, "--train_file", f"{tmp_path}/rows.csv", "--output_dir", str(tmp_path / "prior")])
    people = read_json(tmp_path / "prior" / "all_results.json")["test"]["annotators"]
    assert {who: score["macro_f1"] for who, score in people["each"].items()} == pytest.approx(
        {who: score["macro_f1"] for who, score in results["each"].items()}
    )
    given_both = [*baseline, "--train_file", f"{tmp_path}/rows.csv", "--test_file", single]
    run_baseline([*given_both, "--output_dir", str(tmp_path / "single")])
    assert "annotators" not in read_json(tmp_path / "single" / "all_results.json")["test"]


@pytest.mark.parametrize("kind", ["paper's", "default"])
def test_a_clinic_is_in_one_split(tmp_path, encoder, posts, kind):
    model = DEMO if kind == "paper's" else ["--model_name_or_path", encoder, *DEMO[1:], "--do_train", "--do_predict"]
    file = write_posts(tmp_path / "posts.csv", posts)
    main([*model, "--train_file", file, "--columns", "split=clinic", "--output_dir", str(tmp_path / "out")])
    rows = read_table(tmp_path / "out" / "_predictions.csv")
    clinic_of = {post["timeline_id"]: post["clinic"] for post in posts}
    tested = {row["timeline_id"] for row in rows}
    assert {clinic_of[name] for name in tested}.isdisjoint(clinic_of[name] for name in clinic_of.keys() - tested)
    # Another file with timelines of a clinic that is trained on.
    other = write_posts(tmp_path / "other.csv", with_other_ids(posts[:10], "new"))
    files = ["--train_file", file, "--test_file", other, "--columns", "split=clinic"]
    with pytest.raises(ValueError, match="split.*split.*c[01]"):
        main([*model, *files, "--output_dir", str(tmp_path / "refused")])


def test_groups_and_units_in_nested_json(tmp_path, posts):
    """Both columns are paths, which the reader of JSON must be told of."""
    nested = [{**post, "author": {"site": post["site"], "clinic": post["clinic"]}} for post in posts]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, nested)))
    columns = ["--columns", "group=author.site", "--columns", "split=author.clinic"]
    main([*DEMO, "--train_file", f"{tmp_path}/posts.jsonl", *columns, "--output_dir", str(tmp_path / "out")])
    check_groups(tmp_path / "out", posts)
