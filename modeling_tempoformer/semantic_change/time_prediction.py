"""When a text was written: the probability of each time token in the place of a masked one (Rosin et al., 2022)."""

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.utils import logging

from ..configuration_temporal_bert import UNKNOWN_TIME
from ..data.dated_texts import check_same_times, frame, make_row, token_limit


@torch.inference_mode()
def predict_times(model: PreTrainedModel, tokenizer, texts: list[str], batch_size: int = 32) -> np.ndarray:
    """
    The probability of each time point for each text.

    Args:
        model: A model with a masked language modelling head that was trained with `prepend_time`.
        tokenizer: Its [`TemporalBertTokenizer`].
        texts: Their times are not looked at. Longer ones are read up to the length of the model.
        batch_size: Texts of a batch.

    Returns:
        `np.ndarray` of shape `(num_texts, num_times)`, rows that sum to 1 over `tokenizer.times`. Raises a
        `ValueError` if the tokenizer does not prepend time, or has other times than the model.
    """
    if not tokenizer.prepend_time:
        raise ValueError("Times are predicted from time tokens: the tokenizer must have `prepend_time=True`.")
    check_same_times(model, tokenizer)
    model.eval()
    place_of_time = 1
    tokens = tokenizer(texts, time=tokenizer.times[0], add_special_tokens=False, verbose=False)["input_ids"]
    before, after, _ = frame(tokenizer, tokenizer.times[0])
    before[place_of_time] = tokenizer.mask_token_id
    size = token_limit(model.config, tokenizer) - len(before) - len(after)
    cut = sum(len(ids) > size for ids in tokens)
    if cut:
        logging.get_logger(__name__).warning("%d of %d texts are read up to %d tokens.", cut, len(texts), size)
    rows = [make_row(ids[:size], before, after, UNKNOWN_TIME) for ids in tokens]
    order = sorted(range(len(rows)), key=lambda index: len(rows[index]["input_ids"]))
    probabilities = np.zeros((len(rows), len(tokenizer.times)))
    for start in logging.tqdm(range(0, len(rows), batch_size), desc="times"):
        chosen = order[start : start + batch_size]
        batch = tokenizer.pad([rows[index] for index in chosen], padding_side="right", return_tensors="pt")
        batch = batch.to(model.device)
        del batch["special_tokens_mask"]
        logits = model(**batch).logits[:, place_of_time, tokenizer.time_token_ids]
        probabilities[chosen] = logits.float().softmax(-1).cpu().numpy()
    return probabilities
