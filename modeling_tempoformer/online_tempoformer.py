"""Online inference: posts are classified as they arrive, and only the last ones of each timeline are remembered."""

import json
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from .configuration_temporal_bert import NUM_SPECIAL_TIMES
from .decisions_tempoformer import check_finite, decide
from .input_checks_tempoformer import check_shape, narrow_float
from .packing_tempoformer import PackedPosts, measure, read, scatter
from .timestamps_tempoformer import to_seconds
from .windows_tempoformer import elapsed_seconds, stream_windows


# How many numbers of each weight of the head a state keeps to know its model by, and by how much they may differ: as a
# rounding to 16 bits does.
NUM_SAMPLES = 4
SAME = {"rtol": 1e-2, "atol": 1e-6}
# The name of a tensor (posts, tokens), its values, where they are wrong, and what they must be.
Violation = tuple[str, torch.Tensor, torch.BoolTensor, str]


class LatePostError(ValueError):
    """A post that is older than the newest one seen of its timeline."""


class StreamState:
    """
    The memory of [`TempoFormerForStreamClassification.step`]: for each timeline, the hidden states of the last
    `window - 1` posts below the stream layers (real tokens only), and their times.

    A timeline takes `4 * hidden_size` bytes for each remembered token in float32 (half of that in bfloat16), and 16
    bytes for each post: 1.5 MB with BERT-base, a window of 20 and 25 tokens a post. An encoder with temporal attention
    needs 8 bytes more for each token. In the post form, and without stream layers, one vector of a post is remembered.

    `state_dict()` is a dict of a few tensors that safetensors can save, for any number of timelines;
    `StreamState.from_state_dict` restores it. A state belongs to the model that it began with: it keeps its window and
    a few numbers of the weights of its head, and no other model takes it.

    Attributes: `num_dropped`, the number of late posts that were left out because of `drop_late`.
    """

    def __init__(self):
        self.posts: dict[str, list[torch.Tensor]] = {}
        self.times: dict[str, list[float] | None] = {}
        self.time_ids: dict[str, list[torch.Tensor]] = {}
        self.num_dropped = 0
        # The first step fills in the window of its model and numbers of its weights.
        self.window = 0
        self.weights = torch.zeros(0)

    def __len__(self) -> int:
        return len(self.posts)

    def __contains__(self, timeline_id: str) -> bool:
        return timeline_id in self.posts

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
        if unknown := sorted(map(repr, timeline_ids - set(self.posts))):
            raise KeyError(f"The state has no timeline {', '.join(unknown)}.")
        for timeline_id in timeline_ids:
            del self.posts[timeline_id], self.times[timeline_id]
            self.time_ids.pop(timeline_id, None)

    def check_model(self, window: int, weights: torch.Tensor):
        """Raises a `ValueError` if the state is of another model; `weights` as `sample_weights` returns them."""
        if not len(self.weights):
            return
        if self.window != window:
            raise ValueError(f"The state is of a model with a window of {self.window} posts, this one has {window}.")
        if self.weights.shape != weights.shape or not torch.allclose(self.weights, weights, **SAME):
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
        self.posts[timeline_id] = posts[first:]
        # The newest time is needed even if no post is.
        self.times[timeline_id] = None if times is None else times[-max(1, window - 1) :]
        if time_ids is not None:
            self.time_ids[timeline_id] = time_ids[first:]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """
        The memory as tensors that safetensors can save.

        Returns:
            `dict[str, torch.Tensor]`: The window and `weights` of the model, and `num_dropped`. Of each timeline its
            id (a JSON list of all, as bytes), how many posts it has, and whether they have times and `time_ids`. Of
            the posts of all timelines, one after the other: their states (tokens, hidden), their lengths in tokens,
            their times in seconds (float64), and the `time_ids` of their tokens. A timeline without posts has one
            time.
        """
        posts = list(chain.from_iterable(self.posts.values()))
        time_ids = [post for timeline_id in self.posts for post in self.time_ids.get(timeline_id, [])]
        times = list(chain.from_iterable(times for times in self.times.values() if times is not None))
        return {
            "window": torch.tensor(self.window),
            "weights": self.weights,
            "num_dropped": torch.tensor(self.num_dropped),
            "timeline_ids": torch.tensor(list(json.dumps(list(self.posts)).encode()), dtype=torch.uint8),
            "num_posts": torch.tensor([len(of_timeline) for of_timeline in self.posts.values()], dtype=torch.long),
            "are_timed": torch.tensor([self.times[timeline_id] is not None for timeline_id in self.posts]).bool(),
            "are_dated": torch.tensor([timeline_id in self.time_ids for timeline_id in self.posts]).bool(),
            "lengths": torch.tensor([len(post) for post in posts], dtype=torch.long),
            "states": torch.cat(posts) if posts else torch.zeros(0),
            "times": torch.tensor(times, dtype=torch.float64),
            "time_ids": torch.cat(time_ids) if time_ids else torch.zeros(0, dtype=torch.long),
        }

    @classmethod
    def from_state_dict(cls, tensors: dict[str, torch.Tensor]) -> "StreamState":
        """
        Restores a state.

        Args:
            tensors (`dict[str, torch.Tensor]`): As [`StreamState.state_dict`] returns them.

        Returns:
            `StreamState`. Raises a `ValueError` if tensors are missing or cut, or a time is not finite.
        """
        if missing := sorted(set(cls().state_dict()) - set(tensors)):
            raise ValueError(f"The state lacks {', '.join(missing)}.")

        def read(name: str, count: int) -> torch.Tensor:
            if len(tensors[name]) != count:
                raise ValueError(f"The state has {len(tensors[name])} values of '{name}', expected {count}.")
            return tensors[name]

        timeline_ids = json.loads(tensors["timeline_ids"].cpu().numpy().tobytes())
        num_posts, timed, dated = (read(name, len(timeline_ids)) for name in ("num_posts", "are_timed", "are_dated"))
        # The newest time is there even if no post is.
        num_times = num_posts.clamp_min(1) * timed
        lengths = read("lengths", int(num_posts.sum()))
        states = read("states", int(lengths.sum()))
        times = read("times", int(num_times.sum()))
        dated_lengths = lengths[dated.repeat_interleave(num_posts)]
        time_ids = read("time_ids", int(dated_lengths.sum()))
        for wrong in (~times.isfinite()).nonzero()[:1].flatten():
            timeline_id = timeline_ids[int(torch.searchsorted(num_times.cumsum(0), wrong, right=True))]
            raise ValueError(f"The state has the time {times[wrong].item()} in timeline {timeline_id!r}.")

        state = cls()
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


@dataclass
class StreamStepOutput(ModelOutput):
    """
    Args:
        logits (`torch.FloatTensor` of shape `(num_posts, num_labels)`): Scores before softmax for each new post; 0
            for a late post that was left out.
        kept (`torch.BoolTensor` of shape `(num_posts,)`): False for a late post that was left out.
        state (`StreamState`): The memory for the next step.
    """

    logits: torch.FloatTensor | None = None
    kept: torch.BoolTensor | None = None
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
        state: StreamState | None = None,
        drop_late: bool = False,
    ) -> StreamStepOutput:
        r"""
        Classifies new posts as they arrive, each in the stream of the posts of its timeline that came before it. The
        logits are those of a batch that holds the whole timelines; `model.decide` turns them into labels and scores.

        Args:
            input_ids (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                The new posts, any number for each timeline; posts of the same timeline must be in order of time.
            attention_mask, token_type_ids, time_ids (`torch.LongTensor`, *optional*):
                Of shape `(num_posts, num_tokens)`, as a tokenizer returns them. All posts of a timeline have
                `time_ids`, or none has.
            timeline_ids (`Sequence[str]`): The timeline of each post.
            timestamps (`Sequence[float]`, *optional*):
                Seconds, as Python numbers or in 64 bits. All posts of a timeline have them, or none has.
            state (`StreamState`, *optional*):
                The `state` that the last step of this model returned. It is changed in place, but not if an error is
                raised.
            drop_late (`bool`, *optional*, defaults to `False`):
                Whether a post that is older than the newest seen of its timeline is left out, and counted in
                `state.num_dropped`, instead of raising a [`LatePostError`].

        Returns:
            [`StreamStepOutput`]. Raises a [`LatePostError`] for a late post. Raises a `ValueError` in training mode
            and for a state of another model, and one that names the post for token ids that the encoder does not have,
            a post without tokens or with padding on the left, a masked token inside a post if the encoder cannot
            remember it, a timestamp that is missing, not finite or a float of fewer than 64 bits, and logits that are
            not finite. Raises a `TypeError` for a tensor of timestamps of fewer than 64 bits, and for timeline ids
            that are not strings.
        """
        if self.training:
            raise ValueError("`step` is for inference: call `model.eval()` first.")
        self.tempoformer.check_times(timestamps, time_ids)
        check_shape("input_ids", input_ids, None, None)
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        for name, tensor in (
            ("attention_mask", attention_mask),
            ("token_type_ids", token_type_ids),
            ("time_ids", time_ids),
        ):
            check_shape(name, tensor, *input_ids.shape)
        if len(timeline_ids) != len(input_ids):
            raise ValueError(f"There are {len(timeline_ids)} timeline ids for {len(input_ids)} posts.")
        most = self.tempoformer.adapter.max_tokens(self.config.encoder_config)
        if input_ids.shape[1] > most:
            raise ValueError(f"Posts of {input_ids.shape[1]} tokens, but the encoder reads at most {most}.")
        violations = self.find_violations(input_ids, attention_mask, time_ids)
        # One transfer from the device.
        are_wrong, lengths, counts, weights = read(
            torch.stack([wrong.any() for _, _, wrong, _ in violations]),
            *measure(attention_mask.bool()),
            self.sample_weights().view(torch.int32),
        )
        if any(are_wrong):
            raise_first_violation(violations, timeline_ids)
        state = StreamState() if state is None else state
        window, weights = self.config.window, torch.tensor(weights, dtype=torch.int32).view(torch.float32)
        state.check_model(window, weights)
        kept = state.check(timeline_ids, timestamps, time_ids is not None, drop_late)
        is_kept = torch.zeros(len(input_ids), dtype=torch.bool)
        is_kept[kept] = True
        logits = torch.zeros(len(input_ids), self.config.num_labels, dtype=self.dtype, device=input_ids.device)
        if kept:
            rows = torch.tensor(kept, device=input_ids.device)
            inputs = {"input_ids": input_ids, "token_type_ids": token_type_ids}
            new_logits, updates = self.classify_new_posts(
                {name: tensor[rows] for name, tensor in inputs.items() if tensor is not None},
                PackedPosts(
                    attention_mask[rows].bool(),
                    [lengths[post] for post in kept],
                    [counts[post] for post in kept],
                    self.tempoformer.adapter.runs_on_groups,
                ),
                None if time_ids is None else time_ids[rows],
                [timeline_ids[post] for post in kept],
                None if timestamps is None else [float(timestamps[post]) for post in kept],
                state,
            )
            check_finite(new_logits, lambda post: f"Post {kept[post]} of timeline {timeline_ids[kept[post]]!r}")
            logits = scatter(new_logits, rows, is_kept.shape)
            state.window, state.weights = window, weights
            for timeline_id, update in updates.items():
                state.remember(timeline_id, window, *update)
        state.num_dropped += len(input_ids) - len(kept)
        return StreamStepOutput(logits=logits, kept=is_kept.to(input_ids.device), state=state)

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
        """A few numbers of each weight of the head, which every training changes: a state knows its model by them."""
        weights = self.classifier.parameters()
        samples = [weight.flatten()[:: max(1, weight.numel() // NUM_SAMPLES)][:NUM_SAMPLES] for weight in weights]
        return torch.cat(samples).float()

    def find_violations(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, time_ids: torch.Tensor | None
    ) -> list[Violation]:
        """The rules for the values of new posts, all of shape (posts, tokens)."""
        config, is_real = self.config.encoder_config, attention_mask.bool()
        first = torch.zeros_like(is_real)
        first[:, 0] = True
        violations = [
            (
                "input_ids",
                input_ids,
                (input_ids < 0) | (input_ids >= config.vocab_size),
                f"lie between 0 and {config.vocab_size - 1}",
            ),
            ("attention_mask", attention_mask, first & ~is_real, "be 1 at the first token; pad posts on the right"),
        ]
        if time_ids is not None:
            last = NUM_SPECIAL_TIMES + len(config.times) - 1
            violations.append(("time_ids", time_ids, (time_ids < 0) | (time_ids > last), f"lie between 0 and {last}"))
        if self.tempoformer.adapter.positions_in_layers and len(self.tempoformer.stream_layers):
            # Only real tokens are remembered, and these layers would take the tokens around a gap for neighbours.
            gap = ~is_real & nn.functional.pad(is_real[:, 1:], (0, 1))
            rule = f"be 1 up to the last token of a post in a step of a '{config.model_type}'"
            violations.append(("attention_mask", attention_mask, gap, rule))
        return violations

    def classify_new_posts(
        self,
        inputs: dict[str, torch.Tensor],
        new: PackedPosts,
        time_ids: torch.LongTensor | None,
        timeline_ids: list[str],
        timestamps: list[float] | None,
        state: StreamState,
    ) -> tuple[torch.Tensor, dict[str, tuple]]:
        """Logits (posts, classes) of new posts that are not late, and what `state` is to remember of each timeline."""
        base, window, device = self.tempoformer, self.config.window, new.mask.device
        new_states = base.pool_tokens(new, base.encode_posts(new, inputs, time_ids))
        new_times = None if time_ids is None else new.unpack(new.pack(time_ids))
        if len(base.stream_layers):
            new_posts = new.unpack(new_states)
        else:
            # One vector is read of each post: its own in the post form, [CLS] without stream layers.
            new_posts = new_states if base.post_reader is not None else new.join(new.first_tokens(new_states))
            new_posts, new_times = new_posts.split(1), new_times and [times[:1] for times in new_times]

        # All posts that are needed, timeline by timeline, old and new.
        members: dict[str, list[int]] = {}
        for post, timeline_id in enumerate(timeline_ids):
            members.setdefault(timeline_id, []).append(post)
        states: list[torch.Tensor] = []
        calendar: list[torch.Tensor] = []
        streams: list[list[int]] = [[]] * len(timeline_ids)
        elapsed = None if timestamps is None else torch.zeros(len(timeline_ids), window)
        updates = {}
        for timeline_id, posts in members.items():
            old, times = state.recall(timeline_id)
            sequence = [post.to(new_states) for post in old]
            # Copies, so that the memory of the batch that they come with is freed.
            sequence += [new_posts[post].clone() for post in posts]
            for number, post in enumerate(posts, start=len(old)):
                stream = range(max(0, number - window + 1), number + 1)
                streams[post] = [-1] * (window - len(stream)) + [len(states) + place for place in stream]
            time_points = None
            if new_times is not None:
                time_points = [*state.time_ids.get(timeline_id, []), *(new_times[post].clone() for post in posts)]
                calendar += [post.to(device) for post in time_points]
            if timestamps is not None:
                times = [*times, *(timestamps[post] for post in posts)]
                windows = stream_windows(torch.arange(len(old), len(sequence)), window)
                elapsed[posts] = elapsed_seconds(torch.tensor(times, dtype=torch.float64), windows)
            states += sequence
            updates[timeline_id] = (sequence, None if timestamps is None else times, time_points)

        lengths = [len(post) for post in states]
        mask = torch.arange(max(lengths), device=device) < torch.tensor(lengths, device=device).unsqueeze(-1)
        groups = PackedPosts(mask, lengths, lengths, base.adapter.runs_on_groups)
        states = torch.cat(states)
        if base.post_reader is None:
            # From post after post to the order of the groups.
            states = states[(mask.flatten().cumsum(0) - 1)[groups.tokens].to(states.device)].unsqueeze(0)
        times = nn.utils.rnn.pad_sequence(calendar, batch_first=True) if calendar else None
        slots = [post for stream in streams for post in stream]
        index = torch.tensor(slots, device=device).view(-1, window)
        tau = base.log_time(None if elapsed is None else elapsed.to(device), index)
        outputs, pooled, _ = base.read_streams(groups, states, times, index.clamp_min(0), index >= 0, slots, tau)
        # One row that holds all streams.
        pooled = None if pooled is None else pooled.unsqueeze(0)
        logits = self.classifier(outputs.unsqueeze(0), pooled, (index >= 0).unsqueeze(0)).squeeze(0)
        return logits, updates


def raise_first_violation(violations: list[Violation], timeline_ids: Sequence[str]):
    """Raises a `ValueError` that names the post and the value of the first violation, if there is any."""
    # One transfer from the device for all rules.
    for rule, post, token in torch.stack([wrong for _, _, wrong, _ in violations]).nonzero()[:1].tolist():
        name, values, _, must = violations[rule]
        raise ValueError(
            f"Post {post} of timeline {timeline_ids[post]!r}: `{name}` must {must}, got {values[post, token].item()} "
            f"at token {token}."
        )


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
