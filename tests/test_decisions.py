"""Checks labels, alarms and the reasons for them against worked examples."""

import pytest
import torch
from helpers import read_json, tiny_model
from transformers import AutoModelForSequenceClassification

from modeling_tempoformer.decisions_tempoformer import decide, find_alarms, read_answers


NAMES = ["calm", "low", "high"]
# The logits of these probabilities of the classes in NAMES
SHARES = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.3, 0.6], [0.2, 0.45, 0.35], [0.15, 0.7, 0.15]])


def config_of(names: list[str] = NAMES, **fields):
    """Returns the configuration of a model with these classes."""
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: label for label, name in enumerate(names)}}
    return tiny_model(num_labels=len(names), **labels, **fields).config


BEST = ["calm", "high", "low", "low"]


@pytest.mark.parametrize(
    ("calibration", "labels", "alarms"),
    [
        (None, BEST, None),
        # The second post is one although another class is twice as probable.
        ({"alarm": {"label": 1, "threshold": 0.25}}, BEST, [False, True, True, True]),
        ({"alarm": {"label": 1, "threshold": 0.46}}, BEST, [False, False, False, True]),
        # The thresholds decide on the label: 0.5 / 0.9 < 0.3 / 0.05, and 0.45 / 0.05 is the most.
        (
            {"thresholds": [0.9, 0.05, 0.05], "alarm": {"label": 1, "threshold": 0.46}},
            ["high", "high", "low", "low"],
            [False, False, False, True],
        ),
        ({"alarm": {"label": 0, "threshold": 0.0}}, BEST, [True] * 4),
        ({"alarm": {"label": 0, "threshold": 1.0}}, BEST, [False] * 4),
    ],
)
def test_an_alarm_is_given_from_its_threshold_on_and_changes_no_label(calibration, labels, alarms):
    """The score is the label's. A class without an alarm of its own gives one where it is the label."""
    probabilities, ranked = decide(SHARES.log(), calibration)
    torch.testing.assert_close(probabilities, SHARES)
    assert [NAMES[label] for label in ranked[:, 0].tolist()] == labels
    assert ranked.sort(-1).values.tolist() == [[0, 1, 2]] * 4
    alarm = (calibration or {}).get("alarm", {"label": None})
    for watched, name in enumerate(NAMES):
        answers = read_answers(SHARES.log(), config_of(watched=watched), calibration)
        assert [answer["label"] for answer in answers] == labels
        for shares, answer in zip(SHARES.tolist(), answers, strict=True):
            assert answer["score"] == pytest.approx(shares[NAMES.index(answer["label"])])
            assert list(answer)[:3] == ["watched_probability", "alarm", "watched_threshold"]
        expected = alarms if alarm["label"] == watched else [label == name for label in labels]
        assert [answer["alarm"] for answer in answers] == expected
        assert [answer["watched_probability"] for answer in answers] == pytest.approx(SHARES[:, watched].tolist())
        # Only the threshold of an alarm is a number by itself.
        threshold = alarm["threshold"] if alarm["label"] == watched else None
        assert {answer["watched_threshold"] for answer in answers} == {threshold}


@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_a_threshold_between_neighbours_separates_them(wide):
    """The alarm is given from the threshold on, and not from what is left of it in 32 bits."""
    logits = torch.tensor([[0.0, 0.3], [0.0, 0.3000001]], dtype=wide)
    low, high = decide(logits)[0][:, 1].double().tolist()
    assert low < high
    for threshold, expected in ((low, [1, 1]), ((low + high) / 2, [0, 1]), (high, [0, 1]), (high + 1e-12, [0, 0])):
        probabilities, ranked = decide(logits)
        alarms = find_alarms(probabilities, ranked[:, 0], 1, {"alarm": {"label": 1, "threshold": threshold}})
        assert alarms.tolist() == expected


@pytest.mark.parametrize("watched", [0, 1])
@pytest.mark.parametrize(
    "calibration",
    [None, {"thresholds": [0.6, 0.2]}, {"alarm": {"label": 1, "threshold": 0.3}}],
    ids=str,
)
def test_of_two_classes_both_have_a_threshold(watched, calibration):
    """Just above it the post is an alarm, and just below it is none."""
    config = config_of(["no", "yes"], watched=watched)
    threshold = read_answers(torch.zeros(1, 2), config, calibration)[0]["watched_threshold"]
    for share, expected in ((threshold + 1e-4, True), (threshold - 1e-4, False)):
        shares = [1 - share, share] if watched else [share, 1 - share]
        (answer,) = read_answers(torch.tensor([shares]).log(), config, calibration)
        assert answer["alarm"] is expected and answer["watched_probability"] == pytest.approx(share)


THRESHOLDS = [0.9, 0.05, 0.05]


@pytest.mark.parametrize(
    ("calibration", "post", "named"),
    [
        # An alarm with another label, and none with the label of the class
        ({"alarm": {"label": 1, "threshold": 0.25}}, 1, ["low", "0.3", "0.25"]),
        ({"alarm": {"label": 1, "threshold": 0.875}}, 3, ["low", "0.7", "0.875"]),
        ({"thresholds": THRESHOLDS}, 0, ["calm", "0.5", "high", "0.3", "0.9", "0.05"]),
        ({"thresholds": THRESHOLDS, "alarm": {"label": 1, "threshold": 0.15}}, 0, ["calm", "high", "low", "0.15"]),
    ],
)
def test_a_label_that_is_not_the_most_probable_and_an_alarm_that_is_not_the_label_say_why(calibration, post, named):
    """The reason has the names and the numbers that decided."""
    answers = read_answers(SHARES.log(), config_of(watched=1), calibration)
    assert all(word in answers[post]["reason"] for word in named)
    for answer in answers:
        is_plain = answer["score"] == max(answer["probabilities"].values())
        assert (answer["reason"] is None) == (is_plain and answer["alarm"] == (answer["label"] == "low"))


def test_a_model_without_a_class_to_watch_answers_as_before():
    plain, calibrated = (
        read_answers(SHARES.log(), config_of(), given)[0] for given in (None, {"thresholds": [1] * 3})
    )
    assert set(plain) == {"label", "score", "probabilities", "thresholds"}
    assert set(calibrated) == {*plain, "reason"}


def test_a_model_that_was_saved_before_there_were_alarms_loads(tmp_path):
    model = tiny_model(calibration={"temperature": 2.0, "thresholds": [0.2, 0.3, 0.5]})
    model.save_pretrained(tmp_path)
    values = read_json(tmp_path / "config.json")
    assert "alarm" not in values["calibration"] and values.get("watched") is None
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert again.config.calibration == model.config.calibration
    answers = [read_answers(SHARES.log(), each.config, each.config.calibration) for each in (again, model)]
    assert answers[0] == answers[1]
