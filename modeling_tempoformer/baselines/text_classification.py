"""Posts as a stock sequence classifier reads them: alone, or with their history in one sequence."""

import logging

from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from ..data_collator_tempoformer import row_bounds


logger = logging.getLogger(__name__)


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
        timelines (`Dataset`): From [`to_timelines`].
        tokenizer (`PreTrainedTokenizerBase`): The encoder's tokenizer.
        window (`int`): 1 for the post alone. With more, the `window - 1` posts before it are the second text of a
            pair, with separator tokens between them.
        max_seq_length (`int`, *optional*): Maximum number of tokens in a sequence; at most, and by default, the
            tokenizer's `model_max_length`. Longer sequences lose the oldest tokens of the history, then the last
            tokens of the post, and are counted in a log line.
        only_labelled (`bool`, *optional*, defaults to `False`): Whether only labelled posts are targets.

    Returns:
        `Dataset`: The columns of the tokenizer, `labels` and `post_id`, one row for each target post.
    """
    limit = min(tokenizer.model_max_length, max_seq_length or tokenizer.model_max_length)
    num_truncated = 0

    def tokenize(text: str, history: str | None) -> dict[str, list]:
        nonlocal num_truncated
        tokens = tokenizer(text, history, verbose=False)
        if len(tokens["input_ids"]) <= limit:
            return dict(tokens)
        num_truncated += 1
        text_length = len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        if history is None or text_length + tokenizer.num_special_tokens_to_add(pair=True) >= limit:
            tokenizer.truncation_side = "right"
            return dict(tokenizer(text, truncation=True, max_length=limit))
        tokenizer.truncation_side = "left"
        return dict(tokenizer(text, history, truncation="only_second", max_length=limit))

    side, separator, rows = tokenizer.truncation_side, f" {tokenizer.sep_token or ''} ", []
    for timeline in timelines:
        texts, labels = timeline["texts"], timeline["labels"]
        for start, post, _ in row_bounds(len(texts), window, targets_per_row=1):
            if labels[post] >= 0 or not only_labelled:
                tokens = tokenize(texts[post], separator.join(texts[start:post]) or None)
                rows.append({**tokens, "labels": labels[post], "post_id": timeline["post_ids"][post]})
    tokenizer.truncation_side = side
    if num_truncated:
        logger.warning("Truncated %d of %d sequences to %d tokens.", num_truncated, len(rows), limit)
    return Dataset.from_list(rows)
