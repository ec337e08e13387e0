"""What differs between encoder families, one adapter each: where the parts are and how a layer is called."""

import torch
from torch import nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask


class BertAdapter:
    """BERT and the encoders built like it: post-norm layers in `encoder.layer`, a pooler of their own."""

    def build(self, config: PreTrainedConfig, add_pooler: bool) -> PreTrainedModel:
        """The encoder for `config`, with new weights."""
        return AutoModel.from_config(config, add_pooling_layer=add_pooler)

    def load(self, name: str, add_pooler: bool, **kwargs) -> PreTrainedModel:
        """The pretrained encoder `name`."""
        return AutoModel.from_pretrained(name, add_pooling_layer=add_pooler, **kwargs)

    def dropout(self, config: PreTrainedConfig) -> float:
        """The dropout of the encoder's hidden states, which the stream parts share."""
        return config.hidden_dropout_prob

    def embed(self, encoder: PreTrainedModel, **inputs: torch.Tensor | None) -> torch.Tensor:
        """Embeddings of `input_ids` (posts, tokens) or `inputs_embeds`, of shape (posts, tokens, hidden)."""
        return encoder.embeddings(**inputs)

    def layers(self, encoder: PreTrainedModel) -> nn.ModuleList:
        """The encoder's layers, bottom to top."""
        return encoder.encoder.layer

    def self_attention(self, layer: nn.Module) -> nn.Module:
        """The module of a layer that returns the attention weights as its second output."""
        return layer.attention.self

    def layer_mask(self, encoder: PreTrainedModel, hidden_states: torch.Tensor, attention_mask: torch.Tensor):
        """`attention_mask` (posts, tokens) in the form that the encoder's attention backend reads."""
        return create_bidirectional_mask(
            config=encoder.config, inputs_embeds=hidden_states, attention_mask=attention_mask
        )

    def run_layer(self, layer: nn.Module, hidden_states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """One layer. Hidden states go by position, as gradient checkpointing needs."""
        return layer(hidden_states, mask)

    def pool(self, encoder: PreTrainedModel, cls: torch.Tensor) -> torch.Tensor:
        """The encoder's pooler on [CLS] vectors of shape (posts, hidden)."""
        return encoder.pooler(cls.unsqueeze(1))


ENCODER_ADAPTERS = {"bert": BertAdapter(), "roberta": BertAdapter()}


def get_encoder_adapter(config: PreTrainedConfig) -> BertAdapter:
    """The adapter for an encoder's configuration. Raises a `ValueError` that lists the supported families."""
    if config.model_type not in ENCODER_ADAPTERS:
        raise ValueError(
            f"TempoFormer has no adapter for encoders of type '{config.model_type}'. "
            f"Supported: {', '.join(sorted(ENCODER_ADAPTERS))}."
        )
    return ENCODER_ADAPTERS[config.model_type]
