"""Checks that the scripts read posts that are nested in JSON as those of a flat table."""

import json
from itertools import groupby

import pytest
from helpers import read_table, with_other_ids, write_posts

import run_glue_style
import run_timeline_view


pytestmark = pytest.mark.slow

NESTED = ["--records", "messages", "--timeline_column", "talk.id", "--label_column", "meta.label"]


@pytest.fixture
def files(tmp_path, posts) -> dict[str, list[str]]:
    """Returns the options of a flat file and of a nested one, with posts of other people than the trained ones'."""
    flat = with_other_ids(posts, "new")
    talks = [
        {
            "talk": {"id": who},
            "messages": [
                {"timestamp": post["timestamp"], "text": post["text"], "meta": {"label": [post["label"]]}}
                for post in own
            ],
        }
        for who, own in groupby(flat, key=lambda post: post["timeline_id"])
    ]
    (tmp_path / "nested.json").write_text(json.dumps(talks, indent=1))
    flat_file = write_posts(tmp_path / "flat.csv", flat)
    return {"flat": ["--test_file", flat_file], "nested": ["--test_file", str(tmp_path / "nested.json"), *NESTED]}


def test_nested_posts_are_predicted_as_flat_ones(tmp_path, trained, files):
    tables = []
    for name, options in files.items():
        given = ["--model_name_or_path", str(trained), "--do_predict", "--output_dir", str(tmp_path / name)]
        run_glue_style.main([*given, *options, "--report_to", "none"])
        tables.append(read_table(tmp_path / name / "_predictions.csv"))
    assert len(tables[0]) == 60 and tables[0] == tables[1]


def test_nested_posts_are_shown_as_flat_ones(tmp_path, trained, files):
    pages = []
    for name, options in files.items():
        page = tmp_path / f"{name}.html"
        run_timeline_view.main(["--model_name_or_path", str(trained), *options, "--output", str(page)])
        pages.append(page.read_text(encoding="utf-8"))
    assert pages[0] == pages[1]
