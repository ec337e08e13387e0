"""From logits to decisions: calibrated probabilities, and classes chosen by thresholds."""

from collections.abc import Callable, Sequence
from typing import Any

import torch


def check_finite(logits: torch.Tensor, name_post: Callable[[int], str]):
    """
    Raises a `ValueError` that names the first post with a logit that is NaN or infinite: it would get the first class.

    Args:
        logits (`torch.Tensor` of shape `(posts, num_labels)`): As the model returns them. Waits for their device.
        name_post (`Callable[[int], str]`): The name of a post, by its place in `logits`.
    """
    wrong = (~logits.isfinite().all(-1)).nonzero()
    if len(wrong):
        post = int(wrong[0])
        raise ValueError(
            f"{name_post(post)} has the logits {logits[post].tolist()}, which decide nothing: the model's weights are "
            "broken, or too large for 16 bits."
        )


def decide(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Probabilities of the classes, and the classes of each post from the chosen one to the least likely.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): As the model returns them.
        calibration (`dict`, *optional*): The field of [`TempoFormerConfig`]; without it the largest logit wins.

    Returns:
        Probabilities in 32 bits or more and class ids (`torch.LongTensor`), both of the shape of `logits`.
    """
    calibration = calibration or {}
    probabilities = class_probabilities(logits, calibration.get("temperature"))
    return probabilities, rank_classes(probabilities, calibration.get("thresholds"))


def class_probabilities(logits: torch.Tensor, temperature: float | None = None) -> torch.Tensor:
    """
    `softmax(logits / temperature)` (Guo et al., 2017, section 4.2), in 32 bits or more.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): As the model returns them.
        temperature (`float`, *optional*): Positive; above 1 softens, below 1 sharpens. 1 if omitted.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (logits if temperature is None else logits / temperature).softmax(-1)


def rank_classes(probabilities: torch.Tensor, thresholds: Sequence[float] | None = None) -> torch.Tensor:
    """
    The classes of each post by probability / threshold, largest first; of equal ones the lower id comes first. With
    equal thresholds the most probable class wins; with thresholds (1 - t, t) the second of two classes wins where its
    probability is above t.

    Args:
        probabilities (`torch.Tensor` of shape `(..., num_labels)`): As [`class_probabilities`] returns them.
        thresholds (`Sequence[float]`, *optional*): One positive number for each class; only their ratios count. All
            equal if omitted.

    Returns:
        `torch.LongTensor` of the shape of `probabilities`.
    """
    if thresholds is not None:
        # In 64 bits: a tuned threshold may lie between two probabilities that are neighbours in 32.
        thresholds = torch.tensor(thresholds, dtype=torch.float64, device=probabilities.device)
        probabilities = probabilities.double() / thresholds
    return probabilities.argsort(dim=-1, descending=True, stable=True)
