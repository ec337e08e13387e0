"""Turns the logits of a model into probabilities, labels, alarms and log odds. No other code decides."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig


def check_finite(logits: torch.Tensor, name_post: Callable[[int], str]):
    """Raises a `ValueError` that names the first post (of posts, num_labels) with a logit that is NaN or infinite."""
    finite = logits.isfinite()
    if not finite.all():
        post = int((~finite.all(-1)).nonzero()[0])
        raise ValueError(
            f"{name_post(post)} has the logits {logits[post].tolist()}, which decide nothing: the model's weights are "
            "broken, or too large for 16 bits."
        )


def decide(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Returns the probabilities of the classes, and the classes of each post from the chosen one to the least likely.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): The model's output.
        calibration (`dict`, *optional*): The field of the model's configuration; without it the largest logit wins.

    Returns:
        `softmax(logits / temperature)` (Guo et al., 2017, section 4.2) in 32 bits or more, and the class ids by
        probability / threshold, largest first (of equal ones the lower id), both of the shape of `logits`. With an
        `alarm` its class is the first where its probability is at least the alarm's threshold, and else the last.
    """
    calibration = calibration or {}
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    probabilities = (logits / (calibration.get("temperature") or 1.0)).softmax(-1)
    # Compared in 64 bits: a threshold may lie between two probabilities that are neighbours in 32.
    ratios = probabilities.double()
    if thresholds := calibration.get("thresholds"):
        ratios = ratios / torch.tensor(thresholds, dtype=torch.float64, device=logits.device)
    if alarm := calibration.get("alarm"):
        is_watched = torch.arange(logits.shape[-1], device=logits.device) == alarm["label"]
        is_reached = probabilities.double() >= alarm["threshold"]
        ratios = torch.where(is_watched, torch.where(is_reached, torch.inf, -1.0).to(ratios), ratios)
    return probabilities, ratios.argsort(dim=-1, descending=True, stable=True)


def log_odds(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> torch.Tensor:
    """Returns `log(p / (1 - p))` of [`decide`]'s probabilities `p`, also where they are rounded to 0 or 1."""
    logits = logits.double() / ((calibration or {}).get("temperature") or 1.0)
    itself = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    return logits - logits.unsqueeze(-2).masked_fill(itself, -torch.inf).logsumexp(-1)


def watched_threshold(config: PreTrainedConfig, calibration: dict[str, Any] | None) -> float | None:
    """Returns the [`class_threshold`] of the class that the model watches."""
    return class_threshold(config.watched, config.num_labels, calibration or {})


def class_threshold(label: int, num_labels: int, calibration: dict[str, Any]) -> float | None:
    """
    Returns the probability from which on [`decide`] chooses a class. None where no such number is known: of three
    classes or more, without an alarm for this one.
    """
    alarm, thresholds = calibration.get("alarm"), calibration.get("thresholds") or [1.0] * num_labels
    if alarm and alarm["label"] == label:
        return alarm["threshold"]
    if num_labels != 2:
        return None
    return 1 - alarm["threshold"] if alarm else thresholds[label] / sum(thresholds)


def read_answers(
    logits: torch.Tensor,
    config: PreTrainedConfig,
    calibration: dict[str, Any] | None,
    state_logits: torch.Tensor | None = None,
) -> list[dict[str, Any]]:
    """
    Returns the answer about each post, in plain Python. All that answer call this.

    Args:
        logits (`torch.Tensor` of shape `(posts, num_labels)`): The model's output.
        config (`PreTrainedConfig`): The model's configuration.
        calibration (`dict`, *optional*): The argument of [`decide`].
        state_logits (`torch.Tensor` of shape `(posts, num_states)`, *optional*): The argument of [`read_states`].

    Returns:
        A dict for each post: the `label` that [`decide`] chooses, its probability `score`, the `probabilities` of all
        classes, and the `thresholds` of the calibration by class (None without any). If the model watches a class:
        `alarm`, True where that is the label, `watched`, the class, its `watched_probability`, and
        [`watched_threshold`]. If thresholds decide: `reason`, a sentence where another class is more probable than the
        label, else None. If the model has learned states: `state`.
    """
    names = [config.id2label[label] for label in range(config.num_labels)]
    probabilities, ranked = decide(logits, calibration)
    states = read_states(state_logits, config)
    calibration = calibration or {}
    watched, thresholds = config.watched, calibration.get("thresholds")
    fixed: dict[str, Any] = {"thresholds": thresholds and dict(zip(names, thresholds, strict=True))}
    if watched is not None:
        fixed |= {"watched": names[watched], "watched_threshold": watched_threshold(config, calibration)}
    answers = []
    for post, (scores, label) in enumerate(zip(probabilities.tolist(), ranked[:, 0].tolist(), strict=True)):
        by_class = dict(zip(names, scores, strict=True))
        answer = {"label": names[label], "score": scores[label], "probabilities": by_class, **fixed}
        if watched is not None:
            answer |= {"alarm": label == watched, "watched_probability": scores[watched]}
        if thresholds or calibration.get("alarm"):
            answer["reason"] = explain_label(scores, label, names, calibration)
        answers.append(answer if states is None else {**answer, "state": states[post]})
    return answers


def explain_label(
    scores: Sequence[float], label: int, names: Sequence[str], calibration: dict[str, Any]
) -> str | None:
    """Returns a sentence that says why a post has this label although another is more probable; None where none is."""
    best = max(range(len(scores)), key=scores.__getitem__)
    if scores[best] <= scores[label]:
        return None
    alarm, thresholds = calibration.get("alarm") or {"label": None}, calibration.get("thresholds")
    more = f"{names[best]} is more probable ({scores[best]:.4g})"
    if best == alarm["label"]:
        return f"{more}, but does not reach its threshold of {alarm['threshold']}."
    if label == alarm["label"]:
        return f"{more}, but {names[label]} ({scores[label]:.4g}) reaches its threshold of {alarm['threshold']}."
    return (
        f"{more}, but {names[label]} ({scores[label]:.4g}) is more in proportion to its threshold: "
        f"{thresholds[label]:.4g}, and {thresholds[best]:.4g} of {names[best]}."
    )


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
