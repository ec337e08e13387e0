"""Batches of texts of similar length."""

from collections.abc import Iterator

import torch
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.utils import logging


def batches_by_length(
    rows: list[dict[str, list[int]]],
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int,
    device: torch.device,
    description: str,
) -> Iterator[tuple[list[int], BatchEncoding]]:
    """The rows in padded batches, from short to long, with their indices; a progress bar has the description."""
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]["input_ids"]))
    for start in logging.tqdm(range(0, len(rows), batch_size), desc=description):
        indices = order[start : start + batch_size]
        batch = tokenizer.pad([rows[index] for index in indices], padding_side="right", return_tensors="pt")
        del batch["special_tokens_mask"]
        yield indices, batch.to(device)
