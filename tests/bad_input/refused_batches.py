"""Lists rows, batches, posts and timelines that collators, models, tokenizers and the pipeline refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from helpers import TIMES, VOCABULARY, dated_config, tiny_batch, tiny_encoder, tiny_model
from transformers import BertTokenizer, pipeline

from modeling_tempoformer import (
    BertWithTemporalAttention,
    StreamCollator,
    TemporalBertTokenizer,
)
from semantic_change.temporal_mlm_collator import TemporalMlmCollator
from tempoformer_live.memory import StreamMemory
from tempoformer_live.stepping import Stepper


PLAIN = BertTokenizer(vocab=VOCABULARY)


def temporal_tokenizer(**settings) -> TemporalBertTokenizer:
    return TemporalBertTokenizer(vocab=VOCABULARY, **{"times": TIMES, **settings})


ROW = {
    "input_ids": [[2, 5, 3], [2, 6, 6, 3], [2, 3]],
    "timestamps": [1.7e9, 1.7e9 + 1, 1.7e9 + 61],
    "num_context": 1,
    "labels": [0, 1],
}


def collate(*rows: dict, **settings) -> Callable[[Path], Any]:
    return lambda folder: StreamCollator(PLAIN, **{"window": 2, **settings})(list(rows))


def row(**change) -> Callable[[Path], Any]:
    """Collates a good row and a changed one. A value of `None` removes the column."""
    return collate(ROW, {name: value for name, value in {**ROW, **change}.items() if value is not None})


COLLATOR = {
    "no rows": (collate(), ""),
    "a post padded on the left": (
        collate({**ROW, "attention_mask": [[1, 1, 1], [0, 1, 1, 1], [1, 1]]}),
        "first token…right",
    ),
    "a post without tokens": (row(input_ids=[[2, 5, 3], [], [2, 3]]), "Row 1…post 1"),
    "a column that fewer rows have": (row(token_type_ids=[[0] * 3, [0] * 4, [0] * 2]), "Row 1…'token_type_ids'"),
    "fewer labels than posts": (row(labels=[0]), "Row 1…'num_context'…`remove_unused_columns=False`"),
    "a label that is no class id": (row(labels=[0, 0.5]), "Row 1…-100…0.5"),
    "vectors, where others have tokens": (row(input_ids=None, post_embeds=torch.zeros(3, 4)), "Row 1…'input_ids'"),
    "no times": (row(timestamps=None), "Row 1…'timestamps'…`remove_unused_columns=False`"),
    "times that nobody asked for": (collate(ROW, timed=False), "Row 0…'timestamps'…`timed=False`"),
    "times out of order": (row(timestamps=[9, 5, 6]), "Row 1…9.0…5.0"),
    "times that are rounded to 32 bits": (row(timestamps=torch.tensor(ROW["timestamps"])), "Row 1…1970"),
}


def batch(model: Callable = tiny_model, **change) -> Callable[[Path], Any]:
    """Runs a good batch with some tensors changed. A change is a function of the old tensor, or the new one."""

    def forward(folder: Path):
        good = tiny_batch()
        changed = {name: value(good[name]) if callable(value) else value for name, value in change.items()}
        return model()(**{**good, **changed})

    return forward


NO_TOKENS = {"input_ids": None, "attention_mask": None}
# These shapes would be read in another way otherwise.
FORWARD = {
    "no tokens": (batch(input_ids=None), "`input_ids`…`inputs_embeds`"),
    "streams of another number of rows": (
        batch(stream_index=lambda index: index[:1], elapsed=None, labels=None),
        "`stream_index`…2…1",
    ),
    "a window larger than the model's": (batch(lambda: tiny_model(window=3)), "4…`window`…3"),
    "vectors beside tokens": (
        batch(lambda: tiny_model(model_type="post_tempoformer"), post_embeds=torch.zeros(2, 6, 16)),
        "`input_ids`…`post_embeds`",
    ),
    "vectors of another encoder": (
        batch(lambda: tiny_model(model_type="post_tempoformer"), **NO_TOKENS, post_embeds=torch.zeros(2, 6, 8)),
        "`post_embeds`…16…8",
    ),
    "labels of another shape": (batch(labels=lambda labels: labels[:, :1]), "`labels`…6…1"),
}


def step(**change) -> Callable[[Path], Any]:
    """Takes a second step with some arguments changed."""

    def run(folder: Path):
        model = tiny_model()
        good = {"input_ids": torch.full((2, 2), 7), "timeline_ids": ["ann", "bob"], "timestamps": [1.0, 2.0]}
        memory = Stepper(model).step(**good).memory
        return Stepper(model).step(**{**good, "memory": memory, **change})

    return run


def broken_memory(folder: Path):
    """Reads back a memory that lacks a tensor."""
    tensors = Stepper(tiny_model()).step(torch.full((1, 2), 7), timeline_ids=["ann"]).memory.state_dict()
    del tensors["about"]
    StreamMemory.from_state_dict(tensors)


STEP = {
    "a token beyond the vocabulary": (step(input_ids=torch.tensor([[7, 7], [7, 60]])), "Post 1…'bob'…59…60"),
    "a longer post than the encoder reads": (step(input_ids=torch.full((2, 25), 7)), "25…24"),
    "a new post without tokens": (step(attention_mask=torch.tensor([[1, 1], [0, 0]])), "Post 1…'bob'"),
    "a new post padded on the left": (step(attention_mask=torch.tensor([[1, 1], [0, 1]])), "Post 1…`attention_mask`"),
    "a timeline id that is a number": (step(timeline_ids=["ann", 7]), "Post 1"),
    "a new time that is NaN": (step(timestamps=[1.0, float("nan")]), "Post 1…'bob'…nan"),
    "a new time in milliseconds": (step(timestamps=[1.0, 1.7e12]), "Post 1…'bob'…1700000000000.0"),
    "times in 32 bits": (step(timestamps=torch.tensor([1.0, 2.0])), "Post 0…'ann'…1970"),
    "a new time of another kind": (step(timestamps=["2024-05-01", "2024-05-02"]), "Post 0…'ann'…a date…a number"),
    "no times, where the timeline had some": (step(timestamps=None), "Post 0…'ann'"),
    "a memory that lacks a tensor": (broken_memory, "damaged"),
}


TEMPORAL = {
    "neither words nor their embeddings": (
        lambda folder: BertWithTemporalAttention(dated_config())(time_ids=torch.full((2, 3), 3)),
        "`input_ids`…`inputs_embeds`",
    ),
    "a time point that is a number": (lambda folder: temporal_tokenizer(times=[1815, 1990]), "1815"),
    "time points in one string": (lambda folder: temporal_tokenizer(times="1810-1860"), "`times`…'1810-1860'"),
    "a share of masked times that is none": (
        lambda folder: TemporalMlmCollator(temporal_tokenizer(), time_mlm_probability=2),
        "`time_mlm_probability`",
    ),
}


def classify(timelines: Any, **settings) -> Callable[[Path], Any]:
    """Calls the pipeline."""

    def run(folder: Path):
        model = tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(PLAIN)})
        pipe = pipeline("stream-classification", model=model, tokenizer=PLAIN)
        return list(pipe(timelines, **settings))

    return run


PIPELINE = {
    "a key that is nearly one": (
        classify({"text": ["sad"], "timestamps": [1]}),
        "Timeline 0…'timestamps'…'timestamp'",
    ),
    "a key in capitals": (classify({"text": ["sad"], " Speaker": ["ann"]}), "Timeline 0…' Speaker'…'speaker'"),
    "batches of no row": (classify({"text": ["sad"]}, batch_size=0), "`batch_size`…1…0"),
    "a post that is not text": (classify({"text": ["sad", None]}), "Timeline 0…post 1"),
    "half of a surrogate pair": (classify({"text": ["sad", "\ud83d"]}), "Timeline 0…post 1…'\\ud83d'"),
    "a time for a list of times": (classify({"text": ["sad"], "timestamp": 5}), "Timeline 0…'timestamp'"),
    "fewer times than texts of posts": (classify({"text": ["sad", "glad"], "timestamp": [1]}), "Timeline 0"),
    "a time that is none": (classify({"text": ["sad"], "timestamp": ["soon"]}), "Timeline 0…post 0…'soon'"),
    "a time in 32 bits": (
        classify({"text": ["sad", "glad"], "timestamp": [0.0, np.float32(60)]}),
        "Timeline 0, post 1…float32",
    ),
    "no time among times": (classify({"text": ["sad", "glad"], "timestamp": [1, None]}), "Timeline 0…post 1"),
    "rows of no targets": (classify({"text": ["sad"]}, targets_per_row=0), "`targets_per_row`"),
}
