"""Online inference: posts are classified as they arrive, and only the last ones of each timeline are remembered."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers.utils import ModelOutput

from .configuration_temporal_bert import NUM_SPECIAL_TIMES
from .decisions_tempoformer import check_finite, decide
from .input_checks_tempoformer import check_shape
from .packing_tempoformer import PackedPosts, measure, read, scatter, to_device
from .stream_state_tempoformer import StreamState
from .windows_tempoformer import elapsed_seconds


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

        Leave the new posts on the CPU, as a tokenizer returns them: the step checks them there, moves them to the
        model itself, and waits for its device once, to read the logits.

        Args:
            input_ids (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                The new posts, any number for each timeline; posts of the same timeline must be in order of time.
            attention_mask, token_type_ids, time_ids (`torch.LongTensor`, *optional*):
                Of shape `(num_posts, num_tokens)`, as a tokenizer returns them. All posts of a timeline have
                `time_ids`, or none has.
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
            a post without tokens or with padding on the left, a masked token inside a post if the encoder cannot
            remember it, a timestamp that is missing, not finite or a float of fewer than 64 bits, and logits that are
            not finite. Raises a `TypeError` for a tensor of timestamps of fewer than 64 bits, and for timeline ids
            that are not strings.
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
        most = self.tempoformer.adapter.max_tokens(self.config.encoder_config)
        if input_ids.shape[1] > most:
            raise ValueError(f"Posts of {input_ids.shape[1]} tokens, but the encoder reads at most {most}.")
        inputs = {name: tensor.cpu() for name, tensor in inputs.items() if tensor is not None}
        self.check_values(inputs, timeline_ids)
        state = StreamState() if state is None else state
        window = self.config.window
        state.check_sizes(window, self.config.encoder_config.hidden_size)
        state.evict_idle()
        kept = state.check(timeline_ids, timestamps, time_ids is not None, drop_late)
        logits = torch.zeros(len(input_ids), self.config.num_labels, dtype=self.dtype)
        is_kept = torch.zeros(len(input_ids), dtype=torch.bool)
        stream_lengths = torch.zeros(len(input_ids), dtype=torch.long)
        is_kept[kept] = True
        stream_lengths[kept] = torch.tensor(state.stream_lengths([timeline_ids[post] for post in kept], window)).long()
        targets = [post for post in kept if not is_context[post]]
        if kept:
            new_logits, updates = self.classify_new_posts(
                {name: tensor[kept] for name, tensor in inputs.items()},
                [timeline_ids[post] for post in kept],
                None if timestamps is None else [float(timestamps[post]) for post in kept],
                [not is_context[post] for post in kept],
                state,
            )
            # The only transfer from the device. What it finds wrong leaves the state as it is.
            samples = self.sample_weights()
            scores, weights = read(new_logits, samples.to(new_logits.device))
            weights = torch.tensor(weights, dtype=samples.dtype)
            state.check_weights(weights)
            scores = torch.tensor(scores, dtype=new_logits.dtype).view_as(new_logits)
            logits = scatter(scores, torch.tensor(targets, dtype=torch.long), is_kept.shape)
            check_finite(logits, lambda post: f"Post {post} of timeline {timeline_ids[post]!r}")
            state.window, state.weights = window, weights
            for timeline_id, update in updates.items():
                state.remember(timeline_id, window, *update)
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
        A number of each weight, in the precision of the model: a state knows its model by them. Quantised weights do
        not count, biases and norms do.
        """
        weights = [weight.flatten() for weight in self.parameters() if type(weight) is nn.Parameter]
        return torch.stack([weight[len(weight) // 2] for weight in weights])

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
            last = NUM_SPECIAL_TIMES + len(config.times) - 1
            violations.append(("time_ids", (times < 0) | (times > last), f"lie between 0 and {last}"))
        if self.tempoformer.adapter.positions_in_layers and len(self.tempoformer.stream_layers):
            # Only real tokens are remembered, and these layers would take the tokens around a gap for neighbours.
            gap = ~is_real & nn.functional.pad(is_real[:, 1:], (0, 1))
            rule = f"be 1 up to the last token of a post in a step of a '{config.model_type}'"
            violations.append(("attention_mask", gap, rule))
        for name, wrong, must in violations:
            for post, token in wrong.nonzero()[:1].tolist():
                raise ValueError(
                    f"Post {post} of timeline {timeline_ids[post]!r}: `{name}` must {must}, got "
                    f"{inputs[name][post, token].item()} at token {token}."
                )

    def classify_new_posts(
        self,
        inputs: dict[str, torch.Tensor],
        timeline_ids: list[str],
        timestamps: list[float] | None,
        is_target: list[bool],
        state: StreamState,
    ) -> tuple[torch.Tensor, dict[str, tuple]]:
        """
        Logits (targets, classes) of those new posts that are targets, and what `state` is to remember of each
        timeline. No new post is late.
        """
        base, window, device = self.tempoformer, self.config.window, self.device
        mask = inputs.pop("attention_mask").bool()
        lengths, counts = read(*measure(mask))
        new = PackedPosts(to_device(mask, device), lengths, counts, base.adapter.runs_on_groups)
        new_times = None
        if "time_ids" in inputs:
            new_times = [times[real] for times, real in zip(inputs["time_ids"], mask, strict=True)]
        inputs = {name: to_device(tensor, device) for name, tensor in inputs.items()}
        time_ids = inputs.pop("time_ids", None)
        new_states = base.pool_tokens(new, base.encode_posts(new, inputs, time_ids))
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
        seconds: list[float] = []
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
                time_points = [*state.time_ids.get(timeline_id, []), *(new_times[post] for post in posts)]
                calendar += time_points
            if timestamps is not None:
                times = [*times, *(timestamps[post] for post in posts)]
                seconds += times
            states += sequence
            updates[timeline_id] = (sequence, None if timestamps is None else times, time_points)

        if not any(is_target):
            return new_states.new_zeros(0, self.config.num_labels), updates
        lengths = [len(post) for post in states]
        mask = torch.arange(max(lengths), device=device) < to_device(lengths, device).unsqueeze(-1)
        groups = PackedPosts(mask, lengths, lengths, base.adapter.runs_on_groups)
        states = torch.cat(states)
        if base.post_reader is None:
            # From post after post to the order of the groups.
            states = states[(mask.flatten().cumsum(0) - 1)[groups.tokens].to(states.device)].unsqueeze(0)
        times = to_device(nn.utils.rnn.pad_sequence(calendar, batch_first=True), device) if calendar else None
        slots = [post for stream, is_read in zip(streams, is_target, strict=True) if is_read for post in stream]
        index, elapsed = torch.tensor(slots).view(-1, window), None
        if timestamps is not None:
            elapsed = to_device(elapsed_seconds(torch.tensor(seconds, dtype=torch.float64), index), device)
        index = to_device(index, device)
        tau = base.log_time(elapsed, index)
        outputs, pooled, _ = base.read_streams(groups, states, times, index.clamp_min(0), index >= 0, slots, tau)
        # One row that holds all streams.
        pooled = None if pooled is None else pooled.unsqueeze(0)
        logits = self.classifier(outputs.unsqueeze(0), pooled, (index >= 0).unsqueeze(0)).squeeze(0)
        return logits, updates
