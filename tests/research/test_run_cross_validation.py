"""Checks that research.run_cross_validation gives baselines their recipes, and runs them beside the default."""

import pandas as pd
import pytest
from helpers import ROOT, write_posts

from modeling_tempoformer.baselines.methods import BASELINES
from modeling_tempoformer.commands import compare
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments
from research import run_cross_validation
from research.baselines import find_baseline
from research.baselines.base import PAPER_BASELINES


pytestmark = pytest.mark.slow


def test_a_method_has_the_settings_of_its_recipe(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "window: 7\nlearning_rate: 0.5\nper_device_train_batch_size: 3\nconfig_overrides: {focal_gamma: 1.0}\n"
    )
    passed_on = [str(tmp_path / "mine.yaml"), "--model_name_or_path", "M", "--train_file", "posts.csv"]
    assert compare.arguments_of("default", passed_on, PAPER_BASELINES) == passed_on
    given = [*compare.arguments_of("bilstm", passed_on, PAPER_BASELINES), "--output_dir", str(tmp_path)]
    baseline, data, training = parse([find_baseline("bilstm"), DataTrainingArguments, StreamTrainingArguments], given)
    assert (baseline.method, baseline.model_name_or_path, baseline.config_overrides) == ("bilstm", "M", None)
    # All methods have the same window.
    assert data.window == 7 and training.learning_rate == 1e-3 and training.per_device_train_batch_size == 64
    assert training.load_best_model_at_end and training.metric_for_best_model == "macro_f1"


def test_the_methods_of_the_command_and_baselines_are_compared(tmp_path, encoder, monkeypatch):
    """A method of the package scores the same, whether the package or research runs it."""
    monkeypatch.chdir(ROOT)
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    shared = ["--", "--model_name_or_path", encoder, "--train_file", posts, "--max_steps", "2"]
    rows = {}
    for program, methods in ((run_cross_validation, ["trees", "bilstm"]), (compare, ["trees"])):
        folder = tmp_path / program.__name__
        program.main(["--output_dir", str(folder), "--seeds", "0", "--num_folds", "2", "--methods", *methods, *shared])
        rows[program] = pd.read_csv(folder / "comparison.csv", index_col="method")
        assert list(rows[program].index) == methods
    columns = ["macro_f1", "f1_Switch", "f1_No-Switch", "runs"]
    assert rows[compare].loc["trees", columns].equals(rows[run_cross_validation].loc["trees", columns])
    assert set(BASELINES.names) < set(run_cross_validation.METHODS)
