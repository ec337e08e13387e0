"""Windows over posts: which posts form the stream of each target post, and how many seconds lie between them."""

import torch


def stream_windows(targets: torch.LongTensor, window: int) -> torch.LongTensor:
    """
    The posts of each target's stream: the target and the `window - 1` posts before it (paper, section 3).

    Args:
        targets (`torch.LongTensor` of shape `(num_targets,)`): Positions of the target posts in their row.
        window (`int`): Number of posts in a stream, at least 1.

    Returns:
        `torch.LongTensor` of shape `(num_targets, window)`: positions, oldest to newest, -1 on the left where the row
        has no earlier post.
    """
    if window < 1:
        raise ValueError(f"`window` must be at least 1, got {window}.")
    return (targets.unsqueeze(-1) + torch.arange(1 - window, 1, device=targets.device)).clamp_min(-1)


def elapsed_seconds(timestamps: torch.Tensor, stream_index: torch.LongTensor) -> torch.FloatTensor:
    """
    Seconds from each post of a stream to the stream's newest post.

    Args:
        timestamps (`torch.Tensor` of shape `(num_posts,)`):
            Seconds, in float64 or int64: float32 is too coarse for seconds since 1970.
        stream_index (`torch.LongTensor` of shape `(num_targets, window)`): As [`stream_windows`] returns it.

    Returns:
        `torch.FloatTensor` of shape `(num_targets, window)` in float32; 0 where `stream_index` is -1.
    """
    if timestamps.dtype not in (torch.float64, torch.int64):
        raise TypeError(f"`timestamps` must be float64 or int64, got {timestamps.dtype}.")
    times = timestamps[stream_index.clamp_min(0)]
    return (times[:, -1:] - times).masked_fill(stream_index < 0, 0).float()
