"""A baseline is one file and one recipe: a copy of the project with both finds it, and nothing else is edited."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers import ROOT, write_posts

from modeling_tempoformer.data.synthetic import synthetic_posts


# It predicts the class that `--rank` names, by how frequent it is.
TOY = '''
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from .base import UntrainedBaseline


@dataclass(kw_only=True)
class Method(UntrainedBaseline):
    """One class for all posts."""

    reads: ClassVar = None
    rank: int = field(default=0, metadata={"help": "0 for the most frequent class."})

    def predict(self, timelines, names, data, seed):
        labels = np.concatenate(timelines["train"]["labels"])
        chosen = np.bincount(labels[labels >= 0], minlength=len(names)).argsort()[::-1][self.rank]
        predictions = np.full(len(np.concatenate(timelines["test"]["labels"])), chosen)
        return predictions, np.eye(len(names))[predictions]
'''


@pytest.fixture
def project(tmp_path) -> Path:
    """A copy of what runs, with one more baseline."""
    folder = tmp_path / "project"
    for name in ("modeling_tempoformer", "configuration"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("run_baseline.py", "run_cross_validation.py"):
        shutil.copy(ROOT / name, folder)
    (folder / "modeling_tempoformer" / "baselines" / "toy.py").write_text(TOY)
    (folder / "configuration" / "baseline_toy.yaml").write_text("method: toy\ndo_predict: true\nrank: 1\n")
    return folder


def run(project: Path, script: str, *arguments: str) -> str:
    command = [sys.executable, script, *arguments]
    found = subprocess.run(command, cwd=project, env={"PYTHONPATH": str(project)}, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


def rarer_class(rows: pd.DataFrame) -> str:
    return rows["label"].value_counts().index[-1]


def test_it_runs_with_its_own_option_and_its_recipe(project, tmp_path):
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    arguments = ["--method", "toy", "--train_file", posts, "--output_dir"]
    run(project, "run_baseline.py", *arguments, str(tmp_path / "recipe"))
    run(project, "run_baseline.py", *arguments, str(tmp_path / "option"), "--rank", "0")
    by_recipe, by_option = (
        pd.read_csv(tmp_path / name / "_predictions.csv")["prediction"] for name in ("recipe", "option")
    )
    assert set(by_recipe) == {rarer_class(pd.read_csv(posts))} and not set(by_recipe) & set(by_option)


@pytest.mark.slow
def test_it_is_cross_validated_and_compared(project, tmp_path):
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    own = "--num_folds 2 --seeds 0 --methods toy --output_dir".split()
    shown = run(project, "run_cross_validation.py", *own, str(tmp_path / "out"), "--", "--train_file", posts)
    row = pd.read_csv(tmp_path / "out" / "comparison.csv", index_col="method").loc["toy"]
    assert row["one_class_runs"] == 2 and row["macro_f1"] < 0.5
    assert shown.splitlines()[-1].split()[0] == "toy"
