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
    The memory of [`TempoFormerForStreamClassification.step`]: for each timeline, the hidden states of the last
    `window - 1` posts below the stream layers (real tokens only), and their times.

    In float32 a timeline takes `(window - 1) * (4 * hidden_size * tokens + 16)` bytes, with the mean number of tokens
    of a post: 1,692,976 bytes with BERT-base, a window of 20 and 29 tokens a post. In the post form, and without
    stream layers, a post is one vector, as if it had one token: 58,672 bytes. In bfloat16 the 4 is a 2. An encoder
    with temporal attention needs 8 bytes more for each token.

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
        self.posts: dict[str, list[torch.Tensor]] = {}
        self.times: dict[str, list[float] | None] = {}
        self.time_ids: dict[str, list[torch.Tensor]] = {}
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
        posts = list(chain.from_iterable(self.posts.values()))
        time_ids = chain.from_iterable(self.time_ids.values())
        return 16 * len(posts) + sum(tensor.nbytes for tensor in chain(posts, time_ids))

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
            del self.posts[timeline_id], self.times[timeline_id], self.last_used[timeline_id]
            self.time_ids.pop(timeline_id, None)

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
                if timeline_id in own:
                    of_timelines[timeline_id] = own[timeline_id]
        return state

    def update(self, other: "StreamState"):
        """Takes the timelines of another state of the same model, as they are there."""
        for own, of_timelines in zip(self.by_timeline, other.by_timeline, strict=True):
            own.update(of_timelines)

    @property
    def by_timeline(self) -> tuple[dict[str, Any], ...]:
        """All that is kept of each timeline."""
        return self.posts, self.times, self.time_ids, self.last_used

    def stream_lengths(self, timeline_ids: Sequence[str], window: int) -> list[int]:
        """For each new post the number of posts in its stream, itself included."""
        counts = {timeline_id: len(self.posts.get(timeline_id, ())) for timeline_id in timeline_ids}
        lengths = []
        for timeline_id in timeline_ids:
            counts[timeline_id] += 1
            lengths.append(min(counts[timeline_id], window))
        return lengths

    def check_sizes(self, window: int, hidden_size: int):
        """Raises a `ValueError` if the state is of a model with another window or another width of its posts."""
        if self.window and self.window != window:
            raise ValueError(f"The state is of a model with a window of {self.window} posts, this one has {window}.")
        for post in islice(chain.from_iterable(self.posts.values()), 1):
            if post.shape[-1] != hidden_size:
                raise ValueError(f"The state is of a model that is {post.shape[-1]} wide, this one is {hidden_size}.")

    def check_weights(self, weights: torch.Tensor):
        """
        Raises a `ValueError` if the state is of a model with other `weights`, as `sample_weights` returns them. Of the
        same model in two precisions the finer one rounds to the other.
        """
        coarser = min(self.weights.dtype, weights.dtype, key=lambda dtype: dtype.itemsize)
        if len(self.weights) and not torch.equal(self.weights.to(coarser), weights.to(coarser)):
            raise ValueError("The state is of a model with other weights: begin without a state.")

    def check(
        self,
        timeline_ids: Sequence[str],
        timestamps: Sequence[float] | None,
        has_time_ids: bool,
        drop_late: bool,
    ) -> list[int]:
        """
        The indices of the new posts that are not late.

        Raises a [`LatePostError`] for a late post, unless `drop_late`; a `ValueError` for a time that is not a number
        of seconds, and for a timeline of which only some posts have times or `time_ids`; a `TypeError` for an id that
        is not a string and for times of fewer than 64 bits.
        """
        if timestamps is not None and len(timestamps) != len(timeline_ids):
            raise ValueError(f"There are {len(timestamps)} timestamps for {len(timeline_ids)} posts.")
        if timestamps is not None and getattr(getattr(timestamps, "dtype", None), "itemsize", 8) < 8:
            raise TypeError(f"`timestamps` must be in 64 bits to tell seconds apart, got {timestamps.dtype}.")
        for post, timeline_id in enumerate(timeline_ids):
            if not isinstance(timeline_id, str):
                raise TypeError(f"Post {post}: a timeline id must be a string, got {timeline_id!r}.")
        newest = {timeline_id: self.last_seen(timeline_id) for timeline_id in timeline_ids}
        for timeline_id in newest:
            if self.posts.get(timeline_id) and (timeline_id in self.time_ids) != has_time_ids:
                raise ValueError(f"The posts of timeline {timeline_id!r} had {'no ' * has_time_ids}`time_ids`.")
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

    def recall(self, timeline_id: str) -> tuple[list[torch.Tensor], list[float]]:
        """The remembered posts of a timeline, oldest to newest, and their times; empty for a new timeline."""
        posts = self.posts.get(timeline_id, [])
        times = self.times.get(timeline_id) or []
        return posts, times[len(times) - len(posts) :]

    def remember(
        self,
        timeline_id: str,
        window: int,
        posts: list[torch.Tensor],
        times: list[float] | None,
        time_ids: list[torch.Tensor] | None,
    ):
        """Replaces the remembered posts of a timeline by the last `window - 1` of `posts`."""
        first = max(0, len(posts) - window + 1)
        # Behind all others: the first timelines are the least recently used.
        self.posts.pop(timeline_id, None)
        self.last_used[timeline_id] = now()
        self.posts[timeline_id] = posts[first:]
        # The newest time is needed even if no post is.
        self.times[timeline_id] = None if times is None else times[-max(1, window - 1) :]
        if time_ids is not None:
            self.time_ids[timeline_id] = time_ids[first:]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """
        The memory as tensors that safetensors can save.

        Returns:
            `dict[str, torch.Tensor]`: The window and `weights` of the model, `num_dropped`, and the limits (infinite
            where there is none). Of each timeline its id (a JSON list of all, as bytes), how many posts it has,
            whether they have times and `time_ids`, and when it was last used. Of the posts of all timelines, one after
            the other: their states (tokens, hidden), their lengths in tokens, their times in seconds (float64), and
            the `time_ids` of their tokens. A timeline without posts has one time.
        """
        posts = list(chain.from_iterable(self.posts.values()))
        time_ids = [post for timeline_id in self.posts for post in self.time_ids.get(timeline_id, [])]
        times = list(chain.from_iterable(self.times[timeline_id] or [] for timeline_id in self.posts))
        last_used = [self.last_used[timeline_id] for timeline_id in self.posts]
        limits = [math.inf if limit is None else limit for limit in (self.max_timelines, self.max_idle_seconds)]
        return {
            "window": torch.tensor(self.window),
            "weights": self.weights,
            "num_dropped": torch.tensor(self.num_dropped),
            "limits": torch.tensor(limits, dtype=torch.float64),
            "timeline_ids": torch.tensor(list(json.dumps(list(self.posts)).encode()), dtype=torch.uint8),
            "num_posts": torch.tensor([len(of_timeline) for of_timeline in self.posts.values()], dtype=torch.long),
            "are_timed": torch.tensor([self.times[timeline_id] is not None for timeline_id in self.posts]).bool(),
            "are_dated": torch.tensor([timeline_id in self.time_ids for timeline_id in self.posts]).bool(),
            "last_used": torch.tensor(last_used, dtype=torch.float64),
            "lengths": torch.tensor([len(post) for post in posts], dtype=torch.long),
            # Those that no step has read since they were restored may be on another device.
            "states": torch.cat([post.to(posts[0].device) for post in posts]) if posts else torch.zeros(0),
            "times": torch.tensor(times, dtype=torch.float64),
            "time_ids": torch.cat(time_ids) if time_ids else torch.zeros(0, dtype=torch.long),
        }

    @classmethod
    def from_state_dict(cls, tensors: dict[str, torch.Tensor]) -> "StreamState":
        """
        Restores a state.

        Args:
            tensors (`dict[str, torch.Tensor]`):
                As [`StreamState.state_dict`] returns them. Files of earlier versions lack `limits` and `last_used`:
                their timelines count as used now.

        Returns:
            `StreamState`. Raises a `ValueError` if tensors are missing or cut, or a number is not finite.
        """
        if missing := sorted(set(cls().state_dict()) - {"limits", "last_used"} - set(tensors)):
            raise ValueError(f"The state lacks {', '.join(missing)}.")

        def read(name: str, count: int) -> torch.Tensor:
            if len(tensors[name]) != count:
                raise ValueError(f"The state has {len(tensors[name])} values of '{name}', expected {count}.")
            return tensors[name]

        timeline_ids = json.loads(tensors["timeline_ids"].cpu().numpy().tobytes())
        used_now = torch.full((len(timeline_ids),), now(), dtype=torch.float64)
        tensors = {"limits": torch.full((2,), math.inf), "last_used": used_now, **tensors}
        num_posts, timed, dated = (read(name, len(timeline_ids)) for name in ("num_posts", "are_timed", "are_dated"))
        # The newest time is there even if no post is.
        num_times = num_posts.clamp_min(1) * timed
        lengths = read("lengths", int(num_posts.sum()))
        states = read("states", int(lengths.sum()))
        times = read("times", int(num_times.sum()))
        dated_lengths = lengths[dated.repeat_interleave(num_posts)]
        time_ids = read("time_ids", int(dated_lengths.sum())).cpu()
        for wrong in (~times.isfinite()).nonzero()[:1].flatten():
            timeline_id = timeline_ids[int(torch.searchsorted(num_times.cumsum(0), wrong, right=True))]
            raise ValueError(f"The state has the time {times[wrong].item()} in timeline {timeline_id!r}.")
        if not states.isfinite().all():
            raise ValueError("The state has hidden states that are not finite.")

        max_timelines, max_idle = (None if math.isinf(limit) else limit for limit in read("limits", 2).tolist())
        state = cls(None if max_timelines is None else int(max_timelines), max_idle)
        state.last_used = dict(zip(timeline_ids, read("last_used", len(timeline_ids)).tolist(), strict=True))
        state.window, state.weights = int(tensors["window"]), tensors["weights"].cpu()
        state.num_dropped = int(tensors["num_dropped"])
        # A split of nothing is one empty tensor, which no timeline takes.
        all_posts, all_time_ids = iter(states.split(lengths.tolist())), iter(time_ids.split(dated_lengths.tolist()))
        all_times = iter(times.tolist())
        numbers_of_timelines = zip(timeline_ids, num_posts.tolist(), timed.tolist(), dated.tolist(), strict=True)
        for timeline_id, count, is_timed, is_dated in numbers_of_timelines:
            state.posts[timeline_id] = [post.clone() for post in islice(all_posts, count)]
            state.times[timeline_id] = list(islice(all_times, max(1, count))) if is_timed else None
            if is_dated:
                state.time_ids[timeline_id] = [post.clone() for post in islice(all_time_ids, count)]
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
