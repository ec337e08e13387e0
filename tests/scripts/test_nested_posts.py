"""Checks that the scripts read the same posts from nested JSON as from a flat table."""

import json
from itertools import groupby
from pathlib import Path

import pytest
from helpers import read_table, with_other_ids, write_posts

import run_glue_style
from modeling_tempoformer.commands.view import main as write_page_of


pytestmark = pytest.mark.slow

NESTED = ["--records", "messages", "--columns", "timeline=talk.id", "--columns", "label=meta.label"]


@pytest.fixture
def files(tmp_path, posts) -> dict[str, list[str]]:
    """Returns the options of a flat file and of a nested one, with posts of other people than the trained ones'."""
    flat = with_other_ids(posts, "new")
    talks = [
        {
            "talk": {"id": who},
            "messages": [
                {"timestamp": post["timestamp"], "text": post["text"], "meta": {"label": [post["label"]]}}
                for post in group
            ],
        }
        for who, group in groupby(flat, key=lambda post: post["timeline_id"])
    ]
    (tmp_path / "nested.json").write_text(json.dumps(talks, indent=1))
    flat_file = write_posts(tmp_path / "flat.csv", flat)
    return {"flat": ["--test_file", flat_file], "nested": ["--test_file", str(tmp_path / "nested.json"), *NESTED]}


def predict(model: Path, options: list[str], folder: Path) -> list[dict[str, str]]:
    """Returns the table of predictions that a model writes into a folder."""
    given = ["--model_name_or_path", str(model), "--do_predict", "--output_dir", str(folder), "--report_to", "none"]
    run_glue_style.main([*given, *options])
    return read_table(folder / "_predictions.csv")


def show(model: Path, options: list[str], page: Path) -> str:
    """Returns the page of timelines that a model writes."""
    write_page_of(["--model_name_or_path", str(model), *options, "--output", str(page)])
    return page.read_text(encoding="utf-8")


def test_nested_posts_are_predicted_as_flat_ones(tmp_path, trained, files):
    flat, nested = (predict(trained, options, tmp_path / name) for name, options in files.items())
    assert len(flat) == 60 and flat == nested


def test_nested_posts_are_shown_as_flat_ones(tmp_path, trained, files):
    flat, nested = (show(trained, options, tmp_path / f"{name}.html") for name, options in files.items())
    assert flat == nested
