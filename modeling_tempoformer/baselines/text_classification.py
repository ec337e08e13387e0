"""A stock encoder on the post alone, or on its history as one long sequence."""

import logging

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..rows_tempoformer import row_bounds


logger = logging.getLogger(__name__)


def stream_texts(timelines: Dataset, window: int, separator: str, only_labelled: bool) -> Dataset:
    """
    One row for each target post: `post_id`, `label`, `text`, and `history`, the up to `window - 1` posts before it,
    oldest to newest, joined by the separator.
    """
    rows: dict[str, list] = {"post_id": [], "label": [], "text": [], "history": []}
    for timeline in timelines:
        texts = timeline["texts"]
        for start, post, _ in row_bounds(len(texts), window, targets_per_row=1):
            if only_labelled and timeline["labels"][post] < 0:
                continue
            rows["post_id"].append(timeline["post_ids"][post])
            rows["label"].append(timeline["labels"][post])
            rows["text"].append(texts[post])
            rows["history"].append(f" {separator} ".join(texts[start:post]))
    return Dataset.from_dict(rows)


def to_sequences(
    timelines: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    window: int,
    max_seq_length: int | None = None,
    only_labelled: bool = False,
) -> Dataset:
    """
    The target posts as a stock sequence classifier reads them.

    Args:
        timelines (`Dataset`): As [`to_timelines`] returns them.
        tokenizer (`PreTrainedTokenizerBase`): Of the encoder.
        window (`int`): 1 for the post alone; more for the post and, as the second text of a pair, the `window - 1`
            posts before it in one sequence, the separator token between them.
        max_seq_length (`int`, *optional*): Tokens of a sequence. Longer ones lose the oldest tokens of the history,
            then the last ones of the post, and are counted in a log line. At most, and if omitted, the tokenizer's
            `model_max_length`; a `ValueError` where there is no room for a token of the post.
        only_labelled (`bool`, *optional*, defaults to `False`): Whether only labelled posts are targets.

    Returns:
        `Dataset`: The columns of the tokenizer, `labels` and `post_id`, one row for each target post.
    """
    limit = tokenizer.model_max_length
    if max_seq_length is not None:
        smallest = tokenizer.num_special_tokens_to_add() + 1
        if max_seq_length < smallest:
            raise ValueError(f"`max_seq_length` must be at least {smallest}, got {max_seq_length}.")
        limit = min(limit, max_seq_length)
    cut = [0]

    def tokenize(row: dict) -> dict[str, list]:
        text, history = row["text"], row["history"]
        tokens = tokenizer(text, *([history] if history else []), verbose=False)
        if len(tokens["input_ids"]) <= limit:
            return dict(tokens)
        cut[0] += 1
        alone = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if not history or alone + tokenizer.num_special_tokens_to_add(pair=True) >= limit:
            tokenizer.truncation_side = "right"
            return dict(tokenizer(text, truncation=True, max_length=limit))
        tokenizer.truncation_side = "left"
        return dict(tokenizer(text, history, truncation="only_second", max_length=limit))

    side = tokenizer.truncation_side
    texts = stream_texts(timelines, window, tokenizer.sep_token or "", only_labelled)
    sequences = texts.map(tokenize, remove_columns=["text", "history"], load_from_cache_file=False, desc="Tokenizing")
    tokenizer.truncation_side = side
    if cut[0]:
        logger.warning("Truncated %d of %d sequences to %d tokens.", cut[0], len(sequences), limit)
    return sequences.rename_column("label", "labels")
