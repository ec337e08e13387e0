"""TempoFormer for Hugging Face Transformers: change detection in streams of posts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from .configuration_post_tempoformer import PostTempoFormerConfig
from .configuration_streams_tempoformer import StreamFields
from .configuration_tempoformer import TempoFormerConfig
from .configuration_temporal_bert import TemporalBertConfig, TemporalRobertaConfig
from .data_collator_tempoformer import StreamCollator
from .modeling_post_tempoformer import (
    PostTempoFormerForStreamClassification,
    PostTempoFormerModel,
    PostTempoFormerPreTrainedModel,
)
from .modeling_streams_tempoformer import focal_loss
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
from .onnx_encoder_tempoformer import OnnxEncoder  # noqa: F401
from .pipeline_tempoformer import StreamClassificationPipeline
from .timeline_tempoformer import Timeline
from .tokenization_temporal_bert import TemporalBertTokenizer, TemporalRobertaTokenizer


if TYPE_CHECKING:
    from .cards.model_cards import CardContent, write_card
    from .evaluation.calibration import fit_calibration
    from .evaluation.metrics import compute_metrics
    from .evaluation.predictions import attach_logits
    from .posts.model_fields import fields_of_posts
    from .posts.rows import to_rows
    from .posts.splits import hold_out, split_timelines
    from .posts.tables import load_table
    from .posts.timelines import label_names, to_timelines
    from .training.encoder_backends import convert_encoder
    from .training.experts import GrowExperts, grow_experts
    from .training.fine_tuning import fine_tune
    from .training.frozen_encoder import embed_rows, freeze_encoder, freeze_layers
    from .training.stock_trainer import Parts, build_default, default_settings, embed_parts, load_parts
    from .training.word_fitting import fit_words

__version__ = "0.3.0"

# These need Datasets, scikit-learn or matplotlib, which take seconds to import: they are imported at their first use.
LAZY = {
    "CardContent": ".cards.model_cards",
    "GrowExperts": ".training.experts",
    "Parts": ".training.stock_trainer",
    "attach_logits": ".evaluation.predictions",
    "build_default": ".training.stock_trainer",
    "compute_metrics": ".evaluation.metrics",
    "convert_encoder": ".training.encoder_backends",
    "default_settings": ".training.stock_trainer",
    "embed_parts": ".training.stock_trainer",
    "embed_rows": ".training.frozen_encoder",
    "fields_of_posts": ".posts.model_fields",
    "fine_tune": ".training.fine_tuning",
    "fit_calibration": ".evaluation.calibration",
    "fit_words": ".training.word_fitting",
    "freeze_encoder": ".training.frozen_encoder",
    "freeze_layers": ".training.frozen_encoder",
    "grow_experts": ".training.experts",
    "hold_out": ".posts.splits",
    "label_names": ".posts.timelines",
    "load_parts": ".training.stock_trainer",
    "load_table": ".posts.tables",
    "split_timelines": ".posts.splits",
    "to_rows": ".posts.rows",
    "to_timelines": ".posts.timelines",
    "write_card": ".cards.model_cards",
}

MODELS = {
    PostTempoFormerConfig: {
        AutoModel: PostTempoFormerModel,
        AutoModelForSequenceClassification: PostTempoFormerForStreamClassification,
    },
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


class RegisteredPipelines(dict):
    """
    The `custom_pipelines` of a saved model, whose `in` is always False. Transformers then takes the pipeline that this
    package has registered, instead of code in the model's folder, which needs `trust_remote_code`. The keys still name
    the task.
    """

    def __contains__(self, task: object) -> bool:
        return False


StreamFields.pipelines_type = RegisteredPipelines
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


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(LAZY[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *LAZY})


__all__ = [
    "BertWithTemporalAttention",
    "BertWithTemporalAttentionForMaskedLM",
    "BertWithTemporalAttentionForSequenceClassification",
    "BertWithTemporalAttentionForTokenClassification",
    "CardContent",
    "GrowExperts",
    "Parts",
    "PostTempoFormerConfig",
    "PostTempoFormerForStreamClassification",
    "PostTempoFormerModel",
    "PostTempoFormerPreTrainedModel",
    "RobertaWithTemporalAttention",
    "RobertaWithTemporalAttentionForMaskedLM",
    "RobertaWithTemporalAttentionForSequenceClassification",
    "RobertaWithTemporalAttentionForTokenClassification",
    "StreamClassificationPipeline",
    "StreamCollator",
    "TempoFormerConfig",
    "TempoFormerForStreamClassification",
    "TempoFormerModel",
    "TempoFormerPreTrainedModel",
    "TemporalBertConfig",
    "TemporalBertTokenizer",
    "TemporalRobertaConfig",
    "TemporalRobertaTokenizer",
    "Timeline",
    "attach_logits",
    "build_default",
    "compute_metrics",
    "convert_encoder",
    "default_settings",
    "embed_parts",
    "embed_rows",
    "fields_of_posts",
    "fine_tune",
    "fit_calibration",
    "fit_words",
    "focal_loss",
    "freeze_encoder",
    "freeze_layers",
    "grow_experts",
    "hold_out",
    "label_names",
    "load_parts",
    "load_table",
    "split_timelines",
    "to_rows",
    "to_timelines",
    "write_card",
]
