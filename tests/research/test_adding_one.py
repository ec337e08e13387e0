"""Checks that a new baseline needs only one file and one recipe, in a copy of the project."""

import shutil
import subprocess
import sys

import pandas as pd
import pytest
from helpers import ROOT, write_posts

from modeling_tempoformer.posts.synthetic import synthetic_posts


pytestmark = pytest.mark.slow

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
        labels = np.concatenate([timeline.labels for timeline in timelines["train"]])
        chosen = np.bincount(labels[labels >= 0], minlength=len(names)).argsort()[::-1][self.rank]
        predictions = np.full(sum(map(len, timelines["test"])), chosen)
        return predictions, np.eye(len(names))[predictions]
'''


def test_it_runs_with_its_own_option_and_its_recipe(tmp_path):
    project = tmp_path / "project"
    for name in ("modeling_tempoformer", "configuration", "hub_cards", "research"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "research" / "baselines" / "toy.py").write_text(TOY)
    (project / "research" / "baselines" / "toy.yaml").write_text("method: toy\ndo_predict: true\nrank: 1\n")
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    command = [sys.executable, "-m", "research.run_baseline", "--method", "toy", "--train_file", posts]
    command += ["--output_dir", tmp_path]
    subprocess.run(command, cwd=project, env={"PYTHONPATH": str(project)}, check=True)
    rarest = pd.read_csv(posts)["label"].value_counts().index[-1]
    assert set(pd.read_csv(tmp_path / "_predictions.csv")["prediction"]) == {rarest}
