"""Networks over log-signatures of streams: SWNU and Seq-Sig-Net (Tseriotou et al., 2023)."""

from math import log1p

import torch
from torch import nn
from torch.nn.functional import pad

from .configuration_history import UNIT_SHIFT, UNIT_WINDOW, HistoryConfig
from .history_networks import make_classifier, read_both_ways
from .signatures import log_signature_size, log_signatures


DEPTH = 3
SECONDS_PER_YEAR = 365.25 * 86400


def stream_time(mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
    """
    The time of each post, from 0 for the stream's first to 1 for its newest; evenly spaced if `elapsed` is `None`. 0
    for padding, and for all posts of a stream with equal times. All tensors have the shape (streams, window).
    """
    if elapsed is None:
        elapsed = torch.arange(mask.shape[1] - 1, -1, -1, device=mask.device, dtype=torch.float32).expand(mask.shape)
    span = elapsed.masked_fill(~mask, 0).amax(-1, keepdim=True)
    times = 1 - elapsed / span.clamp_min(torch.finfo(elapsed.dtype).tiny)
    return times.masked_fill(~mask | (span == 0), 0)


def newest_gap(mask: torch.BoolTensor, elapsed: torch.Tensor) -> torch.Tensor:
    """Logarithm of the seconds between the last two posts of each stream, scaled to 1 for a year; 0 without a gap."""
    return elapsed.masked_fill(~mask, 0)[:, -2:].amax(-1).log1p() / log1p(SECONDS_PER_YEAR)


class SignatureUnit(nn.Module):
    """
    The final states of a BiLSTM over the log-signatures of a path, one for each expanding window. A convolution with
    tanh makes the path from the posts, and time is one more channel. The path starts at 0, so that also a single post
    is a step with a signature.
    """

    def __init__(self, config: HistoryConfig):
        super().__init__()
        self.reduce = nn.Conv1d(config.embedding_size, config.path_channels, kernel_size=3, padding=1)
        size = log_signature_size(config.path_channels + 1, DEPTH)
        self.lstm = nn.LSTM(size, config.unit_hidden_size, batch_first=True, bidirectional=True)

    def forward(self, embeddings: torch.Tensor, mask: torch.BoolTensor, times: torch.Tensor) -> torch.Tensor:
        """`embeddings` (streams, window, width) are 0 for padding; `mask` and `times` are (streams, window)."""
        points = self.reduce(embeddings.transpose(1, 2)).tanh().transpose(1, 2)
        paths = torch.cat((points, times.unsqueeze(-1).to(points.dtype)), dim=-1)
        # In padding the path stays at its start, which adds nothing to its signature.
        paths = pad(paths.masked_fill(~mask.unsqueeze(-1), 0), (0, 0, 1, 0))
        return read_both_ways(self.lstm, log_signatures(paths, DEPTH)[:, 1:], mask)


class SWNU(nn.Module):
    """Signature Window Network Unit: a classifier of one unit's state, the newest post and, if timed, its gap."""

    def __init__(self, config: HistoryConfig):
        super().__init__()
        self.unit = SignatureUnit(config)
        self.classifier = make_classifier(config, config.unit_hidden_size + config.embedding_size + config.timed)

    def forward(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        features = [self.unit(embeddings, mask, stream_time(mask, elapsed)), embeddings[:, -1]]
        if elapsed is not None:
            features.append(newest_gap(mask, elapsed).unsqueeze(-1).to(embeddings.dtype))
        return self.classifier(torch.cat(features, dim=-1))


class SeqSigNet(nn.Module):
    """
    A classifier of the newest post and the final states of a BiLSTM over units. A unit reads 5 posts and starts 3
    posts after the unit before; the last unit ends with the newest post. Units without a post are padding.
    """

    def __init__(self, config: HistoryConfig):
        super().__init__()
        self.num_posts = UNIT_WINDOW + UNIT_SHIFT * (config.num_units - 1)
        self.unit = SignatureUnit(config)
        self.lstm = nn.LSTM(config.unit_hidden_size, config.lstm_hidden_size, batch_first=True, bidirectional=True)
        self.classifier = make_classifier(config, config.lstm_hidden_size + config.embedding_size)

    def forward(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        # If negative, the posts before the first unit are cut off.
        missing = self.num_posts - mask.shape[1]
        mask = pad(mask, (missing, 0))
        times = stream_time(mask, None if elapsed is None else pad(elapsed, (missing, 0)))
        # (streams, units, posts)
        unit_mask, unit_times = (posts.unfold(1, UNIT_WINDOW, UNIT_SHIFT) for posts in (mask, times))
        units = pad(embeddings, (0, 0, missing, 0)).unfold(1, UNIT_WINDOW, UNIT_SHIFT).transpose(2, 3)
        present = unit_mask.any(-1)
        states = self.unit(units[present], unit_mask[present], unit_times[present])
        sequence = states.new_zeros(*present.shape, states.shape[-1])
        sequence[present] = states
        features = (read_both_ways(self.lstm, sequence, present), embeddings[:, -1])
        return self.classifier(torch.cat(features, dim=-1))
