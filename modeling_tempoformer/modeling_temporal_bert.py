"""BERT and RoBERTa with temporal attention (Rosin and Radinsky, 2022): encoders that know when a text was written."""

import copy
from dataclasses import dataclass, replace

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
from transformers.models.roberta.modeling_roberta import RobertaSelfAttention
from transformers.utils import ModelOutput, can_return_tuple

from .configuration_temporal_bert import (
    NUM_SPECIAL_TIMES,
    PADDING_TIME,
    UNKNOWN_TIME,
    TemporalBertConfig,
    TemporalRobertaConfig,
)
from .input_checks_tempoformer import Broken, check_labels, check_tokens, only_safetensors, outside, refuse


def is_plain(linear: nn.Module) -> bool:
    """Whether a projection is its weight and bias alone: no adapter around it, no hook that brings its weights in."""
    hooked = linear._forward_hooks or linear._forward_pre_hooks or "forward" in vars(linear)
    return type(linear) is nn.Linear and linear.bias is not None and not hooked


@dataclass
class TextTimes:
    """
    The time points of a batch of texts.

    Args:
        embeddings (`nn.Embedding`): Of all time points; a module, so that checkpointed layers reach its gradient.
        points (`torch.LongTensor` of shape `(num_points,)`): The ids that occur.
        counts (`torch.FloatTensor` of shape `(batch_size, num_points)`): Real tokens of each text at each of them.
        token_times (`torch.LongTensor` of shape `(batch_size, sequence_length)`): The id of every token, with
            `UNKNOWN_TIME` where it adds nothing.
        only_point (`torch.LongTensor` of shape `(batch_size,)`, *optional*): Where in `points` the one time of each
            text is; None where some text has several.
    """

    embeddings: nn.Embedding
    points: torch.LongTensor
    counts: torch.FloatTensor
    token_times: torch.LongTensor
    only_point: torch.LongTensor | None = None

    def to(self, device: torch.device | int | str, non_blocking: bool = False) -> "TextTimes":
        """The same on another device, where Accelerate's hooks bring a layer's input; `embeddings` stay."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        moved = {name: tensor.to(device, non_blocking=non_blocking) for name, tensor in tensors.items()}
        return replace(self, **moved)


def count_times(
    embeddings: nn.Embedding, time_ids: torch.LongTensor, attention_mask: torch.Tensor | None
) -> TextTimes:
    """The time points of the real tokens; while compiling of all the vocabulary, so that shapes stay static."""
    has_time = (time_ids != PADDING_TIME) & (time_ids != UNKNOWN_TIME)
    if attention_mask is not None:
        has_time = has_time & attention_mask.bool()
    token_times = time_ids.masked_fill(~has_time, UNKNOWN_TIME)
    if torch.compiler.is_compiling():
        points = torch.arange(embeddings.num_embeddings, device=time_ids.device)
        place = token_times
    else:
        points, place = token_times.unique(return_inverse=True)
    counts = torch.zeros(len(time_ids), len(points), device=time_ids.device)
    counts = counts.scatter_add(1, place, has_time.to(counts.dtype))
    only_point = None
    if not torch.compiler.is_compiling() and ((counts > 0).sum(1) <= 1).all():
        only_point = counts.argmax(1)
    return TextTimes(embeddings, points, counts, token_times, only_point)


def product_by_count(
    projected: torch.Tensor, counts: torch.Tensor, scale: torch.Tensor, share_of_identity: torch.Tensor
) -> torch.Tensor:
    """
    `scale T^T T + share I` of each text and head, (batch, heads, d, d), as a sum over time points: `projected`
    (points, heads, d), `counts` (batch, points), `scale` and `share_of_identity` (batch, heads).
    """
    # The identity as one more time point: everything in one product.
    identity = torch.eye(projected.shape[-1], device=projected.device)
    products = torch.einsum("phd,phe->phde", projected, projected)
    products = torch.cat((products, identity.expand(1, *products.shape[1:])))
    weights = torch.cat((counts.unsqueeze(-1) * scale.unsqueeze(1), share_of_identity.unsqueeze(1)), dim=1)
    return torch.einsum("bph,phde->bhde", weights, products)


def product_by_token(
    projected: torch.Tensor, place: torch.LongTensor, scale: torch.Tensor, share_of_identity: torch.Tensor
) -> torch.Tensor:
    """
    The same as a sum over tokens, for more time points than a text has tokens: `place` (batch, sequence) is where in
    `projected` each token's time is.
    """
    num_points, num_heads, size = projected.shape
    # Heads first, so that the product needs no copies.
    of_heads = projected.transpose(0, 1).reshape(-1, size)
    place_of_heads = place.unsqueeze(1) + num_points * torch.arange(num_heads, device=place.device).unsqueeze(-1)
    of_tokens = nn.functional.embedding(place_of_heads, of_heads).flatten(0, 1)
    product = (of_tokens.mT @ of_tokens).unflatten(0, scale.shape)
    identity = torch.eye(size, device=projected.device)
    return torch.addcmul(share_of_identity[..., None, None] * identity, product, scale[..., None, None])


class TimeResidual(nn.Module):
    """The weight alpha of each head; a module, so that adapters and offloading can reach it."""

    def __init__(self, num_heads: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_heads))

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        """`scale` (batch, heads) times alpha."""
        return scale * self.weight.float()


class TemporalSelfAttention:
    """
    What temporal attention changes in BERT's self-attention: `softmax(Q' K^T / sqrt(d)) V` with
    `Q' = Q T^T T / |T|`, `T = X_t W_T + b_T`, for each head (paper, equation 5). |T| is the Frobenius norm over the
    real tokens of one text. `T^T T` is d x d and a sum over the text's time points, weighted by their tokens; what is
    left is ordinary attention, which every backend serves.
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
        """`hidden_states` (batch, sequence, hidden), `query_scale` (batch, sequence); without it and times, plain."""
        kwargs.pop("past_key_values", None)
        shape = (*hidden_states.shape[:-1], -1, self.attention_head_size)
        key, value = (projection(hidden_states).view(shape).transpose(1, 2) for projection in (self.key, self.value))
        query = self.query_of_one_time(hidden_states, text_times)
        if query is None:
            query = self.turn_query(self.query(hidden_states).view(shape).transpose(1, 2), text_times, query_scale)
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.dropout.p if self.training else 0.0
        context, weights = attention(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        return context.reshape(*hidden_states.shape[:-1], -1).contiguous(), weights

    def turn_query(
        self, query: torch.Tensor, text_times: TextTimes | None = None, query_scale: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Queries (batch, heads, sequence, d) in the light of time; `query_scale` (batch, sequence)."""
        if text_times is not None and text_times.only_point is not None:
            query = self.turn_to_one_time(query, text_times)
        elif text_times is not None:
            query = query @ self.time_product(text_times).to(query.dtype)
        if query_scale is not None:
            # By no more than keeps every number finite: 2**16 is already infinite in float16.
            largest = query.detach().float().abs().amax(-1, keepdim=True)
            factor = query_scale[:, None, :, None].minimum(torch.finfo(query.dtype).max / largest)
            query = (query * factor).to(query.dtype)
        return query

    def turn_to_one_time(self, query: torch.Tensor, text_times: TextTimes) -> torch.Tensor:
        """`Q'` of texts with one time point each, without a d x d product."""
        time, along, has_norm = self.time_vectors(text_times)
        read = (query * time.to(query.dtype).unsqueeze(2)).sum(-1, keepdim=True)
        along = along.to(query.dtype).unsqueeze(2)
        if self.residual is not None:
            return torch.addcmul(query, read, along)
        turned = read * along
        return turned if has_norm.all() else torch.where(has_norm[..., None, None], turned, query)

    def query_of_one_time(self, hidden_states: torch.Tensor, text_times: TextTimes | None) -> torch.Tensor | None:
        """
        `Q'` (batch, heads, sequence, d) where the paper's formula needs no queries: of texts with one time point each
        only `q t` is read, and `(W_q x + b_q) t = (W_q^T t) x + b_q t`. None where it does need them.
        """
        if text_times is None or text_times.only_point is None:
            return None
        if self.residual is not None or not is_plain(self.query):
            return None
        time, along, has_norm = self.time_vectors(text_times)
        if not has_norm.all():
            return None
        weight, bias = self.query.weight.unflatten(0, time.shape[1:]), self.query.bias.view(time.shape[1:])
        read = torch.einsum("bhd,hde->bhe", time.to(weight.dtype), weight) @ hidden_states.mT
        # Autocasting multiplies in another precision than it adds in.
        read = read + (time * bias).sum(-1, keepdim=True).to(read.dtype)
        return read.unsqueeze(-1) * along.to(read.dtype).unsqueeze(2)

    def time_vectors(self, text_times: TextTimes) -> tuple[torch.Tensor, torch.Tensor, torch.BoolTensor]:
        """
        For texts with one time point each, n tokens with the time vector t, `T^T T / |T| = sqrt(n) t t^T / |t|`: the
        two vectors `t` and `sqrt(n) t / |t|` (with the residual times alpha), (batch, heads, d), and where |t| > 0.
        """
        projected = self.time(text_times.embeddings(text_times.points)).float()
        time = projected.unflatten(-1, (self.num_attention_heads, -1))[text_times.only_point]
        norm_squared = text_times.counts.sum(1, keepdim=True) * time.square().sum(-1)
        has_norm = norm_squared > 0
        scale = norm_squared.masked_fill(~has_norm, 1.0).rsqrt() * text_times.counts.sum(1, keepdim=True)
        along = time * (scale if self.residual is None else self.residual(scale)).unsqueeze(-1)
        return time, along, has_norm

    def time_product(self, text_times: TextTimes) -> torch.Tensor:
        """
        `T^T T / |T|`, or with the residual `I + alpha T^T T / |T|`: (batch, heads, d, d). For a text of unknown time
        it is the identity, which leaves plain attention.
        """
        projected = self.time(text_times.embeddings(text_times.points)).float()
        projected = projected.unflatten(-1, (self.num_attention_heads, self.attention_head_size))
        are_few = len(text_times.points) <= text_times.token_times.shape[1]
        norms_squared = projected.square().sum(-1)
        if are_few:
            # No matrix product, which autocasting would run in 16 bits.
            norm_squared = (text_times.counts.unsqueeze(-1) * norms_squared).sum(1)
        else:
            place = torch.searchsorted(text_times.points, text_times.token_times)
            has_time = text_times.token_times != UNKNOWN_TIME
            norm_squared = (norms_squared[place] * has_time.unsqueeze(-1)).sum(1)
        has_norm = norm_squared > 0
        scale = norm_squared.masked_fill(~has_norm, 1.0).rsqrt()
        if self.residual is None:
            share_of_identity = (~has_norm).to(scale.dtype)
        else:
            scale, share_of_identity = self.residual(scale), torch.ones_like(scale)
        if are_few:
            return product_by_count(projected, text_times.counts, scale, share_of_identity)
        projected = projected * (text_times.points != UNKNOWN_TIME)[:, None, None]
        inputs = projected, place, scale, share_of_identity
        if not self.training or torch.compiler.is_compiling():
            return product_by_token(*inputs)
        # A vector for each token is computed again sooner than kept.
        return checkpoint(product_by_token, *inputs, use_reentrant=False, preserve_rng_state=False)


class TemporalBertSelfAttention(TemporalSelfAttention, BertSelfAttention):
    """BERT's self-attention in the light of time."""


class TemporalRobertaSelfAttention(TemporalSelfAttention, RobertaSelfAttention):
    """RoBERTa's self-attention in the light of time."""


class TimeEmbedding(nn.Embedding):
    """Embeddings of time points; a class of its own for its initial scale."""


class TemporalInitialisation:
    """Initial values of what temporal attention adds, and loading."""

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *model_args, **kwargs):
        """As in the library, but from safetensors only. Raises a `ValueError` for `use_safetensors=False`."""
        return super().from_pretrained(pretrained_model_name_or_path, *model_args, **only_safetensors(kwargs))

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, TimeEmbedding):
            init.normal_(module.weight, std=self.config.time_initializer_range)
        elif isinstance(module, TimeResidual):
            init.zeros_(module.weight)


class TemporalEncoder(TemporalInitialisation):
    """What BERT and RoBERTa with temporal attention share: time embeddings, and `time_ids` in the forward pass."""

    _attention_class: type[nn.Module]

    def __init__(self, config, add_pooling_layer: bool = True):
        super().__init__(config, add_pooling_layer=add_pooling_layer)
        self.time_embeddings = None
        if config.temporal_attention == "attention":
            self.time_embeddings = TimeEmbedding(NUM_SPECIAL_TIMES + len(config.times), config.hidden_size)
        for layer_idx, layer in enumerate(self.encoder.layer):
            layer.attention.self = self._attention_class(config, layer_idx=layer_idx)
        self.post_init()

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        time_ids: torch.LongTensor | None = None,
        **kwargs,
    ) -> BaseModelOutputWithPoolingAndCrossAttentions:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, position_ids (`torch.LongTensor`, *optional*):
                Of shape `(batch_size, sequence_length)`, as in the library's model.
            inputs_embeds (`torch.FloatTensor` of shape `(batch_size, sequence_length, hidden_size)`, *optional*):
                Instead of `input_ids`.
            time_ids (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*):
                Time of each token: 0 padding, 1 mask, 2 unknown, then `config.times` in order. Not needed with
                `temporal_attention="none"`.
            kwargs: What else the encoder takes: `output_attentions`, `output_hidden_states`, `return_dict`.

        Returns:
            `BaseModelOutputWithPoolingAndCrossAttentions`: Its `last_hidden_state` has the shape
            `(batch_size, sequence_length, hidden_size)`. Raises a `ValueError` where `time_ids` are missing, have
            another shape or hold an id that no time point has.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
        # While compiling, values cannot be looked at.
        if not torch.compiler.is_compiling():
            broken = check_tokens(self.config, 2, input_ids, attention_mask, token_type_ids, time_ids, inputs_embeds)
            refuse(broken + self.time_rules(time_ids))
        num_tokens = (input_ids if inputs_embeds is None else inputs_embeds).shape[1]
        if position_ids is None and num_tokens > self.most_tokens:
            raise ValueError(f"Texts of {num_tokens} tokens, but the model reads at most {self.most_tokens}.")
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
        """What each layer needs to know of time; both arguments (batch, sequence)."""
        kind = self.config.temporal_attention
        if kind == "none":
            return {}
        if time_ids is None:
            raise ValueError(f"`time_ids` are needed with `temporal_attention='{kind}'`.")
        if kind == "attention":
            return {"text_times": count_times(self.time_embeddings, time_ids, attention_mask)}
        return {"query_scale": torch.tensor(time_factors(self.config), device=time_ids.device)[time_ids]}

    def resize_time_embeddings(self, times: list[str], time_document_counts: list[int] | None = None):
        """
        Gives the model other times. Each that it has keeps its embedding; those that are new start anew. Ids follow
        the order of the times, so the tokenizer must be loaded anew with them.

        Args:
            times (`list[str]`): Must hold all that the model has, in any order.
            time_document_counts (`list[int]`, *optional*): Of all times, with `time_scaling="documents"`.

        Raises a `ValueError` that names the times that would be lost, or that are there twice.
        """
        if lost := [time for time in self.config.times if time not in times]:
            raise ValueError(f"`times` must hold all that the model has; missing: {', '.join(lost)}.")
        changed = copy.deepcopy(self.config)
        changed.times, changed.time_document_counts = list(times), time_document_counts
        changed.validate_times()
        old_times = list(self.config.times)
        self.config.times, self.config.time_document_counts = list(times), time_document_counts
        if self.time_embeddings is None:
            return
        old = self.time_embeddings
        new = TimeEmbedding(NUM_SPECIAL_TIMES + len(times), old.embedding_dim).to(old.weight)
        new.weight.requires_grad_(old.weight.requires_grad)
        self._init_weights(new)
        with torch.no_grad():
            new.weight[:NUM_SPECIAL_TIMES] = old.weight[:NUM_SPECIAL_TIMES]
            for index, time in enumerate(old_times):
                new.weight[NUM_SPECIAL_TIMES + times.index(time)] = old.weight[NUM_SPECIAL_TIMES + index]
        self.time_embeddings = new

    def time_rules(self, time_ids: torch.LongTensor | None) -> list[Broken]:
        """The rule for the values of `time_ids`, where they are read."""
        if time_ids is None or self.config.temporal_attention == "none":
            return []
        where, rule = outside(time_ids, 0, NUM_SPECIAL_TIMES + len(self.config.times) - 1)
        return [("time_ids", time_ids, where, f"{rule}, as the model has {len(self.config.times)} times")]


def time_factors(config: TemporalBertConfig | TemporalRobertaConfig) -> list[float]:
    """By how much `temporal_attention="scaled"` multiplies the queries of each time id; 1 for the special ones."""
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
    BERT whose self-attention knows when a text was written (Rosin and Radinsky, 2022). A plain BERT checkpoint loads
    with all its weights: `BertWithTemporalAttention.from_pretrained(name, times=["1810-1860", "1960-2010"])`.

    Args:
        config ([`TemporalBertConfig`]): Its `temporal_attention` says how queries are changed by time.
        add_pooling_layer (`bool`, *optional*, defaults to `True`): Whether BERT's pooler is built.
    """

    config: TemporalBertConfig
    _attention_class = TemporalBertSelfAttention

    @property
    def most_tokens(self) -> int:
        """Tokens of a text at most."""
        return self.config.max_position_embeddings


class RobertaWithTemporalAttention(TemporalEncoder, RobertaModel):
    r"""
    RoBERTa whose self-attention knows when a text was written (Rosin and Radinsky, 2022). A plain RoBERTa checkpoint
    loads with all its weights, as with [`BertWithTemporalAttention`].

    Args:
        config ([`TemporalRobertaConfig`]): Its `temporal_attention` says how queries are changed by time.
        add_pooling_layer (`bool`, *optional*, defaults to `True`): Whether RoBERTa's pooler is built.
    """

    config: TemporalRobertaConfig
    _attention_class = TemporalRobertaSelfAttention

    @property
    def most_tokens(self) -> int:
        """Tokens of a text at most: positions start behind that of padding."""
        return self.config.max_position_embeddings - self.config.pad_token_id - 1


class TemporalHead(TemporalInitialisation):
    """A task's model whose encoder has temporal attention, and whose forward pass takes `time_ids`."""

    _encoder_class: type[nn.Module]
    # The losses of the library's own heads are means, whatever the Trainer counts.
    accepts_loss_kwargs = False

    def __init__(self, config):
        # Without layers: the library's encoder makes way for ours.
        num_layers, config.num_hidden_layers = config.num_hidden_layers, 0
        try:
            super().__init__(config)
        finally:
            config.num_hidden_layers = num_layers
        has_pooler = getattr(self, self.base_model_prefix).pooler is not None
        setattr(self, self.base_model_prefix, self._encoder_class(config, add_pooling_layer=has_pooler))
        self.post_init()

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        time_ids: torch.LongTensor | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs,
    ) -> ModelOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, time_ids: As in
                [`BertWithTemporalAttention.forward`].
            labels (`torch.LongTensor`, *optional*):
                As the library's model of the same task takes them: `(batch_size,)` for texts,
                `(batch_size, sequence_length)` for tokens, -100 where a token has none.
            kwargs: What else the library's model takes.

        Returns:
            `ModelOutput`: That of the library's model, with `loss` where there are labels, and `logits`, of shape
            `(batch_size, num_labels)` for texts, `(batch_size, sequence_length, num_labels)` for tokens.
        """
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            labels=labels,
            time_ids=time_ids,
            **kwargs,
        )


class TemporalMaskedLM(TemporalHead):
    """Masked language modelling with time; [`BertWithTemporalAttentionForMaskedLM`] describes it."""

    sparse_prediction = False
    _head_name: str

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
        **kwargs,
    ) -> MaskedLMOutput:
        r"""
        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, time_ids: As in
                [`BertWithTemporalAttention.forward`].
            labels (`torch.LongTensor` of shape `(batch_size, sequence_length)`, *optional*):
                The token to predict at each place, -100 where none is.
            kwargs: What else the library's model takes.

        Returns:
            `MaskedLMOutput`: `loss` where there are labels, and `logits` of shape
            `(batch_size, sequence_length, vocab_size)`, or with `sparse_prediction` `(labelled tokens, vocab_size)`.
        """
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "time_ids": time_ids,
        }
        texts = input_ids if inputs_embeds is None else inputs_embeds
        if labels is not None and isinstance(texts, torch.Tensor) and not torch.compiler.is_compiling():
            check_labels(labels, texts.shape[:2], self.config.vocab_size, "the texts")
        if labels is None or not self.sparse_prediction:
            return super().forward(**inputs, labels=labels, **kwargs)
        outputs = self.base_model(**inputs, **kwargs)
        asked = labels != -100
        logits = getattr(self, self._head_name)(outputs.last_hidden_state[asked])
        # The sum, so that a batch without any label has loss 0.
        loss = nn.functional.cross_entropy(logits.float(), labels[asked], reduction="sum") / asked.sum().clamp_min(1)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class BertWithTemporalAttentionForMaskedLM(TemporalMaskedLM, BertForMaskedLM):
    r"""
    [`BertWithTemporalAttention`] with BERT's masked language modelling head (Rosin and Radinsky, 2022).

    Args:
        config ([`TemporalBertConfig`]): Of the encoder.

    With the attribute `sparse_prediction` set to True, a forward pass with labels predicts the labelled tokens alone,
    and `logits` are (labelled tokens, vocabulary): on a large vocabulary the others take most of the time of a
    training step.
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


class RobertaWithTemporalAttentionForMaskedLM(TemporalMaskedLM, RobertaForMaskedLM):
    r"""
    [`RobertaWithTemporalAttention`] with RoBERTa's masked language modelling head (Rosin and Radinsky, 2022).

    Args:
        config ([`TemporalRobertaConfig`]): Of the encoder.

    With the attribute `sparse_prediction` set to True, a forward pass with labels predicts the labelled tokens alone,
    and `logits` are (labelled tokens, vocabulary): on a large vocabulary the others take most of the time of a
    training step.
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
