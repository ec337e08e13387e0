"""TempoFormer for Hugging Face Transformers: change detection in streams of posts."""

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from .configuration_tempoformer import TempoFormerConfig
from .data_collator import StreamCollator
from .loss_tempoformer import focal_loss
from .modeling_tempoformer import (
    TempoFormerForStreamClassification,
    TempoFormerModel,
    TempoFormerPreTrainedModel,
)
from .online_tempoformer import LatePostError, StreamState


AutoConfig.register(TempoFormerConfig.model_type, TempoFormerConfig, exist_ok=True)
AutoModel.register(TempoFormerConfig, TempoFormerModel, exist_ok=True)
AutoModelForSequenceClassification.register(TempoFormerConfig, TempoFormerForStreamClassification, exist_ok=True)
TempoFormerConfig.register_for_auto_class()
TempoFormerModel.register_for_auto_class("AutoModel")
TempoFormerForStreamClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = [
    "LatePostError",
    "StreamCollator",
    "StreamState",
    "TempoFormerConfig",
    "TempoFormerForStreamClassification",
    "TempoFormerModel",
    "TempoFormerPreTrainedModel",
    "focal_loss",
]
