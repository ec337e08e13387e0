"""
The post model over an encoder with temporal attention, which reads when a post was written. A file of its own, so that
the files of temporal encoders go only to repositories of models that have one.
"""

from huggingface_hub.dataclasses import strict

from .configuration_post_tempoformer import PostTempoFormerConfig
from .configuration_temporal_bert import TemporalBertConfig, TemporalRobertaConfig
from .modeling_post_tempoformer import PostTempoFormerForStreamClassification, PostTempoFormerModel
from .modeling_temporal_bert import BertWithTemporalAttention, RobertaWithTemporalAttention


ENCODERS = {TemporalBertConfig: BertWithTemporalAttention, TemporalRobertaConfig: RobertaWithTemporalAttention}


@strict
class TemporalPostTempoFormerConfig(PostTempoFormerConfig):
    """As [`PostTempoFormerConfig`]; the encoder is a [`TemporalBertConfig`] or a [`TemporalRobertaConfig`]."""

    model_type = "temporal_post_tempoformer"
    own_encoders = {config.model_type: config for config in ENCODERS}
    auto_classes = {
        "AutoConfig": "modeling_temporal_post_tempoformer.TemporalPostTempoFormerConfig",
        "AutoModel": "modeling_temporal_post_tempoformer.TemporalPostTempoFormerModel",
        "AutoModelForSequenceClassification": "modeling_temporal_post_tempoformer."
        "TemporalPostTempoFormerForStreamClassification",
    }


class TemporalPostTempoFormerModel(PostTempoFormerModel):
    """As [`PostTempoFormerModel`]."""

    config: TemporalPostTempoFormerConfig
    own_encoders = {config.model_type: encoder for config, encoder in ENCODERS.items()}


class TemporalPostTempoFormerForStreamClassification(PostTempoFormerForStreamClassification):
    """As [`PostTempoFormerForStreamClassification`]."""

    config: TemporalPostTempoFormerConfig
    own_encoders = TemporalPostTempoFormerModel.own_encoders
    base_class = TemporalPostTempoFormerModel


__all__ = [
    "TemporalPostTempoFormerConfig",
    "TemporalPostTempoFormerForStreamClassification",
    "TemporalPostTempoFormerModel",
]
