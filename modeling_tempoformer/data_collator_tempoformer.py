"""Makes batches of streams from rows of timelines: windows, elapsed times and padding."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .checks_tempoformer import narrow_float
from .streams_tempoformer import lay_out_streams


@dataclass
class StreamCollator:
    """
    Pads rows of tokenized posts and builds the stream of every target post.

    A row holds `input_ids` (and the other columns of the tokenizer's `model_input_names`), a list for each post, or
    `post_embeds`, a vector for each post (posts, hidden). It may hold `timestamps` (seconds, one for each post),
    `num_context` (number of leading posts that are context only, by default 0), and for each post after the context
    `labels` (-100 for none) and `is_target` (False for a post that is not classified, by default all are).
    `num_before` (by default 0) posts of the timeline are before the row, and it began at `start_time` (seconds, by
    default with the row). `held_out` is the member of the model that does not learn from the row. Rows with speakers
    have `speaker_posts`, for each post after the context a list of the positions of its speaker's last posts before
    it (-1 for none), and `num_older`: so many leading posts are there for a speaker alone, and in no stream. Rows for
    a model that reads known states have `earlier_states` of each post, as [`states_before`] returns them.

    Args:
        tokenizer (`PreTrainedTokenizerBase`, *optional*): Pads the posts. Rows of vectors need none.
        window (`int`): Posts in a stream, at least 1.
        timed (`bool`, *optional*, defaults to `True`): If True, rows must have `timestamps`.
        pad_rows_to_multiple_of (`int`, *optional*, defaults to 1): A batch is padded with empty rows to a multiple
            of this number. Where several processes share a stream of rows, give the number of processes: otherwise
            Accelerate fills the batch with rows that were used before, which then count twice.

    A call returns tensors with the rows (B) first: `input_ids` and `attention_mask` (B, posts, tokens), or
    `post_embeds` (B, posts, hidden) and `attention_mask` (B, posts, 1); `stream_index` (B, streams, window), `elapsed`
    in seconds of the same shape if timed, `timeline_position` (B, streams, 2), how many posts of the timeline come
    before and seconds since the first of them, and if the rows have them `speaker_posts` (B, streams, count),
    `earlier_states` (B, streams, 3, states), `labels` (B, streams) and `held_out` (B,).
    Raises a `ValueError` that names the row for missing columns, posts without tokens, labels that are not integers or
    not as many as targets, and timestamps that are out of order or in floats of fewer than 64 bits.
    """

    tokenizer: PreTrainedTokenizerBase | None
    window: int
    timed: bool = True
    pad_rows_to_multiple_of: int = 1

    def __post_init__(self):
        for name in ("window", "pad_rows_to_multiple_of"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}.")

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        if not rows:
            raise ValueError("The batch has no rows.")
        streams = []
        for number, row in enumerate(rows):
            try:
                self.check_posts(row, rows[0])
                streams.append(self.streams(row))
            except ValueError as problem:
                raise ValueError(f"Row {number} of the batch {problem}") from None
        columns = {"stream_index": -1, "timeline_position": 0.0} | ({"elapsed": 0.0} if self.timed else {})
        columns |= {
            name: fill
            for name, fill in (("labels", -100), ("speaker_posts", -1), ("earlier_states", 0.0))
            if name in rows[0]
        }
        padded = {name: pad([stream[name] for stream in streams], fill) for name, fill in columns.items()}
        if "held_out" in rows[0]:
            padded["held_out"] = torch.tensor([row["held_out"] for row in rows])
        batch = self.pad_posts(rows) | padded
        if blank := -len(rows) % self.pad_rows_to_multiple_of:
            fills = columns | {"held_out": -1} | self.fills()
            batch = {name: pad_rows(tensor, blank, fills.get(name, 0)) for name, tensor in batch.items()}
        return batch

    def check_posts(self, row: dict[str, Any], first: dict[str, Any]):
        """Raises a `ValueError` for other columns than the first row has, and for posts without tokens."""
        if not len(posts_of(row)):
            raise ValueError("has no posts.")
        tokens = () if self.tokenizer is None else self.tokenizer.model_input_names
        for name in (*tokens, "post_embeds", "labels", "held_out", "speaker_posts", "earlier_states"):
            if (name in row) != (name in first):
                raise ValueError(f"{'has' if name in row else 'lacks'} '{name}', unlike the first row.")
        for post, tokens in enumerate(posts_of(row)):
            if not len(tokens):
                raise ValueError(f"has no tokens in post {post}.")

    def streams(self, row: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Returns the streams of one row."""
        num_posts, num_context = len(posts_of(row)), row.get("num_context", 0)
        num_targets = num_posts - num_context
        labels = row.get("labels", [-100] * num_targets)
        if len(labels) != num_targets:
            raise ValueError(
                f"has {len(labels)} labels for {num_posts} posts, {num_context} of them context. If 'num_context' was "
                "lost, pass `remove_unused_columns=False` to `TrainingArguments`."
            )
        classes = None if isinstance(labels, list) and None in labels else torch.as_tensor(labels)
        if classes is None or classes.is_floating_point():
            raise ValueError(f"must have class ids or -100 as labels, got {labels!r:.80}.")
        is_target = torch.as_tensor(row.get("is_target", [True] * num_targets))
        targets = num_context + is_target.nonzero().flatten()
        times, older = None, row.get("num_older", 0)
        if self.timed:
            times = checked_times(row.get("timestamps"), num_posts)[older:]
        elif row.get("timestamps") is not None:
            raise ValueError("has 'timestamps', but the collator has `timed=False`.")
        start = row.get("num_before", 0) + older, row.get("start_time")
        streams = lay_out_streams(torch.arange(older, num_posts), targets - older, self.window, times, *start)
        streams["labels"] = classes[targets - num_context].long()
        if "earlier_states" in row:
            streams["earlier_states"] = torch.as_tensor(row["earlier_states"], dtype=torch.float32)[targets]
        if "speaker_posts" in row:
            streams["speaker_posts"] = torch.as_tensor(row["speaker_posts"])[targets - num_context]
        return streams

    def pad_posts(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Returns token tensors (rows, posts, tokens), or vectors of posts and their mask."""
        if "post_embeds" in rows[0]:
            vectors = [torch.as_tensor(row["post_embeds"]) for row in rows]
            masks = [torch.ones(len(posts), 1, dtype=torch.long) for posts in vectors]
            return {"post_embeds": pad(vectors, 0.0), "attention_mask": pad(masks, 0)}
        names = [name for name in self.tokenizer.model_input_names if name in rows[0]]
        lengths = [len(row["input_ids"]) for row in rows]
        posts = [{name: row[name][i] for name in names} for row in rows for i in range(len(row["input_ids"]))]
        padded = self.tokenizer.pad(posts, padding_side="right", return_tensors="pt")
        if not padded["attention_mask"][:, 0].all():
            raise ValueError("The first token of a post, [CLS], is masked: posts are padded on the right.")
        return {name: pad(tensor.split(lengths), self.fills().get(name, 0)) for name, tensor in padded.items()}

    def fills(self) -> dict[str, int]:
        """Returns the padding values that are not 0. Only its mask tells a padding post from a real one."""
        return {} if self.tokenizer is None else {"input_ids": self.tokenizer.pad_token_id}


def posts_of(row: dict[str, Any]) -> Any:
    """Returns the posts of a row, as vectors or as tokens."""
    return row.get("post_embeds", row.get("input_ids", ()))


def checked_times(timestamps: Any, num_posts: int) -> torch.DoubleTensor:
    """Checks and returns the seconds of a row's posts: one for each post, exact and in order."""
    if timestamps is None:
        raise ValueError(
            "has no 'timestamps'. Pass `remove_unused_columns=False` to `TrainingArguments` so that the Trainer keeps "
            "them, or `StreamCollator(timed=False)` for timelines without time."
        )
    if len(timestamps) != num_posts:
        raise ValueError(f"has {len(timestamps)} timestamps for {num_posts} posts.")
    values = [timestamps] if hasattr(timestamps, "dtype") else timestamps
    if dtype := next(filter(None, map(narrow_float, values)), None):
        raise ValueError(
            f"has timestamps in {dtype}, which is too coarse for seconds since 1970; give Python numbers or float64."
        )
    times = torch.as_tensor(timestamps, dtype=torch.float64)
    # The condition is also true for a NaN.
    wrong = ~(times[1:] >= times[:-1])
    if wrong.any():
        post = int(wrong.nonzero()[0]) + 1
        raise ValueError(
            f"must have its posts in order of time, got {times[post - 1].item()} and {times[post].item()} for the "
            f"posts {post - 1} and {post}."
        )
    return times


def pad(tensors: list[torch.Tensor], value: float) -> torch.Tensor:
    """Stacks tensors, each padded with `value` to the longest first axis."""
    return torch.nn.utils.rnn.pad_sequence(list(tensors), batch_first=True, padding_value=value)


def pad_rows(tensor: torch.Tensor, count: int, value: float) -> torch.Tensor:
    """Appends `count` rows of `value` to a tensor."""
    return torch.cat([tensor, tensor.new_full((count, *tensor.shape[1:]), value)])
