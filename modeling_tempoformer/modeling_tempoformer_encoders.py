"""
One adapter for each encoder family: where its parts are and how its layers are called. `docs/encoders.md` shows how to
add a family.
"""

from typing import Any

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Layer, DebertaV2Model
from transformers.models.mpnet.modeling_mpnet import MPNetLayer, MPNetModel

from .modeling_streams_tempoformer import MASKED
from .packing_tempoformer import Packing


def attention_inputs(
    config: PreTrainedConfig, tokens: torch.BoolTensor | Packing, dtype: torch.dtype, window: int | None = None
) -> dict[str, Any]:
    """
    Returns the arguments of attention for the backend that `config` names, from `tokens` (posts, tokens), True for
    real tokens, or from a packed sequence; with `window`, each token sees so many others on each side. For eager and
    SDPA attention the mask is built here, because the library's function would wait for the device.
    """
    if isinstance(tokens, Packing):
        # A layer with a window knows it.
        return tokens.attention
    if config._attn_implementation not in ("eager", "sdpa"):
        make = create_bidirectional_mask if window is None else create_bidirectional_sliding_window_mask
        # The library reads only the shape, dtype and device of these states.
        return {"attention_mask": make(config, tokens.new_empty(*tokens.shape, 1, dtype=dtype), tokens)}
    seen = tokens[:, None, None]
    if window is not None:
        seen = seen & seen.new_ones(tokens.shape[1], tokens.shape[1]).tril(window).triu(-window)
    return {"attention_mask": torch.full_like(seen, MASKED, dtype=dtype).masked_fill_(seen, 0.0)}


def is_plain(linear: nn.Module) -> bool:
    """Returns whether a projection is only its weight and bias, without an adapter or a hook that loads weights."""
    hooked = linear._forward_hooks or linear._forward_pre_hooks or "forward" in vars(linear)
    is_whole = type(linear) is nn.Linear and type(linear.weight) is nn.Parameter
    return is_whole and linear.bias is not None and not hooked


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
        """With `cls_only`, `attention_mask` is (posts, tokens), True for real tokens."""
        if not cls_only:
            context, weights = self.self(hidden_states, attention_mask=attention_mask, **kwargs)
            return self.output(context, hidden_states), weights
        return self.output(self.attend_from_cls(hidden_states, attention_mask), hidden_states[:, :1]), None

    def attend_from_cls(
        self,
        hidden_states: torch.Tensor,
        tokens: torch.BoolTensor,
    ) -> torch.Tensor:
        """
        Returns the attention of the query of [CLS] (posts, 1, hidden). With one query no token has to be projected:
        `q (W_k x + b_k) = (q W_k) x + q b_k`, and `sum_t a_t (W_v x_t + b_v) = W_v sum_t a_t x_t + b_v sum_t a_t`.
        """
        heads = (-1, self.self.num_attention_heads, self.self.attention_head_size)
        query = self.self.query(hidden_states[:, 0]).view(heads)
        key, value = self.self.key, self.self.value
        if is_plain(key):
            # q b_k is the same for all tokens and cancels in the softmax, but b_k must get a gradient.
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


class Pooler(nn.Module):
    """Dense and tanh on the first token, for encoders that have no pooler of their own."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.dense(hidden_states[:, 0]).tanh()


class EncoderAdapter:
    """
    The default for all families: `embeddings`, post-norm layers in `encoder.layer`, no pooler, and a last layer that
    is computed for all tokens, though only [CLS] is read. All tensors are of one group of posts: a batch of posts of
    similar length (posts, tokens, ...), or a packed sequence (1, tokens, ...).
    """

    # Builds and loads the encoder.
    encoder_class: Any = AutoModel
    # The family has a pooler, and its class takes `add_pooling_layer`.
    takes_pooler = False
    takes_token_types = False
    # The embeddings read positions, not the layers.
    takes_positions = True
    # The last layer can be computed for [CLS] alone, by `run_layer_for_cls`, in padded groups.
    reads_cls_alone = False
    # Layers normalise what they read, not what they return; the encoder normalises its output once.
    is_pre_norm = False

    def build(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        """Returns an encoder for `config`, with new weights."""
        build = AutoModel.from_config if self.encoder_class is AutoModel else self.encoder_class._from_config
        # The dtype of our own parts, which may not be the saved encoder's.
        return build(config, dtype=torch.get_default_dtype(), **self.pooler_settings(add_pooler))

    def load(self, name: str, add_pooler: bool, **kwargs) -> tuple[PreTrainedModel, dict[str, Any]]:
        """Returns the pretrained encoder `name`, and the library's loading info."""
        kwargs |= self.pooler_settings(add_pooler)
        return self.encoder_class.from_pretrained(name, output_loading_info=True, **kwargs)

    def prepare(self, encoder: PreTrainedModel) -> PreTrainedModel:
        """Prepares a new or a loaded encoder, in place, for the methods below."""
        # Some families do not list their layer in `_no_split_modules`.
        layer = type(self.layers(encoder)[-1]).__name__
        encoder._no_split_modules = {*(encoder._no_split_modules or ()), layer}
        return encoder

    def pooler_settings(self, add_pooler: bool) -> dict[str, bool]:
        """Returns the argument that tells the encoder's class whether to build its pooler."""
        return {"add_pooling_layer": add_pooler} if self.takes_pooler else {}

    def dropout(self, config: PreTrainedConfig) -> float:
        """Returns the dropout of hidden states, in the encoder and in the stream layers."""
        return config.hidden_dropout_prob

    def embed(self, encoder: PreTrainedModel, **inputs: torch.Tensor) -> torch.Tensor:
        """
        Returns embeddings (posts, tokens, hidden) of `input_ids` or `inputs_embeds`. A family without token types
        ignores `token_type_ids`.
        """
        if not self.takes_token_types:
            inputs.pop("token_type_ids", None)
        if not self.takes_positions:
            inputs.pop("position_ids", None)
        return encoder.embeddings(**{"input_ids": None, **inputs})

    def layers(self, encoder: PreTrainedModel) -> nn.ModuleList:
        """Returns the encoder's layers, bottom to top."""
        return encoder.encoder.layer

    def layer_inputs(
        self,
        encoder: PreTrainedModel,
        hidden_states: torch.Tensor,
        tokens: torch.BoolTensor | Packing,
    ) -> dict[str, Any]:
        """
        Returns the arguments of all layers. `tokens` (posts, tokens) is True for real tokens, or tells the posts of a
        packed sequence.
        """
        return attention_inputs(encoder.config, tokens, hidden_states.dtype)

    def run_layer(self, layer: nn.Module, hidden_states: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        """Calls one layer. Hidden states are passed by position, as gradient checkpointing requires."""
        return layer(hidden_states, **inputs)

    def final_norm(self, encoder: PreTrainedModel, hidden_states: torch.Tensor) -> torch.Tensor:
        """Normalises hidden states of any layer as the encoder normalises its last layer's."""
        return hidden_states


class BertAdapter(EncoderAdapter):
    """BERT and encoders with its layers, such as RoBERTa. The last layer is computed for [CLS] alone."""

    takes_pooler = True
    takes_token_types = True
    reads_cls_alone = True

    def prepare(self, encoder: PreTrainedModel) -> PreTrainedModel:
        last = self.layers(encoder)[-1]
        last.attention = ClsAttention(last.attention)
        return super().prepare(encoder)

    def run_layer_for_cls(
        self, layer: nn.Module, hidden_states: torch.Tensor, tokens: torch.BoolTensor
    ) -> torch.Tensor:
        """Runs the last layer and returns the [CLS] of each post (posts, hidden)."""
        return layer(hidden_states, attention_mask=tokens, cls_only=True)[:, 0]


class ElectraAdapter(BertAdapter):
    """ELECTRA: as BERT, but embeddings may be narrower than the layers, and there is no pooler."""

    takes_pooler = False

    def embed(self, encoder, **inputs) -> torch.Tensor:
        embeddings = super().embed(encoder, **inputs)
        if encoder.config.embedding_size != encoder.config.hidden_size:
            embeddings = encoder.embeddings_project(embeddings)
        return embeddings


class DistilBertAdapter(EncoderAdapter):
    """DistilBERT: other names, no token types."""

    def dropout(self, config: PreTrainedConfig) -> float:
        return config.dropout

    def layers(self, encoder: PreTrainedModel) -> nn.ModuleList:
        return encoder.transformer.layer


class CheckpointedMPNetLayer(GradientCheckpointingLayer, MPNetLayer):
    """MPNet's layer with gradient checkpointing, which the library's class lacks."""


class RecordedMPNet(MPNetModel):
    """MPNet whose attention the library records, and whose layers can be checkpointed."""

    _can_record_outputs = {"attentions": MPNetLayer}

    def __init__(self, config: PreTrainedConfig, add_pooling_layer: bool = True):
        super().__init__(config, add_pooling_layer)
        self.encoder.layer = nn.ModuleList(CheckpointedMPNetLayer(config) for _ in self.encoder.layer)
        self.post_init()


class MPNetAdapter(EncoderAdapter):
    """
    MPNet: all layers share a bias of relative positions, no token types. Layers return their attention weights only if
    asked to; they are always asked, as the weights are computed anyway.
    """

    encoder_class = RecordedMPNet
    takes_pooler = True

    def layer_inputs(self, encoder, hidden_states, tokens) -> dict[str, Any]:
        inputs = super().layer_inputs(encoder, hidden_states, tokens)
        return {**inputs, "position_bias": encoder.encoder.compute_position_bias(hidden_states)}

    def run_layer(self, layer, hidden_states, inputs) -> torch.Tensor:
        return layer(hidden_states, inputs["attention_mask"], inputs["position_bias"], True)[0]


class RecordedDebertaV2(DebertaV2Model):
    """DeBERTa-v2 whose attention the library records."""

    _can_record_outputs = {"attentions": DebertaV2Layer}


class DebertaV2Adapter(EncoderAdapter):
    """
    DeBERTa-v2 and v3: relative positions, a mask of its own form, and in the largest v2 models a convolution next to
    the first layer. Attention weights are always asked for, as with MPNet.
    """

    encoder_class = RecordedDebertaV2
    takes_token_types = True

    def layer_inputs(self, encoder, hidden_states, tokens) -> dict[str, Any]:
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
            # A convolution reads neighbouring tokens, so padding must be 0 like everything beyond the post.
            tokens = inputs["tokens"].to(hidden_states.device)
            states = convolution(hidden_states * tokens.unsqueeze(-1), states, tokens)
        return states


class ModernBertAdapter(EncoderAdapter):
    """
    ModernBERT: pre-norm layers with local or global attention and rotary positions, no token types. Their residual
    stream is never normalised: stream positions and the context of [CLS] enter it without a norm. The pooler, the
    attention across posts and Gate&Norm, which are outside the layers, read [CLS] after the encoder's final norm.
    """

    is_pre_norm = True
    takes_positions = False

    def dropout(self, config: PreTrainedConfig) -> float:
        return config.mlp_dropout

    def layers(self, encoder: PreTrainedModel) -> nn.ModuleList:
        return encoder.layers

    def layer_inputs(self, encoder, hidden_states, tokens) -> dict[str, dict[str, Any]]:
        windows = {"full_attention": None, "sliding_attention": encoder.config.sliding_window}
        if isinstance(tokens, Packing):
            positions = tokens.places
        else:
            positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        return {
            kind: {
                **attention_inputs(encoder.config, tokens, hidden_states.dtype, windows[kind]),
                "position_embeddings": encoder.rotary_emb(hidden_states, positions, kind),
            }
            for kind in dict.fromkeys(encoder.config.layer_types)
        }

    def run_layer(self, layer, hidden_states, inputs) -> torch.Tensor:
        return layer(hidden_states, **inputs[layer.attention_type])

    def final_norm(self, encoder: PreTrainedModel, hidden_states: torch.Tensor) -> torch.Tensor:
        return encoder.final_norm(hidden_states)


ENCODER_ADAPTERS = {
    "bert": BertAdapter(),
    "camembert": BertAdapter(),
    "deberta-v2": DebertaV2Adapter(),
    "distilbert": DistilBertAdapter(),
    "electra": ElectraAdapter(),
    "modernbert": ModernBertAdapter(),
    "mpnet": MPNetAdapter(),
    "roberta": BertAdapter(),
    "xlm-roberta": BertAdapter(),
}


def get_encoder_adapter(config: PreTrainedConfig) -> EncoderAdapter:
    """
    The adapter of an encoder's family.

    Args:
        config (`PreTrainedConfig`): The encoder's configuration; its `model_type` names the family.

    Returns:
        [`EncoderAdapter`]. Raises a `ValueError` for a decoder, and for any other family one that lists the supported
        families.
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
