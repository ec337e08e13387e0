"""BERT and RoBERTa with temporal attention (Rosin and Radinsky, 2022), which read the time of each token."""

import copy
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions, MaskedLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.bert.modeling_bert import BertSelfAttention, eager_attention_forward
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple
from transformers.utils.generic import maybe_autocast

from .checks_tempoformer import check_shape, own_class
from .configuration_temporal_bert import (
    NUM_SPECIAL_TIMES,
    PADDING_TIME,
    UNKNOWN_TIME,
    TemporalBertConfig,
    TemporalRobertaConfig,
)


@dataclass
class TextTimes:
    """The distinct time points of each text in a batch."""

    # The module instead of its vectors, so that gradients reach it from checkpointed layers.
    embeddings: nn.Embedding
    # (texts, points of a text): the time ids of each text.
    points: torch.LongTensor
    # (texts, points of a text, 1): the square root of the number of the text's real tokens with each time point; 0 for
    # padding.
    weights: torch.FloatTensor
    # (texts, 1, d, d) for heads of d dimensions: the identity where queries keep their own value, else 0.
    identity: torch.FloatTensor
    # (points,): all time ids, where these are fewer than `points`, so that each is projected once.
    every_point: torch.LongTensor | None = None

    def to(self, device: torch.device | int | str, non_blocking: bool = False) -> "TextTimes":
        """Moves the tensors to the device of a layer, as Accelerate's hooks do; `embeddings` stays where it is."""
        tensors = (self.points, self.weights, self.identity, self.every_point)
        moved = (None if tensor is None else tensor.to(device, non_blocking=non_blocking) for tensor in tensors)
        return TextTimes(self.embeddings, *moved)


def collect_times(
    embeddings: nn.Embedding,
    config: TemporalBertConfig | TemporalRobertaConfig,
    time_ids: torch.LongTensor,
    attention_mask: torch.Tensor | None,
) -> TextTimes:
    """Collects the time points of the real tokens; `time_ids` and `attention_mask` are (batch, sequence)."""
    has_time = (time_ids != PADDING_TIME) & (time_ids != UNKNOWN_TIME)
    if attention_mask is not None:
        has_time = has_time & attention_mask.bool()
    num_points = embeddings.num_embeddings
    counts = torch.zeros(time_ids.shape[0], num_points, device=time_ids.device)
    counts = counts.scatter_add(1, time_ids, has_time.to(counts.dtype))
    is_compiling = torch.compiler.is_compiling()
    # While compiling an upper bound, which keeps shapes static.
    most = torch.sym_min(num_points, time_ids.shape[1]) if is_compiling else max(1, int((counts > 0).sum(1).max()))
    counts, points = counts.topk(most)
    identity = torch.eye(config.hidden_size // config.num_attention_heads, device=counts.device)
    identity = identity.expand(counts.shape[0], 1, -1, -1)
    if not config.temporal_residual:
        identity = identity * (counts[:, :1, None, None] == 0)
    every_point = (
        torch.arange(num_points, device=points.device) if is_compiling or points.numel() > num_points else None
    )
    return TextTimes(embeddings, points, counts.sqrt().unsqueeze(-1), identity, every_point)


class TimeResidual(nn.Module):
    """A learned weight alpha for each head, as a module, so that adapters and offloading find it."""

    def __init__(self, num_heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_heads))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Multiplies `rows` (batch, heads, points, d) by alpha."""
        return rows * self.weight.float()[:, None, None]


class TemporalSelfAttention(BertSelfAttention):
    """
    BERT's self-attention, which RoBERTa shares, with temporal attention: `softmax(Q' K^T / sqrt(d)) V` with
    `Q' = Q T^T T / |T|` and `T = X_t W_T + b_T`, for each head (paper, equation 5). |T| is the Frobenius norm over
    the real tokens of one text. `T^T T` is only d x d, so `Q'` is computed first; the rest is ordinary attention with
    `Q'`, by any backend.
    """

    def __init__(self, config, layer_idx: int | None = None):
        super().__init__(config, layer_idx=layer_idx)
        self.time = self.residual = None
        if config.temporal_attention == "attention":
            self.time = nn.Linear(config.hidden_size, self.all_head_size)
            if config.temporal_residual:
                self.residual = TimeResidual(self.num_attention_heads)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        text_times: TextTimes | None = None,
        query_scale: torch.Tensor | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Attends over `hidden_states` (batch, sequence, hidden), with time in the queries; without `text_times` and
        `query_scale` this is BERT's self-attention.
        """
        # The name of the cache until Transformers 5.23, and from 5.24 on
        for name in ("past_key_values", "cache"):
            kwargs.pop(name, None)
        shape = (*hidden_states.shape[:-1], -1, self.attention_head_size)
        query, key, value = (
            projection(hidden_states).view(shape).transpose(1, 2) for projection in (self.query, self.key, self.value)
        )
        query = self.apply_time(query, text_times, query_scale)
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.dropout.p if self.training else 0.0
        context, weights = attention(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        return context.reshape(*hidden_states.shape[:-1], -1).contiguous(), weights

    def apply_time(
        self, query: torch.Tensor, text_times: TextTimes | None = None, query_scale: torch.Tensor | None = None
    ) -> torch.Tensor:
        """
        Computes `Q'`: queries (batch, heads, sequence, d) times `T^T T / |T|`, or times `query_scale` (batch,
        sequence).
        """
        if text_times is not None:
            points = text_times.points if text_times.every_point is None else text_times.every_point
            arguments = query, self.time(text_times.embeddings(points)), text_times
            if not torch.is_grad_enabled():
                return self.multiply_by_times(*arguments)
            # The backward pass computes it again, to save memory.
            query = checkpoint(self.multiply_by_times, *arguments, use_reentrant=False, preserve_rng_state=False)
        if query_scale is not None:
            # Clamped, because 2**16 overflows float16.
            largest = query.detach().float().abs().amax(-1, keepdim=True)
            factor = query_scale[:, None, :, None].minimum(torch.finfo(query.dtype).max / largest)
            query = (query * factor).to(query.dtype)
        return query

    def multiply_by_times(self, query: torch.Tensor, time: torch.Tensor, text_times: TextTimes) -> torch.Tensor:
        """
        Multiplies queries by `T^T T / |T|`, or with the residual by `I + alpha T^T T / |T|`. Queries of a text without
        known time stay as they are. `time` (texts, points of a text, heads * d) holds the projected time points, or
        (points, heads * d) where `text_times` has `every_point`.
        """
        if text_times.every_point is not None:
            time = nn.functional.embedding(text_times.points, time)
        # Tokens of one time share a row of T, which is kept once and scaled by the square root of their count.
        rows = (time.float() * text_times.weights).unflatten(-1, (-1, self.attention_head_size)).transpose(1, 2)
        # Without autocast, because long time vectors overflow in 16 bits.
        with maybe_autocast(time.device.type, enabled=False):
            norm = torch.linalg.vector_norm(rows, dim=(-2, -1), keepdim=True)
            scaled = rows / norm.clamp_min(torch.finfo(norm.dtype).tiny)
            if self.residual is not None:
                scaled = self.residual(scaled)
            product = text_times.identity + scaled.mT @ rows
        return query @ product.to(query.dtype)


class TimeEmbedding(nn.Embedding):
    """Embeddings of time points, as a class of their own, which `_init_weights` gives its own initial scale."""


class TemporalInitialisation:
    """Loads from safetensors only, and initialises the parameters that temporal attention adds."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """Loads a model as the library does, but from safetensors only."""
        if kwargs.get("trust_remote_code"):
            own = own_class(cls, pretrained_model_name_or_path, kwargs.get("config"))
            if own is not cls:
                return own.from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
        return super().from_pretrained(
            pretrained_model_name_or_path, *model_args, **{**kwargs, "use_safetensors": True}
        )

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, TimeEmbedding):
            init.normal_(module.weight, std=self.config.time_initializer_range)
        elif isinstance(module, TimeResidual):
            init.zeros_(module.weight)


class TemporalEncoder(TemporalInitialisation):
    """Adds time embeddings and the input `time_ids` to BERT or RoBERTa."""

    def __init__(self, config, add_pooling_layer: bool = True):
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.time_embeddings = None
        if config.temporal_attention == "attention":
            self.time_embeddings = TimeEmbedding(config.num_time_ids, config.hidden_size)
        for layer_idx, layer in enumerate(self.encoder.layer):
            layer.attention.self = TemporalSelfAttention(config, layer_idx=layer_idx)
        self.post_init()

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        time_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPoolingAndCrossAttentions:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, position_ids (`torch.LongTensor`, *optional*):
                The inputs of the library's model, of shape `(batch_size, sequence_length)`.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, sequence_length, hidden_size)`, *optional*):
                Embeddings of tokens, instead of `input_ids`.
            time_ids (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*):
                The time of each token: 0 padding, 1 mask, 2 unknown, then `config.times` in order. Not needed with
                `temporal_attention="none"`.
            kwargs: Other arguments of the encoder: `output_attentions`, `output_hidden_states`, `return_dict`.

        Returns:
            `BaseModelOutputWithPoolingAndCrossAttentions`: Its `last_hidden_state` has the shape
            `(batch_size, sequence_length, hidden_size)`. Raises a `ValueError` if `time_ids` are missing or have
            another shape.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
        check_shape("time_ids", time_ids, *(input_ids if inputs_embeds is None else inputs_embeds).shape[:2])
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **self.time_inputs(time_ids, attention_mask),
            **kwargs,
        )

    def time_inputs(
        self, time_ids: torch.LongTensor | None, attention_mask: torch.Tensor | None
    ) -> dict[str, TextTimes | torch.Tensor]:
        """Makes the time arguments of every layer; `time_ids` and `attention_mask` are (batch, sequence)."""
        kind = self.config.temporal_attention
        if kind == "none":
            return {}
        if time_ids is None:
            raise ValueError(f"`time_ids` are needed with `temporal_attention='{kind}'`.")
        if kind == "attention":
            return {"text_times": collect_times(self.time_embeddings, self.config, time_ids, attention_mask)}
        return {"query_scale": torch.tensor(time_factors(self.config), device=time_ids.device)[time_ids]}

    def resize_time_embeddings(self, times: list[str], time_document_counts: list[int] | None = None):
        """
        Adds times to the model, or reorders them. Times of the model keep their embeddings, new ones get random
        embeddings. Time ids follow the order of the times, so the tokenizer must be loaded again with `times`.

        Args:
            times (`list[str]`): All times, which must include the model's.
            time_document_counts (`list[int]`, *optional*):
                The number of documents of each time, for `time_scaling="documents"`.

        Raises a `ValueError` that names times that are missing or not unique.
        """
        if lost := [time for time in self.config.times if time not in times]:
            raise ValueError(f"`times` must include all times of the model; missing: {', '.join(lost)}.")
        changed = copy.deepcopy(self.config)
        changed.times, changed.time_document_counts = list(times), time_document_counts
        changed.validate_times()
        old_times = list(self.config.times)
        self.config.times, self.config.time_document_counts = list(times), time_document_counts
        if self.time_embeddings is None:
            return
        old = self.time_embeddings
        new = TimeEmbedding(self.config.num_time_ids, old.embedding_dim).to(old.weight)
        new.weight.requires_grad_(old.weight.requires_grad)
        self._init_weights(new)
        with torch.no_grad():
            new.weight[:NUM_SPECIAL_TIMES] = old.weight[:NUM_SPECIAL_TIMES]
            for index, time in enumerate(old_times):
                new.weight[NUM_SPECIAL_TIMES + times.index(time)] = old.weight[NUM_SPECIAL_TIMES + index]
        self.time_embeddings = new


def time_factors(config: TemporalBertConfig | TemporalRobertaConfig) -> list[float]:
    """The factor of queries for each time id with `temporal_attention="scaled"`; 1 for the special ids."""
    count = len(config.times)
    if config.time_scaling == "linear":
        factors = [float(index + 1) for index in range(count)]
    elif config.time_scaling == "exponential":
        factors = [2.0**index for index in range(count)]
    else:
        factors = [documents / sum(config.time_document_counts) for documents in config.time_document_counts]
    return [1.0] * NUM_SPECIAL_TIMES + factors


class BertWithTemporalAttention(TemporalEncoder, BertModel):
    r"""
    BERT with temporal attention, which reads when a text was written (Rosin and Radinsky, 2022). A plain BERT
    checkpoint loads with all its weights:
    `BertWithTemporalAttention.from_pretrained(name, times=["1810-1860", "1960-2010"])`.

    Args:
        config ([`TemporalBertConfig`]): Its `temporal_attention` sets how time changes the queries.
        add_pooling_layer (`bool`, *optional*, defaults to `True`): If True, BERT's pooler is built.
    """

    config: TemporalBertConfig


class RobertaWithTemporalAttention(TemporalEncoder, RobertaModel):
    r"""
    RoBERTa with temporal attention, which reads when a text was written (Rosin and Radinsky, 2022). A plain RoBERTa
    checkpoint loads with all its weights, as in [`BertWithTemporalAttention`].

    Args:
        config ([`TemporalRobertaConfig`]): Its `temporal_attention` sets how time changes the queries.
        add_pooling_layer (`bool`, *optional*, defaults to `True`): If True, RoBERTa's pooler is built.
    """

    config: TemporalRobertaConfig
    _can_record_outputs = {**RobertaModel._can_record_outputs, "attentions": TemporalSelfAttention}


class TemporalHead(TemporalInitialisation):
    """Gives the library's model of a task our encoder, and `time_ids` in its forward pass."""

    _encoder_class: type[nn.Module]
    # The library's heads ignore `num_items_in_batch`: their loss is always the mean of the batch.
    accepts_loss_kwargs = False
    # If True, a masked language model predicts labelled tokens only.
    sparse_prediction = False
    _head_name: str

    def __init__(self, config):
        # Ours replaces the library's encoder, which is therefore built without layers; and from a copy of the
        # configuration, because building a model removes `gradient_checkpointing` from it.
        without_layers = copy.deepcopy(config)
        without_layers.num_hidden_layers = 0
        super().__init__(without_layers)
        self.config = config
        has_pooler = getattr(self, self.base_model_prefix).pooler is not None
        setattr(self, self.base_model_prefix, self._encoder_class(config, add_pooling_layer=has_pooler))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        time_ids: torch.LongTensor | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ModelOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, time_ids:
                See [`BertWithTemporalAttention.forward`].
            labels (`torch.LongTensor`, *optional*):
                The labels of the library's model of the task: `(batch_size,)` for texts,
                `(batch_size, sequence_length)` for tokens, -100 for a token without a label.
            kwargs: Other arguments of the library's model.

        Returns:
            `ModelOutput`: The output of the library's model, with `loss` if there are labels, and `logits` of shape
            `(batch_size, num_labels)` for texts, `(batch_size, sequence_length, num_labels)` for tokens, and
            `(labelled tokens, vocab_size)` with `sparse_prediction`.
        """
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        inputs |= {"position_ids": position_ids, "inputs_embeds": inputs_embeds, "time_ids": time_ids}
        if labels is None or not self.sparse_prediction:
            return super().forward(**inputs, labels=labels, **kwargs)
        outputs = self.base_model(**inputs, **kwargs)
        labelled = labels != -100
        logits = getattr(self, self._head_name)(outputs.last_hidden_state[labelled])
        # The built-in mean is NaN for a batch without labels.
        loss = nn.functional.cross_entropy(logits.float(), labels[labelled], reduction="sum")
        return MaskedLMOutput(
            loss=loss / labelled.sum().clamp_min(1),
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class BertWithTemporalAttentionForMaskedLM(TemporalHead, BertForMaskedLM):
    r"""
    [`BertWithTemporalAttention`] with BERT's masked language modelling head (Rosin and Radinsky, 2022).

    Args:
        config ([`TemporalBertConfig`]): The model's configuration.

    With the attribute `sparse_prediction` set to True, a forward pass with labels predicts the labelled tokens only,
    and `logits` have the shape (labelled tokens, vocabulary). With a large vocabulary this saves much of a training
    step.
    """

    config: TemporalBertConfig
    _encoder_class = BertWithTemporalAttention
    _head_name = "cls"


class BertWithTemporalAttentionForSequenceClassification(TemporalHead, BertForSequenceClassification):
    r"""
    [`BertWithTemporalAttention`] with BERT's classifier of texts.

    Args:
        config ([`TemporalBertConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    config: TemporalBertConfig
    _encoder_class = BertWithTemporalAttention


class BertWithTemporalAttentionForTokenClassification(TemporalHead, BertForTokenClassification):
    r"""
    [`BertWithTemporalAttention`] with BERT's classifier of tokens.

    Args:
        config ([`TemporalBertConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    config: TemporalBertConfig
    _encoder_class = BertWithTemporalAttention


class RobertaWithTemporalAttentionForMaskedLM(TemporalHead, RobertaForMaskedLM):
    r"""
    [`RobertaWithTemporalAttention`] with RoBERTa's masked language modelling head (Rosin and Radinsky, 2022). For
    `sparse_prediction` see [`BertWithTemporalAttentionForMaskedLM`].

    Args:
        config ([`TemporalRobertaConfig`]): The model's configuration.
    """

    config: TemporalRobertaConfig
    _encoder_class = RobertaWithTemporalAttention
    _head_name = "lm_head"


class RobertaWithTemporalAttentionForSequenceClassification(TemporalHead, RobertaForSequenceClassification):
    r"""
    [`RobertaWithTemporalAttention`] with RoBERTa's classifier of texts.

    Args:
        config ([`TemporalRobertaConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    config: TemporalRobertaConfig
    _encoder_class = RobertaWithTemporalAttention


class RobertaWithTemporalAttentionForTokenClassification(TemporalHead, RobertaForTokenClassification):
    r"""
    [`RobertaWithTemporalAttention`] with RoBERTa's classifier of tokens.

    Args:
        config ([`TemporalRobertaConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    config: TemporalRobertaConfig
    _encoder_class = RobertaWithTemporalAttention


__all__ = [
    "BertWithTemporalAttention",
    "BertWithTemporalAttentionForMaskedLM",
    "BertWithTemporalAttentionForSequenceClassification",
    "BertWithTemporalAttentionForTokenClassification",
    "RobertaWithTemporalAttention",
    "RobertaWithTemporalAttentionForMaskedLM",
    "RobertaWithTemporalAttentionForSequenceClassification",
    "RobertaWithTemporalAttentionForTokenClassification",
]
