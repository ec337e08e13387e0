"""TempoFormer (Tseriotou, Tsakalidis and Liakata, 2024): change detection in streams of posts."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedModel
from transformers import initialization as init
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple, logging

from .configuration_tempoformer import TempoFormerConfig
from .data_collator_tempoformer import stream_windows
from .input_checks_tempoformer import check_shape, check_whole, only_safetensors
from .loss_tempoformer import focal_loss
from .modeling_tempoformer_encoders import get_encoder_adapter
from .online_tempoformer import StreamState, StreamStepMixin
from .packing_tempoformer import PackedPosts, StreamPlaces, measure, read, scatter, to_device

# Not used here: `save_pretrained` copies this file and the files that it imports, and the pipeline must be among them.
from .pipeline_tempoformer import StreamClassificationPipeline  # noqa: F401
from .stream_layers_tempoformer import GateAndNorm, PostReader, StreamLayer, StreamPositionEmbedding, ZeroLinear


logger = logging.get_logger(__name__)

# Arguments that the library passes to every model.
IGNORED_KWARGS = {"return_dict", "use_cache"}
ROWS_OF_POSTS = " Give timelines to `pipeline('stream-classification')`, or rows of posts to `StreamCollator`."


@dataclass
class TempoFormerModelOutput(ModelOutput):
    """
    Args:
        last_hidden_state (`torch.FloatTensor` of shape `(batch_size, num_streams, window, stream_width)`):
            The vector of each post in each stream after the stream layers (with `num_stream_layers=0` its pooled
            vector); zeros where there is no post. In the post form with `head="mlp"` of the newest post alone, with 1
            in the place of `window`.
        pooler_output (`torch.FloatTensor` of shape `(batch_size, num_streams, hidden_size)`, *optional*):
            The newest post of each stream, pooled before the stream layers. Only in the token form, with stream layers
            and `head="mlp"`.
        stream_mask (`torch.BoolTensor` of shape `(batch_size, num_streams, window)`): Where a stream has a post.
        stream_attentions (`tuple(torch.FloatTensor)`, *optional*):
            With `output_attentions=True` or `output_stream_attentions=True` one tensor of shape
            `(batch_size, num_streams, num_heads, window, window)` for each stream layer: the attention of each post
            (fourth axis) to the posts of its stream (last axis); 0 where the stream has no post.
        hidden_states (`tuple(torch.FloatTensor)`, *optional*, with `output_hidden_states=True`):
            The embeddings and the output of each layer below the stream layers (in the post form of each layer of the
            encoder), of shape `(batch_size, num_posts, num_tokens, hidden_size)`; 0 at padding. Gradients of the
            logits pass through them. None in the place of a layer that `output_hidden_states` does not choose. None
            for `post_embeds`.
        attentions (`tuple(torch.FloatTensor)`, *optional*, with `output_attentions=True` and eager attention):
            One tensor of shape `(batch_size, num_posts, num_heads, num_tokens, num_tokens)` for each of these layers;
            0 at padding. None for `post_embeds`.
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


def pop_setting(kwargs: dict, name: str, config: TempoFormerConfig) -> bool | int | list[int]:
    """Takes an output setting out of `kwargs`; if the caller gave none, the configuration's."""
    value = kwargs.pop(name, None)
    return getattr(config, name) if value is None else value


def chosen(setting: bool | int | list[int], count: int) -> set[int]:
    """Which of `count` hidden states `output_hidden_states` chooses: a flag, an index or several; -1 is the last."""
    if not setting or setting is True:
        return set(range(count)) if setting else set()
    indices = [setting] if isinstance(setting, int) else setting
    return {index % count for index in indices if -count <= index < count}


class NarrowLinear(nn.Linear):
    """A linear layer with PyTorch's default initialisation: the encoder's scale is too small for a narrow head."""


class StreamClassificationHead(nn.Module):
    """Class scores of each stream: an MLP over its newest post, or over an LSTM that reads all its posts."""

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        hidden_size = config.stream_width
        self.order = config.recurrent_order
        self.dense = self.lstm = None
        if config.head == "lstm":
            # Without stream layers the posts come from the encoder's own pooler, which has a dense layer.
            self.dense = nn.Linear(hidden_size, hidden_size) if config.num_stream_layers else None
            self.lstm = nn.LSTM(hidden_size, config.lstm_hidden_size, batch_first=True)
            width = config.lstm_hidden_size
        else:
            width = 2 * hidden_size if config.num_stream_layers and has_pooler(config) else hidden_size
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
        window = stream_mask.shape[1]
        places = torch.arange(window, device=stream_mask.device)
        order = places.where(stream_mask, places + window).argsort(dim=1)
        states, _ = self.lstm(posts.gather(1, order.unsqueeze(-1).expand_as(posts)))
        length = stream_mask.sum(-1, keepdim=True)
        last = (length - 1).clamp_min(0).unsqueeze(-1).expand(-1, -1, states.shape[-1])
        return states.gather(1, last).squeeze(1)


class TempoFormerPreTrainedModel(PreTrainedModel):
    """
    Loading, saving and initialisation, common to all TempoFormer models (Tseriotou, Tsakalidis and Liakata, 2024).

    Args:
        config ([`TempoFormerConfig`]): The model's configuration.
    """

    config: TempoFormerConfig
    base_model_prefix = "tempoformer"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_attention_backend = True
    # Modules that must not be split across devices.
    _no_split_modules = ["StreamPosition", "StreamAttention", "GateAndNorm", "PostReader"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        # PyTorch's own initialisation of these layers.
        if isinstance(module, (nn.LSTM, NarrowLinear)):
            bound = (module.hidden_size if isinstance(module, nn.LSTM) else module.in_features) ** -0.5
            for weight in module.parameters():
                init.uniform_(weight, -bound, bound)
        elif isinstance(module, ZeroLinear):
            init.zeros_(module.weight)
        elif isinstance(module, StreamPositionEmbedding):
            init.normal_(module.weight, std=self.config.stream_position_initializer_range)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """As in the library, but from safetensors only. Raises a `ValueError` for `use_safetensors=False`."""
        return super().from_pretrained(pretrained_model_name_or_path, *model_args, **only_safetensors(kwargs))

    @classmethod
    def from_encoder_pretrained(cls, name: str, config: TempoFormerConfig | None = None, **kwargs):
        """
        A TempoFormer with a pretrained encoder, and with new stream layers and a new head.

        Args:
            name (`str`): Folder or Hub id of an encoder's checkpoint.
            config (`TempoFormerConfig`, *optional*):
                The configuration; its `encoder_config` is replaced by the checkpoint's.
            kwargs: Without `config`, fields of [`TempoFormerConfig`] and `num_labels` set the configuration. All else,
                such as `revision`, `token`, `dtype` or `attn_implementation`, goes to the encoder's `from_pretrained`.
                Default `dtype`: float32, also for 16-bit checkpoints, since 16 bits are too coarse for training.

        Returns:
            The model in evaluation mode, as after `from_pretrained`. Raises a `ValueError` for an encoder family
            without an adapter, and an `OSError` if the weights are not safetensors.
        """
        fields = {*TempoFormerConfig.__dataclass_fields__, "num_labels"} - {"dtype"}
        settings = {key: kwargs.pop(key) for key in list(kwargs) if key in fields}
        # `torch_dtype` is the old name, which the library still takes.
        kwargs.setdefault("dtype", kwargs.pop("torch_dtype", torch.float32))
        if config is not None and settings:
            raise ValueError(f"Give either `config` or its fields, not both: {', '.join(settings)}.")
        weight_settings = ("dtype", "attn_implementation", "use_safetensors")
        config_settings = {key: value for key, value in kwargs.items() if key not in weight_settings}
        encoder_config = AutoConfig.from_pretrained(name, **config_settings)
        adapter = get_encoder_adapter(encoder_config)
        # From a dict, so that the settings are validated with this encoder's configuration, before it is loaded.
        settings = settings if config is None else config.to_dict()
        config = TempoFormerConfig.from_dict({**settings, "encoder_config": encoder_config.to_dict()})
        encoder = adapter.load(name, add_pooler=has_pooler(config), **only_safetensors(kwargs))
        model = cls._from_config(
            config, dtype=encoder.dtype, attn_implementation=encoder.config._attn_implementation
        ).eval()
        model.base_model.encoder.load_state_dict(encoder.state_dict())
        return model


def has_pooler(config: TempoFormerConfig) -> bool:
    """
    Whether the encoder's pooler is used. The post form has a pooling of its own, and a recurrent head over stream
    layers a dense layer.
    """
    return config.stream_form == "token" and (config.head == "mlp" or config.num_stream_layers == 0)


class TempoFormerModel(TempoFormerPreTrainedModel):
    r"""
    An encoder whose top `num_stream_layers` layers read each post in the context of its stream (Tseriotou, Tsakalidis
    and Liakata, 2024, section 4). Posts pass through the lower layers one by one. In each stream layer the [CLS]
    vectors of a stream's posts attend to each other, rotated by log time. With `stream_form="post"` posts pass through
    the whole encoder one by one, and new stream layers read one vector for each.

    Args:
        config ([`TempoFormerConfig`]): Its `encoder_config` names the encoder.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__(config)
        self.adapter = get_encoder_adapter(config.encoder_config)
        self.encoder = self.adapter.build(config.encoder_config, add_pooler=has_pooler(config))
        # Kept outside the encoder, so that its weight names stay those of its family.
        self.pooler = self.adapter.new_pooler(config.encoder_config) if has_pooler(config) else None
        is_post_form = config.stream_form == "post"
        self.post_reader = PostReader(config) if is_post_form else None
        # The encoder's own layers that are stream layers, which the post form has none of.
        num_layers = 0 if is_post_form else config.num_stream_layers
        self.stream_layers = nn.ModuleList(StreamLayer(config, index) for index in range(num_layers))
        self.fusion = GateAndNorm(config) if config.fusion == "gate" and num_layers else None
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
        post_embeds: torch.FloatTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
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
                Seconds from each post to the stream's newest, in float32 whatever the model's dtype. If omitted, `tau`
                is the distance in posts instead of the logarithm of the seconds.
            inputs_embeds (`torch.FloatTensor`, *optional*):
                Of shape `(batch_size, num_posts, num_tokens, width of the word embeddings)`, instead of `input_ids`.
            time_ids (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`, *optional*):
                Calendar time of the tokens, required by encoders with temporal attention.
            post_embeds (`torch.FloatTensor` of shape `(batch_size, num_posts, hidden_size)`, *optional*):
                Only in the post form: the vectors of the posts, as [`TempoFormerModel.embed_posts`] returns them,
                instead of `input_ids`; `num_tokens` is then 1.
            kwargs: `output_hidden_states` (True, or the index of a layer, or a list of them), `output_attentions`,
                `output_stream_attentions` (those across posts alone), `return_dict`.

        Returns:
            [`TempoFormerModelOutput`]. Raises a `ValueError` for tensors of other shapes, and for `elapsed` that is
            missing or given unlike in training; a `TypeError` for an unknown argument. Values are not checked, as
            [`StreamCollator`] checks them.
        """
        given = [tensor for tensor in (input_ids, inputs_embeds, post_embeds) if tensor is not None]
        if len(given) != 1:
            raise ValueError("Give exactly one of `input_ids`, `inputs_embeds` and `post_embeds`.")
        if post_embeds is not None and self.post_reader is None:
            raise ValueError("`post_embeds` are for `stream_form='post'`.")
        output_hidden_states = pop_setting(kwargs, "output_hidden_states", self.config)
        output_attentions = bool(pop_setting(kwargs, "output_attentions", self.config))
        output_stream_attentions = output_attentions or kwargs.pop("output_stream_attentions", False)
        if unknown := [name for name, value in kwargs.items() if value is not None and name not in IGNORED_KWARGS]:
            raise TypeError(f"Unknown arguments: {', '.join(unknown)}.")
        # First, as it is what a pipeline for single texts gives.
        check_shape("input_ids", input_ids, None, None, None, hint=ROWS_OF_POSTS)
        self.check_times(elapsed, time_ids)
        check_shape("inputs_embeds", inputs_embeds, None, None, None, None)
        check_shape("post_embeds", post_embeds, None, None, self.config.encoder_config.hidden_size)
        tokens = given[0] if post_embeds is None else post_embeds.unsqueeze(2)
        batch_size, num_posts, num_tokens = tokens.shape[:3]
        check_shape("attention_mask", attention_mask, batch_size, num_posts, num_tokens)
        check_shape("token_type_ids", token_type_ids, batch_size, num_posts, num_tokens)
        check_shape("time_ids", time_ids, batch_size, num_posts, num_tokens)
        if attention_mask is None:
            attention_mask = torch.ones(tokens.shape[:3], device=tokens.device)
        post_mask = attention_mask.bool().any(-1)
        if stream_index is None:
            newest = (post_mask * torch.arange(num_posts, device=tokens.device)).amax(-1)
            stream_index = stream_windows(newest, num_posts).unsqueeze(1)
        check_shape("stream_index", stream_index, batch_size, None, None)
        check_shape("elapsed", elapsed, *stream_index.shape)
        num_streams, window = stream_index.shape[1:]
        if window > self.config.window:
            raise ValueError(f"Streams of {window} posts, but the model's `window` is {self.config.window}.")

        # A stream is real if its newest post is, and its posts are those that are real.
        first_post = torch.arange(batch_size, device=stream_index.device)[:, None, None] * num_posts
        slot_post = (stream_index.clamp_min(0) + first_post).flatten(0, 1)
        slot_mask = (stream_index >= 0).flatten(0, 1) & post_mask.flatten()[slot_post]
        slot_mask = slot_mask & slot_mask[:, -1:]
        # All values that shapes depend on, in one transfer.
        mask = attention_mask.flatten(0, 1).bool()
        lengths, counts, slots = read(*measure(mask), slot_post.masked_fill(~slot_mask, -1))
        posts = PackedPosts(mask, lengths, counts, self.adapter.runs_on_groups)

        times = None if time_ids is None else time_ids.flatten(0, 1)
        rows, streams = (batch_size, num_posts), (batch_size, num_streams)
        attentions, hidden_states = [], []
        wanted = chosen(output_hidden_states, len(self.local_layers) + 1)

        def keep(states: torch.Tensor) -> torch.Tensor:
            """Keeps hidden states to return. What is computed next starts from them, so that they get gradients."""
            joined = posts.join_states(states).unflatten(0, rows) if len(hidden_states) in wanted else None
            hidden_states.append(joined)
            return states if joined is None else posts.pack(joined.flatten(0, 1))

        if post_embeds is None:
            inputs = {"input_ids": input_ids, "token_type_ids": token_type_ids, "inputs_embeds": inputs_embeds}
            inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items() if tensor is not None}
            with ExitStack() as hooks:
                if output_attentions:
                    self.record_attentions(attentions, hooks)
                states = self.encode_posts(posts, inputs, times, keep if wanted else None)
            states = self.pool_tokens(posts, states)
        else:
            states = post_embeds.flatten(0, 1).masked_fill(~mask.to(post_embeds.device), 0.0)

        tau = self.log_time(None if elapsed is None else elapsed.flatten(0, 1), slot_post)
        outputs, pooled, stream_attentions = self.read_streams(
            posts, states, times, slot_post, slot_mask, slots, tau, output_stream_attentions
        )

        per_layer = len(attentions) // max(1, len(self.local_layers))
        return TempoFormerModelOutput(
            last_hidden_state=outputs.unflatten(0, streams),
            pooler_output=None if pooled is None else pooled.unflatten(0, streams),
            stream_mask=slot_mask.unflatten(0, streams),
            stream_attentions=tuple(weights.unflatten(0, streams) for weights in stream_attentions)
            if output_stream_attentions
            else None,
            hidden_states=tuple(hidden_states) or None,
            attentions=tuple(
                posts.join_attentions(attentions[first : first + per_layer]).unflatten(0, rows)
                for first in range(0, len(attentions), max(1, per_layer))
            )
            or None,
        )

    def embed_posts(
        self, input_ids: torch.LongTensor, attention_mask: torch.LongTensor | None = None, **inputs: torch.LongTensor
    ) -> torch.FloatTensor:
        """
        The vector of each post, for `post_embeds`; only in the post form.

        Args:
            input_ids, attention_mask, inputs (`torch.LongTensor` of shape `(num_posts, num_tokens)`):
                What a tokenizer returns for the posts. `attention_mask` is all 1 if omitted.

        Returns:
            `torch.FloatTensor` of shape `(num_posts, hidden_size)`. Raises a `ValueError` in the token form, whose
            stream layers read all tokens of a post.
        """
        if self.post_reader is None:
            raise ValueError("Posts have one vector in the post form only, `stream_form='post'`.")
        mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        posts = PackedPosts(mask, *read(*measure(mask)), self.adapter.runs_on_groups)
        time_ids = inputs.pop("time_ids", None)
        return self.pool_tokens(posts, self.encode_posts(posts, {"input_ids": input_ids, **inputs}, time_ids))

    def post_inputs(self, attention_mask: torch.LongTensor, **tokens: torch.LongTensor) -> dict[str, torch.Tensor]:
        """
        What `forward` takes of posts, without what it would compute again for each of their streams: in the post form
        their vectors, in the token form their tokens, as given.

        Args:
            attention_mask, tokens (`torch.LongTensor` of shape `(batch_size, num_posts, num_tokens)`):
                As `forward` takes them.
        """
        if self.post_reader is None:
            return {"attention_mask": attention_mask, **tokens}
        flat = {name: values.flatten(0, 1) for name, values in tokens.items()}
        vectors = self.embed_posts(attention_mask=attention_mask.flatten(0, 1), **flat)
        is_real = attention_mask.amax(-1, keepdim=True)
        return {"attention_mask": is_real, "post_embeds": vectors.unflatten(0, attention_mask.shape[:2])}

    def pool_tokens(self, posts: PackedPosts, states: torch.Tensor) -> torch.Tensor:
        """
        What the stream layers read of posts whose tokens are `states` (1, tokens, hidden): in the post form one vector
        of each post, (num_posts, hidden), 0 for absent posts; in the token form the states of all tokens, as given.
        """
        if self.post_reader is None:
            return states
        states = self.adapter.final_norm(self.encoder, states)
        if self.config.post_pooling == "cls":
            return posts.join(posts.first_tokens(states))
        real = posts.real.unsqueeze(-1).to(states)
        sums = [
            (group * tokens).sum(1) for group, tokens in zip(posts.to_groups(states), posts.split(real), strict=True)
        ]
        counts = torch.cat([tokens.sum(1) for tokens in posts.split(real)])
        return posts.join(torch.cat(sums) / counts)

    def check_times(self, elapsed: object | None, time_ids: torch.Tensor | None):
        """Raises a `ValueError` for `time_ids` that the encoder does not read, or `elapsed` unlike in training."""
        config = self.config
        if time_ids is not None and not self.adapter.takes_time_ids:
            family = config.encoder_config.model_type
            raise ValueError(f"`time_ids` are for encoders with temporal attention, not for a '{family}'.")
        reads_time = config.num_stream_layers > 0 and config.stream_attention == "temporal_rotary"
        if reads_time and config.timed is not None and config.timed != (elapsed is not None):
            trained, given = ("with", "no times are given") if config.timed else ("without", "times are given")
            setting = f"`timed={config.timed}` in its configuration"
            raise ValueError(f"The model was trained {trained} the time between posts ({setting}), but {given}.")

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
        slot_post: torch.LongTensor,
        slot_mask: torch.BoolTensor,
        slots: list[int] | None,
        tau: torch.Tensor | None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None, list[torch.Tensor]]:
        """
        Passes streams of encoded posts through the stream layers. A stream has `window` slots; each may have a post.

        Args:
            posts (`PackedPosts`): The posts.
            states: What the stream layers read of the posts, as `pool_tokens` returns it.
            time_ids: Calendar time of the posts' tokens, (posts, tokens), or None.
            slot_post: The post in each slot, (streams, window).
            slot_mask: True for slots that have a post, (streams, window).
            slots: The post in each slot of all streams, -1 where there is none; None while compiling.
            tau: (streams, window), or None for no rotation.

        Returns:
            The posts' vectors (streams, window, width), in the post form only those that the head reads; the pooled
            newest posts (streams, hidden), if the head reads them; and the attention of each stream layer, if
            `output_attentions`. All are 0 where there is no post.
        """
        shape, window = slot_mask.shape[:1], slot_mask.shape[1]
        if slots is not None:
            # Without any, one stream of no posts, so that no layer gets an empty batch.
            chosen_streams = [number for number, newest in enumerate(slots[window - 1 :: window]) if newest >= 0] or [
                0
            ]
            slots = [post for number in chosen_streams for post in slots[number * window : (number + 1) * window]]
            stream_ids = to_device(chosen_streams, slot_mask.device)
            slot_post, slot_mask = slot_post[stream_ids], slot_mask[stream_ids]
            tau = None if tau is None else tau[stream_ids.to(tau.device)]
        else:
            stream_ids = torch.arange(slot_mask.shape[0], device=slot_mask.device)
        pooled = posts.join(self.pool(posts.first_tokens(states))) if has_pooler(self.config) else None
        # An empty stream attends to its newest slot, so that its softmax is defined.
        visible = torch.cat((slot_mask[:, :-1], torch.ones_like(slot_mask[:, -1:])), dim=1)
        attentions = []
        if self.post_reader is not None:
            outputs, attentions = self.post_reader(
                states[slot_post.to(states.device)], visible, tau, output_attentions
            )
        elif len(self.stream_layers):
            outputs, attentions = self.run_stream_layers(
                posts, states, time_ids, slot_post.flatten(), slots, visible, tau, output_attentions
            )
        else:
            outputs, pooled = pooled[slot_post.to(pooled.device)], None
        outputs = outputs.masked_fill(~slot_mask[:, -outputs.shape[1] :].unsqueeze(-1).to(outputs.device), 0.0)
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

    def log_time(self, elapsed: torch.Tensor | None, slot_post: torch.LongTensor) -> torch.Tensor | None:
        """`tau` of each slot (streams, window): log seconds, or posts, to the newest one; None for no rotation."""
        if self.config.stream_attention == "full":
            return None
        if self.config.stream_attention == "temporal_rotary" and elapsed is not None:
            return elapsed.float().clamp_min(1.0).log()
        distance = torch.arange(slot_post.shape[1] - 1, -1, -1, device=slot_post.device, dtype=torch.float32)
        return distance.expand(slot_post.shape)

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
            context, weights = stream_layer.attention(cls, stream_mask, tau, output_attentions)
            if self.config.stream_residual:
                context = context + (cls if is_last else raw_cls).to(context.device)
            attentions.append(weights)
            if not is_last:
                # Under autocast the two need not have the same dtype.
                new_cls = context.flatten(0, 1)[slot_ids.to(context.device)].to(states)
                states = states.index_copy(1, posts.first.to(states.device), new_cls.unsqueeze(0))
        return (context if self.fusion is None else self.fusion(cls, context)), attentions


class TempoFormerForStreamClassification(StreamStepMixin, TempoFormerPreTrainedModel):
    r"""
    [`TempoFormerModel`] with a head that classifies the newest post of each stream, trained with the focal loss
    (Tseriotou, Tsakalidis and Liakata, 2024, section 4). `step` classifies posts as they arrive.

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

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, output_loading_info=False, **kwargs):
        """
        As in the library, but from safetensors only, and only from a checkpoint that has the weights of the model, all
        of them and no others.

        Args:
            pretrained_model_name_or_path (`str` or `Path`): Folder or Hub id of a checkpoint.
            output_loading_info (`bool`, *optional*, defaults to `False`):
                Whether to return the names of the weights that differ beside the model, instead of raising an error;
                those that are missing are then new.
            model_args, kwargs: As in the library.

        Returns:
            The model in evaluation mode. Raises a `ValueError` that names weights that are missing or that the model
            does not have, and one for `use_safetensors=False`.
        """
        model, info = super().from_pretrained(
            pretrained_model_name_or_path, *model_args, output_loading_info=True, **kwargs
        )
        if output_loading_info:
            return model, info
        # Without a name the weights are those that the caller gives.
        if pretrained_model_name_or_path is not None:
            check_whole(pretrained_model_name_or_path, info)
        return model

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
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> StreamClassifierOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, stream_index, elapsed, inputs_embeds, time_ids, post_embeds:
                As in [`TempoFormerModel.forward`].
            labels (`torch.LongTensor` of shape `(batch_size, num_streams)`, *optional*):
                Class of each stream's newest post; -100 for none.
            num_items_in_batch (`int` or `torch.Tensor`, *optional*):
                The number of labelled streams in all batches of an optimiser step; the number in `labels` if omitted.
                Refused without `labels`: so a Trainer calls the model that computes another loss by itself.
            kwargs: As in [`TempoFormerModel.forward`].

        Returns:
            [`StreamClassifierOutput`]. Raises the errors of [`TempoFormerModel.forward`].
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
        logits = self.classifier(outputs.last_hidden_state, outputs.pooler_output, outputs.stream_mask)
        logits = logits.masked_fill(~outputs.stream_mask[..., -1:].to(logits.device), 0.0)
        loss = None
        if labels is not None:
            check_shape("labels", labels, *logits.shape[:2])
            labels = labels.to(logits.device)
            loss = focal_loss(logits, labels, self.config.focal_gamma, self.config.class_weights, num_items_in_batch)
        return StreamClassifierOutput(
            loss=loss,
            logits=logits,
            stream_attentions=outputs.stream_attentions,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = ["StreamState", "TempoFormerForStreamClassification", "TempoFormerModel", "TempoFormerPreTrainedModel"]
