"""
The post model, this project's default: an encoder reads each post once, and new layers read one vector for each post
of a stream, with the temporal rotation of TempoFormer (Tseriotou, Tsakalidis and Liakata, 2024, section 4.2).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import torch
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.dynamic_module_utils import custom_object_save
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple

from .checks_tempoformer import check_shape
from .configuration_post_tempoformer import PostTempoFormerConfig
from .experts_tempoformer import ADDRESS_SIZE, FittedModule, Mixture, States, Trees, Words, compare_addressees
from .modeling_streams_tempoformer import (
    HeadStart,
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
from .packing_tempoformer import GPU_TOKENS, PackedPosts, Packing, arrangement, read


# Streams that new layers read at once on a CPU.
STREAMS_AT_ONCE = 32
# Added to a variance by a layer norm
NORM_EPSILON = 1e-5
# Encoders that are not the library's, by `encoder_backend`. A module that has one adds it when it is imported.
ENCODERS: dict[str, type[nn.Module]] = {}


@dataclass
class PostTempoFormerModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, num_streams, num_members * head_width)`):
            Input of the head for each stream, the members side by side; 0 for a stream without posts. Each member has
            the newest post after the stream layers, its difference from each post that it is compared with (its
            speaker's own previous post, if the model reads speakers, and the post before it), the absolute values of
            these differences (each `stream_hidden_size`), and the cosines.
        stream_mask (`torch.BoolTensor` of shape `(batch_size, num_streams, window)`): True for the posts of a stream,
            False for padding.
        compared (`torch.FloatTensor` of shape `(batch_size, num_streams, num_compared + 1, hidden_size)`):
            The vectors of the posts that the newest one of each stream is compared with, then of the newest; 0 where
            there is none.
        cosines (`torch.FloatTensor` of shape `(batch_size, num_streams, num_compared + 1)`):
            The cosines of the newest post's vector with those that it is compared with, and with the mean direction of
            all before it.
        word_logits (`torch.FloatTensor` of shape `(batch_size, num_streams, num_members, num_labels)`, *optional*):
            The logits of each member from the words of the newest post, if the model reads words.
        addressed (`torch.FloatTensor` of shape `(batch_size, num_streams, 4)`, *optional*):
            To whom the newest post and those before it are addressed ([`~experts_tempoformer.compare_addressees`]), if
            the model reads words.
        stream_attentions (`tuple(torch.FloatTensor)`, *optional*):
            With `output_attentions=True` or `output_stream_attentions=True` one tensor of shape
            `(batch_size, num_streams, num_members * num_heads, window, window)` for each stream layer: the attention
            of each post (fourth axis) to the posts of its stream (last axis); 0 where the stream has no post.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, with `output_hidden_states=True`):
            The input of the first stream layer and the output of each, of shape
            `(batch_size, num_streams, window, num_members * stream_hidden_size)`.
    """

    last_hidden_state: torch.FloatTensor | None = None
    stream_mask: torch.BoolTensor | None = None
    compared: torch.FloatTensor | None = None
    cosines: torch.FloatTensor | None = None
    word_logits: torch.FloatTensor | None = None
    addressed: torch.FloatTensor | None = None
    stream_attentions: tuple[torch.FloatTensor, ...] | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class StreamLayersOutput(ModelOutput):
    """The results of stream layers on the vectors of posts (posts, hidden)."""

    heads: torch.Tensor | None = None  # their input (members, streams, config.head_width), or of width 0
    # the vectors of the posts that the newest is compared with, and of the newest (streams, compared + 1, hidden)
    compared: torch.Tensor | None = None
    cosines: torch.Tensor | None = None  # of the newest post (streams, compared + 1)
    # with `all_posts`, the input of the first layer and the output of each (members, streams, window, width)
    states: list[torch.Tensor] | None = None
    weights: list[torch.Tensor | None] | None = None  # with `output_attentions`, the attention of each layer


class MemberLinear(nn.Module):
    """
    One linear layer for each member of the ensemble. Maps (members, ..., inputs), or (1, ..., inputs) if all members
    have the same input, to (members, ..., outputs). The `scale` and `shift` (members, inputs) of a layer norm before
    it are multiplied into the weights, which are fewer than the inputs.
    """

    def __init__(self, members: int, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.in_features = inputs
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs)) if bias else None

    def forward(
        self, states: torch.Tensor, scale: torch.Tensor | None = None, shift: torch.Tensor | None = None
    ) -> torch.Tensor:
        weight, bias = self.weight, self.bias
        rows = states.expand(weight.shape[0], *states.shape[1:]).flatten(1, -2)
        if scale is not None:
            added = shift.unsqueeze(1) @ weight
            weight, bias = scale.unsqueeze(-1) * weight, added if bias is None else bias + added
        outputs = rows @ weight if bias is None else torch.baddbmm(bias, rows, weight)
        return outputs.unflatten(1, states.shape[1:-1])


class MemberHeadLinear(HeadStart, MemberLinear):
    """A linear layer of each member's head."""


class MemberResidualLinear(ZeroStart, MemberLinear):
    """The output projection of each member's attention, inside a residual connection."""


class MemberLayerNorm(nn.Module):
    """
    One layer norm for each member, of (members, ..., width). The library initialises it by its class name. With
    `for_linear` returns the arguments of [`MemberLinear`] that a linear layer after the norm takes.
    """

    def __init__(self, members: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, width))
        self.bias = nn.Parameter(torch.zeros(members, width))

    def forward(
        self, states: torch.Tensor, for_linear: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        shape = (-1, *[1] * (states.dim() - 2), states.shape[-1])
        normal = nn.functional.layer_norm(states, states.shape[-1:], eps=NORM_EPSILON)
        if for_linear:
            return normal, self.weight, self.bias
        return torch.addcmul(self.bias.view(shape), normal, self.weight.view(shape))


class PostTempoFormerPreTrainedModel(StreamPreTrainedModel):
    """
    Loading, saving and initialisation of the post model.

    Args:
        config ([`PostTempoFormerConfig`]): The model's configuration.
    """

    config: PostTempoFormerConfig
    # Modules that must not be split across devices.
    _no_split_modules = ["PostTempoFormerStreamLayers"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, MemberLinear) and not isinstance(module, (HeadStart, ZeroStart)):
            init.normal_(module.weight, std=getattr(self.config.encoder_config, "initializer_range", 0.02))
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, Mixture):
            for weights in (module.weights, module.held_out):
                init.copy_(weights, torch.eye(weights.shape[-1])[0].expand_as(weights))
        elif isinstance(module, FittedModule):
            # An expert that is not fitted yet gives all classes the same probability.
            start = {"scale": 1.0, "class_weights": 1.0}
            start |= dict.fromkeys(("leaves", "change", "held_out_change"), 1 / self.config.num_labels) | {"marks": -1}
            for name, values in module.named_buffers():
                init.constant_(values, start.get(name, 0.0))

    @staticmethod
    def encoder_class(config: PreTrainedConfig) -> Any:
        """Returns the Auto class of the encoder: `AutoModelForTextEncoding` where `AutoModel` would add a decoder."""
        whole, encoder = (kind.get(type(config), None) for kind in (MODEL_MAPPING, MODEL_FOR_TEXT_ENCODING_MAPPING))
        return AutoModel if encoder in (None, whole) else AutoModelForTextEncoding

    @classmethod
    def load_encoder(
        cls, name: str, config: PostTempoFormerConfig, **kwargs
    ) -> tuple[PreTrainedModel, dict[str, Any]]:
        """Returns the pretrained encoder `name`, without its pooler, and the library's loading info."""
        # The library's own class even if the encoder's repository has code, as when the saved model is loaded.
        kwargs |= {"config": config.encoder_config, "output_loading_info": True}
        encoder, info = cls.encoder_class(config.encoder_config).from_pretrained(name, **kwargs)
        encoder.pooler = None
        return encoder, info

    def save_pretrained(self, save_directory, **kwargs):
        """Saves the model as the library does, with the code of an encoder that is not one of the library's."""
        super().save_pretrained(save_directory, **kwargs)
        if not isinstance(encoder := self.base_model.encoder, PreTrainedModel):
            custom_object_save(encoder, save_directory)


class PostTempoFormerStreamLayer(GradientCheckpointingLayer):
    """A pre-norm layer: stream positions, attention across the posts of a stream, and a feed-forward network."""

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        members, width = config.num_members, config.stream_hidden_size
        linear, last = (partial(kind, members) for kind in (MemberLinear, MemberResidualLinear))
        self.position = StreamPositionEmbedding(config.window, members * width)
        self.dropout = nn.Dropout(config.stream_dropout)
        self.attention_norm = MemberLayerNorm(members, width)
        self.attention = StreamAttention(config, config.stream_dropout, linear, last)
        self.mlp_norm = MemberLayerNorm(members, width)
        self.mlp = nn.Sequential(linear(width, 4 * width), nn.GELU(), linear(4 * width, width), self.dropout)

    def forward(
        self,
        posts: torch.Tensor,
        slot_post: torch.LongTensor,
        streams: Streams,
        output_attentions: bool,
        only_newest: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Returns the slots of streams after the layer (members, streams, window, width), with `only_newest` the newest
        alone, and their attention, as [`StreamAttention.attend`] does. `posts` are (members, posts, width).
        """
        # The newest post always has the last position.
        last, window = self.position.num_embeddings, slot_post.shape[1]
        positions = self.position(torch.arange(last - window, last, device=posts.device))
        positions = self.dropout(positions.unflatten(-1, (posts.shape[0], -1)).transpose(0, 1))
        queries = slice(-1, None) if only_newest else slice(None)
        query_post, query_positions = slot_post[:, queries], positions[:, queries]
        attention = self.attention
        projected = project_slots(self.attention_norm, [attention.q_proj], posts, query_post, query_positions)
        linears = [attention.k_proj, attention.v_proj]
        projected += project_slots(self.attention_norm, linears, posts, slot_post, positions)
        context, weights = attention.attend(*projected, streams, output_attentions)
        context = context + posts[:, query_post] + query_positions.unsqueeze(1)
        return context + self.mlp(self.mlp_norm(context)), weights


def project_slots(
    norm: MemberLayerNorm,
    linears: list[MemberLinear],
    posts: torch.Tensor,
    slot_post: torch.LongTensor,
    positions: torch.Tensor,
) -> list[torch.Tensor]:
    """
    Returns `linear(norm(post + position))` of each slot (members, streams, slots, outputs) by each of `linears`, for
    `posts` (members, posts, width) and `positions` (members, slots, width).
    """
    if torch.compiler.is_compiling() or slot_post.numel() <= posts.shape[1]:
        normal = norm(posts[:, slot_post] + positions.unsqueeze(1), for_linear=True)
        return [linear(*normal) for linear in linears]
    # A post stands in many streams. All is linear but the division by the spread of a sum, so that each post and each
    # position is projected once. The last row, of zeros, gives what norm and layer add.
    parts = torch.cat((posts, positions, torch.zeros_like(posts[:, :1])), dim=1)
    normal = norm(parts, for_linear=True)
    # In float32, as 16 bits are too coarse for the difference of squares.
    wide = parts.float()
    wide = wide - wide.mean(-1, keepdim=True)
    variance = wide.square().mean(-1, keepdim=True)
    wide_posts, wide_positions = wide[:, : posts.shape[1]], wide[:, posts.shape[1] : -1]
    sums = variance[:, : posts.shape[1]] + wide_posts @ wide_positions.mT * (2 / posts.shape[-1])
    slots = torch.arange(slot_post.shape[1], device=slot_post.device)
    sums = sums[:, slot_post, slots] + variance[:, posts.shape[1] : -1].mT
    scale = sums.clamp_min(0).add(NORM_EPSILON).rsqrt().to(posts.dtype).unsqueeze(-1)
    spread = variance.add(NORM_EPSILON).sqrt().to(posts.dtype)
    projected = []
    for linear in linears:
        values = linear(*normal)
        shift = values[:, -1:]
        values = (values - shift) * spread
        summed = values[:, slot_post] + values[:, posts.shape[1] : -1].unsqueeze(1)
        projected.append(torch.addcmul(shift.unsqueeze(1), summed, scale))
    return projected


class PostTempoFormerStreamLayers(nn.Module):
    """The layers between the vectors of posts and the heads: norm, projection, stream layers, differences, cosines."""

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        members, width = config.num_members, config.stream_hidden_size
        self.norm = MemberLayerNorm(members, config.encoder_config.hidden_size)
        self.projection = MemberLinear(members, config.encoder_config.hidden_size, width)
        self.layers = nn.ModuleList(PostTempoFormerStreamLayer(config) for _ in range(config.num_stream_layers))
        self.final_norm = MemberLayerNorm(members, width)

    def forward(
        self,
        vectors: torch.Tensor,
        streams: Streams,
        output_attentions: bool = False,
        all_posts: bool = False,
        with_network: bool = True,
    ) -> StreamLayersOutput:
        """Reads the streams of `vectors` (posts, hidden). `all_posts` asks for states, `with_network` for heads."""
        if torch.is_grad_enabled() or vectors.device.type != "cpu" or torch.compiler.is_compiling():
            return self.read(vectors, streams, output_attentions, all_posts, with_network)
        # Few streams at a time stay in a processor's cache.
        num_rows = max(1, STREAMS_AT_ONCE // max(1, streams.shape[1]))
        parts = [
            self.read(posts, part, output_attentions, all_posts, with_network)
            for posts, part in streams.split_rows(vectors, num_rows)
        ]
        if len(parts) == 1:
            return parts[0]
        states, weights = (zip(*(part[name] for part in parts), strict=True) for name in ("states", "weights"))
        return StreamLayersOutput(
            heads=torch.cat([part.heads for part in parts], dim=1),
            compared=torch.cat([part.compared for part in parts]),
            cosines=torch.cat([part.cosines for part in parts]),
            states=[torch.cat(layer, dim=1) for layer in states],
            weights=[None if layer[0] is None else torch.cat(layer) for layer in weights],
        )

    def read(
        self, vectors: torch.Tensor, streams: Streams, output_attentions: bool, all_posts: bool, with_network: bool
    ) -> StreamLayersOutput:
        """Returns the result of `forward`, of all streams at once."""
        slot_post, slot_mask, compared_post, compared_mask = (
            tensor.to(vectors.device)
            for tensor in (streams.slot_post, streams.slot_mask, streams.compared_post, streams.compared_mask)
        )
        compared = vectors[compared_post] * compared_mask.unsqueeze(-1)
        cosines = cosines_with_history(compared, vectors, slot_post, slot_mask).to(self.norm.weight.dtype)
        if not (with_network or output_attentions or all_posts):
            return StreamLayersOutput(cosines.new_zeros(1, len(cosines), 0), compared, cosines, [], [])
        # Precomputed vectors may have a wider dtype than the model.
        normal = self.norm(vectors.unsqueeze(0).to(self.projection.weight.dtype), for_linear=True)
        projected = self.projection(*normal)
        posts, slots = projected, slot_post
        all_states, attentions = [projected[:, slot_post]] if all_posts else [], []
        for index, layer in enumerate(self.layers):
            # Only the newest post is needed from the last layer.
            only_newest = index == len(self.layers) - 1 and not (output_attentions or all_posts)
            states, weights = layer(posts, slots, streams, output_attentions, only_newest)
            all_states += [states] if all_posts else []
            attentions.append(weights)
            # After a layer, a post is another one in each stream.
            posts, slots = states.flatten(1, 2), torch.arange(slot_post.numel(), device=states.device)
            slots = slots.view_as(slot_post)
        posts = projected[:, compared_post]
        steps = ((posts[:, :, -1:] - posts[:, :, :-1]) * compared_mask[:, :-1].unsqueeze(-1)).flatten(2)
        shared = cosines.expand(len(states), -1, -1)
        heads = torch.cat((self.final_norm(states[:, :, -1]), steps, steps.abs(), shared), dim=-1)
        return StreamLayersOutput(heads, compared, cosines, all_states, attentions)


def cosines_with_history(
    compared: torch.Tensor, vectors: torch.Tensor, slot_post: torch.LongTensor, slot_mask: torch.BoolTensor
) -> torch.Tensor:
    """
    Returns the cosines (streams, compared + 1) of each stream's newest vector with each vector that it is compared
    with, and with the mean direction of all earlier ones. `compared` is (streams, compared + 1, hidden), the newest
    last; `vectors` is (posts, hidden).
    """
    # Computed in float32, because in float16 the bound that prevents a division of 0 by 0 is 0 itself.
    compared, units = compared.float(), nn.functional.normalize(vectors.float(), dim=-1)
    history = (units[slot_post[:, :-1]] * slot_mask[:, :-1].unsqueeze(-1)).sum(1, keepdim=True)
    directions = nn.functional.normalize(torch.cat((compared[:, :-1], history, compared[:, -1:]), dim=1), dim=-1)
    return (directions[:, :-1] * directions[:, -1:]).sum(-1)


def of_members(logits: torch.Tensor, held_out: torch.LongTensor | None) -> torch.Tensor:
    """
    Returns the mean of the members' logits (members, batch_size, ...), or with `held_out` for each row the logits of
    the one member that has not learned from that row.
    """
    if held_out is None:
        return logits.mean(0)
    return logits[held_out.to(logits.device), torch.arange(len(held_out), device=logits.device)]


def side_by_side(states: torch.Tensor) -> torch.Tensor:
    """Moves the members (members, ..., width) side by side (..., members * width)."""
    return states.movedim(0, -2).flatten(-2)


class PostTempoFormerModel(StreamReaderMixin, PostTempoFormerPreTrainedModel):
    r"""
    An encoder that reads each post by itself, and new layers over one vector for each post of a stream, with attention
    that is rotated by log time (Tseriotou, Tsakalidis and Liakata, 2024, section 4.2).

    Args:
        config ([`PostTempoFormerConfig`]): Its `encoder_config` names the encoder.
        encoder (`PreTrainedModel`, *optional*): The encoder, without a pooler; a new one is built if omitted.
    """

    # Streams are made of the vectors of posts, so that an earlier post is not encoded again.
    reads_vectors = True

    def __init__(self, config: PostTempoFormerConfig, encoder: PreTrainedModel | None = None):
        super().__init__(config)
        if encoder is None and config.encoder_backend in ENCODERS:
            encoder = ENCODERS[config.encoder_backend](config)
        elif encoder is None:
            # The dtype of our own parts, which may not be the saved encoder's.
            dtype = torch.get_default_dtype()
            encoder = self.encoder_class(config.encoder_config).from_config(config.encoder_config, dtype=dtype)
            encoder.pooler = None
        self.encoder = encoder
        self.words = Words(config) if config.num_words else None
        self.stream_layers = PostTempoFormerStreamLayers(config)
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
        post_embeds: torch.FloatTensor | None = None,
        speaker_posts: torch.LongTensor | None = None,
        with_network: bool = True,
        **kwargs: Unpack[TransformersKwargs],
    ) -> PostTempoFormerModelOutput:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`, *optional*):
                Every post of a row once. A post whose `attention_mask` is all 0 is padding.
            attention_mask, token_type_ids (`torch.LongTensor`, *optional*):
                Tensors of the shape of `input_ids`: 1 for real tokens, 0 for padding (all 1 if omitted); and segment
                ids (all 0 if omitted).
            stream_index (`torch.LongTensor` of shape `(batch_size, num_streams, window)`, *optional*):
                The posts of each stream, oldest to newest, padded with -1 on the left; `window` is at most
                `config.window`. If omitted, the posts of a row are one stream up to its last real one.
            elapsed (`torch.FloatTensor` of shape `(batch_size, num_streams, window)`, *optional*):
                Seconds from each post to the newest, in float32 whatever the model's dtype. If omitted, the rotation
                is by the distance in posts.
            inputs_embeds (`torch.FloatTensor`, *optional*):
                A tensor of shape `(batch_size, num_posts, num_tokens, width of the word embeddings)`, instead of
                `input_ids`.
            post_embeds (`torch.FloatTensor` of shape `(batch_size, num_posts, config.vector_size)`, *optional*):
                The posts' vectors, as `embed_posts` returns them, instead of `input_ids`; `num_tokens` is then 1.
            speaker_posts (`torch.LongTensor` of shape `(batch_size, num_streams, count)`, *optional*):
                The earlier posts of the newest post's speaker, oldest first, padded with -1, for a model that
                `reads_speakers`.
            with_network (`bool`, *optional*, defaults to `True`):
                False for heads that read none of the stream layers: these are not computed unless their hidden states
                or attentions are asked for, and `last_hidden_state` has the width 0.
            kwargs: `output_hidden_states`, `output_attentions`, `output_stream_attentions`, `return_dict`; and those
                that change nothing here, such as `num_items_in_batch`.

        Returns:
            [`PostTempoFormerModelOutput`]. Raises a `ValueError` for tensors of other shapes, and for `elapsed` that
            disagrees with `config.timed`; a `TypeError` for an unknown argument, which may be a misspelled input.
            Values are not checked here but in [`StreamCollator`].
        """
        output_hidden_states, _, output_attentions = self.output_settings(kwargs)
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        given["post_embeds"] = post_embeds
        inputs, streams = self.lay_out(given, attention_mask, stream_index, elapsed, speaker_posts)
        vectors = inputs.pop("post_embeds", None)
        if vectors is None:
            vectors = self.embed_posts(attention_mask=streams.token_mask, **inputs)
        hidden = self.config.encoder_config.hidden_size
        vectors, words = vectors[:, :hidden], vectors[:, hidden:]
        read = self.stream_layers(vectors, streams, output_attentions, output_hidden_states, with_network)
        word_inputs = {} if self.words is None else self.read_words(words, streams)
        mask, by_row = streams.slot_mask.to(read.heads.device), partial(torch.unflatten, dim=0, sizes=streams.shape)
        queries = mask[:, None, :, None]
        return PostTempoFormerModelOutput(
            last_hidden_state=by_row(side_by_side(read.heads).masked_fill(~mask[:, -1:], 0.0)),
            stream_mask=by_row(mask),
            compared=by_row(read.compared),
            cosines=by_row(read.cosines),
            **{name: by_row(values) for name, values in word_inputs.items()},
            stream_attentions=tuple(by_row(layer * queries) for layer in read.weights) if output_attentions else None,
            hidden_states=tuple(by_row(side_by_side(part)) for part in read.states) if output_hidden_states else None,
        )

    def read_words(self, words: torch.Tensor, streams: Streams) -> dict[str, torch.Tensor]:
        """Returns `word_logits` and `addressed` of streams (streams, ...), from what [`Words`] says of the posts."""
        slot_post, slot_mask = streams.slot_post.to(words.device), streams.slot_mask.to(words.device)
        logits, codes = words.split((words.shape[-1] - ADDRESS_SIZE, ADDRESS_SIZE), -1)
        logits = logits[slot_post[:, -1]].unflatten(-1, (self.config.num_members, -1))
        return {"word_logits": logits, "addressed": compare_addressees(codes, slot_post, slot_mask)}

    def embed_posts(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.LongTensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.FloatTensor:
        """
        Returns the vector of each post, for `post_embeds`: what [`encode_posts`] gives, and if the model reads words
        what [`~experts_tempoformer.Words`] says of them.

        Args:
            input_ids, attention_mask, inputs (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                A tokenizer's output for the posts, or `inputs_embeds`. `attention_mask` is all 1 if omitted.

        Returns:
            `torch.FloatTensor` of shape `(num_posts, config.vector_size)`; 0 for a post without real tokens. Raises a
            `ValueError` for `inputs_embeds` if the model reads words.
        """
        vectors = self.encode_posts(input_ids, attention_mask, **inputs)
        if self.words is None:
            return vectors
        if input_ids is None:
            raise ValueError("The model reads the words of posts (`config.num_words`): give `input_ids`.")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return torch.cat((vectors, self.words(input_ids, mask).to(vectors)), dim=-1)

    def encode_posts(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.LongTensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.FloatTensor:
        """
        Returns the vector that the encoder gives each post (num_posts, hidden_size), with the arguments of
        [`embed_posts`].
        """
        inputs = inputs if input_ids is None else {"input_ids": input_ids, **inputs}
        # Encoders without segments do not take them.
        if not getattr(self.config.encoder_config, "type_vocab_size", 0):
            inputs.pop("token_type_ids", None)
        first = next(iter(inputs.values()))
        mask = torch.ones(first.shape[:2], device=first.device) if attention_mask is None else attention_mask
        mask, as_one = mask.bool(), has_equal_calls(self)
        (host_mask,), form = read(mask), arrangement(self.encoder)
        if host_mask is not None and not host_mask.any() and not as_one:
            width = self.config.encoder_config.hidden_size
            return torch.zeros(len(mask), width, dtype=self.dtype, device=first.device)
        if form is PackedPosts and host_mask.sum() > GPU_TOKENS and len(mask) > 1 and not as_one:
            # With their masks on the host, which does not wait for the first half then.
            given = {"attention_mask": torch.from_numpy(host_mask), **inputs}
            halves = zip(*(values.tensor_split(2) for values in given.values()), strict=True)
            return torch.cat([self.encode_posts(**dict(zip(given, half, strict=True))) for half in halves])
        # Sent before the encoder begins, as later the host would wait for the encoder.
        mask = mask.to(first.device)
        posts, is_absent = form(mask, host_mask, as_one), ~mask.any(-1, keepdim=True)
        positions = posts.split_positions(self.encoder, input_ids)
        groups = zip(posts.masks, positions, *map(posts.split, inputs.values()), strict=True)
        states = [
            self.encoder(
                **(tokens.attention if isinstance(tokens, Packing) else {"attention_mask": tokens.long()}),
                **position,
                **dict(zip(inputs, group, strict=True)),
            ).last_hidden_state
            for tokens, position, *group in groups
        ]
        vectors = posts.join(posts.first(states) if self.config.post_pooling == "cls" else posts.mean(states))
        return vectors.masked_fill(is_absent.to(vectors.device), 0.0)

    def post_inputs(self, attention_mask: torch.LongTensor, **tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        """
        Returns inputs of `forward` for posts (batch_size, num_posts, num_tokens), which are encoded here unless they
        are `post_embeds` (batch_size, num_posts, config.vector_size).
        """
        if "post_embeds" in tokens:
            return {"attention_mask": attention_mask, **tokens}
        flat = {name: values.flatten(0, 1) for name, values in tokens.items()}
        vectors = self.embed_posts(attention_mask=attention_mask.flatten(0, 1), **flat)
        is_post = attention_mask.amax(-1, keepdim=True)
        return {"attention_mask": is_post, "post_embeds": vectors.unflatten(0, attention_mask.shape[:2])}


class PostTempoFormerForStreamClassification(StreamClassificationMixin, PostTempoFormerPreTrainedModel):
    r"""
    [`PostTempoFormerModel`] with a head that classifies the newest post of each stream, trained with the focal loss.

    Args:
        config ([`PostTempoFormerConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
        encoder (`PreTrainedModel`, *optional*): The encoder. By default one of the configuration, with new weights.
    """

    def __init__(self, config: PostTempoFormerConfig, encoder: PreTrainedModel | None = None):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.tempoformer = PostTempoFormerModel(config, encoder)
        self.classifier = class_layers(config, config.head_width, partial(MemberHeadLinear, config.num_members))
        self.trees = Trees(config) if config.num_trees else None
        self.states = States(config) if config.states else None
        self.mixture = Mixture(config) if len(config.experts) > 1 else None
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
        post_embeds: torch.FloatTensor | None = None,
        timeline_position: torch.FloatTensor | None = None,
        speaker_posts: torch.LongTensor | None = None,
        earlier_states: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        held_out: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> StreamClassifierOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, inputs_embeds, post_embeds: As in [`PostTempoFormerModel`].
            stream_index, elapsed, speaker_posts: As there.
            timeline_position (`torch.FloatTensor` of shape `(batch_size, num_streams, 2)`, *optional*):
                Posts of the timeline before the newest one, and seconds since the first. In evaluation a model with
                trees needs it, and one whose `first_posts` cannot be a change.
            earlier_states (`torch.FloatTensor` of shape `(batch_size, num_streams, 3, num_states)`, *optional*):
                What is known of the states of earlier posts ([`~streams_tempoformer.states_before`]), for a model that
                `reads_known_states`; nothing if omitted. Other models do not read it.
            labels (`torch.LongTensor` of shape `(batch_size, num_streams)`, *optional*):
                Class of each stream's newest post; -100 for none.
            held_out (`torch.LongTensor` of shape `(batch_size,)`, *optional*):
                The member of the ensemble that has a row in its held-out fold: it does not learn from the row, and
                alone gives the row's logits.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                The argument of [`focal_loss`]. Refused without `labels`, as a Trainer then computes another loss than
                the model's.
            kwargs: Inputs of [`PostTempoFormerModel`].

        Returns:
            [`StreamClassifierOutput`]. Raises the errors of [`PostTempoFormerModel`].
        """
        self.check_loss(labels, num_items_in_batch)
        with_network = self.training or held_out is not None or self.mixture is None or self.mixture.reads_network()
        outputs = self.tempoformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            stream_index=stream_index,
            elapsed=elapsed,
            inputs_embeds=inputs_embeds,
            post_embeds=post_embeds,
            speaker_posts=speaker_posts if self.config.reads_speakers else None,
            with_network=with_network,
            **kwargs,
            return_dict=True,
        )
        check_shape("held_out", held_out, outputs.stream_mask.shape[0])
        members = self.member_logits(outputs)
        logits, expert_logits, state_logits = of_members(members, held_out), None, None
        if self.mixture is not None and not self.training:
            # Computed in float32, because 16 bits are too coarse for thresholds.
            with torch.autocast(logits.device.type, enabled=False):
                earlier_states = self.check_known(earlier_states, logits)
                expert_logits, state_logits = self.ask_experts(
                    logits.float(), outputs, timeline_position, elapsed, held_out, earlier_states
                )
                logits = self.mixture(expert_logits, held_out)
        is_first, no_post = self.find_first_posts(timeline_position, speaker_posts), ~outputs.stream_mask[..., -1:]
        logits, loss = self.without_first_posts(logits, is_first), None
        logits = logits.masked_fill(no_post.to(logits.device), 0.0)
        if labels is not None:
            check_shape("labels", labels, *logits.shape[:2])
            judged, labels = logits, labels.to(logits.device)
            if self.training:
                # Each member learns by itself, and not from the rows of its held-out fold.
                judged = self.without_first_posts(members, is_first)
                labels = labels.expand(members.shape[:-1])
                if held_out is not None:
                    left_out = torch.arange(len(members), device=labels.device)[:, None] == held_out.to(labels.device)
                    labels = labels.masked_fill(left_out.unsqueeze(-1), -100)
                if num_items_in_batch is not None:
                    num_items_in_batch = num_items_in_batch * (len(members) - (held_out is not None))
            loss = focal_loss(judged, labels, self.config.focal_gamma, self.config.class_weights, num_items_in_batch)
        return StreamClassifierOutput(
            loss=loss,
            logits=logits,
            expert_logits=expert_logits,
            state_logits=state_logits,
            stream_attentions=outputs.stream_attentions,
            hidden_states=outputs.hidden_states,
        )

    def member_logits(self, outputs: PostTempoFormerModelOutput) -> torch.Tensor:
        """
        Returns the logits of each member's network (members, batch_size, num_streams, num_labels); zeros where it was
        not computed.
        """
        states = outputs.last_hidden_state
        if not states.shape[-1]:
            return states.new_zeros(1, *states.shape[:-1], self.config.num_labels)
        return self.classifier(states.unflatten(-1, (self.config.num_members, -1)).movedim(-2, 0))

    def ask_experts(
        self,
        network: torch.Tensor,
        outputs: PostTempoFormerModelOutput,
        timeline_position: torch.Tensor | None,
        elapsed: torch.Tensor | None,
        held_out: torch.LongTensor | None,
        earlier_states: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Returns the logits of each expert (batch_size, num_streams, experts, num_labels), first the given logits of the
        `network`, and the log-probabilities of the newest posts' states (batch_size, num_streams, num_states).
        """
        if timeline_position is None:
            raise ValueError("The model needs `timeline_position`, as `StreamCollator` makes it.")
        changes, levels, state_logits = self.read_states(outputs, held_out, earlier_states)
        experts = [network]
        if self.trees is not None:
            inputs = self.tree_inputs(outputs, timeline_position, elapsed)
            experts.append(of_members(self.trees(self.trees.read(**inputs, changes=changes, levels=levels)), held_out))
        experts += [] if changes is None else [changes]
        experts += [] if outputs.word_logits is None else [self.ask_words(outputs, held_out)]
        return torch.stack([expert.to(network.device) for expert in experts], dim=-2), state_logits

    def ask_words(self, outputs: PostTempoFormerModelOutput, held_out: torch.LongTensor | None) -> torch.Tensor:
        """Returns the logits (batch_size, num_streams, num_labels) from the words of the newest posts."""
        return of_members(outputs.word_logits.float().movedim(-2, 0), held_out)

    def check_known(self, earlier_states: torch.Tensor | None, logits: torch.Tensor) -> torch.Tensor | None:
        """
        Returns what is known of earlier states, zeros where that is omitted; None for a model that reads none. Raises
        a `ValueError` for another shape than (batch_size, num_streams, 3, num_states).
        """
        if not self.config.reads_known_states:
            return None
        shape = (*logits.shape[:2], 3, len(self.config.states))
        check_shape("earlier_states", earlier_states, *shape)
        # Counts are too large for 16 bits.
        earlier_states = torch.zeros(shape) if earlier_states is None else earlier_states
        return earlier_states.to(logits.device, torch.float32)

    def read_states(
        self,
        outputs: PostTempoFormerModelOutput,
        held_out: torch.LongTensor | None,
        earlier_states: torch.Tensor | None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """
        Returns the logits of a change of states (batch_size, num_streams, num_labels) since the first of the posts
        that the newest one is compared with, a person's levels ([`States.levels`]) if known states are read, and the
        log-probabilities of the newest posts' states; None without states.
        """
        if self.states is None:
            return None, None, None
        probabilities, has_previous = self.compared_states(outputs, held_out)
        state_logits = probabilities[..., -1, :].clamp_min(torch.finfo(probabilities.dtype).tiny).log()
        probabilities = self.states.with_known(probabilities, earlier_states)
        changes = self.states.changes(probabilities, has_previous, self.states.tables(held_out))
        levels = None if earlier_states is None else self.states.levels(probabilities, earlier_states)
        return changes, levels, state_logits

    def compared_states(
        self, outputs: PostTempoFormerModelOutput, held_out: torch.LongTensor | None
    ) -> tuple[torch.Tensor, torch.BoolTensor]:
        """
        Returns the probabilities of the states (batch_size, num_streams, 2, states) of the first post that the newest
        one is compared with and of the newest, and where (batch_size, num_streams) that first post exists.
        """
        posts = outputs.compared[..., :: self.config.num_compared, :]
        return self.states(posts, held_out), (posts[..., 0, :] != 0).any(-1)

    def tree_inputs(
        self,
        outputs: PostTempoFormerModelOutput,
        timeline_position: torch.Tensor,
        elapsed: torch.Tensor | None,
    ) -> dict[str, torch.Tensor]:
        """Returns what trees read besides states, by name: compared posts, cosines, addressees, position and gap."""
        timed = elapsed is not None and elapsed.shape[-1] > 1
        gap = elapsed[..., -2:-1] if timed else torch.zeros_like(timeline_position[..., :1])
        inputs = {"posts": outputs.compared, "cosines": outputs.cosines}
        inputs["position_and_gap"] = torch.cat((timeline_position, gap), dim=-1).to(outputs.compared.device)
        # Without words, nothing is known of addressees.
        inputs["addressed"] = outputs.cosines[..., :0] if outputs.addressed is None else outputs.addressed
        return inputs


__all__ = [
    "PostTempoFormerForStreamClassification",
    "PostTempoFormerModel",
    "PostTempoFormerPreTrainedModel",
]
