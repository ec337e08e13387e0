"""
What differs between encoder families, one adapter each: where the parts are and how a layer is called. How to add a
family is in `docs/encoders.md`.
"""

from typing import Any

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.mpnet.modeling_mpnet import MPNetLayer

from .modeling_temporal_bert import BertWithTemporalAttention, RobertaWithTemporalAttention, is_plain


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


class Pooler(nn.Module):
    """Dense and tanh on the first token, for encoders that have no pooler of their own."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.dense(hidden_states[:, 0]).tanh()


class EncoderAdapter:
    """
    What an encoder is unless its family's adapter says otherwise: `embeddings`, post-norm layers in `encoder.layer`
    that take an `attention_mask`, no pooler. All of the last layer is computed, though only [CLS] is read.
    """

    # Of its own, which `add_pooling_layer` leaves out.
    own_pooler = False
    takes_token_types = False
    # Layers compute the positions of tokens anew, from their order in the hidden states.
    positions_in_layers = False
    # Layers add to their input without normalising it; what comes out of the encoder is normalised once.
    is_pre_norm = False

    def build(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        """The encoder for `config`, with new weights."""
        encoder = self.new(config, add_pooler)
        # Not every family says it itself: a layer and what is added to its input stay on one device.
        layer = type(self.layers(encoder)[-1]).__name__
        encoder._no_split_modules = {*(encoder._no_split_modules or ()), layer}
        return encoder

    def new(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        """The encoder for `config` as its family has it."""
        # The dtype that our own parts are built in, not the one that the encoder was saved in.
        return AutoModel.from_config(config, dtype=torch.get_default_dtype(), **self.pooler_settings(add_pooler))

    def load(self, name: str, add_pooler: bool, **kwargs) -> PreTrainedModel:
        """The pretrained encoder `name`."""
        return AutoModel.from_pretrained(name, **self.pooler_settings(add_pooler), **kwargs)

    def pooler_settings(self, add_pooler: bool) -> dict[str, bool]:
        """How the encoder's class is told whether to build its own pooler."""
        return {"add_pooling_layer": add_pooler} if self.own_pooler else {}

    def new_pooler(self, config: PreTrainedConfig) -> nn.Module | None:
        """A pooler of (posts, tokens, hidden) for a family that has none of its own."""
        return None if self.own_pooler else Pooler(config)

    def dropout(self, config: PreTrainedConfig) -> float:
        """The dropout of the encoder's hidden states, which the stream parts share."""
        return config.hidden_dropout_prob

    def max_tokens(self, config: PreTrainedConfig) -> int:
        """Tokens of a post at most."""
        return config.max_position_embeddings

    def embed(
        self,
        encoder: PreTrainedModel,
        input_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Embeddings of `input_ids` (posts, tokens) or `inputs_embeds`, of shape (posts, tokens, hidden). A family
        without token types is not told them.
        """
        types = {"token_type_ids": token_type_ids} if self.takes_token_types else {}
        return encoder.embeddings(input_ids=input_ids, inputs_embeds=inputs_embeds, **types)

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
        What `run_layer` needs besides `hidden_states` (posts, tokens, hidden), the same for all layers. `tokens` and
        `time_ids` are (posts, tokens): True for real ones, and their calendar time, which only temporal encoders read.
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
        return self.run_layer(layer, hidden_states, inputs)[:, 0]

    def read(self, encoder: PreTrainedModel, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states of any layer as the encoder would give them out, were that layer its last."""
        return hidden_states


class BertAdapter(EncoderAdapter):
    """BERT and the encoders with its blocks, the last of which runs for [CLS] alone."""

    own_pooler = True
    takes_token_types = True
    cls_attention = ClsAttention

    def build(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        encoder = super().build(config, add_pooler)
        last = self.layers(encoder)[-1]
        last.attention = self.cls_attention(last.attention)
        return encoder

    def run_layer_for_cls(self, layer, hidden_states, inputs, tokens) -> torch.Tensor:
        return layer(hidden_states, **{**inputs, "attention_mask": tokens}, cls_only=True)[:, 0]


class RobertaAdapter(BertAdapter):
    """RoBERTa, XLM-RoBERTa and CamemBERT: BERT, but positions start behind that of padding."""

    def max_tokens(self, config: PreTrainedConfig) -> int:
        return config.max_position_embeddings - config.pad_token_id - 1


class ElectraAdapter(BertAdapter):
    """ELECTRA: BERT, but embeddings may be narrower than the layers, and there is no pooler."""

    own_pooler = False

    def embed(self, encoder, input_ids=None, token_type_ids=None, inputs_embeds=None) -> torch.Tensor:
        embeddings = super().embed(encoder, input_ids, token_type_ids, inputs_embeds)
        if encoder.config.embedding_size != encoder.config.hidden_size:
            embeddings = encoder.embeddings_project(embeddings)
        return embeddings


class DistilBertAdapter(EncoderAdapter):
    """DistilBERT: other names, no token types."""

    def dropout(self, config: PreTrainedConfig) -> float:
        return config.dropout

    def layers(self, encoder: PreTrainedModel) -> nn.ModuleList:
        return encoder.transformer.layer

    def self_attention(self, layer: nn.Module) -> nn.Module:
        return layer.attention


class CheckpointedMPNetLayer(GradientCheckpointingLayer, MPNetLayer):
    """MPNet's layer with gradient checkpointing, which its own class lacks."""


class MPNetAdapter(EncoderAdapter):
    """
    MPNet: all layers share a bias of relative positions, no token types. Its layers return the attention weights only
    when asked; as they are computed anyway, they always are.
    """

    own_pooler = True
    positions_in_layers = True

    def new(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        encoder = super().new(config, add_pooler)
        encoder.encoder.layer = nn.ModuleList(CheckpointedMPNetLayer(config) for _ in encoder.encoder.layer)
        return encoder

    def max_tokens(self, config: PreTrainedConfig) -> int:
        # Positions start at 2, whatever the id of padding.
        return config.max_position_embeddings - 2

    def self_attention(self, layer: nn.Module) -> nn.Module:
        return layer

    def layer_inputs(self, encoder, hidden_states, tokens, time_ids=None) -> dict[str, Any]:
        inputs = super().layer_inputs(encoder, hidden_states, tokens)
        return {**inputs, "position_bias": encoder.encoder.compute_position_bias(hidden_states)}

    def run_layer(self, layer, hidden_states, inputs) -> torch.Tensor:
        return layer(hidden_states, inputs["attention_mask"], inputs["position_bias"], True)[0]


class DebertaV2Adapter(EncoderAdapter):
    """
    DeBERTa-v2 and v3: relative positions, a mask of its own form, in the largest v2 models a convolution beside the
    first layer. Attention weights are always asked for, as with MPNet.
    """

    takes_token_types = True
    positions_in_layers = True

    def self_attention(self, layer: nn.Module) -> nn.Module:
        return layer

    def layer_inputs(self, encoder, hidden_states, tokens, time_ids=None) -> dict[str, Any]:
        stack = encoder.encoder
        return {
            "attention_mask": stack.get_attention_mask(tokens),
            "relative_pos": stack.get_rel_pos(hidden_states),
            "rel_embeddings": stack.get_rel_embedding(),
            "tokens": tokens.long(),
            "convolutions": {} if stack.conv is None else {stack.layer[0]: stack.conv},
        }

    def run_layer(self, layer, hidden_states, inputs) -> torch.Tensor:
        positions = (inputs["relative_pos"], inputs["rel_embeddings"])
        states = layer(hidden_states, inputs["attention_mask"], None, *positions, True)[0]
        if (convolution := inputs["convolutions"].get(layer)) is not None:
            # It reads its neighbours, so padding must be 0, as it is beyond the end.
            tokens = inputs["tokens"].to(hidden_states.device)
            states = convolution(hidden_states * tokens.unsqueeze(-1), states, tokens)
        return states


MODERNBERT_MASKS = {
    "full_attention": create_bidirectional_mask,
    "sliding_attention": create_bidirectional_sliding_window_mask,
}


class ModernBertAdapter(EncoderAdapter):
    """
    ModernBERT: pre-norm layers with local or global attention and rotary positions, no token types.

    Between pre-norm layers runs the residual stream, which is never normalised. So stream positions are added to it
    without LayerNorm; a post's [CLS] vector is read through the encoder's final norm, for the pooler, the attention
    across posts and Gate&Norm alike; and what replaces it in the residual stream is taken as it is, since the next
    layer normalises what it reads. With `stream_residual` the context is added to the residual stream itself.
    """

    is_pre_norm = True
    positions_in_layers = True

    def dropout(self, config: PreTrainedConfig) -> float:
        return config.mlp_dropout

    def layers(self, encoder: PreTrainedModel) -> nn.ModuleList:
        return encoder.layers

    def self_attention(self, layer: nn.Module) -> nn.Module:
        return layer.attn

    def layer_inputs(self, encoder, hidden_states, tokens, time_ids=None) -> dict[str, Any]:
        places = torch.arange(hidden_states.shape[1], device=hidden_states.device).unsqueeze(0)
        needs = {"config": encoder.config, "inputs_embeds": hidden_states, "attention_mask": tokens}
        return {
            kind: {
                "attention_mask": MODERNBERT_MASKS[kind](**needs),
                "position_embeddings": encoder.rotary_emb(hidden_states, places, kind),
            }
            for kind in dict.fromkeys(encoder.config.layer_types)
        }

    def run_layer(self, layer, hidden_states, inputs) -> torch.Tensor:
        return layer(hidden_states, **inputs[layer.attention_type])

    def read(self, encoder: PreTrainedModel, hidden_states: torch.Tensor) -> torch.Tensor:
        return encoder.final_norm(hidden_states)


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
    "camembert": RobertaAdapter(),
    "deberta-v2": DebertaV2Adapter(),
    "distilbert": DistilBertAdapter(),
    "electra": ElectraAdapter(),
    "modernbert": ModernBertAdapter(),
    "mpnet": MPNetAdapter(),
    "roberta": RobertaAdapter(),
    "temporal_bert": TemporalBertAdapter(),
    "temporal_roberta": TemporalRobertaAdapter(),
    "xlm-roberta": RobertaAdapter(),
}


def get_encoder_adapter(config: PreTrainedConfig) -> EncoderAdapter:
    """
    The adapter of an encoder's family.

    Args:
        config (`PreTrainedConfig`): Of the encoder; its `model_type` names the family.

    Returns:
        [`EncoderAdapter`]. Raises a `ValueError` that lists the supported families for any other, and one for a
        decoder.
    """
    if config.model_type not in ENCODER_ADAPTERS:
        raise ValueError(
            f"TempoFormer has no adapter for encoders of type '{config.model_type}'. "
            f"Supported: {', '.join(sorted(ENCODER_ADAPTERS))}."
        )
    for field in ("is_decoder", "add_cross_attention"):
        if getattr(config, field, False):
            raise ValueError(f"TempoFormer needs an encoder, but the '{config.model_type}' has `{field}=True`.")
    return ENCODER_ADAPTERS[config.model_type]
