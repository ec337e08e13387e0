"""Online inference: posts are classified as they arrive, and only the last ones of each timeline are remembered."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers.utils import ModelOutput

from .configuration_temporal_bert import NUM_SPECIAL_TIMES
from .decisions_tempoformer import check_finite, decide
from .input_checks_tempoformer import check_shape
from .rows_tempoformer import row_bounds
from .stream_state_tempoformer import StreamState
from .windows_tempoformer import elapsed_seconds, stream_windows


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

        What the model can compute of a post without its stream is remembered: in the post form its vector, so that a
        new post costs one pass of the encoder; in the token form its tokens alone, so that it costs its window again.
        Leave the new posts on the CPU, as a tokenizer returns them: the step checks them there and moves them itself.

        Args:
            input_ids (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                The new posts, any number for each timeline; posts of the same timeline must be in order of time.
            attention_mask, token_type_ids, time_ids (`torch.LongTensor`, *optional*):
                Of shape `(num_posts, num_tokens)`, as a tokenizer returns them. In the token form all posts of a
                timeline have `token_type_ids` and `time_ids`, or none has.
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
        most = self.tempoformer.adapter.max_tokens(self.config.encoder_config)
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
                new_logits = self.classify(targets, updates)
                # Under autocast they need not have the model's dtype.
                logits = logits.to(new_logits.dtype).index_copy(0, torch.tensor(targets), new_logits)
                check_finite(logits, lambda post: f"Post {post} of timeline {timeline_ids[post]!r}")
            state.window, state.weights = window, weights
            for timeline_id, (posts, times, _) in updates.items():
                state.remember(timeline_id, window, posts, times)
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
        return torch.stack([weight[len(weight) // 2] for weight in weights]).cpu()

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
        for name, wrong, must in violations:
            for post, token in wrong.nonzero()[:1].tolist():
                raise ValueError(
                    f"Post {post} of timeline {timeline_ids[post]!r}: `{name}` must {must}, got "
                    f"{inputs[name][post, token].item()} at token {token}."
                )

    def read_posts(self, inputs: dict[str, torch.Tensor], chosen: list[int]) -> list[dict[str, torch.Tensor]]:
        """What `forward` takes of each chosen post, on the host: its vector in the post form, else its tokens."""
        # One row of posts.
        row = {name: values[chosen].unsqueeze(0).to(self.device) for name, values in inputs.items()}
        row = {name: values[0].cpu() for name, values in self.tempoformer.post_inputs(**row).items()}
        tokens = torch.arange(1, row["attention_mask"].shape[1] + 1)
        lengths = (row["attention_mask"] * tokens).amax(-1).tolist()
        # Copies, so that the memory of the batch that they come with is freed.
        return [
            {
                name: values[post].to(self.dtype) if name == "post_embeds" else values[post, :length].clone()
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

    def classify(self, targets: list[int], timelines: dict[str, tuple]) -> torch.Tensor:
        """Logits (targets, classes), on the host, of new posts in `timelines`, as `join_posts` returns them."""
        window = self.config.window
        rows, order = [], []
        for posts, times, places in timelines.values():
            asked = {place: post for post, place in places.items() if post in set(targets)}
            # Rows of a bounded length, as for a whole timeline.
            for start, first, end in row_bounds(len(posts), window, window, min(asked, default=len(posts))):
                if chosen := [place for place in range(first, end) if place in asked]:
                    index = stream_windows(torch.tensor(chosen) - start, window)
                    row = {"posts": posts[start:end], "stream_index": index}
                    if times is not None:
                        row["elapsed"] = elapsed_seconds(torch.tensor(times[start:end], dtype=torch.float64), index)
                    rows.append(row)
                    order.append([asked[place] for place in chosen])
        lengths = [len(row["posts"]) for row in rows]
        fill = {"input_ids": self.config.encoder_config.pad_token_id or 0, "stream_index": -1}

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
