"""Predicts the times of texts, from the probabilities of time tokens at a masked position (Rosin et al., 2022)."""

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_tempoformer.common.batches import batches_by_length

from .reading.dated_texts import check_same_times, make_row, special_tokens, token_limit


logger = logging.get_logger(__name__)

TIME_POSITION = 1  # after [CLS]


@torch.inference_mode()
def predict_times(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], batch_size: int = 32
) -> np.ndarray:
    """
    Predicts the probability of each time point for each text.

    Args:
        model, tokenizer: A model with a masked language modelling head that was trained with `prepend_time`.
        texts: Texts without their times. Texts longer than the model's maximum are truncated.
        batch_size: Number of texts in a batch.

    Returns:
        `np.ndarray` of shape `(num_texts, num_times)`, whose rows sum to 1 over `tokenizer.times`. Raises a
        `ValueError` if the tokenizer does not prepend time, or has other times than the model. Warns if all texts get
        the same time, which may come from a model that has not learned to tell times apart.
    """
    if not tokenizer.prepend_time:
        raise ValueError("Times are predicted from time tokens: the tokenizer must have `prepend_time=True`.")
    check_same_times(model, tokenizer)
    model.eval()
    tokens = tokenizer(texts, time=tokenizer.times[0], add_special_tokens=False, verbose=False)["input_ids"]
    before, after, _ = special_tokens(tokenizer, tokenizer.times[0])
    before[TIME_POSITION] = tokenizer.mask_token_id
    size = token_limit(model, tokenizer) - len(before) - len(after)
    if num_truncated := sum(len(ids) > size for ids in tokens):
        logger.warning(f"{num_truncated} of {len(texts)} texts are truncated to {size} tokens.")
    rows = [make_row(ids[:size], before, after, tokenizer.unknown_time_id) for ids in tokens]
    probabilities = np.zeros((len(rows), len(tokenizer.times)))
    for indices, batch in batches_by_length(rows, tokenizer, batch_size, model.device, "Reading texts"):
        logits = model(**batch).logits[:, TIME_POSITION, tokenizer.time_token_ids]
        probabilities[indices] = logits.float().softmax(-1).cpu().numpy()
    predicted = set(probabilities.argmax(-1).tolist())
    if len(texts) > 1 and len(predicted) == 1:
        logger.warning(
            f"All {len(texts)} texts get the time {tokenizer.times[predicted.pop()]}. Unless they are all of that "
            "time, the model has not learned to tell times apart: see its scores on texts of known times."
        )
    return probabilities
