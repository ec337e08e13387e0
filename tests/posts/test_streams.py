"""Checks that a stream of posts gives the timelines and rows of the whole table."""

from dataclasses import replace
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, IterableDataset, load_dataset
from helpers import VOCABULARY, with_other_ids, write_table
from torch.utils.data import DataLoader
from transformers import BertTokenizer

from modeling_tempoformer import label_names, load_table, to_rows, to_timelines
from modeling_tempoformer.posts.surveys import survey
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.posts.tables import find_files, stream_table
from modeling_tempoformer.timeline_tempoformer import Timeline


NAMES = ["No-Switch", "Switch"]
# Each file has timelines of its own, and one of them a post without a label.
FILES = [
    with_other_ids(list(synthetic_posts(5, seed=seed, posts_per_timeline=6)), f"file {seed}") for seed in range(3)
]
FILES[1][8]["label"] = None


def write_files(folder: Path, kind: str) -> str:
    """Writes files, and returns the pattern that matches them."""
    for number, posts in enumerate(FILES):
        write_table(folder / f"{number}.{kind}", posts)
    return str(folder / f"*.{kind}")


def whole(pattern: str) -> list[Timeline]:
    """Returns the timelines of files that are read one by one, with the ids of posts in a stream."""
    timelines = []
    for number, path in enumerate(find_files(pattern)):
        for timeline in to_timelines(load_table(path), NAMES):
            timelines.append(replace(timeline, post_ids=[f"{number}:{post}" for post in timeline.post_ids]))
    return timelines


READERS = {"csv": "csv", "jsonl": "json", "parquet": "parquet"}


@pytest.mark.parametrize("is_ours", [True, False], ids=["our reader", "load_dataset"])
@pytest.mark.parametrize("kind", READERS)
def test_a_stream_of_files_gives_the_timelines_and_rows_of_the_files(tmp_path, kind, is_ours):
    pattern = write_files(tmp_path, kind)
    if is_ours:
        posts = stream_table(find_files(pattern))
    else:
        posts = load_dataset(READERS[kind], data_files=pattern, split="train", streaming=True)
    assert label_names(posts) == NAMES
    timelines = to_timelines(posts, NAMES)
    expected = whole(pattern)
    # A second pass gives the same timelines.
    assert list(timelines) == expected and list(timelines) == expected
    settings = {"tokenizer": BertTokenizer(vocab=VOCABULARY), "window": 3, "targets_per_row": 4}
    for only_labelled in (True, False):
        rows = to_rows(timelines, **settings, only_labelled=only_labelled)
        held = to_rows(expected, **settings, only_labelled=only_labelled).remove_columns("timeline")
        assert isinstance(rows, IterableDataset) and rows.num_shards == 3 and list(rows) == list(held)
    summary = survey(timelines)
    assert summary == survey(expected) and summary.labels[-100] == 1 and summary.timed


def test_class_ids_are_read_by_their_names():
    posts = Dataset.from_list(FILES[0]).cast_column("label", ClassLabel(names=NAMES)).to_iterable_dataset()
    assert label_names(posts) == NAMES
    reversed_names = list(to_timelines(posts, NAMES[::-1]))
    assert [timeline.labels for timeline in to_timelines(posts, NAMES)] == [
        [1 - label for label in timeline.labels] for timeline in reversed_names
    ]


@pytest.mark.parametrize(
    ("owners", "shards", "row", "first"),
    [
        ("aabba", 1, "Row 4", "row 0"),
        ("aabcca", 2, "Row 2 of shard 1", "row 0 of shard 0"),
        ("aaab", 2, "Row 0 of", "row 0 of"),
    ],
)
def test_a_timeline_that_comes_back_is_an_error_that_names_both_rows(owners, shards, row, first):
    posts = Dataset.from_list([{"timeline_id": owner, "text": "hm"} for owner in owners])
    timelines = to_timelines(posts.to_iterable_dataset(num_shards=shards))
    for _ in range(2):
        with pytest.raises(ValueError, match=f"{row}.*'timeline_id', value 'a'.* {first}"):
            list(timelines)


def test_a_bad_cell_is_an_error_where_the_stream_is_read():
    posts = Dataset.from_list([{"timeline_id": owner, "text": "hm", "label": "Swicth"} for owner in "ab"])
    timelines = to_timelines(posts.to_iterable_dataset(num_shards=2), NAMES)
    with pytest.raises(ValueError, match="Row 0 of shard 0.*'Swicth'"):
        next(iter(timelines))


def test_a_stream_holds_no_more_than_it_needs():
    """The first timeline is there before 5,000 of 100,000 posts are read."""
    read = 0

    def posts():
        nonlocal read
        for read in range(100_000):
            yield {"timeline_id": str(read // 10), "text": "hm"}

    rows = to_rows(to_timelines(IterableDataset.from_generator(posts)), BertTokenizer(vocab=VOCABULARY), window=3)
    assert len(next(iter(rows))["labels"]) == 10 and read < 5_000


@pytest.mark.parametrize("num_workers", [1, 2])
def test_workers_share_the_files_and_lose_no_post(tmp_path, num_workers):
    pattern = write_files(tmp_path, "jsonl")
    timelines = to_timelines(stream_table(find_files(pattern)), NAMES)
    rows = to_rows(timelines, BertTokenizer(vocab=VOCABULARY), window=2, targets_per_row=2)
    loader = DataLoader(rows, batch_size=None, num_workers=num_workers)
    times = [time for row in loader for time in row["timestamps"][row["num_context"] :]]
    assert sorted(times) == sorted(time for timeline in whole(pattern) for time in timeline.timestamps)


def test_labels_may_end_long_before_the_posts(tmp_path):
    """A later piece of a thousand rows lacks the column, whose name is not the default."""
    rows = [
        {"timeline_id": str(row // 4), "text": "hm"} | ({"lab": NAMES[row % 2]} if row < 204 else {})
        for row in range(2400)
    ]
    path = write_table(tmp_path / "a.jsonl", rows)
    for posts in (load_table(path), stream_table([path])):
        labels = survey(to_timelines(posts, NAMES, columns={"label": "lab"})).labels
        assert labels == {0: 102, 1: 102, -100: 2196}
