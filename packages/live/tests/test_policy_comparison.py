"""Checks that policies have the rate asked for, against plain loops, and the command that compares and sets them."""

import json

import numpy as np
import pytest
import torch
from helpers import make_timeline, read_json, tiny_model

from modeling_tempoformer.evaluation.alarm_goals import AlarmGoal
from modeling_tempoformer.evaluation.alarms import find_threshold
from modeling_tempoformer.evaluation.prediction_table import prediction_rows, read_held_out, write_held_out
from modeling_tempoformer.posts.metadata import Metadata, unit_of
from tempoformer_live.commands import policy as command
from tempoformer_live.policy import RAISED, AlarmState, follow, read_alarm
from tempoformer_live.policy_comparison import at_threshold, best_of, compare_policies, follow_all, keeping


HOUR = 3600.0


def draw(seed: int, number: int = 40, timed: bool = True):
    """Draws timelines of up to 12 posts, about half of them without a change, and the scores of all posts."""
    generator, timelines, scores = np.random.default_rng(seed), [], []
    for name in range(number):
        labels = (generator.random(generator.integers(2, 13)) < 0.4) & (generator.random() < 0.5)
        times = 1.7e9 + np.cumsum(generator.exponential(HOUR, len(labels)))
        settings = {"timestamps": times.tolist()} if timed else {}
        timelines.append(make_timeline(labels.astype(int).tolist(), str(name), **settings))
        scores.append(1 / (1 + np.exp(-(generator.normal() + generator.normal(size=len(labels)) + 2 * labels))))
    return timelines, np.concatenate(scores)


@pytest.mark.parametrize(
    ("policy", "goal"),
    [
        *[
            (policy, AlarmGoal("rate", 0.2))
            for policy in ({}, {"cooldown_posts": 2}, {"mean_of": 2, "end_share": 0.5})
        ],
        *[(policy, AlarmGoal("missed", 0.4)) for policy in ({}, {"mean_of": 2}, {"wait_posts": 1})],
    ],
    ids=str,
)
def test_each_policy_has_the_rate_by_loops_over_timelines(policy, goal):
    """The theorem's bound holds for the chosen threshold and all on the safe side of it."""
    timelines, scores = draw(0)
    (row,) = compare_policies(timelines, scores, 1, goal, [policy])
    parts = np.split(scores, np.cumsum(list(map(len, timelines)))[:-1])
    late = policy.get("wait_posts", 0) + policy.get("mean_of", 1) - 1

    def losses(level: float) -> list[float]:
        rule, found = at_threshold(policy, level), []
        for timeline, values in zip(timelines, parts, strict=True):
            events = follow(values.tolist(), timeline.timestamps, *rule, AlarmState())
            alarms, labels = [event == RAISED for event in events], timeline.labels
            if goal.kind == "rate":
                found += [] if 1 in labels else [float(any(alarms))]
                continue
            starts = [post for post, label in enumerate(labels) if label == 1 and (post == 0 or not labels[post - 1])]
            missed = []
            for start, following in zip(starts, [*starts, len(labels)][1:], strict=True):
                end = start
                while end < len(labels) and labels[end] == 1:
                    end += 1
                missed.append(not any(alarms[start : min(end + late, following)]))
            found += [np.mean(missed)] if missed else []
        return found

    chosen = losses(row["rule"].threshold)
    assert (sum(chosen) + 1) / (len(chosen) + 1) <= goal.share + 1e-9
    if not policy:
        assert row["rule"].threshold == find_threshold(timelines, scores, 1, goal)


def test_new_timelines_have_the_rate_in_the_mean():
    """A mean of two posts, whose alarm may come a post late."""
    observed = []
    for seed in range(25):
        goal, policy = AlarmGoal("missed", 0.3), {"mean_of": 2}
        (row,) = compare_policies(*draw(seed, 30), 1, goal, [policy])
        timelines, scores = draw(1000 + seed, 60)
        alarms = follow_all(timelines, scores, row["rule"]) == RAISED
        measured = []
        for timeline, part in zip(timelines, np.split(alarms, np.cumsum(list(map(len, timelines)))[:-1]), strict=True):
            labels = np.array(timeline.labels)
            if not labels.any():
                continue
            runs = np.split(np.flatnonzero(labels), np.flatnonzero(np.diff(np.flatnonzero(labels)) > 1) + 1)
            # The post after a run is late for it.
            found = [part[run].any() or (part[run[-1] + 1 : run[-1] + 2]).any() for run in runs]
            measured.append(1 - np.mean(found))
        observed.append(np.mean(measured))
    assert np.mean(observed) < 0.3 + 2 * np.std(observed) / np.sqrt(len(observed))


def test_a_loss_that_rises_and_falls_is_stopped_at_its_first_break():
    """The third of four thresholds is above the rate of nine units, so that the fourth does not count."""
    losses = np.zeros((4, 9))
    levels = [0.8, 0.6, 0.4, 0.2]

    def kept(losses: np.ndarray, goal: AlarmGoal, units: np.ndarray | None = None) -> float | None:
        return keeping(lambda level: losses[levels.index(level)], levels[: len(losses)], goal, units)

    losses[2, :5] = 1
    assert kept(losses, AlarmGoal("rate", 0.2)) == 0.6
    assert kept(losses, AlarmGoal("missed", 0.2)) == 0.2
    # Too few units.
    assert kept(np.zeros((4, 3)), AlarmGoal("rate", 0.2)) is None
    assert kept(losses[:2], AlarmGoal("rate", 0.2), np.arange(9) < 3) is None
    # A unit without a case does not count.
    losses[:, 8] = np.nan
    assert kept(losses[:2], AlarmGoal("rate", 0.1)) is None


def test_a_threshold_among_thousands_is_found_exactly():
    """A handful of 6,000 posts are above the threshold that a rate allows, and a grid alone skips them."""
    generator = np.random.default_rng(0)
    timelines = [make_timeline([0] * 100, str(number)) for number in range(60)]
    scores = np.sort(generator.random(6000))[generator.permutation(6000)]
    goal = AlarmGoal("rate", 0.05)
    (row,) = compare_policies(timelines, scores, 1, goal, [{}])
    best = np.sort([part.max() for part in np.split(scores, 60)])[::-1]
    # 61 * 0.05 - 1 = 2.05: two timelines may have an alarm.
    assert best[2] < row["rule"].threshold <= best[1]


def test_without_times_no_policy_counts_seconds():
    rows = compare_policies(*draw(1, timed=False), 1, AlarmGoal("rate", 0.3))
    assert all("cooldown_seconds" not in row["rule"].policy for row in rows)
    best = best_of(rows, AlarmGoal("rate", 0.3))
    kept = [row["measured"]["risk"]["rate"] <= 0.3 for row in rows]
    shares = [row["measured"]["costs"]["found_changes"] for row in rows]
    assert kept[best] and shares[best] == max(share for share, is_kept in zip(shares, kept, strict=True) if is_kept)
    for row in rows:
        row["measured"]["risk"]["rate"] = 0.31
    assert best_of(rows, AlarmGoal("rate", 0.3)) is None


def test_a_family_and_a_timeline_of_one_name_stay_two_units(tmp_path):
    timelines = [make_timeline([0, 1], name) for name in ("ann", "bob", "cy")]
    timelines[0].metadata, timelines[1].metadata = [Metadata(None, "cy")] * 2, [Metadata(None, "cy")] * 2
    for number, timeline in enumerate(timelines):
        timeline.input_rows = [2 * number, 2 * number + 1]
    table = prediction_rows(timelines, np.zeros(6, dtype=int), np.full((6, 2), 0.5), ["no", "yes"], ["label"])
    write_held_out(str(tmp_path), table, timelines)
    read, _ = read_held_out(tmp_path)
    assert [unit_of(timeline) for timeline in read] == [unit_of(timeline) for timeline in timelines]
    assert len({unit_of(timeline) for timeline in read}) == 2


@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_the_command_compares_and_sets_a_policy(tmp_path, capsys, model_type):
    timelines, scores = draw(2)
    rows = iter(range(len(scores)))
    for number, timeline in enumerate(timelines):
        timeline.input_rows = [next(rows) for _ in timeline.labels]
        timeline.state_logits = torch.zeros(len(timeline), 3)
        timeline.metadata = [Metadata(None, f"family {number // 2}")] * len(timeline)
    labels = {"id2label": {0: "no", 1: "Turn"}, "label2id": {"no": 0, "Turn": 1}}
    model = tiny_model(num_labels=2, model_type=model_type, watched=0, timed=True, **labels)
    model.config.calibration = {"temperature": 2.0}
    model.save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text("---\n---\n# a\n")
    arguments = ["--model_name_or_path", str(tmp_path), "--watch", "Turn", "--alarm", "missed=0.3"]
    with pytest.raises(FileNotFoundError, match="--do_eval"):
        command.main(arguments)
    shares = np.stack([1 - scores, scores], 1)
    table = prediction_rows(timelines, (scores > 0.5).astype(int), shares, ["no", "Turn"], ["label"])
    write_held_out(str(tmp_path), table, timelines)
    read, found = read_held_out(tmp_path)
    np.testing.assert_allclose(found, shares)
    assert [each.labels for each in read] == [each.labels for each in timelines]
    np.testing.assert_allclose(
        np.concatenate([each.timestamps for each in read]), sum((o.timestamps for o in timelines), [])
    )
    assert [each.metadata[0].unit for each in read] == [each.metadata[0].unit for each in timelines]
    before = read_json(tmp_path / "config.json")
    command.main(arguments)
    output = capsys.readouterr().out
    assert "cooldown_posts" in output and "--set" in output and read_json(tmp_path / "config.json") == before
    with pytest.raises(ValueError, match="silences alarms"):
        command.main([*arguments, "--set", json.dumps({"cooldown_posts": 2})])
    arguments[-1] = "rate=0.2"
    command.main([*arguments, "--set", json.dumps({"cooldown_posts": 2})])
    assert read_json(tmp_path / "config.json") == before, "the model knows its threshold alone"
    alarm = read_alarm(tmp_path, model.config)
    # The model's temperature is used, as in its answers.
    calibrated = 1 / (1 + np.exp(-np.log(scores / (1 - scores)) / 2))
    (row,) = compare_policies(timelines, calibrated, 1, AlarmGoal("rate", 0.2), [{"cooldown_posts": 2}])
    assert alarm.threshold == pytest.approx(row["rule"].threshold) and alarm.policy == {"cooldown_posts": 2}
    assert "none within 2 posts" in capsys.readouterr().out
    with pytest.raises(ValueError, match="needs 99 held-out"):
        command.main([*arguments[:4], "--alarm", "rate=0.01"])
    for wrong in ("precision=0.8", "rate", "rate=2"):
        with pytest.raises(ValueError, match=f"--alarm.*{wrong}"):
            command.main([*arguments[:4], "--alarm", wrong])
    for wrong, word in (
        ('{"wait": 2}', "policy of alarms"),
        ('{"end_share": "a"}', "end_share"),
        ('{"end_share": 0.5, "end_below": 0.2}', "one thing"),
        ('{"end_below": 1.0}', "more than any"),
        ("wait", "--set"),
    ):
        with pytest.raises(ValueError, match=word):
            command.main([*arguments[:4], "--alarm", "rate=0.2", "--set", wrong])
