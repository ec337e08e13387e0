"""From the posts of a timeline to rows for the collator."""

from collections.abc import Iterator

from transformers import PreTrainedTokenizerBase

from .timestamps_tempoformer import to_date


# A tokenizer's output takes much more memory than the token lists that are kept.
TEXTS_AT_ONCE = 1000


def tokenize_posts(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], limit: int, timestamps: list[float] | None = None
) -> tuple[dict[str, list], int]:
    """
    Tokenizes posts, each cut to `limit` tokens.

    From `timestamps` (seconds) a tokenizer of dated texts takes the calendar time in UTC. Returns the tokenizer's
    columns except the attention mask, which the collator makes (for each a list of token lists); and the number of
    posts that were cut. Raises a `ValueError` that names a post whose time the tokenizer does not know, or whose text
    has half of a surrogate pair.
    """
    for post, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError:
            problem = f"the text {text!r:.80} has half of a surrogate pair, as of an emoji that was cut"
            raise ValueError(f"post {post} in order of time: {problem}.") from None
    dates = None
    if "time_ids" in tokenizer.model_input_names:
        dates = [None] * len(texts) if timestamps is None else [to_date(seconds) for seconds in timestamps]
        for post, date in enumerate(dates):
            try:
                tokenizer.time_id(date)
            except ValueError as problem:
                raise ValueError(f"post {post} in order of time: {problem}") from None

    def tokenize(posts: slice, **settings) -> dict[str, list]:
        times = {} if dates is None else {"time": dates[posts]}
        return tokenizer(texts[posts], **times, **settings)

    tokens: dict[str, list] = {"input_ids": []}
    shared: dict[int, int] = {}
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        some = tokenize(slice(start, start + TEXTS_AT_ONCE), verbose=False)
        for name in (name for name in tokenizer.model_input_names if name in some and name != "attention_mask"):
            # A number takes four times the memory of a place in a list: each token id is kept once.
            values = [[shared.setdefault(value, value) for value in post] for post in some[name]]
            tokens.setdefault(name, []).extend(values)
    too_long = [post for post, ids in enumerate(tokens["input_ids"]) if len(ids) > limit]
    for post in too_long:
        short = tokenize(slice(post, post + 1), truncation=True, max_length=limit)
        for name in tokens:
            tokens[name][post] = short[name][0]
    return tokens, len(too_long)


def row_bounds(
    num_posts: int, window: int, targets_per_row: int, num_context: int = 0
) -> Iterator[tuple[int, int, int]]:
    """
    Cuts a timeline to rows: yields (start, first, end) for each. The row has the posts from `start` to `end`; its
    targets are those from `first` on, and the posts before are the context that the first target needs. The first
    `num_context` posts of the timeline are no targets.
    """
    for first in range(num_context, num_posts, targets_per_row):
        yield max(0, first - window + 1), first, min(first + targets_per_row, num_posts)


def cut_rows(
    columns: dict[str, list], window: int, targets_per_row: int, num_context: int = 0
) -> Iterator[dict[str, list | int]]:
    """The rows of a timeline for [`StreamCollator`]: its columns, cut by [`row_bounds`], and `num_context`."""
    for start, first, end in row_bounds(len(columns["input_ids"]), window, targets_per_row, num_context):
        yield {**{name: values[start:end] for name, values in columns.items()}, "num_context": first - start}
