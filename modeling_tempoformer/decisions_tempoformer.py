"""Turns the logits of a model into probabilities, labels and log odds. No other code decides."""

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedConfig


def check_finite(logits: torch.Tensor, name_post: Callable[[int], str]):
    """Raises a `ValueError` that names the first post (of posts, num_labels) with a logit that is NaN or infinite."""
    wrong = (~logits.isfinite().all(-1)).nonzero()
    if len(wrong):
        post = int(wrong[0])
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
        probability / threshold, largest first (of equal ones the lower id), both of the shape of `logits`.
    """
    calibration = calibration or {}
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    probabilities = ranked = (logits / (calibration.get("temperature") or 1.0)).softmax(-1)
    if thresholds := calibration.get("thresholds"):
        # Computed in 64 bits: a tuned threshold may lie between two probabilities that are neighbours in 32.
        ranked = probabilities.double() / torch.tensor(thresholds, dtype=torch.float64, device=logits.device)
    return probabilities, ranked.argsort(dim=-1, descending=True, stable=True)


def log_odds(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> torch.Tensor:
    """Returns `log(p / (1 - p))` of [`decide`]'s probabilities `p`, also where they are rounded to 0 or 1."""
    logits = logits.double() / ((calibration or {}).get("temperature") or 1.0)
    itself = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    return logits - logits.unsqueeze(-2).masked_fill(itself, -torch.inf).logsumexp(-1)


def name_thresholds(config: PreTrainedConfig, calibration: dict[str, Any] | None) -> dict[str, float] | None:
    """Returns the thresholds of a calibration by class; None without any."""
    thresholds = (calibration or {}).get("thresholds")
    return thresholds and {config.id2label[label]: threshold for label, threshold in enumerate(thresholds)}


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
