"""FFN-History: classifies the newest post and the mean of its stream (Tseriotou et al., 2024)."""

import torch
from huggingface_hub.dataclasses import strict

from .history import HistoryBaseline, HistoryConfig, HistoryModel, make_classifier


@strict
class FFNHistoryConfig(HistoryConfig):
    model_type = "ffn_history"

    hidden_sizes: list[int] | tuple[int, ...] = (128, 128)


class FFNHistory(HistoryModel):
    """Classifies the newest post's embedding and the mean embedding of the stream, which includes the newest post."""

    config: FFNHistoryConfig

    def __init__(self, config: FFNHistoryConfig):
        super().__init__(config)
        self.classifier = make_classifier(config, 2 * config.embedding_size)
        self.post_init()

    def score(self, embeddings: torch.Tensor, mask: torch.BoolTensor, elapsed: torch.Tensor | None) -> torch.Tensor:
        mean = embeddings.sum(1) / mask.sum(-1, keepdim=True)
        return self.classifier(torch.cat((embeddings[:, -1], mean), dim=-1))


class Method(HistoryBaseline):
    """FFN-History."""

    model_class = FFNHistory
