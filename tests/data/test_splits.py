"""Folds by timeline, and the file that keeps them."""

import json
from collections import Counter

import pytest
from datasets import Dataset
from helpers import ROOT

from modeling_tempoformer.data.splits import (
    make_folds,
    read_folds,
    select_fold,
    split_timelines,
    write_folds,
)
from modeling_tempoformer.training.recipes import parse
from run_glue_style import DataTrainingArguments


@pytest.fixture
def timelines() -> Dataset:
    """Twenty timelines of two to six posts, every other one with Switches only."""
    return Dataset.from_list(
        [{"timeline_id": f"t{number}", "labels": [number % 2] * (2 + number % 5)} for number in range(20)]
    )


def test_every_timeline_is_tested_once_and_is_in_one_part_of_each_fold(timelines):
    folds = make_folds(timelines, 5, 0.25, seed=0)
    assert folds == make_folds(timelines, 5, 0.25, seed=0) != make_folds(timelines, 5, 0.25, seed=1)
    everything = sorted(timelines["timeline_id"])
    assert sorted(timeline for fold in folds for timeline in fold["test"]) == everything
    for fold in folds:
        assert sorted(fold["train"] + fold["validation"] + fold["test"]) == everything
        # Of 4 timelines to test, 16 are left, and a quarter of them is dev.
        assert [len(fold[name]) for name in ("train", "validation", "test")] == [12, 4, 4]
        parts = select_fold(timelines, fold)
        assert list(parts["test"]["timeline_id"]) == sorted(fold["test"], key=lambda name: int(name[1:]))
        for part in parts.values():
            assert {label for labels in part["labels"] for label in labels} == {0, 1}


@pytest.mark.parametrize("recipes", ["fast", "paper"])
@pytest.mark.parametrize(("corpus", "share"), [("lrs", 1 / 4), ("moc", 1 / 3)])
def test_the_recipes_have_the_dev_shares_of_the_paper(corpus, share, recipes):
    recipe = str(ROOT / "configuration" / f"{corpus}_{recipes}.yaml")
    (data,) = parse([DataTrainingArguments], [recipe], only_these=False)
    timelines = Dataset.from_list([{"timeline_id": str(name), "labels": [0, 1, 0, 0, 1]} for name in range(60)])
    for fold in make_folds(timelines, 5, data.validation_fraction, seed=0):
        assert len(fold["test"]) == 12 and len(fold["validation"]) == 48 * share


def test_what_cannot_be_split_is_refused(timelines):
    with pytest.raises(ValueError, match="Cannot make 21 folds of 20 timelines"):
        make_folds(timelines, 21, 0.25, seed=0)
    with pytest.raises(ValueError, match="Cannot make 1 folds"):
        make_folds(timelines, 1, 0.25, seed=0)
    for fraction in (0.7, 0.4, 0.15, 0, -0.5):
        with pytest.raises(ValueError, match=f"by a fraction of {fraction}: it must be 1/2, 1/3, 1/4 and so on"):
            split_timelines(timelines, fraction, seed=0)
    with pytest.raises(ValueError, match="Cannot split 20 timelines by a fraction of 0.04"):
        split_timelines(timelines, 0.04, seed=0)


def test_a_third_may_be_rounded(timelines):
    rest, part = split_timelines(timelines, 0.33, seed=0)
    assert sum(map(len, part["labels"])) == pytest.approx(sum(map(len, timelines["labels"])) / 3, abs=3)
    assert len(rest) + len(part) == 20


@pytest.fixture
def uneven() -> Dataset:
    """Forty timelines whose lengths double every fifth: of 1 to 128 posts."""
    rows = [{"timeline_id": f"t{number}", "labels": [0, 1] * 2 ** (number // 5) + [0]} for number in range(40)]
    return Dataset.from_list(rows)


def test_a_part_has_its_share_of_posts_and_no_timeline_is_always_in_it(uneven):
    parts = [split_timelines(uneven, 0.2, seed)[1] for seed in range(20)]
    total = sum(map(len, uneven["labels"]))
    for part in parts:
        assert sum(map(len, part["labels"])) / total == pytest.approx(0.2, abs=0.02)
    often = Counter(name for part in parts for name in part["timeline_id"])
    assert max(often.values()) < 20


def test_of_bad_shares_the_nearest_is_taken():
    """One timeline has nine tenths of all posts: a part has it or what it can of the rest."""
    lengths = [90, 2, 2, 2, 2, 2]
    rows = [{"timeline_id": f"t{number}", "labels": [0, 1] * length} for number, length in enumerate(lengths)]
    for seed in range(5):
        _, part = split_timelines(Dataset.from_list(rows), 0.2, seed)
        assert "t0" not in part["timeline_id"]


def test_every_timeline_is_trained_on_in_some_fold(uneven):
    folds = make_folds(uneven, 5, 0.25, seed=0)
    assert {name for fold in folds for name in fold["train"]} == set(uneven["timeline_id"])


def test_folds_can_be_given_back(tmp_path, timelines):
    folds = make_folds(timelines, 4, 0.25, seed=0)
    write_folds(tmp_path / "deep" / "folds.json", folds)
    assert read_folds(tmp_path / "deep" / "folds.json", timelines) == folds


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda fold: fold["test"].append("t99"), "fold 1 has unknown timelines, or some twice: t99"),
        (lambda fold: fold["train"].append(fold["test"][0]), "fold 1 has unknown timelines, or some twice"),
        (lambda fold: fold["train"].pop(), "fold 1 lacks timelines"),
        (lambda fold: fold.pop("test"), "must be a list of objects with train, validation, test"),
    ],
)
def test_folds_of_other_timelines_are_refused(tmp_path, timelines, change, problem):
    folds = make_folds(timelines, 4, 0.25, seed=0)
    change(folds[1])
    (tmp_path / "folds.json").write_text(json.dumps(folds))
    with pytest.raises(ValueError, match=problem):
        read_folds(tmp_path / "folds.json", timelines)
