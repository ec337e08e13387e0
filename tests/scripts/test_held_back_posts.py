"""
Checks that a model is not scored on posts it has learned from, and that results of an earlier run do not pass for new
ones.
"""

import json
from pathlib import Path

import pytest
import torch
from helpers import ROOT, read_json, read_table, with_other_ids, write_posts
from safetensors.torch import load_file

import run_glue_style
from modeling_tempoformer.commands import view
from modeling_tempoformer.posts.synthetic import synthetic_posts


POSTS = list(synthetic_posts(12, seed=0, posts_per_timeline=5))
UNLABELLED = ["timeline_id", "timestamp", "text"]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def train(folder: Path, model: str, *arguments: str) -> Path:
    """Trains for a step, and evaluates and predicts."""
    settings = ["--window", "3", "--max_steps", "1", "--report_to", "none", "--do_train", "--do_eval", "--do_predict"]
    run_glue_style.main(["--model_name_or_path", model, *settings, *arguments, "--output_dir", str(folder)])
    return folder


def predict(folder: Path, model: Path, *arguments: str) -> list[dict[str, str]]:
    run_glue_style.main(["--model_name_or_path", str(model), *arguments, "--output_dir", str(folder), "--do_predict"])
    return read_table(folder / "_predictions.csv")


def people(rows: list[dict[str, str]]) -> set[str]:
    return {row["timeline_id"] for row in rows}


def learned_from(trained: Path) -> list[dict]:
    """Returns the posts on which a model was trained and validated."""
    tested = people(read_table(trained / "_predictions.csv"))
    return [post for post in POSTS if post["timeline_id"] not in tested]


def with_one_label(posts: list[dict]) -> list[dict]:
    return [{**post, "label": post["label"] if number == 3 else ""} for number, post in enumerate(posts)]


def to_train(folder: Path, posts: list[dict]) -> list[str]:
    return ["--train_file", write_posts(folder / "posts.csv", posts)]


def to_test(folder: Path, posts: list[dict]) -> list[str]:
    return ["--test_file", write_posts(folder / "posts.csv", posts)]


def write_dataset(folder: Path) -> str:
    (folder / "dataset").mkdir()
    write_posts(folder / "dataset" / "train.csv", POSTS)
    return str(folder / "dataset")


NEW = with_other_ids(POSTS[:5], "new")
# Input of a model that has learned from most of `POSTS`, and the words in the error.
REFUSED = {
    "the file that it was trained on": (lambda folder, _: to_train(folder, POSTS), "--train_file.*--test_file"),
    "a dataset without a test split": (lambda folder, _: ["--dataset_name", write_dataset(folder)], "no test split"),
    "one timeline more to test": (lambda folder, _: to_test(folder, POSTS + NEW), "held back.*person-"),
    "only what it learned from": (lambda folder, out: to_test(folder, learned_from(out)), "person-"),
    "a single label": (
        lambda folder, out: to_test(folder, with_one_label(learned_from(out))),
        r"person-\d+ \(1 in all",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_is_not_scored_on_what_it_learned_from(tmp_path, trained, case):
    give, named = REFUSED[case]
    arguments = give(tmp_path, trained)
    for model in (trained, next(trained.glob("checkpoint-*"))):
        with pytest.raises(ValueError, match=named):
            predict(tmp_path / "new", model, *arguments)
    assert not (tmp_path / "new" / "_predictions.csv").exists()


@pytest.mark.slow
def test_other_timelines_and_posts_without_labels_are_predicted_whole(tmp_path, trained):
    """New posts of the people in the training are predicted as well."""
    held_back = people(read_table(trained / "_predictions.csv"))
    tested = [post for post in POSTS if post["timeline_id"] in held_back]
    for number, (posts, columns) in enumerate(((NEW, None), (tested + NEW, None), (POSTS, UNLABELLED))):
        file = write_posts(tmp_path / "posts.csv", posts, columns)
        rows = predict(tmp_path / str(number), trained, "--test_file", file)
        assert [row["post_id"] for row in rows] == [str(row) for row in range(len(posts))]


@pytest.mark.slow
def test_a_training_records_its_split_without_ids(tmp_path, encoder):
    """It records the names of columns, too, so that files with them and files with the usual ones are read."""
    files = {"train": POSTS[:35], "validation": POSTS[35:45], "test": POSTS[45:]}
    names = {"timeline_id": "who", "text": "said"}
    renamed = {
        name: [{names.get(column, column): cell for column, cell in post.items()} for post in posts]
        for name, posts in files.items()
    }
    paths = [f"--{name}_file={write_posts(tmp_path / f'{name}.csv', posts)}" for name, posts in renamed.items()]
    out = train(tmp_path / "out", encoder, *paths, "--columns", "timeline=who", "--columns", "text=said")
    written = (out / "_split.json").read_text()
    assert "person" not in written
    record = json.loads(written)
    assert [len(set(record[name])) for name in files] == [7, 2, 3]
    # No test post is one that the model has learned from. Validation posts may be used for validation again.
    assert people(predict(tmp_path / "test", out, f"--test_file={tmp_path}/test.csv")) == people(files["test"])
    view.main(["--model_name_or_path", str(out), f"--test_file={tmp_path}/test.csv", f"--output={tmp_path}/page.html"])
    assert all(who in (tmp_path / "page.html").read_text() for who in people(files["test"]))
    new = to_test(tmp_path, NEW)
    again = ["--validation_file", write_posts(tmp_path / "usual.csv", files["validation"]), "--do_eval"]
    predict(tmp_path / "new", out, *new, *again)
    for refused in (
        [f"--test_file={tmp_path}/train.csv"],
        [f"--test_file={tmp_path}/validation.csv"],
        [f"--test_file={tmp_path}/test.csv", f"--validation_file={tmp_path}/train.csv", "--do_eval"],
    ):
        with pytest.raises(ValueError, match="person-"):
            predict(tmp_path / "refused", out, *refused)


def test_a_model_remembers_what_its_first_training_learned_from(tmp_path, trained):
    others = with_other_ids(POSTS, "other")
    further = train(tmp_path / "further", str(trained), *to_train(tmp_path, others))
    with pytest.raises(ValueError, match="person-"):
        predict(tmp_path / "new", further, *to_test(tmp_path, learned_from(trained)))
    # With another seed the test part contains timelines that the first model has learned from.
    with pytest.raises(ValueError, match="person-"):
        train(tmp_path / "seed", str(trained), *to_train(tmp_path, POSTS), "--seed", "5")


def test_a_calibrated_copy_remembers_what_was_learned_from(tmp_path, trained):
    """The thresholds are fitted to the validation posts, so the model has learned from them."""
    others = write_posts(tmp_path / "others.csv", with_other_ids(POSTS, "other"))
    calibrate = ["--model_name_or_path", str(trained), "--calibrate", "--validation_file", others]
    run_glue_style.main([*calibrate, "--report_to", "none", "--output_dir", str(tmp_path / "calibrated")])
    assert read_json(tmp_path / "calibrated" / "config.json")["calibration"]["temperature"] > 0
    before, after = (load_file(folder / "model.safetensors") for folder in (trained, tmp_path / "calibrated"))
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    for learned in (learned_from(trained), with_other_ids(POSTS, "other")):
        with pytest.raises(ValueError, match="person-"):
            predict(tmp_path / "new", tmp_path / "calibrated", *to_test(tmp_path, learned))
    held_back = [post for post in POSTS if post not in learned_from(trained)]
    rows = predict(tmp_path / "new", tmp_path / "calibrated", *to_test(tmp_path, held_back))
    assert people(rows) == people(held_back)


@pytest.mark.parametrize("again", ["7 ", "7.0"])
def test_a_timeline_is_in_one_of_the_given_files(tmp_path, encoder, again):
    """White space around an id, or a float in its place, makes no difference."""
    arguments = []
    for name, ids in {"train": ["7", "9"], "validation": ["8"], "test": [again, "10.0"]}.items():
        posts = [{**post, "timeline_id": timeline_id} for timeline_id in ids for post in POSTS[:5]]
        arguments.append(f"--{name}_file={write_posts(tmp_path / f'{name}.csv', posts)}")
    with pytest.raises(ValueError, match=r"train split and the test split.*: 7 \(1 in all"):
        train(tmp_path / "out", encoder, *arguments)


STALE = (
    "_predictions.csv",
    "_predictions.parquet",
    "_mistakes.csv",
    "learning_curve.png",
    "confusion_matrix.png",
    "reliability.png",
    "alarms.png",
)


def test_no_result_of_an_earlier_run_stays_beside_new_ones(tmp_path, trained):
    new = tmp_path / "new"
    new.mkdir()
    (new / "all_results.json").write_text('{"test": {"macro_f1": 0.987654321}, "predict_macro_f1": 0.987654321}')
    predict(new, trained, "--test_file", write_posts(tmp_path / "posts.csv", NEW, UNLABELLED))
    assert "0.987654321" not in (new / "all_results.json").read_text()
    test = read_json(new / "all_results.json")["test"]
    assert (test["posts"], test["labelled_posts"]) == (5, 0) and not {"macro_f1", "loss", "classes"} & set(test)
    for name in STALE:
        (new / name).touch()
    arguments = ["--model_name_or_path", str(trained), "--do_eval", "--output_dir", str(new)]
    run_glue_style.main([*arguments, "--validation_file", write_posts(tmp_path / "posts.csv", NEW)])
    assert set(read_json(new / "all_results.json")) == {"validation"}
    assert not [name for name in STALE if (new / name).exists()]


# A run that does not train would change a model's results, or the split that they belong to.
CHANGES = {"prediction": ["--do_predict", "--test_file"], "calibration": ["--calibrate", "--validation_file"]}


@pytest.mark.parametrize("case", CHANGES)
def test_a_trained_model_and_its_results_stay_together(tmp_path, trained, case):
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    arguments = [*CHANGES[case], write_posts(tmp_path / "posts.csv", with_other_ids(POSTS, "new"))]
    with pytest.raises(ValueError, match=f"{trained}.*another"):
        run_glue_style.main(["--model_name_or_path", str(trained), *arguments, "--output_dir", str(trained)])
    after = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    assert after == before and {"all_results.json", "_predictions.csv"} <= set(after)
