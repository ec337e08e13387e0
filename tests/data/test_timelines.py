"""Posts to timelines to rows, and what is refused on the way."""

import logging
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from helpers import VOCABULARY
from torch.utils.data import DataLoader
from transformers import BertTokenizer

from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.splits import split_timelines
from modeling_tempoformer.data.tables import load_table
from modeling_tempoformer.data.timelines import PostError, label_names, to_timelines
from modeling_tempoformer.timestamps_tempoformer import to_seconds


POSTS = [
    {"timeline_id": "a", "timestamp": "1970-01-01T00:01:00", "text": "sad", "label": "IS"},
    {"timeline_id": "b", "timestamp": "5", "text": "", "label": "O"},
    {"timeline_id": "a", "timestamp": "1970-01-01T00:00:30Z", "text": "glad", "label": None},
    {"timeline_id": "a", "timestamp": "60", "text": "sad sad glad", "label": "O"},
]


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1970-01-02", 86400.0),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1970-01-01 00:00:01.5", 1.5),
        ("12.5", 12.5),
        (1700000000, 1700000000.0),
        (date(1970, 1, 2), 86400.0),
        (datetime(1970, 1, 1, 1), 3600.0),
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=-1))), 3600.0),
        (datetime(2000, 1, 1, tzinfo=UTC), 946684800.0),
        (None, None),
        ("", None),
    ],
)
def test_times_are_read(value, seconds):
    assert to_seconds(value) == seconds


def test_a_number_of_seconds_may_look_like_a_date():
    """Where not all of them do."""
    posts = [{"timeline_id": "a", "timestamp": time, "text": "", "label": ""} for time in ("20240501", "20240599")]
    assert to_timelines(Dataset.from_list(posts))[0]["timestamps"] == [20240501.0, 20240599.0]
    with pytest.raises(ValueError, match="(?s)Row 0.*timestamp.*20240501.*a date is written 2024-05-01"):
        to_timelines(Dataset.from_list(posts[:1]))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("yesterday", "neither"),
        ("nan", "not finite"),
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        (1700000000000, "milliseconds"),
        (True, "bool"),
    ],
)
def test_other_times_are_refused(value, problem):
    with pytest.raises(ValueError, match=problem):
        to_seconds(value)


EXPECTED = [
    {
        "timeline_id": "a",
        "post_ids": ["2", "0", "3"],
        "post_rows": [2, 0, 3],
        "texts": ["glad", "sad", "sad sad glad"],
        "labels": [-100, 0, 1],
        "timestamps": [30.0, 60.0, 60.0],
    },
    {"timeline_id": "b", "post_ids": ["1"], "post_rows": [1], "texts": [""], "labels": [1], "timestamps": [5.0]},
]


def test_posts_become_sorted_timelines(caplog):
    posts = Dataset.from_list(POSTS)
    assert label_names(posts) == ["IS", "O"]
    assert to_timelines(posts, ["IS", "O"]).to_list() == EXPECTED
    assert caplog.text.count("Sorted the posts of 1 timelines") == 1


def test_streaming_gives_the_same_timelines():
    posts = Dataset.from_list([POSTS[0], POSTS[2], POSTS[3], POSTS[1]])
    streamed = list(to_timelines(posts.to_iterable_dataset(), ["IS", "O"]))
    assert [timeline["labels"] for timeline in streamed] == [[-100, 0, 1], [1]]
    assert streamed == to_timelines(posts, ["IS", "O"]).to_list()
    with pytest.raises(PostError, match="Row 2 .*'timeline_id', value 'a'.*follow each other"):
        list(to_timelines(Dataset.from_list(POSTS[:3]).to_iterable_dataset()))


def test_label_names_are_ordered_as_numbers():
    posts = Dataset.from_list([{"label": value} for value in (10.0, None, 2.0)])
    assert label_names(posts) == ["2", "10"]


def test_labels_as_spreadsheets_write_them():
    """White space around a label does not count, -100.0 is no label, and neither is a blank cell."""
    posts = [POSTS[0] | {"timestamp": number, "label": label} for number, label in enumerate(["O", "O ", " ", " IS"])]
    posts = Dataset.from_list(posts)
    assert label_names(posts) == ["IS", "O"]
    assert to_timelines(posts, ["IS", "O"])[0]["labels"] == [1, 1, -100, 0]
    # Names with blanks, as a model may have them from before.
    assert to_timelines(posts, [" IS", "O"])[0]["labels"] == [1, 1, -100, 0]
    floats = [
        POSTS[0] | {"timestamp": number, "label": label} for number, label in enumerate(["-100.0", "0.0", "1.0"])
    ]
    assert label_names(Dataset.from_list(floats)) == ["0.0", "1.0"]
    assert to_timelines(Dataset.from_list(floats), ["0.0", "1.0"])[0]["labels"] == [-100, 0, 1]


def test_ids_that_look_like_dates_stay_what_they_are(tmp_path):
    (tmp_path / "posts.jsonl").write_text('{"timeline_id": "2014-10-22", "text": "hm"}\n')
    posts = load_table(str(tmp_path / "posts.jsonl"))
    assert to_timelines(posts)[0]["timeline_id"] == "2014-10-22"


@pytest.mark.parametrize(("times", "said"), [(["2019", "2021"], True), (["2019", "3021"], False), (["2019.5"], False)])
def test_years_that_are_read_as_seconds_are_said(caplog, times, said):
    posts = [POSTS[0] | {"timestamp": time} for time in times]
    assert to_timelines(Dataset.from_list(posts))[0]["timestamps"] == list(map(float, times))
    assert ("read as seconds; a year is written 2024-01-01" in caplog.text) == said


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("times", "problem"),
    [
        (["202405", "202412"], "'202412'.*a month is written"),
        ([202405.0, 202412.0], "202412.0.*a month is written"),
        (["45413.375", "45414.9"], "'45414.9'.*days of a spreadsheet"),
        ([45413, 45414], "45414.*days of a spreadsheet"),
        # One that is nothing else makes seconds of all.
        (["202405", "202413"], None),
        ([45413, 60000], None),
        ([19999, 45413], None),
        (["45413", "1970-01-02"], None),
        (["202405", "45413"], None),
    ],
)
def test_numbers_that_are_hardly_seconds(streaming, times, problem):
    table = Dataset.from_list([POSTS[0] | {"timestamp": time} for time in times])
    table = table.to_iterable_dataset() if streaming else table
    if problem is None:
        (timeline,) = to_timelines(table)
        assert timeline["timestamps"] == sorted(to_seconds(time) for time in times)
    else:
        with pytest.raises(PostError, match=f"Row 1 .*{problem}"):
            list(to_timelines(table))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.71455E+09", None),
        ("2E+09", None),
        ("1.68522e+09", None),
        ("1.714550001E+09", 1714550001.0),
        ("1.5E+00", 1.5),
    ],
)
def test_numbers_that_lost_digits_are_no_times(text, seconds):
    if seconds is None:
        with pytest.raises(ValueError, match="its last digits are missing"):
            to_seconds(text)
    else:
        assert to_seconds(text) == seconds


def test_ids_that_lost_digits_are_refused():
    with pytest.raises(PostError, match="Row 0 .*'id', value '1.78E[+]17': the last digits of this id are missing"):
        to_timelines(Dataset.from_list([POSTS[0] | {"id": "1.78E+17"}]), id_column="id")


@pytest.mark.parametrize("times", [["20240501.0", "20240601.0"], [20240501.0, 20240601.0]])
def test_dates_as_whole_floats_are_no_seconds(times):
    with pytest.raises(PostError, match="Row 1 .*a date is written 2024-05-01"):
        to_timelines(Dataset.from_list([POSTS[0] | {"timestamp": time} for time in times]))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_missing_label_column_is_named(streaming):
    posts = Dataset.from_list([{"timeline_id": "a", "text": "hm"}])
    with pytest.raises(ValueError, match="no column 'mood' for the label; there are: timeline_id, text"):
        label_names(posts.to_iterable_dataset() if streaming else posts, "mood")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timestamp": "soon"}, "Row 3 .*'timestamp', value 'soon'"),
        ({"timestamp": None}, "Row 3 .*'timestamp', value None: missing, while timeline 'a' has others"),
        ({"timestamp": "inf"}, "Row 3 .*'timestamp', value 'inf'"),
        ({"text": None}, "Row 3 .*'text', value None"),
        ({"timeline_id": None}, "Row 3 .*'timeline_id', value None"),
        ({"label": "XX"}, r"Row 3 .*'label', value 'XX': not one of the labels \(IS, O\)"),
    ],
)
def test_bad_posts_are_named(change, message):
    with pytest.raises(PostError, match=message):
        to_timelines(Dataset.from_list([*POSTS[:3], POSTS[3] | change]), ["IS", "O"])


def test_missing_columns_are_named():
    with pytest.raises(ValueError, match="no column 'body' for the text"):
        to_timelines(Dataset.from_list(POSTS), text_column="body")


@pytest.mark.parametrize("post_id", ["p1", None])
def test_post_ids_must_tell_posts_apart(post_id):
    posts = [{**post, "id": f"p{number}"} for number, post in enumerate(POSTS[:3])] + [{**POSTS[3], "id": post_id}]
    with pytest.raises(PostError, match="Row 3 .*'id'.*unique"):
        to_timelines(Dataset.from_list(posts), id_column="id")


def test_timelines_without_time_keep_their_order():
    posts = Dataset.from_list([{k: v for k, v in post.items() if k != "timestamp"} for post in POSTS])
    timelines = to_timelines(posts, ["IS", "O"])
    assert timelines[0]["post_ids"] == ["0", "2", "3"] and "timestamps" not in timelines.column_names


def test_rows_hold_every_target_once_with_its_context(caplog):
    timelines = to_timelines(Dataset.from_list(POSTS), ["IS", "O"])
    tokenizer = BertTokenizer(vocab=VOCABULARY)
    rows = to_rows(timelines, tokenizer, window=2, targets_per_row=2, max_seq_length=4).to_list()
    assert [row["post_ids"] for row in rows] == [["2", "0"], ["3"], ["1"]]
    assert [row["num_context"] for row in rows] == [0, 1, 0]
    assert rows[1]["input_ids"] == [[2, 5, 3], [2, 5, 5, 3]] and rows[1]["timestamps"] == [60.0, 60.0]
    assert rows[2]["input_ids"] == [[2, 3]]
    assert "Truncated 1 posts to 4 tokens" in caplog.text
    training = to_rows(timelines, tokenizer, window=2, targets_per_row=2, only_labelled=True).to_list()
    assert [row["labels"] for row in training] == [[None, 0], [1], [1]]
    with pytest.raises(ValueError, match="window"):
        to_rows(timelines, tokenizer, window=0)


def test_streamed_rows_are_the_same():
    timelines = to_timelines(Dataset.from_list(POSTS), ["IS", "O"])
    tokenizer = BertTokenizer(vocab=VOCABULARY)
    posts = Dataset.from_list([POSTS[0], POSTS[2], POSTS[3], POSTS[1]]).to_iterable_dataset()
    streamed = to_rows(to_timelines(posts, ["IS", "O"]), tokenizer, window=2, targets_per_row=2)
    rows = list(streamed)
    # A post's id is its row, and the two orders differ.
    ids = {"0": "0", "1": "2", "2": "3", "3": "1"}
    for row in rows:
        row["post_ids"] = [ids[post] for post in row["post_ids"]]
    assert rows == to_rows(timelines, tokenizer, window=2, targets_per_row=2).to_list()


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_workers_lose_no_post(num_workers):
    """Of several shards several workers are refused; one worker, and several with one shard, read all posts."""
    posts = [{"timeline_id": number // 3, "timestamp": number, "text": "sad", "label": "O"} for number in range(24)]
    for num_shards in (1, 4):
        stream = Dataset.from_list(posts).to_iterable_dataset(num_shards=num_shards)
        rows = to_rows(to_timelines(stream, ["IS", "O"]), BertTokenizer(vocab=VOCABULARY), window=2, targets_per_row=2)
        loader = DataLoader(rows, batch_size=None, num_workers=num_workers)
        if num_shards > 1 and num_workers > 1:
            with pytest.raises(ValueError, match="stream of 4 shards cannot be read with `num_workers=2`"):
                list(loader)
        else:
            assert [post for row in loader for post in row["post_ids"]] == list(map(str, range(24)))


def test_splits_share_out_whole_timelines():
    posts = [{"timeline_id": i // 3, "text": "", "label": i % 2} for i in range(60)]
    timelines = to_timelines(Dataset.from_list(posts), ["0", "1"])
    rest, part = split_timelines(timelines, 0.25, seed=3)
    assert sorted([*rest["timeline_id"], *part["timeline_id"]], key=int) == [str(i) for i in range(20)]
    assert len(part) == 5 and split_timelines(timelines, 0.25, seed=3)[1].to_list() == part.to_list()
    with pytest.raises(ValueError, match="Cannot split 3 timelines"):
        split_timelines(timelines.select(range(3)), 0.2, seed=0)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("role", ["timestamp", "label", "id"])
def test_a_named_column_must_be_there(streaming, role):
    posts = Dataset.from_list(POSTS)
    posts = posts.to_iterable_dataset() if streaming else posts
    with pytest.raises(ValueError, match=f"no column 'lost' for the {role}"):
        list(to_timelines(posts, ["IS", "O"], **{f"{role}_column": "lost"}))


def test_a_stream_is_timed_throughout_or_not_at_all():
    posts = [{"timeline_id": name, "timestamp": time, "text": ""} for name, time in (("a", None), ("b", 5), ("c", 6))]
    for order, problem in ((posts, "'b' has timestamps, others have none"), (posts[::-1], "'a' has no timestamps")):
        with pytest.raises(ValueError, match=problem):
            list(to_timelines(Dataset.from_list(order).to_iterable_dataset()))


def test_the_last_streamed_timeline_is_sorted_with_a_word(caplog):
    posts = [{"timeline_id": "a", "timestamp": time, "text": str(time)} for time in (2, 1)]
    (timeline,) = to_timelines(Dataset.from_list(posts).to_iterable_dataset())
    assert timeline["texts"] == ["1", "2"] and "first in timeline 'a'" in caplog.text


def test_names_of_class_label_columns():
    features = Features(
        {"timeline_id": Value("string"), "text": Value("string"), "label": ClassLabel(names=["No", "Switch"])}
    )
    posts = Dataset.from_list(
        [{"timeline_id": "a", "text": "", "label": label} for label in (1, None, -1)], features=features
    )
    assert label_names(posts) == ["No", "Switch"]
    assert to_timelines(posts, ["Switch", "No"])[0]["labels"] == [0, -100, -100]


def test_minus_100_is_no_label():
    posts = Dataset.from_list([{"timeline_id": "a", "text": "", "label": label} for label in (-100, 3, 0)])
    assert label_names(posts) == ["0", "3"]
    assert to_timelines(posts, ["0", "3"])[0]["labels"] == [-100, 1, 0]


def test_a_limit_must_leave_room_for_a_token():
    tokenizer = BertTokenizer(vocab=VOCABULARY)
    timelines = to_timelines(Dataset.from_list(POSTS), ["IS", "O"])
    for limit in (-1, 0, 2):
        with pytest.raises(ValueError, match="`max_seq_length` must be at least 3"):
            to_rows(timelines, tokenizer, window=2, max_seq_length=limit)
