"""Checks how states are named, and what is derived from them."""

import pytest
from datasets import Dataset
from helpers import make_timeline

from modeling_tempoformer.data.states import (
    choose_states,
    find_state_column,
    first_posts_rule,
    no_change_class,
    state_ids,
    with_changes,
)
from modeling_tempoformer.data.surveys import survey
from modeling_tempoformer.data.timelines import to_timelines
from modeling_tempoformer.timeline_tempoformer import Timeline


def told(*states: str, **fields):
    return make_timeline([-100] * len(states), states=list(states), **fields)


def test_classes_grades_and_quantiles():
    assert choose_states([told("", "")]) is None
    assert choose_states([told("sad", "glad", ""), told("sad", "calm")]) == (["calm", "glad", "sad"], None)
    assert choose_states([told("2", "-1.50", "0", "2")]) == (["-1.5", "0", "2"], [-1.5, 0.0, 2.0])
    names, values = choose_states([told(*map(str, range(20)))])
    assert values == [1.5, 5.5, 9.5, 13.5, 17.5]
    assert names == ["1.5", "5.5", "9.5", "13.5", "17.5"]
    names, values = choose_states([told(*(f"{(number - 9.97) / 7:.3f}" for number in range(20)))])
    assert names == ["-1.21", "-0.64", "-0.07", "0.50", "1.08"] and values[1] == pytest.approx(-0.6386, abs=1e-3)
    with pytest.raises(ValueError, match="one state"):
        choose_states([told("sad", "sad")])
    with pytest.raises(ValueError, match="60 states"):
        choose_states([told(*(f"text {number}" for number in range(60)))])


def test_a_state_has_the_number_of_its_name_or_of_the_nearest_value():
    assert state_ids(["sad", "", "new", "glad"], ["glad", "sad"], None).tolist() == [1, -1, -1, 0]
    assert state_ids(["2", "", "0.9", "-7", "none"], ["0", "2"], [0.0, 2.0]).tolist() == [1, -1, 0, 0, -1]


def test_changes_of_classes_are_those_of_the_same_speaker():
    timeline = told("sad", "glad", "sad", "glad", "", "sad", "sad")
    assert with_changes(timeline, 0).labels == [-100, 1, 1, 1, -100, -100, 0]
    timeline.speakers = ["a", "b", "a", "b", "a", "b", "a"]
    assert with_changes(timeline, 0).labels == [-100, -100, 0, 0, -100, 1, -100]


def test_changes_of_numbers_have_a_step():
    assert with_changes(told("1", "2.5", "2", "0", "-2"), 2).labels == [-100, 0, 0, 1, 1]


def table(**columns) -> Dataset:
    return Dataset.from_dict({"timeline_id": ["a"] * 4 + ["b"] * 4, "text": ["hm"] * 8, **columns})


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["sad", "glad", "glad", "sad", "sad", "sad", "glad", "glad"], ("mood", 0.0)),
        ([1, 3, 4, 7, 2, 3, 5, 5], ("mood", 2.0)),
        # Not a change where the label says so.
        (["sad", "glad", "sad", "sad", "sad", "glad", "glad", "glad"], None),
        # Without values where there are labels.
        (["sad", "glad", None, "sad", None, None, "glad", "glad"], None),
        # The same everywhere.
        (["sad"] * 8, None),
    ],
)
def test_a_column_whose_changes_are_the_labels_is_found(column, expected):
    labels = [None, "change", "no", "change", None, "no", "change", "no"]
    posts = table(label=labels, mood=column, noise=list("xyzxyzxy"))
    timelines = to_timelines(posts, ["change", "no"])
    assert find_state_column(posts, timelines, ["timeline_id", "text", "label"]) == expected


def test_first_posts_that_never_have_a_label_are_a_rule():
    def rule(timelines: list[Timeline], by_speaker: bool = False) -> str | None:
        # One pass over timelines that are not kept, as over a stream.
        return first_posts_rule(survey(iter(timelines)).first_posts, by_speaker)

    usual = [make_timeline([-100, 0, 1, 0]) for _ in range(10)]
    assert rule(usual) == "timeline"
    assert rule([*usual, make_timeline([0, 1])]) is None
    # Too few to be no accident, where most posts have no label.
    rare = [make_timeline([-100, -100, -100, -100, -100, -100, -100, 1]) for _ in range(3)]
    assert rule(rare) is None
    speakers = [make_timeline([-100, -100, 0, 1], speakers=list("abab")) for _ in range(10)]
    assert rule(speakers, by_speaker=True) == "speaker"
    other = make_timeline([-100, 1, 0, 1], speakers=list("abab"))
    assert rule([*speakers, other], by_speaker=True) == "timeline"


def test_the_class_without_change_is_that_of_posts_that_keep_their_state():
    for labels, states, expected in (([0, 1, 1, -100], None, 1), ([-100, 1, 1, 0], ["x", "y", "x", "x"], 0)):
        facts = survey(iter([make_timeline(labels, states=states)]))
        assert no_change_class(facts.labels, facts.unchanged, 2) == expected
