"""Checks the results of a part: nested, in a table, and in plain words."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import make_timeline
from scipy.special import softmax
from sklearn.metrics import f1_score

from modeling_tempoformer.decisions_tempoformer import watched_threshold
from modeling_tempoformer.evaluation import report
from modeling_tempoformer.evaluation.baseline_scores import position_and_time
from modeling_tempoformer.evaluation.metrics import compute_scores
from modeling_tempoformer.evaluation.predictions import ExpertDecisions, Predictions, decide_experts
from modeling_tempoformer.evaluation.report import (
    group_by_class,
    read_test,
    remarks,
    results_table,
    score_part,
    verdict,
)
from modeling_tempoformer.posts.metadata import Metadata
from modeling_tempoformer.timeline_tempoformer import Timeline


NAMES = ["No-Switch", "Switch"]


@pytest.mark.parametrize(
    ("actual", "predicted", "words"),
    [
        ([0, 0, 0, 1], [0, 0, 0, 0], ["every", "No-Switch", "0.429"]),
        # F1 is 2/3 and 0. The mean is less than 1/2, which guessing gives.
        ([0, 0, 0, 1], [0, 0, 1, 0], ["0.333", "0.500"]),
        # Both classes are predicted.
        ([0, 0, 1, 1], [0, 0, 0, 1], None),
        # No post has the second class.
        ([0, 0, 0, 0], [1, 1, 1, 1], ["0.000", "0.500"]),
        # With three classes guessing gives 1/3. With two classes 0.44 would be less than guessing.
        ([0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 1, 0], None),
        ([0, 0, 1, 1, 2, 2], [1, 2, 2, 0, 0, 1], ["0.333"]),
    ],
)
def test_one_class_and_guessing_are_called_so(actual, predicted, words):
    names = [*NAMES, "Escalation"][: max(actual + predicted) + 1]
    scores = compute_scores(Predictions(np.array(actual), np.array(predicted), names))
    sentences = verdict(group_by_class(scores, "eval", names))
    assert sentences is None if words is None else all(word in sentences for word in words)


def test_a_score_that_may_be_guessing_is_called_so():
    """Ten timelines whose predictions are drawn apart from the labels, and the same where nine in ten are right."""
    generator = np.random.default_rng(4)
    labels, drawn = generator.random((2, 10, 20)) < 0.4
    right = np.where(generator.random(labels.shape) < 0.9, labels, ~labels)
    timelines = [make_timeline(row.astype(int).tolist()) for row in labels]
    by_chance, learned = (results_of(timelines, given.astype(int).ravel().tolist()) for given in (drawn, right))
    # Above a half by chance, but not for sure
    assert by_chance["macro_f1_interval"][0] < 0.5 < by_chance["macro_f1"]
    assert "0.500" in verdict(by_chance) and "more people" in remarks(by_chance)[0]
    assert verdict(learned) is None
    # One timeline has no interval: the score alone decides.
    assert verdict({name: value for name, value in by_chance.items() if name != "macro_f1_interval"}) is None


def results_of(
    timelines: list[Timeline], predicted: list[int], train: list[Timeline] | None = None, names=NAMES
) -> dict:
    scores = score_part(timelines, np.array(predicted), np.eye(2)[predicted] * 0.8 + 0.1, names, train)
    return group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", names)


PREDICTED = [0, 1, 0, 0, 1, 0]


def two_timelines(num_labelled: int = 6) -> list[Timeline]:
    """Returns two timelines. The prediction of the last post is wrong."""
    labels = [label if number < num_labelled else -100 for number, label in enumerate([0, 1, 0, 0, 1, 1])]
    return [make_timeline(labels[:3], timestamps=[0, 60, 90]), make_timeline(labels[3:], timestamps=[0, 10, 20])]


def test_the_table_has_the_scores_of_each_class_and_what_costs_nothing():
    # These names of classes look like names of other scores.
    classes = results_of(two_timelines(), PREDICTED, names=["posts_f1", "f1"])["classes"]
    assert classes["f1"]["recall"] == pytest.approx(2 / 3) and classes["f1"]["posts"] == 3
    assert classes["posts_f1"]["precision"] == pytest.approx(3 / 4)

    results = results_of(two_timelines(), PREDICTED, two_timelines())
    switch = [results["classes"]["Switch"][name] for name in ("precision", "recall", "f1", "posts")]
    assert switch == pytest.approx([1, 2 / 3, 4 / 5, 3])
    table = results_table("test", results | {"posts_per_second": 12.3})
    larger = results["compared_with"]["larger_class"]
    for value in (*switch[:3], results["macro_f1"], larger["macro_f1"]):
        assert f" {value:.3f}" in table


def test_a_remark_names_each_rival_that_is_as_good():
    """Position alone is always right."""
    timelines = [make_timeline([0, 1, 1]) for _ in range(40)]
    better_than_one = results_of(timelines, [0, 1, 1] * 38 + [1, 1, 0] * 2, timelines)
    (remark,) = remarks(better_than_one)
    assert "position" in remark and "Switch" not in remark
    assert better_than_one["compared_with"]["position_and_time"]["difference_interval"][0] <= 0
    assert better_than_one["compared_with"]["larger_class"]["difference_interval"][0] > 0
    # This model is as good as the larger class, and worse than position alone: there is a sentence for each.
    as_good, worse = remarks(results_of(timelines, [1] * 120, timelines))[-2:]
    assert "Switch" in as_good and "position" in worse and "Switch" not in worse


def test_a_score_of_one_timeline_is_called_so(tmp_path):
    """All posts of the second class but one are in the first of twelve timelines."""
    timelines = [make_timeline(labels) for labels in ([1] * 9 + [0], [1] + [0] * 9, *[[0] * 9] * 10)]
    results = results_of(timelines, [label for timeline in timelines for label in timeline.labels])
    *others, remark = remarks(results)
    assert "12 timelines (Switch: 1)" in remark and "No-Switch" not in remark
    sentences = report.test_summary(results)
    assert [sentence for sentence in sentences if sentence in (*others, remark)] == [
        *others,
        remark,
    ] and "1.000" in sentences[0]
    (tmp_path / "all_results.json").write_text(json.dumps({"test": results}))
    assert report.test_summary(read_test(str(tmp_path))) == sentences
    assert remarks(results_of([make_timeline([1, 0, 0]) for _ in range(12)], [1, 0, 0] * 12)) == []


def test_the_range_of_probabilities_stands_beside_the_scores():
    """The calibration error is small because the model is never sure. Of 40 posts the surest one is left out."""
    timelines = [make_timeline([0, 1] * 4) for _ in range(5)]
    sure = np.linspace(0.5, 0.54, 40)
    sure[7] = 0.99
    predicted = np.array([0, 1] * 20)
    probabilities = np.stack([sure, 1 - sure], 1)
    probabilities[1::2] = probabilities[1::2, ::-1]
    scores = score_part(timelines, predicted, probabilities, NAMES)
    low, high = scores["confidence_range"]
    assert 0.5 < low < 0.505 and 0.535 < high < 0.6
    results = group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", NAMES)
    for shown in (results_table("test", results), " ".join(report.test_summary(results))):
        assert f"{results['expected_calibration_error']:.3f}; " in shown and f"{low:.2f} to {high:.2f}" in shown
        assert "to watch" not in shown


LABELS = [0, 0, 0, 1, 1, 0, 0, 1, 1, 0]


def scored_alarms(calibration: dict | None) -> tuple[dict, list[int], np.ndarray]:
    """
    Returns the results of a model that watches the second class, its labels, and the probabilities of a baseline. Each
    of twelve timelines has six posts that are calm and four that are not. The model is sure of one of these, and
    rather sure of a calm one. The baseline learns from the same timelines, with one label changed.
    """
    labels, shares = LABELS, [0.1, 0.2, 0.1, 0.6, 0.9, 0.7, 0.2, 0.55, 0.3, 0.1]
    timelines = [make_timeline(labels, timestamps=[1.7e9 + 86_400 * post for post in range(10)]) for _ in range(12)]
    wrong = make_timeline([1 - labels[0], *labels[1:]], timestamps=timelines[0].timestamps)
    config = SimpleNamespace(watched=1, num_labels=2, calibration=calibration, first_posts=None)
    shares = np.array(shares * 12)
    predicted = (shares > 0.5).astype(int)
    scores = score_part(
        timelines, predicted, np.stack([1 - shares, shares], 1), NAMES, [wrong, *timelines[1:]], config=config
    )
    scores |= {"watched": "Switch", "watched_threshold": watched_threshold(config, calibration)}
    results = group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", NAMES)
    learned = position_and_time.predict([wrong, *timelines[1:]], timelines, 2)
    return results, predicted.tolist(), learned[:, 1]


def test_an_alarm_stands_beside_the_scores_of_labels_and_changes_none():
    """Only the surest post of a timeline is an alarm: all are right, and a quarter of the class is found."""
    plain, predicted, shares = scored_alarms(None)
    alarmed, *_ = scored_alarms({"alarm": {"label": 1, "threshold": 0.80002, "wanted": "precision=0.9"}})
    assert plain["macro_f1"] == alarmed["macro_f1"]
    assert plain["macro_f1"] == pytest.approx(f1_score(LABELS * 12, predicted, average="macro"))
    for name in ("classes", "compared_with", "confidence_range"):
        assert plain[name] == alarmed[name]
    # Without an alarm of its own the class is one where it is the label: three of four are right, and found.
    for results, precision, recall, alarms in ((plain, 0.75, 0.75, 4), (alarmed, 1.0, 0.25, 1)):
        values = results["alarm"]
        assert (values["precision"], values["recall"]) == (pytest.approx(precision), pytest.approx(recall))
        assert values["alarms"] == 12 * alarms and values["alarms_per_hundred_posts"] == pytest.approx(10 * alarms)
        assert values["alarms_per_day"] == pytest.approx(12 * alarms / 10)
        # Trees that know the position get the threshold that is as precise and finds most.
        baseline, is_class = values["compared_with"]["position_and_time"], np.array(LABELS * 12) == 1
        cuts = [shares >= cut for cut in set(shares)]
        most = max(is_class[cut].sum() for cut in cuts if is_class[cut].mean() >= precision) / is_class.sum()
        assert baseline["precision"] >= precision and baseline["recall"] == pytest.approx(most)
        assert baseline["difference"] == pytest.approx(recall - most)
        for shown in (results_table("test", results), " ".join(report.test_summary(results))):
            for words in (
                f"precision {precision:.3f}",
                f"recall {recall:.3f}",
                f"{most:.3f}",
                f"{12 * alarms} alarms",
            ):
                assert words in shown
            assert ("from a probability of 0.80002 on, for a wanted precision of 0.9" in shown) == (results is alarmed)


def test_a_wanted_recall_is_that_of_the_rivals_too():
    results, *_ = scored_alarms({"alarm": {"label": 1, "threshold": 0.5, "wanted": "recall=0.7"}})
    baseline = results["alarm"]["compared_with"]["position_and_time"]
    assert baseline["recall"] >= 0.75 and baseline["difference"] == pytest.approx(0.75 - baseline["precision"])


def test_a_model_with_thresholds_for_macro_f1_stands_beside_itself_without_them():
    """The baselines have no thresholds."""
    results, predicted, _ = scored_alarms({"thresholds": [0.4, 0.6]})
    without = results["compared_with"]["without_thresholds"]
    assert without["macro_f1"] == pytest.approx(f1_score(LABELS * 12, predicted, average="macro"))
    assert "without_thresholds" not in results["alarm"]["compared_with"]
    assert "without its thresholds" in results_table("test", results)


def test_posts_that_were_held_out_in_turn_are_called_so():
    timelines = two_timelines()
    assert "in turn" not in results_table("validation", results_of(timelines, PREDICTED))
    for member, timeline in enumerate(timelines):
        timeline.held_out = member
    assert "in turn" in results_table("validation", results_of(timelines, PREDICTED))


def test_unlabelled_posts_have_no_scores(tmp_path):
    unlabelled = results_of(two_timelines(num_labelled=0), PREDICTED)
    assert unlabelled == {"posts": 6, "labelled_posts": 0, "timelines": 2}
    assert "macro_f1" in results_of(two_timelines(num_labelled=4), PREDICTED)
    assert read_test(str(tmp_path)) == {} and report.test_summary({}) == report.test_summary(unlabelled)
    assert len(report.test_summary({})) == 1 and remarks({}) == []


def test_experts_alone_and_states_stand_under_the_table():
    """The first expert predicts what the model predicts. The second one is always wrong."""
    timelines = [make_timeline([0, 1, 1]) for _ in range(40)]
    predicted = [0, 1, 1] * 39 + [1, 1, 1]
    wrong = [1, 0, 0] * 40
    experts = {
        "network": ExpertDecisions(0.5, np.array(predicted), np.array(wrong)),
        "trees": ExpertDecisions(1.25, np.array(wrong), np.array(predicted)),
        "words": ExpertDecisions(0.0, np.array(wrong), None),
    }
    scores = score_part(timelines, np.array(predicted), np.eye(2)[predicted], NAMES, experts=experts)
    alone = scores["experts"]
    actual = [label for timeline in timelines for label in timeline.labels]
    assert alone["network"]["macro_f1"] == pytest.approx(f1_score(actual, predicted, average="macro"))
    assert alone["trees"]["macro_f1"] == 0 and alone["trees"]["weight"] == 1.25
    assert alone["network"]["difference"] == 0 and alone["trees"]["difference_interval"][0] > 0
    results = group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", NAMES)
    frequent = {"state": "joy", "accuracy": 0.25, "macro_f1": 0.111, "difference_interval": [-0.1, 0.3]}
    results["states"] = {"posts": 77, "accuracy": 0.625, "macro_f1": 0.222, "most_frequent": frequent}
    table = results_table("test", results)
    score = f"{results['macro_f1']:.3f}"
    for words in ("trees alone 0.000", f"network alone {score}", "77 posts", "0.625", "0.222", "always joy", "0.111"):
        assert words in table
    # It says only of the first expert that nobody can tell it apart.
    (line,) = [line for line in table.splitlines() if "network alone" in line]
    assert report.NO_DIFFERENCE in line and "trees" not in line.partition(report.NO_DIFFERENCE)[2]
    # Who decides stands in the table and in the sentences, the largest weight first.
    (line,) = [line for line in table.splitlines() if "(1.25)" in line]
    assert line in report.test_summary(results) and line.index("trees (1.25)") < line.index("network (0.50)")
    assert "its words have no weight" in line
    assert f"without its trees {score} ({report.NO_DIFFERENCE})" in line
    assert f"without the network 0.000 (+{score})" in line
    assert any("0.222" in sentence and report.NO_DIFFERENCE in sentence for sentence in report.test_summary(results))


def test_a_network_without_weight_has_no_score():
    timelines = [make_timeline([0, 1, 1], expert_logits=torch.zeros(3, 2, 2)) for _ in range(20)]
    predicted = np.array([0, 1, 1] * 20)
    experts = decide_experts(timelines, {"network": 0.0, "trees": 1.0})
    scores = score_part(timelines, predicted, np.eye(2)[predicted], NAMES, experts=experts)
    assert scores["experts"]["network"] == {"weight": 0.0} and "macro_f1" in scores["experts"]["trees"]
    results = group_by_class({f"predict_{name}": value for name, value in scores.items()}, "predict", NAMES)
    (line,) = [line for line in results_table("test", results).splitlines() if "(1.00)" in line]
    assert "the network has no weight" in line and "its trees (1.00)" in line and "without" not in line


def test_what_experts_decide_without_one():
    """The others' logits are added with their weights; an expert without a weight changes nothing."""
    draw = torch.Generator().manual_seed(0)
    timelines = [make_timeline([0] * 30, expert_logits=torch.randn(30, 3, 3, generator=draw)) for _ in range(4)]
    timelines[0].expert_logits[5] = math.nan
    weights, thresholds = {"network": 0.5, "trees": 0.0, "words": 1.5}, [0.5, 0.3, 0.2]
    experts = decide_experts(timelines, weights, {"thresholds": thresholds})
    logits = torch.cat([timeline.expert_logits for timeline in timelines]).numpy()
    assert experts["trees"].without is None and experts["trees"].weight == 0
    for name, other in (("network", 2), ("words", 0)):
        shares = softmax(weights[list(weights)[other]] * logits[:, other], axis=-1)
        expected = np.where(np.isnan(shares).any(-1), -1, (shares / thresholds).argmax(-1))
        assert (experts[name].without == expected).all() and experts[name].without[5] == -1
    alone = decide_experts(timelines, {"network": 0.0, "trees": 0.0, "words": 0.7})
    assert alone["words"].without is None and alone["network"].alone is None


def test_better_alarms_of_a_baseline_are_named():
    """The best of two baselines with surely better alarms is named; a third cannot be told apart."""
    ends = {"words": [-0.6, -0.4], "trees": [-0.3, -0.1], "position_and_time": [-0.8, 0.1]}
    recalls = {"words": 0.72, "trees": 0.4, "position_and_time": 0.9}
    others = {
        name: {"recall": recall, "difference": 0.21 - recall, "difference_interval": ends[name]}
        for name, recall in recalls.items()
    }
    alarms = {"precision": 0.5, "recall": 0.21, "compared_with": others}
    (sentence,) = report.better_alarm_lines({"watched": "asking", "alarm": alarms})
    for words in ("asking", "the words of the post alone", "0.720", "same precision", "0.210"):
        assert words in sentence
    del others["words"], others["trees"]
    assert report.better_alarm_lines({"watched": "asking", "alarm": alarms}) == []
    assert report.better_alarm_lines({}) == []


def test_groups_and_people_stand_under_the_table_and_in_the_sentences():
    """The model errs on the posts of one group. Two of three people always agree, and the third is the model."""
    timelines = [make_timeline([0, 1, 1, 0]) for _ in range(20)]
    predicted = np.array([0, 1, 0, 1, 0, 1, 1, 0] * 10)
    for timeline, posts in zip(timelines, predicted.reshape(20, 4), strict=True):
        labels = [{"A": label, "B": label, "C": int(post)} for label, post in zip(timeline.labels, posts, strict=True)]
        timeline.metadata = [Metadata(group, labels=given) for group, given in zip("xxyy", labels, strict=True)]
    results = results_of(timelines, predicted)
    assert results["groups"]["x"]["macro_f1"] == 1 and results["groups"]["y"]["difference"] == -0.5
    assert results["annotators"]["each"]["C"]["difference"] == 0
    sentences = report.test_summary(results)
    (worse,) = [sentence for sentence in sentences if "worse for" in sentence]
    assert "worse for y:" in worse and "0.500" in worse
    assert any(f"{results['annotators']['alpha']:.3f}" in sentence for sentence in sentences)
    table = results_table("test", results)
    rows = {line.split()[0]: line for line in table.splitlines() if line[:1] in ("x", "y", "A", "C")}
    assert "-0.500" in rows["y"] and "+0.500" in rows["x"] and report.NO_DIFFERENCE in rows["C"]
    header, *cells = report.group_rows(results)
    assert [row[0] for row in cells] == ["x", "y"] and all(len(row) == len(header) for row in cells)
    assert report.group_rows({}) == report.annotator_rows({}) == report.annotator_lines({}) == []


@pytest.mark.parametrize(
    ("interval", "words"),
    [([0.01, 0.3], report.BETTER), ([-0.3, -0.01], report.WORSE), ([-0.01, 0.3], report.AS_GOOD)],
)
def test_the_interval_of_a_difference_decides_about_the_words(interval, words):
    results = results_of(two_timelines(), PREDICTED)
    results["compared_with"] = {"larger_class": {"class": "Switch", "macro_f1": 0.5, "difference": 0.123}}
    results["compared_with"]["larger_class"]["difference_interval"] = interval
    can_tell = words != report.AS_GOOD
    assert ("+0.123" in results_table("test", results)) == can_tell
    assert (report.NO_DIFFERENCE in results_table("test", results)) == (not can_tell)
    assert [words in sentence for sentence in remarks(results)[:1]] == [words != report.BETTER]
    # The summary has the same verdict, and no other.
    sentences = [sentence for sentence in report.test_summary(results) if "(0.500)" in sentence]
    verdicts = (report.BETTER, report.WORSE, report.NO_DIFFERENCE)
    assert len(sentences) == 1 and words in sentences[0] and sum(verdict in sentences[0] for verdict in verdicts) == 1
    # One timeline says nothing about others.
    del results["compared_with"]["larger_class"]["difference_interval"]
    assert report.NO_DIFFERENCE in remarks(results)[0]
