"""The memory of online inference: what is kept of the last posts of each timeline."""

import json
import math
import numbers
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import chain, islice, takewhile
from typing import Any

import torch

from .input_checks_tempoformer import narrow_float
from .timestamps_tempoformer import to_seconds


class LatePostError(ValueError):
    """A post that is older than the newest one seen of its timeline."""


class StreamState:
    """
    The memory of [`TempoFormerForStreamClassification.step`], on the CPU: for each timeline what `forward` takes of
    the last `window - 1` posts, and their times. In the post form that is a vector of each post,
    `(window - 1) * (4 * hidden_size + 16)` bytes a timeline in float32: 58,672 bytes with BERT-base and a window of
    20. In bfloat16 the 4 is a 2. In the token form it is what the tokenizer returned, 8 bytes for each number: with
    the three columns of a BERT `(window - 1) * (24 * tokens + 8)`, for 29 tokens a post 13,376 bytes.

    Without limits the state grows with the number of timelines. A timeline that left because of a limit begins anew
    with its next post, unless its last `window` posts are given again in one step; `stream_lengths` of
    [`StreamStepOutput`] says how many posts were read.

    `state_dict()` is a dict of a few tensors that safetensors can save, for any number of timelines;
    `StreamState.from_state_dict` restores it. A state belongs to the model that it began with: it keeps its window and
    a number of each weight, and no other model takes it.

    Args:
        max_timelines (`int`, *optional*):
            At least 1. After each step only so many timelines are kept, those whose last post came latest.
        max_idle_seconds (`float`, *optional*):
            More than 0. A timeline that got no post for so long, by the machine's clock, leaves before the next step.
            The times of the posts do not count: one from a wrong year would empty the memory.

    Attributes: both limits, which can be changed at any time, and `num_dropped`, the number of late posts that were
    left out because of `drop_late`.
    """

    def __init__(self, max_timelines: int | None = None, max_idle_seconds: float | None = None):
        if max_timelines is not None and max_timelines < 1:
            raise ValueError(f"`max_timelines` must be at least 1, got {max_timelines}.")
        if max_idle_seconds is not None and not max_idle_seconds > 0:
            raise ValueError(f"`max_idle_seconds` must be more than 0, got {max_idle_seconds}.")
        self.max_timelines, self.max_idle_seconds = max_timelines, max_idle_seconds
        # In the order of their last steps.
        self.posts: dict[str, list[dict[str, torch.Tensor]]] = {}
        self.times: dict[str, list[float] | None] = {}
        # When the last step was, in seconds since 1970.
        self.last_used: dict[str, float] = {}
        self.num_dropped = 0
        # The first step fills in the window of its model and numbers of its weights.
        self.window = 0
        self.weights = torch.zeros(0)

    def __len__(self) -> int:
        return len(self.posts)

    def __contains__(self, timeline_id: str) -> bool:
        return timeline_id in self.posts and not self.is_idle(timeline_id)

    def is_idle(self, timeline_id: str) -> bool:
        """Whether a remembered timeline got no post for `max_idle_seconds`."""
        return self.max_idle_seconds is not None and self.last_used[timeline_id] < now() - self.max_idle_seconds

    @property
    def nbytes(self) -> int:
        """The size of the remembered posts in bytes."""
        tensors = (tensor for posts in self.posts.values() for post in posts for tensor in post.values())
        return sum(tensor.nbytes for tensor in tensors) + 8 * sum(len(times or ()) for times in self.times.values())

    def num_tokens(self, timeline_id: str) -> int:
        """How many tokens `forward` reads of a timeline's remembered posts; a vector counts as one."""
        return sum(len(post["attention_mask"]) for post in self.posts.get(timeline_id, ()))

    def last_seen(self, timeline_id: str) -> float | None:
        """
        The time of the newest post of a timeline.

        Args:
            timeline_id (`str`): The timeline.

        Returns:
            `float`: Seconds; None for a timeline that is new or has no times.
        """
        times = self.times.get(timeline_id)
        return None if times is None else times[-1]

    def evict(self, timeline_ids: Iterable[str]):
        """
        Forgets timelines. A later post of such a timeline is the first of a new one.

        Args:
            timeline_ids (`Iterable[str]`): Remembered timelines. Raises a `KeyError` that names any other, and then
                forgets none.
        """
        timeline_ids = set(timeline_ids)
        if unknown := sorted(repr(timeline_id) for timeline_id in timeline_ids if timeline_id not in self.posts):
            raise KeyError(f"The state has no timeline {', '.join(unknown)}.")
        for timeline_id in timeline_ids:
            for of_timelines in self.by_timeline:
                del of_timelines[timeline_id]

    def evict_idle(self):
        """Forgets the timelines that got no post for `max_idle_seconds`."""
        self.evict(list(takewhile(self.is_idle, self.posts)))

    def evict_surplus(self):
        """Forgets the timelines beyond `max_timelines`, the least recently used first."""
        if self.max_timelines is not None:
            self.evict(list(islice(self.posts, max(0, len(self) - self.max_timelines))))

    def subset(self, timeline_ids: Iterable[str]) -> "StreamState":
        """A state without limits that has these timelines alone, and shares their tensors."""
        state = StreamState()
        state.window, state.weights = self.window, self.weights
        for timeline_id in timeline_ids:
            for of_timelines, own in zip(state.by_timeline, self.by_timeline, strict=True):
                of_timelines[timeline_id] = own[timeline_id]
        return state

    def update(self, other: "StreamState"):
        """Takes the timelines of another state of the same model, as they are there."""
        for own, of_timelines in zip(self.by_timeline, other.by_timeline, strict=True):
            own.update(of_timelines)

    @property
    def by_timeline(self) -> tuple[dict[str, Any], ...]:
        """All that is kept of each timeline."""
        return self.posts, self.times, self.last_used

    def stream_lengths(self, timeline_ids: Sequence[str], window: int) -> list[int]:
        """For each new post the number of posts in its stream, itself included."""
        counts = {timeline_id: len(self.posts.get(timeline_id, ())) for timeline_id in timeline_ids}
        lengths = []
        for timeline_id in timeline_ids:
            counts[timeline_id] += 1
            lengths.append(min(counts[timeline_id], window))
        return lengths

    def check_model(self, window: int, weights: torch.Tensor):
        """
        Raises a `ValueError` if the state is of a model with another window or with other `weights`, as
        `sample_weights` returns them. Of the same model in two precisions the finer one rounds to the other.
        """
        if not len(self.weights):
            return
        if self.window != window:
            raise ValueError(f"The state is of a model with a window of {self.window} posts, this one has {window}.")
        coarser = min(self.weights.dtype, weights.dtype, key=lambda dtype: dtype.itemsize)
        if not torch.equal(self.weights.to(coarser), weights.to(coarser)):
            raise ValueError("The state is of a model with other weights: begin without a state.")

    def check(
        self,
        timeline_ids: Sequence[str],
        timestamps: Sequence[float] | None,
        drop_late: bool,
    ) -> list[int]:
        """
        The indices of the new posts that are not late.

        Raises a [`LatePostError`] for a late post, unless `drop_late`; a `ValueError` for a time that is not a number
        of seconds, and for a timeline of which only some posts have times; a `TypeError` for an id that is not a
        string and for times of fewer than 64 bits.
        """
        if timestamps is not None and len(timestamps) != len(timeline_ids):
            raise ValueError(f"There are {len(timestamps)} timestamps for {len(timeline_ids)} posts.")
        if timestamps is not None and getattr(getattr(timestamps, "dtype", None), "itemsize", 8) < 8:
            raise TypeError(f"`timestamps` must be in 64 bits to tell seconds apart, got {timestamps.dtype}.")
        for post, timeline_id in enumerate(timeline_ids):
            if not isinstance(timeline_id, str):
                raise TypeError(f"Post {post}: a timeline id must be a string, got {timeline_id!r}.")
        newest = {timeline_id: self.last_seen(timeline_id) for timeline_id in timeline_ids}
        kept = []
        for post, timeline_id in enumerate(timeline_ids):
            if timeline_id in self.posts and (self.times[timeline_id] is None) != (timestamps is None):
                raise ValueError(f"Post {post}: timeline {timeline_id!r} had {'no ' * (timestamps is not None)}times.")
            if timestamps is not None:
                seconds = read_seconds(timestamps[post], f"Post {post} of timeline {timeline_id!r}")
                if newest[timeline_id] is not None and seconds < newest[timeline_id]:
                    if drop_late:
                        continue
                    raise LatePostError(
                        f"Post {post} of timeline {timeline_id!r} is from {seconds}, but one from "
                        f"{newest[timeline_id]} was already seen. Pass `drop_late=True` to leave late posts out and "
                        "count them."
                    )
                newest[timeline_id] = seconds
            kept.append(post)
        return kept

    def recall(self, timeline_id: str, dtype: torch.dtype) -> tuple[list[dict[str, torch.Tensor]], list[float]]:
        """
        New lists of the remembered posts of a timeline, oldest to newest, their vectors in `dtype`, and of their
        times; empty for a new timeline.
        """
        posts = [
            {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in post.items()}
            for post in self.posts.get(timeline_id, [])
        ]
        times = self.times.get(timeline_id) or []
        return posts, times[len(times) - len(posts) :]

    def remember(self, timeline_id: str, window: int, posts: list[dict[str, torch.Tensor]], times: list[float] | None):
        """Replaces the remembered posts of a timeline by the last `window - 1` of `posts`."""
        # Behind all others: the first timelines are the least recently used.
        self.posts.pop(timeline_id, None)
        self.last_used[timeline_id] = now()
        self.posts[timeline_id] = posts[max(0, len(posts) - window + 1) :]
        # The newest time is needed even if no post is.
        self.times[timeline_id] = None if times is None else times[-max(1, window - 1) :]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """
        The memory as tensors that safetensors can save.

        Returns:
            `dict[str, torch.Tensor]`: The window and `weights` of the model, `num_dropped`, and the limits (infinite
            where there is none). Of each timeline its id (a JSON list of all, as bytes), how many posts it has,
            whether they have times, and when it was last used. Of the posts of all timelines, one after the other,
            their times in seconds (float64), and as `posts.NAME` and `lengths.NAME` each input of `forward` and how
            many numbers each post has of it. A timeline without posts has one time.
        """
        posts = list(chain.from_iterable(self.posts.values()))
        times = list(chain.from_iterable(self.times[timeline_id] or [] for timeline_id in self.posts))
        last_used = [self.last_used[timeline_id] for timeline_id in self.posts]
        limits = [math.inf if limit is None else limit for limit in (self.max_timelines, self.max_idle_seconds)]
        tensors = {
            "window": torch.tensor(self.window),
            "weights": self.weights,
            "num_dropped": torch.tensor(self.num_dropped),
            "limits": torch.tensor(limits, dtype=torch.float64),
            "timeline_ids": torch.tensor(list(json.dumps(list(self.posts)).encode()), dtype=torch.uint8),
            "num_posts": torch.tensor([len(of_timeline) for of_timeline in self.posts.values()], dtype=torch.long),
            "are_timed": torch.tensor([self.times[timeline_id] is not None for timeline_id in self.posts]).bool(),
            "last_used": torch.tensor(last_used, dtype=torch.float64),
            "times": torch.tensor(times, dtype=torch.float64),
        }
        for name in dict.fromkeys(name for post in posts for name in post):
            values = [post[name] if name in post else torch.zeros(0, dtype=torch.long) for post in posts]
            tensors[f"lengths.{name}"] = torch.tensor([len(value) for value in values])
            tensors[f"posts.{name}"] = torch.cat([value for value in values if len(value)])
        return tensors

    @classmethod
    def from_state_dict(cls, tensors: dict[str, torch.Tensor]) -> "StreamState":
        """
        Restores a state.

        Args:
            tensors (`dict[str, torch.Tensor]`): As [`StreamState.state_dict`] returns them.

        Returns:
            `StreamState`. Raises a `ValueError` if tensors are missing or cut, or a number is not finite.
        """
        if missing := sorted(set(cls().state_dict()) - set(tensors)):
            raise ValueError(f"The state lacks {', '.join(missing)}.")

        def read(name: str, count: int) -> torch.Tensor:
            if len(tensors.get(name, ())) != count:
                raise ValueError(f"The state has {len(tensors.get(name, ()))} values of '{name}', expected {count}.")
            return tensors[name].cpu()

        timeline_ids = json.loads(tensors["timeline_ids"].cpu().numpy().tobytes())
        num_posts, are_timed = (read(name, len(timeline_ids)) for name in ("num_posts", "are_timed"))
        posts: list[dict[str, torch.Tensor]] = [{} for _ in range(int(num_posts.sum()))]
        for name in (key.removeprefix("posts.") for key in tensors if key.startswith("posts.")):
            lengths = read(f"lengths.{name}", len(posts)).tolist()
            together = read(f"posts.{name}", sum(lengths))
            if not together.isfinite().all():
                raise ValueError(f"The state has values of 'posts.{name}' that are not finite.")
            for post, values in zip(posts, together.split(lengths), strict=True):
                if len(values):
                    post[name] = values.clone()
        # The newest time is there even if no post is.
        num_times = num_posts.clamp_min(1) * are_timed
        times = iter(read("times", int(num_times.sum())).tolist())
        max_timelines, max_idle = (None if math.isinf(limit) else limit for limit in tensors["limits"].tolist())
        state = cls(None if max_timelines is None else int(max_timelines), max_idle)
        state.last_used = dict(zip(timeline_ids, read("last_used", len(timeline_ids)).tolist(), strict=True))
        state.window, state.weights = int(tensors["window"]), tensors["weights"].cpu()
        state.num_dropped = int(tensors["num_dropped"])
        remembered = iter(posts)
        for timeline_id, count, is_timed in zip(timeline_ids, num_posts.tolist(), are_timed.tolist(), strict=True):
            state.posts[timeline_id] = list(islice(remembered, count))
            of_timeline = state.times[timeline_id] = list(islice(times, max(1, count))) if is_timed else None
            if wrong := [time for time in of_timeline or () if not math.isfinite(time)]:
                raise ValueError(f"The state has the time {wrong[0]} in timeline {timeline_id!r}.")
        return state


def now() -> float:
    """Seconds since 1970, by the machine's clock."""
    return datetime.now(UTC).timestamp()


def read_seconds(value: Any, post: str) -> float:
    """Seconds as a number; texts are refused. Raises a `ValueError` that begins with the name of the post."""
    if dtype := narrow_float(value):
        reason = "which is too coarse for seconds since 1970; give Python numbers or float64"
        raise ValueError(f"{post} has a timestamp in {dtype}, {reason}.")
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, numbers.Real):
        raise ValueError(f"{post} has the timestamp {value!r}, expected a number of seconds.")
    try:
        return to_seconds(value)
    except ValueError as problem:
        raise ValueError(f"{post} has the timestamp {value!r}: {problem}.") from None
