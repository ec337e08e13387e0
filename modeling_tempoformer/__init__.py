"""TempoFormer for Hugging Face Transformers: change detection in streams of posts."""

from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration_tempoformer import TempoFormerConfig
from .data_collator_tempoformer import StreamCollator
from .loss_tempoformer import focal_loss
from .modeling_tempoformer import (
    TempoFormerForStreamClassification,
    TempoFormerModel,
    TempoFormerPreTrainedModel,
)
from .online_tempoformer import LatePostError, StreamState
from .pipeline_tempoformer import StreamClassificationPipeline


AutoConfig.register(TempoFormerConfig.model_type, TempoFormerConfig, exist_ok=True)
AutoModel.register(TempoFormerConfig, TempoFormerModel, exist_ok=True)
AutoModelForSequenceClassification.register(TempoFormerConfig, TempoFormerForStreamClassification, exist_ok=True)
PIPELINE_REGISTRY.register_pipeline(
    "stream-classification",
    pipeline_class=StreamClassificationPipeline,
    pt_model=AutoModelForSequenceClassification,
    type="text",
)
TempoFormerConfig.register_for_auto_class()
TempoFormerModel.register_for_auto_class("AutoModel")
TempoFormerForStreamClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = [
    "LatePostError",
    "StreamClassificationPipeline",
    "StreamCollator",
    "StreamState",
    "TempoFormerConfig",
    "TempoFormerForStreamClassification",
    "TempoFormerModel",
    "TempoFormerPreTrainedModel",
    "focal_loss",
]
