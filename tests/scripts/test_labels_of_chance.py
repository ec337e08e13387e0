"""Checks that a validation is chance where labels are drawn at random, however well posts tell what goes with them."""

import numpy as np
import pytest
from helpers import ROOT, read_json, write_posts

from run_glue_style import main


COLUMNS = ["timeline_id", "timestamp", "text", "label", "state", "speaker", "site", "family"]
WORDS = ["sad", "glad", "trees", "plane", "air", "happy", "tired", "today"]


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def random_posts(seed: int) -> list[dict[str, str]]:
    """Returns 400 posts whose texts name their state, their speaker and their site, and nothing names their label."""
    generator, posts = np.random.default_rng(seed), []
    for number in range(40):
        for post in range(10):
            state, speaker = generator.choice(WORDS), generator.choice(["ann", "bob", "cy"])
            site = ["north", "south"][number % 2]
            text = f"{state} {state} {state} {state} {speaker} {site}"
            label = generator.choice(["No", "Yes"])
            row = (f"t{number}", str(1_700_000_000 + 3600 * post), text, label, state, speaker, site, str(number // 2))
            posts.append(dict(zip(COLUMNS, map(str, row), strict=True)))
    return posts


@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--model_type", "tempoformer"]], ids=["default", "paper"])
def test_validation_is_chance_where_labels_are(tmp_path, encoder, kind):
    """
    Five folds of such posts by a table of pairs of states have a standard deviation of 0.04 over seeds, since posts of
    a pair share what chance gave them. The bound is three of them, for two seeds.
    """
    scores = []
    for seed in range(2):
        out = tmp_path / str(seed)
        given = ["--train_file", write_posts(tmp_path / "posts.csv", random_posts(seed), COLUMNS), "--window", "4"]
        given += [
            "--columns",
            "group=site",
            "--columns",
            "split=family",
            "--report_to",
            "none",
            "--max_steps",
            "60",
            *kind,
        ]
        main(["--model_name_or_path", encoder, *given, "--do_train", "--do_eval", "--output_dir", str(out)])
        scores.append(read_json(out / "all_results.json")["validation"]["macro_f1"])
    assert np.mean(scores) < 0.5 + 3 * 0.04 / 2**0.5
