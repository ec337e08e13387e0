"""Makes padded batches of tokenized texts of similar length."""

import logging
from collections.abc import Iterator, Sequence

import torch
from huggingface_hub.utils import tqdm
from transformers import BatchEncoding, PreTrainedTokenizerBase

from .progress import Progress


logger = logging.getLogger(__name__)


def batches_by_length(
    texts: Sequence[dict[str, list[int]]],
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int,
    device: torch.device,
    description: str,
) -> Iterator[tuple[list[int], BatchEncoding]]:
    """
    Yields the indices of the texts of each batch, and the padded batch. Batches go from long texts to short ones, so
    that there is little padding, and what does not fit into memory fails first. A progress bar of texts, with the
    description, appears after two seconds; where all takes a minute or more, the log says so after the first batch,
    and then each minute how much is done.
    """
    lengths = [len(text["input_ids"]) for text in texts]
    order = sorted(range(len(texts)), key=lengths.__getitem__, reverse=True)
    progress = Progress(description, sum(lengths))
    with tqdm(total=len(texts), desc=description, unit=" texts", disable=not texts, leave=False, delay=2) as bar:
        for start in range(0, len(texts), batch_size):
            indices = order[start : start + batch_size]
            batch = tokenizer.pad([texts[index] for index in indices], padding_side="right", return_tensors="pt")
            batch.pop("special_tokens_mask", None)
            yield indices, batch.to(device)
            bar.update(len(indices))
            progress.add(sum(lengths[index] for index in indices))
            if start == 0 and (minutes := progress.minutes_left) >= 1:
                logger.info(f"{description}: {len(texts):,} texts, minutes left: about {minutes:.0f}.")
