"""Turns the logits of a model into probabilities, labels, alarms and log odds. No other module does."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig


def class_names(config: PreTrainedConfig) -> list[str]:
    """
    Returns the names of a model's classes, in the order of their ids.

    Args:
        config (`PreTrainedConfig`): The model's configuration.
    """
    return [config.id2label[label] for label in range(config.num_labels)]


def check_finite(logits: torch.Tensor, name_post: Callable[[int], str]):
    """
    Raises a `ValueError` that names the first post with a logit that is NaN or infinite.

    Args:
        logits (`torch.Tensor` of shape `(posts, num_labels)`): The model's output.
        name_post (`Callable[[int], str]`): Returns the name of a post in the error, from its place in `logits`.
    """
    finite = logits.isfinite()
    if not finite.all():
        post = int((~finite.all(-1)).nonzero()[0])
        raise ValueError(
            f"{name_post(post)} has the logits {logits[post].tolist()}, which decide nothing: the model's weights are "
            "broken, or too large for 16 bits."
        )


def decide(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Returns the probabilities of the classes, and the classes of each post from its label to the least likely.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): The model's output.
        calibration (`dict`, *optional*): The field of the model's configuration; without it the largest logit wins.

    Returns:
        `softmax(logits / temperature)` (Guo et al., 2017, section 4.2) in 32 bits or more, and the class ids by
        probability / threshold, largest first (of equal ones the lower id), both of the shape of `logits`. The `alarm`
        of the calibration changes neither ([`find_alarms`]).
    """
    calibration = calibration or {}
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    probabilities = at_temperature(logits, calibration).softmax(-1)
    ratios = probabilities.double()
    if (thresholds := calibration.get("thresholds")) is not None:
        ratios = ratios / torch.tensor(thresholds, dtype=torch.float64, device=logits.device)
    return probabilities, ratios.argsort(dim=-1, descending=True, stable=True)


def at_temperature(logits: torch.Tensor, calibration: dict[str, Any] | None) -> torch.Tensor:
    """Returns logits divided by the temperature of a calibration, if it has one."""
    temperature = (calibration or {}).get("temperature")
    return logits if temperature is None else logits / temperature


def find_alarms(
    probabilities: torch.Tensor, labels: torch.Tensor, watched: int, calibration: dict[str, Any] | None
) -> torch.BoolTensor:
    """
    Tells which posts are alarms.

    Args:
        probabilities (`torch.Tensor` of shape `(posts, num_labels)`): The probabilities of [`decide`].
        labels (`torch.Tensor` of shape `(posts,)`): The label of each post, the first of its classes in [`decide`].
        watched (`int`): The id of the class of interest.
        calibration (`dict`, *optional*): The argument of [`decide`].

    Returns:
        `torch.BoolTensor` of shape `(posts,)`: True where the probability is at least the threshold of the alarm for
        the class, or without such an alarm where the class is the label.
    """
    if (alarm := class_alarm(watched, calibration)) is None:
        return labels == watched
    # Compared in 64 bits: a threshold may lie between two probabilities that are neighbours in 32.
    return probabilities[..., watched].double() >= alarm["threshold"]


def class_alarm(label: int, calibration: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns the alarm of a calibration if it is for this class, else None."""
    alarm = (calibration or {}).get("alarm")
    return alarm if alarm is not None and alarm["label"] == label else None


def log_odds(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> torch.Tensor:
    """Returns `log(p / (1 - p))` of [`decide`]'s probabilities `p`, also where they are rounded to 0 or 1."""
    logits = at_temperature(logits.double(), calibration)
    itself = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    return logits - logits.unsqueeze(-2).masked_fill(itself, -torch.inf).logsumexp(-1)


def watched_threshold(config: PreTrainedConfig, calibration: dict[str, Any] | None) -> float | None:
    """Returns the [`alarm_threshold`] of the model's watched class."""
    return alarm_threshold(config.watched, config.num_labels, calibration or {})


def alarm_threshold(label: int, num_labels: int, calibration: dict[str, Any]) -> float | None:
    """
    Returns the smallest probability of a class that makes a post an alarm ([`find_alarms`]). It is None with three
    classes or more and no alarm for this class, as the label then depends on all probabilities.
    """
    if (alarm := class_alarm(label, calibration)) is not None:
        return alarm["threshold"]
    thresholds = calibration.get("thresholds") or [1.0] * num_labels
    return thresholds[label] / sum(thresholds) if num_labels == 2 else None


def read_answers(
    logits: torch.Tensor,
    config: PreTrainedConfig,
    calibration: dict[str, Any] | None,
    state_logits: torch.Tensor | None = None,
) -> list[dict[str, Any]]:
    """
    Returns the answer about each post, in plain Python. All modules take their answers from this function.

    Args:
        logits (`torch.Tensor` of shape `(posts, num_labels)`): The model's output.
        config (`PreTrainedConfig`): The model's configuration.
        calibration (`dict`, *optional*): The argument of [`decide`].
        state_logits (`torch.Tensor` of shape `(posts, num_states)`, *optional*): The argument of [`read_states`].

    Returns:
        A dict for each post. If the model has a watched class, the dict begins with `watched_probability`, the
        probability of that class; `alarm`, whether the post is an alarm ([`find_alarms`]); `watched_threshold`,
        the smallest probability of an alarm ([`alarm_threshold`]); and `watched`, the name of the class. Then come the
        `label` that [`decide`] chooses, its probability `score`, the `probabilities` of all classes, and the
        `thresholds` of the calibration by class (None without any). If the calibration has thresholds or an alarm:
        `reason`, which says why the label is not the most probable class, or why alarm and label disagree; None if
        there is nothing to say. If the model has learned states: `state`.
    """
    names = class_names(config)
    probabilities, ranked = decide(logits, calibration)
    labels, states, watched = ranked[:, 0], read_states(state_logits, config), config.watched
    calibration = calibration or {}
    thresholds = calibration.get("thresholds")
    fixed = {"thresholds": None if thresholds is None else dict(zip(names, thresholds, strict=True))}
    alarms = [False] * len(labels)
    if watched is not None:
        threshold = watched_threshold(config, calibration)
        alarms = find_alarms(probabilities, labels, watched, calibration).tolist()
    answers = []
    for post, (scores, label, alarm) in enumerate(zip(probabilities.tolist(), labels.tolist(), alarms, strict=True)):
        answer: dict[str, Any] = {}
        if watched is not None:
            answer = {"watched_probability": scores[watched], "alarm": alarm, "watched_threshold": threshold}
            answer["watched"] = names[watched]
        by_class = dict(zip(names, scores, strict=True))
        answer |= {"label": names[label], "score": scores[label], "probabilities": by_class, **fixed}
        if thresholds is not None or calibration.get("alarm") is not None:
            reasons = [explain_label(scores, label, names, thresholds)]
            reasons += [] if watched is None else [explain_alarm(scores, label, alarm, names, watched, calibration)]
            answer["reason"] = " ".join(filter(None, reasons)) or None
        answers.append(answer if states is None else {**answer, "state": states[post]})
    return answers


def explain_label(
    scores: Sequence[float], label: int, names: Sequence[str], thresholds: Sequence[float] | None
) -> str | None:
    """Returns a sentence that says why a post has this label although another is more probable, else None."""
    best = max(range(len(scores)), key=scores.__getitem__)
    if scores[best] <= scores[label]:
        return None
    return (
        f"{names[best]} is more probable ({scores[best]:.4g}), but {names[label]} ({scores[label]:.4g}) is more in "
        f"proportion to its threshold: {thresholds[label]:.4g}, and {thresholds[best]:.4g} of {names[best]}."
    )


def explain_alarm(
    scores: Sequence[float],
    label: int,
    is_alarm: bool,
    names: Sequence[str],
    watched: int,
    calibration: dict[str, Any],
) -> str | None:
    """
    Returns a sentence that says why a post is an alarm although its label is not the watched class, or no alarm
    although its label is the watched class; None where alarm and label agree.
    """
    if is_alarm == (label == watched):
        return None
    says = "an alarm" if is_alarm else "no alarm"
    reaches = "reaches" if is_alarm else "does not reach"
    threshold = class_alarm(watched, calibration)["threshold"]
    return f"It is {says}, since {names[watched]} ({scores[watched]:.4g}) {reaches} the threshold of {threshold}."


def read_states(state_logits: torch.Tensor | None, config: PreTrainedConfig) -> list[dict[str, Any]] | None:
    """
    Returns the answer about the state of each post, in plain Python: `label`, the likeliest state, its `score`, the
    `probabilities` of all, and if states are numbers the `mean`. None without states.

    Args:
        state_logits (`torch.Tensor` of shape `(posts, num_states)`, *optional*): The model's output.
        config (`PreTrainedConfig`): The model's configuration.
    """
    if state_logits is None:
        return None
    probabilities = state_logits.double().softmax(-1)
    scores, best = probabilities.max(-1)
    answers = [
        {"label": config.states[label], "score": score, "probabilities": dict(zip(config.states, values, strict=True))}
        for label, score, values in zip(best.tolist(), scores.tolist(), probabilities.tolist(), strict=True)
    ]
    if config.state_values is not None:
        means = probabilities @ torch.tensor(config.state_values, dtype=torch.float64, device=probabilities.device)
        answers = [{**answer, "mean": mean} for answer, mean in zip(answers, means.tolist(), strict=True)]
    return answers
