"""Provides a tiny encoder and a model trained on it, once for all tests of the scripts."""

from pathlib import Path

import pytest
from helpers import save_encoder, write_posts

import run_glue_style
from modeling_tempoformer.posts.synthetic import synthetic_posts


@pytest.fixture(scope="session")
def encoder(tmp_path_factory) -> str:
    return save_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="session")
def posts() -> list[dict]:
    """Returns twelve timelines of five posts."""
    return list(synthetic_posts(12, seed=0, posts_per_timeline=5))


@pytest.fixture(scope="session")
def trained(tmp_path_factory, encoder, posts) -> Path:
    """Returns the folder of a model that was trained on a part of the posts, which are in `posts.csv` beside it."""
    folder = tmp_path_factory.mktemp("trained")
    model = ["--model_name_or_path", encoder, "--train_file", write_posts(folder / "posts.csv", posts)]
    settings = ["--window", "3", "--num_train_epochs", "1", "--do_train", "--do_eval", "--do_predict"]
    run_glue_style.main([*model, *settings, "--report_to", "none", "--output_dir", str(folder / "out")])
    return folder / "out"
