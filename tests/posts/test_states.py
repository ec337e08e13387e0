"""Checks how states are named, and what is derived from them."""

from fractions import Fraction

import pytest
from datasets import Dataset
from helpers import make_timeline

from modeling_tempoformer.names_tempoformer import state_ids
from modeling_tempoformer.posts.states import (
    choose_states,
    first_posts_rule,
    no_change_class,
    with_changes,
)
from modeling_tempoformer.posts.surveys import survey
from modeling_tempoformer.posts.tables import load_table
from modeling_tempoformer.posts.timelines import to_timelines
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


def test_grades_have_names_of_their_own():
    assert choose_states([told("10101", "10102")]) == (["10101", "10102"], [10101.0, 10102.0])
    names, values = choose_states([told("100000.001", "100000.002", "0.125")])
    assert list(map(float, names)) == values == [0.125, 100000.001, 100000.002]
    assert choose_states([told("-100", "0", "100")]) == (["-100", "0", "100"], [-100.0, 0.0, 100.0])


@pytest.mark.parametrize(
    ("counts", "groups"),
    [
        # Most posts have no symptom.
        ({0: 90, **dict.fromkeys(range(1, 11), 1)}, [[0], [1, 2], [3, 4, 5], [6, 7], [8, 9, 10]]),
        ({11: 90, **dict.fromkeys(range(1, 11), 1)}, [[1, 2], [3, 4, 5], [6, 7], [8, 9, 10], [11]]),
        ({0: 90, **dict.fromkeys((*range(-10, 0), *range(1, 11)), 1)}, [[0]]),
        ({0: 40, 5: 40, 10: 40, **dict.fromkeys((1, 2, 3, 4, 6, 7, 8, 9), 1)}, [[0], [1, 2, 3, 4], [5]]),
        (dict.fromkeys(range(12), 3), [[0, 1]]),
    ],
    ids=["zeros", "the largest", "the middle", "three", "equal"],
)
def test_numbers_with_many_ties_are_cut_between_them(counts, groups):
    values = [str(value) for value, count in counts.items() for _ in range(count)]
    names, means = choose_states([told(*values)])
    # Each value belongs to the mean that is nearest to it, and equal values are not divided.
    assert 4 <= len(means) <= 6 and means == sorted(set(means)) and len(set(names)) == len(names)
    for group in groups:
        assert any(mean == pytest.approx(sum(group) / len(group)) for mean in means), (group, means)


def test_numbers_as_large_as_a_float_can_be_are_cut():
    names, values = choose_states([told(*(f"{number}e307" for number in range(-15, 15)))])
    assert values == pytest.approx([-12.5e307, -6.5e307, -0.5e307, 5.5e307, 11.5e307])
    assert list(map(float, names)) == pytest.approx(values, rel=0.1) and max(map(len, names)) < 12
    assert state_ids(["-1.7e308", "1.7e308", "0"], names, values) == [0, 4, 2]


def test_decimal_commas_are_those_of_numbers(caplog):
    german = told("1,5", "4,5", "4,50", "1,5", "1.0")
    with pytest.raises(ValueError, match="'1,5'.*'1.0'"):
        choose_states([german])
    german.states[-1] = "1,0"
    assert choose_states([german]) == (["1", "1.5", "4.5"], [1.0, 1.5, 4.5])
    assert state_ids(german.states, ["1", "1.5", "4.5"], [1.0, 1.5, 4.5]) == [1, 2, 2, 1, 0]
    assert with_changes(german, 3).labels == [-100, 1, 0, 1, 0]
    summary = survey([make_timeline([1, 0, 0, 0, 1], states=["1,5", "1,50", "1,5", "2", "1"])])
    assert summary.unchanged == {0: 2}
    assert not caplog.text
    # Several classes in one cell are no number.
    assert choose_states([told("1,2", "1,2,3", "1")]) == (["1", "1,2", "1,2,3"], None)
    choose_states([told("1,234", "999", "2,500")])
    assert "1.234" in caplog.text and "thousands" in caplog.text


def test_states_of_a_spreadsheet_with_decimal_commas(tmp_path):
    moods = ["1,5", "4,5", "1,0", "1,5", "3,0", "2,25"]
    rows = [f"p{post // 3};hm {post};{mood}" for post, mood in enumerate(moods)]
    (tmp_path / "posts.csv").write_text("\n".join(["timeline_id;text;state", *rows]))
    timelines = to_timelines(load_table(tmp_path / "posts.csv"))
    assert choose_states(timelines) == (["1", "1.5", "2.25", "3", "4.5"], [1.0, 1.5, 2.25, 3.0, 4.5])
    assert [with_changes(timeline, 1.5).labels for timeline in timelines] == [[-100, 1, 1], [-100, 1, 0]]


def test_a_state_has_the_number_of_its_name_or_of_the_nearest_value():
    assert state_ids(["sad", "", "new", "glad"], ["glad", "sad"], None) == [1, -1, -1, 0]
    assert state_ids(["2", "", "0.9", "-7", "none"], ["0", "2"], [0.0, 2.0]) == [1, -1, 0, 0, -1]


def test_changes_of_classes_are_those_of_the_same_speaker():
    timeline = told("sad", "glad", "sad", "glad", "", "sad", "sad")
    assert with_changes(timeline, 0).labels == [-100, 1, 1, 1, -100, -100, 0]
    timeline.speakers = ["a", "b", "a", "b", "a", "b", "a"]
    assert with_changes(timeline, 0).labels == [-100, -100, 0, 0, -100, 1, -100]


def test_changes_of_numbers_have_a_step():
    assert with_changes(told("1", "2.5", "2", "0", "-2"), 2).labels == [-100, 0, 0, 1, 1]
    assert with_changes(told("-100", "0", "", "100"), 100).labels == [-100, 1, -100, -100]


@pytest.mark.parametrize("step", ["0.1", "0.2", "0.3", "0.7", "1.1", "2.5"])
def test_a_step_is_that_of_the_decimals_as_they_are_written(step):
    """Fractions are exact, where floats of 0.7 - 0.5 are less than 0.2."""
    states = [f"{number / 10:.1f}" for pair in zip(range(40), range(40, 0, -1), strict=True) for number in pair]
    for given in (states, [state.replace(".", ",") for state in states]):
        labels = with_changes(told(*given), float(step)).labels
        for before, after, label in zip(states, states[1:], labels[1:], strict=False):
            assert label == (abs(Fraction(after) - Fraction(before)) >= Fraction(step)), (before, after)


def table(**columns) -> Dataset:
    return Dataset.from_dict({"timeline_id": ["a"] * 4 + ["b"] * 4, "text": ["hm"] * 8, **columns})


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
        summary = survey(iter([make_timeline(labels, states=states)]))
        assert no_change_class(summary.labels, summary.unchanged, 2) == expected
