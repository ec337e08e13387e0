"""Folds, learning rates and seeds: what is run, chosen, collected, and taken up again."""

import csv
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import ROOT, write_posts
from sklearn.metrics import f1_score

from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.training import cross_validation
from modeling_tempoformer.training.cross_validation import Run, RunError, compare, run_all


@pytest.fixture
def script(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    return runpy.run_path(str(ROOT / "run_cross_validation.py"))["main"]


@pytest.fixture
def posts(tmp_path) -> str:
    return write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))


@pytest.fixture
def started(monkeypatch) -> list[list[str]]:
    """
    Stands in for the script: every run writes a prediction for each of its test posts, right with a seed below 5 and
    "Switch" else, and a dev score that prefers 2e-3 in the first fold and 1e-3 in the others. The commands come here.
    """
    commands = []

    def call(command, **kwargs):
        commands.append(command[2:])
        options = dict(zip(command[2:], command[3:], strict=False))
        folder, fold, seed = Path(options["--output_dir"]), int(options["--fold"]), int(options["--seed"])
        test = json.loads(Path(options["--folds_file"]).read_text())[fold]["test"]
        with open(options["--train_file"], newline="") as file:
            rows = [
                {
                    "post_id": str(number),
                    "timeline_id": post["timeline_id"],
                    "label": post["label"],
                    "prediction": post["label"] if seed < 5 else "Switch",
                }
                for number, post in enumerate(csv.DictReader(file))
                if post["timeline_id"] in test
            ]
        write_posts(folder / "_predictions.csv", rows)
        dev = 0.9 if (options.get("--learning_rate") == "2e-3") == (fold == 0) else 0.5
        scores = {"eval_macro_f1": dev, "train_runtime": 3.0, "predict_missed_Switch": fold / 10}
        (folder / "all_results.json").write_text(json.dumps(scores))
        (folder / "checkpoint-1").mkdir(exist_ok=True)
        return 0

    monkeypatch.setattr(cross_validation, "call_process", call)
    return commands


def results_of(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_rates_are_chosen_on_dev_and_every_post_is_scored_once_for_each_seed(tmp_path, script, posts, started):
    output = tmp_path / "out"
    own = ["--output_dir", str(output), "--num_folds", "3", "--seeds", "0", "7", "--learning_rates", "1e-3", "2e-3"]
    passed_on = ["--", "configuration/demo.yaml", "--train_file", posts]
    script([*own, *passed_on])
    # Two rates with the first seed in three folds, and the chosen one with the second seed.
    assert len(started) == 3 * 2 + 3
    results = results_of(output)
    assert results["learning_rates"] == {"0": "2e-3", "1": "1e-3", "2": "1e-3"}
    assert results["seeds"] == [0, 7] and results["folds"] == 3 and results["train_seconds"] == 3.0
    with open(posts, newline="") as file:
        actual = [post["label"] for post in csv.DictReader(file)]
    constant = f1_score(actual, ["Switch"] * len(actual), average="macro")
    assert results["scores_of_seeds"]["0"]["macro_f1"] == 1
    assert results["scores_of_seeds"]["7"]["macro_f1"] == pytest.approx(constant)
    assert results["scores"]["macro_f1"]["mean"] == pytest.approx((1 + constant) / 2)
    assert results["scores"]["macro_f1"]["std"] == pytest.approx((1 - constant) / 2**0.5)
    # The mean of the folds 0, 0.1 and 0.2 under each seed.
    assert results["scores"]["missed_Switch"] == {"mean": pytest.approx(0.1), "std": pytest.approx(0)}
    assert not list(output.rglob("checkpoint-*"))

    script([*own, *passed_on])
    assert len(started) == 9
    with pytest.raises(RunError, match="run with other arguments"):
        script([*own, *passed_on, "--window", "3"])
    folds = json.loads((output / "folds.json").read_text())
    folds[0]["train"].append(folds[0]["validation"].pop())
    (output / "folds.json").write_text(json.dumps(folds))
    with pytest.raises(RunError, match="other arguments, recipes, posts or folds"):
        script([*own, *passed_on])


@pytest.mark.parametrize("changed", ["recipe.yaml", "posts.csv"])
def test_results_of_other_recipes_or_posts_are_not_taken_for_these(tmp_path, script, posts, started, changed):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("window: 3\nconfig_name: configuration/encoder_tiny.json\n")
    command = ["--output_dir", str(tmp_path / "out"), "--num_folds", "2", "--seeds", "0", "--"]
    command += [str(recipe), "--train_file", posts]
    script(command)
    script(command)
    assert len(started) == 2
    before, after = {"recipe.yaml": ("window: 3", "window: 4"), "posts.csv": (",Switch", ",No-Switch")}[changed]
    text = (tmp_path / changed).read_text()
    (tmp_path / changed).write_text(text.replace(before, after, 1))
    with pytest.raises(RunError, match="is of a run with other arguments, recipes, posts or folds"):
        script(command)
    assert len(started) == 2
    (tmp_path / changed).write_text(text)
    script(command)


def shares_of(folds_file: Path) -> tuple[int, set[float]]:
    """How many folds, and which share of the timelines outside the test part (of all five posts) is validated."""
    folds = json.loads(folds_file.read_text())
    return len(folds), {round(len(fold["validation"]) / (12 - len(fold["test"])), 2) for fold in folds}


def test_folds_are_those_that_are_asked_for(tmp_path, script, posts, monkeypatch):
    def stop(run, device):
        raise RunError("before it has begun")

    output = tmp_path / "out"
    own, recipe = ["--output_dir", str(output), "--seeds", "0"], ["--", "configuration/demo.yaml"]
    monkeypatch.setattr(Run, "execute", stop)
    for arguments, expected in (
        ([*own, "--num_folds", "2", *recipe, "--validation_fraction", "0.5"], (2, {0.5})),
        # As many as before, where no number is said.
        ([*own, *recipe, "--validation_fraction", "0.33"], (2, {0.33})),
        ([*own, "--num_folds", "3", *recipe], (3, {0.25})),
    ):
        with pytest.raises(RunError, match="before it has begun"):
            script([*arguments, "--train_file", posts])
        assert shares_of(output / "folds.json") == expected


def test_folds_of_runs_that_have_begun_stay(tmp_path, script, posts, started):
    output = tmp_path / "out"
    own, recipe = (
        ["--output_dir", str(output), "--seeds", "0"],
        ["--", "configuration/demo.yaml", "--train_file", posts],
    )
    script([*own, "--num_folds", "2", *recipe, "--validation_fraction", "0.5"])
    folds = (output / "folds.json").read_text()
    with pytest.raises(ValueError, match=r"folds.json was made with validation_fraction 0.5, not 0.25, and runs have"):
        script([*own, *recipe])
    with pytest.raises(ValueError, match=r"folds.json was made with num_folds 2, not 3, and runs have begun"):
        script([*own, "--num_folds", "3", *recipe, "--validation_fraction", "0.5"])
    script([*own, *recipe, "--validation_fraction", "0.5"])
    assert (output / "folds.json").read_text() == folds and len(started) == 2


def test_one_rate_for_all_folds_and_folds_given_back(tmp_path, script, posts, started):
    own = ["--num_folds", "3", "--seeds", "0", "--learning_rates", "1e-3", "2e-3", "--tune_on_first_fold"]
    passed_on = ["--", "configuration/demo.yaml", "--train_file", posts]
    script(["--output_dir", str(tmp_path / "one"), *own, *passed_on])
    assert set(results_of(tmp_path / "one")["learning_rates"].values()) == {"2e-3"} and len(started) == 4
    folds = tmp_path / "one" / "folds.json"
    script(["--output_dir", str(tmp_path / "two"), "--folds_file", str(folds), "--seeds", "9", *passed_on])
    assert results_of(tmp_path / "two")["folds"] == 3 and "--learning_rate" not in started[-1]


@pytest.mark.parametrize(
    ("own", "passed_on", "problem"),
    [
        (["--folds_file", "nowhere.json"], [], "nowhere.json does not exist"),
        (["--seeds", "1", "1"], [], "--seeds has a value twice: 1, 1"),
        (["--learning_rates", "1e-3", "1e-4", "1e-3"], [], "--learning_rates has a value twice"),
        ([], ["--seed", "3"], "--seed cannot come after `--`"),
        ([], ["--streaming"], "give no other file and no --streaming"),
        (["--learning_rates", "1e-3"], ["--method", "class_prior"], "cannot be given with --method class_prior"),
        (["--num_folds", "4", "--folds_file", "FOLDS"], [], "--num_folds 4, but .* has 3 folds"),
        (["--folds_file", "FOLDS"], ["--validation_frac=0.5"], "--validation_fraction cannot be given with --folds_f"),
        (["--folds_file", "TWICE"], [], "timelines are in no test part"),
        (["--folds_file", "EMPTY"], [], "fold 0: the validation part is empty"),
        (["--folds_file", "RARE"], ["--calibrate"], "RARE, fold 0: --calibrate needs .*none of: Rare"),
        (["--compare_to", "no/such"], [], "--compare_to no/such has no predictions.csv of a cross-validation"),
    ],
)
def test_what_cannot_be_cross_validated_is_said_before_the_first_run(
    tmp_path, script, posts, started, own, passed_on, problem
):
    timelines = list(dict.fromkeys(post["timeline_id"] for post in synthetic_posts(12, seed=0, posts_per_timeline=5)))
    folds = [
        {
            "train": [name for place, name in enumerate(timelines) if place % 3 == (fold + 1) % 3],
            "validation": [name for place, name in enumerate(timelines) if place % 3 == (fold + 2) % 3],
            "test": timelines[fold::3],
        }
        for fold in range(3)
    ]
    merged = {"train": folds[0]["train"] + folds[0]["validation"], "validation": [], "test": folds[0]["test"]}
    for name, content in (("FOLDS", folds), ("TWICE", [folds[0]] * 2), ("EMPTY", [merged]), ("RARE", folds)):
        (tmp_path / name).write_text(json.dumps(content))
    if "RARE" in own:
        # A class of the first fold's training part alone.
        rows = list(csv.DictReader(Path(posts).open(newline="")))
        next(row for row in rows if row["timeline_id"] == folds[0]["train"][0])["label"] = "Rare"
        write_posts(Path(posts), rows)
    own = [str(tmp_path / argument) if argument.isupper() else argument for argument in own]
    recipe = [] if "--method" in passed_on else ["configuration/demo.yaml"]
    with pytest.raises(ValueError, match=problem):
        script(["--output_dir", str(tmp_path / "out"), *own, "--", *recipe, "--train_file", posts, *passed_on])
    assert not started


def test_differences_are_paired_by_post(tmp_path, script, posts, started, capsys):
    passed_on = ["--", "configuration/demo.yaml", "--train_file", posts]
    for name, seeds in (("right", ["0", "1"]), ("other", ["1", "2"]), ("constant", ["7"])):
        script(["--output_dir", str(tmp_path / name), "--num_folds", "2", "--seeds", *seeds, *passed_on])
    same = compare(tmp_path / "right", tmp_path / "other", ["No-Switch", "Switch"])
    assert same["difference"] == 0 and tuple(same["interval"]) == (0, 0)
    with pytest.raises(ValueError, match="have no seed in common"):
        compare(tmp_path / "right", tmp_path / "constant", ["No-Switch", "Switch"])
    file = tmp_path / "other" / "predictions.csv"
    rows = file.read_text().splitlines(keepends=True)
    first = next(place for place, row in enumerate(rows) if row.startswith("1,") and ",No-Switch," in row)
    file.write_text("".join([*rows[:first], rows[first].replace(",No-Switch,", ",Switch,", 1), *rows[first + 1 :]]))
    with pytest.raises(ValueError, match="has the label 'No-Switch' in .*right and 'Switch' in .*other"):
        compare(tmp_path / "right", tmp_path / "other", ["No-Switch", "Switch"])
    file.write_text("".join(rows[:first] + rows[first + 1 :]))
    with pytest.raises(ValueError, match="do not have the same posts: post"):
        compare(tmp_path / "right", tmp_path / "other", ["No-Switch", "Switch"])


def test_a_moved_folder_is_taken_for_what_it_is(tmp_path, script, posts, started, monkeypatch):
    passed_on = ["--num_folds", "2", "--seeds", "0", "--", "configuration/demo.yaml", "--train_file", posts]
    script(["--output_dir", str(tmp_path / "out"), *passed_on])
    (tmp_path / "moved").mkdir()
    shutil.move(tmp_path / "out", tmp_path / "moved")
    script(["--output_dir", os.path.relpath(tmp_path / "moved" / "out"), *passed_on])
    assert len(started) == 2
    # The checkpoints of what is not done name the folder where they were written.
    (tmp_path / "moved" / "out" / "fold_0" / "seed_0" / "done").unlink()
    (tmp_path / "moved" / "out" / "fold_0" / "seed_0" / "checkpoint-1").mkdir()
    command = tmp_path / "moved" / "out" / "fold_0" / "seed_0" / "command.json"
    command.write_text(command.read_text().replace(str(tmp_path / "moved"), "elsewhere"))
    with pytest.raises(RunError, match="is of a run with other arguments"):
        script(["--output_dir", str(tmp_path / "moved" / "out"), *passed_on])


# Says its process id and waits, long enough for what is done to it.
WAITING = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--output_dir") + 1])
(folder / "writing").write_text(str(os.getpid()))
(folder / "writing").rename(folder / "started")
time.sleep(300)
"""
EXECUTED = """
import sys
from pathlib import Path
from modeling_tempoformer.training.cross_validation import Run
output, script = map(Path, sys.argv[1:])
Run(output, output / "folds.json", 0, None, 0, [], script, {}).execute()
"""


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def executing(tmp_path):
    """A process that executes a run, the run, and the id of the process that this one has started."""
    waiting = tmp_path / "waiting.py"
    waiting.write_text(WAITING)
    run = Run(tmp_path, tmp_path / "folds.json", 0, None, 0, [], waiting, {})
    process = subprocess.Popen([sys.executable, "-c", EXECUTED, str(tmp_path), str(waiting)], cwd=ROOT)
    child = run.folder / "started"
    while not child.exists():
        assert process.poll() is None
        time.sleep(0.05)
    child_id = int(child.read_text())
    yield process, run, child_id
    process.kill()
    process.wait()
    if is_alive(child_id):
        os.kill(child_id, signal.SIGKILL)


def test_a_terminated_run_leaves_no_process(executing):
    process, run, child = executing
    with pytest.raises(RunError, match="another process is running this"):
        run.execute()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM
    assert not is_alive(child)
    # The folder is free again: what fails now is the run.
    run.script.write_text("raise SystemExit('it was free')")
    with pytest.raises(RunError, match="it was free"):
        run.execute()


def test_what_a_killed_run_leaves_behind_keeps_its_folder(executing):
    process, run, child = executing
    process.kill()
    process.wait()
    assert is_alive(child)
    with pytest.raises(RunError, match="another process is running this"):
        run.execute()


@pytest.mark.parametrize(("visible", "expected"), [(None, ["0", "1"]), ("3,5", ["3", "5"])])
@pytest.mark.parametrize("processes", [1, 2])
def test_each_run_sees_one_gpu(tmp_path, monkeypatch, visible, expected, processes):
    """Also a single process's, or the Trainer would multiply the batch by the number of GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    seen = []

    def call(command, env, **settings):
        seen.append(env["CUDA_VISIBLE_DEVICES"])
        folder = Path(command[command.index("--output_dir") + 1])
        for name in ("all_results.json", "_predictions.csv"):
            (folder / name).touch()
        return 0

    monkeypatch.setattr(cross_validation, "call_process", call)
    for process in range(processes):
        runs = [Run(tmp_path, tmp_path / "folds.json", 0, None, seed, [], tmp_path, {}) for seed in range(processes)]
        run_all(runs, state_of(process, processes), "Runs")
    assert seen == expected[:processes]


def state_of(process: int, processes: int, waited=lambda: None) -> SimpleNamespace:
    return SimpleNamespace(
        local_process_index=process,
        process_index=process,
        num_processes=processes,
        is_main_process=process == 0,
        wait_for_everyone=waited,
    )


def test_processes_share_the_runs_out(tmp_path, monkeypatch):
    executed = []
    monkeypatch.setattr(Run, "execute", lambda run, device: executed.append(run.seed))
    runs = [Run(tmp_path, tmp_path / "folds.json", 0, None, seed, [], tmp_path, {}) for seed in range(5)]
    for process in (0, 1):
        state = state_of(process, 2, lambda: executed.append("waited"))
        run_all(runs, state, "Runs")
    assert executed == [0, 2, 4, "waited", 1, 3, "waited"]


def test_a_failing_run_shows_the_end_of_its_log(tmp_path, posts):
    broken = tmp_path / "broken.py"
    broken.write_text("print('reading'); raise SystemExit('no such encoder')")
    run = Run(tmp_path, tmp_path / "folds.json", 0, None, 0, [], broken, {})
    with pytest.raises(RunError, match="(?s)failed with exit status 1.*reading.*no such encoder"):
        run.execute()
    broken.write_text("print('nothing to do')")
    with pytest.raises(RunError, match="(?s)failed with exit status 0.*nothing to do"):
        run.execute()
    assert not run.is_done
    # It has trained nothing, so that other arguments can be given now.
    broken.write_text(
        "import pathlib, sys\nfolder = pathlib.Path(sys.argv[sys.argv.index('--output_dir') + 1])\n"
        "for name in ('all_results.json', '_predictions.csv'): (folder / name).touch()"
    )
    corrected = replace(run, arguments=["--warmup_steps", "3"])
    corrected.execute()
    assert corrected.is_done
    with pytest.raises(RunError, match="is of a run with other arguments"):
        run.execute()


def test_a_whole_cross_validation(tmp_path, script, posts):
    """With the real script: a baseline that needs no model, in processes of their own."""
    output = tmp_path / "out"
    script(
        ["--output_dir", str(output), "--num_folds", "2", "--seeds", "0", "--", "--method", "class_prior"]
        + ["--train_file", posts]
    )
    with (output / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["post_id"]) for row in rows) == list(range(60))
    results = results_of(output)
    expected = f1_score([row["label"] for row in rows], [row["prediction"] for row in rows], average="macro")
    assert results["scores"]["macro_f1"] == {"mean": pytest.approx(expected), "std": None}
    assert results["parameters"] is None
