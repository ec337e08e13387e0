"""What online inference remembers of each timeline: its last posts below the stream layers, and their times."""

import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .input_checks_tempoformer import narrow_float
from .timestamps_tempoformer import to_seconds


class LatePostError(ValueError):
    """A post that is older than the newest one seen of its timeline."""


class StreamState:
    """
    The memory of [`TempoFormerForStreamClassification.step`]: of each timeline the last `window - 1` posts' hidden
    states below the stream layers (real tokens only) and their times, nothing older.

    A timeline takes `4 * hidden_size` bytes for each real token of its last `window - 1` posts in float32 (half of
    that in bfloat16), and 16 bytes for each post's time and length: with BERT-base, a window of 20 and 25 tokens a
    post 1.5 MB. An encoder with temporal attention needs 8 bytes more for each token, its calendar time. Without
    stream layers only the [CLS] vector of a post is kept.

    `state_dict()` is a flat dict of tensors that safetensors can save; `StreamState.from_state_dict` restores it.

    Attributes: `num_dropped`, the late posts that were left out on request.
    """

    def __init__(self):
        self.posts: dict[str, list[torch.Tensor]] = {}
        self.times: dict[str, list[float] | None] = {}
        self.time_ids: dict[str, list[torch.Tensor]] = {}
        self.num_dropped = 0

    def __len__(self) -> int:
        return len(self.posts)

    def __contains__(self, timeline_id: str) -> bool:
        return timeline_id in self.posts

    @property
    def nbytes(self) -> int:
        """Bytes of all that is held."""
        return sum(tensor.nbytes for tensor in self.state_dict().values())

    def last_seen(self, timeline_id: str) -> float | None:
        """
        Time of the newest post of a timeline.

        Args:
            timeline_id (`str`): Of any timeline.

        Returns:
            `float`: Seconds; None for a timeline that is new or has no times.
        """
        times = self.times.get(timeline_id)
        return None if times is None else times[-1]

    def evict(self, timeline_ids: Iterable[str]):
        """
        Forgets timelines; a later post of one of them begins it anew.

        Args:
            timeline_ids (`Iterable[str]`): Of timelines that are remembered. Raises a `KeyError` for another one.
        """
        for timeline_id in timeline_ids:
            del self.posts[timeline_id], self.times[timeline_id]
            self.time_ids.pop(timeline_id, None)

    def check(
        self,
        timeline_ids: Sequence[str],
        timestamps: Sequence[float] | None,
        has_time_ids: bool,
        drop_late: bool,
        hidden_size: int,
    ) -> list[int]:
        """
        Which of the new posts are in time. Raises a `ValueError` that names the post for times that are no seconds or
        are there for some posts of a timeline only, as for `time_ids`, a [`LatePostError`] unless late posts are to be
        dropped, and a `ValueError` where what is held is from a model of another `hidden_size`.
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
            for held in self.posts.get(timeline_id, []):
                if held.shape[-1] != hidden_size:
                    what = f"is of a model {held.shape[-1]} wide, this one is {hidden_size} wide"
                    raise ValueError(f"The state of timeline {timeline_id!r} {what}.")
            if self.posts.get(timeline_id) and (timeline_id in self.time_ids) != has_time_ids:
                raise ValueError(f"The posts of timeline {timeline_id!r} had {'no ' * has_time_ids}`time_ids`.")
        kept = []
        for post, timeline_id in enumerate(timeline_ids):
            if timeline_id in self and (self.times[timeline_id] is None) != (timestamps is None):
                raise ValueError(f"Post {post}: timeline {timeline_id!r} had {'no ' * (timestamps is not None)}times.")
            if timestamps is not None:
                time = read_seconds(timestamps[post], f"Post {post} of timeline {timeline_id!r}")
                if newest[timeline_id] is not None and time < newest[timeline_id]:
                    if drop_late:
                        continue
                    raise LatePostError(
                        f"Post {post} of timeline {timeline_id!r} is from {time}, but one from {newest[timeline_id]} "
                        "was already seen. Pass `drop_late=True` to leave late posts out and count them."
                    )
                newest[timeline_id] = time
            kept.append(post)
        return kept

    def recall(self, timeline_id: str) -> tuple[list[torch.Tensor], list[float]]:
        """The posts held of a timeline, oldest to newest, and their times; nothing for a new one."""
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
        """Replaces what is held of a timeline by the last of its posts."""
        first = max(0, len(posts) - window + 1)
        # Copies, so that the memory of the batch that they came with is freed.
        self.posts[timeline_id] = [post.clone() for post in posts[first:]]
        # The newest time is needed even where no post is kept.
        self.times[timeline_id] = None if times is None else times[-max(1, window - 1) :]
        if time_ids is not None:
            self.time_ids[timeline_id] = [post.clone() for post in time_ids[first:]]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """
        All that is held, as tensors that safetensors can save.

        Returns:
            `dict[str, torch.Tensor]`: For each timeline its posts one after the other (tokens, hidden), their lengths
            in tokens, their times in seconds (float64) and the calendar time of their tokens, where there are any.
        """
        tensors = {"num_dropped": torch.tensor(self.num_dropped)}
        for timeline_id, posts in self.posts.items():
            tensors[f"states.{timeline_id}"] = torch.cat(posts) if posts else torch.zeros(0)
            tensors[f"lengths.{timeline_id}"] = torch.tensor([len(post) for post in posts], dtype=torch.long)
            if self.times[timeline_id] is not None:
                tensors[f"times.{timeline_id}"] = torch.tensor(self.times[timeline_id], dtype=torch.float64)
            if self.time_ids.get(timeline_id):
                tensors[f"time_ids.{timeline_id}"] = torch.cat(self.time_ids[timeline_id])
        return tensors

    @classmethod
    def from_state_dict(cls, tensors: dict[str, torch.Tensor]) -> "StreamState":
        """
        The state that `state_dict` was taken from.

        Args:
            tensors (`dict[str, torch.Tensor]`): As [`StreamState.state_dict`] returns them.

        Returns:
            `StreamState`. Raises a `ValueError` for what is none, or not a whole one.
        """
        state = cls()
        timeline_ids = [name.removeprefix("states.") for name in tensors if name.startswith("states.")]
        needed = {"num_dropped", *(f"lengths.{timeline_id}" for timeline_id in timeline_ids)}
        if missing := sorted(needed - set(tensors)):
            raise ValueError(f"The state lacks {', '.join(missing)}.")
        state.num_dropped = int(tensors["num_dropped"])
        for timeline_id in timeline_ids:
            states, lengths = tensors[f"states.{timeline_id}"], tensors[f"lengths.{timeline_id}"].tolist()
            times, time_ids = (tensors.get(f"{kind}.{timeline_id}") for kind in ("times", "time_ids"))
            # The newest time is there also where no post is.
            expected = {"states": sum(lengths), "times": max(1, len(lengths)), "time_ids": sum(lengths)}
            for kind, values in (("states", states), ("times", times), ("time_ids", time_ids)):
                if values is not None and len(values) != expected[kind]:
                    what = f"{len(values)} {kind} of timeline {timeline_id!r}, not {expected[kind]}"
                    raise ValueError(f"The state has {what}.")
            state.posts[timeline_id] = [post.clone() for post in states.split(lengths)] if lengths else []
            state.times[timeline_id] = None if times is None else times.tolist()
            if time_ids is not None:
                state.time_ids[timeline_id] = [post.clone() for post in time_ids.split(lengths)]
        return state


def read_seconds(value: Any, whose: str) -> float:
    """Seconds as a number; a text is none here. Raises a `ValueError` that says whose time it is."""
    if dtype := narrow_float(value):
        what = "which is too coarse for seconds since 1970; give Python numbers or float64"
        raise ValueError(f"{whose} has a timestamp in {dtype}, {what}.")
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, numbers.Real):
        raise ValueError(f"{whose} has the timestamp {value!r}: it is no number of seconds.")
    try:
        return to_seconds(value)
    except ValueError as problem:
        raise ValueError(f"{whose} has the timestamp {value!r}: {problem}.") from None
