"""TempoFormer for Hugging Face Transformers: change detection in streams of posts."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.pipelines import PIPELINE_REGISTRY

from .cards.model_cards import write_card
from .configuration_tempoformer import TempoFormerConfig
from .configuration_temporal_bert import TemporalBertConfig, TemporalRobertaConfig
from .data.rows import to_rows
from .data.tables import load_table
from .data.timelines import label_names, to_timelines
from .data_collator_tempoformer import StreamCollator
from .evaluation.metrics import compute_metrics
from .loss_tempoformer import focal_loss
from .modeling_tempoformer import (
    TempoFormerForStreamClassification,
    TempoFormerModel,
    TempoFormerPreTrainedModel,
)
from .modeling_temporal_bert import (
    BertWithTemporalAttention,
    BertWithTemporalAttentionForMaskedLM,
    BertWithTemporalAttentionForSequenceClassification,
    BertWithTemporalAttentionForTokenClassification,
    RobertaWithTemporalAttention,
    RobertaWithTemporalAttentionForMaskedLM,
    RobertaWithTemporalAttentionForSequenceClassification,
    RobertaWithTemporalAttentionForTokenClassification,
)
from .pipeline_tempoformer import StreamClassificationPipeline
from .stream_state_tempoformer import LatePostError, StreamState
from .tokenization_temporal_bert import TemporalBertTokenizer, TemporalRobertaTokenizer


MODELS = {
    TempoFormerConfig: {
        AutoModel: TempoFormerModel,
        AutoModelForSequenceClassification: TempoFormerForStreamClassification,
    },
    TemporalBertConfig: {
        AutoModel: BertWithTemporalAttention,
        AutoModelForMaskedLM: BertWithTemporalAttentionForMaskedLM,
        AutoModelForSequenceClassification: BertWithTemporalAttentionForSequenceClassification,
        AutoModelForTokenClassification: BertWithTemporalAttentionForTokenClassification,
    },
    TemporalRobertaConfig: {
        AutoModel: RobertaWithTemporalAttention,
        AutoModelForMaskedLM: RobertaWithTemporalAttentionForMaskedLM,
        AutoModelForSequenceClassification: RobertaWithTemporalAttentionForSequenceClassification,
        AutoModelForTokenClassification: RobertaWithTemporalAttentionForTokenClassification,
    },
}
for config_class, model_classes in MODELS.items():
    AutoConfig.register(config_class.model_type, config_class, exist_ok=True)
    config_class.register_for_auto_class()
    for auto_class, model_class in model_classes.items():
        auto_class.register(config_class, model_class, exist_ok=True)
        model_class.register_for_auto_class(auto_class.__name__)
for config_class, tokenizer_class in {
    TemporalBertConfig: TemporalBertTokenizer,
    TemporalRobertaConfig: TemporalRobertaTokenizer,
}.items():
    AutoTokenizer.register(config_class, fast_tokenizer_class=tokenizer_class, exist_ok=True)
    tokenizer_class.register_for_auto_class()
PIPELINE_REGISTRY.register_pipeline(
    "stream-classification",
    pipeline_class=StreamClassificationPipeline,
    pt_model=AutoModelForSequenceClassification,
    type="text",
)

__all__ = [
    "BertWithTemporalAttention",
    "BertWithTemporalAttentionForMaskedLM",
    "BertWithTemporalAttentionForSequenceClassification",
    "BertWithTemporalAttentionForTokenClassification",
    "LatePostError",
    "RobertaWithTemporalAttention",
    "RobertaWithTemporalAttentionForMaskedLM",
    "RobertaWithTemporalAttentionForSequenceClassification",
    "RobertaWithTemporalAttentionForTokenClassification",
    "StreamClassificationPipeline",
    "StreamCollator",
    "StreamState",
    "TempoFormerConfig",
    "TempoFormerForStreamClassification",
    "TempoFormerModel",
    "TempoFormerPreTrainedModel",
    "TemporalBertConfig",
    "TemporalBertTokenizer",
    "TemporalRobertaConfig",
    "TemporalRobertaTokenizer",
    "compute_metrics",
    "focal_loss",
    "label_names",
    "load_table",
    "to_rows",
    "to_timelines",
    "write_card",
]
