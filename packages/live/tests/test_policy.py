"""Checks the policy of alarms on timelines that were worked by hand, and that every way in gives the same alarms."""

import math

import numpy as np
import pytest
import torch
from helpers import tiny_model

from tempoformer_live.memory import StreamMemory
from tempoformer_live.policy import (
    HELD_BACK,
    NOTHING,
    RAISED,
    TAKEN_BACK,
    Alarm,
    AlarmState,
    due_time,
    follow,
    raise_due,
    read_alarm,
    write_alarm,
)
from tempoformer_live.stepping import Stepper


SIGNS = {".": NOTHING, "!": RAISED, "h": HELD_BACK, "t": TAKEN_BACK}
HOUR = 3600.0


@pytest.mark.parametrize(
    ("policy", "scores", "hours", "events"),
    [
        # Without any rule each post from the threshold on is an alarm.
        ({}, [0.1, 0.6, 0.5, 0.2, 0.9], None, ".!!.!"),
        # Two posts after an alarm none is raised.
        ({"cooldown_posts": 2}, [0.9, 0.9, 0.9, 0.9, 0.1, 0.9], None, "!hh!.h"),
        ({"cooldown_seconds": 2 * HOUR}, [0.9, 0.9, 0.9, 0.1, 0.9], [0, 1, 2, 3, 3.5], "!h!.h"),
        # A probability must stay for a second and a third post.
        ({"wait_posts": 2}, [0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.9], None, "hhthh!!"),
        # After two hours the next post raises the alarm, even if that post itself ends it.
        ({"wait_seconds": 2 * HOUR}, [0.9, 0.1, 0.9, 0.1, 0.9, 0.9], [0, 1, 2, 5, 6, 8], "hth!h!"),
        # The mean of the last three: 0.2, 0.5, 0.6, 0.67, 0.4.
        ({"mean_of": 3}, [0.2, 0.8, 0.8, 0.4, 0.0], None, ".!!!."),
        # One alarm until the probability is below 0.3.
        ({"end_below": 0.3}, [0.9, 0.4, 0.9, 0.2, 0.4, 0.6], None, "!hh..!"),
        # An alarm that a cooldown holds back is raised when it is over, if the stretch still lasts.
        ({"end_below": 0.3, "cooldown_posts": 2}, [0.9, 0.1, 0.9, 0.4, 0.4], None, "!.h!h"),
        # It waits two posts, in which it may fall to 0.4, and is raised once.
        # The post that ends a stretch is none that it has lasted for, however late it comes.
        ({"wait_posts": 1, "wait_seconds": HOUR}, [0.9, 0.1, 0.9, 0.9, 0.9], [0, 2, 3, 3.5, 5], "hthh!"),
        ({"end_below": 0.4, "wait_posts": 2}, [0.9, 0.4, 0.4, 0.9, 0.3, 0.9, 0.3], None, "hh!h.ht"),
    ],
)
def test_events_worked_by_hand(policy, scores, hours, events):
    times = None if hours is None else [hour * HOUR for hour in hours]
    wanted = [SIGNS[sign] for sign in events]
    assert follow(scores, times, 0.5, policy, AlarmState()) == wanted
    # Post after post, with what is remembered in between, it is the same.
    state, alone = AlarmState(), []
    for post, score in enumerate(scores):
        state = AlarmState(**vars(state.copy()))
        alone += follow([score], None if times is None else [times[post]], 0.5, policy, state)
    assert alone == wanted


def test_what_is_due_is_what_the_next_post_would_raise():
    """A wait of an hour, after a cooldown of three; a post that comes later raises nothing again."""
    policy = {"wait_seconds": HOUR, "cooldown_seconds": 3 * HOUR, "end_below": 0.3}
    state = AlarmState()
    assert due_time(state, policy) is None
    follow([0.9, 0.9, 0.1, 0.9], [0, HOUR, 1.1 * HOUR, 2 * HOUR], 0.5, policy, state)
    # The alarm of the second post silences until four hours.
    assert due_time(state, policy) == 4 * HOUR and due_time(state, {**policy, "wait_posts": 1}) is None
    assert due_time(state, {**policy, "cooldown_posts": 2}) is None and due_time(state, {"wait_posts": 1}) is None
    assert follow([0.2], [4 * HOUR], 0.5, policy, state.copy()) == [RAISED]
    assert not raise_due(state, 3.9 * HOUR, policy) and raise_due(state, 4.1 * HOUR, policy)
    assert not raise_due(state, 5 * HOUR, policy)
    assert follow([0.9, 0.2], [4.2 * HOUR, 9 * HOUR], 0.5, policy, state) == [HELD_BACK, NOTHING]


def random_policy(generator: np.random.Generator) -> dict[str, float]:
    fields = {
        "mean_of": int(generator.integers(1, 5)),
        "end_below": float(generator.uniform(0.1, 0.5)),
        "wait_posts": int(generator.integers(0, 3)),
        "wait_seconds": float(generator.choice([0, HOUR])),
        "cooldown_posts": int(generator.integers(0, 4)),
        "cooldown_seconds": float(generator.choice([0, 3 * HOUR])),
    }
    return {name: value for name, value in fields.items() if generator.random() < 0.5}


@pytest.mark.parametrize("seed", range(20))
def test_what_must_hold_of_every_policy(seed):
    """No event depends on a later post, alarms keep their distance, and there are no more of them than without."""
    generator = np.random.default_rng(seed)
    policy, scores = random_policy(generator), generator.random(60).tolist()
    times = np.cumsum(generator.exponential(HOUR, 60)).tolist()
    events = follow(scores, times, 0.5, policy, AlarmState())
    for end in range(0, 60, 7):
        other = scores[:end] + generator.random(60 - end).tolist()
        assert follow(other, times, 0.5, policy, AlarmState())[:end] == events[:end]
    alarms = np.flatnonzero(np.array(events) == RAISED)
    assert (np.diff(alarms) > policy.get("cooldown_posts", 0)).all()
    assert (np.diff(np.array(times)[alarms]) >= policy.get("cooldown_seconds", 0)).all()
    if "end_below" not in policy and "mean_of" not in policy and not policy.get("wait_seconds"):
        assert all(scores[post] >= 0.5 for post in alarms)
    if "end_below" in policy:
        means = [np.mean(scores[max(0, post + 1 - policy.get("mean_of", 1)) : post + 1]) for post in range(60)]
        ends = [post for post in range(60) if means[post] < policy["end_below"]]
        for first, second in zip(alarms, alarms[1:], strict=False):
            assert any(first <= end <= second for end in ends)


@pytest.mark.parametrize(
    "policy",
    [
        {"cooldown_seconds": -1},
        {"cooldown": 3},
        {"wait_posts": 1.5},
        {"mean_of": 0},
        {"mean_of": True},
        {"end_below": 0.7},
        {"cooldown_seconds": math.inf},
        {"wait_seconds": 5, "timed": False},
    ],
)
def test_a_policy_out_of_range_is_refused(policy, tmp_path):
    policy = dict(policy)
    config = tiny_model(num_labels=2, timed=policy.pop("timed", True)).config
    with pytest.raises(ValueError, match=next(iter(policy))):
        write_alarm(tmp_path, config, Alarm(1, 0.5, policy))
    assert not list(tmp_path.iterdir())


def test_the_alarm_of_a_service_is_read_again_for_the_same_calibration_only(tmp_path):
    """A training or a threshold from after it makes it another model's."""
    model = tiny_model(num_labels=2, watched=1, calibration={"temperature": 1.5})
    assert read_alarm(tmp_path, model.config) is None
    alarm = Alarm(1, 0.25, {"cooldown_posts": 3})
    write_alarm(tmp_path, model.config, alarm, wanted={"alarm_rate": 0.1})
    assert read_alarm(tmp_path, model.config) == alarm
    model.config.calibration = {"temperature": 1.5, "alarm": {"label": 1, "threshold": 0.3}}
    with pytest.raises(ValueError, match="tempoformer policy"):
        read_alarm(tmp_path, model.config)


@pytest.mark.parametrize("model_type", ["tempoformer", "post_tempoformer"])
def test_step_gives_the_alarms_of_the_whole_timeline(model_type):
    """Post by post and in pieces, also through a memory that was saved; context has no event."""
    model = tiny_model(num_labels=2, model_type=model_type, watched=1, timed=True)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, 50, (12, 6), generator=generator)
    times = [1.7e9 + hour * HOUR for hour in range(12)]
    plain = Stepper(model).step(tokens, timeline_ids=["a"] * 12, timestamps=times)
    scores = plain.logits.softmax(-1)[:, 1].double()
    threshold = float(scores.sort().values[5:7].mean())
    policy = {"cooldown_posts": 1, "mean_of": 2}
    stepper = Stepper(model, Alarm(1, threshold, policy))
    wanted = follow(scores.tolist(), times, threshold, policy, AlarmState())
    assert {RAISED, HELD_BACK, NOTHING} <= set(wanted)
    for size in (12, 5, 1):
        memory, events, answers = None, [], []
        for start in range(0, 12, size):
            part = slice(start, start + size)
            count = len(tokens[part])
            output = stepper.step(tokens[part], timeline_ids=["a"] * count, timestamps=times[part], memory=memory)
            memory = StreamMemory.from_state_dict(output.memory.state_dict())
            events += output.events.tolist()
            answers += stepper.answer(output)
        assert events == wanted
        assert [answer["alarm"] for answer in answers] == [event == RAISED for event in wanted]
        assert {answer["alarm_event"] for answer in answers} >= {None, "raised", "held back"}
    context = [True] * 3 + [False] * 9
    output = stepper.step(tokens, timeline_ids=["a"] * 12, timestamps=times, is_context=context)
    assert output.events.tolist() == [NOTHING] * 3 + follow(
        scores[3:].tolist(), times[3:], threshold, policy, AlarmState()
    )
