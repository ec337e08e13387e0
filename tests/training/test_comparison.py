"""Several methods on the same folds: what each is given, and the table that compares them."""

import json
import runpy
from pathlib import Path

import pandas as pd
import pytest
from helpers import NAMES, ROOT, save_encoder, write_posts
from sklearn.metrics import f1_score

from modeling_tempoformer.baselines import find_baseline
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.training.arguments import DataTrainingArguments
from modeling_tempoformer.training.comparison import compare_methods
from modeling_tempoformer.training.cross_validation import Run
from modeling_tempoformer.training.cross_validation_scores import collect
from modeling_tempoformer.training.recipes import parse
from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments


# A fold is a timeline of four posts.
ACTUAL = [0, 1, 1, 0, 0, 0, 1, 0]


def write_method(output: Path, predicted: dict[int, list[int]], seconds: float | None):
    """The runs of a method: two folds under each seed, whose predictions are given."""
    runs = []
    for seed, classes in predicted.items():
        for fold in (0, 1):
            run = Run(output, fold, None, seed)
            run.folder.mkdir(parents=True)
            rows = [
                {"post_id": post, "timeline_id": fold, "label": NAMES[ACTUAL[post]]}
                | {"prediction": NAMES[classes[post]]}
                | {f"probability_{name}": 0.5 for name in NAMES}
                for post in range(4 * fold, 4 * fold + 4)
            ]
            write_posts(run.folder / "_predictions.csv", rows)
            training = {} if seconds is None else {"train": {"seconds": seconds + fold}}
            (run.folder / "all_results.json").write_text(json.dumps({**training, "test": {}}))
            runs.append(run)
    collect(output, runs, NAMES)


def macro(predicted: list[int], posts=range(8)) -> float:
    actual, predicted = [ACTUAL[post] for post in posts], [predicted[post] for post in posts]
    return f1_score(actual, predicted, average="macro", labels=[0, 1], zero_division=0.0)


def test_the_table_has_what_the_predictions_say(tmp_path):
    ours, again, theirs = [0, 1, 1, 0, 0, 1, 1, 0], ACTUAL, [0, 1, 0, 1, 0, 0, 0, 0]
    write_method(tmp_path / "tempoformer", {0: ours, 1: again}, seconds=100)
    write_method(tmp_path / "bilstm", {0: theirs, 1: ours}, seconds=3)
    write_method(tmp_path / "class_prior", {0: [1] * 8, 1: [0] * 8}, seconds=None)
    table = compare_methods(tmp_path, ["tempoformer", "bilstm", "class_prior"], NAMES)

    found = json.loads((tmp_path / "comparison.json").read_text())
    assert found["compared_with"] == "tempoformer"
    rows = found["methods"]
    assert list(rows) == ["tempoformer", "bilstm", "class_prior"]
    bilstm = rows["bilstm"]
    assert bilstm["macro_f1"] == pytest.approx((macro(theirs) + macro(ours)) / 2)
    assert bilstm["macro_f1_std"] == pytest.approx(abs(macro(theirs) - macro(ours)) / 2**0.5)
    assert bilstm["f1_Switch"] == pytest.approx((f1_score(ACTUAL, theirs) + f1_score(ACTUAL, ours)) / 2)
    # Of two timelines, a resample has the first twice, both, or the second twice; each in more than 2.5 % of all.
    first, second = list(range(4)), list(range(4, 8))
    resampled = [
        (macro(theirs, posts) + macro(ours, posts) - macro(ours, posts) - macro(again, posts)) / 2
        for posts in (first * 2, first + second, second * 2)
    ]
    assert bilstm["difference"] == pytest.approx(resampled[1])
    assert (bilstm["low"], bilstm["high"]) == (pytest.approx(min(resampled)), pytest.approx(max(resampled)))
    # The second fold under the first seed; all of what always says the same.
    assert [rows[method]["one_class_runs"] for method in rows] == [0, 1, 4] and bilstm["runs"] == 4
    assert bilstm["train_seconds"] == pytest.approx(3.5) and rows["class_prior"]["train_seconds"] is None
    assert rows["tempoformer"]["difference"] is None

    in_csv = pd.read_csv(tmp_path / "comparison.csv", index_col="method")
    assert in_csv.loc["bilstm", "low"] == pytest.approx(min(resampled)) and pd.isna(in_csv.loc["tempoformer", "low"])
    header, *lines = table.splitlines()
    assert "less tempoformer (95 %)" in header and [line.split()[0] for line in lines] == list(rows)
    spread = f"{(macro(theirs) + macro(ours)) / 2:.3f} ± {abs(macro(theirs) - macro(ours)) / 2**0.5:.3f}"
    interval = f"{resampled[1]:+.3f} ({min(resampled):+.3f} to {max(resampled):+.3f})"
    assert spread in lines[1] and interval in lines[1] and lines[1].split()[-4:] == ["1", "of", "4", "4"]
    # What there is none of is left out: the time of a method that is not trained, and the first one's difference.
    assert lines[2].rstrip().endswith("4 of 4") and " to " not in lines[0]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.chdir(ROOT)
    return runpy.run_path(str(ROOT / "run_cross_validation.py"))


@pytest.mark.parametrize(("method", "rate", "batch"), [("bilstm", 1e-3, 64), ("seq_sig_net", 5e-4, 64)])
def test_a_method_has_the_settings_of_its_recipe(tmp_path, script, method, rate, batch):
    (tmp_path / "mine.yaml").write_text(
        "window: 7\nlearning_rate: 0.5\nper_device_train_batch_size: 3\nconfig_overrides: {focal_gamma: 1.0}\n"
    )
    passed_on = [str(tmp_path / "mine.yaml"), "--model_name_or_path", "M", "--train_file", "posts.csv"]
    assert script["arguments_of"]("tempoformer", passed_on) == passed_on
    given = [*script["arguments_of"](method, passed_on), "--output_dir", str(tmp_path)]
    baseline, data, training = parse([find_baseline(method), DataTrainingArguments, StreamTrainingArguments], given)
    assert (baseline.method, baseline.model_name_or_path, baseline.config_overrides) == (method, "M", None)
    # The window of a stream is the same for all.
    assert data.window == 7 and training.learning_rate == rate and training.per_device_train_batch_size == batch
    assert training.load_best_model_at_end and training.metric_for_best_model == "macro_f1"


@pytest.mark.slow
def test_methods_are_compared_with_the_real_scripts(tmp_path, script, capsys):
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    output = tmp_path / "out"
    methods = ["tempoformer", "bilstm", "class_prior"]
    command = ["--output_dir", str(output), "--num_folds", "2", "--seeds", "0", "--methods", *methods, "--"]
    command += ["--model_name_or_path", save_encoder(tmp_path / "encoder"), "--train_file", posts, "--max_steps", "2"]
    script["main"](command)
    shown = capsys.readouterr().out
    files = {path: path.stat().st_mtime_ns for path in output.glob("*/fold_*/**/*")}
    script["main"](command)
    assert {path: path.stat().st_mtime_ns for path in output.glob("*/fold_*/**/*")} == files
    assert [path.parent for path in output.rglob("folds.json")] == [output]
    rows = json.loads((output / "comparison.json").read_text())["methods"]
    tested = {}
    for method in methods:
        predictions = pd.read_csv(output / method / "predictions.csv").sort_values("post_id")
        tested[method] = predictions[["post_id", "timeline_id", "fold", "label"]].to_numpy().tolist()
        expected = f1_score(predictions["label"], predictions["prediction"], average="macro")
        assert rows[method]["macro_f1"] == pytest.approx(expected)
        assert f"{expected:.3f}" in shown
    assert tested["tempoformer"] == tested["bilstm"] == tested["class_prior"] and len(tested["bilstm"]) == 60
