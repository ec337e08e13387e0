"""Hashes tensors, by which vectors and memories know their model."""

import hashlib
from collections.abc import Iterable

import torch


def sha256_of(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Returns the SHA-256 of the names, dtypes, shapes and bytes of tensors."""
    digest = hashlib.sha256()
    for name, values in tensors:
        digest.update(f"{name} {values.dtype} {list(values.shape)}".encode())
        digest.update(values.cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
