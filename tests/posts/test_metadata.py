"""Checks what a table says of posts beside what a model reads: annotators, groups, and what is never divided."""

import random
from collections import Counter
from statistics import multimode

import pytest
from datasets import Dataset, IterableDataset
from helpers import make_timeline

from modeling_tempoformer.posts.metadata import Metadata, all_metadata
from modeling_tempoformer.posts.post_errors import PostError
from modeling_tempoformer.posts.splits import check_apart, hold_out, make_folds, select_fold, split_timelines
from modeling_tempoformer.posts.surveys import survey
from modeling_tempoformer.posts.timelines import to_timelines
from modeling_tempoformer.timeline_tempoformer import Timeline


NAMES = ["O", "IE", "IS"]


def annotated(seed: int = 0, timed: bool = True) -> list[dict]:
    """Returns the rows of up to six annotators, shuffled, some without a label."""
    chance, rows = random.Random(seed), []
    for number in range(40):
        post = {"timeline_id": "ab"[number % 2], "id": f"p{number}", "text": f"post {number // 4}"}
        post |= {"timestamp": 60 * number} if timed else {}
        for annotator in chance.sample("uvwxyz", chance.randint(1, 6)):
            rows.append({**post, "label": chance.choice([*NAMES, ""]), "annotator": annotator})
    chance.shuffle(rows)
    return rows


def read(rows: list[dict], **columns: str) -> list[Timeline]:
    return to_timelines(Dataset.from_list(rows), NAMES, {"annotator": "annotator", **columns})


@pytest.mark.parametrize("by_id", [True, False])
def test_a_post_gets_the_label_that_most_annotators_gave(by_id):
    """The modes come from Python's statistics. A tie is no label, and neither is no vote."""
    rows = annotated()
    timelines = read(rows, **({"id": "id"} if by_id else {}))
    found = {}
    for timeline in timelines:
        for text, time, label, metadata in zip(
            timeline.texts, timeline.timestamps, timeline.labels, timeline.metadata, strict=True
        ):
            found[time, text] = label, dict(metadata.labels)
    posts = {(row["timestamp"], row["text"]) for row in rows}
    assert found.keys() == posts and sum(map(len, timelines)) == len(posts)
    for post in posts:
        votes = {
            row["annotator"]: NAMES.index(row["label"])
            for row in rows
            if (row["timestamp"], row["text"]) == post and row["label"]
        }
        modes = multimode(votes.values())
        assert found[post] == (modes[0] if len(modes) == 1 else -100, votes)
    assert {label for label, _ in found.values()} == {-100, 0, 1, 2}
    first_rows = {row["id"]: number for number, row in reversed(list(enumerate(rows)))}
    assert sorted(row for timeline in timelines for row in timeline.input_rows) == sorted(first_rows.values())


def test_posts_without_times_are_merged_by_their_ids_alone():
    rows = annotated(timed=False)
    assert sum(map(len, read(rows, id="id"))) == len({row["id"] for row in rows})
    with pytest.raises(PostError, match="--columns id="):
        read(rows)


ROW = {"timeline_id": "a", "timestamp": 60, "text": "hm", "label": "O", "annotator": "u", "id": "p", "site": "x"}


def test_posts_may_be_numbered_in_each_timeline():
    rows = [
        {"timeline_id": timeline, "id": number, "text": f"{timeline}{number}", "label": label, "annotator": annotator}
        for timeline in "ab"
        for number in (1, 2)
        for annotator, label in (("u", "O"), ("v", "IS" if timeline == "a" else "O"), ("w", "IS"))
    ]
    timelines = read(rows, id="id")
    assert [(timeline.timeline_id, timeline.post_ids, timeline.labels) for timeline in timelines] == [
        ("a", ["1", "2"], [2, 2]),
        ("b", ["1", "2"], [0, 0]),
    ]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"text": "so"}, "Row 1 .*'text'.*'so'.*row 0.*'hm'"),
        ({"timestamp": 70}, "Row 1 .*'timestamp'.*row 0"),
        ({"site": "y"}, "Row 1 .*'site'.*'y'.*row 0.*'x'"),
        ({"annotator": "u"}, "Row 1 .*'annotator'.*'u'"),
        ({"annotator": ""}, "Row 1 .*'annotator'"),
    ],
)
def test_rows_of_one_post_that_contradict_each_other_are_refused(change, named):
    with pytest.raises(PostError, match=named):
        read([ROW, {**ROW, "annotator": "v", **change}], id="id", group="site")


def test_an_annotator_may_label_a_post_once_and_a_stream_has_no_annotators():
    with pytest.raises(PostError, match="'u'.*--columns id="):
        read([ROW, {**ROW, "id": "q"}])
    with pytest.raises(ValueError, match="stream"):
        to_timelines(IterableDataset.from_generator(lambda: iter([ROW])), NAMES, columns={"annotator": "annotator"})


def test_groups_are_of_posts_and_may_be_missing_and_do_not_change_the_fingerprint():
    rows = [{"timeline_id": "a", "text": "hm", "site": site} for site in ("x", None, "7.0", "y")]
    (timeline,) = to_timelines(Dataset.from_list(rows), NAMES, columns={"group": "site"})
    assert [metadata.group for metadata in timeline.metadata] == ["x", "", "7", "y"]
    plain = to_timelines(Dataset.from_list(rows), NAMES)
    assert plain[0].metadata is None and [metadata.group for metadata in all_metadata(plain)] == [None] * 4
    assert survey([timeline]).fingerprint == survey(plain).fingerprint
    with pytest.raises(ValueError, match="'place'.*--columns group="):
        to_timelines(Dataset.from_list(rows), NAMES, columns={"group": "place"})


def test_a_timeline_belongs_to_one_unit():
    rows = [{"timeline_id": "a", "text": "hm", "clinic": clinic} for clinic in ("north", "north", "south")]
    with pytest.raises(PostError, match="Row 2 .*'clinic'.*'south'.*'a'.*'north'.*row 0"):
        to_timelines(Dataset.from_list(rows), NAMES, columns={"split": "clinic"})
    (timeline,) = to_timelines(Dataset.from_list(rows[:2]), NAMES, columns={"split": "clinic"})
    assert [metadata.unit for metadata in timeline.metadata] == ["north", "north"]


@pytest.fixture
def clinics() -> list[Timeline]:
    """Returns sixty timelines of fifteen clinics, and four that belong to none."""
    chance = random.Random(0)
    timelines = []
    for number in range(64):
        unit = f"clinic {number % 15}" if number < 60 else ""
        labels = [chance.randint(0, 1) for _ in range(chance.randint(2, 6))]
        timelines.append(make_timeline(labels, f"t{number}", metadata=[Metadata(unit=unit)] * len(labels)))
    return timelines


def units_of(timelines: list[Timeline]) -> set[str]:
    return {timeline.metadata[0].unit or timeline.timeline_id for timeline in timelines}


def test_splits_folds_and_members_never_divide_a_unit(clinics):
    for seed in range(3):
        rest, taken = split_timelines(clinics, 0.2, seed)
        assert len(rest) + len(taken) == 64 and not units_of(rest) & units_of(taken)
        assert sum(map(len, taken)) == pytest.approx(sum(map(len, clinics)) / 5, rel=0.3)
    for fold in make_folds(clinics, 5, 0.25, seed=0):
        parts = select_fold(clinics, fold)
        units = Counter(unit for part in parts.values() for unit in units_of(part))
        assert set(units.values()) == {1} and sum(map(len, parts.values())) == 64
        check_apart(parts)
    held_out = hold_out(clinics, 5, seed=0)
    assert {timeline.held_out for timeline in held_out} == set(range(5))
    for unit in units_of(clinics):
        assert len({timeline.held_out for timeline in held_out if unit in units_of([timeline])}) == 1
    # Without units, some clinic is in both parts.
    plain = split_timelines([make_timeline(t.labels, t.timeline_id) for t in clinics], 0.2, 0)[1]
    chosen = {timeline.timeline_id for timeline in plain}
    assert units_of([t for t in clinics if t.timeline_id in chosen]) & units_of(
        [t for t in clinics if t.timeline_id not in chosen]
    )


def test_a_unit_in_two_files_and_too_few_units_are_refused(clinics):
    with pytest.raises(ValueError, match="train.*test.*clinic 0, clinic 1"):
        check_apart({"train": clinics[:20], "test": clinics[15:17]})
    with pytest.raises(ValueError, match="4 timelines.*2 values.*at least 5"):
        split_timelines([timeline for timeline in clinics[:32] if timeline.timeline_id in "t0 t1 t15 t16"], 0.2, 0)
