"""What differs between encoder families, one adapter each: where the parts are and how a layer is called."""

from typing import Any

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask

from .modeling_temporal_bert import BertWithTemporalAttention, RobertaWithTemporalAttention


def is_plain(linear: nn.Module) -> bool:
    """Whether a projection is its weight and bias alone: no adapter around it, no hook that brings its weights in."""
    hooked = linear._forward_hooks or linear._forward_pre_hooks or "forward" in vars(linear)
    return type(linear) is nn.Linear and linear.bias is not None and not hooked


class ClsAttention(nn.Module):
    """
    The attention block of a BERT layer, with the same weights under the same names; with `cls_only=True` it computes
    the output of the [CLS] token alone.
    """

    def __init__(self, attention: nn.Module):
        super().__init__()
        self.self = attention.self
        self.output = attention.output

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, cls_only: bool = False, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """`hidden_states` (posts, tokens, hidden); `attention_mask` with `cls_only` (posts, tokens), True for real."""
        if not cls_only:
            context, weights = self.self(hidden_states, attention_mask=attention_mask, **kwargs)
            return self.output(context, hidden_states), weights
        return self.output(self.attend_from_cls(hidden_states, attention_mask, **kwargs), hidden_states[:, :1]), None

    def attend_from_cls(self, hidden_states: torch.Tensor, tokens: torch.BoolTensor, **kwargs) -> torch.Tensor:
        """
        The attention of one query, (posts, 1, hidden). With one query there is no need to project every token:
        `q (W_k x + b_k) = (q W_k) x + q b_k`, and `sum_t a_t (W_v x_t + b_v) = W_v sum_t a_t x_t + b_v sum_t a_t`.
        """
        heads = (-1, self.self.num_attention_heads, self.self.attention_head_size)
        query = self.turn_query(self.self.query(hidden_states[:, 0]).view(heads), **kwargs)
        key, value = self.self.key, self.self.value
        if is_plain(key):
            # q b_k is the same for all tokens and changes nothing, but every parameter must get a gradient.
            scores = torch.einsum("nhd,hde->nhe", query, key.weight.view(*heads[1:], -1)) @ hidden_states.mT
            scores = scores + (query * key.bias.view(heads)).sum(-1, keepdim=True)
        else:
            scores = torch.einsum("nhd,nthd->nht", query, key(hidden_states).unflatten(-1, heads[1:]))
        scores = scores * self.self.scaling
        scores = scores.masked_fill(~tokens.unsqueeze(1), torch.finfo(scores.dtype).min)
        weights = self.self.dropout(scores.softmax(-1))
        if is_plain(value):
            context = torch.einsum("nhe,hde->nhd", weights @ hidden_states, value.weight.view(*heads[1:], -1))
            context = context + weights.sum(-1, keepdim=True) * value.bias.view(heads)
        else:
            context = torch.einsum("nht,nthd->nhd", weights, value(hidden_states).unflatten(-1, heads[1:]))
        return context.flatten(1).unsqueeze(1)

    def turn_query(self, query: torch.Tensor, **kwargs) -> torch.Tensor:
        """The query of [CLS] (posts, heads, head width), as the attention changes it."""
        return query


class TemporalClsAttention(ClsAttention):
    """[`ClsAttention`] of a layer with temporal attention."""

    def turn_query(self, query: torch.Tensor, **times) -> torch.Tensor:
        if times.get("query_scale") is not None:
            times["query_scale"] = times["query_scale"][:, :1]
        names = ("text_times", "query_scale")
        return self.self.turn_query(query.unsqueeze(2), *(times.get(name) for name in names)).squeeze(2)


class BertAdapter:
    """BERT and the encoders built like it: post-norm layers in `encoder.layer`, a pooler of their own."""

    cls_attention = ClsAttention

    def build(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        """The encoder for `config`, with new weights; its last layer can run for [CLS] alone."""
        encoder = self.new(config, add_pooler)
        last = self.layers(encoder)[-1]
        last.attention = self.cls_attention(last.attention)
        return encoder

    def new(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        """The encoder for `config` as its family has it."""
        return AutoModel.from_config(config, add_pooling_layer=add_pooler)

    def load(self, name: str, add_pooler: bool, **kwargs) -> PreTrainedModel:
        """The pretrained encoder `name`."""
        return AutoModel.from_pretrained(name, add_pooling_layer=add_pooler, **kwargs)

    def dropout(self, config: PreTrainedConfig) -> float:
        """The dropout of the encoder's hidden states, which the stream parts share."""
        return config.hidden_dropout_prob

    def max_tokens(self, config: PreTrainedConfig) -> int:
        """Tokens of a post at most."""
        return config.max_position_embeddings

    def embed(self, encoder: PreTrainedModel, **inputs: torch.Tensor | None) -> torch.Tensor:
        """Embeddings of `input_ids` (posts, tokens) or `inputs_embeds`, of shape (posts, tokens, hidden)."""
        return encoder.embeddings(**inputs)

    def layers(self, encoder: PreTrainedModel) -> nn.ModuleList:
        """The encoder's layers, bottom to top."""
        return encoder.encoder.layer

    def self_attention(self, layer: nn.Module) -> nn.Module:
        """The module of a layer that returns the attention weights as its second output."""
        return layer.attention.self

    def layer_inputs(
        self,
        encoder: PreTrainedModel,
        hidden_states: torch.Tensor,
        tokens: torch.BoolTensor,
        time_ids: torch.LongTensor | None = None,
    ) -> dict[str, Any]:
        """
        What the layers need besides `hidden_states` (posts, tokens, hidden). `tokens` and `time_ids` are (posts,
        tokens): True for real ones, and their calendar time, which only temporal encoders read.
        """
        mask = create_bidirectional_mask(config=encoder.config, inputs_embeds=hidden_states, attention_mask=tokens)
        return {"attention_mask": mask}

    def run_layer(self, layer: nn.Module, hidden_states: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """One layer. Hidden states go by position, as gradient checkpointing needs."""
        return layer(hidden_states, **inputs)

    def run_layer_for_cls(
        self, layer: nn.Module, hidden_states: torch.Tensor, inputs: dict[str, Any], tokens: torch.BoolTensor
    ) -> torch.Tensor:
        """What [CLS] becomes in the last layer, (posts, hidden); `tokens` (posts, tokens) is True for real ones."""
        return layer(hidden_states, **{**inputs, "attention_mask": tokens}, cls_only=True)[:, 0]

    def pool(self, encoder: PreTrainedModel, cls: torch.Tensor) -> torch.Tensor:
        """The encoder's pooler on [CLS] vectors of shape (posts, hidden)."""
        return encoder.pooler(cls.unsqueeze(1))


class RobertaAdapter(BertAdapter):
    """RoBERTa: BERT, but its positions start behind that of padding."""

    def max_tokens(self, config: PreTrainedConfig) -> int:
        return config.max_position_embeddings - config.pad_token_id - 1


class TemporalAdapter:
    """
    What temporal attention changes for its family: the encoder is built by its own class, since the Auto classes do
    not know it where the code is remote, and its layers are told the time.
    """

    cls_attention = TemporalClsAttention
    encoder_class: type[PreTrainedModel]

    def new(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        return self.encoder_class(config, add_pooling_layer=add_pooler)

    def load(self, name: str, add_pooler: bool, **kwargs) -> PreTrainedModel:
        return self.encoder_class.from_pretrained(name, add_pooling_layer=add_pooler, **kwargs)

    def layer_inputs(self, encoder, hidden_states, tokens, time_ids=None) -> dict[str, Any]:
        inputs = super().layer_inputs(encoder, hidden_states, tokens)
        return {**inputs, **encoder.time_inputs(time_ids, tokens)}


class TemporalBertAdapter(TemporalAdapter, BertAdapter):
    """BERT with temporal attention."""

    encoder_class = BertWithTemporalAttention


class TemporalRobertaAdapter(TemporalAdapter, RobertaAdapter):
    """RoBERTa with temporal attention."""

    encoder_class = RobertaWithTemporalAttention


ENCODER_ADAPTERS = {
    "bert": BertAdapter(),
    "roberta": RobertaAdapter(),
    "temporal_bert": TemporalBertAdapter(),
    "temporal_roberta": TemporalRobertaAdapter(),
}


def get_encoder_adapter(config: PreTrainedConfig) -> BertAdapter:
    """The adapter for an encoder's configuration. Raises a `ValueError` that lists the supported families."""
    if config.model_type not in ENCODER_ADAPTERS:
        raise ValueError(
            f"TempoFormer has no adapter for encoders of type '{config.model_type}'. "
            f"Supported: {', '.join(sorted(ENCODER_ADAPTERS))}."
        )
    return ENCODER_ADAPTERS[config.model_type]
