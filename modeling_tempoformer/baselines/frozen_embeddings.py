"""Posts as frozen embeddings, which are cached on disk, and streams of them."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import AutoTokenizer
from transformers.utils import logging

from ..data_collator_tempoformer import elapsed_seconds, stream_windows, tokenize_posts
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..training.frozen_encoder import embed


logger = logging.get_logger(__name__)


def embed_texts(
    texts: list[str],
    model_name_or_path: str,
    max_seq_length: int = 128,
    cache_dir: str | Path | None = None,
    download_settings: dict[str, Any] | None = None,
) -> np.ndarray:
    """
    An embedding of each text (texts, hidden) in float32: the mean of an encoder's last hidden states over the text's
    tokens, special tokens included, as sentence encoders are used. They are cached on disk, see [`embed`].
    Texts of more than `max_seq_length` tokens, or than the encoder reads, are truncated and counted in a log line.
    """
    settings = download_settings or {}
    tokenizer = AutoTokenizer.from_pretrained(model_name_or_path, **settings)
    # Weights that the checkpoint lacks, such as an unused pooler, are drawn: alike each time, and without an effect on
    # what the caller draws next.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = PostTempoFormerForStreamClassification.from_encoder_pretrained(
            model_name_or_path, post_pooling="mean", **settings
        )
    limit = min(max_seq_length, tokenizer.model_max_length, model.base_model.max_tokens)
    tokens, num_truncated = tokenize_posts(tokenizer, texts, limit)
    if num_truncated:
        logger.warning(f"Truncated {num_truncated} of {len(texts)} posts to {limit} tokens.")
    posts = [dict(zip(tokens, post, strict=True)) for post in zip(*tokens.values(), strict=True)]
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    return embed(posts, model, tokenizer, cache_dir)


class EmbeddedStreams(torch.utils.data.Dataset):
    """
    The streams of timelines as frozen embeddings: one item for each target post, the newest of its stream. Targets are
    all posts, or the labelled ones. `embeddings` (posts, hidden) are those of timeline after timeline.

    An item is a dict of tensors for `default_data_collator`: `embeddings` (window, hidden), 0 on the left where there
    are no earlier posts; `mask` (window,), False there; `elapsed` (window,), seconds to the newest post, if the
    timelines have timestamps; `labels`, a class id or -100. The attribute `post_ids` names each item's target.
    """

    def __init__(self, timelines: datasets.Dataset, embeddings: np.ndarray, window: int, only_labelled: bool = False):
        self.embeddings = torch.from_numpy(embeddings)
        self.post_ids: list[str] = []
        streams, elapsed, labels = [], [], []
        first = 0
        for timeline in timelines:
            classes = torch.tensor(timeline["labels"], dtype=torch.long)
            targets = (classes != -100).nonzero().squeeze(-1) if only_labelled else torch.arange(len(classes))
            index = stream_windows(targets, window)
            if "timestamps" in timeline:
                elapsed.append(elapsed_seconds(torch.tensor(timeline["timestamps"], dtype=torch.float64), index))
            streams.append(index + first * (index >= 0))
            labels.append(classes[targets])
            self.post_ids += [timeline["post_ids"][target] for target in targets.tolist()]
            first += len(classes)
        self.streams = torch.cat(streams)
        self.labels = torch.cat(labels)
        self.elapsed = torch.cat(elapsed) if elapsed else None

    def __len__(self) -> int:
        return len(self.post_ids)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        positions = self.streams[item]
        mask = positions >= 0
        stream = {
            "embeddings": self.embeddings[positions.clamp_min(0)].masked_fill(~mask.unsqueeze(-1), 0),
            "mask": mask,
            "labels": self.labels[item],
        }
        if self.elapsed is not None:
            stream["elapsed"] = self.elapsed[item]
        return stream
