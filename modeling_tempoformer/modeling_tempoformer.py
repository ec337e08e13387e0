"""TempoFormer (Tseriotou, Tsakalidis and Liakata, 2024): change detection in streams of posts."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Unpack

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple, logging

from .configuration_tempoformer import TempoFormerConfig
from .modeling_post_tempoformer import (
    NarrowLinear,
    StreamAttention,
    StreamClassificationMixin,
    StreamPositionEmbedding,
    StreamPreTrainedModel,
    StreamReaderMixin,
    Streams,
    ZeroLinear,
    class_layers,
)
from .modeling_tempoformer_encoders import get_encoder_adapter
from .online_tempoformer import StreamState
from .packing_tempoformer import PackedPosts, StreamPlaces, measure, read, scatter, to_device


logger = logging.get_logger(__name__)


@dataclass
class TempoFormerModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, num_streams, window, hidden_size)`):
            The vector of each post in each stream after the stream layers (with `num_stream_layers=0` its pooled
            vector); zeros where there is no post.
        pooler_output (`torch.FloatTensor` of shape `(batch_size, num_streams, hidden_size)`, *optional*):
            The newest post of each stream, pooled before the stream layers. Only with stream layers and `head="mlp"`.
        stream_mask (`torch.BoolTensor` of shape `(batch_size, num_streams, window)`): Where a stream has a post.
        stream_attentions (`tuple(torch.FloatTensor)`, *optional*):
            With `output_attentions=True` or `output_stream_attentions=True` one tensor of shape
            `(batch_size, num_streams, num_heads, window, window)` for each stream layer: the attention of each post
            (fourth axis) to the posts of its stream (last axis); 0 where the stream has no post.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, with `output_hidden_states=True`):
            The embeddings and the output of each layer below the stream layers, of shape
            `(batch_size, num_posts, num_tokens, hidden_size)`; 0 at padding. Gradients of the logits pass through
            them. None in the place of a layer that `output_hidden_states` does not choose.
        attentions (`tuple(torch.FloatTensor)`, *optional*, with `output_attentions=True` and eager attention):
            One tensor of shape `(batch_size, num_posts, num_heads, num_tokens, num_tokens)` for each of these layers;
            0 at padding.
    """

    last_hidden_state: torch.FloatTensor | None = None
    pooler_output: torch.FloatTensor | None = None
    stream_mask: torch.BoolTensor | None = None
    stream_attentions: tuple[torch.FloatTensor, ...] | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


def chosen(setting: bool | int | list[int], count: int) -> set[int]:
    """Which of `count` hidden states `output_hidden_states` chooses: a flag, an index or several; -1 is the last."""
    if not setting or setting is True:
        return set(range(count)) if setting else set()
    indices = [setting] if isinstance(setting, int) else setting
    return {index % count for index in indices if -count <= index < count}


class StreamPosition(nn.Module):
    """
    Adds the embedding of a post's position in the stream to all its tokens, then LayerNorm and dropout. Before a
    pre-norm layer there is no LayerNorm, and dropout only on the embedding, as on everything that such layers add.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        adapter, width = get_encoder_adapter(config.encoder_config), config.encoder_config.hidden_size
        self.embedding = StreamPositionEmbedding(config.window, width)
        self.norm = None if adapter.is_pre_norm else nn.LayerNorm(width)
        self.dropout = nn.Dropout(adapter.dropout(config.encoder_config))

    def forward(self, hidden_states: torch.Tensor, positions: torch.LongTensor) -> torch.Tensor:
        """`hidden_states` (..., hidden), `positions` of the same leading axes, or one that broadcasts to them."""
        position = self.embedding(positions)
        if self.norm is None:
            return hidden_states + self.dropout(position)
        return self.dropout(self.norm(hidden_states + position))


class StreamLayer(nn.Module):
    """What comes before one of the encoder's layers, stream positions, and after it, attention across posts."""

    def __init__(self, config: TempoFormerConfig, index: int):
        super().__init__()
        dropout = get_encoder_adapter(config.encoder_config).dropout(config.encoder_config)
        self.position = StreamPosition(config) if config.position_embeddings_per_layer[index] else None
        last = ZeroLinear if config.stream_residual else nn.Linear
        self.attention = StreamAttention(config, dropout, nn.Linear, last)


class GateAndNorm(nn.Module):
    """Gate&Norm (paper, section 4.3): `LayerNorm((1 - g) c + g c')` with `g = sigmoid(W [c; c'] + b)`."""

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        hidden_size = config.encoder_config.hidden_size
        self.gate = nn.Linear(2 * hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, cls: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        gate = self.gate(torch.cat((cls, context), dim=-1)).sigmoid()
        return self.norm((1 - gate) * cls + gate * context)


class StreamClassificationHead(nn.Module):
    """Class scores of each stream: an MLP over its newest post, or over an LSTM that reads all its posts."""

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        hidden_size = config.encoder_config.hidden_size
        self.order = config.recurrent_order
        self.dense = self.lstm = None
        if config.head == "lstm":
            # Without stream layers the posts come from the encoder's own pooler, which has a dense layer.
            self.dense = nn.Linear(hidden_size, hidden_size) if config.num_stream_layers else None
            self.lstm = nn.LSTM(hidden_size, config.lstm_hidden_size, batch_first=True)
            width = config.lstm_hidden_size
        else:
            width = 2 * hidden_size if config.num_stream_layers and has_pooler(config) else hidden_size
        self.mlp = class_layers(config, width, NarrowLinear)

    def forward(self, posts: torch.Tensor, pooled: torch.Tensor | None, stream_mask: torch.BoolTensor) -> torch.Tensor:
        if self.lstm is not None:
            features = self.read_in_turn(posts.flatten(0, 1), stream_mask.flatten(0, 1)).view(*posts.shape[:2], -1)
        else:
            features = posts[:, :, -1]
            if pooled is not None:
                features = torch.cat((pooled, features), dim=-1)
        return self.mlp(features)

    def read_in_turn(self, posts: torch.Tensor, stream_mask: torch.BoolTensor) -> torch.Tensor:
        """The LSTM's state after the last real post; `posts` (streams, window, hidden)."""
        if self.dense is not None:
            posts = self.dense(posts).tanh()
        if self.order == "reverse":
            posts, stream_mask = posts.flip(1), stream_mask.flip(1)
        # Real posts first, so that padding comes after the state that is read.
        window = stream_mask.shape[1]
        places = torch.arange(window, device=stream_mask.device)
        order = places.where(stream_mask, places + window).argsort(dim=1)
        states, _ = self.lstm(posts.gather(1, order.unsqueeze(-1).expand_as(posts)))
        length = stream_mask.sum(-1, keepdim=True)
        last = (length - 1).clamp_min(0).unsqueeze(-1).expand(-1, -1, states.shape[-1])
        return states.gather(1, last).squeeze(1)


class TempoFormerPreTrainedModel(StreamPreTrainedModel):
    """
    Loading, saving and initialisation of the paper's model (Tseriotou, Tsakalidis and Liakata, 2024).

    Args:
        config ([`TempoFormerConfig`]): The model's configuration.
    """

    config: TempoFormerConfig
    # Modules that must not be split across devices.
    _no_split_modules = ["StreamPosition", "StreamAttention", "GateAndNorm"]

    @classmethod
    def load_encoder(cls, name: str, config: TempoFormerConfig, **kwargs) -> tuple[PreTrainedModel, dict[str, Any]]:
        """The pretrained encoder `name`, with its pooler if the model uses it, and the library's loading info."""
        return get_encoder_adapter(config.encoder_config).load(name, has_pooler(config), **kwargs)


def has_pooler(config: TempoFormerConfig) -> bool:
    """Whether the encoder's pooler is used. A recurrent head over stream layers has a dense layer of its own."""
    return config.head == "mlp" or config.num_stream_layers == 0


class TempoFormerModel(StreamReaderMixin, TempoFormerPreTrainedModel):
    r"""
    An encoder whose top `num_stream_layers` layers read each post in the context of its stream (Tseriotou, Tsakalidis
    and Liakata, 2024, section 4). Posts pass through the lower layers one by one. In each stream layer the [CLS]
    vectors of a stream's posts attend to each other, rotated by log time.

    Args:
        config ([`TempoFormerConfig`]): Its `encoder_config` names the encoder.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__(config)
        self.adapter = get_encoder_adapter(config.encoder_config)
        self.encoder = self.adapter.build(config.encoder_config, add_pooler=has_pooler(config))
        # Kept outside the encoder, so that its weight names stay those of its family.
        self.pooler = self.adapter.new_pooler(config.encoder_config) if has_pooler(config) else None
        layers = range(config.num_stream_layers)
        self.stream_layers = nn.ModuleList(StreamLayer(config, index) for index in layers)
        self.fusion = GateAndNorm(config) if config.fusion == "gate" and layers else None
        self.post_init()

    @property
    def takes_time_ids(self) -> bool:
        """Whether the encoder reads the calendar time of tokens."""
        return self.adapter.takes_time_ids

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens in a post that the encoder has positions for."""
        return self.adapter.max_tokens(self.config.encoder_config)

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        stream_index: torch.LongTensor | None = None,
        elapsed: torch.FloatTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        time_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TempoFormerModelOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, stream_index, elapsed, inputs_embeds, time_ids:
                As in [`PostTempoFormerModel.forward`].
            kwargs: `output_hidden_states` (True, or the index of a layer, or a list of them), `output_attentions`,
                `output_stream_attentions` (those across posts alone), `return_dict`.

        Returns:
            [`TempoFormerModelOutput`]. Raises a `ValueError` for tensors of other shapes, and for `elapsed` that is
            missing or given unlike in training; a `TypeError` for an unknown argument. Values are not checked, as
            [`StreamCollator`] checks them.
        """
        output_hidden_states, output_attentions, output_stream_attentions = self.output_settings(kwargs)
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        inputs, streams = self.lay_out({**given, "time_ids": time_ids}, attention_mask, stream_index, elapsed)
        times = inputs.pop("time_ids", None)
        # All values that shapes depend on, in one transfer.
        of_slots = streams.slot_post.masked_fill(~streams.slot_mask, -1)
        lengths, counts, slots = read(*measure(streams.token_mask), of_slots)
        posts = PackedPosts(streams.token_mask, lengths, counts, self.adapter.runs_on_groups)

        rows = (streams.shape[0], -1)
        attentions, hidden_states = [], []
        wanted = chosen(output_hidden_states, len(self.local_layers) + 1)

        def keep(states: torch.Tensor) -> torch.Tensor:
            """Keeps hidden states to return. What is computed next starts from them, so that they get gradients."""
            joined = posts.join_states(states).unflatten(0, rows) if len(hidden_states) in wanted else None
            hidden_states.append(joined)
            return states if joined is None else posts.pack(joined.flatten(0, 1))

        with ExitStack() as hooks:
            if output_attentions:
                self.record_attentions(attentions, hooks)
            states = self.encode_posts(posts, inputs, times, keep if wanted else None)
        outputs, pooled, stream_attentions = self.read_streams(
            posts, states, times, streams, slots, output_stream_attentions
        )

        per_layer = len(attentions) // max(1, len(self.local_layers))
        return TempoFormerModelOutput(
            last_hidden_state=outputs.unflatten(0, streams.shape),
            pooler_output=None if pooled is None else pooled.unflatten(0, streams.shape),
            stream_mask=streams.slot_mask.unflatten(0, streams.shape),
            stream_attentions=tuple(weights.unflatten(0, streams.shape) for weights in stream_attentions)
            if output_stream_attentions
            else None,
            hidden_states=tuple(hidden_states) or None,
            attentions=tuple(
                posts.join_attentions(attentions[first : first + per_layer]).unflatten(0, rows)
                for first in range(0, len(attentions), max(1, per_layer))
            )
            or None,
        )

    def post_inputs(self, attention_mask: torch.LongTensor, **tokens: torch.LongTensor) -> dict[str, torch.Tensor]:
        """
        What `forward` takes of posts, without what it would compute again for each of their streams: their tokens, as
        given, since stream layers read all of them.

        Args:
            attention_mask, tokens (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`):
                As `forward` takes them.
        """
        return {"attention_mask": attention_mask, **tokens}

    def encode_posts(
        self,
        posts: PackedPosts,
        inputs: dict[str, torch.Tensor],
        time_ids: torch.LongTensor | None = None,
        keep: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        """
        Passes each real post once, by itself, through the embeddings and the layers below the stream layers.

        Args:
            posts (`PackedPosts`): The posts.
            inputs (`dict[str, torch.Tensor]`): Inputs of the embeddings, (posts, tokens) or (posts, tokens, hidden).
            time_ids (`torch.LongTensor`, *optional*): Calendar time of the tokens, (posts, tokens).
            keep (`Callable`, *optional*):
                Called with the output of the embeddings and of each layer; what it returns takes their place.

        Returns:
            The last layer's output, (1, tokens, hidden).
        """
        keep = keep or (lambda states: states)
        states = keep(self.adapter.embed(self.encoder, posts, **inputs))
        layer_inputs = self.adapter.layer_inputs(self.encoder, states, posts, time_ids)
        for layer in self.local_layers:
            states = keep(self.adapter.run_layer(layer, states, layer_inputs))
        return states

    def read_streams(
        self,
        posts: PackedPosts,
        states: torch.Tensor,
        time_ids: torch.LongTensor | None,
        streams: Streams,
        slots: list[int] | None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        """
        Passes streams of encoded posts through the stream layers. A stream has `window` slots; each may have a post.

        Args:
            posts (`PackedPosts`): The posts.
            states: Their tokens, (1, tokens, hidden).
            time_ids: Calendar time of the posts' tokens, (posts, tokens), or None.
            streams (`Streams`): Their streams.
            slots: The post in each slot of all streams, -1 where there is none; None while compiling.

        Returns:
            The posts' vectors (streams, window, hidden); the pooled newest posts (streams, hidden), if the head reads
            them; and the attention of each stream layer, if `output_attentions`. All are 0 where there is no post.
        """
        slot_post, slot_mask, tau = streams.slot_post, streams.slot_mask, streams.tau
        shape, window = slot_mask.shape[:1], slot_mask.shape[1]
        visible = streams.visible
        stream_ids = torch.arange(shape[0], device=slot_mask.device)
        if slots is not None:
            # Without any, one stream of no posts, so that no layer gets an empty batch.
            real = [number for number, newest in enumerate(slots[window - 1 :: window]) if newest >= 0] or [0]
            slots = [post for number in real for post in slots[number * window : (number + 1) * window]]
            stream_ids = to_device(real, slot_mask.device)
            slot_post, slot_mask, visible = slot_post[stream_ids], slot_mask[stream_ids], visible[stream_ids]
            tau = None if tau is None else tau[stream_ids.to(tau.device)]
        pooled = posts.join(self.pool(posts.first_tokens(states))) if has_pooler(self.config) else None
        attentions = []
        if len(self.stream_layers):
            outputs, attentions = self.run_stream_layers(
                posts, states, time_ids, slot_post.flatten(), slots, visible, tau, output_attentions
            )
        else:
            outputs, pooled = pooled[slot_post.to(pooled.device)], None
        outputs = outputs.masked_fill(~slot_mask.unsqueeze(-1).to(outputs.device), 0.0)
        if output_attentions:
            queries = slot_mask[:, None, :, None]
            attentions = [scatter(weights * queries.to(weights.device), stream_ids, shape) for weights in attentions]
        pooled = None if pooled is None else scatter(pooled[slot_post[:, -1].to(pooled.device)], stream_ids, shape)
        return scatter(outputs, stream_ids, shape), pooled, attentions

    def copy_posts(
        self, posts: PackedPosts, states: torch.Tensor, chosen: torch.LongTensor, numbers: list[int] | None
    ) -> tuple[PackedPosts, torch.Tensor]:
        """`posts` and their `states`, a copy for each index in `chosen`; `numbers` are these indices on the host."""
        lengths = counts = None
        if numbers is not None:
            lengths, counts = ([values[post] for post in numbers] for values in (posts.lengths, posts.counts))
        copies = PackedPosts(posts.mask[chosen], lengths, counts, self.adapter.runs_on_groups)
        tokens = chosen[copies.rows] * posts.mask.shape[1] + copies.columns
        return copies, states.index_select(1, posts.find(tokens).to(states.device))

    def pool(self, cls: torch.Tensor) -> torch.Tensor:
        """Pools [CLS] states (posts, hidden) with the encoder's pooler, or with ours if it has none."""
        pooler = self.encoder.pooler if self.pooler is None else self.pooler
        return pooler(self.adapter.final_norm(self.encoder, cls).unsqueeze(1))

    @property
    def local_layers(self) -> nn.ModuleList:
        """The encoder's layers below the stream layers."""
        layers = self.adapter.layers(self.encoder)
        return layers[: len(layers) - len(self.stream_layers)]

    def record_attentions(self, attentions: list[torch.Tensor], hooks: ExitStack):
        """Appends the attention inside posts to `attentions` until `hooks` closes, if the backend returns it."""
        if self.encoder.config._attn_implementation != "eager":
            if not torch.compiler.is_compiling():
                logger.warning_once("Attention inside posts is returned only with `attn_implementation='eager'`.")
            return
        for layer in self.local_layers:
            hook = self.adapter.self_attention(layer).register_forward_hook(
                # A list of the groups of posts, or what the layer returns for one group.
                lambda module, args, output: attentions.extend(
                    output[1] if isinstance(output[1], list) else [output[1]]
                )
            )
            hooks.callback(hook.remove)

    def run_stream_layers(
        self,
        posts: PackedPosts,
        states: torch.Tensor,
        time_ids: torch.LongTensor | None,
        slot_post: torch.LongTensor,
        slots: list[int] | None,
        stream_mask: torch.BoolTensor,
        tau: torch.Tensor | None,
        output_attentions: bool,
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """
        Runs the stream layers. The last one computes [CLS] only, because nothing else is used.

        Args:
            posts, states, time_ids: As in `read_streams`.
            slot_post, slots: The post in each slot, (streams * window,), and -1 in `slots` where there is none;
                `slots` is None while compiling.
            stream_mask: True for posts that can be attended to, (streams, window).
            tau: (streams, window), or None for no rotation.

        Returns:
            The posts' vectors (streams, window, hidden), and the attention of each stream layer.
        """
        window = stream_mask.shape[1]
        places = StreamPlaces(slot_post, slots, window)
        posts, states = self.copy_posts(posts, states, places.posts, places.numbers)
        times = None if time_ids is None else time_ids[places.posts]
        # The newest post always has the last position.
        positions = places.positions + (self.config.window - window)
        layer_inputs = self.adapter.layer_inputs(self.encoder, states, posts, times)
        layers = self.adapter.layers(self.encoder)[-len(self.stream_layers) :]
        # The slots of the posts in their order, as soon as each has one.
        slot_ids = places.slots[posts.order] if places.of_slots is None else None
        attentions = []
        for index, (stream_layer, layer) in enumerate(zip(self.stream_layers, layers, strict=True)):
            is_last = index == len(self.stream_layers) - 1
            if stream_layer.position is not None:
                states = stream_layer.position(states, positions[posts.rows].unsqueeze(0))
            if is_last:
                cls = self.adapter.run_layer_for_cls(layer, states, layer_inputs, posts)
            else:
                states = self.adapter.run_layer(layer, states, layer_inputs)
                cls = posts.first_tokens(states)
            if index == 0 and places.of_slots is not None:
                # What is computed next depends on the stream, so that each slot gets a copy of its own.
                cls = posts.join(cls)[places.of_slots.to(cls.device)]
                posts, states = self.copy_posts(posts, states, places.of_slots, places.numbers_of_slots)
                cls, slot_ids = cls[posts.order.to(cls.device)], places.slots[posts.order]
                times = None if times is None else times[places.of_slots]
                positions = positions[places.of_slots]
                layer_inputs = self.adapter.layer_inputs(self.encoder, states, posts, times)
            raw_cls = scatter(cls, slot_ids, stream_mask.shape)
            cls = self.adapter.final_norm(self.encoder, raw_cls)
            context, weights = stream_layer.attention(cls.unsqueeze(0), stream_mask, tau, output_attentions)
            context = context.squeeze(0)
            if self.config.stream_residual:
                context = context + (cls if is_last else raw_cls).to(context.device)
            attentions.append(weights)
            if not is_last:
                # Under autocast the two need not have the same dtype.
                new_cls = context.flatten(0, 1)[slot_ids.to(context.device)].to(states)
                states = states.index_copy(1, posts.first.to(states.device), new_cls.unsqueeze(0))
        return (context if self.fusion is None else self.fusion(cls, context)), attentions


class TempoFormerForStreamClassification(StreamClassificationMixin, TempoFormerPreTrainedModel):
    r"""
    [`TempoFormerModel`] with a head that classifies the newest post of each stream, trained with the focal loss
    (Tseriotou, Tsakalidis and Liakata, 2024, section 4). `step` classifies posts as they arrive.

    Args:
        config ([`TempoFormerConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__(config)
        self.tempoformer = TempoFormerModel(config)
        self.classifier = StreamClassificationHead(config)
        self.post_init()

    def classify_streams(
        self, outputs: TempoFormerModelOutput, place: torch.Tensor | None, elapsed: torch.Tensor | None
    ) -> torch.Tensor:
        """Logits (1, batch_size, num_streams, num_labels) of what the model without the head returns."""
        return self.classifier(outputs.last_hidden_state, outputs.pooler_output, outputs.stream_mask).unsqueeze(0)


__all__ = ["StreamState", "TempoFormerForStreamClassification", "TempoFormerModel", "TempoFormerPreTrainedModel"]
