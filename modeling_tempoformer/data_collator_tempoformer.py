"""From rows of posts to batches of streams."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .timestamps_tempoformer import to_date
from .windows_tempoformer import elapsed_seconds, stream_windows


def tokenize_posts(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], limit: int, timestamps: list[float] | None = None
) -> tuple[dict[str, list], int]:
    """
    Tokens of each text, and how many texts were cut.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Of the encoder.
        texts (`list[str]`): One post each.
        limit (`int`): Tokens of a post at most.
        timestamps (`list[float]`, *optional*): Seconds of each post, from which a tokenizer of dated texts tells its
            calendar time in UTC.

    Returns:
        The tokenizer's columns but for the attention mask, a list of token lists each, and the number of posts cut.
        Raises a `ValueError` that names a post of a time that the tokenizer does not know.
    """
    dates = None
    if "time_ids" in tokenizer.model_input_names:
        dates = [None] * len(texts) if timestamps is None else [to_date(seconds) for seconds in timestamps]
        for post, date in enumerate(dates):
            try:
                tokenizer.time_id(date)
            except ValueError as problem:
                raise ValueError(f"post {post} in order of time: {problem}") from None

    def tokenize(texts, times, **settings):
        return tokenizer(texts, **settings) if dates is None else tokenizer(texts, time=times, **settings)

    tokens = tokenize(texts, dates, verbose=False) if texts else {"input_ids": []}
    too_long = [post for post, ids in enumerate(tokens["input_ids"]) if len(ids) > limit]
    for post in too_long:
        short = tokenize(texts[post], dates and dates[post], truncation=True, max_length=limit)
        for name in tokens:
            tokens[name][post] = short[name]
    # The collator makes the mask.
    names = [name for name in tokenizer.model_input_names if name in tokens and name != "attention_mask"]
    return {name: tokens[name] for name in names}, len(too_long)


@dataclass
class StreamCollator:
    """
    Pads rows of tokenized posts and builds the stream of every target post.

    Each row holds `input_ids` (and what else the tokenizer's `model_input_names` lists), a list for each post;
    optionally `timestamps` (seconds, one for each post), `num_context` (leading posts that are context only, 0 if
    absent) and `labels` (one for each post after the context; -100 = wanted but not labelled, None = not a target).

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Pads the posts.
        window (`int`): Number of posts in a stream, at least 1.
        timed (`bool`, *optional*, defaults to `True`): Whether rows must have `timestamps`.

    A call returns tensors with the rows (B) first: `input_ids` and `attention_mask` (B, posts, tokens),
    `stream_index` (B, streams, window), `elapsed` in seconds of the same shape where timed, and `labels` (B, streams)
    where the rows have them. Raises a `ValueError` that names the row for missing or misfitting columns, and for
    timestamps that are not finite or not in order.
    """

    tokenizer: PreTrainedTokenizerBase
    window: int
    timed: bool = True

    def __post_init__(self):
        if self.window < 1:
            raise ValueError(f"`window` must be at least 1, got {self.window}.")

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        streams = [self.streams(number, row) for number, row in enumerate(rows)]
        batch = self.pad_posts(rows)
        batch["stream_index"] = pad([stream["stream_index"] for stream in streams], -1)
        if self.timed:
            batch["elapsed"] = pad([stream["elapsed"] for stream in streams], 0.0)
        if any("labels" in row for row in rows):
            if (missing := next((n for n, row in enumerate(rows) if "labels" not in row), None)) is not None:
                raise ValueError(f"Row {missing} of the batch has no 'labels', others have.")
            batch["labels"] = pad([stream["labels"] for stream in streams], -100)
        return batch

    def streams(self, number: int, row: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The streams of one row."""
        num_posts, num_context = len(row["input_ids"]), row.get("num_context", 0)
        labels = row.get("labels", [-100] * (num_posts - num_context))
        if len(labels) != num_posts - num_context:
            raise ValueError(
                f"Row {number} of the batch has {len(labels)} labels for {num_posts} posts, {num_context} of them "
                "context. If 'num_context' was lost, pass `remove_unused_columns=False` to `TrainingArguments`."
            )
        targets = torch.tensor([num_context + i for i, label in enumerate(labels) if label is not None]).long()
        stream_index = stream_windows(targets, self.window)
        streams = {
            "stream_index": stream_index,
            "labels": torch.tensor([label for label in labels if label is not None]).long(),
        }
        if not self.timed and row.get("timestamps") is not None:
            raise ValueError(f"Row {number} of the batch has 'timestamps', but the collator has `timed=False`.")
        if self.timed:
            if row.get("timestamps") is None:
                raise ValueError(
                    f"Row {number} of the batch has no 'timestamps'. Pass `remove_unused_columns=False` to "
                    "`TrainingArguments` so that the Trainer keeps them, or `StreamCollator(timed=False)` for "
                    "timelines without time."
                )
            if len(row["timestamps"]) != num_posts:
                raise ValueError(
                    f"Row {number} of the batch has {len(row['timestamps'])} timestamps for {num_posts} posts."
                )
            times = torch.tensor(row["timestamps"], dtype=torch.float64)
            # Also true of a NaN.
            wrong = ~((times[1:] >= times[:-1]) & times[1:].isfinite() & times[:-1].isfinite())
            if wrong.any():
                post = int(wrong.nonzero()[0]) + 1
                raise ValueError(
                    f"Row {number} of the batch: the timestamps {times[post - 1].item()} and {times[post].item()} of "
                    f"posts {post - 1} and {post} must be finite and in order."
                )
            streams["elapsed"] = elapsed_seconds(times, stream_index)
        return streams

    def pad_posts(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Token tensors of shape (rows, posts, tokens)."""
        names = [name for name in self.tokenizer.model_input_names if name in rows[0]]
        lengths = [len(row["input_ids"]) for row in rows]
        posts = [{name: row[name][i] for name in names} for row in rows for i in range(len(row["input_ids"]))]
        padded = self.tokenizer.pad(posts, padding_side="right", return_tensors="pt")
        # Absent posts differ from real ones by their mask alone.
        fill = {"input_ids": self.tokenizer.pad_token_id}
        return {name: pad(tensor.split(lengths), fill.get(name, 0)) for name, tensor in padded.items()}


def pad(tensors: list[torch.Tensor], value: float) -> torch.Tensor:
    """Stacks tensors that differ in their first axis."""
    return torch.nn.utils.rnn.pad_sequence(list(tensors), batch_first=True, padding_value=value)
