"""Checks research.run_baseline: every method on the posts that TempoFormer reads."""

from pathlib import Path

import datasets
import pytest
import torch
from helpers import NAMES, ROOT, read_json, read_table, save_language_model, write_posts
from safetensors.torch import load_file

from modeling_tempoformer.posts.synthetic import synthetic_posts
from research import run_baseline


pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def run(folder: Path, *arguments: str) -> tuple[list[dict[str, str]], dict[str, float]]:
    """Returns predictions and results of a short training on synthetic posts."""
    file = write_posts(folder.parent / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    recipes = [argument for argument in arguments if argument.endswith(".yaml")]
    settings = ["--window", "3", "--num_train_epochs", "1", "--do_train", "--do_eval", "--do_predict"]
    rest = [argument for argument in arguments if argument not in recipes]
    output = ["--train_file", file, "--output_dir", str(folder), "--report_to", "none"]
    run_baseline.main([*recipes, *settings, *output, *rest])
    return read_table(folder / "_predictions.csv"), read_json(folder / "all_results.json")


@pytest.mark.parametrize(
    "method", ["class_prior", "post", "concatenated", "ffn_history", "bilstm", "swnu", "seq_sig_net"]
)
def test_a_baseline_is_one_recipe_and_sees_the_same_posts(tmp_path, trained, encoder, method):
    """Baselines read the same posts as a TempoFormer. One baseline is calibrated."""
    model = [] if method == "class_prior" else ["--model_name_or_path", encoder]
    calibrated = ["--calibrate"] if method == "bilstm" else []
    rows, results = run(tmp_path / "out", f"research/baselines/{method}.yaml", *model, *calibrated)
    ours = read_table(trained / "_predictions.csv")
    for column in ("post_id", "timeline_id", "time", "text", "label"):
        assert [row[column] for row in ours] == [row[column] for row in rows]
    figures = {"confusion_matrix.png", "reliability.png"} | ({"learning_curve.png"} if model else set())
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == figures
    switch = results["test"]["classes"]["Switch"]
    assert switch["posts"] == [row["label"] for row in ours].count("Switch")
    right = [row["label"] == row["prediction"] == "Switch" for row in rows].count(True)
    assert switch["recall"] == pytest.approx(right / switch["posts"])
    for row in rows if calibrated else ():
        thresholds = read_json(tmp_path / "out" / "config.json")["calibration"]["thresholds"]
        assert row["prediction"] == NAMES[float(row["probability_Switch"]) > thresholds[1]]


def test_a_prompted_model_predicts_a_label_for_every_post(tmp_path):
    """Scores come from likelihoods of the labels, so even an untrained language model predicts."""
    save_language_model(tmp_path / "llm")
    recipe = ["research/baselines/few_shot_stream.yaml", "--model_name_or_path", str(tmp_path / "llm")]
    rows, _ = run(tmp_path / "out", *recipe)
    assert {row["prediction"] for row in rows} <= {"Switch", "No-Switch"}
    for row in rows:
        assert float(row["probability_Switch"]) + float(row["probability_No-Switch"]) == pytest.approx(1)


def test_without_a_recipe_a_method_has_its_own_and_takes_the_best_epoch(tmp_path, encoder):
    file = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    output = ["--train_file", file, "--output_dir", str(tmp_path / "out"), "--report_to", "none"]
    command = ["--method", "bilstm", "--model_name_or_path", encoder, *output, "--learning_rate", "0.05"]
    run_baseline.main([*command, "--window", "3"])
    results, state = (read_json(tmp_path / "out" / name) for name in ("all_results.json", "trainer_state.json"))
    scores = [entry["eval_macro_f1"] for entry in state["log_history"] if "eval_macro_f1" in entry]
    # The evaluation after training is of the best epoch; three more epochs were no better.
    assert results["validation"]["macro_f1"] == pytest.approx(max(scores))
    assert scores[-4] == max(scores) and len(scores) < 100
    assert state["train_batch_size"] == 64
    assert read_table(tmp_path / "out" / "_predictions.csv")


def test_a_network_over_frozen_embeddings_is_new_as_a_whole_and_has_one_rate(tmp_path, encoder):
    settings = ["research/baselines/bilstm.yaml", "--model_name_or_path", encoder, "--learning_rate", "0.01"]
    run(tmp_path / "one", *settings)
    run(tmp_path / "two", *settings, "--new_parameters_learning_rate", "0.5")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, weights in one.items():
        torch.testing.assert_close(two[name], weights, atol=1e-3, rtol=0, msg=name)
