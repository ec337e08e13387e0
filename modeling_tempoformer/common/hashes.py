"""Hashes tensors and rows, by which vectors, memories and checkpoints know their model and their posts."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel


def sha256_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Returns the SHA-256 of the names, dtypes, shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for name, values in tensors:
        digest.update(f"{name} {values.dtype} {list(values.shape)}".encode())
        digest.update(values.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def hash_inputs(encoder: PreTrainedModel, posts: Any, has_pooler: bool = True) -> str:
    """
    Returns a hash of all that vectors depend on: the encoder's configuration and weights, and the posts. Without
    `has_pooler` they do not depend on the encoder's pooler.
    """
    config = json.loads(encoder.config.to_json_string(use_diff=False))
    # A copy of the encoder in another folder computes the same.
    config.pop("_name_or_path", None)
    read = ((name, weight) for name, weight in encoder.state_dict().items() if has_pooler or "pooler" not in name)
    weights = sha256_of(read)
    return hashlib.sha256(json.dumps([config, weights, posts]).encode()).hexdigest()


def fingerprint(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns the SHA-256 of all rows, in their order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(to_bytes(row))
    return digest.hexdigest()


def to_bytes(row: Mapping[str, Any]) -> bytes:
    """Returns the names and values of a row as bytes."""
    return repr(sorted(row.items())).encode()
