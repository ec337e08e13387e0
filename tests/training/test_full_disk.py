"""A disk that is full while a checkpoint is written: the one before stays whole, and training goes on from it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import ROOT, write_posts
from safetensors.torch import load_file

from modeling_tempoformer import TempoFormerForStreamClassification
from modeling_tempoformer.data.synthetic import synthetic_posts


# No file can grow beyond a limit while the second checkpoint is written, as on a disk without more room.
TRAIN = """
import resource, runpy, sys
from transformers import Trainer

save, limit = Trainer._save_checkpoint, int(sys.argv[1])

def save_on_a_full_disk(self, *arguments):
    if self.state.global_step == 4 and limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    save(self, *arguments)

Trainer._save_checkpoint = save_on_a_full_disk
runpy.run_path("run_glue_style.py")["main"](sys.argv[2:])
"""


def train(folder: Path, limit: int = 0) -> subprocess.CompletedProcess:
    # At most one checkpoint is kept: the old one goes when the new one is there.
    settings = ["--max_steps", "6", "--save_strategy", "steps", "--save_steps", "2", "--save_total_limit", "1"]
    settings += ["--eval_strategy", "no", "--load_best_model_at_end", "false", "--do_predict", "false"]
    posts = write_posts(folder.parent / "posts.csv", list(synthetic_posts(6, seed=0, posts_per_timeline=5)))
    arguments = ["configuration/demo.yaml", "--train_file", posts, "--output_dir", str(folder), *settings]
    command = [sys.executable, "-c", TRAIN, str(limit), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_checkpoint_before_stays_whole(tmp_path):
    whole = tmp_path / "whole"
    done = train(whole)
    assert done.returncode == 0, done.stderr
    expected = load_file(whole / "model.safetensors")
    size = (whole / "model.safetensors").stat().st_size
    full = tmp_path / "full"
    # Too full for the weights, then for the optimizer, which is twice as large.
    for limit in (size // 2, size + 1000):
        done = train(full, limit)
        assert done.returncode != 0 and "in save_on_a_full_disk" in done.stderr, done.stderr
        assert (full / "checkpoint-4").exists() and not (full / "checkpoint-4" / "trainer_state.json").exists()
        TempoFormerForStreamClassification.from_pretrained(full / "checkpoint-2")
    done = train(full)
    assert done.returncode == 0, done.stderr
    weights = load_file(full / "model.safetensors")
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, atol=1e-5, rtol=0, msg=name)
