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

from .checks_tempoformer import longest_input
from .configuration_post_tempoformer import PostTempoFormerConfig
from .configuration_streams_tempoformer import StreamFields
from .configuration_tempoformer import TempoFormerConfig
from .configuration_temporal_bert import TemporalBertConfig, TemporalRobertaConfig
from .data_collator_tempoformer import StreamCollator
from .decisions_tempoformer import check_finite, class_names, decide, read_answers
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
from .names_tempoformer import read_id, read_name
from .onnx_encoder_tempoformer import OnnxEncoder  # noqa: F401
from .pipeline_tempoformer import StreamClassificationPipeline
from .streams_tempoformer import keep_last, lay_out_streams, posts_before, states_before
from .time_points_temporal_bert import TimePoints, UnknownTimeError, name_time, read_date, read_years
from .timeline_tempoformer import (
    BadValue,
    Post,
    Timeline,
    number_states,
    read_message,
    tokenize_posts,
    warn_of_speakers,
)
from .times_tempoformer import ReadTime, TimeColumn, are_since_start, read_time
from .tokenization_temporal_bert import TemporalBertTokenizer, TemporalRobertaTokenizer


if TYPE_CHECKING:
    from .cards.model_cards import CardContent, write_card
    from .evaluation.alarm_costs import score_costs
    from .evaluation.alarm_goals import AlarmGoal
    from .evaluation.alarms import check_cases, measure_alarms
    from .evaluation.calibration import fit_calibration
    from .evaluation.metrics import compute_metrics
    from .evaluation.prediction_table import (
        is_prediction_column,
        prediction_rows,
        read_held_out,
        read_predictions,
        write_predictions,
    )
    from .evaluation.predictions import attach_logits, decide_posts
    from .evaluation.report import describe_test
    from .evaluation.risk_control import bound_words, exceeds_risk, find_cases
    from .posts.agreement import krippendorff_alpha
    from .posts.metadata import unit_of
    from .posts.model_fields import fields_of_posts
    from .posts.post_errors import PostError
    from .posts.reading import make_timelines
    from .posts.remembered_columns import recall_columns
    from .posts.rows import to_rows
    from .posts.spellings import check_labels
    from .posts.splits import hold_out, recall_parts, split_timelines
    from .posts.tables import load_table, read_tables
    from .posts.timelines import UnknownPeople, label_names, read_posts, to_timelines
    from .training.encoder_backends import convert_encoder, export_encoder
    from .training.experts import GrowExperts, grow_experts
    from .training.fine_tuning import fine_tune
    from .training.frozen_encoder import embed_rows, freeze_encoder, freeze_layers
    from .training.hub_trainer import HubTrainer, HubTrainingArguments
    from .training.resuming import clear_results, train_or_resume
    from .training.stock_trainer import Parts, build_default, default_settings, embed_parts, load_parts
    from .training.word_fitting import fit_words
    from .view.timelines import load_pipeline

__version__ = "0.3.0"

# These need Datasets, scikit-learn or matplotlib, which take seconds to import: they are imported at their first use.
LAZY = {
    "AlarmGoal": ".evaluation.alarm_goals",
    "CardContent": ".cards.model_cards",
    "GrowExperts": ".training.experts",
    "HubTrainer": ".training.hub_trainer",
    "HubTrainingArguments": ".training.hub_trainer",
    "Parts": ".training.stock_trainer",
    "PostError": ".posts.post_errors",
    "UnknownPeople": ".posts.timelines",
    "attach_logits": ".evaluation.predictions",
    "bound_words": ".evaluation.risk_control",
    "build_default": ".training.stock_trainer",
    "check_cases": ".evaluation.alarms",
    "check_labels": ".posts.spellings",
    "clear_results": ".training.resuming",
    "compute_metrics": ".evaluation.metrics",
    "convert_encoder": ".training.encoder_backends",
    "decide_posts": ".evaluation.predictions",
    "default_settings": ".training.stock_trainer",
    "describe_test": ".evaluation.report",
    "embed_parts": ".training.stock_trainer",
    "embed_rows": ".training.frozen_encoder",
    "exceeds_risk": ".evaluation.risk_control",
    "export_encoder": ".training.encoder_backends",
    "fields_of_posts": ".posts.model_fields",
    "find_cases": ".evaluation.risk_control",
    "fine_tune": ".training.fine_tuning",
    "fit_calibration": ".evaluation.calibration",
    "fit_words": ".training.word_fitting",
    "freeze_encoder": ".training.frozen_encoder",
    "freeze_layers": ".training.frozen_encoder",
    "grow_experts": ".training.experts",
    "hold_out": ".posts.splits",
    "is_prediction_column": ".evaluation.prediction_table",
    "krippendorff_alpha": ".posts.agreement",
    "label_names": ".posts.timelines",
    "load_parts": ".training.stock_trainer",
    "load_pipeline": ".view.timelines",
    "load_table": ".posts.tables",
    "make_timelines": ".posts.reading",
    "measure_alarms": ".evaluation.alarms",
    "prediction_rows": ".evaluation.prediction_table",
    "read_held_out": ".evaluation.prediction_table",
    "read_posts": ".posts.timelines",
    "read_predictions": ".evaluation.prediction_table",
    "read_tables": ".posts.tables",
    "recall_columns": ".posts.remembered_columns",
    "recall_parts": ".posts.splits",
    "score_costs": ".evaluation.alarm_costs",
    "split_timelines": ".posts.splits",
    "to_rows": ".posts.rows",
    "to_timelines": ".posts.timelines",
    "train_or_resume": ".training.resuming",
    "unit_of": ".posts.metadata",
    "write_card": ".cards.model_cards",
    "write_predictions": ".evaluation.prediction_table",
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
    "AlarmGoal",
    "BadValue",
    "BertWithTemporalAttention",
    "BertWithTemporalAttentionForMaskedLM",
    "BertWithTemporalAttentionForSequenceClassification",
    "BertWithTemporalAttentionForTokenClassification",
    "CardContent",
    "GrowExperts",
    "HubTrainer",
    "HubTrainingArguments",
    "Parts",
    "Post",
    "PostError",
    "PostTempoFormerConfig",
    "PostTempoFormerForStreamClassification",
    "PostTempoFormerModel",
    "PostTempoFormerPreTrainedModel",
    "ReadTime",
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
    "TimeColumn",
    "TimePoints",
    "Timeline",
    "UnknownPeople",
    "UnknownTimeError",
    "are_since_start",
    "attach_logits",
    "bound_words",
    "build_default",
    "check_cases",
    "check_finite",
    "check_labels",
    "class_names",
    "clear_results",
    "compute_metrics",
    "convert_encoder",
    "decide",
    "decide_posts",
    "default_settings",
    "describe_test",
    "embed_parts",
    "embed_rows",
    "exceeds_risk",
    "export_encoder",
    "fields_of_posts",
    "find_cases",
    "fine_tune",
    "fit_calibration",
    "fit_words",
    "focal_loss",
    "freeze_encoder",
    "freeze_layers",
    "grow_experts",
    "hold_out",
    "is_prediction_column",
    "keep_last",
    "krippendorff_alpha",
    "label_names",
    "lay_out_streams",
    "load_parts",
    "load_pipeline",
    "load_table",
    "longest_input",
    "make_timelines",
    "measure_alarms",
    "name_time",
    "number_states",
    "posts_before",
    "prediction_rows",
    "read_answers",
    "read_date",
    "read_held_out",
    "read_id",
    "read_message",
    "read_name",
    "read_posts",
    "read_predictions",
    "read_tables",
    "read_time",
    "read_years",
    "recall_columns",
    "recall_parts",
    "score_costs",
    "split_timelines",
    "states_before",
    "to_rows",
    "to_timelines",
    "tokenize_posts",
    "train_or_resume",
    "unit_of",
    "warn_of_speakers",
    "write_card",
    "write_predictions",
]
