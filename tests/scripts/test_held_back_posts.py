"""Scores of posts that were trained on, results of an earlier run, and cells that are not what they seem."""

import json
import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from helpers import NAMES, ROOT, of_others, read_json, read_table, save_encoder, tiny_encoder, tiny_model, write_posts
from transformers import AutoTokenizer, pipeline

import run_baseline
import run_glue_style
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.tables import load_table
from modeling_tempoformer.data.timelines import label_names, to_timelines
from modeling_tempoformer.data_collator_tempoformer import TimeColumn
from modeling_tempoformer.evaluation.references import compare
from modeling_tempoformer.training.hub_trainer import HubTrainer, HubTrainingArguments


STREAMING = pytest.mark.parametrize("streaming", [False, True])
POSTS = list(synthetic_posts(12, seed=0, posts_per_timeline=5))
STREAMED = ["--streaming", "--freeze_encoder", "false"]
UNLABELLED = ["timeline_id", "timestamp", "text"]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def train(folder: Path, model: str, *arguments: str, script=run_glue_style) -> Path:
    """Trains for a step, and evaluates and predicts."""
    settings = ["--window", "3", "--max_steps", "1", "--report_to", "none", "--do_train", "--do_eval", "--do_predict"]
    script.main(["--model_name_or_path", model, *settings, *arguments, "--output_dir", str(folder)])
    return folder


def predict(folder: Path, model: Path, *arguments: str) -> list[dict[str, str]]:
    run_glue_style.main(["--model_name_or_path", str(model), *arguments, "--output_dir", str(folder), "--do_predict"])
    return read_table(folder / "_predictions.csv")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, encoder) -> Path:
    """The folder of a model that was trained on a part of `POSTS`."""
    folder = tmp_path_factory.mktemp("trained")
    return train(folder / "out", encoder, "--train_file", write_posts(folder / "posts.csv", POSTS))


def people(rows: list[dict[str, str]]) -> set[str]:
    return {row["timeline_id"] for row in rows}


def learned_from(trained: Path) -> list[dict]:
    """The posts of the parts on which a model was trained and validated."""
    tested = people(read_table(trained / "_predictions.csv"))
    return [post for post in POSTS if post["timeline_id"] not in tested]


def to_train(folder: Path, posts: list[dict]) -> list[str]:
    return ["--train_file", write_posts(folder / "posts.csv", posts)]


def to_test(folder: Path, posts: list[dict]) -> list[str]:
    return ["--test_file", write_posts(folder / "posts.csv", posts)]


def write_folds(folder: Path) -> str:
    ids = sorted(people(POSTS))
    folds = [{"train": ids[:8], "validation": ids[8:10], "test": ids[10:]}]
    (folder / "folds.json").write_text(json.dumps(folds))
    return str(folder / "folds.json")


def write_dataset(folder: Path) -> str:
    (folder / "dataset").mkdir()
    write_posts(folder / "dataset" / "train.csv", POSTS)
    return str(folder / "dataset")


NEW = of_others(POSTS[:5], "new")
# What a model is given that has learned from most of `POSTS`, and what the error names.
REFUSED = {
    "the file that it was trained on": (lambda folder, _: to_train(folder, POSTS), "--train_file.*--test_file"),
    "that file in another order": (lambda folder, _: to_train(folder, POSTS[30:] + POSTS[:30]), "--train_file"),
    "that file and another seed": (lambda folder, _: [*to_train(folder, POSTS), "--seed", "5"], "--train_file"),
    "that file, one timeline more": (lambda folder, _: to_train(folder, POSTS + NEW), "--train_file"),
    "a fold of that file": (
        lambda folder, _: [*to_train(folder, POSTS), "--folds_file", write_folds(folder)],
        "--train_file",
    ),
    "a dataset without a test split": (lambda folder, _: ["--dataset_name", write_dataset(folder)], "no test part"),
    "one timeline more to test": (lambda folder, _: to_test(folder, POSTS + NEW), "held back.*person-"),
    "one timeline less to test": (lambda folder, _: to_test(folder, POSTS[5:]), "person-"),
    "only what it learned from": (lambda folder, out: to_test(folder, learned_from(out)), "person-"),
    "white space around ids": (
        lambda folder, out: to_test(
            folder, [{**post, "timeline_id": f" {post['timeline_id']} "} for post in learned_from(out)]
        ),
        "person-",
    ),
    "a single label": (
        lambda folder, out: to_test(
            folder,
            [{**post, "label": post["label"] if place == 3 else ""} for place, post in enumerate(learned_from(out))],
        ),
        r"person-\d+ \(1 in all",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_is_not_scored_on_what_it_learned_from(tmp_path, trained, case):
    arguments, named = REFUSED[case]
    with pytest.raises(ValueError, match=named):
        predict(tmp_path / "new", trained, *arguments(tmp_path, trained))
    assert not (tmp_path / "new" / "_predictions.csv").exists()


def test_neither_is_a_checkpoint_of_its_training(tmp_path, trained):
    with pytest.raises(ValueError, match="person-"):
        predict(tmp_path / "new", trained / "checkpoint-1", *to_test(tmp_path, learned_from(trained)))


def test_of_the_whole_file_the_recorded_test_part_is_scored(tmp_path, trained, caplog):
    caplog.set_level(logging.INFO)
    rows = predict(tmp_path / "new", trained, *to_test(tmp_path, POSTS[25:] + POSTS[:25]), "--seed", "7")
    held_back = people(read_table(trained / "_predictions.csv"))
    assert 0 < len(held_back) < 12 and people(rows) == held_back
    assert f"{len(held_back)} of 12 timelines" in caplog.text
    before, again = (read_json(folder / "all_results.json")["test"] for folder in (trained, tmp_path / "new"))
    assert again["macro_f1"] == pytest.approx(before["macro_f1"]) and again["timelines"] == before["timelines"]


def test_other_timelines_and_posts_without_labels_are_predicted_whole(tmp_path, trained):
    """New posts of the people in the training too."""
    held_back = people(read_table(trained / "_predictions.csv"))
    tested = [post for post in POSTS if post["timeline_id"] in held_back]
    for number, (posts, columns) in enumerate(((NEW, None), (tested + NEW, None), (POSTS, UNLABELLED))):
        file = write_posts(tmp_path / "posts.csv", posts, columns)
        rows = predict(tmp_path / str(number), trained, "--test_file", file)
        assert [row["post_id"] for row in rows] == [str(row) for row in range(len(posts))]


@STREAMING
def test_a_training_records_its_split_without_ids(tmp_path, encoder, streaming):
    """A stream cannot be split: its parts are files."""
    files = {"train": POSTS[:35], "validation": POSTS[35:45], "test": POSTS[45:]}
    paths = [f"--{name}_file={write_posts(tmp_path / f'{name}.csv', posts)}" for name, posts in files.items()]
    out = train(
        tmp_path / "out", encoder, *paths, *(["--streaming", "--freeze_encoder", "false"] if streaming else [])
    )
    written = (out / "_split.json").read_text()
    assert "person" not in written
    record = json.loads(written)
    assert [len(set(record[name])) for name in files] == [7, 2, 3]
    # Each part, as the recorded test part: only the last one may be tested.
    for name, posts in files.items():
        arguments = ["--test_file", write_posts(tmp_path / "again.csv", posts)]
        if name == "test":
            assert people(predict(tmp_path / name, out, *arguments)) == people(posts)
        else:
            with pytest.raises(ValueError, match="person-"):
                predict(tmp_path / name, out, *arguments)
    # What it was validated on may be validated on again, what it was trained on not.
    for name in ("validation", "train"):
        arguments = [f"--validation_file={tmp_path / name}.csv", *to_test(tmp_path, NEW), "--do_eval"]
        if name == "validation":
            predict(tmp_path / "eval", out, *arguments)
        else:
            with pytest.raises(ValueError, match="person-"):
                predict(tmp_path / "eval", out, *arguments)


def test_a_model_remembers_what_its_first_training_learned_from(tmp_path, trained):
    others = of_others(POSTS, "other")
    further = train(tmp_path / "further", str(trained), *to_train(tmp_path, others))
    with pytest.raises(ValueError, match="person-"):
        predict(tmp_path / "new", further, *to_test(tmp_path, learned_from(trained)))
    # Another seed puts timelines in the test part that the model to start from has learned from.
    with pytest.raises(ValueError, match="person-"):
        train(tmp_path / "seed", str(trained), *to_train(tmp_path, POSTS), "--seed", "5")


def test_a_calibrated_copy_remembers_what_was_learned_from(tmp_path, trained):
    """Its thresholds have learned from the posts that they are fitted to."""
    others = write_posts(tmp_path / "others.csv", of_others(POSTS, "other"))
    calibrate = ["--model_name_or_path", str(trained), "--calibrate", "--validation_file", others]
    run_glue_style.main([*calibrate, "--report_to", "none", "--output_dir", str(tmp_path / "calibrated")])
    for learned in (learned_from(trained), of_others(POSTS, "other")):
        with pytest.raises(ValueError, match="person-"):
            predict(tmp_path / "new", tmp_path / "calibrated", *to_test(tmp_path, learned))
    held_back = [post for post in POSTS if post not in learned_from(trained)]
    rows = predict(tmp_path / "new", tmp_path / "calibrated", *to_test(tmp_path, held_back))
    assert people(rows) == people(held_back)


@pytest.mark.parametrize("case", ["glue", "streaming", "class_prior", "post"])
@pytest.mark.parametrize("shared", ["test", "validation"])
def test_a_timeline_is_in_one_of_the_given_files(tmp_path, encoder, case, shared):
    files = {"train": POSTS[:30], "validation": POSTS[30:40], "test": POSTS[40:]}
    files[shared] = [*files[shared], {**POSTS[0], "timeline_id": f"{POSTS[0]['timeline_id']} "}]
    arguments = [f"--{name}_file={write_posts(tmp_path / f'{name}.csv', posts)}" for name, posts in files.items()]
    arguments += STREAMED if case == "streaming" else []
    with pytest.raises(ValueError, match=f"train part and the {shared} part.*: {POSTS[0]['timeline_id']} "):
        if case in ("glue", "streaming"):
            train(tmp_path / "out", encoder, *arguments)
        elif case == "post":
            train(tmp_path / "out", encoder, "--method", case, *arguments, script=run_baseline)
        else:
            run_baseline.main(["--method", case, *arguments, "--output_dir", str(tmp_path / "out")])


def test_an_id_that_became_a_float_is_the_same_timeline(tmp_path):
    files = {"train": ["7"], "validation": ["8"], "test": ["7.0", "10.0"]}
    paths = {}
    for name, ids in files.items():
        posts = [{**post, "timeline_id": timeline_id} for timeline_id in ids for post in POSTS[:5]]
        paths[name] = f"--{name}_file={write_posts(tmp_path / f'{name}.csv', posts)}"
    with pytest.raises(ValueError, match=r"7 \(1 in all"):
        run_baseline.main(["--method", "class_prior", *paths.values(), "--output_dir", str(tmp_path / "out")])


STALE = ("_predictions.parquet", "learning_curve.png", "confusion_matrix.png", "reliability.png")


def leave_results(folder: Path):
    """What an earlier run has left."""
    folder.mkdir()
    (folder / "all_results.json").write_text('{"test": {"macro_f1": 0.99}, "predict_macro_f1": 0.99}')
    (folder / "_predictions.csv").write_text("post_id,prediction\n0,Switch\n")
    for name in STALE:
        (folder / name).touch()


def test_no_score_of_an_earlier_run_stays_beside_new_predictions(tmp_path, trained):
    leave_results(tmp_path / "new")
    predict(tmp_path / "new", trained, "--test_file", write_posts(tmp_path / "posts.csv", NEW, UNLABELLED))
    assert "0.99" not in (tmp_path / "new" / "all_results.json").read_text()
    test = read_json(tmp_path / "new" / "all_results.json")["test"]
    assert test["posts"] == 5 and test["labelled_posts"] == 0
    assert not {"macro_f1", "loss", "classes", "compared_with", "expected_calibration_error"} & set(test)


def test_no_prediction_of_an_earlier_run_stays_beside_new_scores(tmp_path, trained):
    leave_results(tmp_path / "new")
    arguments = ["--model_name_or_path", str(trained), "--do_eval", "--output_dir", str(tmp_path / "new")]
    run_glue_style.main([*arguments, "--validation_file", write_posts(tmp_path / "posts.csv", NEW)])
    assert set(read_json(tmp_path / "new" / "all_results.json")) == {"validation", "explained"}
    assert not [name for name in ("_predictions.csv", *STALE) if (tmp_path / "new" / name).exists()]


def test_no_score_of_an_earlier_run_stays_beside_those_of_a_language_model(tmp_path):
    leave_results(tmp_path / "new")
    trainer = HubTrainer(torch.nn.Linear(1, 1), HubTrainingArguments(output_dir=str(tmp_path / "new"), use_cpu=True))
    trainer.save_metrics("eval", {"eval_loss": 1.5})
    trainer.save_metrics("predict", {"predict_accuracy": 0.5})
    assert read_json(tmp_path / "new" / "all_results.json") == {"eval_loss": 1.5, "predict_accuracy": 0.5}


def test_timelines_of_one_post_are_scored():
    """No post has seconds since the one before it. Early hours are class 1."""
    hours, names = [float(hour) for hour in range(24)] * 10, ["0", "1"]
    rows = [{"labels": [int(hour < 12)], "timestamps": [3600 * hour]} for hour in hours]
    found = compare(Dataset.from_list(rows), np.zeros(240, dtype=int), names, Dataset.from_list(rows))
    assert found["compared_with"]["position_and_time"]["macro_f1"] == pytest.approx(1)


# What a run that does not train would change of a model: its results, or what the results are of.
CHANGES = {"prediction": ["--do_predict", "--test_file"], "calibration": ["--calibrate", "--validation_file"]}


@pytest.mark.parametrize("case", CHANGES)
def test_a_trained_model_and_its_results_stay_together(tmp_path, trained, case):
    before = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    arguments = [*CHANGES[case], write_posts(tmp_path / "posts.csv", of_others(POSTS, "new"))]
    with pytest.raises(ValueError, match=f"{trained}.*another"):
        run_glue_style.main(["--model_name_or_path", str(trained), *arguments, "--output_dir", str(trained)])
    after = {path.name: path.read_bytes() for path in trained.iterdir() if path.is_file()}
    assert after == before and {"all_results.json", "_predictions.csv"} <= set(after)


def write_column(path: Path, column: str, cells: list) -> str:
    """Posts of one timeline with a column of these cells, in the file's format."""
    posts = pd.DataFrame({"timeline_id": "ann", "text": "hm", column: pd.Series(cells, dtype=object)})
    if path.suffix == ".parquet":
        posts.astype({column: str}).to_parquet(path)
    elif path.suffix == ".csv":
        posts.to_csv(path, index=False)
    elif path.suffix == ".tsv":
        posts.to_csv(path, sep="\t", index=False)
    else:
        posts.to_json(path, orient="records", lines=path.suffix == ".jsonl")
    return str(path)


TEXT_LABELS = {
    "integers that became floats": (["0.0", "1.0", "10.00", "1"], ["0", "1", "10"], [0, 1, 2, 1]),
    "cells of nothing": (
        ["O", "nan", "NaN", " null ", "NULL", "<NA>", "-100.0", "IS"],
        ["IS", "O"],
        [1, *[-100] * 6, 0],
    ),
    "gaps among floats": (["1.0", "nan", "0.0"], ["0", "1"], [1, -100, 0]),
    "names that only look like nothing": (["None", "NA", "none of it"], ["NA", "None", "none of it"], [1, 0, 2]),
    "numbers that are not whole": (["0.5", "1.5", "1.50"], ["0.5", "1.5", "1.50"], [0, 1, 2]),
}


@STREAMING
@pytest.mark.parametrize("kind", ["csv", "tsv", "json", "jsonl", "parquet"])
@pytest.mark.parametrize("case", TEXT_LABELS)
def test_labels_mean_the_same_in_every_format(tmp_path, kind, case, streaming):
    cells, names, ids = TEXT_LABELS[case]
    posts = load_table(write_column(tmp_path / f"a.{kind}", "label", cells), streaming)
    assert label_names(posts) == names
    (timeline,) = to_timelines(posts, names)
    assert timeline["labels"] == ids


@STREAMING
def test_labels_that_are_given_are_read_as_those_of_the_file(streaming):
    posts = Dataset.from_dict({"timeline_id": ["ann"] * 3, "text": ["hm"] * 3, "label": ["1", "0.0", "nan"]})
    (timeline,) = to_timelines(posts.to_iterable_dataset() if streaming else posts, ["1.0", "0"])
    assert timeline["labels"] == [0, 1, -100]


@pytest.mark.parametrize(
    "labels",
    [["Switch", "switch", "No-Switch"], ["no switch", "No  Switch", "Switch"], ["Straße", "STRASSE"]],
)
def test_labels_that_differ_in_case_or_space_are_listed(labels):
    posts = Dataset.from_dict({"timeline_id": ["ann"] * len(labels), "text": labels, "label": labels})
    for read in (label_names, lambda table: to_timelines(table, labels)):
        with pytest.raises(ValueError) as raised:
            read(posts)
        named = [label for label in labels if repr(label) in str(raised.value)]
        assert len(named) == 2
    with pytest.raises(ValueError, match="'1'.*'1.0'"):
        to_timelines(posts, ["1", "1.0", "0"])
    with pytest.raises(ValueError, match="'nan'"):
        to_timelines(posts, ["nan", "Switch"])


def test_labels_of_the_command_line_that_differ_in_case(tmp_path, encoder):
    with pytest.raises(ValueError, match="'Switch', 'switch'.*--labels"):
        train(tmp_path / "out", encoder, *to_train(tmp_path, POSTS), "--labels", *NAMES, "switch")


@STREAMING
@pytest.mark.parametrize("column", ["timestamp", "timeline_id", "id"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_columns_in_32_bits_are_refused(tmp_path, column, dtype, streaming):
    """1.7e9 and 1.7e9 + 60 are the same number in 32 bits, and so are the ids 2**24 and 2**24 + 1."""
    made = {"timeline_id": ["ann", "ann"], "text": ["so", "sad"], column: np.array([16.0, 17.0], dtype=dtype)}
    if dtype == "float16":
        posts = Dataset.from_dict(made)
        posts = posts.to_iterable_dataset() if streaming else posts
    else:
        pd.DataFrame(made).to_parquet(tmp_path / "a.parquet")
        posts = load_table(tmp_path / "a.parquet", streaming)
    with pytest.raises(ValueError, match=f"'{column}'.*{dtype}.*64"):
        list(to_timelines(posts, id_column="id" if column == "id" else None))


@pytest.fixture(scope="module")
def pipe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)}).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return pipeline("stream-classification", model=str(folder), trust_remote_code=True)


@pytest.mark.parametrize("make", [np.float32, np.float16, torch.tensor], ids=["float32", "float16", "tensor"])
def test_the_pipeline_refuses_times_in_32_bits(pipe, make):
    with pytest.raises(ValueError, match="Timeline 0, post 1.*float(32|16)"):
        pipe({"text": ["so", "sad"], "timestamp": [0.0, make(60.0)]})
    assert len(pipe({"text": ["so", "sad"], "timestamp": [0.0, np.float64(60.0)]})) == 2


@STREAMING
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.parquet"])
def test_a_text_may_be_empty_and_a_missing_text_is_refused(tmp_path, pipe, name, streaming):
    (timeline,) = to_timelines(load_table(write_column(tmp_path / name, "mood", [""]), streaming), text_column="mood")
    assert timeline["texts"] == [""]
    assert len(pipe({"text": ["", "sad"]})) == 2
    with pytest.raises(ValueError, match="Timeline 0, post 0"):
        pipe({"text": [None, "sad"]})
    # Text tables cannot tell the two apart.
    if name in ("a.json", "a.jsonl"):
        posts = load_table(write_column(tmp_path / name, "mood", ["sad", None]), streaming)
        with pytest.raises(ValueError, match="Row 1.*'mood'"):
            list(to_timelines(posts, text_column="mood"))


@STREAMING
@pytest.mark.parametrize("times", [["1714560000", "20240502"], ["20240502.0", "1714560000.5"], [20240502, 1714560000]])
def test_a_bare_date_among_seconds_is_refused(streaming, times):
    """As seconds it is a moment in 1970."""
    posts = Dataset.from_dict({"timeline_id": ["ann", "bob"], "text": ["so", "sad"], "timestamp": times})
    with pytest.raises(ValueError, match="Row 1.*'timestamp'.*20240502"):
        list(to_timelines(posts.to_iterable_dataset() if streaming else posts))


def test_seconds_that_could_be_a_date_among_others_of_their_kind_are_read():
    """Seconds from the start of a study, and a number that no calendar has among present ones."""
    for seconds in ([0, 20240502, 300_000_000], [20241302, 1714560000]):
        column = TimeColumn()
        assert [column.read(place, value) for place, value in enumerate(seconds)] == seconds
