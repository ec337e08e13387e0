"""TempoFormer (Tseriotou, Tsakalidis and Liakata, 2024): change detection in streams of posts."""

from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple, logging
from transformers.utils.output_capturing import capture_outputs

from .checks_tempoformer import check_shape
from .configuration_tempoformer import TempoFormerConfig
from .modeling_streams_tempoformer import (
    HeadLinear,
    StreamAttention,
    StreamClassificationMixin,
    StreamClassifierOutput,
    StreamPositionEmbedding,
    StreamPreTrainedModel,
    StreamReaderMixin,
    Streams,
    ZeroStart,
    class_layers,
    focal_loss,
    has_equal_calls,
)
from .modeling_tempoformer_encoders import Pooler, get_encoder_adapter
from .packing_tempoformer import PostGroups, arrangement, read, scatter, to_device


logger = logging.get_logger(__name__)


@dataclass
class TempoFormerModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, num_streams, window, hidden_size)`):
            The vector of each post in each stream after the stream layers (with `num_stream_layers=0` its pooled
            vector); zeros where there is no post.
        pooler_output (`torch.FloatTensor` of shape `(batch_size, num_streams, hidden_size)`, *optional*):
            The newest post of each stream, pooled before the stream layers. It is None without stream layers, or with
            another head than `"mlp"`.
        stream_mask (`torch.BoolTensor` of shape `(batch_size, num_streams, window)`): True for the posts of a stream,
            False for padding.
        stream_attentions (`tuple(torch.FloatTensor)`, *optional*):
            With `output_attentions=True` or `output_stream_attentions=True` one tensor of shape
            `(batch_size, num_streams, num_heads, window, window)` for each stream layer: the attention of each post
            (fourth axis) to the posts of its stream (last axis); 0 where the stream has no post.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, with `output_hidden_states=True`):
            The embeddings and the output of each layer below the stream layers, of shape
            `(batch_size, num_posts, num_tokens, hidden_size)`; 0 at padding. Gradients of the logits pass through
            them.
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


class StreamPosition(nn.Module):
    """
    Adds the embedding of a post's position in the stream to all its tokens, then applies LayerNorm and dropout. Before
    a pre-norm layer it applies no LayerNorm, and dropout only to the embedding: such layers drop out what they add.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        adapter, width = get_encoder_adapter(config.encoder_config), config.encoder_config.hidden_size
        self.embedding = StreamPositionEmbedding(config.window, width)
        self.norm = None if adapter.is_pre_norm else nn.LayerNorm(width)
        self.dropout = nn.Dropout(adapter.dropout(config.encoder_config))

    def forward(self, hidden_states: torch.Tensor, positions: torch.LongTensor) -> torch.Tensor:
        """Returns new states. `hidden_states` is (..., hidden); `positions` broadcasts to its leading axes."""
        position = self.embedding(positions)
        if self.norm is None:
            return hidden_states + self.dropout(position)
        return self.dropout(self.norm(hidden_states + position))


class ResidualLinear(ZeroStart, nn.Linear):
    """The output projection of an attention inside a residual connection."""


class TempoFormerStreamLayer(nn.Module):
    """Stream positions before one of the encoder's layers, and attention across posts after it."""

    def __init__(self, config: TempoFormerConfig, index: int):
        super().__init__()
        dropout = get_encoder_adapter(config.encoder_config).dropout(config.encoder_config)
        self.position = StreamPosition(config) if config.position_embeddings_per_layer[index] else None
        last = ResidualLinear if config.stream_residual else nn.Linear
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
        self.mlp = class_layers(config, width, HeadLinear)

    def forward(self, posts: torch.Tensor, pooled: torch.Tensor | None, stream_mask: torch.BoolTensor) -> torch.Tensor:
        if self.lstm is not None:
            features = self.final_lstm_state(posts.flatten(0, 1), stream_mask.flatten(0, 1)).view(*posts.shape[:2], -1)
        else:
            features = posts[:, :, -1]
            if pooled is not None:
                features = torch.cat((pooled, features), dim=-1)
        return self.mlp(features)

    def final_lstm_state(self, posts: torch.Tensor, stream_mask: torch.BoolTensor) -> torch.Tensor:
        """Returns the LSTM's state after the last real post of `posts` (streams, window, hidden)."""
        if self.dense is not None:
            posts = self.dense(posts).tanh()
        if self.order == "reverse":
            posts, stream_mask = posts.flip(1), stream_mask.flip(1)
        # Real posts first, so that padding comes after the state that is read.
        window = stream_mask.shape[1]
        positions = torch.arange(window, device=stream_mask.device)
        order = positions.where(stream_mask, positions + window).argsort(dim=1)
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
        """Returns the pretrained encoder, with its pooler if the model uses it, and the library's loading info."""
        adapter = get_encoder_adapter(config.encoder_config)
        return adapter.load(name, has_pooler(config), config=config.encoder_config, **kwargs)


def zero_outside(mask: torch.BoolTensor, values: torch.Tensor) -> torch.Tensor:
    """Returns `values` (..., n), with 0 where `mask` (...) is False."""
    return values.masked_fill(~mask.unsqueeze(-1).to(values.device), 0.0)


def has_pooler(config: TempoFormerConfig) -> bool:
    """Returns whether the encoder's pooler is used. A recurrent head over stream layers has its own dense layer."""
    return config.head == "mlp" or config.num_stream_layers == 0


class TempoFormerModel(StreamReaderMixin, TempoFormerPreTrainedModel):
    r"""
    An encoder whose top `num_stream_layers` layers read each post in the context of its stream (Tseriotou, Tsakalidis
    and Liakata, 2024, section 4). Posts pass through the lower layers one by one. In each stream layer the [CLS]
    vectors of a stream's posts attend to each other, rotated by log time.

    Args:
        config ([`TempoFormerConfig`]): Its `encoder_config` names the encoder.
        encoder (`PreTrainedModel`, *optional*): The encoder, as the adapter of its family loads it; a new one is built
            if omitted.
    """

    # Lets `encode_posts` record attentions; the encoder's class says in which of its modules.
    _can_record_outputs = {"attentions": StreamAttention}

    def __init__(self, config: TempoFormerConfig, encoder: PreTrainedModel | None = None):
        super().__init__(config)
        self.adapter = get_encoder_adapter(config.encoder_config)
        encoder = self.adapter.build(config.encoder_config, has_pooler(config)) if encoder is None else encoder
        self.encoder = self.adapter.prepare(encoder)
        # Kept outside the encoder, so that its weights keep the names of its family.
        add_pooler = has_pooler(config) and not self.adapter.takes_pooler
        self.pooler = Pooler(config.encoder_config) if add_pooler else None
        layers = range(config.num_stream_layers)
        self.stream_layers = nn.ModuleList(TempoFormerStreamLayer(config, index) for index in layers)
        self.fusion = GateAndNorm(config) if config.fusion == "gate" and layers else None
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        stream_index: torch.LongTensor | None = None,
        elapsed: torch.FloatTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TempoFormerModelOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, stream_index, elapsed, inputs_embeds:
                Inputs of [`PostTempoFormerModel.forward`].
            kwargs: `output_hidden_states`, `output_attentions`, `output_stream_attentions` (those across posts alone),
                `return_dict`.

        Returns:
            [`TempoFormerModelOutput`]. Raises the errors of [`PostTempoFormerModel.forward`].
        """
        output_hidden_states, output_attentions, output_stream_attentions = self.output_settings(kwargs)
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        inputs, streams = self.lay_out(given, attention_mask, stream_index, elapsed)
        # All values that shapes depend on, in one transfer
        mask, slots = read(streams.token_mask, streams.slot_post.masked_fill(~streams.slot_mask, -1))
        posts = arrangement(self.encoder)(streams.token_mask, mask, has_equal_calls(self))

        if output_attentions and self.encoder.config._attn_implementation != "eager":
            if not torch.compiler.is_compiling():
                logger.warning_once("Attention inside posts is returned only with `attn_implementation='eager'`.")
            output_attentions = False
        rows = (streams.shape[0], -1)
        encoded = self.encode_posts(
            posts, inputs, rows[0], output_hidden_states, output_attentions=output_attentions, return_dict=True
        )
        states, attentions = encoded["states"], encoded.get("attentions", ())
        slots = None if slots is None else slots.flatten().tolist()
        outputs, pooled, stream_attentions = self.read_streams(posts, states, streams, slots, output_stream_attentions)

        per_layer, by_row = len(posts.members), partial(torch.unflatten, dim=0, sizes=streams.shape)
        return TempoFormerModelOutput(
            last_hidden_state=by_row(outputs),
            pooler_output=None if pooled is None else by_row(pooled),
            stream_mask=by_row(streams.slot_mask),
            stream_attentions=tuple(map(by_row, stream_attentions)) if output_stream_attentions else None,
            hidden_states=tuple(encoded["hidden_states"]) or None,
            attentions=tuple(
                posts.join_attentions(attentions[first : first + per_layer]).unflatten(0, rows)
                for first in range(0, len(attentions), per_layer)
            )
            or None,
        )

    def post_inputs(self, attention_mask: torch.LongTensor, **tokens: torch.LongTensor) -> dict[str, torch.Tensor]:
        """Returns the posts as given, since the stream layers read all of their tokens."""
        return {"attention_mask": attention_mask, **tokens}

    @capture_outputs
    def encode_posts(
        self,
        posts: PostGroups,
        inputs: dict[str, torch.Tensor],
        num_rows: int,
        output_hidden_states: bool,
        **kwargs: Unpack[TransformersKwargs],
    ) -> dict[str, list[torch.Tensor]]:
        """
        Passes each real post once, by itself, through the embeddings and the layers below the stream layers. Returns
        `states`, the last layer's output (posts, width, hidden) of each group; `hidden_states`, if asked for, those
        of all layers (rows, posts, tokens, hidden); and with `output_attentions=True` the library's record,
        `attentions` (posts, heads, width, width) of each layer and group.
        """
        positions = posts.split_positions(self.encoder, inputs.get("input_ids"))
        groups = zip(positions, *(posts.split(values) for values in inputs.values()), strict=True)
        states = [
            self.adapter.embed(self.encoder, **position, **dict(zip(inputs, group, strict=True)))
            for position, *group in groups
        ]
        layer_inputs, hidden_states = self.layer_inputs(posts, states), []
        for layer in (None, *self.local_layers):
            if layer is not None:
                states = self.run_layer(layer, states, layer_inputs)
            if output_hidden_states:
                joined = zero_outside(posts.mask, posts.join_states(states))
                hidden_states.append(joined.unflatten(0, (num_rows, -1)))
                # The next layer reads the returned states, so that they get gradients.
                states = posts.split(hidden_states[-1].flatten(0, 1))
        return {"states": states, "hidden_states": hidden_states}

    def layer_inputs(self, posts: PostGroups, states: list[torch.Tensor]) -> list[dict[str, Any]]:
        """Returns the arguments of layers for each group besides its states."""
        groups = zip(states, posts.masks, strict=True)
        return [self.adapter.layer_inputs(self.encoder, *group) for group in groups]

    def run_layer(
        self, layer: nn.Module, states: list[torch.Tensor], inputs: list[dict[str, Any]]
    ) -> list[torch.Tensor]:
        """Returns one layer's output for each group."""
        return [self.adapter.run_layer(layer, *group) for group in zip(states, inputs, strict=True)]

    def read_streams(
        self,
        posts: PostGroups,
        states: list[torch.Tensor],
        streams: Streams,
        slots: list[int] | None,
        output_attentions: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        """
        Passes streams of encoded posts through the stream layers. `slots` are the posts in all slots, -1 where there
        is none, or None while compiling. Returns the posts' vectors (streams, window, hidden); the pooled newest posts
        (streams, hidden), if the head reads them; and the attention of each layer. All are 0 where there is no post.
        """
        slot_post, slot_mask = streams.slot_post, streams.slot_mask
        pooled = None
        if has_pooler(self.config):
            pooled = self.pool(posts.join(posts.first(states)))
        if not len(self.stream_layers):
            return zero_outside(slot_mask, pooled[slot_post.to(pooled.device)]), None, []
        outputs, attentions = self.run_stream_layers(posts, states, streams, slots, output_attentions)
        if pooled is not None:
            pooled = zero_outside(slot_mask[:, -1], pooled[slot_post[:, -1].to(pooled.device)])
        if output_attentions:
            attentions = [zero_outside(slot_mask.unsqueeze(1), weights) for weights in attentions]
        return zero_outside(slot_mask, outputs), pooled, attentions

    def copy_posts(
        self, posts: PostGroups, states: list[torch.Tensor], source: torch.LongTensor, numbers: list[int] | None
    ) -> tuple[PostGroups, list[torch.Tensor]]:
        """Returns a copy of a post and its states for each index in `source`; `numbers` has these on the host."""
        host_mask = None if numbers is None else posts.host_mask[numbers]
        copies = type(posts)(posts.mask[source], host_mask, posts.as_one)
        return copies, copies.split(posts.join_states(states), source)

    def pool(self, cls: torch.Tensor) -> torch.Tensor:
        """Pools [CLS] states (posts, hidden) with the encoder's pooler, or with ours if it has none."""
        pooler = self.encoder.pooler if self.pooler is None else self.pooler
        return pooler(self.adapter.final_norm(self.encoder, cls).unsqueeze(1))

    @property
    def local_layers(self) -> nn.ModuleList:
        """The encoder's layers below the stream layers."""
        layers = self.adapter.layers(self.encoder)
        return layers[: len(layers) - len(self.stream_layers)]

    def run_stream_layers(
        self,
        posts: PostGroups,
        states: list[torch.Tensor],
        streams: Streams,
        slots: list[int] | None,
        output_attentions: bool,
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """Returns the posts' vectors and attentions of `read_streams`, with any values where there is no post."""
        window, device = streams.slot_post.shape[1], streams.slot_post.device
        layers = self.adapter.layers(self.encoder)[-len(self.stream_layers) :]
        numbers = shared = None
        if slots is None:
            filled, source = torch.arange(streams.slot_post.numel(), device=device), streams.slot_post.flatten()
            # Not `filled % window`, because ONNX has no remainder by an unknown size.
            positions = torch.arange(window, device=device).expand(streams.slot_post.shape).flatten()
        else:
            # Without any post, a slot of padding, so that no layer gets an empty batch.
            filled = [slot for slot, post in enumerate(slots) if post >= 0] or [0]
            # A post, and its position in the stream
            pairs = [(max(0, slots[slot]), slot % window) for slot in filled]
            distinct = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
            if len(layers) > 1 and len(distinct) < len(pairs):
                # The first layer reads a post at a position once, however many streams have it there.
                shared, pairs = [distinct[pair] for pair in pairs], list(distinct)
            numbers, positions = map(list, zip(*pairs, strict=True))
            filled, source, positions = (to_device(values, device) for values in (filled, numbers, positions))
        posts, states = self.copy_posts(posts, states, source, numbers)
        # The newest post always has the last position.
        positions = positions + (self.config.window - window)
        inputs = self.layer_inputs(posts, states)
        attentions = []
        for index, (stream_layer, layer) in enumerate(zip(self.stream_layers, layers, strict=True)):
            is_last = index == len(layers) - 1
            if stream_layer.position is not None:
                states = [stream_layer.position(*group) for group in zip(states, posts.spread(positions), strict=True)]
            if is_last and self.adapter.reads_cls_alone:
                posts, states = posts.to_groups(states)
                groups = zip(states, posts.masks, strict=True)
                cls = [self.adapter.run_layer_for_cls(layer, *group) for group in groups]
            else:
                states = self.run_layer(layer, states, inputs)
                if shared is not None:
                    source = to_device(shared, device)
                    posts, states = self.copy_posts(posts, states, source, shared)
                    positions = positions[source]
                    inputs, shared = self.layer_inputs(posts, states), None
                cls = posts.first(states)
            raw_cls = scatter(posts.join(cls), filled, streams.slot_post.shape)
            cls = self.adapter.final_norm(self.encoder, raw_cls)
            context, weights = stream_layer.attention(cls.unsqueeze(0), streams, output_attentions)
            context = context.squeeze(0)
            if self.config.stream_residual:
                context = context + (cls if is_last else raw_cls).to(context.device)
            attentions.append(weights)
            if not is_last:
                contexts = posts.select(context.flatten(0, 1)[filled.to(context.device)])
                states = posts.replace_first(states, contexts)
        return (context if self.fusion is None else self.fusion(cls, context)), attentions


class TempoFormerForStreamClassification(StreamClassificationMixin, TempoFormerPreTrainedModel):
    r"""
    [`TempoFormerModel`] with a head that classifies the newest post of each stream, trained with the focal loss
    (Tseriotou, Tsakalidis and Liakata, 2024, section 4).

    Args:
        config ([`TempoFormerConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
        encoder (`PreTrainedModel`, *optional*): The encoder. By default one of the configuration, with new weights.
    """

    def __init__(self, config: TempoFormerConfig, encoder: PreTrainedModel | None = None):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.tempoformer = TempoFormerModel(config, encoder)
        self.classifier = StreamClassificationHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        stream_index: torch.LongTensor | None = None,
        elapsed: torch.FloatTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        timeline_position: torch.FloatTensor | None = None,
        speaker_posts: torch.LongTensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> StreamClassifierOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, stream_index, elapsed, inputs_embeds:
                Inputs of [`TempoFormerModel`].
            timeline_position (`torch.FloatTensor` of shape `(batch_size, num_streams, 2)`, *optional*):
                Number of posts of the timeline before the newest one, and seconds since its first. Needed with
                `first_posts`.
            speaker_posts (`torch.LongTensor`, *optional*): Ignored, so that one batch fits both models.
            labels (`torch.LongTensor` of shape `(batch_size, num_streams)`, *optional*):
                Class of each stream's newest post; -100 for none.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                The number of labelled streams in all batches of an optimiser step. Refused without `labels`, as a
                Trainer then computes another loss than the model's.
            kwargs: Inputs of [`TempoFormerModel`].

        Returns:
            [`StreamClassifierOutput`]. Raises the errors of [`TempoFormerModel`].
        """
        self.check_loss(labels, num_items_in_batch)
        outputs = self.tempoformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            stream_index=stream_index,
            elapsed=elapsed,
            inputs_embeds=inputs_embeds,
            **kwargs,
            return_dict=True,
        )
        logits = self.classifier(outputs.last_hidden_state, outputs.pooler_output, outputs.stream_mask)
        logits = self.without_first_posts(logits, self.find_first_posts(timeline_position))
        logits, loss = logits.masked_fill(~outputs.stream_mask[..., -1:].to(logits.device), 0.0), None
        if labels is not None:
            check_shape("labels", labels, *logits.shape[:2])
            settings = self.config.focal_gamma, self.config.class_weights, num_items_in_batch
            loss = focal_loss(logits, labels.to(logits.device), *settings)
        return StreamClassifierOutput(
            loss=loss,
            logits=logits,
            stream_attentions=outputs.stream_attentions,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = ["TempoFormerForStreamClassification", "TempoFormerModel", "TempoFormerPreTrainedModel"]
