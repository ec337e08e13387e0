"""
The parts that both models of streams share: the focal loss, the rotation by log time and the attention across posts
(Tseriotou, Tsakalidis and Liakata, 2024, section 4), and the checks of their inputs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedModel
from transformers import initialization as init
from transformers.integrations import is_deepspeed_zero3_enabled
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import ModelOutput, logging

from .checks_tempoformer import check_indices, check_shape, check_whole, longest_input, own_class
from .configuration_streams_tempoformer import StreamFields

# Not used here: `save_pretrained` copies this file and the files that it imports, and the pipeline must be among them.
from .pipeline_tempoformer import StreamClassificationPipeline  # noqa: F401
from .streams_tempoformer import stream_windows


logger = logging.get_logger(__name__)

# Arguments that the library may pass to every model, and that change no output of ours.
IGNORED_KWARGS = {"num_items_in_batch", "output_router_logits", "return_dict", "use_cache"}
# The number that a mask adds to scores: its softmax is 0 in every dtype, and twice the number is finite in float16.
MASKED = -3e4
# The logit of the only class that a post can have; the logits of the others are -CERTAIN.
CERTAIN = 6.0


@dataclass
class StreamClassifierOutput(ModelOutput):
    """
    Args:
        loss (`torch.FloatTensor`, *optional*, with `labels`): Focal loss, a scalar in float32.
        logits (`torch.FloatTensor` of shape `(batch_size, num_streams, num_labels)`): Scores before softmax for the
            newest post of each stream; 0 for a stream without posts.
        state_logits (`torch.FloatTensor` of shape `(batch_size, num_streams, num_states)`, *optional*):
            The log-probability of each state of the newest post of each stream, if the model has learned states.
        stream_attentions, hidden_states, attentions: The outputs of the model without the head.
        expert_logits (`torch.FloatTensor` of shape `(batch_size, num_streams, num_experts, num_labels)`, *optional*):
            The scores of each expert alone, in evaluation, if the model has several.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    state_logits: torch.FloatTensor | None = None
    stream_attentions: tuple[torch.FloatTensor, ...] | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None
    expert_logits: torch.FloatTensor | None = None


@dataclass
class Streams:
    """Streams of a batch. Posts and streams of all rows are numbered one after the other."""

    token_mask: torch.BoolTensor  # (posts, tokens)
    slot_post: torch.LongTensor  # the post in each slot of a stream (streams, window)
    slot_mask: torch.BoolTensor  # where there is one; nowhere in a stream without newest post
    # the posts that the newest is compared with, then the newest (streams, compared + 1), and where there is one
    compared_post: torch.LongTensor
    compared_mask: torch.BoolTensor
    tau: torch.FloatTensor | None  # how far each post is from the newest one; None to ignore it
    shape: tuple[int, int]  # rows, and streams of each

    @property
    def visible(self) -> torch.BoolTensor:
        """Returns the slots that posts attend to (streams, window): all in an empty stream, to keep softmax finite."""
        return self.slot_mask | ~self.slot_mask[:, -1:]

    def split_rows(self, posts: torch.Tensor, num_rows: int) -> Iterator[tuple[torch.Tensor, "Streams"]]:
        """Yields the `posts` (posts, ...) and the streams of `num_rows` rows at a time."""
        rows, num_streams = self.shape
        num_posts = len(posts) // max(1, rows)
        for first in range(0, max(1, rows), num_rows):
            count = min(num_rows, rows - first)
            part, chosen = (slice(first * size, (first + count) * size) for size in (num_posts, num_streams))
            numbers = {
                name: getattr(self, name)[chosen] - first * num_posts for name in ("slot_post", "compared_post")
            }
            masks = {name: getattr(self, name)[chosen] for name in ("slot_mask", "compared_mask")}
            tau = None if self.tau is None else self.tau[chosen]
            yield (
                posts[part],
                replace(
                    self, token_mask=self.token_mask[part], tau=tau, shape=(count, num_streams), **numbers, **masks
                ),
            )


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
            The number of labelled streams in all batches of an optimiser step; the number in `labels` if omitted.

    Returns:
        A scalar in float32; 0 where no stream has a label.
    """
    labelled = labels != -100
    target = labels.masked_fill(~labelled, 0).unsqueeze(-1)
    log_p = logits.float().log_softmax(-1).gather(-1, target).squeeze(-1)
    # Kept above zero, because at zero the slope of x^gamma is infinite for gamma < 1.
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


# The class of a layer itself decides on its initial weights, not the class of the module around it: in models outside
# of Transformers, the library initialises only modules that have parameters of their own.
class ZeroStart:
    """A layer whose weights start at 0, so that adding its output changes nothing at first."""


class HeadStart:
    """A layer of a head, which starts at PyTorch's own scale, since the encoder's is too small for it."""


class HeadLinear(HeadStart, nn.Linear):
    """A linear layer of a head."""


def class_layers(config: StreamFields, width: int, linear: Callable[[int, int], HeadStart]) -> nn.Sequential:
    """Returns the classifier of vectors of `width`: hidden layers with ReLU and dropout, and one output per class."""
    layers = []
    for hidden_width in config.head_hidden_sizes:
        layers += [linear(width, hidden_width), nn.ReLU(), nn.Dropout(config.head_dropout)]
        width = hidden_width
    return nn.Sequential(*layers, linear(width, config.num_labels))


def eager_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.BoolTensor,
    scaling: float,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes attention without a fused kernel. Returns the context (streams, posts, heads, ...) and the weights."""
    scores = (query @ key.mT * scaling).masked_fill(~attention_mask, MASKED)
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ value).transpose(1, 2), weights


class StreamAttention(nn.Module):
    """
    Multi-head attention across the vectors of a stream's posts (paper, section 4.2). Queries and keys are rotated by
    `tau * theta_i`, `theta_i = rope_theta^(-2(i-1)/d)`, so that scores depend on differences of `tau`.
    """

    def __init__(
        self, config: StreamFields, dropout: float, linear: Callable[..., nn.Module], last: Callable[..., nn.Module]
    ):
        super().__init__()
        self.config, width = config, config.stream_width
        self.num_heads = config.encoder_config.num_attention_heads
        self.head_dim = width // self.num_heads
        bias = config.stream_attention == "full"
        self.q_proj, self.k_proj, self.v_proj = (linear(width, width, bias=bias) for _ in range(3))
        self.o_proj = last(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, posts: torch.Tensor, streams: Streams, output_attentions: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Returns the context of `posts` (members, streams, window, width) and, if asked for, the attention weights
        (streams, members * heads, window, window).
        """
        return self.attend(self.q_proj(posts), self.k_proj(posts), self.v_proj(posts), streams, output_attentions)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        streams: Streams,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Returns the result of `forward` from the projected posts (members, streams, window, width); `query` may be of
        the newest posts alone.
        """
        members, num_streams, num_asking = query.shape[:3]
        # (members, streams, posts, heads, dimensions of a head)
        query, key, value = (states.unflatten(-1, (self.num_heads, self.head_dim)) for states in (query, key, value))
        if streams.tau is not None:
            exponents = torch.arange(0, self.head_dim, 2, device=key.device, dtype=torch.float32) / self.head_dim
            frequencies = (self.config.rope_theta**-exponents).repeat_interleave(2)
            angles = streams.tau.to(key.device)[..., None, None] * frequencies
            cos, sin = angles.cos().to(query.dtype), angles.sin().to(query.dtype)
            query, key = rotate_pairs(query, cos[:, -num_asking:], sin[:, -num_asking:]), rotate_pairs(key, cos, sin)
        # Members are rows of the attention, like streams, so that nothing has to be moved.
        query, key, value = (states.flatten(0, 1).transpose(1, 2) for states in (query, key, value))
        visible = streams.visible.to(key.device).expand(members, -1, -1).flatten(0, 1)[:, None, None]
        is_eager = output_attentions or self.config._attn_implementation == "eager"
        # Flash and flex attention do not take this mask, so that SDPA is used where they are chosen.
        attend = eager_attention if is_eager else ALL_ATTENTION_FUNCTIONS["sdpa"]
        context, weights = attend(self, query, key, value, visible, scaling=self.head_dim**-0.5, is_causal=False)
        context = context.flatten(-2).unflatten(0, (members, num_streams))
        if weights is not None:
            weights = weights.unflatten(0, (members, num_streams)).transpose(0, 1).flatten(1, 2)
        return self.dropout(self.o_proj(context)), weights


class StreamPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialisation, common to all models of streams."""

    base_model_prefix = "tempoformer"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # Where the encoder's family does
    _supports_flash_attn = True
    _supports_attention_backend = True

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, StreamPositionEmbedding):
            init.normal_(module.weight, std=self.config.stream_position_initializer_range)
        elif isinstance(module, ZeroStart):
            for values in module.parameters():
                init.zeros_(values)
        elif isinstance(module, (HeadStart, nn.LSTM)):
            bound = (module.hidden_size if isinstance(module, nn.LSTM) else module.in_features) ** -0.5
            for values in module.parameters():
                init.uniform_(values, -bound, bound)

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # The library looks for its attention in this file, but has to look in the encoder's.
        return True

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, output_loading_info=False, **kwargs):
        """
        Loads a model as the library does, but from safetensors only, since a pickle can hold code, and only from a
        checkpoint that has all weights and no others. A head that the checkpoint lacks is new, with the library's
        warning.

        Args:
            pretrained_model_name_or_path, model_args, kwargs: The library's arguments.
            output_loading_info (`bool`, *optional*, defaults to `False`):
                If True, returns the model and the library's loading info. By default returns the model, and raises a
                `ValueError` that names missing or unexpected weights.
        """
        if kwargs.get("trust_remote_code"):
            own = own_class(cls, pretrained_model_name_or_path, kwargs.get("config"))
            if own is not cls:
                kwargs["output_loading_info"] = output_loading_info
                return own.from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        kwargs |= {"output_loading_info": True, "use_safetensors": True}
        model, info = super().from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        missing, unexpected = info["missing_keys"], info["unexpected_keys"]
        has_new_head = bool(info["mismatched_keys"])
        if model.base_model is not model and type(model.base_model).__name__ in (model.config.architectures or ()):
            missing = {name for name in missing if name.startswith(f"{cls.base_model_prefix}.")}
            # A calibration belongs to a head, which this checkpoint lacks.
            model.config.calibration, has_new_head = None, True
        if has_new_head and (mixture := getattr(model, "mixture", None)) is not None:
            # The weights belong to experts that were not loaded.
            mixture.reset()
        if (trees := getattr(model, "trees", None)) is not None:
            check_indices(pretrained_model_name_or_path, "trees.feature", trees.feature, len(trees.center))
        if output_loading_info:
            return model, info
        # Without a name, the caller gives the weights.
        if pretrained_model_name_or_path is not None:
            # A model without a head ignores the head of a checkpoint.
            check_whole(pretrained_model_name_or_path, missing, () if model.base_model is model else unexpected)
        return model

    @classmethod
    def from_encoder_pretrained(cls, name: str, config: StreamFields | None = None, **kwargs):
        """
        Builds a model with a pretrained encoder, new stream layers and a new head.

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
        # Built from a dict, so that the settings are validated with this encoder's configuration, before it is loaded.
        settings = settings if config is None else config.to_dict()
        config = cls.config_class.from_dict({**settings, "encoder_config": encoder_config.to_dict()})
        encoder, info = cls.load_encoder(name, config, **{**kwargs, "use_safetensors": True})
        if missing := sorted(info["missing_keys"] & encoder.state_dict().keys()):
            logger.warning(f"Not in {name}, so that they are random numbers: {', '.join(missing)}.")
        config.encoder_config = encoder.config
        attention = encoder.config._attn_implementation
        return cls._from_config(config, encoder=encoder, dtype=encoder.dtype, attn_implementation=attention).eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module):
        self.base_model.encoder.set_input_embeddings(value)


class StreamReaderMixin:
    """Checks the inputs and flattens rows into posts and streams."""

    reads_vectors = False

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens in a post that the encoder has positions for."""
        return longest_input(self.encoder)

    def output_settings(self, kwargs: dict[str, Any]) -> tuple[Any, bool, bool]:
        """Returns whether to return hidden states (as the caller asked), attention inside posts, and across posts."""
        given = {name: value for name, value in kwargs.items() if value is not None and name not in IGNORED_KWARGS}
        hidden_states = given.pop("output_hidden_states", self.config.output_hidden_states)
        attentions = bool(given.pop("output_attentions", self.config.output_attentions))
        stream_attentions = attentions or given.pop("output_stream_attentions", False)
        if given:
            raise TypeError(f"Unknown arguments: {', '.join(given)}.")
        return hidden_states, attentions, stream_attentions

    def check_times(self, times: object | None):
        """Raises a `ValueError` unless times are given as in training, with any attention: trees read times, too."""
        timed = self.config.timed
        if timed is not None and timed != (times is not None):
            problem = "no times are given" if timed else "times are given"
            raise ValueError(f"The model was trained with `timed={timed}` in its configuration, but {problem}.")

    def lay_out(
        self,
        posts: dict[str, torch.Tensor | None],
        attention_mask: torch.LongTensor | None,
        stream_index: torch.LongTensor | None,
        elapsed: torch.FloatTensor | None,
        speaker_posts: torch.LongTensor | None = None,
    ) -> tuple[dict[str, torch.Tensor], Streams]:
        """Returns the given inputs of the posts of all rows, (posts, ...), and their streams."""
        given = {name: tensor for name, tensor in posts.items() if tensor is not None}
        # Checked first, because pipelines for single texts give such inputs.
        if "input_ids" in given and given["input_ids"].dim() != 3:
            raise ValueError(
                f"`input_ids` must have the shape (rows, posts, tokens), got {tuple(given['input_ids'].shape)}. Give "
                "timelines to `pipeline('stream-classification')`, or rows of posts to `StreamCollator`."
            )
        self.check_times(elapsed)
        ways = [name for name in ("input_ids", "inputs_embeds", "post_embeds") if name in posts]
        chosen = [name for name in ways if name in given]
        if len(chosen) != 1:
            raise ValueError(f"Give exactly one of {', '.join(f'`{name}`' for name in ways)}.")
        first = given[chosen[0]]
        if "post_embeds" in given:
            check_shape("post_embeds", given["post_embeds"], None, None, self.config.vector_size)
        shape = (*first.shape[:2], 1 if chosen == ["post_embeds"] else first.shape[2])
        check_shape("token_type_ids", given.get("token_type_ids"), *shape)
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
        # A stream without a newest post is padding, and so is every slot without a real post.
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
        # Padded on the left, since a window of one post has no slot before the newest.
        compared = [nn.functional.pad(slots, (1, 0))[:, -2:] for slots in (slot_post, slot_mask)]
        if self.config.reads_speakers:
            if speaker_posts is None:
                raise ValueError("The model reads who speaks: give `speaker_posts`, as `StreamCollator` makes them.")
            check_shape("speaker_posts", speaker_posts, batch_size, num_streams, None)
            speaker_post = speaker_posts[..., -1:]
            spoken_post = (speaker_post.clamp_min(0) + first_post).flatten(0, 1)
            spoken_mask = (speaker_post >= 0).flatten(0, 1) & is_post.flatten()[spoken_post] & slot_mask[:, -1:]
            compared = [torch.cat(both, dim=1) for both in zip((spoken_post, spoken_mask), compared, strict=True)]
        inputs = {name: tensor.flatten(0, 1) for name, tensor in given.items()}
        return inputs, Streams(mask.flatten(0, 1), slot_post, slot_mask, *compared, tau, (batch_size, num_streams))


def has_equal_calls(model: nn.Module) -> bool:
    """Returns whether all processes must call layers equally often, since they gather sharded weights at each call."""
    is_one_of_many = torch.distributed.is_available() and torch.distributed.is_initialized()
    if torch.compiler.is_compiling() or not is_one_of_many:
        return False
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    sharded = (FSDPModule, FullyShardedDataParallel)
    return is_deepspeed_zero3_enabled() or any(isinstance(module, sharded) for module in model.modules())


class StreamClassificationMixin:
    """A head that classifies the newest post of each stream, trained with the focal loss."""

    # The loss divides by `num_items_in_batch`.
    accepts_loss_kwargs = True

    # PEFT finds these on the model with the head, because its own `base_model` is another one.
    @property
    def max_tokens(self) -> int:
        """The largest number of tokens in a post that the encoder has positions for."""
        return self.tempoformer.max_tokens

    def post_inputs(self, **posts: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns inputs of `forward` for posts (batch_size, num_posts, num_tokens), so that none is encoded twice."""
        return self.tempoformer.post_inputs(**posts)

    def check_loss(self, labels: torch.LongTensor | None, num_items_in_batch: torch.Tensor | int | None):
        """Raises a `ValueError` where a Trainer computes a loss of its own, without the model's class weights."""
        if labels is None and num_items_in_batch is not None:
            raise ValueError(
                "The Trainer keeps the labels from the model, so that its focal loss and class weights are not used: "
                "leave out `label_smoothing_factor`, or for a `compute_loss_func` of your own set "
                "`model.accepts_loss_kwargs = False`."
            )

    def without_first_posts(self, logits: torch.Tensor, is_first: torch.BoolTensor | None) -> torch.Tensor:
        """Returns logits (..., classes) in which first posts, by the mask `is_first`, have the class `no_change`."""
        if is_first is None:
            return logits
        certain = logits.new_full((self.num_labels,), -CERTAIN)
        certain[self.config.no_change].fill_(CERTAIN)
        return certain.where(is_first.unsqueeze(-1).to(logits.device), logits)

    def find_ruled(self, logits: torch.Tensor) -> torch.BoolTensor:
        """Returns where logits (..., classes) are those that [`without_first_posts`] gives first posts."""
        if self.config.first_posts is None:
            return torch.zeros_like(logits[..., 0], dtype=torch.bool)
        return (logits.abs() == CERTAIN).all(-1)

    def find_first_posts(
        self, timeline_position: torch.Tensor | None, speaker_posts: torch.LongTensor | None = None
    ) -> torch.BoolTensor | None:
        """Returns a mask (batch_size, num_streams) of posts that cannot be a change; None without `first_posts`."""
        if self.config.first_posts is None:
            return None
        if self.config.first_posts == "speaker":
            return speaker_posts[..., -1] < 0
        if timeline_position is None:
            raise ValueError("The model needs `timeline_position`, as `StreamCollator` makes it.")
        return timeline_position[..., 0] == 0
