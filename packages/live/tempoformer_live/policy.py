"""
The alarm of a service, and its policy: which posts raise one, given the probabilities of the class to watch over a
timeline. A policy looks only back, so that a post's event never depends on a later post.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig


# The file in the folder of a model that has the alarm of its service
POLICY_FILE = "alarm_policy.json"
NOTHING, RAISED, HELD_BACK, TAKEN_BACK = range(4)
# The words for the events of posts in answers and tables
EVENTS = {NOTHING: None, RAISED: "raised", HELD_BACK: "held back", TAKEN_BACK: "taken back"}
# The fields of a policy, each with its least value
POLICY = {
    "mean_of": 1,
    "end_below": 0,
    "wait_posts": 0,
    "wait_seconds": 0,
    "cooldown_posts": 0,
    "cooldown_seconds": 0,
}
SECONDS = ("wait_seconds", "cooldown_seconds")
UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


@dataclass
class AlarmState:
    """
    The memory that a policy has of a timeline: the number of posts so far, the last probabilities, the number and the
    time of the post that the running stretch began with (None outside of one), whether it has raised an alarm, the
    number and the time of the post with the last alarm, and the rule that all this is of ([`Alarm.rule`]).
    """

    num_posts: int = 0
    recent: list[float] = field(default_factory=list)
    begun: list[float] | None = None
    is_raised: bool = False
    last: list[float] | None = None
    rule: str = ""

    def copy(self) -> "AlarmState":
        # The pairs of a number and a time are replaced, not changed.
        return replace(self, recent=list(self.recent))


@dataclass(frozen=True)
class Alarm:
    """
    The alarm of a service: the class with the id `label` is watched, with this `threshold` of its probability, and
    `policy` says what becomes of the posts that reach it ([`follow`]).
    """

    label: int
    threshold: float
    policy: Mapping[str, Any]

    @property
    def rule(self) -> str:
        """16 digits that stand for the alarm."""
        rule = [self.label, self.threshold, dict(sorted(self.policy.items()))]
        return hashlib.sha256(json.dumps(rule).encode()).hexdigest()[:16]

    def find_events(
        self, probabilities: torch.Tensor, times: Sequence[float] | None, state: AlarmState | None = None
    ) -> list[int]:
        """
        Returns the event of each post of a timeline, in the order of time ([`follow`]).

        Args:
            probabilities (`torch.Tensor` of shape `(posts, num_labels)`): The probabilities of the classes.
            times (`Sequence[float]`, *optional*): The seconds of the posts.
            state ([`AlarmState`], *optional*): The memory of the posts before, which is updated; one of another alarm
                begins anew. None for none.
        """
        state = AlarmState() if state is None else state
        if state.rule != self.rule:
            vars(state).update(vars(AlarmState(rule=self.rule)))
        scores = probabilities[..., self.label].double().tolist()
        return follow(scores, times, self.threshold, self.policy, state)


def write_alarm(folder: str, config: PreTrainedConfig, alarm: Alarm, **measured: Any):
    """
    Writes the alarm of a service as `alarm_policy.json`.

    Args:
        folder (`str`): The folder of the model.
        config (`PreTrainedConfig`): The model's configuration, whose calibration the alarm belongs to.
        alarm ([`Alarm`]): The alarm.
        measured: What was wanted of it, and what it measured.
    """
    # Imported here, because it brings Arrow, which no answer needs.
    from modeling_tempoformer.common.files import write_json

    check_policy(alarm.policy, alarm.threshold, config.timed)
    content = {"watch": config.id2label[alarm.label], "threshold": alarm.threshold, "policy": dict(alarm.policy)}
    write_json(Path(folder) / POLICY_FILE, content | measured | {"calibration": config.calibration})


def read_alarm(folder: str, config: PreTrainedConfig) -> Alarm | None:
    """
    Reads the alarm that [`write_alarm`] wrote.

    Args:
        folder (`str`): The folder of the model, or its Hub id, which has none.
        config (`PreTrainedConfig`): The model's configuration.

    Returns:
        [`Alarm`], or None without one. Raises a `ValueError` if it was chosen for another calibration of the model: by
        an earlier training, or for an earlier threshold.
    """
    path = Path(folder) / POLICY_FILE
    if not path.exists():
        return None
    from modeling_tempoformer.common.files import decode_json

    content = decode_json(path.read_text(encoding="utf-8"), path)
    if content["calibration"] != config.calibration or content["watch"] not in config.label2id:
        raise ValueError(
            f"{path} is of another training or threshold of the model: choose its policy again by `tempoformer "
            "policy`, or delete the file."
        )
    alarm = Alarm(config.label2id[content["watch"]], content["threshold"], content["policy"])
    check_policy(alarm.policy, alarm.threshold, config.timed)
    return alarm


def use_alarm(config: PreTrainedConfig, alarm: Alarm | None):
    """Puts the alarm of a service in the place of the one in a model's configuration, if there is one."""
    if alarm is not None:
        config.watched = alarm.label
        alarm_calibration = {"alarm": {"label": alarm.label, "threshold": alarm.threshold}}
        config.calibration = {**(config.calibration or {}), **alarm_calibration}


def follow_policy(answers: Sequence[dict[str, Any]], events: Iterable[int | None] | None) -> list[dict[str, Any]]:
    """
    Returns answers whose alarms are by the events of a policy.

    Args:
        answers (`Sequence[dict]`): What the pipeline answers about posts.
        events (`Iterable[int]`): The event of each post ([`Alarm.find_events`]); None in it for a post that has not
            followed the policy, which the threshold alone decides. None without a policy.

    Returns:
        The dicts with `alarm`, whether the event is an alarm, and `alarm_event`, "raised", "held back", "taken back"
        or None; without a policy as they are.
    """
    if events is None:
        return list(answers)
    followed = []
    for answer, event in zip(answers, events, strict=True):
        answer = {**answer, "alarm_event": None if event is None else EVENTS[event]}
        if event is not None and answer["alarm"] != (event == RAISED):
            answer["alarm"] = event == RAISED
            sentence = f"The policy of alarms: {answer['alarm_event'] or 'no alarm'}."
            answer["reason"] = " ".join(filter(None, [answer["reason"], sentence]))
        followed.append(answer)
    return followed


def check_policy(policy: Mapping[str, Any], threshold: float, timed: bool | None):
    """Raises a `ValueError` for a field that a policy does not have, a value out of its range, or seconds untimed."""
    for name, value in policy.items():
        if name not in POLICY:
            raise ValueError(f"A policy of alarms has {', '.join(POLICY)}, got {name!r}.")
        whole = name not in (*SECONDS, "end_below")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise ValueError(f"`{name}` must be a {'whole ' * whole}number, got {value!r}.")
        if not POLICY[name] <= value < math.inf:
            raise ValueError(f"`{name}` must be at least {POLICY[name]}, got {value}.")
    if policy.get("end_below", threshold) > threshold:
        raise ValueError(f"`end_below` must be at most the threshold {threshold}, got {policy['end_below']}.")
    if timed is False and (names := [name for name in SECONDS if policy.get(name)]):
        raise ValueError(f"`{names[0]}` counts seconds, and the model was trained without times.")


def follow(
    scores: Sequence[float],
    times: Sequence[float] | None,
    threshold: float,
    policy: Mapping[str, Any],
    state: AlarmState,
) -> list[int]:
    """
    Follows a timeline, post after post, and updates `state`.

    A stretch begins with a post whose signal, the mean probability of the last `mean_of` posts (1; fewer at the
    beginning), is at least the threshold, and ends with one whose signal is below `end_below` (the threshold).
    In a stretch an alarm is raised once it has lasted for `wait_posts` more posts (0) and `wait_seconds` (0); if the
    seconds have passed before a post ends it, that post raises it. With `end_below` a stretch raises one alarm,
    without it each of its posts may. After an alarm none is raised by the next `cooldown_posts` posts (0), nor within
    `cooldown_seconds` (0).

    Args:
        scores (`Sequence[float]`): The probability of the class to watch of each post, in the order of time.
        times (`Sequence[float]`, *optional*): Seconds. Only waiting and cooling down by seconds read them.
        threshold (`float`): The threshold of the alarm.
        policy (`dict`): The fields above; each may be missing.
        state ([`AlarmState`]): The memory of the posts before.

    Returns:
        `list[int]`: The event of each post: an alarm is `RAISED`; it is `HELD_BACK`, because the stretch is too short
        as yet, has raised one already, or the last one is too recent; it is `TAKEN_BACK`, because the stretch ended
        before it could raise one; or `NOTHING`.
    """
    settings = {"mean_of": 1, "end_below": threshold, **dict.fromkeys(list(POLICY)[2:], 0), **policy}
    raises_once = "end_below" in policy
    events = []
    for score, time in zip(scores, [0.0] * len(scores) if times is None else times, strict=True):
        now, state.num_posts = [state.num_posts, time], state.num_posts + 1
        recent = [*state.recent, score][-settings["mean_of"] :]
        state.recent = recent[1:] if len(recent) == settings["mean_of"] else recent
        signal = sum(recent) / len(recent)
        # Compared in 64 bits: a threshold may lie between two probabilities that are neighbours in 32.
        lasts = signal >= (threshold if state.begun is None else settings["end_below"])
        if state.begun is None and lasts:
            state.begun, state.is_raised = now, False
        if state.begun is None:
            events.append(NOTHING)
            continue
        posts, seconds = since(state.begun, now)
        # The post that ends a stretch is none that it has lasted for.
        posts -= not lasts
        has_waited = posts >= settings["wait_posts"] and seconds >= settings["wait_seconds"]
        # Only seconds can have passed before the post that ends a stretch.
        is_due = has_waited and (lasts or (settings["wait_seconds"] > 0 and not state.is_raised))
        if state.last is not None:
            posts, seconds = since(state.last, now)
            is_due &= posts > settings["cooldown_posts"] and seconds >= settings["cooldown_seconds"]
        if is_due and not (raises_once and state.is_raised):
            events.append(RAISED)
            state.is_raised, state.last = True, now
        elif lasts:
            events.append(HELD_BACK)
        else:
            events.append(NOTHING if state.is_raised else TAKEN_BACK)
        if not lasts:
            state.begun = None
    return events


def due_time(state: AlarmState, policy: Mapping[str, Any] | None) -> float | None:
    """
    Returns the time at which an alarm that waits for seconds is raised if no post comes; None if none waits, or if it
    waits for posts, too.

    Args:
        state ([`AlarmState`]): The memory of a timeline.
        policy (`dict`, *optional*): The policy of [`follow`].
    """
    policy = policy or {}
    if state.begun is None or state.is_raised or not policy.get("wait_seconds"):
        return None
    newest, due = state.num_posts - 1, state.begun[1] + policy["wait_seconds"]
    if newest - state.begun[0] < policy.get("wait_posts", 0):
        return None
    if state.last is not None:
        if newest - state.last[0] <= policy.get("cooldown_posts", 0):
            return None
        due = max(due, state.last[1] + policy.get("cooldown_seconds", 0))
    return due


def raise_due(state: AlarmState, now: float, policy: Mapping[str, Any] | None) -> bool:
    """Tells whether an alarm is due by now ([`due_time`]). If so, the state is as after a post that raised it."""
    due = due_time(state, policy)
    if due is None or due > now:
        return False
    state.is_raised, state.last = True, [state.num_posts - 1, due]
    return True


def lag_of(policy: Mapping[str, Any] | None) -> int:
    """Returns by how many posts an alarm of a policy may be later than the probability that it is about."""
    policy = policy or {}
    return policy.get("wait_posts", 0) + (policy.get("wait_seconds", 0) > 0) + policy.get("mean_of", 1) - 1


def since(earlier: Sequence[float], now: Sequence[float]) -> tuple[float, float]:
    """Returns the number of posts and of seconds from one post, its number and its time, to another."""
    return now[0] - earlier[0], now[1] - earlier[1]


def policy_words(policy: Mapping[str, Any]) -> str:
    """Returns a policy in words; empty for none."""
    words = []
    if policy.get("mean_of", 1) > 1:
        words.append(f"the mean of the last {policy['mean_of']} posts counts")
    if "end_below" in policy:
        words.append(f"one alarm until the probability falls below {policy['end_below']}")
    for name, sentence in (("wait", "an alarm waits for {}"), ("cooldown", "none within {} of another")):
        if count := policy.get(f"{name}_posts"):
            words.append(sentence.format("a post" if count == 1 else f"{count} posts"))
        if seconds := policy.get(f"{name}_seconds"):
            unit, size = next((unit, size) for unit, size in UNITS if seconds >= size or size == 1)
            words.append(sentence.format(f"{seconds / size:.10g} {unit}{'s' * (seconds != size)}"))
    return "; ".join(words)
