"""Configurations of BERT and RoBERTa with temporal attention."""

from dataclasses import dataclass
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import BertConfig, RobertaConfig

from .checks_tempoformer import CheckedFields, positive


# The first ids of `time_ids`; the time points follow.
PADDING_TIME, MASK_TIME, UNKNOWN_TIME = range(3)
NUM_SPECIAL_TIMES = 3


@dataclass(kw_only=True)
class TemporalFields(CheckedFields):
    r"""The fields that temporal attention adds to an encoder's configuration; see [`TemporalBertConfig`]."""

    times: list[str] | tuple[str, ...] = ()
    temporal_attention: Literal["attention", "scaled", "none"] = "attention"
    temporal_residual: bool = False
    time_scaling: Literal["linear", "exponential", "documents"] = "linear"
    time_document_counts: list[int] | None = None
    prepend_time: bool = False
    time_initializer_range: float | int = positive(default=0.02)

    @property
    def num_time_ids(self) -> int:
        """The number of different `time_ids`."""
        return NUM_SPECIAL_TIMES + len(self.times)

    def validate_times(self):
        """Checks that time points are unique, and that scaling by documents has a count for each."""
        if len(set(self.times)) < len(self.times):
            raise ValueError(f"`times` must be unique, got {list(self.times)}.")
        if self.temporal_attention == "scaled" and self.time_scaling == "exponential" and len(self.times) > 64:
            raise ValueError(f"`time_scaling='exponential'` takes at most 64 `times`, got {len(self.times)}.")
        if self.temporal_attention == "scaled" and self.time_scaling == "documents":
            counts = self.time_document_counts
            if counts is None or len(counts) != len(self.times) or min(counts, default=0) < 0 or not sum(counts):
                raise ValueError(
                    f"`time_document_counts` must hold a count for each of {len(self.times)} times, got {counts}."
                )

    def save_pretrained(self, save_directory, **kwargs):
        """Saves the configuration, with the Auto classes that load from the folder."""
        name = self._model_name
        self.auto_map = {
            "AutoConfig": f"configuration_temporal_bert.{type(self).__name__}",
            "AutoModel": f"modeling_temporal_bert.{name}",
            "AutoModelForMaskedLM": f"modeling_temporal_bert.{name}ForMaskedLM",
            "AutoModelForSequenceClassification": f"modeling_temporal_bert.{name}ForSequenceClassification",
            "AutoModelForTokenClassification": f"modeling_temporal_bert.{name}ForTokenClassification",
        }
        super().save_pretrained(save_directory, **kwargs)


@strict
class TemporalBertConfig(TemporalFields, BertConfig):
    r"""
    Configuration of a [`BertWithTemporalAttention`] (Rosin and Radinsky, 2022): BERT's fields, and these.

    Args:
        times (`list[str]`, *optional*, defaults to `()`):
            The time points in order. In `time_ids`, 0 is padding, 1 mask, 2 unknown, and 3 the first time point.
        temporal_attention (`str`, *optional*, defaults to `"attention"`):
            `"attention"` multiplies queries by `T^T T / |T|` (the paper's formula), `"scaled"` multiplies them by a
            number for each time point (the paper's scaled baselines), `"none"` leaves them unchanged.
        temporal_residual (`bool`, *optional*, defaults to `False`):
            If True, queries are multiplied by `I + alpha T^T T / |T|` instead. Alpha is learned for each head and
            starts at 0, so that a plain checkpoint starts with its own outputs.
        time_scaling (`str`, *optional*, defaults to `"linear"`):
            With `"scaled"`: the number is the time point's index from 1 (`"linear"`), 2 to the power of its index,
            which counts from 0 (`"exponential"`), or its share of the documents (`"documents"`).
        time_document_counts (`list[int]`, *optional*):
            Documents of each time point, for `time_scaling="documents"`.
        prepend_time (`bool`, *optional*, defaults to `False`):
            If True, texts begin with a token of their time point (TempoBERT; Rosin, Guy and Radinsky, 2022), alone
            (`temporal_attention="none"`) or together with temporal attention. The tokenizer adds this token, which
            must be in the vocabulary.
        time_initializer_range (`float`, *optional*, defaults to 0.02):
            Standard deviation of new time embeddings.
        kwargs: The fields of [`BertConfig`].

    Raises a validation error that names the field if a value is out of range or contradicts another one;
    `from_pretrained` and `from_dict` raise it as a `ValueError`.
    """

    model_type = "temporal_bert"
    _model_name = "BertWithTemporalAttention"


@strict
class TemporalRobertaConfig(TemporalFields, RobertaConfig):
    r"""
    Configuration of a [`RobertaWithTemporalAttention`] (Rosin and Radinsky, 2022): RoBERTa's fields, and these.

    Args:
        times, temporal_attention, temporal_residual, time_scaling: See [`TemporalBertConfig`].
        time_document_counts, prepend_time, time_initializer_range: See [`TemporalBertConfig`].
        kwargs: The fields of [`RobertaConfig`].

    Raises a validation error that names the field if a value is out of range or contradicts another one;
    `from_pretrained` and `from_dict` raise it as a `ValueError`.
    """

    model_type = "temporal_roberta"
    _model_name = "RobertaWithTemporalAttention"


__all__ = ["TemporalBertConfig", "TemporalRobertaConfig"]
