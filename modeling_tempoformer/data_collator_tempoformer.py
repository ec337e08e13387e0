"""From the posts of timelines to batches of streams: times as users write them, rows, windows, and the collator."""

import math
import numbers
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .checks_tempoformer import narrow_float


logger = logging.get_logger(__name__)

# From the year 1 to the year 5138, in UTC. Python's dates begin with the first, and larger numbers are milliseconds.
FIRST_SECONDS, END_SECONDS = -62135596800.0, 1e11
END_OF_1970, START_OF_1990 = 365 * 86400, 631_152_000
# Day, month and year, as much of Europe writes them.
DOTTED = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})(.*)")
SHORTENED = re.compile(r"[+-]?\d(?:\.(\d*))?[eE]\+(\d+)")


def to_seconds(value: Any) -> float | None:
    """
    Seconds since 1970-01-01 UTC, in float64.

    Args:
        value: An ISO-8601 string, also with a date as 31.12.2024, a `datetime`, a `date` or a `numpy.datetime64` (UTC
            where they have no zone), or seconds as a number, a `Decimal` or a numeric string: a date needs its dashes.

    Returns:
        `float`, or `None` for a missing value: `None`, an empty string or `pandas.NaT`. Raises a `ValueError` for
        anything else, including NaN, moments outside the years 1 to 5138 (UTC), floats of fewer than 64 bits, and
        numbers that a spreadsheet has shortened (`"1.71455E+09"`).
    """
    return read_time(value)[1]


def read_time(value: Any) -> tuple[str, float | None]:
    """How a time is written ("a number", "a date" or "missing"), and its seconds."""
    dtype_kind = getattr(getattr(value, "dtype", None), "kind", "")
    if isinstance(value, str):
        value = read_text(value.strip())
    elif isinstance(value, Decimal):
        value = float(value)
    elif dtype_kind == "M":
        # A date of NumPy, which in other units may give a number instead of a `datetime`.
        value = value.astype("datetime64[us]").item()
    if value is None or type(value).__name__ == "NaTType":
        return "missing", None
    kind, seconds = "a number", value
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime.combine(value, time())
        kind, seconds = "a date", (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    elif dtype := narrow_float(value):
        raise ValueError(f"{dtype} is too coarse for seconds since 1970; give Python numbers or float64")
    elif isinstance(value, bool) or not isinstance(value, numbers.Real) or dtype_kind == "m":
        # NumPy calls a duration a number.
        raise ValueError(f"a {type(value).__name__} is not a time")
    # Also false of a NaN.
    if not FIRST_SECONDS <= seconds < END_SECONDS:
        raise ValueError(
            "a time must lie within the years 1 to 5138 (UTC), and a number must be seconds, not milliseconds"
        )
    return kind, float(seconds)


def read_text(text: str) -> float | datetime | None:
    """A numeric string as a number, any other as an ISO-8601 date, an empty one as None."""
    if looks_shortened(text):
        raise ValueError("a spreadsheet has shortened this number; export the column again, formatted as text")
    try:
        # Python reads 2024_05_01 as a number.
        return float(text if "_" not in text else "")
    except ValueError:
        pass
    if match := DOTTED.fullmatch(text):
        day, month, year, time_of_day = match.groups()
        text = f"{year}-{month:0>2}-{day:0>2}{time_of_day}"
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        raise ValueError(
            "the time must be ISO-8601 (2024-05-01T09:00:00Z) or a number of seconds; give a column of other dates "
            "the format yyyy-mm-dd hh:mm:ss in a spreadsheet, or convert it by pd.to_datetime(column), with "
            "dayfirst=True if the day comes before the month, and offsets (00:01:30) by pd.to_timedelta(column)"
        ) from None


def looks_shortened(value: Any) -> bool:
    """Whether a text is a number without its last digits, as spreadsheets write long ones: 1.71455E+09."""
    match = SHORTENED.fullmatch(value.strip()) if isinstance(value, str) else None
    return match is not None and len(match[1] or "") < int(match[2])


class TimeColumn:
    """
    Reads the times of one column, all of one kind: a bare number among dates (`20240502` among `2024-05-01`) would be
    a moment in 1970. With `shows_values=False` no error repeats a value, which may be private.
    """

    def __init__(self, shows_values: bool = True):
        self.shows_values = shows_values
        self.first: tuple[str, Any, Any] | None = None  # kind, place and value
        self.smallest, self.largest = math.inf, -math.inf

    def read(self, place: Any, value: Any) -> float | None:
        """[`to_seconds`]. Raises a `ValueError` that names the first `place`, such as "row 0", if the kind differs."""
        kind, seconds = read_time(value)
        self.first = self.first or (kind, place, value)
        was, where, other = self.first
        if was != kind:
            shown = f" ({other!r})" if self.shows_values else ""
            raise ValueError(
                f"the time is {kind}, while {where} is {was}{shown}; the times of a column must be all ISO-8601 "
                "dates (2024-05-01), all numbers of seconds, or all missing"
            )
        if kind == "a number":
            self.smallest, self.largest = min(self.smallest, seconds), max(self.largest, seconds)
        return seconds

    def warn(self):
        """Says, once a run, that numbers do not look like seconds since 1970."""
        if 0 <= self.smallest < END_OF_1970 and not END_OF_1970 <= self.largest < START_OF_1990:
            # Without the numbers: a text of its own for each timeline or file would be a line for each.
            logger.warning_once(
                "The times are numbers, read as seconds: some lie in 1970. Nothing is wrong if they count seconds "
                "from some start. If they are milliseconds, minutes, days of a spreadsheet, years or dates without "
                "dashes (20240501), convert the column by pd.to_datetime first."
            )


def to_date(seconds: float) -> datetime:
    """The moment of `seconds` since 1970-01-01, in UTC. `datetime.fromtimestamp` fails for early years."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def tokenize_posts(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], limit: int, timestamps: list[float] | None = None
) -> tuple[dict[str, list], int]:
    """
    Tokenizes posts, each cut to `limit` tokens; a tokenizer of dated texts reads the time from `timestamps` (seconds).
    Returns its columns but the mask, which the collator makes, and how many posts were cut. Raises a `ValueError` that
    names a post whose time the tokenizer does not know, or whose text has half of a surrogate pair.
    """
    dates = None
    if "time_ids" in tokenizer.model_input_names:
        dates = [None] * len(texts) if timestamps is None else [to_date(seconds) for seconds in timestamps]
    for post, text in enumerate(texts):
        try:
            text.encode()
            if dates is not None:
                tokenizer.time_id(dates[post])
        except ValueError as problem:
            if isinstance(problem, UnicodeEncodeError):
                half = problem.object[problem.start]
                problem = f"the text has {half!r}, half of a surrogate pair, as of an emoji that was cut."
            raise ValueError(f"post {post} in order of time: {problem}") from None

    def tokenize(posts: list[int], **settings) -> dict[str, list]:
        if not posts:
            return {"input_ids": []}
        times = {} if dates is None else {"time": [dates[post] for post in posts]}
        tokens = tokenizer([texts[post] for post in posts], **times, **settings)
        return {name: tokens[name] for name in tokenizer.model_input_names if name in tokens and "mask" not in name}

    columns = tokenize(list(range(len(texts))), verbose=False)
    too_long = [post for post, ids in enumerate(columns["input_ids"]) if len(ids) > limit]
    for name, values in tokenize(too_long, truncation=True, max_length=limit).items():
        for post, tokens in zip(too_long, values, strict=True):
            columns[name][post] = tokens
    return columns, len(too_long)


def row_bounds(
    num_posts: int, window: int, targets_per_row: int, num_context: int = 0
) -> Iterator[tuple[int, int, int]]:
    """
    The rows of a timeline, whose first `num_context` posts are no targets. Yields (start, first, end) for each: it has
    the posts from `start` to `end`, of which those before `first` are the context of the first target.
    """
    for first in range(num_context, num_posts, targets_per_row):
        yield max(0, first - window + 1), first, min(first + targets_per_row, num_posts)


def cut_rows(
    columns: dict[str, list], window: int, targets_per_row: int, num_context: int = 0
) -> Iterator[dict[str, list | int]]:
    """The rows of a timeline for [`StreamCollator`], from the columns of its posts, by [`row_bounds`]."""
    start_time = {"start_time": columns["timestamps"][0]} if columns.get("timestamps") else {}
    for start, first, end in row_bounds(len(columns["input_ids"]), window, targets_per_row, num_context):
        of_posts = {name: values[start:end] for name, values in columns.items()}
        yield {**of_posts, "num_context": first - start, "num_before": start, **start_time}


def stream_windows(targets: torch.LongTensor, window: int) -> torch.LongTensor:
    """
    The posts of each target's stream: the target and the `window - 1` posts before it (paper, section 3).

    Args:
        targets (`torch.LongTensor` of shape `(num_targets,)`): Positions of the target posts in their row.
        window (`int`): Number of posts in a stream, at least 1.

    Returns:
        `torch.LongTensor` of shape `(num_targets, window)`: positions, oldest to newest, -1 before the row's first.
    """
    return (targets.unsqueeze(-1) + torch.arange(1 - window, 1, device=targets.device)).clamp_min(-1)


def elapsed_seconds(timestamps: torch.Tensor, stream_index: torch.LongTensor) -> torch.FloatTensor:
    """
    Seconds from each post of a stream to the stream's newest post.

    Args:
        timestamps (`torch.Tensor` of shape `(num_posts,)`):
            Seconds, in float64 or int64: float32 is too coarse for seconds since 1970.
        stream_index (`torch.LongTensor` of shape `(num_targets, window)`): As [`stream_windows`] returns it.

    Returns:
        `torch.FloatTensor` of shape `(num_targets, window)` in float32; 0 where `stream_index` is -1.
    """
    if timestamps.dtype not in (torch.float64, torch.int64):
        raise TypeError(f"`timestamps` must be float64 or int64, got {timestamps.dtype}.")
    times = timestamps[stream_index.clamp_min(0)]
    return (times[:, -1:] - times).masked_fill(stream_index < 0, 0).float()


@dataclass
class StreamCollator:
    """
    Pads rows of tokenized posts and builds the stream of every target post.

    A row holds `input_ids` (and what else the tokenizer's `model_input_names` lists), a list for each post, or
    `post_embeds`, a vector for each post (posts, hidden). It may hold `timestamps` (seconds, one for each post),
    `num_context` (number of leading posts that are context only, by default 0) and `labels` (one for each post after
    the context; -100 = a target without label, None = no target). `num_before` (by default 0) posts of the timeline
    are before the row, and it began at `start_time` (seconds, by default with the row). `held_out` is the member of
    the model that does not learn from the row.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): Pads the posts.
        window (`int`): Posts in a stream, at least 1.
        timed (`bool`, *optional*, defaults to `True`): Whether rows must have `timestamps`.

    A call returns tensors with the rows (B) first: `input_ids` and `attention_mask` (B, posts, tokens), or
    `post_embeds` (B, posts, hidden) and `attention_mask` (B, posts, 1); `stream_index` (B, streams, window), `elapsed`
    in seconds of the same shape if timed, `place` (B, streams, 2), how many posts of the timeline come before and
    seconds since the first of them, and if the rows have them `labels` (B, streams) and `held_out` (B,). Raises a
    `ValueError` that names the row for missing columns, posts without tokens, labels that are not integers or not as
    many as targets, and timestamps that are out of order or in floats of fewer than 64 bits.
    """

    tokenizer: PreTrainedTokenizerBase
    window: int
    timed: bool = True

    def __post_init__(self):
        if not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"`window` must be an integer of at least 1, got {self.window!r}.")

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
        columns = {"stream_index": -1, "place": 0.0} | ({"elapsed": 0.0} if self.timed else {})
        columns |= {"labels": -100} if "labels" in rows[0] else {}
        padded = {name: pad([stream[name] for stream in streams], fill) for name, fill in columns.items()}
        if "held_out" in rows[0]:
            padded["held_out"] = torch.tensor([row["held_out"] for row in rows])
        return self.pad_posts(rows) | padded

    def check_posts(self, row: dict[str, Any], first: dict[str, Any]):
        """Raises a `ValueError` for columns that differ from those of the first row, and for posts without tokens."""
        if not len(posts_of(row)):
            raise ValueError("has no posts.")
        for name in (*self.tokenizer.model_input_names, "post_embeds", "labels", "held_out"):
            if (name in row) != (name in first):
                raise ValueError(f"{'has' if name in row else 'lacks'} '{name}', unlike the first row.")
        for post, tokens in enumerate(posts_of(row)):
            if not len(tokens):
                raise ValueError(f"has no tokens in post {post}.")

    def streams(self, row: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The streams of one row."""
        num_posts, num_context = len(posts_of(row)), row.get("num_context", 0)
        num_targets = num_posts - num_context
        labels = row.get("labels", [-100] * num_targets)
        if len(labels) != num_targets:
            raise ValueError(
                f"has {len(labels)} labels for {num_posts} posts, {num_context} of them context. If 'num_context' was "
                "lost, pass `remove_unused_columns=False` to `TrainingArguments`."
            )
        targets = torch.tensor([num_context + i for i, label in enumerate(labels) if label is not None]).long()
        classes = torch.tensor([label for label in labels if label is not None])
        if classes.is_floating_point() and len(targets):
            raise ValueError(f"must have class ids or -100 as labels, got {labels!r:.80}.")
        streams = {"stream_index": stream_windows(targets, self.window), "labels": classes.long()}
        num_before, since_first = (targets + row.get("num_before", 0)).float(), torch.zeros(len(targets))
        if self.timed:
            times, start_time = read_times(row.get("timestamps"), num_posts), row.get("start_time")
            streams["elapsed"] = elapsed_seconds(times, streams["stream_index"])
            since_first = (times[targets] - (times[0] if start_time is None else start_time)).float()
        elif row.get("timestamps") is not None:
            raise ValueError("has 'timestamps', but the collator has `timed=False`.")
        streams["place"] = torch.stack((num_before, since_first), dim=-1)
        return streams

    def pad_posts(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Token tensors of shape (rows, posts, tokens), or vectors of posts and their mask."""
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
        # Absent posts differ from real ones by their mask alone.
        fill = {"input_ids": self.tokenizer.pad_token_id}
        return {name: pad(tensor.split(lengths), fill.get(name, 0)) for name, tensor in padded.items()}


def posts_of(row: dict[str, Any]) -> Any:
    """The posts of a row, as vectors or as tokens."""
    return row.get("post_embeds", row.get("input_ids", ()))


def read_times(timestamps: Any, num_posts: int) -> torch.DoubleTensor:
    """The seconds of a row's posts. Raises a `ValueError` unless there is one for each post, exact and in order."""
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
    # Also true of a NaN.
    wrong = ~(times[1:] >= times[:-1])
    if wrong.any():
        post = int(wrong.nonzero()[0]) + 1
        raise ValueError(
            f"must have its posts in order of time, got {times[post - 1].item()} and {times[post].item()} for the "
            f"posts {post - 1} and {post}."
        )
    return times


def pad(tensors: list[torch.Tensor], value: float) -> torch.Tensor:
    """Stacks tensors that differ in their first axis."""
    return torch.nn.utils.rnn.pad_sequence(list(tensors), batch_first=True, padding_value=value)
