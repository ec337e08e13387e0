"""SWNU: classifies a stream by its log-signatures (Tseriotou et al., 2023)."""

from math import log1p

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn.functional import pad

from .history import HistoryBaseline, HistoryConfig, HistoryModel, bilstm_final_state, make_classifier
from .signatures import log_signature_size, log_signatures


SECONDS_PER_YEAR = 365.25 * 86400


@strict
class SWNUConfig(HistoryConfig):
    model_type = "swnu"

    hidden_sizes: list[int] | tuple[int, ...] = (32, 32)
    # Without the channel of time.
    path_channels: int = 10
    # Units of each direction of the BiLSTM over log-signatures.
    unit_hidden_size: int = 12


def stream_time(mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
    """
    Returns the time (streams, window) of each post, from 0 for a stream's oldest post to 1 for its newest. It is 0 for
    padding, and for all posts of a stream whose times are equal.
    """
    if elapsed is None:
        elapsed = torch.arange(mask.shape[1] - 1, -1, -1, device=mask.device, dtype=torch.float32).expand(mask.shape)
    span = elapsed.masked_fill(~mask, 0).amax(-1, keepdim=True)
    times = 1 - elapsed / span.clamp_min(torch.finfo(elapsed.dtype).tiny)
    return times.masked_fill(~mask | (span == 0), 0)


def newest_gap(mask: torch.BoolTensor, elapsed: torch.Tensor) -> torch.Tensor:
    """Returns the log of the seconds between the last two posts of each stream, 1 for a year, 0 for a single post."""
    return elapsed.masked_fill(~mask, 0)[:, -2:].amax(-1).log1p() / log1p(SECONDS_PER_YEAR)


class SignatureUnit(nn.Module):
    """
    Returns the sum of the final states of a BiLSTM over the log-signatures of a path, one for each expanding window.
    The path starts at 0, so that even a single post has a signature.
    """

    def __init__(self, config: SWNUConfig):
        super().__init__()
        self.reduce = nn.Conv1d(config.embedding_size, config.path_channels, kernel_size=3, padding=1)
        size = log_signature_size(config.path_channels + 1)
        self.lstm = nn.LSTM(size, config.unit_hidden_size, batch_first=True, bidirectional=True)

    def forward(self, embeddings: torch.Tensor, mask: torch.BoolTensor, times: torch.Tensor) -> torch.Tensor:
        """Takes `embeddings` (streams, window, width), 0 for padding, and `mask` and `times` (streams, window)."""
        points = self.reduce(embeddings.transpose(1, 2)).tanh().transpose(1, 2)
        paths = torch.cat((points, times.unsqueeze(-1).to(points.dtype)), dim=-1)
        # The path stays at 0 during padding, which adds nothing to its signature.
        paths = pad(paths.masked_fill(~mask.unsqueeze(-1), 0), (0, 0, 1, 0))
        return bilstm_final_state(self.lstm, log_signatures(paths)[:, 1:], mask)


class SWNU(HistoryModel):
    """Signature Window Network Unit: classifies one unit's state, the newest post and, if timed, the last gap."""

    config: SWNUConfig

    def __init__(self, config: SWNUConfig):
        super().__init__(config)
        self.unit = SignatureUnit(config)
        self.classifier = make_classifier(config, config.unit_hidden_size + config.embedding_size + config.timed)
        self.post_init()

    def score(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        features = [self.unit(embeddings, mask, stream_time(mask, elapsed)), embeddings[:, -1]]
        if elapsed is not None:
            features.append(newest_gap(mask, elapsed).unsqueeze(-1).to(embeddings.dtype))
        return self.classifier(torch.cat(features, dim=-1))


class Method(HistoryBaseline):
    """SWNU."""

    model_class = SWNU
