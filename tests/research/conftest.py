"""Provides a tiny encoder and a model trained on it, once for all tests of research."""

from pathlib import Path

import pytest
from helpers import save_encoder, write_posts

import run_glue_style
from modeling_tempoformer.posts.synthetic import synthetic_posts


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory, encoder) -> Path:
    """Returns the folder of a model that was trained on a part of twelve timelines of five posts."""
    folder = tmp_path_factory.mktemp("trained")
    posts = write_posts(folder / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    settings = ["--window", "3", "--num_train_epochs", "1", "--do_train", "--do_eval", "--do_predict"]
    model = ["--model_name_or_path", encoder, "--train_file", posts, "--report_to", "none"]
    run_glue_style.main([*model, *settings, "--output_dir", str(folder / "out")])
    return folder / "out"
