"""Focal loss over labelled streams."""

import torch

from .packing_tempoformer import to_device


def focal_loss(
    logits: torch.Tensor,
    labels: torch.LongTensor,
    gamma: float = 2.0,
    class_weights: list[float] | None = None,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """
    Focal loss (Lin et al., 2017): `-w_y (1 - p_y)^gamma log p_y`, the mean over labelled streams.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): Scores before softmax.
        labels (`torch.LongTensor` of shape `(...)`): Class of each stream; -100 for none.
        gamma (`float`, *optional*, defaults to 2.0): 0 gives weighted cross-entropy.
        class_weights (`list[float]`, *optional*): `w`; 1 for every class if omitted.
        num_items_in_batch (`int` or `torch.Tensor`, *optional*):
            The number of labelled streams to divide by, where gradients are accumulated over several batches; the
            number in `labels` if omitted.

    Returns:
        A scalar in float32; 0 where no stream has a label.
    """
    labelled = labels != -100
    target = labels.masked_fill(~labelled, 0).unsqueeze(-1)
    log_p = logits.float().log_softmax(-1).gather(-1, target).squeeze(-1)
    # Above zero, where the slope of x^gamma is infinite for gamma < 1.
    missing = (-torch.expm1(log_p)).clamp_min(torch.finfo(log_p.dtype).tiny)
    losses = -(missing**gamma) * log_p
    if class_weights is not None:
        weights = to_device(torch.tensor(class_weights, dtype=losses.dtype), losses.device)
        losses = losses * weights[target.squeeze(-1)]
    total = losses.masked_fill(~labelled, 0.0).sum()
    if num_items_in_batch is None:
        return total / labelled.sum().clamp_min(1)
    return total / torch.as_tensor(num_items_in_batch, device=total.device).clamp_min(1)
