"""BiLSTM over the embeddings of a stream (Tseriotou et al., 2024)."""

import torch
from huggingface_hub.dataclasses import strict
from torch import nn

from .history import HistoryBaseline, HistoryConfig, HistoryModel, bilstm_final_state, make_classifier


@strict
class BiLSTMConfig(HistoryConfig):
    model_type = "bilstm"

    # Units of each direction.
    lstm_hidden_size: int = 300


class BiLSTM(HistoryModel):
    """Classifies the sum of the final states of a bidirectional LSTM over the stream's embeddings."""

    config: BiLSTMConfig

    def __init__(self, config: BiLSTMConfig):
        super().__init__(config)
        self.lstm = nn.LSTM(config.embedding_size, config.lstm_hidden_size, batch_first=True, bidirectional=True)
        self.classifier = make_classifier(config, config.lstm_hidden_size)
        self.post_init()

    def score(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        return self.classifier(bilstm_final_state(self.lstm, embeddings, mask))


class Method(HistoryBaseline):
    """BiLSTM."""

    model_class = BiLSTM
