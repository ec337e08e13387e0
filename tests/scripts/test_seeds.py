"""Checks several seeds on one split, the spread of their scores, and a split that Python gives."""

import numpy as np
import pandas as pd
import pytest
from helpers import NAMES, ROOT, read_json, read_table, with_other_ids, write_posts
from sklearn.metrics import f1_score

from modeling_tempoformer.commands import compare
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_splits import load_splits, split_posts
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.training.fine_tuning import fine_tune
from run_glue_style import main


SEEDS = [7, 8]


def posts_of(rows: list[dict[str, str]]) -> list[tuple[str, str]]:
    return sorted((row["timeline_id"], row["post_id"]) for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("has_test_file", [False, True])
def test_several_seeds_are_whole_runs_on_the_same_test_posts(tmp_path, encoder, trained, monkeypatch, has_test_file):
    """They are the posts that `tempoformer train` tests by the first seed."""
    monkeypatch.chdir(ROOT)
    given = ["--train_file", str(trained.parent / "posts.csv"), "--model_name_or_path", encoder, "--window", "3"]
    given += ["--max_steps", "3", "--model_type", "tempoformer", "--report_to", "none"]
    if has_test_file:
        new = with_other_ids(list(synthetic_posts(3, seed=5, posts_per_timeline=4)), "new")
        given += ["--test_file", write_posts(tmp_path / "new.csv", new)]
    out = tmp_path / "out"
    compare.main(["--output_dir", str(out), "--num_folds", "1", "--seeds", *map(str, SEEDS), "--", *given])
    folders = [out / "fold_0" / f"seed_{seed}" for seed in SEEDS]
    tested = [read_table(folder / "_predictions.csv") for folder in folders]
    main([*given, "--seed", "7", "--do_train", "--do_predict", "--output_dir", str(tmp_path / "alone")])
    alone = read_table(tmp_path / "alone" / "_predictions.csv")
    assert posts_of(tested[0]) == posts_of(tested[1]) == posts_of(alone)
    # Another seed is another training, and `tempoformer train` gives the first one.
    assert tested[0][0]["probability_Switch"] != tested[1][0]["probability_Switch"]
    expected = {(row["timeline_id"], row["post_id"]): float(row["probability_Switch"]) for row in alone}
    for row in tested[0]:
        assert float(row["probability_Switch"]) == pytest.approx(
            expected[row["timeline_id"], row["post_id"]], abs=1e-5
        )
    scores = [
        f1_score([row["label"] for row in rows], [row["prediction"] for row in rows], average=None, labels=NAMES)
        for rows in tested
    ]
    results = read_json(out / "results.json")
    assert results["seeds"] == SEEDS and results["runs"] == 2
    for name, values in (("macro_f1", [score.mean() for score in scores]), ("f1_Switch", [s[1] for s in scores])):
        found = results["scores"][name]
        assert found == {"mean": pytest.approx(np.mean(values)), "std": pytest.approx(np.std(values, ddof=1))}


@pytest.mark.slow
def test_python_gives_the_parts(tmp_path, encoder, trained):
    """The parts of another training, in the other direction, with ids as a table may have them."""
    posts = trained.parent / "posts.csv"
    people = list(dict.fromkeys(pd.read_csv(posts, dtype=str)["timeline_id"]))
    fold = {"train": people[3:], "validation": people[2:3], "test": people[:2]}
    settings = {"train_file": str(posts), "max_steps": 2, "report_to": "none", "output_dir": str(tmp_path / "out")}
    fine_tune(encoder, fold=fold, model_type="tempoformer", **settings)
    rows = read_table(tmp_path / "out" / "_predictions.csv")
    assert {row["timeline_id"] for row in rows} == set(people[:2])


def test_parts_that_python_gives_have_each_timeline_once(trained):
    posts = trained.parent / "posts.csv"
    people = list(dict.fromkeys(pd.read_csv(posts, dtype=str)["timeline_id"]))
    for fold, problem in (
        ({"train": people[3:], "validation": people[2:3], "test": people[:1]}, people[1]),
        ({"train": people[1:], "validation": people[:1], "test": []}, "empty"),
    ):
        data = DataTrainingArguments(train_file=str(posts))
        data.fold = fold
        with pytest.raises(ValueError, match=problem):
            split_posts(load_splits(data, None), data, NAMES, ["train", "test"], 0, model=None)


def test_a_seed_of_the_split_keeps_the_parts(trained):
    def tested(seed: int, split_seed: int | None = None) -> list[str]:
        data = DataTrainingArguments(train_file=str(trained.parent / "posts.csv"), split_seed=split_seed)
        splits = split_posts(load_splits(data, None), data, NAMES, ["train", "test"], seed, model=None)
        return [timeline.timeline_id for timeline in splits.timelines["test"]]

    assert tested(1) == tested(2, split_seed=1) != tested(2)
