"""Posts as frozen embeddings, which are cached on disk, and streams of them."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.dated_texts import token_limit
from ..data.vectors import cached_vectors
from ..data_collator_tempoformer import elapsed_seconds, stream_windows, tokenize_posts


logger = logging.get_logger(__name__)


def embed_texts(
    texts: list[str],
    model_name_or_path: str,
    max_seq_length: int = 128,
    batch_size: int = 64,
    cache_dir: str | Path | None = None,
    download_settings: dict[str, Any] | None = None,
) -> np.ndarray:
    """
    An embedding of each text: the mean of an encoder's last hidden states over the text's tokens, special tokens
    included, as sentence encoders are used. The embeddings are cached on disk under a hash of the encoder's weights
    and configuration and of the tokens; texts are not.

    Args:
        texts (`list[str]`): May be empty strings.
        model_name_or_path (`str`): Folder or Hub id of an encoder with its tokenizer.
        max_seq_length (`int`, *optional*, defaults to 128): Maximum number of tokens in a text, or the encoder's limit
            if that is lower. Longer texts are truncated and counted in a log line.
        batch_size (`int`, *optional*, defaults to 64): Texts in a batch.
        cache_dir (`str` or `Path`, *optional*): Folder of the cached embeddings. Defaults to `post_embeddings` in the
            cache of `datasets`.
        download_settings (`dict`, *optional*): Keyword arguments for `from_pretrained`, such as `revision`.

    Returns:
        `np.ndarray` of shape `(len(texts), hidden_size)`, float32.
    """
    config = AutoConfig.from_pretrained(model_name_or_path, **(download_settings or {}))
    tokenizer = AutoTokenizer.from_pretrained(model_name_or_path, **(download_settings or {}))
    limit = min(max_seq_length, token_limit(config, tokenizer))
    tokens, num_truncated = tokenize_posts(tokenizer, texts, limit)
    if num_truncated:
        logger.warning(f"Truncated {num_truncated} of {len(texts)} posts to {limit} tokens.")
    # Weights that the checkpoint lacks, such as an unused pooler, are drawn: alike each time, and without an effect on
    # what the caller draws next.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModel.from_pretrained(
            model_name_or_path, use_safetensors=True, dtype=torch.float32, **(download_settings or {})
        )
    return cached_vectors(model, tokens, lambda: mean_states(model, tokenizer, tokens, batch_size), cache_dir)


@torch.inference_mode()
def mean_states(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: dict[str, list], batch_size: int
) -> np.ndarray:
    """The mean of each text's last hidden states, on a GPU if there is one. `tokens` come from [`tokenize_posts`]."""
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    # Texts of similar lengths share a batch, for little padding.
    order = sorted(range(len(tokens["input_ids"])), key=lambda text: len(tokens["input_ids"][text]))
    embeddings = np.zeros((len(order), model.config.hidden_size), dtype=np.float32)
    for begin in logging.tqdm(range(0, len(order), batch_size), desc="Embedding posts"):
        chosen = order[begin : begin + batch_size]
        rows = [{name: values[text] for name, values in tokens.items()} for text in chosen]
        batch = tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(model.device)
        weights = batch["attention_mask"].unsqueeze(-1).float()
        states = model(**batch).last_hidden_state.float()
        embeddings[chosen] = ((states * weights).sum(1) / weights.sum(1)).cpu().numpy()
    return embeddings


class EmbeddedStreams(torch.utils.data.Dataset):
    """
    The streams of timelines as frozen embeddings: one item for each target post, the newest of its stream.

    Args:
        timelines (`datasets.Dataset`): From [`to_timelines`].
        embeddings (`np.ndarray` of shape `(num_posts, embedding_size)`):
            One for each post, timeline after timeline, each in its order.
        window (`int`): Number of posts in a stream, at least 1.
        only_labelled (`bool`, *optional*, defaults to `False`): Whether only labelled posts are targets, as in
            training. By default all posts are, as in prediction.

    An item is a dict of tensors for `default_data_collator`: `embeddings` (window, embedding_size), 0 on the left
    where there are no earlier posts; `mask` (window,), False there; `elapsed` (window,), seconds to the newest post,
    if the timelines have timestamps; `labels`, a class id or -100. The attribute `post_ids` names each item's target.
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
