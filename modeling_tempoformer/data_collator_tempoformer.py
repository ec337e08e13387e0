"""From rows of posts to batches of streams."""

import numbers
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .input_checks_tempoformer import narrow_float
from .timestamps_tempoformer import to_date
from .windows_tempoformer import elapsed_seconds, stream_windows


# What a tokenizer remembers of a text takes much more memory than its tokens.
TEXTS_AT_ONCE = 1000


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
        Raises a `ValueError` that names a post of a time that the tokenizer does not know, or whose text has half a
        surrogate pair.
    """
    for post, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"post {post} in order of time: the text {text!r:.80} is no Unicode.") from None
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

    tokens: dict[str, list] = {"input_ids": []}
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        part = slice(start, start + TEXTS_AT_ONCE)
        for name, values in tokenize(texts[part], dates and dates[part], verbose=False).items():
            tokens.setdefault(name, []).extend(values)
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
    where the rows have them. Raises a `ValueError` that names the row for missing or misfitting columns, for posts
    without tokens, for labels that are no class ids, and for timestamps that are not finite, not in order or floats of
    fewer than 64 bits.
    """

    tokenizer: PreTrainedTokenizerBase
    window: int
    timed: bool = True

    def __post_init__(self):
        if not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"`window` must be a whole number of at least 1, got {self.window!r}.")

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        if not rows:
            raise ValueError("The batch has no rows.")
        for number, row in enumerate(rows):
            self.check(number, row, rows[0])
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

    def check(self, number: int, row: dict[str, Any], first: dict[str, Any]):
        """Raises a `ValueError` for columns that do not fit each other or those of the first row."""
        where = f"Row {number} of the batch"
        if not len(row.get("input_ids", ())):
            raise ValueError(f"{where} has no posts.")
        num_posts = len(row["input_ids"])
        for name in self.tokenizer.model_input_names:
            if (name in row) != (name in first):
                has, other = ("", "no ") if name in row else ("no ", "")
                raise ValueError(f"{where} has {has}'{name}', the first row has {other}'{name}'.")
            if name not in row:
                continue
            if len(row[name]) != num_posts:
                raise ValueError(f"{where} has {len(row[name])} '{name}' for {num_posts} posts.")
            for post, (values, tokens) in enumerate(zip(row[name], row["input_ids"], strict=True)):
                if not len(tokens):
                    raise ValueError(f"{where}: post {post} has no tokens.")
                if len(values) != len(tokens):
                    raise ValueError(f"{where}: post {post} has {len(values)} '{name}' for {len(tokens)} tokens.")
        num_context = row.get("num_context", 0)
        if not isinstance(num_context, numbers.Integral) or not 0 <= num_context <= num_posts:
            raise ValueError(f"{where} has the 'num_context' {num_context!r} and {num_posts} posts.")
        for label in row.get("labels", ()):
            if (
                label is not None
                and label != -100
                and not (isinstance(label, numbers.Integral) and 0 <= label < 2**63)
            ):
                raise ValueError(f"{where} has the label {label!r}, which is neither a class id nor -100.")

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
            self.check_precision(number, row["timestamps"])
            try:
                times = torch.tensor(row["timestamps"], dtype=torch.float64)
            except (TypeError, ValueError, OverflowError):
                what = f"the timestamps must be numbers of seconds, got {row['timestamps']!r:.80}"
                raise ValueError(f"Row {number} of the batch: {what}.") from None
            if num_posts == 1 and not times.isfinite():
                raise ValueError(f"Row {number} of the batch: the timestamp {times.item()} must be finite.")
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

    def check_precision(self, number: int, timestamps: Any):
        """Raises a `ValueError` for times in floats of fewer than 64 bits, as a tensor, an array or one by one."""
        values = [timestamps] if hasattr(timestamps, "dtype") else timestamps
        if dtype := next(filter(None, map(narrow_float, values)), None):
            raise ValueError(
                f"Row {number} of the batch: the timestamps are {dtype}, which is too coarse for seconds since 1970; "
                "give Python numbers or float64."
            )

    def pad_posts(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Token tensors of shape (rows, posts, tokens)."""
        names = [name for name in self.tokenizer.model_input_names if name in rows[0]]
        lengths = [len(row["input_ids"]) for row in rows]
        posts = [{name: row[name][i] for name in names} for row in rows for i in range(len(row["input_ids"]))]
        try:
            padded = self.tokenizer.pad(posts, padding_side="right", return_tensors="pt")
        except ValueError as problem:
            raise ValueError(name_bad_token(rows, names) or f"The batch cannot be padded: {problem}") from None
        if any(tensor.is_floating_point() for tensor in padded.values()):
            raise ValueError(name_bad_token(rows, names))
        # Absent posts differ from real ones by their mask alone.
        fill = {"input_ids": self.tokenizer.pad_token_id}
        return {name: pad(tensor.split(lengths), fill.get(name, 0)) for name, tensor in padded.items()}


def name_bad_token(rows: list[dict[str, Any]], names: list[str]) -> str:
    """Where the first token is that is no whole number of 64 bits; nothing where all are."""
    for number, row in enumerate(rows):
        for name in names:
            for post, values in enumerate(row[name]):
                for value in values:
                    if not isinstance(value, numbers.Integral) or abs(value) >= 2**63:
                        return f"Row {number} of the batch, post {post}: {value!r} in '{name}' is no token id."
    return ""


def pad(tensors: list[torch.Tensor], value: float) -> torch.Tensor:
    """Stacks tensors that differ in their first axis."""
    return torch.nn.utils.rnn.pad_sequence(list(tensors), batch_first=True, padding_value=value)
