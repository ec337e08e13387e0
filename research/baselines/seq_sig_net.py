"""Seq-Sig-Net: a BiLSTM over SWNU units of overlapping windows of a stream (Tseriotou et al., 2023)."""

import torch
from huggingface_hub.dataclasses import strict
from torch import nn
from torch.nn.functional import pad

from .history import HistoryBaseline, HistoryModel, bilstm_final_state, make_classifier
from .swnu import SignatureUnit, SWNUConfig, stream_time


# The number of posts in a unit, and the shift in posts from one unit to the next.
UNIT_WINDOW, UNIT_SHIFT = 5, 3


@strict
class SeqSigNetConfig(SWNUConfig):
    model_type = "seq_sig_net"

    # Units of each direction of the BiLSTM over SWNU units.
    lstm_hidden_size: int = 300


class SeqSigNet(HistoryModel):
    """
    Classifies the newest post and the final states of a BiLSTM over as many units as fit into the window. A unit reads
    5 posts and starts 3 posts after the previous unit. The last unit ends with the newest post. Units without a post
    are padding.
    """

    config: SeqSigNetConfig

    def __init__(self, config: SeqSigNetConfig):
        super().__init__(config)
        self.num_posts = UNIT_WINDOW + UNIT_SHIFT * (max(0, config.window - UNIT_WINDOW) // UNIT_SHIFT)
        self.unit = SignatureUnit(config)
        self.lstm = nn.LSTM(config.unit_hidden_size, config.lstm_hidden_size, batch_first=True, bidirectional=True)
        self.classifier = make_classifier(config, config.lstm_hidden_size + config.embedding_size)
        self.post_init()

    def score(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        # A negative number cuts off the posts before the first unit.
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
        features = (bilstm_final_state(self.lstm, sequence, present), embeddings[:, -1])
        return self.classifier(torch.cat(features, dim=-1))


class Method(HistoryBaseline):
    """Seq-Sig-Net."""

    model_class = SeqSigNet
