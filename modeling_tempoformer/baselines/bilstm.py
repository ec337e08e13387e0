"""Networks over post embeddings without time: FFN-History and BiLSTM."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from .configuration_history import HistoryConfig


def make_classifier(config: HistoryConfig, width: int) -> nn.Sequential:
    """A feed-forward classifier of `width` features, with ReLU and dropout after each hidden layer."""
    layers: list[nn.Module] = []
    for hidden_width in config.hidden_sizes:
        layers += [nn.Linear(width, hidden_width), nn.ReLU(), nn.Dropout(config.dropout)]
        width = hidden_width
    if not layers:
        layers.append(nn.Dropout(config.dropout))
    return nn.Sequential(*layers, nn.Linear(width, config.num_labels))


def read_both_ways(lstm: nn.LSTM, states: torch.Tensor, mask: torch.BoolTensor) -> torch.Tensor:
    """
    The sum of the final forward and backward states of a bidirectional LSTM, as in the published code of SWNU:
    (streams, hidden_size). `states` (streams, length, width) are padded on the left, where `mask` is False.
    """
    # Packing expects padding on the right. Flipped sequences only swap the two directions.
    packed = pack_padded_sequence(states.flip(1), mask.sum(-1).cpu(), batch_first=True, enforce_sorted=False)
    _, (final, _) = lstm(packed)
    return final.sum(0)


class FFNHistory(nn.Module):
    """A classifier of the newest post's embedding and the mean embedding of the stream, newest included."""

    def __init__(self, config: HistoryConfig):
        super().__init__()
        self.classifier = make_classifier(config, 2 * config.embedding_size)

    def forward(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        mean = embeddings.sum(1) / mask.sum(-1, keepdim=True)
        return self.classifier(torch.cat((embeddings[:, -1], mean), dim=-1))


class BiLSTM(nn.Module):
    """A classifier of the final states of a bidirectional LSTM over the stream's embeddings."""

    def __init__(self, config: HistoryConfig):
        super().__init__()
        self.lstm = nn.LSTM(config.embedding_size, config.lstm_hidden_size, batch_first=True, bidirectional=True)
        self.classifier = make_classifier(config, config.lstm_hidden_size)

    def forward(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        return self.classifier(read_both_ways(self.lstm, embeddings, mask))
