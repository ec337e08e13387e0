"""Vectors of posts that an encoder computes once: they are cached on disk."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from transformers import PreTrainedModel
from transformers.utils import logging


logger = logging.get_logger(__name__)


def cached_vectors(
    encoder: PreTrainedModel, posts: Any, compute: Callable[[], np.ndarray], cache_dir: str | Path | None = None
) -> np.ndarray:
    """
    The vectors that `compute` returns, or returned before for the same weights, configuration and `posts`, which is
    all else that decides them and which JSON can write. The cache has no texts; by default it is `post_embeddings` in
    the cache of `datasets`.
    """
    folder = datasets.config.HF_DATASETS_CACHE / "post_embeddings" if cache_dir is None else Path(cache_dir)
    path = folder / f"{hash_inputs(encoder, posts)}.npy"
    if path.exists():
        logger.info(f"Read the vectors of posts from {path}.")
        return np.load(path, allow_pickle=False)
    vectors = compute()
    folder.mkdir(parents=True, exist_ok=True)
    # Other processes only see the whole file.
    partial = path.with_suffix(f".{os.getpid()}.npy")
    np.save(partial, vectors, allow_pickle=False)
    partial.replace(path)
    return vectors


def hash_inputs(encoder: PreTrainedModel, posts: Any) -> str:
    """A hash of all that decides the vectors: the encoder's configuration and weights, and the posts."""
    digest = hashlib.sha256(json.dumps([encoder.config.to_json_string(use_diff=False), posts]).encode())
    for name, weights in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(weights.contiguous().cpu().numpy())
    return digest.hexdigest()
