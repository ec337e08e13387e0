"""Makes padded batches of tokenized texts of similar length."""

from collections.abc import Iterator, Sequence

import torch
from huggingface_hub.utils import tqdm
from transformers import BatchEncoding, PreTrainedTokenizerBase


def batches_by_length(
    texts: Sequence[dict[str, list[int]]],
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int,
    device: torch.device,
    description: str,
) -> Iterator[tuple[list[int], BatchEncoding]]:
    """
    Yields the indices of the texts of each batch, and the padded batch. Batches go from short texts to long ones, so
    that there is little padding. A progress bar with the description appears after two seconds.
    """
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]["input_ids"]))
    for start in tqdm(range(0, len(texts), batch_size), desc=description, disable=not texts, leave=False, delay=2):
        indices = order[start : start + batch_size]
        batch = tokenizer.pad([texts[index] for index in indices], padding_side="right", return_tensors="pt")
        batch.pop("special_tokens_mask", None)
        yield indices, batch.to(device)
