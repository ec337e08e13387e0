"""
Checks the runs of a cross-validation, the chosen learning rates, the collected scores, the comparison, and that a
repeated command skips finished runs.
"""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers import NAMES, ROOT, read_json, read_table, save_encoder, write_posts
from sklearn.metrics import f1_score

from modeling_tempoformer.baselines.methods import BASELINES
from modeling_tempoformer.commands import compare
from modeling_tempoformer.evaluation import cross_validation
from modeling_tempoformer.evaluation.cross_validation import (
    PREDICTIONS,
    CrossValidation,
    Run,
    collect,
    printed,
    to_predictions,
)
from modeling_tempoformer.evaluation.report import NO_DIFFERENCE
from modeling_tempoformer.posts.synthetic import synthetic_posts


pytestmark = pytest.mark.slow

INPUTS = {"posts": "a fingerprint"}


def write_run(arguments: list[str]):
    """
    Stands in for a training. It predicts rightly with a seed below 5, and otherwise always "Switch". On validation
    2e-3 is best in the first fold, 1e-3 in the others. It stops with a checkpoint if its folder has a file "stop".
    """
    folds_file, fold, options = arguments[0], int(arguments[1]), dict(zip(arguments[2:], arguments[3:]))
    folder, seed = Path(options["--output_dir"]), int(options["--seed"])
    print("it runs", flush=True)
    (folder / "checkpoint-1").mkdir(exist_ok=True)
    if (folder / "stop").exists():
        sys.exit("no more memory")
    test = read_json(Path(folds_file))[fold]["test"]
    posts = [post for post in read_table(Path(options["--train_file"])) if post["timeline_id"] in test]
    for post in posts:
        post["prediction"] = post["label"] if seed < 5 else "Switch"
        post |= {"probability_No-Switch": 0.7, "probability_Switch": 0.3}
    names = ["post_id", "timeline_id", "text", "label", "prediction", "probability_No-Switch", "probability_Switch"]
    write_posts(folder / "_predictions.csv", [{name: post[name] for name in names} for post in posts])
    macro_f1 = 0.9 if (options.get("--learning_rate") == "2e-3") == (fold == 0) else 0.5
    results = {"train": {"seconds": 3.0 + fold}, "validation": {"macro_f1": macro_f1}, "test": {"loss": 1.0}}
    (folder / "all_results.json").write_text(json.dumps(results))


@pytest.fixture
def start(tmp_path):
    """Cross-validates twelve timelines in three folds with the function above."""
    posts = [{"post_id": f"{number:03}", **post} for number, post in enumerate(synthetic_posts(12, 0, 5))]
    file = write_posts(tmp_path / "posts.csv", posts)
    timelines = list(dict.fromkeys(post["timeline_id"] for post in posts))
    thirds = [timelines[:4], timelines[4:8], timelines[8:]]
    folds = [{"train": thirds[fold - 1], "validation": thirds[fold - 2], "test": thirds[fold]} for fold in range(3)]

    (tmp_path / "folds.json").write_text(json.dumps(folds))

    def run(output: Path, *arguments: str, seeds=(0,), inputs=INPUTS, folds="folds.json", **settings) -> list[Run]:
        given = ["--train_file", file, *arguments]
        return CrossValidation(output, write_run, given, inputs, tmp_path / folds, seeds, **settings).execute_all()

    return run


def count_runs(output: Path) -> int:
    return sum(log.read_text().count("it runs") for log in output.rglob("run.log"))


def test_rates_are_chosen_on_validation_and_every_post_is_scored_once_for_each_seed(tmp_path, start):
    output = tmp_path / "out"
    for _ in range(2):
        # Two rates with the first seed in three folds, and the chosen one with the second seed. Then nothing is left.
        runs = start(output, seeds=(0, 7), learning_rates=["1e-3", "2e-3"])
        assert count_runs(output) == 3 * 2 + 3
    assert not list(output.rglob("checkpoint-*"))
    collect(output, runs, NAMES)
    results = read_json(output / "results.json")
    assert results["learning_rates"] == {"0": "2e-3", "1": "1e-3", "2": "1e-3"}
    assert results["seeds"] == [0, 7] and results["labels"] == NAMES
    assert results["train_seconds"] == pytest.approx(4) and results["parameters"] is None
    assert results["validation_macro_f1"] == [0.9] * 6
    posts = pd.read_csv(tmp_path / "posts.csv", dtype=str)
    constant = f1_score(posts["label"], ["Switch"] * len(posts), average="macro")
    assert results["scores"]["macro_f1"]["mean"] == pytest.approx((1 + constant) / 2)
    assert results["scores"]["macro_f1"]["std"] == pytest.approx((1 - constant) / 2**0.5)
    # The score is computed over all test posts of all folds, as the other scores are.
    error = abs(0.7 - (posts["label"] == "No-Switch").mean())
    assert results["scores"]["expected_calibration_error"] == {"mean": pytest.approx(error), "std": pytest.approx(0)}
    assert "loss" not in results["scores"]
    predictions = pd.read_csv(output / PREDICTIONS, dtype=str)
    # Texts are left out, because each seed would repeat them.
    assert list(predictions)[:6] == ["seed", "fold", "post_id", "timeline_id", "label", "prediction"]
    for _, rows in predictions.groupby("seed"):
        assert sorted(rows["post_id"]) == sorted(posts["post_id"])


def test_one_rate_for_all_folds(tmp_path, start):
    runs = start(tmp_path / "out", learning_rates=["1e-3", "2e-3"], tune_on_first_fold=True)
    assert {run.learning_rate for run in runs} == {"2e-3"} and count_runs(tmp_path / "out") == 4
    runs = start(tmp_path / "only", learning_rates=["1e-3"])
    assert {run.learning_rate for run in runs} == {"1e-3"} and count_runs(tmp_path / "only") == 3


@pytest.mark.parametrize("settings", [{}, {"tune_on_first_fold": True}, {"learning_rates": []}])
def test_the_first_run_tells_how_many_others_there_are(tmp_path, start, settings):
    output, settings = tmp_path / "out", {"learning_rates": ["1e-3", "2e-3"], **settings}
    start(tmp_path / "all", seeds=(0, 7), **settings)
    given = ["--train_file", str(tmp_path / "posts.csv")]
    first = CrossValidation(
        output, write_run, given, INPUTS, tmp_path / "folds.json", (0, 7), **settings
    ).execute_first
    seconds, others = first()
    assert seconds > 0 and others == count_runs(tmp_path / "all") - 1
    # It is a run as any other, and is not repeated.
    assert first() == (None, others)
    start(output, seeds=(0, 7), **settings)
    assert count_runs(output) == count_runs(tmp_path / "all")


def test_results_of_another_command_are_not_taken_for_these(tmp_path, start):
    runs = start(tmp_path / "out")
    folds = read_json(tmp_path / "folds.json")
    folds[0]["train"].append(folds[0]["validation"].pop())
    (tmp_path / "others.json").write_text(json.dumps(folds))
    for arguments, settings in (
        (["--window", "3"], {}),
        ([], {"inputs": {"posts": "another"}}),
        ([], {"folds": "others.json"}),
    ):
        with pytest.raises(ValueError, match="fold_0.*--output_dir"):
            start(tmp_path / "out", *arguments, **settings)
    assert start(tmp_path / "out") == runs and count_runs(tmp_path / "out") == 3


def test_an_interrupted_run_is_started_again(tmp_path, start):
    output = tmp_path / "out"
    stopped = Run(output, 1, None, 0).folder
    stopped.mkdir(parents=True)
    (stopped / "stop").touch()
    with pytest.raises(ChildProcessError) as failure:
        start(output)
    for part in (str(stopped), "exit status 1", "run.log", "no more memory"):
        assert part in str(failure.value)
    (stopped / "stop").unlink()
    runs = start(output)
    # The first fold once, the second twice, the third once.
    assert count_runs(output) == 4 and not list(output.rglob("checkpoint-*"))
    # The time of the resumed run is not the time of the whole training.
    collect(output, runs, NAMES)
    assert read_json(output / "results.json")["train_seconds"] == pytest.approx((3 + 5) / 2)


def write_runs(
    output: Path, labels: list[str], predicted: list[str], seed: int = 0, size: int = 2, seconds=None, names=NAMES
) -> list[Run]:
    """Writes the files of finished runs, with folds of one timeline of `size` posts."""
    runs = []
    for fold in range(len(labels) // size):
        run = Run(output, fold, None, seed)
        run.folder.mkdir(parents=True)
        rows = [
            {"post_id": f"00{post}", "timeline_id": f"{fold}e0", "label": labels[post], "prediction": predicted[post]}
            | {f"probability_{name}": 1 / 2 for name in names}
            for post in range(size * fold, size * (fold + 1))
        ]
        write_posts(run.folder / "_predictions.csv", rows)
        training = {} if seconds is None else {"train": {"seconds": seconds + fold}}
        (run.folder / "all_results.json").write_text(json.dumps({**training, "test": {}}))
        runs.append(run)
    return runs


def test_ids_and_labels_stay_as_they_are_written(tmp_path):
    names = ["None", "1.0"]
    runs = write_runs(tmp_path, ["None", "1.0", "", "None"], ["None", "", "1.0", "None"], names=names)
    collect(tmp_path, runs, names)
    rows = read_table(tmp_path / PREDICTIONS)
    assert [row["post_id"] for row in rows] == ["000", "001", "002", "003"]
    assert [row["timeline_id"] for row in rows] == ["0e0", "0e0", "1e0", "1e0"]
    assert [row["prediction"] for row in rows] == ["None", "", "1.0", "None"]
    scores = read_json(tmp_path / "results.json")["scores"]
    # The post without a label does not count; the one without a prediction is wrong.
    assert scores["f1_None"] == {"mean": pytest.approx(1), "std": None}
    assert scores["f1_1.0"]["mean"] == pytest.approx(0)


@pytest.mark.parametrize(
    ("labels", "seed", "problem"),
    [
        (["Switch", "No-Switch"], 1, "seed"),
        (["Switch", "No-Switch", "Switch", "Switch"], 0, "002"),
        (["Switch", "Switch"], 0, "001.*'(No-)?Switch'"),
    ],
)
def test_other_posts_are_not_compared(tmp_path, labels, seed, problem):
    ours = ["Switch", "No-Switch"]
    collect(tmp_path / "ours", write_runs(tmp_path / "ours", ours, ours), NAMES)
    collect(tmp_path / "theirs", write_runs(tmp_path / "theirs", labels, labels, seed), NAMES)
    with pytest.raises(ValueError, match=problem):
        cross_validation.compare(tmp_path / "ours", tmp_path / "theirs", NAMES)


# Two timelines of four posts.
ACTUAL = [0, 1, 1, 0, 0, 0, 1, 0]


def named(classes: list[int]) -> list[str]:
    return [NAMES[label] for label in classes]


def macro(predicted: list[int], posts=range(8)) -> float:
    actual, predicted = [ACTUAL[post] for post in posts], [predicted[post] for post in posts]
    return f1_score(actual, predicted, average="macro", labels=[0, 1], zero_division=0.0)


def test_the_table_has_what_the_predictions_say(tmp_path):
    ours, again, theirs = [0, 1, 1, 0, 0, 1, 1, 0], ACTUAL, [0, 1, 0, 1, 0, 0, 0, 0]
    methods = {"default": (ours, again, 100), "bilstm": (theirs, ours, 3), "class_prior": ([1] * 8, [0] * 8, None)}
    for method, (*predicted, seconds) in methods.items():
        runs = [
            run
            for seed, classes in enumerate(predicted)
            for run in write_runs(tmp_path / method, named(ACTUAL), named(classes), seed, 4, seconds)
        ]
        collect(tmp_path / method, runs, NAMES)
    header, *lines = compare.write_comparison(tmp_path, list(methods), NAMES, "my_encoder").splitlines()
    rows = pd.read_csv(tmp_path / "comparison.csv", index_col="method")
    assert list(rows.index) == list(methods)
    bilstm = rows.loc["bilstm"]
    assert bilstm["macro_f1"] == pytest.approx((macro(theirs) + macro(ours)) / 2)
    assert bilstm["macro_f1_std"] == pytest.approx(abs(macro(theirs) - macro(ours)) / 2**0.5)
    assert bilstm["f1_Switch"] == pytest.approx((f1_score(ACTUAL, theirs) + f1_score(ACTUAL, ours)) / 2)
    # A resample of two timelines has the first twice, both, or the second twice, each with more than 2.5 %.
    first, second = list(range(4)), list(range(4, 8))
    resampled = [
        (macro(ours, posts) + macro(again, posts) - macro(theirs, posts) - macro(ours, posts)) / 2
        for posts in (first * 2, first + second, second * 2)
    ]
    assert bilstm["difference"] == pytest.approx(resampled[1])
    assert (bilstm["low"], bilstm["high"]) == (pytest.approx(min(resampled)), pytest.approx(max(resampled)))
    # A single class is predicted by one run of bilstm (second fold, first seed) and by all four runs of the last
    # method.
    assert list(rows["one_class_runs"]) == [0, 1, 4] and bilstm["runs"] == 4
    assert bilstm["train_seconds"] == pytest.approx(3.5) and pd.isna(rows.loc["class_prior", "train_seconds"])
    assert pd.isna(rows.loc["default", "difference"])

    # The file has the methods' short names, and a table for people their names in sentences.
    assert "the default above it by (95 %)" in header
    for line, name in zip(lines, ("the default ", "BiLSTM ", "class prior "), strict=True):
        assert line.startswith(name)
    spread = f"{bilstm['macro_f1']:.3f} ± {bilstm['macro_f1_std']:.3f}"
    interval = f"{resampled[1]:+.3f} ({min(resampled):+.3f} to {max(resampled):+.3f})"
    assert spread in lines[1] and interval in lines[1] and " to " not in lines[0]
    # The same for a paper, with what was compared. Underscores are escaped.
    latex = (tmp_path / "comparison.tex").read_text(encoding="utf-8")
    assert "class prior & " in latex and f"{spread} &" in latex and interval in latex
    caption = next(line for line in latex.splitlines() if line.startswith("\\caption"))
    for words in ("my\\_encoder", "n = 8 ", "2 timelines", "2 seeds", "95 \\%"):
        assert words in caption


@pytest.mark.parametrize(("low", "high", "can_tell"), [(0.01, 0.2, True), (-0.2, -0.01, True), (-0.01, 0.2, False)])
def test_the_interval_of_a_difference_decides_about_the_words(low, high, can_tell):
    row = {"macro_f1": 0.5, "macro_f1_std": None, "difference": 0.123, "low": low, "high": high, "train_seconds": None}
    cells = printed({**row, "one_class_runs": 0, "runs": 1}, "trees", [])
    cell = cells["trees above it by (95 %)"]
    assert ("+0.123" in cell) == can_tell == (NO_DIFFERENCE not in cell) and f"{low:+.3f} to {high:+.3f}" in cell


def test_baselines_ignore_what_they_cannot_read():
    """With its values and however it is written, and what the default reads stays for it."""
    passed_on = ["default.yaml", "--known_states", "true", "--window=3", "--freeze-layers", "2", "--labels", "a", "b"]
    passed_on += ["--no_change_label", "a"]
    assert compare.arguments_of("default", passed_on, BASELINES) == passed_on
    kept = ["--window=3", "--labels", "a", "b"]
    recipe, *given = compare.arguments_of("trees", passed_on, BASELINES)
    assert recipe.endswith("default.yaml")
    assert given == ["--method", "trees", *kept, "--config_overrides", "null"]


def test_methods_are_compared_with_the_real_commands(tmp_path, monkeypatch, capsys):
    """The folds are given."""
    monkeypatch.chdir(ROOT)
    made = list(synthetic_posts(12, seed=0, posts_per_timeline=5))
    posts, output, folds = write_posts(tmp_path / "posts.csv", made), tmp_path / "out", tmp_path / "folds.json"
    people = list(dict.fromkeys(post["timeline_id"] for post in made))
    halves = ((people[:6], people[6:]), (people[6:], people[:6]))
    folds.write_text(json.dumps([{"test": test, "validation": rest[:2], "train": rest[2:]} for test, rest in halves]))
    methods = ["default", "class_prior", "trees"]
    command = ["--output_dir", str(output), "--folds_file", str(folds), "--seeds", "0", "--methods", *methods, "--"]
    command += ["--model_name_or_path", save_encoder(tmp_path / "encoder"), "--train_file", posts, "--max_steps", "2"]
    compare.main(command)
    shown = capsys.readouterr().out
    files = {path: path.stat().st_mtime_ns for path in output.glob("*/fold_*/**/*")}
    compare.main(command)
    assert {path: path.stat().st_mtime_ns for path in output.glob("*/fold_*/**/*")} == files
    assert [path.parent for path in output.rglob("folds.json")] == [output]
    rows = pd.read_csv(output / "comparison.csv", index_col="method").to_dict("index")
    tested = {}
    for method in methods:
        predictions = pd.read_csv(output / method / "predictions.csv").sort_values("post_id")
        tested[method] = predictions[["post_id", "timeline_id", "fold", "label"]].to_numpy().tolist()
        expected = f1_score(predictions["label"], predictions["prediction"], average="macro")
        assert rows[method]["macro_f1"] == pytest.approx(expected)
        assert f"{expected:.3f}" in shown
    assert all(posts_of_method == tested["default"] for posts_of_method in tested.values())
    assert len(tested["default"]) == 60
    assert rows["default"]["train_seconds"] > 0
    assert "the default above it by (95 %)" in shown and "the paper's model" not in shown


def test_the_paper_s_model_is_not_called_the_default(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    command = ["--output_dir", str(tmp_path / "out"), "--num_folds", "1", "--seeds", "0"]
    command += ["--methods", "class_prior", "default", "--", "--model_type", "tempoformer", "--max_steps", "1"]
    command += ["--model_name_or_path", save_encoder(tmp_path / "encoder"), "--train_file", posts]
    compare.main([*command, "--use_cpu"])
    rows = capsys.readouterr().out.splitlines()
    assert sum(row.startswith("the paper's model ") for row in rows) == 1
    assert not any(row.startswith("the default") for row in rows)


def test_times_of_predictions_may_be_dates_or_seconds():
    """Rows come in the order of time, which the order of the texts is not."""
    posts = {
        "timeline_id": "a",
        "label": "A",
        "prediction": ["A", "B"],
        "probability_A": "0.5",
        "probability_B": "0.5",
    }
    for times, seconds in ((["100.5", "20.0"], [20, 100.5]), (["2024-05-01T09:00:00Z"] * 2, [1714554000] * 2)):
        predictions = to_predictions(pd.DataFrame({**posts, "time": times}), ["A", "B"])
        assert predictions.times.tolist() == seconds
        assert predictions.predictions.tolist() == ([1, 0] if seconds[0] == 20 else [0, 1])
