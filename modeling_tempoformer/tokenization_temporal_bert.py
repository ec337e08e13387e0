"""Tokenizers that take the time of texts, for BERT and RoBERTa with temporal attention."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

import torch
from torch import nn
from transformers import AddedToken, BatchEncoding, BertTokenizer, PreTrainedModel, RobertaTokenizer
from transformers.tokenization_utils_tokenizers import processors
from transformers.utils import logging

from .configuration_temporal_bert import MASK_TIME, NUM_SPECIAL_TIMES, PADDING_TIME, UNKNOWN_TIME
from .time_points_temporal_bert import TimePoints, UnknownTimeError


logger = logging.get_logger(__name__)

# Stands for the time of a text if only its tokens are needed.
NO_TIME = object()


@dataclass
class TimedEncoding:
    """The library's encoding of a text, with the time token in place of the mask token at `position`."""

    encoding: Any
    position: int
    token: str
    token_id: int

    def __getattr__(self, name: str) -> Any:
        # Copying looks up special methods before the object has an encoding.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.encoding, name)

    def __len__(self) -> int:
        return len(self.encoding)

    @property
    def tokens(self) -> list[str]:
        return self.replace(self.encoding.tokens, self.token)

    @property
    def ids(self) -> list[int]:
        return self.replace(self.encoding.ids, self.token_id)

    def replace(self, values: list, value: Any) -> list:
        return [*values[: self.position], value, *values[self.position + 1 :]]


class TemporalTokenizer:
    """Adds time to a tokenizer; see [`TemporalBertTokenizer`]."""

    # The `time_ids` of padding, of a mask and of an unknown time
    padding_time_id, mask_time_id, unknown_time_id = PADDING_TIME, MASK_TIME, UNKNOWN_TIME
    # If True, the token of a word includes the space before it.
    _spaces_in_words = False
    # The second text of a pair with its special tokens, in the form of `TemplateProcessing`.
    _second_text = "$B:1 {sep}:1"

    def __init__(
        self,
        *args,
        times: list[str] | tuple[str, ...] = (),
        time_granularity: str | None = None,
        unknown_times: str | None = None,
        prepend_time: bool = False,
        mask_token_time: bool = False,
        **kwargs,
    ):
        if unknown_times not in (None, "error", "unknown"):
            raise ValueError(f"`unknown_times` must be 'error', 'unknown' or None, got {unknown_times!r}.")
        if isinstance(times, str):
            raise ValueError(f"`times` must be a list of names, got the string {times!r}.")
        self.time_points = TimePoints(list(times), time_granularity)
        self.unknown_times, self.prepend_time, self.mask_token_time = unknown_times, prepend_time, mask_token_time
        super().__init__(
            *args,
            times=list(times),
            time_granularity=time_granularity,
            unknown_times=unknown_times,
            prepend_time=prepend_time,
            mask_token_time=mask_token_time,
            **kwargs,
        )
        if prepend_time:
            tokens = [AddedToken(f"[{name}]", special=True, normalized=False) for name in self.times]
            self.add_tokens(tokens, special_tokens=True)
            self._tokenizer.post_processor = self._post_processor()

    def _post_processor(self) -> Any:
        """Makes the processor that adds the special tokens, with a mask token in place of the time token."""
        text = f"{self.cls_token} {self.mask_token} $A {self.sep_token}"
        return processors.TemplateProcessing(
            single=text,
            pair=f"{text} {self._second_text.format(sep=self.sep_token)}",
            special_tokens=[(token, self.convert_tokens_to_ids(token)) for token in text.split() if token != "$A"],
        )

    @property
    def times(self) -> list[str]:
        """The time points in order."""
        return self.time_points.names

    @property
    def time_token_ids(self) -> list[int]:
        """The token id of each time point, in order; empty without `prepend_time`."""
        return self.convert_tokens_to_ids([f"[{name}]" for name in self.times]) if self.prepend_time else []

    def time_id(self, time: Any) -> int:
        """
        Returns the id of a time in `time_ids`.

        Args:
            time: A time point's name or a date, as a call takes it; see [`TimePoints.find`].

        Returns:
            `int`: 3 for the first of `times`, and so on. A time that is missing or in none of `times` raises an
            [`UnknownTimeError`], or is 2 with `unknown_times="unknown"`.
        """
        if time is NO_TIME:
            return UNKNOWN_TIME
        try:
            return NUM_SPECIAL_TIMES + self.times.index(self.time_points.find(time))
        except UnknownTimeError:
            if self.unknown_times == "unknown":
                return UNKNOWN_TIME
            raise

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False, **kwargs) -> list[str]:
        """Returns the tokens of a text, which do not depend on its time."""
        return super().tokenize(text, pair, add_special_tokens, **{"time": NO_TIME, **kwargs})

    def _encode_plus(
        self, text, text_pair=None, time: Any = None, return_tensors: str | None = None, **kwargs
    ) -> BatchEncoding:
        if time is None and self.unknown_times is None:
            logger.warning_once(
                "Texts without `time=` have an unknown time, so they get plain attention. Give the time of each text, "
                "or load the tokenizer with `unknown_times='error'` to refuse texts without one."
            )
            time = NO_TIME
        encoding = super()._encode_plus(text, text_pair, **kwargs)
        first = text[0] if len(text) and kwargs.get("is_split_into_words") else text
        is_batch = isinstance(first, (list, tuple))
        is_flat = not is_batch and not kwargs.get("return_overflowing_tokens")
        count = len(text) if is_batch else 1
        is_single = isinstance(time, (str, date)) or not isinstance(time, Iterable)
        times = [time] * count if is_single else list(time)
        if len(times) != count:
            raise ValueError(f"There are {len(times)} times for {count} texts.")
        text_time_ids = [self.time_id(value) for value in times]
        texts = encoding.get("overflow_to_sample_mapping", range(count))
        input_ids = [encoding["input_ids"]] if is_flat else encoding["input_ids"]
        time_tokens, time_ids = self.time_token_ids, []
        for index, (row, tokens, text_index) in enumerate(zip(encoding.encodings, input_ids, texts, strict=True)):
            time_id = text_time_ids[text_index]
            if self.prepend_time and kwargs.get("add_special_tokens", True) and time_id != UNKNOWN_TIME:
                position, time_token = row.attention_mask.index(1) + 1, time_tokens[time_id - NUM_SPECIAL_TIMES]
                tokens[position] = time_token
                name = self.convert_ids_to_tokens(time_token)
                encoding.encodings[index] = TimedEncoding(row, position, name, time_token)
            masks_have_time = self.mask_token_time and time_id != UNKNOWN_TIME
            times_of_masks = {self.mask_token_id: MASK_TIME} if masks_have_time else {}
            time_ids.append(
                [
                    times_of_masks.get(token, time_id) if is_real else PADDING_TIME
                    for token, is_real in zip(tokens, row.attention_mask, strict=True)
                ]
            )
        encoding["time_ids"] = time_ids[0] if is_flat else time_ids
        return encoding.convert_to_tensors(return_tensors, prepend_batch_axis=is_flat)

    def _pad(self, encoded_inputs, *args, padding_side: str | None = None, **kwargs) -> dict:
        padded = super()._pad(encoded_inputs, *args, padding_side=padding_side, **kwargs)
        if "time_ids" in padded:
            times = list(padded["time_ids"])
            padding = [PADDING_TIME] * (len(padded["input_ids"]) - len(times))
            is_left = (padding_side or self.padding_side) == "left"
            padded["time_ids"] = padding + times if is_left else times + padding
        return padded

    @torch.no_grad()
    def add_target_words(self, words: list[str], model: PreTrainedModel) -> list[str]:
        """
        Adds words as single tokens to the vocabulary, and their embeddings to `model`. A new embedding is the mean of
        the embeddings of the word's old pieces, or random if the vocabulary had none of them.

        Args:
            words (`list[str]`): The words; one that is a single token already stays as it is.
            model ([`PreTrainedModel`]): The model, whose embeddings change in place.

        Returns:
            `list[str]`: The words that were added. Raises a `ValueError` for an empty word or one with spaces.
        """
        pieces = {}
        for word in words:
            if word != word.strip() or len(word.split()) != 1:
                raise ValueError(f"A target word must be one word, got {word!r}.")
            ids = self.convert_tokens_to_ids(self.tokenize(f" {word}"))
            if len(ids) > 1 or self.unk_token_id in ids:
                pieces[word] = [piece for piece in ids if piece != self.unk_token_id]
        self.add_tokens(
            [AddedToken(word, single_word=True, lstrip=self._spaces_in_words, normalized=True) for word in pieces]
        )
        vectors: nn.Embedding = model.get_input_embeddings()
        if len(self) > vectors.num_embeddings:
            vectors = model.resize_token_embeddings(len(self), mean_resizing=False)
        for word, ids in pieces.items():
            if ids:
                vectors.weight[self.convert_tokens_to_ids(word)] = vectors.weight[ids].mean(0)
        return list(pieces)


class TemporalBertTokenizer(TemporalTokenizer, BertTokenizer):
    r"""
    BERT's tokenizer with time: calls take `time=` with the text, and return `time_ids` with `input_ids`, for a
    [`BertWithTemporalAttention`] (Rosin and Radinsky, 2022).

    Args:
        times (`list[str]`, *optional*, defaults to `()`):
            The time points in order, as in the model's configuration. Names such as `"1810-1860"` cover years and
            dates; see [`TimePoints`].
        time_granularity (`str`, *optional*):
            `"century"`, `"decade"`, `"year"`, `"month"` or `"day"`: the period that each name in `times` stands for.
        unknown_times (`str`, *optional*):
            Handling of texts of unknown time. By default a call without `time=` uses the id of unknown times and warns
            once, because the library's pipelines give no time; a given time that is missing (None in a list, NaN, "")
            or in none of `times` raises an `UnknownTimeError` that lists the time points. `"error"` also refuses a
            call without `time=`; `"unknown"` uses the id of unknown times in all these cases.
        prepend_time (`bool`, *optional*, defaults to `False`):
            If True, each text begins with a token of its time point (TempoBERT; Rosin, Guy and Radinsky, 2022), or
            with the mask token if its time is unknown. The model's vocabulary must have these tokens:
            `model.resize_token_embeddings(len(tokenizer))`.
        mask_token_time (`bool`, *optional*, defaults to `False`):
            If True, masked tokens have the time id of masks instead of their text's time id (Rosin and Radinsky, 2022,
            footnote 3).
        kwargs: Arguments of BERT's tokenizer.

    `tokenizer(text, time=...)` takes one time for all texts, or a list with a time for each text: a time point's name,
    a year, an ISO-8601 date, a date such as `"18.06.1815"`, a `date`, a `datetime`, or seconds since 1970 (numbers of
    nine digits or more). `time_ids` has the shape of `input_ids`: 0 is padding, 1 mask, 2 unknown, and 3 the first of
    `times`. Raises a `ValueError` if the numbers of times and texts differ.
    """

    model_input_names = [*BertTokenizer.model_input_names, "time_ids"]


class TemporalRobertaTokenizer(TemporalTokenizer, RobertaTokenizer):
    r"""
    RoBERTa's tokenizer with time: calls take `time=` with the text, and return `time_ids` with `input_ids`, for a
    [`RobertaWithTemporalAttention`] (Rosin and Radinsky, 2022).

    Args:
        times, time_granularity, unknown_times, prepend_time, mask_token_time: See [`TemporalBertTokenizer`].
        kwargs: Arguments of RoBERTa's tokenizer.

    It is called as [`TemporalBertTokenizer`] is.
    """

    model_input_names = [*RobertaTokenizer.model_input_names, "time_ids"]
    _spaces_in_words = True
    _second_text = "{sep} $B {sep}"

    def _post_processor(self) -> Any:
        offsets = processors.ByteLevel(trim_offsets=self.trim_offsets)
        return processors.Sequence([offsets, super()._post_processor()])


__all__ = ["TemporalBertTokenizer", "TemporalRobertaTokenizer"]
