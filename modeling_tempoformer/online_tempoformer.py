"""Posts that keep arriving: each is classified when it comes, and the last ones of each timeline are remembered."""

import json
import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from .checks_tempoformer import check_shape, narrow_float
from .data_collator_tempoformer import elapsed_seconds, row_bounds, stream_places, stream_windows, to_seconds
from .pipeline_tempoformer import check_finite, decide


class LatePostError(ValueError):
    """A post that is older than the newest one seen of its timeline."""


@dataclass
class RememberedTimeline:
    """
    What is remembered of a timeline: what `forward` takes of its last `window - 1` posts and their times, that of the
    newest also if no post is kept; how many posts it had, when it began, and when its last step was.
    """

    posts: list[dict[str, torch.Tensor]] = field(default_factory=list)
    times: list[float] | None = None
    num_seen: int = 0
    start_time: float = 0.0
    last_used: float = 0.0


class StreamState:
    """
    The memory of `step`, on the CPU: for each timeline what `forward` takes of
    the last `window - 1` posts, and their times; and how many posts it had, and when it began. In the post model that
    is a vector of each post, `(window - 1) * (4 * hidden_size + 16)` bytes a timeline in float32: 58,672 bytes with
    BERT-base and a window of 20. In bfloat16 the 4 is a 2. In the paper's model it is what the tokenizer returned, 8
    bytes for each number: with the three columns of a BERT `(window - 1) * (24 * tokens + 8)`, for 29 tokens a post
    13,376 bytes.

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
        self.timelines: dict[str, RememberedTimeline] = {}
        self.num_dropped = 0
        # The first step fills in the window of its model and numbers of its weights.
        self.window = 0
        self.weights = torch.zeros(0)

    def __len__(self) -> int:
        return len(self.timelines)

    def __contains__(self, timeline_id: str) -> bool:
        return timeline_id in self.timelines and not self.is_idle(timeline_id)

    def is_idle(self, timeline_id: str) -> bool:
        """Whether a remembered timeline got no post for `max_idle_seconds`."""
        limit = self.max_idle_seconds
        return limit is not None and self.timelines[timeline_id].last_used < now() - limit

    @property
    def nbytes(self) -> int:
        """The size of the remembered posts in bytes."""
        timelines = self.timelines.values()
        tensors = (tensor for timeline in timelines for post in timeline.posts for tensor in post.values())
        return sum(tensor.nbytes for tensor in tensors) + 8 * sum(len(one.times or ()) for one in timelines)

    def get(self, timeline_id: str) -> RememberedTimeline:
        """What is remembered of a timeline; nothing of a new one."""
        return self.timelines.get(timeline_id) or RememberedTimeline()

    def num_tokens(self, timeline_id: str) -> int:
        """How many tokens `forward` reads of a timeline's remembered posts; a vector counts as one."""
        return sum(len(post["attention_mask"]) for post in self.get(timeline_id).posts)

    def last_seen(self, timeline_id: str) -> float | None:
        """
        The time of the newest post of a timeline.

        Args:
            timeline_id (`str`): The timeline.

        Returns:
            `float`: Seconds; None for a timeline that is new or has no times.
        """
        times = self.get(timeline_id).times
        return None if times is None else times[-1]

    def evict(self, timeline_ids: Iterable[str]):
        """
        Forgets timelines. A later post of such a timeline is the first of a new one.

        Args:
            timeline_ids (`Iterable[str]`): Remembered timelines. Raises a `KeyError` that names any other, and then
                forgets none.
        """
        timeline_ids = set(timeline_ids)
        if unknown := sorted(repr(timeline_id) for timeline_id in timeline_ids if timeline_id not in self.timelines):
            raise KeyError(f"The state has no timeline {', '.join(unknown)}.")
        for timeline_id in timeline_ids:
            del self.timelines[timeline_id]

    def evict_idle(self):
        """Forgets the timelines that got no post for `max_idle_seconds`."""
        self.evict(list(takewhile(self.is_idle, self.timelines)))

    def evict_surplus(self):
        """Forgets the timelines beyond `max_timelines`, the least recently used first."""
        if self.max_timelines is not None:
            self.evict(list(islice(self.timelines, max(0, len(self) - self.max_timelines))))

    def subset(self, timeline_ids: Iterable[str]) -> "StreamState":
        """A state without limits that has these timelines alone, and shares their tensors."""
        state = StreamState()
        state.window, state.weights = self.window, self.weights
        state.timelines = {timeline_id: self.timelines[timeline_id] for timeline_id in timeline_ids}
        return state

    def update(self, other: "StreamState"):
        """Takes the timelines of another state of the same model, as they are there."""
        self.timelines.update(other.timelines)

    def stream_lengths(self, timeline_ids: Sequence[str], window: int) -> list[int]:
        """For each new post the number of posts in its stream, itself included."""
        counts = {timeline_id: len(self.get(timeline_id).posts) for timeline_id in timeline_ids}
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
            known = self.get(timeline_id)
            if known.num_seen and (known.times is None) != (timestamps is None):
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
        known = self.get(timeline_id)
        posts = [
            {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in post.items()}
            for post in known.posts
        ]
        return posts, list(known.times or ()) if posts else []

    def remember(
        self,
        timeline_id: str,
        window: int,
        posts: list[dict[str, torch.Tensor]],
        times: list[float] | None,
        num_new: int,
    ):
        """Replaces the remembered posts of a timeline by the last `window - 1` of `posts`, which end in `num_new`."""
        known = self.get(timeline_id)
        # Behind all others: the first timelines are the least recently used.
        self.timelines.pop(timeline_id, None)
        self.timelines[timeline_id] = RememberedTimeline(
            posts=posts[max(0, len(posts) - window + 1) :],
            # The newest time is needed even if no post is.
            times=None if times is None else times[-max(1, window - 1) :],
            num_seen=known.num_seen + num_new,
            start_time=known.start_time if known.num_seen or not times else times[0],
            last_used=now(),
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """
        The memory as tensors that safetensors can save.

        Returns:
            `dict[str, torch.Tensor]`: The window and `weights` of the model, `num_dropped`, and the limits (infinite
            where there is none). Of each timeline its id (a JSON list of all, as bytes), how many posts are kept and
            how many it had, whether they have times, when it began (0 without times), and when it was last used. Of
            the posts of all timelines, one after the other,
            their times in seconds (float64), and as `posts.NAME` and `lengths.NAME` each input of `forward` and how
            many numbers each post has of it. A timeline without posts has one time.
        """
        timelines = self.timelines.values()
        posts = [post for timeline in timelines for post in timeline.posts]
        times = [time for timeline in timelines for time in timeline.times or ()]
        limits = [math.inf if limit is None else limit for limit in (self.max_timelines, self.max_idle_seconds)]
        tensors = {
            "window": torch.tensor(self.window),
            "weights": self.weights,
            "num_dropped": torch.tensor(self.num_dropped),
            "limits": torch.tensor(limits, dtype=torch.float64),
            "timeline_ids": torch.tensor(list(json.dumps(list(self.timelines)).encode()), dtype=torch.uint8),
            "num_posts": torch.tensor([len(timeline.posts) for timeline in timelines], dtype=torch.long),
            "are_timed": torch.tensor([timeline.times is not None for timeline in timelines]).bool(),
            "last_used": torch.tensor([timeline.last_used for timeline in timelines], dtype=torch.float64),
            "num_seen": torch.tensor([timeline.num_seen for timeline in timelines], dtype=torch.long),
            "start_times": torch.tensor([timeline.start_time for timeline in timelines], dtype=torch.float64),
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
        of_timelines = ("num_posts", "are_timed", "num_seen", "start_times", "last_used")
        num_posts, are_timed, *others = (read(name, len(timeline_ids)) for name in of_timelines)
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
        state.window, state.weights = int(tensors["window"]), tensors["weights"].cpu()
        state.num_dropped = int(tensors["num_dropped"])
        remembered = iter(posts)
        each = (values.tolist() for values in (num_posts, are_timed, *others))
        for timeline_id, count, is_timed, *other in zip(timeline_ids, *each, strict=True):
            its_times = list(islice(times, max(1, count))) if is_timed else None
            if wrong := [time for time in its_times or () if not math.isfinite(time)]:
                raise ValueError(f"The state has the time {wrong[0]} in timeline {timeline_id!r}.")
            state.timelines[timeline_id] = RememberedTimeline(list(islice(remembered, count)), its_times, *other)
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


@dataclass
class StreamStepOutput(ModelOutput):
    """
    The tensors are on the CPU, wherever the model is.

    Args:
        logits (`torch.FloatTensor` of shape `(num_posts, num_labels)`): Scores before softmax for each new post; 0
            for context, and for a late post that was left out.
        kept (`torch.BoolTensor` of shape `(num_posts,)`): False for a late post that was left out.
        stream_lengths (`torch.LongTensor` of shape `(num_posts,)`):
            How many posts were read for each, itself included, at most `window`: 1 where nothing was remembered of its
            timeline, 0 for a late post that was left out.
        state (`StreamState`): The memory for the next step.
    """

    logits: torch.FloatTensor | None = None
    kept: torch.BoolTensor | None = None
    stream_lengths: torch.LongTensor | None = None
    state: StreamState | None = None


class StreamStepMixin:
    """Adds `step` to [`TempoFormerForStreamClassification`]."""

    @torch.no_grad()
    def step(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        time_ids: torch.LongTensor | None = None,
        *,
        timeline_ids: Sequence[str],
        timestamps: Sequence[float] | None = None,
        is_context: Sequence[bool] | None = None,
        state: StreamState | None = None,
        drop_late: bool = False,
    ) -> StreamStepOutput:
        r"""
        Classifies new posts as they arrive, each in the stream of the posts of its timeline that came before it. The
        logits are those of a batch that holds the whole timelines; `model.decide` turns them into labels and scores.

        What the model can compute of a post without its stream is remembered: in the post model its vector, so that
        a new post costs one pass of the encoder; in the paper's model its tokens alone, so that it costs its window
        again.
        Leave the new posts on the CPU, as a tokenizer returns them: the step checks them there and moves them itself.

        Args:
            input_ids (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                The new posts, any number for each timeline; posts of the same timeline must be in order of time.
            attention_mask, token_type_ids, time_ids (`torch.LongTensor`, *optional*):
                Of shape `(num_posts, num_tokens)`, as a tokenizer returns them. In the paper's model all posts of
                a timeline have `token_type_ids` and `time_ids`, or none has.
            timeline_ids (`Sequence[str]`): The timeline of each post.
            timestamps (`Sequence[float]`, *optional*):
                Seconds, as Python numbers or in 64 bits. All posts of a timeline have them, or none has.
            is_context (`Sequence[bool]`, *optional*):
                True for a new post that is remembered and not classified: the posts after it read it. By default all
                posts are classified.
            state (`StreamState`, *optional*):
                The `state` that the last step of this model returned, or a new one with limits. It is changed in
                place, but if an error is raised only idle timelines have left.
            drop_late (`bool`, *optional*, defaults to `False`):
                Whether a post that is older than the newest seen of its timeline is left out, and counted in
                `state.num_dropped`, instead of raising a [`LatePostError`].

        Returns:
            [`StreamStepOutput`]. Raises a [`LatePostError`] for a late post. Raises a `ValueError` in training mode
            and for a state of another model, and one that names the post for token ids that the encoder does not have,
            a post without tokens or with padding on the left, a timestamp that is missing, not finite or a float of
            fewer than 64 bits, and logits that are not finite. Raises a `TypeError` for a tensor of timestamps of
            fewer than 64 bits, and for timeline ids that are not strings.
        """
        if self.training:
            raise ValueError("`step` is for inference: call `model.eval()` first.")
        self.tempoformer.check_times(timestamps, time_ids)
        check_shape("input_ids", input_ids, None, None)
        inputs = {
            "input_ids": input_ids,
            "attention_mask": torch.ones_like(input_ids) if attention_mask is None else attention_mask,
            "token_type_ids": token_type_ids,
            "time_ids": time_ids,
        }
        for name, tensor in inputs.items():
            check_shape(name, tensor, *input_ids.shape)
        is_context = [False] * len(input_ids) if is_context is None else is_context
        for what, values in (("timeline ids", timeline_ids), ("values of `is_context`", is_context)):
            if len(values) != len(input_ids):
                raise ValueError(f"There are {len(values)} {what} for {len(input_ids)} posts.")
        most = self.tempoformer.max_tokens
        if input_ids.shape[1] > most:
            raise ValueError(f"Posts of {input_ids.shape[1]} tokens, but the encoder reads at most {most}.")
        inputs = {name: tensor.cpu() for name, tensor in inputs.items() if tensor is not None}
        self.check_values(inputs, timeline_ids)
        state = StreamState() if state is None else state
        window = self.config.window
        state.evict_idle()
        kept = state.check(timeline_ids, timestamps, drop_late)
        logits = torch.zeros(len(input_ids), self.config.num_labels, dtype=self.dtype)
        is_kept = torch.zeros(len(input_ids), dtype=torch.bool)
        stream_lengths = torch.zeros(len(input_ids), dtype=torch.long)
        is_kept[kept] = True
        stream_lengths[kept] = torch.tensor(state.stream_lengths([timeline_ids[post] for post in kept], window)).long()
        targets = [post for post in kept if not is_context[post]]
        if kept:
            weights = self.sample_weights()
            state.check_model(window, weights)
            updates = self.join_posts(self.read_posts(inputs, kept), kept, timeline_ids, timestamps, state)
            if targets:
                new_logits = self.classify(targets, updates, state)
                # Under autocast they need not have the model's dtype.
                logits = logits.to(new_logits.dtype).index_copy(0, torch.tensor(targets), new_logits)
                check_finite(logits, lambda post: f"Post {post} of timeline {timeline_ids[post]!r}")
            state.window, state.weights = window, weights
            for timeline_id, (posts, times, places) in updates.items():
                state.remember(timeline_id, window, posts, times, len(places))
            state.evict_surplus()
        state.num_dropped += len(input_ids) - len(kept)
        return StreamStepOutput(logits=logits, kept=is_kept, stream_lengths=stream_lengths, state=state)

    def decide(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.LongTensor]:
        """
        Labels and scores as the pipeline gives them, with the `calibration` of the configuration, if there is one.

        Args:
            logits (`torch.Tensor` of shape `(..., num_labels)`): As `step` and `forward` return them.

        Returns:
            The probability of each class, in 32 bits or more, and the class ids from the label of a post to its least
            likely one, both of the shape of `logits`. A label's score is its probability, which need not be the
            largest if the calibration has thresholds.
        """
        return decide(logits, self.config.calibration)

    @classmethod
    def restore_state(cls, tensors: dict[str, torch.Tensor]) -> StreamState:
        """
        [`StreamState.from_state_dict`], also for a model whose code is from the Hub, and whose `StreamState` cannot be
        imported.

        Args:
            tensors (`dict[str, torch.Tensor]`): As [`StreamState.state_dict`] returns them.
        """
        return StreamState.from_state_dict(tensors)

    def sample_weights(self) -> torch.Tensor:
        """
        A number of each weight, in the precision of the model, on the host: a state knows its model by them. Quantised
        weights do not count, biases and norms do.
        """
        weights = [weight.flatten() for weight in self.parameters() if type(weight) is nn.Parameter]
        # They may be on several devices. The property `device` is slow.
        device = self.device
        return torch.stack([weight[len(weight) // 2].to(device) for weight in weights]).cpu()

    def check_values(self, inputs: dict[str, torch.Tensor], timeline_ids: Sequence[str]):
        """Raises a `ValueError` that names the first wrong value of new posts."""
        config, ids, times = self.config.encoder_config, inputs["input_ids"], inputs.get("time_ids")
        is_real = inputs["attention_mask"].bool()
        first = torch.zeros_like(is_real)
        first[:, 0] = True
        last = config.vocab_size - 1
        violations = [
            ("input_ids", (ids < 0) | (ids > last), f"lie between 0 and {last}"),
            ("attention_mask", first & ~is_real, "be 1 at the first token; pad posts on the right"),
        ]
        if times is not None:
            last = config.num_time_ids - 1
            violations.append(("time_ids", (times < 0) | (times > last), f"lie between 0 and {last}"))
        for name, wrong, must in violations:
            for post, token in wrong.nonzero()[:1].tolist():
                raise ValueError(
                    f"Post {post} of timeline {timeline_ids[post]!r}: `{name}` must {must}, got "
                    f"{inputs[name][post, token].item()} at token {token}."
                )

    def read_posts(self, inputs: dict[str, torch.Tensor], chosen: list[int]) -> list[dict[str, torch.Tensor]]:
        """What `forward` takes of each chosen post, on the host: its vector in the post model, else its tokens."""
        # One row of posts.
        row = {name: values[chosen].unsqueeze(0).to(self.device) for name, values in inputs.items()}
        row = {name: values[0].cpu() for name, values in self.tempoformer.post_inputs(**row).items()}
        tokens = torch.arange(1, row["attention_mask"].shape[1] + 1)
        lengths = (row["attention_mask"] * tokens).amax(-1).tolist()
        # Copies, so that the memory of the batch that they come with is freed.
        return [
            {
                name: values[post].to(self.dtype, copy=True)
                if name == "post_embeds"
                else values[post, :length].clone()
                for name, values in row.items()
            }
            for post, length in enumerate(lengths)
        ]

    def join_posts(
        self,
        new: list[dict[str, torch.Tensor]],
        kept: list[int],
        timeline_ids: Sequence[str],
        timestamps: Sequence[float] | None,
        state: StreamState,
    ) -> dict[str, tuple[list[dict[str, torch.Tensor]], list[float] | None, dict[int, int]]]:
        """For each timeline its posts, remembered and new, their times, and where each new one stands."""
        joined = {}
        for post, inputs in zip(kept, new, strict=True):
            name = timeline_ids[post]
            if name not in joined:
                posts, times = state.recall(name, self.dtype)
                if posts and posts[0].keys() != inputs.keys():
                    differing = ", ".join(f"`{key}`" for key in posts[0].keys() ^ inputs.keys())
                    raise ValueError(f"Only some posts of timeline {name!r} have {differing}.")
                joined[name] = posts, None if timestamps is None else times, {}
            posts, times, places = joined[name]
            places[post] = len(posts)
            posts.append(inputs)
            if timestamps is not None:
                times.append(float(timestamps[post]))
        return joined

    def classify(self, targets: list[int], timelines: dict[str, tuple], state: StreamState) -> torch.Tensor:
        """
        Logits (targets, classes), on the host, of new posts in `timelines`, as `join_posts` returns them from `state`.
        """
        window = self.config.window
        rows, order, are_targets = [], [], set(targets)
        for name, (posts, times, places) in timelines.items():
            asked = {place: post for post, place in places.items() if post in are_targets}
            # Posts that are not kept any more.
            known = state.get(name)
            num_gone = known.num_seen + len(places) - len(posts)
            start_time = known.start_time if known.num_seen or not times else times[0]
            # Rows of a bounded length, as for a whole timeline.
            for start, first, end in row_bounds(len(posts), window, window, min(asked, default=len(posts))):
                if chosen := [place for place in range(first, end) if place in asked]:
                    newest = torch.tensor(chosen) - start
                    index = stream_windows(newest, window)
                    row = {"posts": posts[start:end], "stream_index": index}
                    seconds = None if times is None else torch.tensor(times[start:end], dtype=torch.float64)
                    row["place"] = stream_places(newest, num_gone + start, seconds, start_time)
                    if seconds is not None:
                        row["elapsed"] = elapsed_seconds(seconds, index)
                    rows.append(row)
                    order.append([asked[place] for place in chosen])
        lengths = [len(row["posts"]) for row in rows]
        fill = {"input_ids": getattr(self.config.encoder_config, "pad_token_id", None) or 0, "stream_index": -1}

        def stack(name: str, values: list[torch.Tensor]) -> torch.Tensor:
            return nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=fill.get(name, 0))

        batch = {name: stack(name, [row[name] for row in rows]) for name in rows[0] if name != "posts"}
        for name in rows[0]["posts"][0]:
            of_posts = stack(name, [post[name] for row in rows for post in row["posts"]])
            batch[name] = stack(name, of_posts.split(lengths))
        logits = self(**{name: values.to(self.device) for name, values in batch.items()}).logits.cpu()
        found = {
            post: of_row[place]
            for of_row, posts in zip(logits, order, strict=True)
            for place, post in enumerate(posts)
        }
        return torch.stack([found[post] for post in targets])
