"""TempoFormer (Tseriotou, Tsakalidis and Liakata, 2024): change detection in streams of posts."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedModel
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import ModelOutput, can_return_tuple, logging

from .configuration_tempoformer import TempoFormerConfig
from .configuration_temporal_bert import TemporalBertConfig  # noqa: F401  Travels with the encoder, as the next.
from .data_collator_tempoformer import StreamCollator  # noqa: F401  Travels with the pipeline, as four more below.
from .decisions_tempoformer import rank_classes  # noqa: F401
from .input_checks_tempoformer import (
    Broken,
    check_first_tokens,
    check_labels,
    check_streams,
    check_tokens,
    only_safetensors,
    refuse,
)
from .loss_tempoformer import focal_loss
from .modeling_tempoformer_encoders import get_encoder_adapter
from .modeling_temporal_bert import BertWithTemporalAttention  # noqa: F401
from .online_tempoformer import StreamState
from .packing_tempoformer import PostGroups, open_absent, scatter, select
from .pipeline_tempoformer import StreamClassificationPipeline  # noqa: F401
from .rows_tempoformer import tokenize_posts  # noqa: F401
from .timestamps_tempoformer import to_seconds  # noqa: F401
from .windows_tempoformer import elapsed_seconds, stream_windows


logger = logging.get_logger(__name__)

# What the library passes to every model.
IGNORED_KWARGS = {"return_dict", "use_cache"}


@dataclass
class TempoFormerModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, num_streams, window, hidden_size)`):
            The vector of every post of every stream after the stream layers (with `num_stream_layers=0`, its pooled
            vector); 0 where the stream has no post.
        pooler_output (`torch.FloatTensor` of shape `(batch_size, num_streams, hidden_size)`, *optional*):
            The newest post of each stream, pooled below the stream layers. Only with `head="mlp"` and stream layers.
        stream_mask (`torch.BoolTensor` of shape `(batch_size, num_streams, window)`): Where a stream has a post.
        stream_attentions (`tuple(torch.FloatTensor)`, *optional*, with `output_attentions=True`):
            One tensor of shape `(batch_size, num_streams, num_heads, window, window)` for each stream layer: the
            attention of each post (second to last axis) to the posts of its stream (last axis); 0 where the stream
            has no post.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, with `output_hidden_states=True`):
            The embeddings and the output of each layer below the stream layers, each of shape
            `(batch_size, num_posts, num_tokens, hidden_size)`; 0 at padding.
        attentions (`tuple(torch.FloatTensor)`, *optional*, with `output_attentions=True` and eager attention):
            One tensor of shape `(batch_size, num_posts, num_heads, num_tokens, num_tokens)` for each layer below the
            stream layers; 0 for absent posts.
    """

    last_hidden_state: torch.FloatTensor | None = None
    pooler_output: torch.FloatTensor | None = None
    stream_mask: torch.BoolTensor | None = None
    stream_attentions: tuple[torch.FloatTensor, ...] | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class StreamClassifierOutput(ModelOutput):
    """
    Args:
        loss (`torch.FloatTensor`, *optional*, with `labels`): Focal loss, a scalar in float32.
        logits (`torch.FloatTensor` of shape `(batch_size, num_streams, num_labels)`): Scores before softmax for the
            newest post of each stream; 0 for a stream without posts.
        stream_attentions, hidden_states, attentions: As in [`TempoFormerModelOutput`].
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    stream_attentions: tuple[torch.FloatTensor, ...] | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class StreamStepOutput(ModelOutput):
    """
    Args:
        logits (`torch.FloatTensor` of shape `(num_posts, num_labels)`): Scores before softmax for each new post; 0
            for a late post that was dropped.
        kept (`torch.BoolTensor` of shape `(num_posts,)`): False for a late post that was dropped.
        state (`StreamState`): What the next step needs to know.
    """

    logits: torch.FloatTensor | None = None
    kept: torch.BoolTensor | None = None
    state: StreamState | None = None


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention, written out; returns the weights too."""
    scores = query @ key.transpose(-1, -2) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.dropout(scores.softmax(-1), p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights


def rotate_pairs(states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotates the pairs (2i, 2i+1) of the last axis of `states`, of width d, by `angles`, of width d / 2."""
    cos, sin = angles.cos().to(states.dtype), angles.sin().to(states.dtype)
    even, odd = states[..., 0::2], states[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def flag(kwargs: dict, name: str, config: TempoFormerConfig) -> bool:
    """Takes an output flag out of `kwargs`, where the caller gave one, else from the configuration."""
    value = kwargs.pop(name, None)
    return bool(getattr(config, name) if value is None else value)


class PlaceEmbedding(nn.Embedding):
    """Embeddings of the places in a stream; a class of its own for their initial scale."""


class StreamPosition(nn.Module):
    """
    Adds the embedding of a post's place in the stream to all its tokens, then LayerNorm and dropout. Below a pre-norm
    layer there is no LayerNorm, and dropout is on the embedding alone, as on all that is added there.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        adapter = get_encoder_adapter(config.encoder_config)
        hidden_size = config.encoder_config.hidden_size
        self.embedding = PlaceEmbedding(config.window, hidden_size)
        self.norm = None if adapter.is_pre_norm else nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(adapter.dropout(config.encoder_config))

    def forward(self, hidden_states: torch.Tensor, places: torch.LongTensor) -> torch.Tensor:
        position = self.embedding(places).unsqueeze(1)
        if self.norm is None:
            return hidden_states + self.dropout(position)
        return self.dropout(self.norm(hidden_states + position))


class ZeroLinear(nn.Linear):
    """A linear layer that starts at 0, so that what its output is added to starts as it is."""


class StreamAttention(nn.Module):
    """
    Multi-head attention across the [CLS] vectors of a stream (paper, section 4.2). Queries and keys are rotated by
    `tau * theta_i`, `theta_i = rope_theta^(-2(i-1)/d)`, so that scores depend on differences of `tau`.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        self.config = config
        self.num_heads = config.encoder_config.num_attention_heads
        hidden_size = config.encoder_config.hidden_size
        self.head_dim = hidden_size // self.num_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = False
        bias = config.stream_attention == "full"
        self.q_proj = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.k_proj = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.v_proj = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.o_proj = (ZeroLinear if config.stream_residual else nn.Linear)(hidden_size, hidden_size)
        self.dropout = nn.Dropout(get_encoder_adapter(config.encoder_config).dropout(config.encoder_config))

    def forward(
        self,
        cls: torch.Tensor,
        stream_mask: torch.BoolTensor,
        tau: torch.Tensor | None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`cls` (streams, window, hidden), `stream_mask` and `tau` (streams, window); `tau=None` does not rotate."""
        shape = (*cls.shape[:-1], self.num_heads, self.head_dim)
        query, key, value = (
            projection(cls).view(shape).transpose(1, 2) for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if tau is not None:
            exponents = torch.arange(0, self.head_dim, 2, device=cls.device, dtype=torch.float32) / self.head_dim
            angles = tau[:, None, :, None] * self.config.rope_theta**-exponents
            query, key = rotate_pairs(query, angles), rotate_pairs(key, angles)
        if output_attentions:
            # Only the written-out form returns weights, and across a window it costs nothing.
            attention: Callable = eager_attention_forward
            smallest = torch.finfo(cls.dtype).min
            mask = torch.zeros_like(stream_mask, dtype=cls.dtype).masked_fill(~stream_mask, smallest)[:, None, None]
        else:
            attention = ALL_ATTENTION_FUNCTIONS.get_interface(
                self.config._attn_implementation, eager_attention_forward
            )
            mask = create_bidirectional_mask(config=self.config, inputs_embeds=cls, attention_mask=stream_mask)
        context, weights = attention(self, query, key, value, mask, scaling=self.scaling, dropout=0.0)
        return self.dropout(self.o_proj(context.flatten(-2))), weights


class StreamLayer(nn.Module):
    """What a stream layer adds to one of the encoder's own layers: stream positions below it, attention above it."""

    def __init__(self, config: TempoFormerConfig, index: int):
        super().__init__()
        self.position = StreamPosition(config) if config.position_embeddings_per_layer[index] else None
        self.attention = StreamAttention(config)


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


class NarrowLinear(nn.Linear):
    """A linear layer that starts at the scale of its own width; the encoder's is too small for the narrow head."""


class StreamClassificationHead(nn.Module):
    """Class scores of each stream: an MLP over its newest post, or over an LSTM that reads all its posts."""

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        hidden_size = config.encoder_config.hidden_size
        self.order = config.recurrent_order
        self.dense = self.lstm = None
        if config.head == "lstm":
            # Without stream layers the posts come from the encoder's own pooler, which has this shape.
            self.dense = nn.Linear(hidden_size, hidden_size) if config.num_stream_layers else None
            self.lstm = nn.LSTM(hidden_size, config.lstm_hidden_size, batch_first=True)
            width = config.lstm_hidden_size
        else:
            width = 2 * hidden_size if config.num_stream_layers else hidden_size
        layers = []
        for hidden_width in config.head_hidden_sizes:
            layers += [NarrowLinear(width, hidden_width), nn.ReLU(), nn.Dropout(config.head_dropout)]
            width = hidden_width
        self.mlp = nn.Sequential(*layers, NarrowLinear(width, config.num_labels))

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
        order = (~stream_mask).long().argsort(dim=1, stable=True)
        states, _ = self.lstm(posts.gather(1, order.unsqueeze(-1).expand_as(posts)))
        length = stream_mask.sum(-1, keepdim=True)
        last = (length - 1).clamp_min(0).unsqueeze(-1).expand(-1, -1, states.shape[-1])
        return states.gather(1, last).squeeze(1)


class TempoFormerPreTrainedModel(PreTrainedModel):
    """
    Loading, saving and initialisation, common to all TempoFormer models (Tseriotou, Tsakalidis and Liakata, 2024).

    Args:
        config ([`TempoFormerConfig`]): Of the model.
    """

    config: TempoFormerConfig
    base_model_prefix = "tempoformer"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True
    # Each is entered by its own call, where sharded weights are gathered.
    _no_split_modules = ["StreamPosition", "StreamAttention", "GateAndNorm"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        # What PyTorch starts them with.
        if isinstance(module, (nn.LSTM, NarrowLinear)):
            bound = (module.hidden_size if isinstance(module, nn.LSTM) else module.in_features) ** -0.5
            for weight in module.parameters():
                init.uniform_(weight, -bound, bound)
        elif isinstance(module, ZeroLinear):
            init.zeros_(module.weight)
        elif isinstance(module, PlaceEmbedding):
            init.normal_(module.weight, std=self.config.stream_position_initializer_range)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """As in the library, but from safetensors only. Raises a `ValueError` for `use_safetensors=False`."""
        return super().from_pretrained(pretrained_model_name_or_path, *model_args, **only_safetensors(kwargs))

    @classmethod
    def from_encoder_pretrained(cls, name: str, config: TempoFormerConfig | None = None, **kwargs):
        """
        A TempoFormer whose encoder is pretrained and whose stream parts and head are new.

        Args:
            name (`str`): Folder or Hub id of an encoder's checkpoint.
            config (`TempoFormerConfig`, *optional*):
                Everything but the encoder; its `encoder_config` is replaced by the checkpoint's.
            kwargs: `revision`, `token`, `cache_dir`, `dtype`, `attn_implementation`, `trust_remote_code` and the like
                go to the encoder's `from_pretrained`; fields of [`TempoFormerConfig`], `num_labels` or `id2label` with
                `label2id` set the new model's configuration where no `config` is given. Without `dtype` the model is
                in float32 whatever the checkpoint was saved in, as 16 bits alone are too few to train in.

        Returns:
            The model, in evaluation mode as after `from_pretrained`. Raises a `ValueError` for an encoder family
            without an adapter, and an `OSError` for an encoder whose weights are no safetensors.
        """
        fields = {*TempoFormerConfig.__dataclass_fields__, "num_labels"} - {"dtype"}
        settings = {key: kwargs.pop(key) for key in list(kwargs) if key in fields}
        # `torch_dtype` is its old name, which the library still takes.
        kwargs.setdefault("dtype", kwargs.pop("torch_dtype", torch.float32))
        if config is not None and settings:
            raise ValueError(f"Give either `config` or its fields, not both: {', '.join(settings)}.")
        of_weights = ("dtype", "attn_implementation", "use_safetensors")
        loading = {key: value for key, value in kwargs.items() if key not in of_weights}
        encoder_config = AutoConfig.from_pretrained(name, **loading)
        adapter = get_encoder_adapter(encoder_config)
        # From a dict, so that the stream settings are checked against this encoder, before it is loaded.
        settings = settings if config is None else config.to_dict()
        config = TempoFormerConfig.from_dict({**settings, "encoder_config": encoder_config.to_dict()})
        encoder = adapter.load(name, add_pooler=has_pooler(config), **only_safetensors(kwargs))
        model = cls._from_config(
            config, dtype=encoder.dtype, attn_implementation=encoder.config._attn_implementation
        ).eval()
        model.base_model.encoder.load_state_dict(encoder.state_dict())
        return model


def has_pooler(config: TempoFormerConfig) -> bool:
    """Whether posts are pooled: a recurrent head over stream layers has a dense layer of its own."""
    return config.head == "mlp" or config.num_stream_layers == 0


class TempoFormerModel(TempoFormerPreTrainedModel):
    r"""
    An encoder whose top `num_stream_layers` layers read each post in the light of its stream: posts pass alone through
    the lower layers; in each stream layer the posts' [CLS] vectors attend to each other, rotated by log time
    (Tseriotou, Tsakalidis and Liakata, 2024, section 4).

    Args:
        config ([`TempoFormerConfig`]): Its `encoder_config` says which encoder is built.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__(config)
        self.adapter = get_encoder_adapter(config.encoder_config)
        self.encoder = self.adapter.build(config.encoder_config, add_pooler=has_pooler(config))
        # Beside the encoder, whose weights are then those of any checkpoint of its family.
        self.pooler = self.adapter.new_pooler(config.encoder_config) if has_pooler(config) else None
        self.stream_layers = nn.ModuleList(StreamLayer(config, index) for index in range(config.num_stream_layers))
        self.fusion = GateAndNorm(config) if config.fusion == "gate" and config.num_stream_layers else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module):
        self.encoder.set_input_embeddings(value)

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
        **kwargs,
    ) -> TempoFormerModelOutput:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`, *optional*):
                Every post of a row once. A post whose `attention_mask` is all 0 is absent.
            attention_mask (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`, *optional*):
                1 for real tokens, 0 for padding; all 1 if omitted.
            token_type_ids (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`, *optional*):
                Segment ids; all 0 if omitted.
            stream_index (`torch.LongTensor` of shape `(batch_size, num_streams, window)`, *optional*):
                The posts of each stream, oldest to newest, -1 on the left where there is none; `window` at most
                `config.window`. If omitted, the posts of a row are one stream up to its last real one.
            elapsed (`torch.FloatTensor` of shape `(batch_size, num_streams, window)`, *optional*):
                Seconds from each post to the stream's newest, in float32 whatever the model's dtype. If omitted,
                the distance in posts stands for `tau`, the logarithm of the seconds.
            inputs_embeds (`torch.FloatTensor`, *optional*):
                Of shape `(batch_size, num_posts, num_tokens, width of the word embeddings)`, instead of `input_ids`.
            time_ids (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`, *optional*):
                Calendar time of the tokens, for an encoder with temporal attention, which needs it.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            [`TempoFormerModelOutput`]. Raises a `ValueError` for posts of more tokens than the encoder reads, streams
            of more posts than `config.window`, and positions in `stream_index` that are none; a `TypeError` for an
            unknown argument.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
        output_hidden_states = flag(kwargs, "output_hidden_states", self.config)
        output_attentions = flag(kwargs, "output_attentions", self.config)
        if unknown := [name for name, value in kwargs.items() if value is not None and name not in IGNORED_KWARGS]:
            raise TypeError(f"Unknown arguments: {', '.join(unknown)}.")
        # While compiling, values cannot be looked at.
        is_checked = not torch.compiler.is_compiling()
        broken = []
        if is_checked:
            broken = self.check_posts(3, input_ids, attention_mask, token_type_ids, time_ids, inputs_embeds)
        batch_size, num_posts, num_tokens = (input_ids if inputs_embeds is None else inputs_embeds).shape[:3]
        self.check_length(num_tokens)
        if attention_mask is None:
            device = (input_ids if inputs_embeds is None else inputs_embeds).device
            attention_mask = torch.ones(batch_size, num_posts, num_tokens, dtype=torch.long, device=device)
        post_mask = attention_mask.bool().any(-1)
        if stream_index is None:
            places = torch.arange(num_posts, device=post_mask.device)
            newest = (post_mask * places).amax(-1)
            stream_index = stream_windows(newest, num_posts).unsqueeze(1)
        if is_checked:
            broken += check_streams(num_posts, stream_index, elapsed, batch_size)
        num_streams, window = stream_index.shape[1:]
        if window > self.config.window:
            raise ValueError(f"Streams of {window} posts, but the model's `window` is {self.config.window}.")
        if is_checked:
            refuse(broken)
        self.check_timed(elapsed is not None)

        times = None if time_ids is None else time_ids.flatten(0, 1)
        posts = PostGroups(attention_mask.flatten(0, 1).bool(), times)
        inputs = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items() if tensor is not None}
        attentions = []
        with ExitStack() as hooks:
            if output_attentions:
                self.record_attentions(attentions, hooks)
            all_states = self.encode_posts(posts, inputs, output_hidden_states)

        # A stream is real if its newest post is, and its posts are those that are real.
        first_post = torch.arange(batch_size, device=stream_index.device)[:, None, None] * num_posts
        slot_post = (stream_index.clamp_min(0) + first_post).flatten(0, 1)
        slot_mask = (stream_index >= 0).flatten(0, 1) & post_mask.flatten()[slot_post]
        slot_mask = slot_mask & slot_mask[:, -1:]
        tau = self.log_time(None if elapsed is None else elapsed.flatten(0, 1), slot_post)
        outputs, pooled, stream_attentions = self.read_streams(
            posts, all_states[-1], slot_post, slot_mask, tau, output_attentions
        )

        rows, streams = (batch_size, num_posts), (batch_size, num_streams)
        per_layer = range(0, len(attentions), len(posts.members))
        return TempoFormerModelOutput(
            last_hidden_state=outputs.unflatten(0, streams),
            pooler_output=None if pooled is None else pooled.unflatten(0, streams),
            stream_mask=slot_mask.unflatten(0, streams),
            stream_attentions=tuple(weights.unflatten(0, streams) for weights in stream_attentions)
            if output_attentions
            else None,
            hidden_states=tuple(posts.join_states(states).unflatten(0, rows) for states in all_states)
            if output_hidden_states
            else None,
            attentions=tuple(
                posts.join_attentions(attentions[first : first + len(posts.members)]).unflatten(0, rows)
                for first in per_layer
            )
            or None,
        )

    def check_posts(self, num_axes: int, input_ids, attention_mask, token_type_ids, time_ids, inputs_embeds=None):
        """[`check_tokens`] of posts in tensors of `num_axes` axes, and what posts must be beyond that."""
        config = self.config.encoder_config
        broken: list[Broken] = check_tokens(
            config, num_axes, input_ids, attention_mask, token_type_ids, time_ids, inputs_embeds
        )
        if attention_mask is not None:
            broken.append(check_first_tokens(attention_mask))
        if hasattr(self.encoder, "time_rules"):
            broken += self.encoder.time_rules(time_ids)
        elif time_ids is not None:
            raise ValueError(f"`time_ids` are for encoders with temporal attention, not for a '{config.model_type}'.")
        return broken

    def check_gaps(self, attention_mask: torch.Tensor) -> list[Broken]:
        """
        The rule, for online inference, that no token inside a post is masked. What is remembered of a post are its
        real tokens, one after the other: layers that compute positions anew would take them for neighbours.
        """
        if not self.adapter.positions_in_layers or not len(self.stream_layers):
            return []
        tokens, following = attention_mask[:, :-1], attention_mask[:, 1:]
        rule = f"be 1 up to a post's last token in a step of a '{self.config.encoder_config.model_type}'"
        return [("attention_mask", tokens, ~tokens.bool() & following.bool(), rule)]

    def check_timed(self, has_times: bool):
        """Raises a `ValueError` for streams without times where the model was trained with them, and the reverse."""
        config = self.config
        reads_time = config.num_stream_layers > 0 and config.stream_attention == "temporal_rotary"
        if not reads_time or config.timed in (None, has_times):
            return
        trained, given = ("with", "no times are given") if config.timed else ("without", "times are given")
        raise ValueError(
            f"The model was trained {trained} the time between posts (`timed={config.timed}` in its configuration), "
            f"but {given}."
        )

    def check_length(self, num_tokens: int):
        """Raises a `ValueError` for more tokens than the encoder reads."""
        most = self.adapter.max_tokens(self.config.encoder_config)
        if num_tokens > most:
            raise ValueError(f"Posts of {num_tokens} tokens, but the encoder reads at most {most}.")

    def encode_posts(
        self, posts: PostGroups, inputs: dict[str, torch.Tensor], output_hidden_states: bool = False
    ) -> list[list[torch.Tensor]]:
        """
        Every real post once, alone, through the embeddings and the layers below the stream layers.

        Args:
            posts (`PostGroups`): The posts.
            inputs (`dict[str, torch.Tensor]`): `input_ids` and what else, (posts, tokens) or (posts, tokens, hidden).

        Returns:
            For each group of posts (posts, tokens, hidden): the output of the last of those layers, or with
            `output_hidden_states` that of the embeddings and of each layer.
        """
        cuts = {name: posts.cut(tensor) for name, tensor in inputs.items()}
        groups = [dict(zip(cuts, group, strict=True)) for group in zip(*cuts.values(), strict=True)]
        states = [self.adapter.embed(self.encoder, **group) for group in groups]
        needs = zip(states, posts.tokens, posts.times, strict=True)
        layer_inputs = [self.adapter.layer_inputs(self.encoder, *group) for group in needs]
        all_states = [states]
        for layer in self.local_layers:
            states = [self.adapter.run_layer(layer, *group) for group in zip(states, layer_inputs, strict=True)]
            all_states = [*all_states, states] if output_hidden_states else [states]
        return all_states

    def read_streams(
        self,
        posts: PostGroups,
        states: list[torch.Tensor],
        slot_post: torch.LongTensor,
        slot_mask: torch.BoolTensor,
        tau: torch.Tensor | None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        """
        Streams of encoded posts through the stream layers.

        Args:
            posts (`PostGroups`): The posts.
            states: Of each group of them, (posts, tokens, hidden), below the stream layers.
            slot_post: (streams, window), which post stands in each slot.
            slot_mask: (streams, window), the slots that have a post.
            tau: (streams, window), or None for no rotation.

        Returns:
            The posts' vectors (streams, window, hidden), the pooled newest posts (streams, hidden) where the head
            reads them, and the attention of each stream layer where it was asked for; 0 where there is no post.
        """
        shape = slot_mask.shape[:1]
        stream_ids = select(slot_mask[:, -1])
        slot_post, real = slot_post[stream_ids], slot_mask[stream_ids]
        pooled = None
        if has_pooler(self.config):
            pooled = posts.join([self.pool(group[:, :1]) for group in states])
        if not len(self.stream_layers):
            outputs = pooled[slot_post.to(pooled.device)]
            outputs = outputs.masked_fill(~real.unsqueeze(-1).to(outputs.device), 0.0)
            return scatter(outputs, stream_ids, shape), None, []

        slot_ids = select(real.flatten())
        located = posts.locate(slot_post.flatten()[slot_ids])
        groups = [
            (slot_ids[found], group[places.to(group.device)], tokens[places], None if times is None else times[places])
            for group, tokens, times, (found, places) in zip(states, posts.tokens, posts.times, located, strict=True)
            if len(found)
        ]
        visible = open_absent(real.flip(-1)).flip(-1)
        tau = None if tau is None else tau[stream_ids]
        outputs, attentions = self.run_stream_layers(groups, visible, tau, output_attentions)
        outputs = outputs.masked_fill(~real.unsqueeze(-1).to(outputs.device), 0.0)
        if output_attentions:
            queries = real[:, None, :, None]
            attentions = [scatter(weights * queries.to(weights.device), stream_ids, shape) for weights in attentions]
        pooled = None if pooled is None else scatter(pooled[slot_post[:, -1].to(pooled.device)], stream_ids, shape)
        return scatter(outputs, stream_ids, shape), pooled, attentions

    def pool(self, cls: torch.Tensor) -> torch.Tensor:
        """[CLS] states (posts, 1, hidden) through the encoder's pooler, or ours where it has none."""
        pooler = self.encoder.pooler if self.pooler is None else self.pooler
        return pooler(self.adapter.read(self.encoder, cls))

    @property
    def local_layers(self) -> nn.ModuleList:
        """The encoder's layers below the stream layers."""
        layers = self.adapter.layers(self.encoder)
        return layers[: len(layers) - len(self.stream_layers)]

    def record_attentions(self, attentions: list[torch.Tensor], hooks: ExitStack):
        """Until `hooks` closes, attention inside posts is added to `attentions`, if the backend returns it."""
        if self.encoder.config._attn_implementation != "eager":
            if not torch.compiler.is_compiling():
                logger.warning_once("Attention inside posts is returned only with `attn_implementation='eager'`.")
            return
        for layer in self.local_layers:
            hook = self.adapter.self_attention(layer).register_forward_hook(
                lambda module, args, output: attentions.append(output[1])
            )
            hooks.callback(hook.remove)

    def log_time(self, elapsed: torch.Tensor | None, slot_post: torch.LongTensor) -> torch.Tensor | None:
        """`tau` of each slot, of shape (streams, window): log seconds or posts to the newest; None: no rotation."""
        if self.config.stream_attention == "full":
            return None
        if self.config.stream_attention == "temporal_rotary" and elapsed is not None:
            return elapsed.float().clamp_min(1.0).log()
        distance = torch.arange(slot_post.shape[1] - 1, -1, -1, device=slot_post.device, dtype=torch.float32)
        return distance.expand(slot_post.shape)

    def run_stream_layers(
        self,
        groups: list[tuple[torch.LongTensor, torch.Tensor, torch.BoolTensor, torch.LongTensor | None]],
        stream_mask: torch.BoolTensor,
        tau: torch.Tensor | None,
        output_attentions: bool,
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """
        The stream layers over the posts of all streams; the last one for [CLS] alone, which is all that is read of it.

        Args:
            groups: The real slots of all streams in groups of similar length: where each slot stands among all
                streams * window slots (slots,), its post's hidden states (slots, tokens, hidden), its real tokens, and
                their calendar time, if there is one.
            stream_mask: (streams, window), the posts that can be attended to.
            tau: (streams, window), or None.

        Returns:
            The posts' vectors, (streams, window, hidden), and the attention of each stream layer.
        """
        window = stream_mask.shape[1]
        ids, states, tokens, times = zip(*groups, strict=True)
        all_ids = torch.cat(ids)
        needs = zip(states, tokens, times, strict=True)
        layer_inputs = [self.adapter.layer_inputs(self.encoder, *group) for group in needs]
        layers = self.adapter.layers(self.encoder)[-len(self.stream_layers) :]
        attentions = []
        for index, (stream_layer, layer) in enumerate(zip(self.stream_layers, layers, strict=True)):
            is_last = index == len(self.stream_layers) - 1
            if stream_layer.position is not None:
                places = [group % window + (self.config.window - window) for group in ids]
                states = [stream_layer.position(*group) for group in zip(states, places, strict=True)]
            if is_last:
                groups = zip(states, layer_inputs, tokens, strict=True)
                cls = torch.cat([self.adapter.run_layer_for_cls(layer, *group) for group in groups])
            else:
                states = [self.adapter.run_layer(layer, *group) for group in zip(states, layer_inputs, strict=True)]
                cls = torch.cat([group[:, 0] for group in states])
            raw_cls = scatter(cls, all_ids, stream_mask.shape)
            cls = self.adapter.read(self.encoder, raw_cls)
            context, weights = stream_layer.attention(cls, stream_mask, tau, output_attentions)
            if self.config.stream_residual:
                context = context + (cls if is_last else raw_cls).to(context.device)
            attentions.append(weights)
            if not is_last:
                context = context.flatten(0, 1).to(states[0].device)
                new_cls = [context[group.to(context.device)].unsqueeze(1) for group in ids]
                states = [
                    torch.cat((vector, group[:, 1:]), dim=1) for vector, group in zip(new_cls, states, strict=True)
                ]
        return (context if self.fusion is None else self.fusion(cls, context)), attentions


class TempoFormerForStreamClassification(TempoFormerPreTrainedModel):
    r"""
    [`TempoFormerModel`] with a classifier of the newest post of each stream, trained with the focal loss (Tseriotou,
    Tsakalidis and Liakata, 2024, section 4).

    Args:
        config ([`TempoFormerConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    # The loss divides by `num_items_in_batch`.
    accepts_loss_kwargs = True

    def __init__(self, config: TempoFormerConfig):
        super().__init__(config)
        self.tempoformer = TempoFormerModel(config)
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
        time_ids: torch.LongTensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> StreamClassifierOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, stream_index, elapsed, inputs_embeds, time_ids: As in
                [`TempoFormerModel.forward`].
            labels (`torch.LongTensor` of shape `(batch_size, num_streams)`, *optional*):
                Class of each stream's newest post, -100 where it has none; a stream that is all -1 can have none.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                Labelled streams in all batches that are accumulated into one step; those of `labels` if omitted.
            kwargs: `output_hidden_states`, `output_attentions`, `return_dict`.

        Returns:
            [`StreamClassifierOutput`]. Raises what [`TempoFormerModel.forward`] does.
        """
        posts = input_ids if inputs_embeds is None else inputs_embeds
        streams = posts if stream_index is None else stream_index
        # Of what is no tensor the model itself says so.
        if labels is not None and isinstance(streams, torch.Tensor) and not torch.compiler.is_compiling():
            shape = (*posts.shape[:1], 1) if stream_index is None else stream_index.shape[:2]
            # Of streams of another shape the model itself says so.
            has_streams = stream_index is not None and stream_index.dim() == 3
            absent = (stream_index == -1).all(-1) if has_streams else None
            check_labels(labels, shape, self.config.num_labels, "there are streams", absent)
        outputs = self.tempoformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            stream_index=stream_index,
            elapsed=elapsed,
            inputs_embeds=inputs_embeds,
            time_ids=time_ids,
            **kwargs,
            return_dict=True,
        )
        logits = self.classifier(outputs.last_hidden_state, outputs.pooler_output, outputs.stream_mask)
        logits = logits.masked_fill(~outputs.stream_mask[..., -1:].to(logits.device), 0.0)
        loss = None
        if labels is not None:
            labels = labels.to(logits.device)
            loss = focal_loss(logits, labels, self.config.focal_gamma, self.config.class_weights, num_items_in_batch)
        return StreamClassifierOutput(
            loss=loss,
            logits=logits,
            stream_attentions=outputs.stream_attentions,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

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
        logits are those of a batch that holds the whole timelines.

        Args:
            input_ids (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                The new posts, those of one timeline in order of time; any number of each timeline.
            attention_mask, token_type_ids, time_ids (`torch.LongTensor`, *optional*):
                Of shape `(num_posts, num_tokens)`, as a tokenizer returns them; a timeline has `time_ids` always or
                never.
            timeline_ids (`Sequence[str]`): The timeline of each post.
            timestamps (`Sequence[float]`, *optional*):
                Seconds, as Python numbers or in 64 bits; a timeline has them always or never.
            state (`StreamState`, *optional*):
                What is remembered of the timelines: the `state` of the step before. Changed in place, but not if an
                error is raised.
            drop_late (`bool`, *optional*, defaults to `False`):
                Whether a post that is older than the newest seen of its timeline is left out, and counted in
                `state.num_dropped`, instead of raising a `LatePostError`.

        Returns:
            [`StreamStepOutput`]. Raises a [`LatePostError`] for a late post; a `ValueError` that names the post for a
            timestamp that is missing, not finite or a float of fewer than 64 bits or a post without a token, for a
            token masked inside a post where the encoder's layers compute positions anew, and in training mode; a
            `TypeError` for a tensor of timestamps of fewer than 64 bits and timeline ids that are no strings.
        """
        if self.training:
            raise ValueError("`step` is for inference: call `model.eval()` first.")
        broken = self.tempoformer.check_posts(2, input_ids, attention_mask, token_type_ids, time_ids)
        if attention_mask is not None:
            broken += self.tempoformer.check_gaps(attention_mask)
        self.tempoformer.check_length(input_ids.shape[1])
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if len(timeline_ids) != len(input_ids):
            raise ValueError(f"There are {len(timeline_ids)} timeline ids for {len(input_ids)} posts.")
        refuse(broken)
        self.tempoformer.check_timed(timestamps is not None)
        if not attention_mask.any(-1).all():
            empty = int((~attention_mask.any(-1)).nonzero()[0])
            raise ValueError(f"Post {empty} of timeline {timeline_ids[empty]!r} has no token, not even [CLS].")
        state = StreamState() if state is None else state
        hidden_size = self.config.encoder_config.hidden_size
        kept = state.check(timeline_ids, timestamps, time_ids is not None, drop_late, hidden_size)
        is_kept = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
        is_kept[kept] = True
        logits = torch.zeros(0, self.config.num_labels, dtype=self.dtype, device=input_ids.device)
        if kept:
            inputs = {"input_ids": input_ids, "token_type_ids": token_type_ids}
            logits = self.step_in_time(
                {name: tensor[is_kept] for name, tensor in inputs.items() if tensor is not None},
                attention_mask[is_kept].bool(),
                None if time_ids is None else time_ids[is_kept],
                [timeline_ids[post] for post in kept],
                None if timestamps is None else [float(timestamps[post]) for post in kept],
                state,
            )
        logits = scatter(logits, is_kept.nonzero().squeeze(-1), is_kept.shape)
        state.num_dropped += len(input_ids) - len(kept)
        return StreamStepOutput(logits=logits, kept=is_kept, state=state)

    def step_in_time(
        self,
        inputs: dict[str, torch.Tensor],
        mask: torch.BoolTensor,
        time_ids: torch.LongTensor | None,
        timeline_ids: list[str],
        timestamps: list[float] | None,
        state: StreamState,
    ) -> torch.Tensor:
        """Logits (posts, classes) of new posts, none of them late, which `state` remembers afterwards."""
        base, window = self.tempoformer, self.config.window
        new = PostGroups(mask, time_ids)
        new_states = new.join_states(base.encode_posts(new, inputs)[-1])
        most = None if len(base.stream_layers) else 1

        # All posts that are needed, timeline by timeline, old and new.
        members: dict[str, list[int]] = {}
        for post, timeline_id in enumerate(timeline_ids):
            members.setdefault(timeline_id, []).append(post)
        states: list[torch.Tensor] = []
        calendar: list[torch.Tensor] = []
        index = torch.full((len(timeline_ids), window), -1)
        elapsed = None if timestamps is None else torch.zeros(len(timeline_ids), window)
        remembered = {}
        for timeline_id, posts in members.items():
            old, times = state.recall(timeline_id)
            sequence = [post.to(new_states) for post in old]
            sequence += [new_states[post][mask[post].to(new_states.device)][:most] for post in posts]
            targets = torch.arange(len(old), len(sequence))
            windows = stream_windows(targets, window)
            time_points = None
            if time_ids is not None:
                time_points = state.time_ids.get(timeline_id, [])
                time_points = [*time_points, *(time_ids[post][mask[post]][:most] for post in posts)]
                calendar += [post.to(mask.device) for post in time_points]
            index[posts] = torch.where(windows < 0, -1, windows + len(states))
            if timestamps is not None:
                times = [*times, *(timestamps[post] for post in posts)]
                elapsed[posts] = elapsed_seconds(torch.tensor(times, dtype=torch.float64), windows)
            states += sequence
            remembered[timeline_id] = (sequence, None if timestamps is None else times, time_points)

        known = torch.tensor([len(post) for post in states], device=mask.device)
        known = PostGroups(
            torch.arange(int(known.max()), device=mask.device) < known.unsqueeze(-1),
            nn.utils.rnn.pad_sequence(calendar, batch_first=True) if calendar else None,
        )
        index = index.to(mask.device)
        tau = base.log_time(None if elapsed is None else elapsed.to(mask.device), index)
        padded = nn.utils.rnn.pad_sequence(states, batch_first=True)
        outputs, pooled, _ = base.read_streams(known, known.cut(padded), index.clamp_min(0), index >= 0, tau)
        for timeline_id, known_posts in remembered.items():
            state.remember(timeline_id, window, *known_posts)
        return self.classifier(
            outputs.unsqueeze(0), None if pooled is None else pooled.unsqueeze(0), (index >= 0).unsqueeze(0)
        ).squeeze(0)


__all__ = ["StreamState", "TempoFormerForStreamClassification", "TempoFormerModel", "TempoFormerPreTrainedModel"]
