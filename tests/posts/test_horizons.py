"""Checks labels that ask what comes on timelines worked by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from datasets import Dataset
from helpers import make_timeline

from modeling_tempoformer import PostTempoFormerConfig
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.date_splits import split_by_date
from modeling_tempoformer.posts.facts import Facts
from modeling_tempoformer.posts.horizons import (
    AHEAD_LABELS,
    Ahead,
    ask_ahead,
    asked_sentence,
    file_classes,
    saved_question,
    with_labels_ahead,
)
from modeling_tempoformer.posts.model_fields import fields_of_posts
from modeling_tempoformer.posts.post_splits import choose_ahead, split_posts
from modeling_tempoformer.times_tempoformer import read_horizon


DAY, HOUR = 86400, 3600
NO = -100


def asked(labels: list[int], horizon: str, times: list[float] | None = None, changes=(1,), **fields) -> list[int]:
    return with_labels_ahead(make_timeline(labels, timestamps=times, **fields), horizon, changes).labels


@pytest.mark.parametrize(
    ("horizon", "expected"),
    [
        # The post's own label does not count, and the last posts have too few after them.
        ("1", [0, 1, 0, 0, 1, NO]),
        ("2", [1, 1, 0, 1, NO, NO]),
        ("5", [1, NO, NO, NO, NO, NO]),
        ("6", [NO] * 6),
    ],
)
def test_the_next_posts(horizon, expected):
    assert asked([1, 0, 1, 0, 0, 1], horizon) == expected


def test_a_change_is_each_class_that_is_asked_for():
    labels = [0, 2, 0, 1, 0]
    assert asked(labels, "1", changes=[1, 2]) == [1, 0, 1, 0, NO]
    assert asked(labels, "1", changes=[2]) == [1, 0, 0, 0, NO]


def test_the_posts_of_the_next_days():
    # A change at 1.5 days; nobody writes between 2 and 9 days.
    times, labels = [day * DAY for day in (0, 1, 1.5, 2, 9, 10)], [0, 0, 1, 0, 0, 1]
    assert asked(labels, "1d", times) == [0, 1, 0, 0, 1, NO]
    # The end of the horizon belongs to it.
    assert asked(labels, "36h", times) == [1, 1, 0, 0, NO, NO]
    assert asked(labels, "35h", times) == [0, 1, 0, 0, NO, NO]
    assert asked(labels, "8d", times) == [1, 1, 0, 1, NO, NO]
    assert asked(labels, "9d", times) == [1, 1, NO, NO, NO, NO]
    assert asked([0, 1, 0], "90s", [0.0, 90.0, 181.0]) == [1, 0, NO]
    assert asked([0, 1, 0], "1m", [0.0, 60.5, 200.0]) == [0, 0, NO]


def test_posts_of_the_same_time_are_not_later_by_any_time():
    times, labels = [0, 0, 0, 10, 10], [0, 1, 0, 0, 1]
    assert asked(labels, "5s", times) == [0, 0, 0, NO, NO]
    assert asked(labels, "10s", times) == [1, 1, 1, NO, NO]
    # Of posts they are the next ones.
    assert asked(labels, "1", times) == [1, 0, 0, 1, NO]


def test_posts_without_labels_are_passed_over():
    """One of two who take turns has labels: the next two posts are his, also from a post of the other's."""
    assert asked([NO, 0, NO, 1, NO, 0, NO, 0, NO], "2") == [1, 1, 1, 0, 0, NO, NO, NO, NO]


def test_a_horizon_that_is_known_in_part_gives_no_label():
    # The change at 2 is seen, but what follows within the horizon is not known.
    assert asked([0, 0, 1, NO, 0, 0, 0], "2s", list(range(7))) == [1, NO, NO, 0, 0, NO, NO]
    # A post without a label is asked about what comes.
    assert asked([NO, 1, 0], "1") == [1, 0, NO]
    assert asked([], "3") == [] and asked([], "3s", []) == []


def test_context_has_no_label_and_annotators_have_given_none():
    assert asked([NO, NO, 0, 1, 0], "1", num_context=2) == [NO, NO, 1, 0, NO]
    facts = [Facts("group", "unit", {"ann": 1, "bob": 0})] * 2
    timeline = with_labels_ahead(make_timeline([1, 1], facts=facts), "1", [1])
    assert timeline.labels == [1, NO] and timeline.facts == [Facts("group", "unit", {})] * 2


def test_labels_are_those_of_a_plain_loop():
    generator = np.random.default_rng(0)
    for _ in range(30):
        times = np.sort(generator.integers(0, 30, 25)).tolist()
        labels = generator.choice([NO, 0, 1, 2], 25, p=[0.1, 0.6, 0.2, 0.1]).tolist()
        by_posts, by_time = [], []
        for post, time in enumerate(times):
            after = [label for label in labels[post + 1 :] if label != NO][:3]
            by_posts.append(NO if len(after) < 3 else int(2 in after or 1 in after))
            after = [label for other, label in zip(times, labels, strict=True) if time < other <= time + 5]
            by_time.append(NO if max(times) < time + 5 or NO in after else int(2 in after or 1 in after))
        assert asked(labels, "3", times, changes=[1, 2]) == by_posts
        assert asked(labels, "5s", times, changes=[1, 2]) == by_time


def test_a_time_needs_times():
    with pytest.raises(ValueError, match="2d.*--columns timestamp=.*number of posts"):
        asked([0, 1], "2d")


def test_horizons_that_are_read():
    read = {"3": (3, None), "03": (3, None), "2d": (2, 2 * DAY), "12h": (12, 12 * HOUR), "30m": (30, 1800)}
    assert {text: read_horizon(text) for text in read} == read and read_horizon("90s") == (90, 90)
    for text in ("0", "-1", "2w", "d", "1.5d", "", "3 posts", "0d", "9999999999d"):
        with pytest.raises(ValueError, match="--horizon.*2d.*" + repr(text)):
            DataTrainingArguments(horizon=text)
    assert DataTrainingArguments(horizon="02d").horizon == "2d"


def test_the_question_in_words():
    def sentence(horizon: str, *changes: str) -> str:
        return asked_sentence(Ahead(horizon, [["O"], list(changes)]))

    assert sentence("3", "IE", "IS") == "Asked at each post: is one of the next 3 posts a change (IE, IS)?"
    assert sentence("1", "IE") == "Asked at each post: is the next post a change (IE)?"
    assert sentence("2d", "IE") == "Asked at each post: is a post in the next 2 days a change (IE)?"
    assert sentence("1h", "IE") == "Asked at each post: is a post in the next hour a change (IE)?"


def dated(labels: list[int], first_day: int, name: str):
    return make_timeline(labels, name, timestamps=[1.7e9 + DAY * (first_day + day) for day in range(len(labels))])


@pytest.mark.parametrize("horizon", ["2", "2d"])
def test_no_label_of_a_part_depends_on_a_later_part(horizon):
    """Whatever the labels of later parts are, those of a part stay the same, and it has some."""

    def parts(later: int) -> dict[str, list[list[int]]]:
        timelines = [dated([0, 1, 0, 0, 1, 0, 0, 0] * 3, day, str(day)) for day in range(3)]
        splits, dates = split_by_date(timelines, 0.25, 0.25)
        # The test changes: split again by the same dates.
        for timeline in timelines:
            own = zip(timeline.timestamps, timeline.labels, strict=True)
            timeline.labels = [later if time > dates["test"] else label for time, label in own]
        splits, again = split_by_date(timelines, 0.25, 0.25)
        assert again == dates
        ahead = Ahead(horizon, [["No"], ["Yes"]])
        return {
            name: [timeline.labels for timeline in ask_ahead(part, ["No", "Yes"], ahead)]
            for name, part in splits.items()
        }

    none, all_changes = parts(0), parts(1)
    for name in ("train", "validation"):
        assert none[name] == all_changes[name]
        assert any(max(labels) >= 0 for labels in none[name])
        # The end of each part does not know what comes.
        assert all(labels[-2:] == [NO, NO] for labels in none[name])
    assert none["test"] != all_changes["test"]


def rows(*timelines: tuple[str, str]) -> Dataset:
    """Returns posts of timelines, given by name and labels, a letter for each post; "-" for none."""
    names = {"-": "", "O": "O", "E": "IE", "S": "IS"}
    return Dataset.from_list(
        [
            {"timeline_id": name, "timestamp": 1.7e9 + DAY * post, "text": "hm", "label": names[letter]}
            for name, letters in timelines
            for post, letter in enumerate(letters)
        ]
    )


NAMES = ["IE", "IS", "O"]


@pytest.mark.parametrize(
    ("options", "watch", "changes", "expected"),
    [
        # The largest class is no change.
        ({}, None, ["IE", "IS"], [1, 1, 1, NO]),
        ({"no_change_label": "IS"}, None, ["IE", "O"], [1, 0, 0, NO]),
        ({}, "IE", ["IE"], [1, 0, 0, NO]),
    ],
)
def test_splits_answer_the_question(options, watch, changes, expected):
    arguments = DataTrainingArguments(train_file="posts.csv", test_file="test.csv", horizon="1", **options)
    posts = {"train": rows(("a", "OEOOOO"), ("b", "SOOOOO")), "test": rows(("c", "OESS"))}
    splits = split_posts(posts, arguments, NAMES, ["train", "test"], 0, None, members=2, watch=watch)
    assert splits.names == AHEAD_LABELS and splits.ahead.horizon == "1"
    assert splits.ahead.horizon_labels == [[name for name in NAMES if name not in changes], changes]
    assert splits.timelines["test"][0].labels == expected
    assert splits.surveys["test"].labels == {label: expected.count(label) for label in set(expected)}
    # A saved model asks the same of other files, whose classes have another order.
    config = PostTempoFormerConfig(**splits.ahead._asdict())
    again = split_posts(
        {"test": posts["test"]},
        DataTrainingArguments(test_file="test.csv"),
        file_classes(config),
        ["test"],
        *(0, None),
        ahead=saved_question(config),
    )
    assert again.timelines["test"][0].labels == expected


def test_the_posts_of_a_date_are_divided_before_they_are_asked():
    # The last two of six days are the test. Its change is not known to the training.
    data = DataTrainingArguments(train_file="posts.csv", horizon="1", split_by="date", test_fraction=1 / 3)
    posts = {"train": rows(("a", "OEOOSO"), ("b", "OSOOOE"))}
    splits = split_posts(posts, data, NAMES, ["train", "test"], 0, None, members=2)
    assert [timeline.labels for timeline in splits.timelines["train"]] == [[1, 0, 0, NO]] * 2
    assert [timeline.labels for timeline in splits.timelines["test"]] == [[NO] * 4 + [0, NO], [NO] * 4 + [1, NO]]


def test_a_question_has_one_kind_of_change():
    arguments = DataTrainingArguments(horizon="1", no_change_label="O")
    with pytest.raises(ValueError, match="--no_change_label.*--watch"):
        choose_ahead([make_timeline([0, 1, 2])], NAMES, arguments, "IE")
    with pytest.raises(ValueError, match="--watch must be one of IE, IS, O, got 'X'"):
        choose_ahead([make_timeline([0, 1, 2])], NAMES, DataTrainingArguments(horizon="1"), "X")
    assert choose_ahead([make_timeline([0, 1, 2])], NAMES, DataTrainingArguments(), "X") is None


def test_the_change_of_derived_labels_is_theirs_even_if_it_is_frequent():
    arguments = DataTrainingArguments(horizon="1")
    timelines = [make_timeline([NO, 1, 1, 0, 1], states=["0.1", "1.4", "0.2", "0.3", "2.5"])]
    derived = choose_ahead(timelines, ["No-Change", "Change"], arguments, change_step=1.0)
    assert derived.horizon_labels == [["No-Change"], ["Change"]]
    # Of given labels the largest class is no change, or the class where the state stays.
    given = [make_timeline([NO, 1, 1, 0, 1])]
    assert choose_ahead(given, ["a", "b"], arguments).horizon_labels == [["b"], ["a"]]
    stays = [make_timeline([NO, 1, 1, 0, 1], states=["calm", "sad", "calm", "calm", "sad"])]
    assert choose_ahead(stays, ["a", "b"], arguments).horizon_labels == [["a"], ["b"]]


def test_a_stream_is_refused():
    arguments = DataTrainingArguments(train_file="posts.csv", horizon="1", streaming=True)
    posts = {"train": rows(("a", "OEOO")).to_iterable_dataset()}
    with pytest.raises(ValueError, match="--horizon.*--streaming"):
        split_posts(posts, arguments, NAMES, ["train"], 0, None)


def test_no_rule_of_first_posts():
    """The first posts of many timelines are not known, and are no change for all that."""
    ahead, times = Ahead("1d", [["O"], ["IE", "IS"]]), [day * DAY for day in range(5)]
    posts = [make_timeline([2, NO, 0, 2, 1], str(number), timestamps=times) for number in range(40)]
    timelines = ask_ahead(posts, NAMES, ahead)
    assert {timeline.labels[0] for timeline in timelines} == {NO}
    fields = fields_of_posts(timelines, AHEAD_LABELS, ahead=ahead)
    assert "first_posts" not in fields and fields["watched"] == 1
    assert fields["horizon"] == "1d" and fields["horizon_labels"] == [["O"], ["IE", "IS"]]
    assert fields["id2label"] == {0: "no change ahead", 1: "change ahead"}


def test_a_model_without_a_question():
    config = PostTempoFormerConfig(id2label={0: "a", 1: "b"})
    assert saved_question(config) is None and file_classes(config) == ["a", "b"]
    assert saved_question(SimpleNamespace()) is None
    timelines = [make_timeline([0, 1])]
    assert ask_ahead(timelines, ["a", "b"], None) == timelines
