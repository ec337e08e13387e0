"""Checks the metric on an example worked by hand, in a process without this package, and the code that calls it."""

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import ROOT, make_timeline
from huggingface_hub import HfApi
from modeling_tempoformer.metrics.change_detection import change_detection
from transformers import EvalPrediction

from modeling_tempoformer.evaluation.metrics import compute_metrics
from modeling_tempoformer.evaluation.report import group_by_class, score_part


FOLDER = ROOT / "metrics" / "change_detection"


def run_python(code: str, *, environment: dict[str, str], given: str = "") -> str:
    """Runs Python in the repository and returns the output."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=environment, input=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    """Returns an environment with caches of its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "XDG_"))}
    return {**others, "HF_HOME": str(home)}


# Two timelines. The post of a at 20 seconds has no label.
TIMELINES, TIMES = [*"aaaaa", *"bbb"], [0, 10, 20, 30, 60, 0, 5, 9]
REFERENCES, PREDICTIONS = [0, 1, -100, 1, 0, 0, 0, 1], [0, 0, 1, 1, 1, 1, 0, 0]
# The class that is predicted has 0.8.
PROBABILITIES = np.eye(2)[PREDICTIONS] * 0.6 + 0.2
OF_POSTS = {
    **{"macro_precision": (1 / 2 + 1 / 3) / 2, "macro_recall": (1 / 2 + 1 / 3) / 2, "macro_f1": (1 / 2 + 1 / 3) / 2},
    **{"precision_No": 2 / 4, "recall_No": 2 / 4, "f1_No": 1 / 2, "support_No": 4},
    **{"precision_Change": 1 / 3, "recall_Change": 1 / 3, "f1_Change": 1 / 3, "support_Change": 3},
}
# No is 1001 and 110, predicted as 1100 and 011. Change is its complement.
OF_TIMELINES = {
    **{"timeline_f1_No": (2 / 4 + 2 / 4) / 2, "timeline_f1_Change": (2 / 4 + 0) / 2},
    **{"timelines_of_half_No": 1, "timelines_of_half_Change": 1},
    **{"timelines_without_No": 0, "timelines_without_Change": 0},
    **{"window_precision_No": (1 / 2 + 1) / 2, "window_recall_No": (1 / 2 + 1) / 2},
    **{"window_precision_Change": (1 + 0) / 2, "window_recall_Change": (1 + 0) / 2},
    "coverage_precision_No": (1 / 2 + 1 / 3) / 2,
    "coverage_recall_No": ((1 * 1 / 2 + 1 * 0) / 2 + 1 / 3) / 2,
    **{"coverage_precision_Change": (1 / 3 + 0) / 2, "coverage_recall_Change": (1 / 3 + 0) / 2},
    **{"median_delay_posts_No": (0 + 1) / 2, "median_delay_posts_Change": 1},
    **{"missed_No": 1 / 3, "missed_Change": 1 / 2},
}
OF_TIMES = {"median_delay_seconds_No": (0 + 5) / 2, "median_delay_seconds_Change": 30 - 10}
OF_CHANGES = {"change_post_f1": 1 / 3, "change_timeline_f1": 1 / 4, "change_f1": (1 / 3 + 1 / 4) / 2}
OF_PROBABILITIES = {"expected_calibration_error": 0.8 - 3 / 7}


NAMES = {"label_names": ["No", "Change"]}
IDS = {"predictions": PREDICTIONS, "references": REFERENCES}
OF_ALL = {**OF_POSTS, **OF_TIMELINES, **OF_CHANGES, **OF_TIMES, **OF_PROBABILITIES}
EVERYTHING = {**IDS, "timelines": TIMELINES, "times": TIMES, "probabilities": PROBABILITIES}


def random_posts() -> dict[str, np.ndarray]:
    """Returns six timelines of nine random posts."""
    generator, shape = np.random.default_rng(0), (6, 9)
    labels = np.where(generator.random(shape) < 0.2, -100, generator.integers(3, size=shape))
    return {
        "logits": generator.normal(size=(*shape, 3)),
        "labels": labels,
        "times": generator.random(shape).cumsum(axis=1),
        "probabilities": generator.dirichlet([1, 1, 1], shape),
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, Any]:
    """Returns the findings of a process that cannot import this package."""
    code = """
import doctest, json, sys
sys.modules["modeling_tempoformer"] = None
import evaluate
metric = evaluate.load("metrics/change_detection")
given = json.load(sys.stdin)
results = {name: metric.compute(**inputs) for name, inputs in given.items()}
ids = given["ids"]
for start in range(0, 8, 3):
    metric.add_batch(**{name: values[start : start + 3] for name, values in ids.items()})
results["batches"] = metric.compute(timelines=given["rows"]["timelines"], label_names=["No", "Change"])
results["card"] = doctest.testfile("metrics/change_detection/README.md", module_relative=False)
results["class"] = doctest.testmod(sys.modules[type(metric).__module__])
print(json.dumps(results))
"""
    posts = random_posts()
    rows = {"predictions": posts["logits"].argmax(-1), "references": posts["labels"], "label_names": list("abc")}
    given = {
        # Posts are in reverse order, since times order them.
        "all": {**{name: values[::-1] for name, values in EVERYTHING.items()}, **NAMES, "no_change": "No"},
        "rows": {**{name: [values[:5], values[5:]] for name, values in IDS.items()}, "timelines": TIMELINES, **NAMES},
        "ids": IDS,
        "random": rows,
        "random timelines": {
            **rows,
            "timelines": np.repeat(range(6), 9),
            "times": posts["times"].ravel(),
            "probabilities": posts["probabilities"].reshape(-1, 3),
        },
    }
    written = json.dumps(given, default=lambda array: array.tolist())
    home = tmp_path_factory.mktemp("home")
    return json.loads(run_python(code, given=written, environment=environment(home)))


def test_a_worked_example_without_this_package(alone):
    assert alone["all"] == pytest.approx(OF_ALL)
    assert alone["rows"] == alone["batches"] == pytest.approx(OF_POSTS | OF_TIMELINES)
    numbered = {name.replace("No", "0").replace("Change", "1"): score for name, score in OF_POSTS.items()}
    assert alone["ids"] == pytest.approx(numbered)


def test_the_examples_of_the_card_and_of_the_class(alone):
    for failed, attempted in (alone["card"], alone["class"]):
        assert attempted >= 4 and failed == 0


def test_the_trainer_and_the_reports_have_the_scores_of_the_metric(alone):
    posts, names = random_posts(), list("abc")
    results = compute_metrics(names)(EvalPrediction(posts["logits"], posts["labels"]))
    assert results == pytest.approx(alone["random"])
    timelines = [
        make_timeline(labels.tolist(), timestamps=times.tolist())
        for labels, times in zip(posts["labels"], posts["times"], strict=True)
    ]
    part = score_part(timelines, posts["logits"].argmax(-1).ravel(), posts["probabilities"].reshape(-1, 3), names)
    expected = alone["random timelines"]
    assert {name: part[name] for name in expected} == pytest.approx(expected)
    assert expected["window_recall_a"] == group_by_class(part, "predict", names)["classes"]["a"]["window_recall"]


@pytest.mark.slow
def test_nothing_is_written_or_imported_before_it_is_needed():
    """Without a home, imports do without Evaluate, and the Trainer's function scores without a cache."""
    code = """
import sys
import numpy as np
from transformers import EvalPrediction
import modeling_tempoformer.training.stream_trainer
from modeling_tempoformer import compute_metrics
score = compute_metrics(["a", "b"])
assert "evaluate" not in sys.modules
print(score(EvalPrediction(np.eye(2)[None], np.array([[0, 1]])))["macro_f1"], "evaluate" in sys.modules)
"""
    home = Path("/dev/null/home")
    assert run_python(code, environment={**environment(home), "HOME": str(home)}).split() == ["1.0", "True"]


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"timelines": [0, 0]}, ["timelines", "2 values", "3 posts"]),
        ({"predictions": [[0, 1]], "references": [[0, 1, 1]]}, ["predictions", "2 values", "3 posts"]),
        ({"references": [0, 2, 1]}, ["references[1]", "is 2", "-100"]),
        ({"predictions": [0, 1, -2]}, ["predictions[2]", "is -2", "-1"]),
        ({"probabilities": [[1, 0], [0, 1], [3, -2]]}, ["probabilities[2]", "logits"]),
        ({"probabilities": [[1, 0], [np.nan, 1], [0, 1]]}, ["probabilities[1]"]),
        ({"probabilities": [[1, 0, 0]] * 3}, ["probabilities", "(3, 3)"]),
        ({"predictions": [0, 0.9, 1]}, ["predictions[1]", "0.9", "`probabilities`"]),
        ({"references": [0, 1, np.nan]}, ["references[2]", "nan"]),
        ({"predictions": [[0, 1], [1]], "references": [[0], [1, 1]]}, ["predictions[0]", "2 values", "1 posts"]),
        ({"predictions": [], "references": []}, ["no posts"]),
        ({"predictions": [[]], "references": [[]]}, ["no posts"]),
        ({"times": ["yesterday", "today", "today"]}, ["times", "yesterday"]),
        ({"times": [0, np.nan, 1]}, ["times[1]"]),
        ({"label_names": {"a": 0, "b": 1}}, ["label_names", "'a': 0"]),
        ({"label_names": {1: "a", 2: "b"}}, ["label_names", "from 0"]),
        ({"label_names": ["a", "a"]}, ["label_names", "'a', 'a'"]),
        ({"no_change": "c"}, ["no_change", "'a', 'b'", "'c'"]),
        ({"watched": "c"}, ["watched", "'a', 'b'", "'c'"]),
        ({"early": -1}, ["early", "-1"]),
        ({"alarms": [True, False]}, ["alarms", "2 values", "3 posts"]),
        ({"alarms": [0, 1, 0.7]}, ["alarms[2]", "0.7"]),
        ({"held_back": [0, None, 1]}, ["held_back[1]", "None"]),
    ],
)
def test_bad_input_is_named(wrong, words, tmp_path):
    metric = change_detection.ChangeDetection(keep_in_memory=True, cache_dir=str(tmp_path))
    inputs = {"predictions": [0, 1, 1], "references": [0, 1, 1], "label_names": ["a", "b"]}
    with pytest.raises(ValueError) as problem:
        metric.compute(**{**inputs, **wrong})
    assert all(word in str(problem.value) for word in words)


def test_no_labels_no_scores(tmp_path):
    metric = change_detection.ChangeDetection(keep_in_memory=True, cache_dir=str(tmp_path))
    assert metric.compute(predictions=[0, 1], references=[-100, -100], timelines=[0, 0]) == {}


DAYS = ["2024-03-30T12:00", "2024-03-31T12:00", "2024-04-01T06:00"]


@pytest.mark.parametrize(
    "times",
    [
        np.array(DAYS, dtype="datetime64[m]"),
        pd.to_datetime(DAYS),
        pd.Series(pd.to_datetime(DAYS, utc=True), index=[5, 6, 7]).dt.tz_convert("Europe/Berlin"),
        [pd.Timestamp(day) for day in DAYS],
        [datetime.fromisoformat(day) for day in DAYS],
        [datetime.fromisoformat(f"{day}Z") for day in DAYS[:2]] + [datetime.fromisoformat("2024-04-01T08:00+02:00")],
        pd.to_timedelta([0, 24, 42], unit="h"),
        [0, 86400, 151200],
    ],
    ids=["datetime64", "index", "series", "timestamps", "datetimes", "zones", "timedelta", "seconds"],
)
def test_dates_are_times_as_seconds_are(times, tmp_path):
    """A change from the first day on is detected 42 hours later."""
    metric = change_detection.ChangeDetection(keep_in_memory=True, cache_dir=str(tmp_path))
    scores = metric.compute(predictions=[0, 0, 1], references=[1, 1, 1], timelines=["a"] * 3, times=times)
    assert scores["median_delay_seconds_1"] == 42 * 3600


def test_names_by_ids_are_in_the_order_of_the_ids(tmp_path):
    metric = change_detection.ChangeDetection(keep_in_memory=True, cache_dir=str(tmp_path))
    ids, names = [0, 0, 10], [f"class {number}" for number in range(11)]
    expected = metric.compute(predictions=ids, references=ids, label_names=names)
    assert expected["support_class 10"] == 1 and expected["support_class 0"] == 2
    for key in (int, str):
        by_id = {key(label): names[label] for label in reversed(range(11))}
        assert metric.compute(predictions=ids, references=ids, label_names=by_id) == expected


@pytest.mark.slow
def test_it_is_pushed_and_loaded_from_the_hub(hub, tmp_path):
    api = HfApi()
    api.create_repo("me/change_detection", repo_type="space", space_sdk="gradio")
    api.upload_folder(
        repo_id="me/change_detection", repo_type="space", folder_path=FOLDER, ignore_patterns="__pycache__/*"
    )
    assert set(hub.files("spaces/me/change_detection")) == {
        *("change_detection.py", "README.md", "app.py", "requirements.txt")
    }
    code = """
import json, evaluate
metric = evaluate.load("me/change_detection")
print(json.dumps(metric.compute(predictions=[0, 1, 1], references=[0, 0, 1])))
"""
    elsewhere = hub.environment(tmp_path / "elsewhere", HF_UPDATE_DOWNLOAD_COUNTS="0")
    assert json.loads(run_python(code, environment=elsewhere))["macro_f1"] == pytest.approx(2 / 3)


def test_the_card_names_the_gradio_that_is_tested():
    _, front_matter, _ = (FOLDER / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    card = yaml.safe_load(front_matter)
    assert {"evaluate", "metric"} <= set(card["tags"])
    assert f"gradio=={card['sdk_version']}" in (ROOT / "constraints.txt").read_text(encoding="utf-8").split()


@pytest.mark.slow
def test_the_app_scores_its_example(tmp_path):
    code = """
import runpy
import pandas as pd
app = runpy.run_path("metrics/change_detection/app.py")
scores = app["score"](pd.DataFrame(app["EXAMPLE"], columns=app["COLUMNS"]))
print(scores.set_index("score")["value"].to_json())
"""
    scores = json.loads(run_python(code, environment=environment(tmp_path)))
    assert scores["f1_Change"] == pytest.approx(2 / 5) and scores["median_delay_seconds_Change"] == 0
