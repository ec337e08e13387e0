"""Posts as frozen embeddings, kept on disk, and streams of them."""

import hashlib
import json
import os
from pathlib import Path

import datasets
import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import CONFIG_NAME, cached_file, logging
from transformers.utils.hub import extract_commit_hash

from ..data.dated_texts import token_limit
from ..rows_tempoformer import tokenize_posts
from ..windows_tempoformer import elapsed_seconds, stream_windows


logger = logging.get_logger(__name__)


def embed_texts(
    texts: list[str],
    model_name_or_path: str,
    max_seq_length: int = 128,
    batch_size: int = 64,
    cache_dir: str | Path | None = None,
) -> np.ndarray:
    """
    An embedding of each text: the mean of an encoder's last hidden states over the text's tokens, special ones
    included, as sentence encoders are used. The embeddings (not the texts) are kept on disk, and read from there the
    next time that the same encoder is asked for the same texts.

    Args:
        texts (`list[str]`): Empty ones are legal.
        model_name_or_path (`str`): Folder or Hub id of an encoder with its tokenizer.
        max_seq_length (`int`, *optional*, defaults to 128): Tokens of a text; longer ones are truncated and counted in
            a log line. The encoder's own limit where that is lower.
        batch_size (`int`, *optional*, defaults to 64): Texts of a batch.
        cache_dir (`str` or `Path`, *optional*): Where embeddings are kept; `post_embeddings` in the cache of
            `datasets` if omitted. A file there that cannot be read is made again, with a warning.

    Returns:
        `np.ndarray` of shape `(len(texts), hidden_size)`, float32. Raises a `ValueError` that names the row of a text
        that is no string, and for an encoder that reads the times of texts.
    """
    if batch_size < 1:
        raise ValueError(f"`batch_size` must be at least 1, got {batch_size}.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"`texts` must be strings, got {text!r} in row {row}.")
    config = AutoConfig.from_pretrained(model_name_or_path)
    if reads_times(config):
        raise ValueError(f"`model_name_or_path` {model_name_or_path} has temporal attention; use a plain encoder.")
    tokenizer = AutoTokenizer.from_pretrained(model_name_or_path)
    smallest = tokenizer.num_special_tokens_to_add() + 1
    if max_seq_length < smallest:
        raise ValueError(f"`max_seq_length` must be at least {smallest}, got {max_seq_length}.")
    limit = min(max_seq_length, token_limit(config, tokenizer))
    tokens, cut = tokenize_posts(tokenizer, texts, limit)
    if cut:
        logger.warning(f"Truncated {cut} of {len(texts)} posts to {limit} tokens.")
    folder = datasets.config.HF_DATASETS_CACHE / "post_embeddings" if cache_dir is None else Path(cache_dir)
    asked = [texts, encoder_fingerprint(model_name_or_path), config.to_json_string(use_diff=False), max_seq_length]
    path = folder / f"{hashlib.sha256(json.dumps(asked).encode()).hexdigest()}.npy"
    if path.is_file() and (kept := read_embeddings(path, (len(texts), config.hidden_size))) is not None:
        logger.info(f"Read the embeddings of {len(texts)} posts from {path}.")
        return kept
    # So that what is drawn next does not depend on whether the embeddings were kept.
    with torch.random.fork_rng():
        model = AutoModel.from_pretrained(model_name_or_path, use_safetensors=True, dtype=torch.float32)
    embeddings = mean_states(model, tokenizer, tokens, batch_size)
    folder.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole.
    partial = path.with_suffix(f".{os.getpid()}.npy")
    np.save(partial, embeddings, allow_pickle=False)
    partial.replace(path)
    return embeddings


def reads_times(config: PreTrainedConfig) -> bool:
    """Whether an encoder reads the times of texts beside them, by temporal attention or as tokens."""
    return getattr(config, "temporal_attention", "none") != "none" or getattr(config, "prepend_time", False)


def encoder_fingerprint(model_name_or_path: str) -> list:
    """What changes with an encoder's weights or tokenizer: the files of a folder, or the commit of a Hub id."""
    folder = Path(model_name_or_path)
    if folder.is_dir():
        files = sorted(file for file in folder.iterdir() if file.is_file())
        return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return [model_name_or_path, extract_commit_hash(cached_file(model_name_or_path, CONFIG_NAME), None)]


def read_embeddings(path: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """Embeddings from disk; `None`, with a warning, where the file does not hold them."""
    try:
        embeddings = np.load(path, allow_pickle=False)
        problem = f"it holds {embeddings.dtype} of shape {embeddings.shape}, not float32 of shape {shape}"
    except (OSError, ValueError, EOFError) as error:
        embeddings, problem = None, str(error)
    if embeddings is not None and embeddings.shape == shape and embeddings.dtype == np.float32:
        return embeddings
    logger.warning(f"The embeddings in {path} are made again: {problem}.")
    return None


@torch.inference_mode()
def mean_states(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: dict[str, list], batch_size: int
) -> np.ndarray:
    """The mean of each text's last hidden states, on a GPU if there is one; `tokens` are from [`tokenize_posts`]."""
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    lengths = [len(ids) for ids in tokens["input_ids"]]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    embeddings = np.zeros((len(lengths), model.config.hidden_size), dtype=np.float32)
    for begin in logging.tqdm(range(0, len(order), batch_size), desc="posts"):
        chosen = order[begin : begin + batch_size]
        rows = [{name: values[post] for name, values in tokens.items()} for post in chosen]
        batch = tokenizer.pad(rows, padding_side="right", return_tensors="pt").to(model.device)
        weights = batch["attention_mask"].unsqueeze(-1).float()
        states = model(**batch).last_hidden_state.float()
        embeddings[chosen] = ((states * weights).sum(1) / weights.sum(1)).cpu().numpy()
    return embeddings


class EmbeddedStreams(torch.utils.data.Dataset):
    """
    The streams of frozen embeddings of timelines: one item for each target post, which is the newest of its stream.

    Args:
        timelines (`datasets.Dataset`): As `to_timelines` returns them.
        embeddings (`np.ndarray` of shape `(num_posts, embedding_size)`):
            Of all posts, timeline after timeline, each in its order.
        window (`int`): Number of posts in a stream, at least 1.
        only_labelled (`bool`, *optional*, defaults to `False`): Whether unlabelled posts are context only, as in
            training, or targets too, as in prediction.

    An item is a dict of tensors that `default_data_collator` takes: `embeddings` (window, embedding_size), 0 on the
    left where there are no earlier posts; `mask` (window,), which tells where; `elapsed` (window,), seconds to the
    newest post, where the timelines have timestamps; `labels`, a class id or -100.

    Attributes: `post_ids`, the target of each item.

    Raises a `ValueError` for embeddings that are not finite or not one for each post, for timestamps that are not in
    order, and where there is no target.
    """

    def __init__(self, timelines: datasets.Dataset, embeddings: np.ndarray, window: int, only_labelled: bool = False):
        num_posts = sum(len(posts) for posts in timelines["post_ids"])
        if embeddings.ndim != 2 or len(embeddings) != num_posts:
            raise ValueError(f"`embeddings` has the shape {embeddings.shape} for {num_posts} posts.")
        if not (finite := np.isfinite(embeddings).all(axis=1)).all():
            raise ValueError(f"Row {finite.argmin()} of `embeddings` is not finite.")
        self.embeddings = torch.from_numpy(np.ascontiguousarray(embeddings, dtype=np.float32))
        self.post_ids: list[str] = []
        streams, elapsed, labels = [], [], []
        first = 0
        for timeline in timelines:
            classes = torch.tensor(timeline["labels"], dtype=torch.long)
            targets = (classes != -100).nonzero().squeeze(-1) if only_labelled else torch.arange(len(classes))
            index = stream_windows(targets, window)
            if "timestamps" in timeline:
                times = torch.tensor(timeline["timestamps"], dtype=torch.float64)
                if not (times[1:] >= times[:-1]).all():
                    raise ValueError(f"The timestamps of timeline {timeline['timeline_id']!r} are not in order.")
                elapsed.append(elapsed_seconds(times, index))
            streams.append(index + first * (index >= 0))
            labels.append(classes[targets])
            self.post_ids += [timeline["post_ids"][target] for target in targets.tolist()]
            first += len(classes)
        if not self.post_ids:
            raise ValueError(f"There is no {'labelled ' if only_labelled else ''}post among the {num_posts}.")
        self.streams = torch.cat(streams)
        self.labels = torch.cat(labels)
        self.elapsed = torch.cat(elapsed) if elapsed else None

    def __len__(self) -> int:
        return len(self.post_ids)

    def __getitem__(self, item: int) -> dict[str, torch.Tensor]:
        places = self.streams[item]
        mask = places >= 0
        stream = {
            "embeddings": self.embeddings[places.clamp_min(0)].masked_fill(~mask.unsqueeze(-1), 0),
            "mask": mask,
            "labels": self.labels[item],
        }
        if self.elapsed is not None:
            stream["elapsed"] = self.elapsed[item]
        return stream
