"""Checks run_glue_style.py, from tables of posts to a model, its scores and its predictions."""

import sys
from collections import Counter
from datetime import datetime
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import NAMES, ROOT, assert_same, read_json, read_table, with_other_ids, write_posts
from safetensors.torch import load_file
from sklearn.metrics import f1_score
from transformers import AutoTokenizer, BertModel

from modeling_tempoformer.common.command_line import parse, run_script
from modeling_tempoformer.common.files import lock_folder
from modeling_tempoformer.evaluation.alarm_goals import AlarmGoal
from modeling_tempoformer.evaluation.calibration import fit_temperature, tune_thresholds
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.times_tempoformer import to_seconds
from modeling_tempoformer.training import fine_tuning
from modeling_tempoformer.training.arguments import ModelArguments
from modeling_tempoformer.view.timelines import load_pipeline
from run_glue_style import main


POSTS = list(synthetic_posts(12, seed=0, posts_per_timeline=5))
PROBABILITIES = [f"probability_{name}" for name in NAMES]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def run(folder: Path, *arguments: str) -> list[dict[str, str]]:
    """Returns the predictions of a run on synthetic posts, or on the files that the arguments name."""
    if not any(argument.endswith("_file") or argument == "--dataset_name" for argument in arguments):
        arguments = (*arguments, "--train_file", write_posts(folder.parent / "posts.csv", POSTS))
    main([*arguments, "--output_dir", str(folder), "--do_predict", "--report_to", "none"])
    return read_table(folder / "_predictions.csv")


def fine_tune(folder: Path, encoder: str, *arguments: str) -> list[dict[str, str]]:
    """Returns the predictions of a model that was trained for one epoch."""
    settings = ["--window", "3", "--num_train_epochs", "1", "--do_train", "--do_eval"]
    return run(folder, "--model_name_or_path", encoder, *settings, *arguments)


def test_own_csv_to_predictions(tmp_path):
    """Posts are shuffled, and one has no label. Each test post is predicted once, in the order of the file."""
    posts = [dict(POSTS[number]) for number in torch.randperm(60, generator=torch.Generator().manual_seed(0)).tolist()]
    posts[7]["label"] = ""
    file = write_posts(tmp_path / "mixed.csv", posts)
    demo = ["configuration/demo.yaml", "--num_train_epochs", "1", "--window", "3", "--do_eval"]
    rows = run(tmp_path / "out", *demo, "--train_file", file)
    results = read_json(tmp_path / "out" / "all_results.json")
    assert set(results) == {"train", "validation", "test"}
    assert [path.name for path in (tmp_path / "out").glob("*results.json")] == ["all_results.json"]
    config = read_json(tmp_path / "out" / "config.json")
    assert config["window"] == 3 and config["timed"] and len(config["class_weights"]) == 2
    for name in ("modeling_tempoformer.py", "tokenizer.json"):
        assert (tmp_path / "out" / name).exists()
    ids = [int(row["post_id"]) for row in rows]
    assert ids == sorted(set(ids)) and len(ids) % 5 == 0
    for row, post in zip(rows, (posts[post_id] for post_id in ids), strict=True):
        for name in ("timeline_id", "text", "label"):
            assert row[name] == post[name]
        assert datetime.fromisoformat(row["time"]).timestamp() == post["timestamp"] and row["time"].endswith("Z")
        scores = {name: float(row[f"probability_{name}"]) for name in NAMES}
        assert row["prediction"] == max(scores, key=scores.get)
        assert sum(scores.values()) == pytest.approx(1.0, abs=1e-5)
    figures = ["alarms.png", "confusion_matrix.png", "learning_curve.png", "reliability.png"]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.png")) == figures
    assert all(f"]({name})" in (tmp_path / "out" / "README.md").read_text() for name in figures)


STREAM = ["--streaming", "--max_steps", "4", "--eval_strategy", "steps", "--eval_steps", "2", "--save_steps", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_a_streamed_training_ends_as_one_of_a_whole_file(tmp_path, model_type):
    """
    Each shard is a file. Checks the scores, position and time, the record of the split, and a second run with the
    saved model.
    """
    parts = {name: with_other_ids(POSTS, name) for name in ("train 1", "train 2", "validation", "test")}
    for name, posts in parts.items():
        write_posts(tmp_path / f"{name}.csv", posts)
    files = [f"--{name}_file={tmp_path / name}.csv" for name in ("validation", "test")]
    demo = ["configuration/demo.yaml", "--model_type", model_type, *STREAM, "--save_strategy", "steps", *files]
    demo += ["--train_file", str(tmp_path / "train *.csv"), "--do_eval", "--max_seq_length", "8"]
    rows = run(tmp_path / "out", *demo)
    assert [row["text"] for row in rows] == [post["text"] for post in parts["test"]]
    results = read_json(tmp_path / "out" / "all_results.json")
    assert "position_and_time" in results["test"]["compared_with"] and "epochs" not in results["train"]
    config, split = (read_json(tmp_path / "out" / name) for name in ("config.json", "_split.json"))
    shares = pd.Series([post["label"] for post in POSTS]).value_counts(normalize=True)
    assert config["class_weights"] == pytest.approx([shares[name] ** -0.5 for name in NAMES]) and config["timed"]
    assert NAMES[config["watched"]] == shares.idxmin()
    assert [len(split[name]) for name in ("train", "validation", "test")] == [24, 12, 12]
    before = load_file(tmp_path / "out" / "model.safetensors")
    again = run(tmp_path / "out", *demo)
    torch.testing.assert_close(load_file(tmp_path / "out" / "model.safetensors"), before, atol=1e-6, rtol=0)
    assert [row["prediction"] for row in again] == [row["prediction"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
@pytest.mark.parametrize("named", [None, "Switch"])
def test_first_posts_of_a_stream_are_no_change_either(tmp_path, model_type, named):
    """They have no label in training, so that a model of a stream gives them the class of no change."""
    parts = {
        name: [{**post, "label": "" if number % 5 == 0 else post["label"]} for number, post in enumerate(posts)]
        for name, posts in ((name, with_other_ids(POSTS, name)) for name in ("train", "validation", "test"))
    }
    files = []
    for name, posts in parts.items():
        files += [f"--{name}_file", write_posts(tmp_path / f"{name}.csv", posts)]
    options = [*STREAM, "--save_strategy", "steps", *files, *([] if named is None else ["--no_change_label", named])]
    rows = run(tmp_path / "out", "configuration/demo.yaml", "--model_type", model_type, *options, "--do_eval")
    config = read_json(tmp_path / "out" / "config.json")
    labels = [post["label"] for post in parts["train"] if post["label"]]
    expected = named or max(NAMES, key=labels.count)
    assert config["first_posts"] == "timeline" and NAMES[config["no_change"]] == expected
    assert {row["prediction"] for row in rows[::5]} == {expected}


@pytest.mark.slow
def test_a_dataset_by_its_name_and_some_samples_of_it(tmp_path, encoder):
    """`datasets` reads a folder of split files as a dataset, like a Hub id. Samples are evenly spaced timelines."""
    (tmp_path / "posts").mkdir()
    for name in ("train", "validation", "test"):
        write_posts(tmp_path / "posts" / f"{name}.csv", with_other_ids(POSTS, name))
    dataset = ["--dataset_name", str(tmp_path / "posts"), "--max_predict_samples", "4"]
    rows = fine_tune(tmp_path / "out", encoder, *dataset)
    ids = list(dict.fromkeys(post["timeline_id"] for post in POSTS))
    assert [row["timeline_id"] for row in rows[::5]] == [f"test-{ids[number]}" for number in (0, 3, 6, 9)]
    # The class weights are computed from the posts of the training.
    labels = [post["label"] for post in POSTS]
    weights = [(len(labels) / labels.count(name)) ** 0.5 for name in NAMES]
    assert read_json(tmp_path / "out" / "config.json")["class_weights"] == pytest.approx(weights)


def test_the_results_are_those_of_the_predictions(trained):
    """Counts the results again from the table, in which posts are in the order of time."""
    rows, test = read_table(trained / "_predictions.csv"), read_json(trained / "all_results.json")["test"]
    actual, predicted = ([row[column] for row in rows] for column in ("label", "prediction"))
    assert test["posts"] == len(rows) and test["timelines"] == len({row["timeline_id"] for row in rows})
    assert test["macro_f1"] == pytest.approx(f1_score(actual, predicted, average="macro"))
    for name in NAMES:
        assert test["classes"][name]["posts"] == actual.count(name)
        assert test["classes"][name]["f1"] == pytest.approx(f1_score(actual, predicted, pos_label=name))
    assert set(test["compared_with"]) == {"larger_class", "position_and_time", "words", "trees"}
    low, high = test["macro_f1_interval"]
    assert low <= test["macro_f1"] <= high


@pytest.mark.slow
def test_experts_alone_and_states_are_in_the_results(tmp_path, encoder):
    """The pipeline gets the scores of an expert, if only that expert has a weight."""
    posts = [{**post, "state": ("calm", "low", "")[len(post["text"]) % 3]} for post in POSTS]
    rows = fine_tune(tmp_path / "out", encoder, "--train_file", write_posts(tmp_path / "posts.csv", posts))
    test, pipe = read_json(tmp_path / "out" / "all_results.json")["test"], load_pipeline(str(tmp_path / "out"))
    weights = pipe.model.mixture.weights
    assert [score["weight"] for score in test["experts"].values()] == pytest.approx(weights.tolist())
    people = [list(group) for _, group in groupby(rows, key=lambda row: row["timeline_id"])]
    timelines = [
        {"text": [row["text"] for row in person], "timestamp": [row["time"] for row in person]} for person in people
    ]
    actual = [row["label"] for row in rows]
    own = weights.clone()
    for number, name in enumerate(("network", "trees", "states", "words")):
        rest = own * (torch.arange(4) != number)
        assert ("without" in test["experts"][name]) == bool(own[number] and rest.any())
        if "without" in test["experts"][name]:
            weights[:] = rest
            predicted = [post["label"] for posts in pipe(timelines) for post in posts]
            without = f1_score(actual, predicted, average="macro")
            assert test["experts"][name]["without"]["macro_f1"] == pytest.approx(without)
        weights[:] = torch.eye(4)[number]
        predicted = [post["label"] for posts in pipe(timelines) for post in posts]
        if name == "network" and not test["experts"][name]["weight"]:
            assert "macro_f1" not in test["experts"][name]
            continue
        assert test["experts"][name]["macro_f1"] == pytest.approx(f1_score(actual, predicted, average="macro"))
    given = [row for row in rows if row["state"]]
    right = [row["state"] == row["state_prediction"] for row in given]
    assert test["states"]["posts"] == len(given) and test["states"]["accuracy"] == pytest.approx(np.mean(right))
    # The card has them, too.
    assert f"{np.mean(right):.3f}" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.slow
def test_calibration_is_fitted_on_labelled_dev_posts_saved_and_applied(tmp_path, encoder, caplog):
    dev = list(synthetic_posts(8, seed=1, posts_per_timeline=9))
    dev = [post | {"label": "" if number % 3 == 1 else post["label"]} for number, post in enumerate(dev)]
    files = ["--validation_file", write_posts(tmp_path / "dev.csv", with_other_ids(dev, "dev"))]
    files += ["--test_file", write_posts(tmp_path / "test.csv", with_other_ids(dev, "test"))]
    train_file = ["--train_file", write_posts(tmp_path / "posts.csv", POSTS)]
    rows = fine_tune(tmp_path / "out", encoder, "--calibrate", *train_file, *files)
    calibration = read_json(tmp_path / "out" / "config.json")["calibration"]
    saved = ["--model_name_or_path", str(tmp_path / "out"), *files]
    assert_same_predictions(run(tmp_path / "saved", *saved, "--do_eval"), rows)
    # The same model without its calibration.
    config = tmp_path / "out" / "config.json"
    config.write_text(config.read_text().replace('"calibration"', '"no_calibration"'))
    plain = run(tmp_path / "raw", *saved, "--do_eval")
    config.write_text(config.read_text().replace('"no_calibration"', '"calibration"'))

    labels = np.array([NAMES.index(row["label"]) if row["label"] else -100 for row in rows])
    is_labelled = labels >= 0
    logits, probabilities = (
        np.array([[float(row[name]) for name in PROBABILITIES] for row in of]) for of in (plain, rows)
    )
    temperature = fit_temperature(np.log(logits[is_labelled]), labels[is_labelled])
    assert calibration["temperature"] == pytest.approx(temperature, rel=1e-2)
    expected = torch.from_numpy(np.log(logits) / temperature).softmax(-1).numpy()
    np.testing.assert_allclose(probabilities, expected, atol=1e-3)
    thresholds = tune_thresholds(probabilities[is_labelled], labels[is_labelled])
    assert calibration["thresholds"] == pytest.approx(thresholds, abs=1e-2)
    decided = (probabilities / calibration["thresholds"]).argmax(-1)
    assert [row["prediction"] for row in rows] == [NAMES[label] for label in decided]
    # Evaluation and prediction decide in the same way.
    macro_f1 = f1_score(labels[is_labelled], decided[is_labelled], average="macro")
    results = read_json(tmp_path / "saved" / "all_results.json")
    assert results["validation"]["macro_f1"] == pytest.approx(macro_f1) == results["test"]["macro_f1"]

    # A calibration belongs to the weights before a further training. That training says so, or fits a new one.
    further = [*saved, *train_file, "--do_train", "--max_steps", "1", "--learning_rate", "1e-2"]
    assert "calibration is left out" not in caplog.text
    run(tmp_path / "kept", *further, "--calibrate", "--freeze_encoder")
    kept = read_json(tmp_path / "kept" / "config.json")
    assert kept["calibration"] not in (None, calibration)
    weights = {name: load_pipeline(str(tmp_path / name)).model.mixture.weights for name in ("out", "kept")}
    torch.testing.assert_close(weights["kept"], weights["out"], atol=1e-6, rtol=0)
    assert "left out" not in caplog.text
    run(tmp_path / "further", *further)
    assert read_json(tmp_path / "further" / "config.json").get("calibration") is None
    assert "calibration is left out" in caplog.text and "words are left out" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--model_type", "tempoformer"]], ids=["default", "tempoformer"])
def test_a_wanted_precision_or_recall_of_the_class_to_watch(tmp_path, encoder, kind, capsys):
    """The test has the posts of the validation by other names, so that the table of predictions has all counts."""
    dev = list(synthetic_posts(10, seed=1, posts_per_timeline=9))
    files = ["--validation_file", write_posts(tmp_path / "dev.csv", with_other_ids(dev, "dev"))]
    files += ["--test_file", write_posts(tmp_path / "test.csv", with_other_ids(dev, "test"))]
    files += ["--train_file", write_posts(tmp_path / "posts.csv", POSTS), "--watch", "Switch", *kind]
    for name, least in (("recall", 0.8), ("precision", 0.3)):
        rows = fine_tune(tmp_path / "out", encoder, "--alarm", f"{name}={least}", *files)
        output, config = capsys.readouterr().out, read_json(tmp_path / "out" / "config.json")
        alarm = config["calibration"]["alarm"]
        assert set(config["calibration"]) == {"temperature", "alarm"} and NAMES[alarm["label"]] == "Switch"
        scores = np.array([float(row["probability_Switch"]) for row in rows])
        labels = np.array([row["label"] for row in rows])
        is_switch, is_alarm = labels == "Switch", np.array([row["alarm"] == "True" for row in rows])
        np.testing.assert_array_equal(is_alarm, scores >= alarm["threshold"])
        # The alarm changes no label.
        predicted = np.array([row["prediction"] for row in rows])
        np.testing.assert_array_equal(predicted == "Switch", scores > 0.5)
        shares = {"precision": is_switch[is_alarm].mean(), "recall": is_alarm[is_switch].mean()}
        assert shares[name] >= least
        measured = alarm["measured"]
        assert measured["posts"] == len(rows)
        days = {row["time"][:10] for row in rows}
        assert measured["alarms_per_day"] == pytest.approx(measured["alarms"] / len(days))
        # The console, the card, and the results of the test have it.
        for text in (output, (tmp_path / "out" / "README.md").read_text()):
            assert str(alarm["threshold"]) in text and f"wanted {name} of {least}" in text
            assert "The cost of alarms (Switch)" in text
        test = read_json(tmp_path / "out" / "all_results.json")["test"]
        assert test["watched_threshold"] == alarm["threshold"]
        assert test["macro_f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
        assert test["classes"]["Switch"]["recall"] == pytest.approx((predicted == "Switch")[is_switch].mean())
        assert test["alarm"][name] == pytest.approx(shares[name]) and test["alarm"]["wanted"] == f"{name}={least}"
        assert test["alarm"]["alarms_per_day"] == pytest.approx(is_alarm.sum() / len(days))
        assert test["alarm"]["compared_with"]["position_and_time"][name] >= shares[name] - 1e-9
        costs = test["alarm"]["costs"]
        assert costs["false_alarms"] == (is_alarm & ~is_switch).sum()
        assert costs["false_alarms_per_day"] == pytest.approx(costs["false_alarms"] / len(days))
        assert "tab:alarms" in (tmp_path / "out" / "test_table.tex").read_text()
    # A saved model is calibrated in the same way, and refused what it cannot have before anything is written.
    saved = ["--model_name_or_path", str(tmp_path / "out"), *files[:4], "--watch", "Switch"]
    run(tmp_path / "again", *saved, "--alarm", "precision=0.3")
    again = read_json(tmp_path / "again" / "config.json")["calibration"]["alarm"]
    assert again["threshold"] == pytest.approx(alarm["threshold"], abs=1e-3)
    contrary = write_posts(
        tmp_path / "contrary.csv",
        [
            {**post, "label": NAMES[int(float(row["probability_Switch"]) < np.median(scores))]}
            for post, row in zip(with_other_ids(dev, "dev"), rows, strict=True)
        ],
    )
    with pytest.raises(ValueError, match="No threshold gives Switch a precision of 0.9.*the best is 0"):
        run(tmp_path / "none", *saved, "--alarm", "precision=0.9", "--validation_file", contrary)
    assert not (tmp_path / "none" / "config.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--model_type", "tempoformer"]], ids=["default", "tempoformer"])
def test_the_risk_of_alarms_is_measured_on_the_test(tmp_path, encoder, kind, capsys):
    """The case is a stretch of two days without Switch, whose posts come from the table of predictions."""
    files = ["--train_file", write_posts(tmp_path / "posts.csv", POSTS), "--watch", "Switch", *kind]
    rows = fine_tune(tmp_path / "out", encoder, "--alarm", "rate=0.4/2d", *files)
    output, test = capsys.readouterr().out, read_json(tmp_path / "out" / "all_results.json")["test"]
    stretches: dict = {}
    for row in rows:
        stretches.setdefault(row["timeline_id"], []).append((to_seconds(row["time"]), row))
    cases = {}
    for name, posts in stretches.items():
        first = min(second for second, _ in posts)
        for second, row in posts:
            cases.setdefault((name, (second - first) // (2 * 86_400)), []).append(row)
    unchanged = [case for case in cases.values() if not any(row["label"] == "Switch" for row in case)]
    lost = [case for case in unchanged if any(row["alarm"] == "True" for row in case)]
    risk = test["alarm"]["risk"]
    assert len(unchanged) > len(lost)
    assert (risk["cases"], risk["lost"]) == (len(unchanged), len(lost))
    assert test["alarm"]["wanted"] == "rate=0.4/2d"
    for text in (output, (tmp_path / "out" / "README.md").read_text()):
        assert "at most 40 % of the stretches of 2 days without Switch" in text


def test_the_goal_of_alarms_has_one_spelling_and_a_share_between_0_and_1():
    for wrong in ("precision=0", "recall=1.1", "rate=1", "missed=1", "missed=0.2/30d", "rate=0.1/0d", "rate=0.1/infd"):
        with pytest.raises(ValueError, match=f"--alarm {wrong}"):
            parse([ModelArguments], ["--model_name_or_path", "x", "--alarm", wrong])
    for wrong in ("0.8", "precision", "precision=", "precision=a", "rate=0.1/30", "alarm_rate=0.1", "rate=nan/3d/3d"):
        with pytest.raises(ValueError, match=f"--alarm is one of.*rate=0.05/30d.*{wrong}"):
            parse([ModelArguments], ["--model_name_or_path", "x", "--alarm", wrong])
    for spelling, goal in (
        ("recall=0.5", AlarmGoal("recall", 0.5)),
        ("precision=1", AlarmGoal("precision", 1.0)),
        ("missed=0.123456789", AlarmGoal("missed", 0.123456789)),
        ("rate=0.1/30d", AlarmGoal("rate", 0.1, 30.0)),
        ("rate=0.1/0.5d", AlarmGoal("rate", 0.1, 0.5)),
    ):
        (model_args,) = parse([ModelArguments], ["--model_name_or_path", "x", "--alarm", spelling])
        assert model_args.calibrate and model_args.goal == goal and str(goal) == spelling
    (model_args,) = parse([ModelArguments], ["--model_name_or_path", "x"])
    assert not model_args.calibrate and model_args.goal is None


def assert_same_predictions(rows: list[dict[str, str]], others: list[dict[str, str]]):
    """Checks that tables are equal, except for rounding of the probabilities."""
    numbers = [*PROBABILITIES, "watched_probability", "watched_threshold"]
    for row, other in zip(rows, others, strict=True):
        assert_same(*(one | {name: float(one[name]) for name in numbers} for one in (row, other)))


@pytest.mark.slow
def test_a_run_with_a_page_encodes_each_post_once(tmp_path, encoder, trained, monkeypatch):
    """The encoder counts posts and their tokens: of a training over it, and of predictions of long timelines."""
    counts, forward = Counter(), BertModel.forward

    def count(self, *args, attention_mask, **kwargs):
        counts.update(posts=int(attention_mask.any(-1).sum()), tokens=int(attention_mask.sum()))
        return forward(self, *args, attention_mask=attention_mask, **kwargs)

    def expected(posts: list[dict]) -> dict[str, int]:
        # The page puts an empty text in the place of a post.
        texts = {tuple(ids) for ids in tokenizer([*(post["text"] for post in posts), ""])["input_ids"]}
        return {"posts": len(texts), "tokens": sum(map(len, texts))}

    monkeypatch.setattr(BertModel, "forward", count)
    tokenizer = AutoTokenizer.from_pretrained(trained)
    fine_tune(tmp_path / "out", encoder, "--view", "--max_steps", "5")
    assert counts == expected(POSTS)
    posts = with_other_ids(list(synthetic_posts(4, seed=5, posts_per_timeline=40)), "new")
    new = ["--model_name_or_path", str(trained), "--test_file", write_posts(tmp_path / "new.csv", posts)]
    plain = run(tmp_path / "plain", *new)
    for more in ([], ["--freeze_encoder"]):
        counts.clear()
        assert_same_predictions(run(tmp_path / "page", *new, "--view", *more), plain)
        assert counts == expected(posts)
        results = read_json(tmp_path / "page" / "all_results.json")["test"]
        assert ("posts_per_second" in results) == (not more)


@pytest.mark.slow
def test_predictions_without_texts(tmp_path, trained):
    """With a frozen encoder, rows have vectors, so the texts come from the timelines."""
    posts = with_other_ids(POSTS, "new")
    arguments = ["--model_name_or_path", str(trained), "--test_file", write_posts(tmp_path / "new.csv", posts)]
    whole = run(tmp_path / "whole", *arguments, "--freeze_encoder")
    assert [row.pop("text") for row in whole] == [post["text"] for post in posts]
    assert_same_predictions(run(tmp_path / "without", *arguments, "--freeze_encoder", "--no_text"), whole)
    assert "text" not in pd.read_parquet(tmp_path / "without" / "_predictions.parquet")


def test_posts_with_and_without_times_are_not_mixed_up(tmp_path, trained, caplog):
    untimed = write_posts(tmp_path / "untimed.csv", POSTS, ["timeline_id", "text", "label"])
    saved = ["--model_name_or_path", str(trained)]
    with pytest.raises(ValueError, match="time"):
        run(tmp_path / "new", *saved, "--test_file", untimed)
    # A model that is trained further without times is one without times.
    run(tmp_path / "further", *saved, "--train_file", untimed, "--do_train", "--max_steps", "1")
    assert "no column of times" in caplog.text
    with pytest.raises(ValueError, match="time"):
        timed = ["--test_file", str(trained.parent / "posts.csv")]
        run(tmp_path / "other", "--model_name_or_path", str(tmp_path / "further"), *timed)


@pytest.mark.slow
def test_new_parameters_have_a_learning_rate_of_their_own(tmp_path, encoder):
    still = ["--model_type", "tempoformer", "--freeze_encoder", "false", "--max_steps", "1"]
    still += ["--learning_rate", "0", "--warmup_steps", "0"]
    fine_tune(tmp_path / "still", encoder, *still)
    fine_tune(tmp_path / "new", encoder, *still, "--new_parameters_learning_rate", "0.1")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("still", "new"))
    pretrained = load_file(Path(encoder) / "model.safetensors")
    encoder_names = {name for name in after for part in pretrained if name.endswith(f".{part}")}
    assert len(encoder_names) == len(pretrained)
    for name, weights in after.items():
        assert torch.equal(weights, before[name]) == (name in encoder_names), name


@pytest.mark.slow
def test_over_a_frozen_encoder_all_else_learns_and_the_saved_model_reads_tokens(tmp_path, encoder):
    post_model = ["--model_type", "post_tempoformer", "--freeze_encoder", "--max_steps"]
    at_once = ["--warmup_steps", "0", "--load_best_model_at_end", "false"]
    fine_tune(tmp_path / "still", encoder, *post_model, "1", *at_once, "--learning_rate", "0")
    vectors = fine_tune(tmp_path / "out", encoder, *post_model, "8", *at_once, "--learning_rate", "1e-2")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("still", "out"))
    pretrained = load_file(Path(encoder) / "model.safetensors")
    for name, weights in after.items():
        if name.startswith("tempoformer.encoder."):
            assert torch.equal(weights, pretrained[name.removeprefix("tempoformer.encoder.")]), name
        # Experts are not trained in steps, and these posts are too few for 48 components.
        elif not name.startswith(("trees.", "mixture.", "tempoformer.words.")):
            assert not torch.equal(weights, before[name]), name
    assert after["tempoformer.words.weight"].any()
    leaves = after["trees.leaves"].sum(-1)
    torch.testing.assert_close(leaves, torch.ones_like(leaves))
    saved = ["--model_name_or_path", str(tmp_path / "out"), "--test_file", str(tmp_path / "posts.csv")]
    assert_same_predictions(run(tmp_path / "tokens", *saved), vectors)
    results = read_json(tmp_path / "out" / "all_results.json")
    assert "trees" not in results["validation"]["compared_with"]
    # Every post outside the test part is predicted by the member that has not learned from it.
    assert results["validation"]["posts"] + results["test"]["posts"] == len(POSTS)
    fixed = ("tempoformer.encoder.", "tempoformer.words.", "trees.", "mixture.")
    new = [weights for name, weights in after.items() if not name.startswith(fixed)]
    assert results["train"]["parameters"] == sum(weights.numel() for weights in new)


@pytest.mark.slow
@pytest.mark.parametrize("evaluates", [True, False])
def test_a_model_of_one_class_is_called_so_at_the_end(tmp_path, encoder, caplog, evaluates):
    """In a window of one, posts of one text are the same. Without --do_eval an evaluation of the training counts."""
    posts = [{**post, "text": "the plane"} for post in POSTS]
    steps = ["--do_train", *["--do_eval"] * evaluates]
    settings = ["--max_steps", "2", "--window", "1", "--config_overrides", '{"num_members": 1, "num_trees": 0}']
    file = write_posts(tmp_path / "posts.csv", posts)
    run(tmp_path / "out", "--model_name_or_path", encoder, "--train_file", file, *steps, *settings)
    warnings = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    (warning,) = (text for text in warnings if "learned nothing" in text)
    assert any(name in warning for name in NAMES)


@pytest.mark.slow
def test_the_same_command_again_loads_the_model_and_another_is_refused(tmp_path, encoder):
    first = fine_tune(tmp_path / "out", encoder, "--calibrate")
    results = read_json(tmp_path / "out" / "all_results.json")
    written = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    assert_same_predictions(fine_tune(tmp_path / "out", encoder, "--calibrate"), first)
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == written
    others = read_json(tmp_path / "out" / "all_results.json")
    assert others["train"] == results["train"]
    assert others["validation"]["macro_f1"] == pytest.approx(results["validation"]["macro_f1"])
    # Another seed has other training posts, so a test post may have been trained on.
    for other in (["--seed", "2"], ["--window", "5"]):
        with pytest.raises(ValueError, match="checkpoint-.*--output_dir"):
            fine_tune(tmp_path / "out", encoder, "--calibrate", *other)


@pytest.mark.slow
def test_a_model_keeps_the_class_to_watch(tmp_path, encoder):
    """By default it is the rarest of the training posts. A run of the ended training changes it without training."""
    folder = tmp_path / "out"
    fine_tune(folder, encoder)
    counts = pd.Series([post["label"] for post in POSTS]).value_counts()
    rarest, other = NAMES.index(counts.idxmin()), NAMES.index(counts.idxmax())
    assert read_json(folder / "config.json")["watched"] == rarest
    written = (folder / "model.safetensors").stat().st_mtime_ns
    fine_tune(folder, encoder, "--watch", NAMES[other])
    assert read_json(folder / "config.json")["watched"] == other
    assert (folder / "model.safetensors").stat().st_mtime_ns == written
    assert read_json(folder / "all_results.json")["test"]["watched"] == NAMES[other]
    # A model that is trained further keeps its class.
    more = write_posts(tmp_path / "more.csv", with_other_ids(POSTS, "more"))
    fine_tune(tmp_path / "further", str(folder), "--train_file", more)
    assert read_json(tmp_path / "further" / "config.json")["watched"] == other
    with pytest.raises(ValueError, match="--watch must be one of No-Switch, Switch, got 'Shift'"):
        fine_tune(tmp_path / "none", encoder, "--watch", "Shift")


def test_a_folder_has_one_run_at_a_time(tmp_path, encoder):
    with lock_folder(tmp_path / "out"):
        with pytest.raises(ValueError, match="out"):
            fine_tune(tmp_path / "out", encoder)
    with lock_folder(tmp_path / "out"):
        pass


@pytest.mark.parametrize("line", ["split_by: day", "learning_rate: fast"])
def test_recipe_values_are_checked(tmp_path, line, capsys):
    (tmp_path / "recipe.yaml").write_text(f"output_dir: out\nmodel_name_or_path: x\n{line}\n")
    with pytest.raises(SystemExit):
        main([str(tmp_path / "recipe.yaml")])
    assert line.split()[1] in capsys.readouterr().err


def test_of_several_recipes_the_later_ones_win(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("config_name: a\nmodel_name_or_path: b\nconfig_overrides: {head: lstm, fusion: none}\n")
    second.write_text("config_name: null\nconfig_overrides: {fusion: gate, num_stream_layers: 3}\n")
    (model,) = parse([ModelArguments], [str(first), str(second), "--config_overrides", '{"num_stream_layers": 4}'])
    assert model.config_name is None and model.model_name_or_path == "b"
    assert model.config_overrides == {"head": "lstm", "fusion": "gate", "num_stream_layers": 4}


def test_a_training_has_at_least_the_steps_of_its_recipe_or_the_epochs_of_the_command(tmp_path):
    steps, epochs, fewer = (tmp_path / f"{name}.yaml" for name in ("steps", "epochs", "fewer"))
    steps.write_text("num_train_epochs: 4\nmin_steps: 400\noutput_dir: out\n")
    epochs.write_text("num_train_epochs: 2\n")
    fewer.write_text("num_train_epochs: 2\nmin_steps: 0\n")

    def epochs_of(*arguments) -> float:
        given = ["--config_name", "configuration/encoder_tiny.json", "--do_train", "--output_dir", "out"]
        *_, training = fine_tuning.read_arguments([*map(str, arguments), *given])
        # An epoch has two steps.
        training.extend_epochs(num_rows=2 * training.train_batch_size)
        return training.num_train_epochs

    assert epochs_of(steps) == epochs_of(steps, epochs) == epochs_of(epochs, steps) == 200
    assert epochs_of(steps, fewer) == epochs_of(steps, "--num_train_epochs", "2") == 2
    assert epochs_of(steps, "--min_steps", "30") == epochs_of(steps, "--num_train_epochs=9", "--min_steps", "30") == 15
    assert epochs_of(steps, "--min_steps", "3") == 4
    assert epochs_of() == 3


def test_a_user_s_error_is_one_line_and_a_bug_has_its_traceback(tmp_path, monkeypatch):
    command = ["--config_name", "configuration/encoder_tiny.json", "--train_file", "nowhere.csv", "--do_train"]
    monkeypatch.setattr(sys, "argv", ["run_glue_style.py", *command, "--output_dir", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        run_script(main)
    assert ended.value.code.startswith("error: ") and "nowhere.csv" in ended.value.code
    assert "\n" not in ended.value.code
    with pytest.raises(KeyError):
        run_script(lambda arguments: {}[0])

    def lacks_a_package(arguments: list[str]):
        raise ImportError("This needs a package: install it.")

    with pytest.raises(SystemExit, match="^error: This needs a package: install it.$"):
        run_script(lacks_a_package)
