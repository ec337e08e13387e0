"""
The post model, this project's default: an encoder reads each post once, and new layers read one vector for each post
of a stream, with the temporal rotation of TempoFormer (Tseriotou, Tsakalidis and Liakata, 2024, section 4.2). What it
shares with the paper's model, `modeling_tempoformer.py`, is here, too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Unpack

import torch
from torch import nn
from transformers import (
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    MODEL_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForTextEncoding,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers import initialization as init
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple, logging

from .checks_tempoformer import check_shape, check_whole
from .configuration_post_tempoformer import PostTempoFormerConfig, StreamFields
from .data_collator_tempoformer import stream_windows
from .online_tempoformer import StreamState, StreamStepMixin

# Not used here: `save_pretrained` copies this file and the files that it imports, and the pipeline must be among them.
from .pipeline_tempoformer import StreamClassificationPipeline  # noqa: F401
from .trees_tempoformer import Trees


logger = logging.get_logger(__name__)


# Arguments that the library passes to every model.
IGNORED_KWARGS = {"return_dict", "use_cache"}
# What a mask adds to scores: the softmax of it is 0 in every dtype, and the sum of two is a number in float16.
MASKED = -3e4
# Tokens, with padding, that the encoder reads together: at most, and so few that posts need not be alike in length.
TOKENS_AT_ONCE, FEW_TOKENS = 8192, 256


@dataclass
class StreamClassifierOutput(ModelOutput):
    """
    Args:
        loss (`torch.FloatTensor`, *optional*, with `labels`): Focal loss, a scalar in float32.
        logits (`torch.FloatTensor` of shape `(batch_size, num_streams, num_labels)`): Scores before softmax for the
            newest post of each stream; 0 for a stream without posts.
        stream_attentions, hidden_states, attentions: As the model without the head returns them.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    stream_attentions: tuple[torch.FloatTensor, ...] | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class PostTempoFormerModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, num_streams, num_members * head_width)`):
            What a head reads of each stream, the members side by side; 0 for a stream without posts. Of a member it is
            the newest post after the stream layers, the step from the post before it, its absolute value (each
            `stream_hidden_size`), and the newest post's cosines with the post before it and the mean of all before it.
        stream_mask (`torch.BoolTensor` of shape `(batch_size, num_streams, window)`): Where a stream has a post.
        pairs (`torch.FloatTensor` of shape `(batch_size, num_streams, 2, hidden_size)`):
            The vectors of the post before the newest one of each stream, and of the newest; 0 where there is none.
        stream_attentions (`tuple(torch.FloatTensor)`, *optional*):
            With `output_attentions=True` or `output_stream_attentions=True` one tensor of shape
            `(batch_size, num_streams, num_members * num_heads, window, window)` for each stream layer: the attention
            of each post (fourth axis) to the posts of its stream (last axis); 0 where the stream has no post.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, with `output_hidden_states=True`):
            What the first stream layer reads and the output of each, of shape
            `(batch_size, num_streams, window, num_members * stream_hidden_size)`.
    """

    last_hidden_state: torch.FloatTensor | None = None
    stream_mask: torch.BoolTensor | None = None
    pairs: torch.FloatTensor | None = None
    stream_attentions: tuple[torch.FloatTensor, ...] | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None


@dataclass
class Streams:
    """The streams of a batch. Posts and streams of all rows are numbered one after the other."""

    token_mask: torch.BoolTensor  # (posts, tokens)
    slot_post: torch.LongTensor  # the post in each place of a stream (streams, window)
    slot_mask: torch.BoolTensor  # where there is one; nowhere in a stream without newest post
    tau: torch.FloatTensor | None  # how far each post is from the newest one; None to ignore it
    shape: tuple[int, int]  # rows, and streams of each

    @property
    def visible(self) -> torch.BoolTensor:
        """What posts attend to (streams, window). An empty stream sees its newest place: no softmax is of nothing."""
        return torch.cat((self.slot_mask[:, :-1], torch.ones_like(self.slot_mask[:, -1:])), dim=1)

    @property
    def pair(self) -> tuple[torch.LongTensor, torch.BoolTensor]:
        """The post before the newest one, and the newest (streams, 2), and where there is one."""
        # A slot before the first, since in a window of one there is no other.
        return tuple(nn.functional.pad(slots, (1, 0))[:, -2:] for slots in (self.slot_post, self.slot_mask))


def focal_loss(
    logits: torch.Tensor,
    labels: torch.LongTensor,
    gamma: float = 2.0,
    class_weights: list[float] | None = None,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> torch.Tensor:
    """
    Focal loss (Lin et al., 2017): `-w_y (1 - p_y)^gamma log p_y`, the mean over labelled streams.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): Scores before softmax.
        labels (`torch.LongTensor` of shape `(...)`): Class of each stream; -100 for none.
        gamma (`float`, *optional*, defaults to 2.0): 0 gives weighted cross-entropy.
        class_weights (`list[float]`, *optional*): `w`; 1 for every class if omitted.
        num_items_in_batch (`int` or `torch.Tensor`, *optional*):
            The number of labelled streams in all batches of an optimiser step; that in `labels` if omitted.

    Returns:
        A scalar in float32; 0 where no stream has a label.
    """
    labelled = labels != -100
    target = labels.masked_fill(~labelled, 0).unsqueeze(-1)
    log_p = logits.float().log_softmax(-1).gather(-1, target).squeeze(-1)
    # Above zero, where the slope of x^gamma is infinite for gamma < 1.
    missing = (-torch.expm1(log_p)).clamp_min(torch.finfo(log_p.dtype).tiny)
    losses = -(missing**gamma) * log_p
    if class_weights is not None:
        losses = losses * losses.new_tensor(class_weights)[target.squeeze(-1)]
    total = losses.masked_fill(~labelled, 0.0).sum()
    if num_items_in_batch is None:
        return total / labelled.sum().clamp_min(1)
    return total / torch.as_tensor(num_items_in_batch, device=total.device).clamp_min(1)


def rotate_pairs(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates the pairs (2i, 2i+1) of the last axis of `states`; `cos` and `sin` have the pair's value at both."""
    turned = torch.stack((-states[..., 1::2], states[..., 0::2]), dim=-1).flatten(-2)
    return torch.addcmul(states * cos, turned, sin)


class StreamPositionEmbedding(nn.Embedding):
    """Embeddings of stream positions; a class of its own for its initial scale."""


class MemberLinear(nn.Module):
    """
    A linear layer of each member, from (members, ..., inputs), or the same for all (1, ..., inputs), to (members, ...,
    outputs). It starts at the "encoder"'s scale; at "zero", so that adding its output changes nothing at first; or at
    PyTorch's own for a "narrow" head, for which the encoder's is too small.
    """

    def __init__(self, members: int, inputs: int, outputs: int, bias: bool = True, start: str = "encoder"):
        super().__init__()
        self.start = start
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs)) if bias else None

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        members = self.weight.shape[0]
        rows = states.expand(members, *states.shape[1:]).flatten(1, -2)
        found = rows @ self.weight if self.bias is None else torch.baddbmm(self.bias, rows, self.weight)
        return found.unflatten(1, states.shape[1:-1])


class MemberLayerNorm(nn.Module):
    """A layer norm of each member, of (members, ..., width). By its name the library knows how it starts."""

    def __init__(self, members: int, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(members, width))
        self.bias = nn.Parameter(torch.zeros(members, width))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        shape = (-1, *[1] * (states.dim() - 2), states.shape[-1])
        normal = nn.functional.layer_norm(states, states.shape[-1:])
        return torch.addcmul(self.bias.view(shape), normal, self.weight.view(shape))


def class_layers(config: StreamFields, width: int, linear: Callable[[int, int], nn.Module]) -> nn.Sequential:
    """The classifier of vectors of `width`: hidden layers with ReLU and dropout, and one output for each class."""
    layers = []
    for hidden_width in config.head_hidden_sizes:
        layers += [linear(width, hidden_width), nn.ReLU(), nn.Dropout(config.head_dropout)]
        width = hidden_width
    return nn.Sequential(*layers, linear(width, config.num_labels))


class StreamAttention(nn.Module):
    """
    Multi-head attention across the vectors of a stream's posts (paper, section 4.2). Queries and keys are rotated by
    `tau * theta_i`, `theta_i = rope_theta^(-2(i-1)/d)`, so that scores depend on differences of `tau`.
    """

    def __init__(
        self, config: StreamFields, dropout: float, linear: Callable[..., nn.Module], last: Callable[..., nn.Module]
    ):
        super().__init__()
        self.rope_theta, width = config.rope_theta, config.stream_width
        self.num_heads = config.encoder_config.num_attention_heads
        self.head_dim = width // self.num_heads
        bias = config.stream_attention == "full"
        self.q_proj, self.k_proj, self.v_proj = (linear(width, width, bias=bias) for _ in range(3))
        self.o_proj = last(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, posts: torch.Tensor, streams: Streams, output_attentions: bool = False, only_newest: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        The context of `posts` (members, streams, window, width), or with `only_newest` of the newest, and if asked for
        their attention, in which the members' heads stand side by side.
        """
        asking = slice(-1, None) if only_newest else slice(None)
        query, key, value = (
            projection(states).unflatten(-1, (self.num_heads, self.head_dim)).permute(1, 0, 3, 2, 4).flatten(1, 2)
            for projection, states in ((self.q_proj, posts[:, :, asking]), (self.k_proj, posts), (self.v_proj, posts))
        )
        if streams.tau is not None:
            exponents = torch.arange(0, self.head_dim, 2, device=posts.device, dtype=torch.float32) / self.head_dim
            tau = streams.tau.to(posts.device)
            angles = (tau[:, None, :, None] * self.rope_theta**-exponents).repeat_interleave(2, dim=-1)
            cos, sin = angles.cos().to(query.dtype), angles.sin().to(query.dtype)
            query, key = rotate_pairs(query, cos[:, :, asking], sin[:, :, asking]), rotate_pairs(key, cos, sin)
        bias = ((~streams.visible).to(query) * MASKED)[:, None, None]
        weights = None
        if output_attentions:
            scores = query @ key.mT * self.head_dim**-0.5 + bias
            weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
            context = weights @ value
        else:
            context = nn.functional.scaled_dot_product_attention(query, key, value, bias)
        context = context.unflatten(1, (-1, self.num_heads)).permute(1, 0, 3, 2, 4).flatten(-2)
        return self.dropout(self.o_proj(context)), weights


def start_narrow(module: nn.Module, width: int):
    """PyTorch's own initialisation of a layer of `width` inputs: the encoder's scale is too small for a head."""
    for weight in module.parameters():
        init.uniform_(weight, -(width**-0.5), width**-0.5)


class StreamPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation, common to all models of streams."""

    base_model_prefix = "tempoformer"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True
    # Encoders that the Auto classes do not know where this code was loaded from the Hub.
    own_encoders: ClassVar[dict[str, type[PreTrainedModel]]] = {}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, StreamPositionEmbedding):
            init.normal_(module.weight, std=self.config.stream_position_initializer_range)
        elif isinstance(module, MemberLinear) and module.start == "narrow":
            start_narrow(module, module.weight.shape[1])
        elif isinstance(module, MemberLinear):
            std = 0.0 if module.start == "zero" else getattr(self.config.encoder_config, "initializer_range", 0.02)
            init.normal_(module.weight, std=std)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, Trees):
            for name, values in module.named_buffers():
                init.constant_(values, float(name == "scale"))

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # The library looks for its attention in this file, but has to look in the encoder's.
        return True

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, output_loading_info=False, **kwargs):
        """
        As in the library, but from safetensors only, since a pickle can hold code, and from a checkpoint that has all
        weights of the model. That of a model without a head leaves a head new, with the library's warning.

        Args:
            pretrained_model_name_or_path, model_args, kwargs: As in the library.
            output_loading_info (`bool`, *optional*, defaults to `False`):
                Whether to return names of weights, too, instead of raising a `ValueError` that names missing ones.
        """
        kwargs |= {"output_loading_info": True, "use_safetensors": True}
        model, info = super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        missing = info["missing_keys"]
        if model.base_model is not model and type(model.base_model).__name__ in (model.config.architectures or ()):
            missing = {name for name in missing if name.startswith(f"{cls.base_model_prefix}.")}
            # Those of a head that the weights may once have had.
            for field in ("calibration", "tree_weights"):
                if hasattr(model.config, field):
                    setattr(model.config, field, None)
        if output_loading_info:
            return model, info
        # Without a name the weights are those that the caller gives.
        if pretrained_model_name_or_path is not None:
            check_whole(pretrained_model_name_or_path, missing)
        return model

    @classmethod
    def from_encoder_pretrained(cls, name: str, config: StreamFields | None = None, **kwargs):
        """
        A model with a pretrained encoder, and with new stream layers and a new head.

        Args:
            name (`str`): Folder or Hub id of an encoder's checkpoint.
            config ([`PostTempoFormerConfig`] or [`TempoFormerConfig`], *optional*):
                The model's configuration; its `encoder_config` is replaced by the checkpoint's.
            kwargs: Without `config`, fields of the configuration and `num_labels` set it. All else, such as
                `revision`, `token`, `dtype` or `attn_implementation`, goes to the encoder's `from_pretrained`.
                Default `dtype`: float32, since 16 bits are too coarse for training.

        Returns:
            The model in evaluation mode, as after `from_pretrained`. Raises a `ValueError` for an encoder that the
            model cannot read, and an `OSError` if the weights are not safetensors.
        """
        fields = {*cls.config_class.__dataclass_fields__, "num_labels"} - {"dtype"}
        settings = {key: kwargs.pop(key) for key in list(kwargs) if key in fields}
        # `torch_dtype` is the old name, which the library still takes.
        kwargs.setdefault("dtype", kwargs.pop("torch_dtype", torch.float32))
        if config is not None and settings:
            raise ValueError(f"Give either `config` or its fields, not both: {', '.join(settings)}.")
        weight_settings = ("dtype", "attn_implementation", "use_safetensors")
        config_settings = {key: value for key, value in kwargs.items() if key not in weight_settings}
        encoder_config = AutoConfig.from_pretrained(name, **config_settings)
        # From a dict, so that the settings are validated with this encoder's configuration, before it is loaded.
        settings = settings if config is None else config.to_dict()
        config = cls.config_class.from_dict({**settings, "encoder_config": encoder_config.to_dict()})
        encoder, info = cls.load_encoder(name, config, **{**kwargs, "use_safetensors": True})
        if missing := sorted(info["missing_keys"] & encoder.state_dict().keys()):
            logger.warning(f"Not in {name}, so that they are random numbers: {', '.join(missing)}.")
        model = cls._from_config(
            config, dtype=encoder.dtype, attn_implementation=encoder.config._attn_implementation
        ).eval()
        model.base_model.encoder.load_state_dict(encoder.state_dict())
        return model

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module):
        self.base_model.encoder.set_input_embeddings(value)


class StreamReaderMixin:
    """What models of streams do with their inputs."""

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens in a post that the encoder has positions for."""
        return longest_input(self.encoder)

    def output_settings(self, kwargs: dict[str, Any]) -> tuple[Any, bool, bool]:
        """What to return: hidden states (as the caller asked for them), attention inside posts, and across posts."""
        given = {name: value for name, value in kwargs.items() if value is not None and name not in IGNORED_KWARGS}
        hidden_states = given.pop("output_hidden_states", self.config.output_hidden_states)
        attentions = bool(given.pop("output_attentions", self.config.output_attentions))
        stream_attentions = attentions or given.pop("output_stream_attentions", False)
        if given:
            raise TypeError(f"Unknown arguments: {', '.join(given)}.")
        return hidden_states, attentions, stream_attentions

    def check_times(self, elapsed: object | None, time_ids: torch.Tensor | None):
        """
        Raises a `ValueError` for `time_ids` that the encoder does not read, or `elapsed` unlike in training, whatever
        the attention reads: trees read times, too.
        """
        config, encoder = self.config, self.config.encoder_config
        if time_ids is not None and not hasattr(encoder, "num_time_ids"):
            raise ValueError(f"`time_ids` are for encoders with temporal attention, not for a '{encoder.model_type}'.")
        if config.timed is not None and config.timed != (elapsed is not None):
            problem = "no times are given" if config.timed else "times are given"
            raise ValueError(f"The model was trained with `timed={config.timed}` in its configuration, but {problem}.")

    def lay_out(
        self,
        posts: dict[str, torch.Tensor | None],
        attention_mask: torch.LongTensor | None,
        stream_index: torch.LongTensor | None,
        elapsed: torch.FloatTensor | None,
    ) -> tuple[dict[str, torch.Tensor], Streams]:
        """The given inputs of the posts of all rows, (posts, ...), and their streams."""
        given = {name: tensor for name, tensor in posts.items() if tensor is not None}
        # First, as it is what a pipeline for single texts gives.
        if "input_ids" in given and given["input_ids"].dim() != 3:
            raise ValueError(
                f"`input_ids` must have the shape (rows, posts, tokens), got {tuple(given['input_ids'].shape)}. Give "
                "timelines to `pipeline('stream-classification')`, or rows of posts to `StreamCollator`."
            )
        self.check_times(elapsed, given.get("time_ids"))
        ways = [name for name in ("input_ids", "inputs_embeds", "post_embeds") if name in posts]
        chosen = [name for name in ways if name in given]
        if len(chosen) != 1:
            raise ValueError(f"Give exactly one of {', '.join(f'`{name}`' for name in ways)}.")
        first = given[chosen[0]]
        check_shape("post_embeds", given.get("post_embeds"), None, None, self.config.encoder_config.hidden_size)
        shape = (*first.shape[:2], 1 if chosen == ["post_embeds"] else first.shape[2])
        for name in ("token_type_ids", "time_ids"):
            check_shape(name, given.get(name), *shape)
        check_shape("attention_mask", attention_mask, *shape)
        mask = torch.ones(shape, device=first.device) if attention_mask is None else attention_mask
        mask = mask.bool()
        batch_size, num_posts = shape[:2]
        is_post = mask.any(-1)
        if stream_index is None:
            newest = (is_post * torch.arange(num_posts, device=mask.device)).amax(-1)
            stream_index = stream_windows(newest, num_posts).unsqueeze(1)
        check_shape("stream_index", stream_index, batch_size, None, None)
        check_shape("elapsed", elapsed, *stream_index.shape)
        num_streams, window = stream_index.shape[1:]
        if window > self.config.window:
            raise ValueError(f"Streams of {window} posts, but the model's `window` is {self.config.window}.")
        # A stream is real if its newest post is, and its posts are those that are real.
        first_post = torch.arange(batch_size, device=stream_index.device)[:, None, None] * num_posts
        slot_post = (stream_index.clamp_min(0) + first_post).flatten(0, 1)
        slot_mask = (stream_index >= 0).flatten(0, 1) & is_post.flatten()[slot_post]
        slot_mask = slot_mask & slot_mask[:, -1:]
        tau = None
        if self.config.stream_attention == "temporal_rotary" and elapsed is not None:
            tau = elapsed.flatten(0, 1).float().clamp_min(1.0).log()
        elif self.config.stream_attention != "full":
            distance = torch.arange(window - 1, -1, -1, device=slot_post.device, dtype=torch.float32)
            tau = distance.expand(slot_post.shape)
        inputs = {name: tensor.flatten(0, 1) for name, tensor in given.items()}
        return inputs, Streams(mask.flatten(0, 1), slot_post, slot_mask, tau, (batch_size, num_streams))


class PostTempoFormerPreTrainedModel(StreamPreTrainedModel):
    """
    Loading, saving and initialisation of the post model.

    Args:
        config ([`PostTempoFormerConfig`]): The model's configuration.
    """

    config: PostTempoFormerConfig
    # Modules that must not be split across devices.
    _no_split_modules = ["StreamLayers"]

    @classmethod
    def encoder_class(cls, config: PreTrainedConfig) -> Any:
        """The class that builds and loads the encoder; where `AutoModel` adds a decoder, the one without."""
        whole, encoder = (kind.get(type(config), None) for kind in (MODEL_MAPPING, MODEL_FOR_TEXT_ENCODING_MAPPING))
        auto_class = AutoModel if encoder in (None, whole) else AutoModelForTextEncoding
        return cls.own_encoders.get(config.model_type, auto_class)

    @classmethod
    def load_encoder(
        cls, name: str, config: PostTempoFormerConfig, **kwargs
    ) -> tuple[PreTrainedModel, dict[str, Any]]:
        """The pretrained encoder `name`, without its pooler, and the library's loading info."""
        encoder_class = cls.encoder_class(config.encoder_config)
        encoder, info = encoder_class.from_pretrained(name, output_loading_info=True, **kwargs)
        encoder.pooler = None
        return encoder, info


class StreamLayer(nn.Module):
    """A pre-norm layer: stream positions, attention across the posts of a stream, and a feed-forward step."""

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        members, width = config.num_members, config.stream_hidden_size
        linear = partial(MemberLinear, members)
        self.position = StreamPositionEmbedding(config.window, members * width)
        self.dropout = nn.Dropout(config.stream_dropout)
        self.attention_norm = MemberLayerNorm(members, width)
        self.attention = StreamAttention(config, config.stream_dropout, linear, partial(linear, start="zero"))
        self.mlp_norm = MemberLayerNorm(members, width)
        self.mlp = nn.Sequential(linear(width, 4 * width), nn.GELU(), linear(4 * width, width), self.dropout)

    def forward(
        self, posts: torch.Tensor, streams: Streams, output_attentions: bool, only_newest: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As [`StreamAttention.forward`]."""
        # The newest post always has the last position.
        last, window = self.position.num_embeddings, posts.shape[2]
        positions = self.position(torch.arange(last - window, last, device=posts.device))
        positions = positions.unflatten(-1, (posts.shape[0], -1)).transpose(0, 1).unsqueeze(1)
        posts = posts + self.dropout(positions)
        context, weights = self.attention(self.attention_norm(posts), streams, output_attentions, only_newest)
        context = context + posts[:, :, -context.shape[2] :]
        return context + self.mlp(self.mlp_norm(context)), weights


class StreamLayers(nn.Module):
    """From the vectors of posts to what the head of each member reads, as [`PostTempoFormerModelOutput`] lists it."""

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        members, width = config.num_members, config.stream_hidden_size
        self.norm = MemberLayerNorm(members, config.encoder_config.hidden_size)
        self.projection = MemberLinear(members, config.encoder_config.hidden_size, width)
        self.layers = nn.ModuleList(StreamLayer(config) for _ in range(config.num_stream_layers))
        self.final_norm = MemberLayerNorm(members, width)

    def forward(
        self, vectors: torch.Tensor, streams: Streams, output_attentions: bool = False, all_posts: bool = False
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """
        From `vectors` (posts, hidden) what a head reads of each stream (members, streams, `config.head_width`); what
        the first layer reads and the output of each (members, streams, window, width); and the attention of each.
        """
        slot_post, slot_mask, pair, has_pair = (
            tensor.to(vectors.device) for tensor in (streams.slot_post, streams.slot_mask, *streams.pair)
        )
        # Vectors that were computed before may be in more bits than the model.
        projected = self.projection(self.norm(vectors.unsqueeze(0).to(self.norm.weight.dtype)))
        states = projected[:, slot_post]
        all_states, attentions = [states], []
        for index, layer in enumerate(self.layers):
            # The newest post is all that is read of the last layer.
            only_newest = index == len(self.layers) - 1 and not (output_attentions or all_posts)
            states, weights = layer(states, streams, output_attentions, only_newest)
            all_states.append(states)
            attentions.append(weights)
        previous, newest = projected[:, pair].unbind(2)
        step = (newest - previous) * has_pair[:, :1]
        alike = likeness(vectors[slot_post], slot_mask).to(step).expand(len(states), -1, -1)
        read = torch.cat((self.final_norm(states[:, :, -1]), step, step.abs(), alike), dim=-1)
        return read, all_states, attentions


def likeness(vectors: torch.Tensor, slot_mask: torch.BoolTensor) -> torch.Tensor:
    """From (streams, window, hidden) the newest vector's cosines with the one before and the mean of all before."""
    # In float32, as float16 has no number so small as what keeps this from dividing 0 by 0.
    units = nn.functional.normalize(vectors.float(), dim=-1) * slot_mask.unsqueeze(-1)
    newest, earlier = units[:, -1:], units[:, :-1]
    references = torch.stack((nn.functional.pad(earlier, (0, 0, 1, 0))[:, -1], earlier.sum(1)), dim=1)
    return (newest * nn.functional.normalize(references, dim=-1)).sum(-1)


def side_by_side(states: torch.Tensor) -> torch.Tensor:
    """From (members, ..., width) to (..., members * width)."""
    return states.movedim(0, -2).flatten(-2)


class PostTempoFormerModel(StreamReaderMixin, PostTempoFormerPreTrainedModel):
    r"""
    An encoder that reads each post by itself, and new layers over one vector for each post of a stream, with attention
    that is rotated by log time (Tseriotou, Tsakalidis and Liakata, 2024, section 4.2).

    Args:
        config ([`PostTempoFormerConfig`]): Its `encoder_config` names the encoder.
    """

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__(config)
        encoder_class = self.encoder_class(config.encoder_config)
        is_own = config.encoder_config.model_type in self.own_encoders
        build = encoder_class._from_config if is_own else encoder_class.from_config
        # The dtype of our own parts, not the one that the encoder was saved in.
        self.encoder = build(config.encoder_config, dtype=torch.get_default_dtype())
        self.encoder.pooler = None
        self.stream_layers = StreamLayers(config)
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
        post_embeds: torch.FloatTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> PostTempoFormerModelOutput:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`, *optional*):
                Every post of a row once. A post whose `attention_mask` is all 0 is absent.
            attention_mask, token_type_ids, time_ids (`torch.LongTensor`, *optional*):
                Of the shape of `input_ids`: 1 for real tokens, 0 for padding (all 1 if omitted); segment ids (all 0 if
                omitted); and calendar time of the tokens, required by encoders with temporal attention.
            stream_index (`torch.LongTensor` of shape `(batch_size, num_streams, window)`, *optional*):
                The posts of each stream, oldest to newest, -1 on the left where there is none; `window` at most
                `config.window`. If omitted, the posts of a row are one stream up to its last real one.
            elapsed (`torch.FloatTensor` of shape `(batch_size, num_streams, window)`, *optional*):
                Seconds from each post to the newest, in float32 whatever the model's dtype. If omitted, the rotation
                is by the distance in posts.
            inputs_embeds (`torch.FloatTensor`, *optional*):
                Of shape `(batch_size, num_posts, num_tokens, width of the word embeddings)`, instead of `input_ids`.
            post_embeds (`torch.FloatTensor` of shape `(batch_size, num_posts, hidden_size)`, *optional*):
                The posts' vectors, as `embed_posts` returns them, instead of `input_ids`; `num_tokens` is then 1.
            kwargs: `output_hidden_states`, `output_attentions`, `output_stream_attentions`, `return_dict`.

        Returns:
            [`PostTempoFormerModelOutput`]. Raises a `ValueError` for tensors of other shapes, and for `elapsed` that
            is missing or given unlike in training; a `TypeError` for an unknown argument. Values are not checked, as
            [`StreamCollator`] checks them.
        """
        output_hidden_states, _, output_attentions = self.output_settings(kwargs)
        given = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
        given |= {"time_ids": time_ids, "post_embeds": post_embeds}
        inputs, streams = self.lay_out(given, attention_mask, stream_index, elapsed)
        vectors = inputs.pop("post_embeds", None)
        if vectors is None:
            vectors = self.embed_posts(attention_mask=streams.token_mask, **inputs)
        newest, states, attentions = self.stream_layers(vectors, streams, output_attentions, output_hidden_states)
        mask, by_row = streams.slot_mask.to(newest.device), partial(torch.unflatten, dim=0, sizes=streams.shape)
        queries = mask[:, None, :, None]
        pair, has_pair = (tensor.to(vectors.device) for tensor in streams.pair)
        return PostTempoFormerModelOutput(
            last_hidden_state=by_row(side_by_side(newest).masked_fill(~mask[:, -1:], 0.0)),
            stream_mask=by_row(mask),
            pairs=by_row(vectors[pair] * has_pair.unsqueeze(-1)),
            stream_attentions=tuple(by_row(layer * queries) for layer in attentions) if output_attentions else None,
            hidden_states=tuple(by_row(side_by_side(layer)) for layer in states) if output_hidden_states else None,
        )

    def embed_posts(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.LongTensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.FloatTensor:
        """
        The vector of each post, for `post_embeds`.

        Args:
            input_ids, attention_mask, inputs (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                What a tokenizer returns for the posts, or `inputs_embeds`. `attention_mask` is all 1 if omitted.

        Returns:
            `torch.FloatTensor` of shape `(num_posts, hidden_size)`; 0 for a post without real tokens.
        """
        inputs = inputs if input_ids is None else {"input_ids": input_ids, **inputs}
        # Encoders without segments do not take them.
        if not getattr(self.config.encoder_config, "type_vocab_size", 0):
            inputs.pop("token_type_ids", None)
        first = next(iter(inputs.values()))
        mask = torch.ones(first.shape[:2], device=first.device) if attention_mask is None else attention_mask
        mask, parts, order = mask.bool(), [], []
        for chosen, length in batches_of(mask, has_equal_calls(self)):
            tokens = mask[chosen, :length]
            states = self.encoder(
                **{name: values[chosen, :length] for name, values in inputs.items()}, attention_mask=tokens.long()
            ).last_hidden_state
            if self.config.post_pooling == "cls":
                parts.append(states[:, 0])
            else:
                tokens = tokens.unsqueeze(-1).to(states)
                parts.append((states * tokens).sum(1) / tokens.sum(1).clamp_min(1))
            order.append(chosen)
        if not parts:
            width = self.config.encoder_config.hidden_size
            return torch.zeros(len(mask), width, dtype=self.dtype, device=mask.device)
        vectors = torch.cat(parts)
        empty = vectors.new_zeros(mask.shape[0], vectors.shape[-1])
        vectors = empty.index_copy(0, torch.cat(order).to(vectors.device), vectors)
        return vectors.masked_fill(~mask.any(-1, keepdim=True).to(vectors.device), 0.0)

    def post_inputs(self, attention_mask: torch.LongTensor, **tokens: torch.LongTensor) -> dict[str, torch.Tensor]:
        """What `forward` takes of posts (batch_size, num_posts, num_tokens) that need not be encoded again."""
        flat = {name: values.flatten(0, 1) for name, values in tokens.items()}
        vectors = self.embed_posts(attention_mask=attention_mask.flatten(0, 1), **flat)
        is_post = attention_mask.amax(-1, keepdim=True)
        return {"attention_mask": is_post, "post_embeds": vectors.unflatten(0, attention_mask.shape[:2])}


def longest_input(encoder: PreTrainedModel) -> int:
    """The largest number of tokens in a text that an encoder has positions for; 1e30 without a limit."""
    for name, table in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            # With an id for padding, positions start behind it.
            return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    most = getattr(encoder.config, "max_position_embeddings", None) or -1
    return most if most > 0 else int(1e30)


def has_equal_calls(model: nn.Module) -> bool:
    """Whether all processes must call the model's layers equally often: sharded weights are gathered at each call."""
    is_one_of_many = torch.distributed.is_available() and torch.distributed.is_initialized()
    if torch.compiler.is_compiling() or not is_one_of_many:
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    sharded = (FSDPModule, FullyShardedDataParallel)
    return is_deepspeed_zero3_enabled() or any(isinstance(module, sharded) for module in model.modules())


def batches_of(mask: torch.BoolTensor, as_one: bool = False) -> list[tuple[torch.LongTensor, int]]:
    """
    Batches of posts of similar length, or all posts `as_one`, from the mask of tokens (posts, tokens): their indices,
    and their length.
    """
    if as_one or torch.compiler.is_compiling():
        # While compiling, shapes must not depend on values.
        return [(torch.arange(mask.shape[0], device=mask.device), mask.shape[1])]
    lengths = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(-1).tolist()
    batches: list[list[int]] = [[]]
    for post in sorted((post for post, length in enumerate(lengths) if length), key=lengths.__getitem__):
        batch, length = batches[-1], lengths[post]
        num_tokens = len(batch) * length
        # The longest post of a batch has at most half as many tokens more than the shortest, unless all are few.
        if num_tokens >= TOKENS_AT_ONCE or (num_tokens >= FEW_TOKENS and 2 * length > 3 * lengths[batch[0]]):
            batches.append([])
        batches[-1].append(post)
    return [(torch.tensor(batch, device=mask.device), lengths[batch[-1]]) for batch in batches if batch]


class StreamClassificationMixin(StreamStepMixin):
    """A head that classifies the newest post of each stream, trained with the focal loss."""

    # The loss divides by `num_items_in_batch`.
    accepts_loss_kwargs = True

    # PEFT reaches these through the head: the `base_model` of its models is another one.
    @property
    def max_tokens(self) -> int:
        """The largest number of tokens in a post that the encoder has positions for."""
        return self.tempoformer.max_tokens

    @property
    def input_device(self) -> torch.device:
        """The device of the first weights; the CPU where they are offloaded, and are brought to what they read."""
        return torch.device("cpu") if self.device.type == "meta" else self.device

    def post_inputs(self, **posts: torch.Tensor) -> dict[str, torch.Tensor]:
        """Inputs of `forward` made of posts (batch_size, num_posts, num_tokens), so that none is read twice."""
        return self.tempoformer.post_inputs(**posts)

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
        post_embeds: torch.FloatTensor | None = None,
        place: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        held_out: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> StreamClassifierOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, stream_index, elapsed, inputs_embeds, time_ids, post_embeds:
                As the model without the head takes them.
            place (`torch.FloatTensor` of shape `(batch_size, num_streams, 2)`, *optional*):
                Posts of the timeline before the newest one, and seconds since the first, for the post model's trees.
            labels (`torch.LongTensor` of shape `(batch_size, num_streams)`, *optional*):
                Class of each stream's newest post; -100 for none.
            held_out (`torch.LongTensor` of shape `(batch_size,)`, *optional*):
                The member of the post model that does not learn from a row, and alone gives the row's logits.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                As of [`focal_loss`]. Refused without `labels`: so a Trainer with a loss of its own calls the model.
            kwargs: As the model without the head takes them.

        Returns:
            [`StreamClassifierOutput`]. Raises the errors of the model without the head.
        """
        if labels is None and num_items_in_batch is not None:
            raise ValueError(
                "The Trainer keeps the labels from the model, so that its focal loss and class weights are not used: "
                "leave out `label_smoothing_factor`, or for a `compute_loss_func` of your own set "
                "`model.accepts_loss_kwargs = False`."
            )
        outputs = self.tempoformer(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            stream_index=stream_index,
            elapsed=elapsed,
            inputs_embeds=inputs_embeds,
            time_ids=time_ids,
            post_embeds=post_embeds,
            **kwargs,
            return_dict=True,
        )
        scores = self.classify_streams(outputs, place, elapsed)
        scores = scores.masked_fill(~outputs.stream_mask[..., -1:].to(scores.device), 0.0)
        check_shape("held_out", held_out, scores.shape[1])
        logits = scores.mean(0)
        if held_out is not None:
            held_out = held_out.to(scores.device)
            logits = scores[held_out, torch.arange(len(held_out), device=scores.device)]
        loss = None
        if labels is not None:
            check_shape("labels", labels, *logits.shape[:2])
            judged, labels = logits, labels.to(logits.device)
            if self.training:
                # Each member learns by itself.
                judged, labels = scores, labels.expand(scores.shape[:-1])
                if held_out is not None:
                    members = torch.arange(len(scores), device=scores.device)
                    labels = labels.masked_fill(members[:, None, None] == held_out[:, None], -100)
                if num_items_in_batch is not None:
                    # One member does not learn from a row that is held out.
                    num_items_in_batch = num_items_in_batch * (len(scores) - (held_out is not None))
            loss = focal_loss(judged, labels, self.config.focal_gamma, self.config.class_weights, num_items_in_batch)
        return StreamClassifierOutput(
            loss=loss,
            logits=logits,
            stream_attentions=outputs.stream_attentions,
            hidden_states=outputs.hidden_states,
            attentions=outputs.get("attentions"),
        )


class PostTempoFormerForStreamClassification(StreamClassificationMixin, PostTempoFormerPreTrainedModel):
    r"""
    [`PostTempoFormerModel`] with a head that classifies the newest post of each stream, trained with the focal loss.
    `step` classifies posts as they arrive.

    Args:
        config ([`PostTempoFormerConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    base_class = PostTempoFormerModel

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.tempoformer = self.base_class(config)
        self.classifier = class_layers(
            config, config.head_width, partial(MemberLinear, config.num_members, start="narrow")
        )
        self.trees = Trees(config) if config.num_trees else None
        self.post_init()

    def classify_streams(
        self, outputs: PostTempoFormerModelOutput, place: torch.Tensor | None, elapsed: torch.Tensor | None
    ) -> torch.Tensor:
        """Each member's logits (members, batch_size, num_streams, num_labels); in evaluation mode trees count, too."""
        states = outputs.last_hidden_state.unflatten(-1, (self.config.num_members, -1)).movedim(-2, 0)
        logits = self.classifier(states)
        if self.trees is None or self.config.tree_weights is None or self.training:
            return logits
        if place is None:
            raise ValueError("The model's trees need `place`, as `StreamCollator` makes it.")
        network, trees = self.config.tree_weights
        # In float32, as is the sum: 16 bits are too coarse for thresholds.
        with torch.autocast(logits.device.type, enabled=False):
            of_trees = self.trees(self.trees.read(*self.tree_inputs(outputs, place, elapsed)))
        return network * logits + trees * of_trees.to(logits.device)

    def tree_inputs(
        self, outputs: PostTempoFormerModelOutput, place: torch.Tensor, elapsed: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What [`Trees.read`] takes, from the arguments of `classify_streams`."""
        timed = elapsed is not None and elapsed.shape[-1] > 1
        gap = elapsed[..., -2:-1] if timed else torch.zeros_like(place[..., :1])
        place = torch.cat((place, gap), dim=-1).to(outputs.pairs.device)
        # The last two of what a head reads are cosines.
        return outputs.pairs, outputs.last_hidden_state[..., -2:], place


__all__ = [
    "PostTempoFormerForStreamClassification",
    "PostTempoFormerModel",
    "PostTempoFormerPreTrainedModel",
    "StreamState",
]
