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
    r"""
    Configuration of a [`TemporalPostTempoFormerModel`] or [`TemporalPostTempoFormerForStreamClassification`].

    Args:
        encoder_config ([`TemporalBertConfig`], [`TemporalRobertaConfig`] or `dict`):
            Configuration of the encoder that reads the posts.
        window, post_pooling, num_stream_layers, num_members: As in [`PostTempoFormerConfig`].
        num_trees, tree_weights: As in [`PostTempoFormerConfig`].
        stream_hidden_size, stream_dropout: As in [`PostTempoFormerConfig`].
        stream_attention, stream_position_initializer_range, rope_theta: As in [`PostTempoFormerConfig`].
        head_hidden_sizes, head_dropout, focal_gamma, class_weights: As in [`PostTempoFormerConfig`].
        calibration, timed, problem_type: As in [`PostTempoFormerConfig`].
    """

    model_type = "temporal_post_tempoformer"
    own_encoders = {config.model_type: config for config in ENCODERS}
    auto_classes = {
        "AutoConfig": "modeling_temporal_post_tempoformer.TemporalPostTempoFormerConfig",
        "AutoModel": "modeling_temporal_post_tempoformer.TemporalPostTempoFormerModel",
        "AutoModelForSequenceClassification": "modeling_temporal_post_tempoformer."
        "TemporalPostTempoFormerForStreamClassification",
    }


class TemporalPostTempoFormerModel(PostTempoFormerModel):
    r"""
    [`PostTempoFormerModel`] whose encoder reads the calendar time of posts (`time_ids`), too.

    Args:
        config ([`TemporalPostTempoFormerConfig`]): Its `encoder_config` names the encoder.
    """

    config: TemporalPostTempoFormerConfig
    own_encoders = {config.model_type: encoder for config, encoder in ENCODERS.items()}


class TemporalPostTempoFormerForStreamClassification(PostTempoFormerForStreamClassification):
    r"""
    [`PostTempoFormerForStreamClassification`] over a [`TemporalPostTempoFormerModel`].

    Args:
        config ([`TemporalPostTempoFormerConfig`]): `num_labels` (or `id2label` with `label2id`) sets the classes.
    """

    config: TemporalPostTempoFormerConfig
    own_encoders = TemporalPostTempoFormerModel.own_encoders
    base_class = TemporalPostTempoFormerModel


__all__ = [
    "TemporalPostTempoFormerConfig",
    "TemporalPostTempoFormerForStreamClassification",
    "TemporalPostTempoFormerModel",
]
