"""Checks the scores of alarms by changes and timelines on examples worked by hand, and against plain loops."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import make_timeline
from modeling_tempoformer.metrics.change_detection import change_detection

from modeling_tempoformer.evaluation.alarm_costs import alarm_curve, score_costs
from modeling_tempoformer.evaluation.alarms import measure_alarms
from modeling_tempoformer.evaluation.figures import alarm_figure, figures_in, write_alarm_figure
from modeling_tempoformer.evaluation.report import cost_lines, cost_rows, span_words


DAY = 86_400
# Labels and alarms of four timelines: two changes, one found late, one early; no change; a missed one; nothing at all.
PAIRS = [("00110010", "10010101"), ("000", "010"), ("010", "000"), ("00", "00")]
HELD_BACK = ["01001000", "000", "010", "10"]
DAYS = [*range(8), *range(3), *range(100, 103), 0, 0.5]


def digits(texts) -> np.ndarray:
    return np.array([int(letter) for letter in "".join(texts)])


@pytest.fixture
def metric(tmp_path):
    return change_detection.ChangeDetection(keep_in_memory=True, cache_dir=str(tmp_path))


def inputs_of(pairs=PAIRS, **others) -> dict:
    """Returns the inputs of the metric for timelines, given as labels and alarms. No post is predicted as a change."""
    labels, alarms = map(digits, zip(*pairs, strict=True))
    timelines = np.repeat(np.arange(len(pairs)), [len(text) for text, _ in pairs])
    inputs = {"references": labels, "predictions": np.zeros_like(labels), "alarms": alarms.astype(bool)}
    return {**inputs, "timelines": timelines, "label_names": ["No", "Switch"], "watched": "Switch", **others}


def scores_of_alarms(metric, **inputs) -> dict[str, float]:
    """Returns the scores of alarms, without the scores of classes."""
    names = {score.name for score in change_detection.SCORES if score.of in ("alarms", "held_back")}
    return {name: value for name, value in metric.compute(**inputs).items() if name in names}


EARLY = {
    **{"num_changes": 3, "found_changes": 2 / 3, "missed_changes": 1 / 3, "found_timelines": 1 / 2},
    **{"false_alarms": 3, "false_alarms_per_timeline": 3 / 4, "falsely_alarmed_timelines": 1 / 2},
    **{"median_alarm_delay_posts": (1 - 1) / 2, "median_advance_posts": 1},
    # A hit after two posts, a false alarm and a miss; the median timeline has three posts.
    "latency_f1": 2 / 4 * (1 - (2 / (1 + 1 / math.sqrt(3)) - 1)),
}


def test_a_worked_example(metric):
    assert scores_of_alarms(metric, **inputs_of(early=1)) == pytest.approx(EARLY)
    times = [day * DAY for day in DAYS]
    timed = EARLY | {"median_alarm_delay_seconds": 0, "false_alarms_per_day": 3 / 11}
    inputs = inputs_of(early=1, times=times)
    assert scores_of_alarms(metric, **inputs) == pytest.approx(timed)
    # Times put posts in order.
    for name in ("references", "predictions", "alarms", "timelines", "times"):
        inputs[name] = inputs[name][::-1]
    assert scores_of_alarms(metric, **inputs) == pytest.approx(timed)
    # No alarm is early.
    late = scores_of_alarms(metric, **inputs_of(times=times))
    assert (late["found_changes"], late["false_alarms"]) == (pytest.approx(1 / 3), 4)
    assert late["median_alarm_delay_seconds"] == DAY and "median_advance_posts" not in late


def test_alarms_that_were_held_back(metric):
    """One would have found a missed change, two would have been false, and one would have found a found change."""
    scores = scores_of_alarms(metric, **inputs_of(early=1, held_back=digits(HELD_BACK)))
    assert scores["recovery"] == pytest.approx((2 - 1) / 4)


@pytest.mark.parametrize(
    "labels, alarms, early, delays",
    [
        ("0011", "0010", 0, [0]),
        ("0011", "1000", 1, [None]),
        ("0011", "1000", 2, [-2]),
        # The first alarm counts.
        ("00111", "01011", 2, [-1]),
        # An alarm in a change is not an early one of the next change.
        ("101", "100", 2, [0, None]),
        ("101", "010", 2, [None, -1]),
        ("1101", "0100", 5, [1, None]),
        ("000", "111", 2, []),
    ],
)
def test_an_alarm_finds_one_change(labels, alarms, early, delays):
    module = change_detection
    posts = module.Posts(digits(labels) > 0, digits(alarms) > 0, np.full(len(labels), math.nan))
    found = module.judge_alarms(posts, early).delays[:, 0].tolist()
    assert [None if math.isnan(delay) else delay for delay in found] == delays


@pytest.mark.parametrize("size", [9, 19])
def test_the_penalty_is_a_half_where_the_median_timeline_would_be_read(metric, size):
    """Its change begins at once and is found at the last post. An early alarm has no penalty."""
    whole, first = "1" * size, "1" + "0" * (size - 1)
    scores = scores_of_alarms(metric, **inputs_of([(whole, first[::-1])]))
    assert scores["latency_f1"] == pytest.approx(1 / 2)
    scores = scores_of_alarms(metric, **inputs_of([(first[::-1], "0" * (size - 3) + "100")], early=2))
    assert scores["latency_f1"] == pytest.approx(1) and scores["median_advance_posts"] == 2


def test_posts_without_labels_are_neither_right_nor_false(metric):
    inputs = inputs_of(early=1)
    for name, value in (("references", -100), ("alarms", True), ("predictions", 0)):
        inputs[name] = np.insert(inputs[name], [1, 3, 9, 16], value)
    inputs["timelines"] = np.insert(inputs["timelines"], [1, 3, 9, 16], [0, 0, 1, 4])
    assert scores_of_alarms(metric, **inputs) == pytest.approx(EARLY)


def test_scores_of_alarms_need_alarms_timelines_and_a_class(metric):
    for name in ("alarms", "timelines", "watched"):
        assert scores_of_alarms(metric, **inputs_of(**{name: None})) == {}
    # Without a change nothing can be found.
    calm = scores_of_alarms(metric, **inputs_of([("000", "010")]))
    assert calm["false_alarms"] == 1 and calm["latency_f1"] == 0 and "found_changes" not in calm
    assert "latency_f1" not in scores_of_alarms(metric, **inputs_of([("000", "000")]))


def random_timelines(with_unlabelled: bool) -> tuple[list, np.ndarray, np.ndarray]:
    """Returns six timelines of twelve posts, their labels (posts,) and probabilities (posts,), many of them equal."""
    generator = np.random.default_rng(0)
    labels = generator.integers(-1 if with_unlabelled else 0, 2, size=(6, 12))
    labels = np.where(labels < 0, -100, labels)
    times = 1.7e9 + DAY * generator.integers(0, 30, size=(6, 12)).cumsum(axis=1)
    timelines = [make_timeline(part.tolist(), timestamps=at.tolist()) for part, at in zip(labels, times, strict=True)]
    return timelines, labels.ravel(), generator.integers(0, 10, size=72) / 10


def test_the_costs_of_a_part_are_the_scores_of_the_metric(metric):
    timelines, labels, scores = random_timelines(False)
    alarms, held_back = scores > 0.6, (scores > 0.4) & (scores <= 0.6)
    measured = measure_alarms(timelines, alarms, np.ones(72, bool), 1)
    costs = score_costs(timelines, alarms, 1, measured, early=1, held_back=held_back)
    inputs = {"references": labels, "predictions": np.zeros_like(labels), "label_names": ["No", "Switch"]}
    inputs |= {"timelines": np.repeat(range(6), 12), "alarms": alarms, "held_back": held_back, "watched": "Switch"}
    times = [time for timeline in timelines for time in timeline.timestamps]
    expected = scores_of_alarms(metric, **inputs, times=times, early=1)
    assert {name: costs[name] for name in expected} == pytest.approx(expected)
    assert costs["false_alarms_per_hundred_posts"] == pytest.approx(100 * expected["false_alarms"] / 72)
    low, high = costs["false_alarms_per_day_interval"]
    assert low < costs["false_alarms_per_day"] < high < 3 * costs["false_alarms_per_day"]


def test_the_interval_of_the_share_found_is_over_timelines():
    """All samples of four timelines are listed. Found are 2 of 2 changes, none of 1, 1 of 2, and 1 of 3."""
    pairs = [("10100", "10100"), ("01000", "00001"), ("01010", "01000"), ("10101", "00001")]
    timelines = [make_timeline(digits(labels).tolist()) for labels, _ in pairs]
    alarms = digits(text for _, text in pairs) > 0
    costs = score_costs(timelines, alarms, 1, measure_alarms(timelines, alarms, np.ones(20, bool), 1))
    counts = np.array([(2, 2), (0, 1), (1, 2), (1, 3)])
    samples = [np.divide(*counts[list(sample)].sum(axis=0)) for sample in itertools.product(range(4), repeat=4)]
    # The samples have few values, between which the quantile of a bootstrap may jump.
    for end, share in zip(costs["found_changes_interval"], (0.025, 0.975), strict=True):
        low, high = np.quantile(samples, [share - 0.01, share + 0.01])
        assert low - 1e-9 <= end <= high + 1e-9
    assert costs["found_changes"] == pytest.approx(4 / 8) and "false_alarms_per_day" not in costs
    assert costs["false_alarms_per_hundred_posts"] == pytest.approx(100 / 20)
    # One timeline gives one sample.
    alone = score_costs(timelines[:1], alarms[:5], 1, measure_alarms(timelines[:1], alarms[:5], np.ones(5, bool), 1))
    assert alone["found_changes"] == 1 and not any(name.endswith("interval") for name in alone)


def test_posts_without_labels_count_as_the_others_but_for_first_posts():
    """
    Two timelines have four posts each on one day. Two of the four have a label, and one of these is a false alarm. The
    first post cannot alarm: of the six other posts, as large a share makes three.
    """
    timelines = [make_timeline([-100, 0, 0, -100], timestamps=[1.7e9 + post for post in range(4)]) for _ in range(2)]
    alarms = np.array([False, True, False, False] * 2)
    measured = measure_alarms(timelines, alarms, np.ones(8, bool), 1, "timeline")
    costs = score_costs(timelines, alarms, 1, measured, "timeline")
    assert costs["false_alarms"] == 2 and costs["false_alarms_per_day"] == pytest.approx(3)
    assert costs["false_alarms_per_hundred_posts"] == pytest.approx(37.5)
    assert score_costs(timelines, alarms, 1, measured)["false_alarms_per_day"] == pytest.approx(4)


@pytest.mark.parametrize("early", [0, 2])
def test_the_curve_has_the_alarms_of_each_threshold(early):
    timelines, _, scores = random_timelines(True)
    measured = measure_alarms(timelines, scores > 2, np.ones(72, bool), 1)
    points = {(0, 0.0)}
    for threshold in set(scores):
        costs = score_costs(timelines, scores >= threshold, 1, measured, early=early)
        points.add((costs["false_alarms"], costs["found_changes"]))
    most = min(false for false, found in points if found == 1)
    expected = sorted(point for point in points if point[0] <= most)
    false, found = alarm_curve(timelines, scores, 1, early)
    shown = sorted(set(zip(false.tolist(), found.tolist(), strict=True)))
    assert np.array(shown) == pytest.approx(np.array(expected)) and len(shown) > 3


def test_the_figure_marks_the_alarms_of_the_model():
    costs = {"false_alarms_per_day": 0.4, "false_alarms_per_day_interval": (0.1, 0.5), "found_changes": 0.6}
    costs["found_changes_interval"] = (0.5, 0.8)
    axes = alarm_figure(np.array([0, 0.4, 0.9]), np.array([0, 0.6, 1.0]), costs, "Switch").axes[0]
    curve, point = (line.get_xydata().tolist() for line in axes.lines[:2])
    assert curve == [[0, 0], [0.4, 0.6], [0.9, 1.0]] and point == [[0.4, 0.6]]
    across, upright = (bars.get_segments()[0].tolist() for bars in axes.collections)
    assert np.array(across) == pytest.approx(np.array([[0.1, 0.6], [0.5, 0.6]]))
    assert np.array(upright) == pytest.approx(np.array([[0.4, 0.5], [0.4, 0.8]]))
    assert "day" in axes.get_xlabel() and "Switch" in axes.get_ylabel()
    # Without dates, and of a single timeline
    bare = {"false_alarms_per_hundred_posts": 5.0, "found_changes": 0.6}
    axes = alarm_figure(np.array([0, 5]), np.array([0, 0.6]), bare, "Switch").axes[0]
    assert "hundred" in axes.get_xlabel() and axes.lines[1].get_xydata().tolist() == [[5, 0.6]]


def test_there_is_a_figure_if_there_is_a_change(tmp_path, all_forms):
    config = SimpleNamespace(watched=1, num_labels=2, id2label={0: "No", 1: "Switch"}, first_posts=None)
    scores = np.array([0.9, 0.2, 0.7])
    shares = np.stack([1 - scores, scores], axis=1)
    for labels, names in (([0, 0, 0], []), ([0, 0, 1], ["alarms.png"])):
        timelines = [make_timeline(labels)]
        measured = measure_alarms(timelines, scores > 0.5, np.ones(3, bool), 1)
        measured["costs"] = score_costs(timelines, scores > 0.5, 1, measured)
        write_alarm_figure(str(tmp_path), timelines, shares, config, measured)
        assert list(figures_in(tmp_path)) == names
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg", ".pdf"}


def test_the_table_has_what_is_known():
    costs = {"num_changes": 20, "found_changes": 0.75, "found_changes_interval": (0.5, 0.875)}
    costs |= {"false_alarms_per_day": 1.5, "median_alarm_delay_seconds": 5400.0}
    results = {"watched": "Switch", "alarm": {"costs": costs}}
    (header, *rows), (line,) = cost_rows(results), cost_lines(results)
    assert "Switch" in header[0] and {len(row) for row in rows} == {len(header)}
    assert {row[1:] for row in map(tuple, rows)} == {("0.750", "0.500 to 0.875"), ("1.500", ""), ("1.5 hours", "")}
    assert all(words in line for words in ("15 of the 20 runs", "0.750", "0.500 to 0.875", "a day", "1.500"))
    assert cost_rows({}) == cost_lines({}) == []


@pytest.mark.parametrize(
    "seconds, words", [(0, "0.0 seconds"), (-90, "-1.5 minutes"), (7200, "2.0 hours"), (DAY * 2.5, "2.5 days")]
)
def test_a_span_of_time_in_words(seconds, words):
    assert span_words(seconds) == words
