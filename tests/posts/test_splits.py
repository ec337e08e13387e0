"""Checks splits and folds by timeline, and the file of folds."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from datasets import Dataset
from helpers import ROOT, make_timeline

from modeling_tempoformer import recall_parts, to_timelines
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.post_splits import split_posts
from modeling_tempoformer.posts.splits import (
    check_tested_once,
    hold_out,
    make_folds,
    read_folds,
    select_fold,
    split_timelines,
    write_split,
)
from modeling_tempoformer.timeline_tempoformer import Timeline


def make_timelines(lengths: list[int]) -> list[Timeline]:
    """Returns timelines of these numbers of Switches, and twice as many posts."""
    return [make_timeline([0, 1] * length, f"t{number}") for number, length in enumerate(lengths)]


def ids_of(timelines: list[Timeline]) -> list[str]:
    return [timeline.timeline_id for timeline in timelines]


@pytest.fixture
def timelines() -> list[Timeline]:
    """Returns twenty timelines of two to six posts. Every other timeline has Switches only."""
    return [make_timeline([number % 2] * (2 + number % 5), f"t{number}") for number in range(20)]


def test_every_timeline_is_tested_once_and_is_in_one_part_of_each_fold(timelines):
    folds = make_folds(timelines, 5, 0.25, seed=0)
    assert folds == make_folds(timelines, 5, 0.25, seed=0) != make_folds(timelines, 5, 0.25, seed=1)
    everything = sorted(ids_of(timelines))
    assert sorted(timeline for fold in folds for timeline in fold["test"]) == everything
    for fold in folds:
        assert sorted(fold["train"] + fold["validation"] + fold["test"]) == everything
        # 4 of 20 timelines are tested, and a quarter of the other 16 validates.
        assert [len(fold[name]) for name in ("train", "validation", "test")] == [12, 4, 4]
        parts = select_fold(timelines, fold)
        assert ids_of(parts["test"]) == sorted(fold["test"], key=lambda name: int(name[1:]))
        for part in parts.values():
            assert {label for timeline in part for label in timeline.labels} == {0, 1}


@pytest.mark.parametrize("recipes", ["fast", "paper"])
@pytest.mark.parametrize(("corpus", "share"), [("lrs", 1 / 4), ("moc", 1 / 3)])
def test_the_recipes_have_the_validation_shares_of_the_paper(corpus, share, recipes):
    recipe = str(ROOT / "configuration" / f"{corpus}_{recipes}.yaml")
    (data,) = parse([DataTrainingArguments], [recipe], only_these=False)
    for fold in make_folds(make_timelines([2] * 60), 5, data.validation_fraction, seed=0):
        assert len(fold["test"]) == 12 and len(fold["validation"]) == 48 * share


def test_too_few_timelines_and_other_fractions_are_refused(timelines):
    for split, named in (
        (lambda: split_timelines(make_timelines([2] * 3), 0.25, seed=0), "3 timelines.*at least 4"),
        (lambda: make_folds(make_timelines([2] * 3), 5, 0.25, seed=0), "3 timelines.*at least 5"),
        (lambda: hold_out(timelines[:1], 5, seed=0), "1 timelines.*at least 2"),
        (lambda: split_timelines(timelines, 0.7, seed=0), "0.7.*1/2, 1/3, 1/4"),
        (lambda: split_timelines(timelines, 0, seed=0), "0.*1/2, 1/3, 1/4"),
    ):
        with pytest.raises(ValueError, match=named):
            split()


@pytest.mark.parametrize("fraction", [0.2, 0.33, 0.5])
def test_a_part_has_its_share_of_posts_and_no_timeline_is_always_in_it(fraction):
    """Splits forty timelines of 2 to 256 posts, whose lengths double after every fifth."""
    uneven = make_timelines([2 ** (number // 5) for number in range(40)])
    splits = [split_timelines(uneven, fraction, seed) for seed in range(10)]
    total = sum(map(len, uneven))
    for rest, part in splits:
        assert sorted(ids_of(rest) + ids_of(part)) == sorted(ids_of(uneven))
        assert sum(map(len, part)) / total == pytest.approx(fraction, rel=0.1)
    assert max(Counter(name for _, part in splits for name in ids_of(part)).values()) < 10
    # The same seed gives the same part.
    assert split_timelines(uneven, fraction, 3)[1] == splits[3][1]

    # A timeline that has nine tenths of all posts is never in the part.
    for seed in range(5):
        assert "t0" not in ids_of(split_timelines(make_timelines([90, 2, 2, 2, 2, 2]), 0.2, seed)[1])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda fold: fold["test"].append("t99"), "fold 1.*: t99 "),
        (lambda fold: fold["train"].append(fold["test"][0]), "fold 1.*several splits: t"),
        (lambda fold: fold["train"].pop(), "fold 1.*missing.*: t"),
        (lambda fold: fold.update(train=[]), "none of them empty"),
        (lambda fold: fold.pop("test"), "train, validation, test"),
    ],
)
def test_folds_of_other_timelines_are_refused(tmp_path, timelines, change, named):
    folds, path = make_folds(timelines, 4, 0.25, seed=0), tmp_path / "folds.json"
    path.write_text(json.dumps(folds))
    assert read_folds(path, timelines) == folds
    change(folds[1])
    path.write_text(json.dumps(folds))
    with pytest.raises(ValueError, match=named):
        read_folds(path, timelines)


def test_ids_of_folds_are_read_as_those_of_a_table(tmp_path):
    """Programs that read ids as numbers write them so."""
    timelines = [make_timeline([0, 1], name) for name in ("1", "2", "3", "fr\u00f6h")]
    path = tmp_path / "folds.json"
    path.write_text(json.dumps([{"train": [1, "2.0"], "validation": [3.0], "test": [" fro\u0308h\u200b"]}]))
    folds = read_folds(path, timelines)
    assert [ids_of(part) for part in select_fold(timelines, folds[0]).values()] == [["1", "2"], ["3"], ["fr\u00f6h"]]


def test_folds_must_test_every_timeline_once(timelines):
    folds = make_folds(timelines, 4, 0.25, seed=0)
    check_tested_once("folds.json", folds)
    for wrong in (folds[1:], [*folds, folds[0]]):
        with pytest.raises(ValueError, match=r"\(5 in all"):
            check_tested_once("folds.json", wrong)


def test_each_member_holds_out_its_share(timelines):
    held_out = hold_out(timelines, 5, seed=0)
    assert [replace(timeline, held_out=None) for timeline in held_out] == timelines
    counts = Counter(timeline.held_out for timeline in held_out)
    assert sorted(counts) == list(range(5)) and max(counts.values()) - min(counts.values()) <= 2
    assert sorted(timeline.held_out for timeline in hold_out(timelines[:3], 5, seed=0)) == [0, 1, 2]


def test_classes_with_fewer_posts_than_folds_are_named():
    timelines = [make_timeline([number], f"t{number}") for number in range(8)]
    with pytest.raises(ValueError, match="8 timelines into 5 parts.*1 post.*--columns label="):
        split_timelines(timelines, 0.2, seed=0)


@pytest.mark.parametrize("by", ["timeline", "date"])
def test_the_parts_of_a_training_come_back(tmp_path, by):
    """By the record beside a model, from the same posts; each timeline with the member that holds it out."""
    rows = [
        {"timeline_id": f"p{number}", "timestamp": f"2024-05-{1 + day:02}", "text": "hm", "label": "AB"[day % 2]}
        for number in range(12)
        for day in range(number % 3 + 2)
    ]
    posts, arguments = Dataset.from_list(rows), DataTrainingArguments(train_file="posts.csv", split_by=by)
    made = split_posts({"train": posts}, arguments, ["A", "B"], ["train", "test"], 7, None, members=3)
    write_split(tmp_path, made.record)
    timelines = to_timelines(posts, ["A", "B"])
    parts = recall_parts(tmp_path, timelines)
    assert parts == {name: made.timelines[name] for name in ("train", "test")}
    assert {timeline.held_out for timeline in parts["train"]} == {0, 1, 2} and parts["test"]
    learned = {timeline.timeline_id for timeline in parts["train"]}
    with pytest.raises(ValueError, match=f"1 of the {len(learned)} timelines"):
        recall_parts(tmp_path, [timeline for timeline in timelines if timeline.timeline_id != min(learned)])
    with pytest.raises(ValueError, match="does not say which member"):
        recall_parts(tmp_path / "other", timelines)
