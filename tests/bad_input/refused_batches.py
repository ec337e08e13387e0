"""Rows, batches, posts and timelines that collators, models, tokenizers and the pipeline refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from helpers import TIMES, VOCABULARY, tiny_batch, tiny_encoder, tiny_model
from transformers import BertTokenizer, pipeline

from modeling_tempoformer import (
    BertWithTemporalAttention,
    StreamCollator,
    StreamState,
    TemporalBertConfig,
    TemporalBertTokenizer,
)
from modeling_tempoformer.data.temporal_mlm_collator import TemporalMlmCollator


def plain_tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab=VOCABULARY)


def temporal_tokenizer(**settings) -> TemporalBertTokenizer:
    return TemporalBertTokenizer(vocab=VOCABULARY, **{"times": TIMES, **settings})


ROW = {
    "input_ids": [[2, 5, 3], [2, 6, 6, 3], [2, 3]],
    "timestamps": [1.7e9, 1.7e9 + 1, 1.7e9 + 61],
    "num_context": 1,
    "labels": [0, 1],
}


def row(**change) -> Callable[[Path], Any]:
    """A batch of a good row and a changed one; `None` takes a column away."""

    def collate(folder: Path):
        changed = {name: value for name, value in {**ROW, **change}.items() if value is not None}
        return StreamCollator(plain_tokenizer(), window=2)([ROW, changed])

    return collate


COLLATOR = {
    "no rows": (lambda folder: StreamCollator(plain_tokenizer(), window=2)([]), ""),
    "a post padded on the left": (
        lambda folder: StreamCollator(plain_tokenizer(), window=2)(
            [{**ROW, "attention_mask": [[1, 1, 1], [0, 1, 1, 1], [1, 1]]}]
        ),
        "first token…right",
    ),
    "a row without posts": (row(input_ids=[], timestamps=[], num_context=0, labels=[]), "Row 1"),
    "a post without tokens": (row(input_ids=[[2, 5, 3], [], [2, 3]]), "Row 1…post 1"),
    "a column that fewer posts have": (
        row(token_type_ids=[[0, 0, 0], [0, 0, 0, 0], [0, 0]]),
        "Row 1…'token_type_ids'",
    ),
    "fewer masks than tokens": (
        lambda folder: StreamCollator(plain_tokenizer(), window=2)(
            [{**ROW, "attention_mask": [[1, 1, 1], [1], [1, 1]]}]
        ),
        "Row 0…'attention_mask'…'input_ids'",
    ),
    "fewer labels than posts": (row(labels=[0]), "Row 1…'num_context'…`remove_unused_columns=False`"),
    "a label that is no class id": (row(labels=[0, 0.5]), "Row 1…-100…0.5"),
    "no labels, where others have": (row(labels=None), "Row 1…'labels'"),
    "vectors, where others have tokens": (row(input_ids=None, post_embeds=torch.zeros(3, 4)), "Row 1…'input_ids'"),
    "vectors beside tokens, where others have tokens": (row(post_embeds=torch.zeros(3, 4)), "Row 1…'post_embeds'"),
    "fewer vectors than labels": (
        lambda folder: StreamCollator(plain_tokenizer(), window=2)(
            [{**ROW, "post_embeds": torch.zeros(2, 4), "timestamps": [0, 1]}]
        ),
        "Row 0…2 labels for 2 posts",
    ),
    "more context than posts": (row(num_context=4, labels=[]), "Row 1…'num_context'"),
    "negative context": (row(num_context=-1, labels=[0] * 4), "Row 1…'num_context'…-1"),
    "no times": (row(timestamps=None), "Row 1…'timestamps'…`remove_unused_columns=False`"),
    "times, where the collator is told that there are none": (
        lambda folder: StreamCollator(plain_tokenizer(), window=2, timed=False)([ROW]),
        "Row 0…'timestamps'…`timed=False`",
    ),
    "fewer times than posts": (row(timestamps=[0, 1]), "Row 1"),
    "times out of order": (row(timestamps=[9, 5, 6]), "Row 1…9.0…5.0"),
    "times that are rounded to 32 bits": (row(timestamps=torch.tensor(ROW["timestamps"])), "Row 1…1970"),
    "a window that is not an integer": (
        lambda folder: StreamCollator(plain_tokenizer(), window=2.5),
        "`window`…2.5",
    ),
    "dated texts with fewer times than tokens": (
        lambda folder: TemporalMlmCollator(temporal_tokenizer())([{"input_ids": [2, 5, 3], "time_ids": [3, 3]}]),
        "`time_ids`",
    ),
    "a share of masked times that is none": (
        lambda folder: TemporalMlmCollator(temporal_tokenizer(), time_mlm_probability=2),
        "`time_mlm_probability`",
    ),
}


def batch(model: Callable = tiny_model, **change) -> Callable[[Path], Any]:
    """A forward pass of a good batch with some of its tensors changed, by functions of the old ones or to others."""

    def forward(folder: Path):
        good = tiny_batch()
        changed = {name: value(good[name]) if callable(value) else value for name, value in change.items()}
        return model()(**{**good, **changed})

    return forward


# Shapes that would otherwise be read in another way.
FORWARD = {
    "no tokens": (batch(input_ids=None), "`input_ids`…`inputs_embeds`"),
    "tokens of one post, not of rows of posts": (batch(input_ids=lambda ids: ids[0, 0]), "`input_ids`…(7,)"),
    "a mask of another shape": (batch(attention_mask=lambda mask: mask[..., :-1]), "`attention_mask`…7…6"),
    "token types of another shape": (batch(token_type_ids=torch.zeros(2, 6, 1)), "`token_type_ids`…7…1"),
    "calendar times for an encoder without": (batch(time_ids=torch.full((2, 6, 7), 3)), "`time_ids`…'bert'"),
    "streams of another number of rows": (
        batch(stream_index=lambda index: index[:1], elapsed=None, labels=None),
        "`stream_index`…2…1",
    ),
    "a window larger than the model's": (batch(lambda: tiny_model(window=3)), "4…`window`…3"),
    "more posts than the window, where no streams are given": (
        batch(stream_index=None, elapsed=None, labels=None),
        "6…`window`…4",
    ),
    "times of another shape": (batch(elapsed=lambda elapsed: elapsed[..., 0]), "`elapsed`"),
    "vectors beside tokens": (
        batch(lambda: tiny_model(model_type="post_tempoformer"), post_embeds=torch.zeros(2, 6, 16)),
        "`input_ids`…`post_embeds`",
    ),
    "vectors for a model that reads tokens": (
        batch(input_ids=None, attention_mask=None, post_embeds=torch.zeros(2, 6, 16)),
        "post_embeds",
    ),
    "vectors of another encoder": (
        batch(
            lambda: tiny_model(model_type="post_tempoformer"),
            input_ids=None,
            attention_mask=None,
            post_embeds=torch.zeros(2, 6, 8),
        ),
        "`post_embeds`…16…8",
    ),
    "a mask of tokens for vectors": (
        batch(lambda: tiny_model(model_type="post_tempoformer"), input_ids=None, post_embeds=torch.zeros(2, 6, 16)),
        "`attention_mask`…1…7",
    ),
    "labels of another shape": (batch(labels=lambda labels: labels[:, :1]), "`labels`…6…1"),
    "an argument that there is not": (batch(timestamps=torch.zeros(2, 6)), "timestamps", "TypeError"),
}


def step(**change) -> Callable[[Path], Any]:
    """A second step with some arguments changed."""

    def run(folder: Path):
        model = tiny_model()
        good = {"input_ids": torch.full((2, 2), 7), "timeline_ids": ["ann", "bob"], "timestamps": [1.0, 2.0]}
        state = model.step(**good).state
        return model.step(**{**good, "state": state, **change})

    return run


def state_of_another_model() -> StreamState:
    wide = tiny_model(encoder_config={**tiny_encoder(), "hidden_size": 32})
    return wide.step(torch.full((1, 2), 7), timeline_ids=["ann"], timestamps=[0.0]).state


def unknown_time_id(folder: Path):
    encoder = {**tiny_encoder(), "model_type": "temporal_bert", "times": TIMES}
    tiny_model(encoder_config=encoder).step(
        torch.full((1, 2), 7), time_ids=torch.full((1, 2), 5), timeline_ids=["ann"]
    )


def calendar_times_later(folder: Path):
    encoder = {**tiny_encoder(), "model_type": "temporal_bert", "times": TIMES, "temporal_attention": "none"}
    model, post = tiny_model(encoder_config=encoder), torch.full((1, 2), 7)
    state = model.step(post, timeline_ids=["ann"]).state
    model.step(post, time_ids=torch.full((1, 2), 3), timeline_ids=["ann"], state=state)


def broken_state(change: Callable[[dict], Any]) -> Callable[[Path], Any]:
    """Reads a state back of which a tensor is missing or cut."""

    def restore(folder: Path):
        state = tiny_model().step(torch.full((2, 2), 7), timeline_ids=["ann"] * 2, timestamps=[0.0, 1.0]).state
        tensors = state.state_dict()
        change(tensors)
        return StreamState.from_state_dict(tensors)

    return restore


STEP = {
    "tokens of rows of posts": (step(input_ids=torch.full((1, 2, 2), 7)), "`input_ids`"),
    "a new token beyond the vocabulary": (
        step(input_ids=torch.tensor([[7, 7], [7, 60]])),
        "Post 1…'bob'…`input_ids`…59…60…1",
    ),
    "a negative new token": (step(input_ids=torch.tensor([[7, 7], [-1, 7]])), "Post 1…'bob'…`input_ids`…0…-1"),
    "a longer post than the encoder reads": (step(input_ids=torch.full((2, 25), 7)), "25…24"),
    "a new post without tokens": (step(attention_mask=torch.tensor([[1, 1], [0, 0]])), "Post 1…'bob'"),
    "a new post padded on the left": (
        step(attention_mask=torch.tensor([[1, 1], [0, 1]])),
        "Post 1…'bob'…`attention_mask`…0",
    ),
    "a mask of another shape than the new posts": (step(attention_mask=torch.ones(2, 1)), "`attention_mask`"),
    "a time id that the encoder does not have": (unknown_time_id, "Post 0…'ann'…`time_ids`…4…5"),
    "fewer timelines than posts": (step(timeline_ids=["ann"]), ""),
    "a timeline id that is a number": (step(timeline_ids=["ann", 7]), "Post 1", "TypeError"),
    "fewer new times than posts": (step(timestamps=[1.0]), ""),
    "a new time that is NaN": (step(timestamps=[1.0, float("nan")]), "Post 1…'bob'…nan"),
    "a new time that is missing": (step(timestamps=[1.0, None]), "Post 1…'bob'…None"),
    "a new time that is a text": (step(timestamps=[1.0, "2024-05-01"]), "Post 1…'bob'…'2024-05-01'"),
    "a new time in milliseconds": (step(timestamps=[1.0, 1.7e12]), "Post 1…'bob'…1700000000000.0"),
    "times in 32 bits": (step(timestamps=torch.tensor([1.0, 2.0])), "`timestamps`…64", "TypeError"),
    "a single time in 32 bits": (step(timestamps=[1.0, torch.tensor(2.0)]), "Post 1…'bob'…1970"),
    "a single time of NumPy in 32 bits": (step(timestamps=[1.0, np.float32(2.0)]), "Post 1…'bob'…float32"),
    "no times, where the timeline had some": (step(timestamps=None), "Post 0…'ann'"),
    "calendar times, where the timeline had none": (calendar_times_later, "'ann'…`time_ids`"),
    "a late post": (step(timestamps=[0.5, 2.0]), "Post 0…'ann'…0.5", "LatePostError"),
    "a model that trains": (
        lambda folder: tiny_model().train().step(torch.full((1, 2), 7), timeline_ids=["ann"]),
        "`step`…`model.eval()`",
    ),
    "a state of another model": (lambda folder: step(state=state_of_another_model())(folder), "state…other weights"),
    "a state that lacks a tensor": (broken_state(lambda tensors: tensors.pop("num_posts")), "num_posts"),
    "a state that lacks the lengths of its posts": (
        broken_state(lambda tensors: tensors.pop("lengths.input_ids")),
        "0…'lengths.input_ids'…2",
    ),
    "a state with fewer times than posts": (
        broken_state(lambda tensors: tensors.update({"times": torch.ones(1)})),
        "1…'times'…2",
    ),
}


def texts(**change) -> Callable[[Path], Any]:
    """A forward pass of two texts with some of its tensors changed."""

    def forward(folder: Path):
        torch.manual_seed(0)
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        model = BertWithTemporalAttention(TemporalBertConfig(times=TIMES, vocab_size=7, **sizes))
        good = {"input_ids": torch.full((2, 3), 5), "time_ids": torch.full((2, 3), 3)}
        return model(**{**good, **change})

    return forward


TEMPORAL = {
    "no time ids": (texts(time_ids=None), "`time_ids`…`temporal_attention='attention'`"),
    "time ids of another shape": (texts(time_ids=torch.full((2, 1), 3)), "`time_ids`…3…1"),
    "neither words nor their embeddings": (texts(input_ids=None), "`input_ids`…`inputs_embeds`"),
}

TOKENIZER = {
    "no time of a text": (
        lambda folder: temporal_tokenizer(unknown_times="error")(["sad"]),
        "1810…1860…1960",
        "UnknownTimeError",
    ),
    "a missing time of one text": (
        lambda folder: temporal_tokenizer()(["sad", "glad"], time=[1815, None]),
        "1810…1860…1960",
        "UnknownTimeError",
    ),
    "a time outside all time points": (
        lambda folder: temporal_tokenizer()(["sad"], time=1900),
        "1900…1810…1860",
        "UnknownTimeError",
    ),
    "seconds for a date": (
        lambda folder: temporal_tokenizer()(["sad"], time=1714557600),
        "1714557600…1810…1860",
        "UnknownTimeError",
    ),
    "fewer times than texts": (lambda folder: temporal_tokenizer()(["sad", "glad"], time=[1815]), ""),
    "a time point twice": (lambda folder: temporal_tokenizer(times=["1815", "1815"]), "'1815'"),
    "time points that overlap": (lambda folder: temporal_tokenizer(times=["1810-1860", "1860"]), "'1810-1860'…'1860'"),
    "a time point that is a number": (lambda folder: temporal_tokenizer(times=[1815, 1990]), "1815"),
    "time points in one string": (lambda folder: temporal_tokenizer(times="1810-1860"), "`times`…'1810-1860'"),
    "another granularity": (lambda folder: temporal_tokenizer(time_granularity="week"), "`granularity`…'week'"),
    "another way with unknown times": (
        lambda folder: temporal_tokenizer(unknown_times="skip"),
        "`unknown_times`…'error'…'unknown'…None",
    ),
}


def classify(timelines: Any, **settings) -> Callable[[Path], Any]:
    """Calls the pipeline."""

    def run(folder: Path):
        tokenizer = plain_tokenizer()
        model = tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)})
        pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
        return list(pipe(timelines, **settings))

    return run


PIPELINE = {
    "a text": (classify("sad today"), "'text'…'sad today'"),
    "a number": (classify(5), "'text'"),
    "a timeline that is no dict": (classify([["sad", "glad"]]), "Timeline 0…'text'…'sad'"),
    "a text for a list of texts": (classify({"text": "sad"}), "Timeline 0…'text'…'sad'"),
    "an unknown key": (classify({"text": ["sad"], "timestamps": [1]}), "Timeline 0"),
    "a post that is not text": (classify({"text": ["sad", None]}), "Timeline 0…post 1"),
    "half of a surrogate pair": (classify({"text": ["sad", "\ud83d"]}), "Timeline 0…post 1…'\\ud83d'"),
    "a time for a list of times": (classify({"text": ["sad"], "timestamp": 5}), "Timeline 0…'timestamp'"),
    "fewer times than texts of posts": (classify({"text": ["sad", "glad"], "timestamp": [1]}), "Timeline 0"),
    "a post with a time that is none": (
        classify({"text": ["sad"], "timestamp": ["soon"]}),
        "Timeline 0…post 0…'soon'",
    ),
    "a post in milliseconds": (
        classify({"text": ["sad"], "timestamp": [1714557600000]}),
        "Timeline 0…post 0…1714557600000",
    ),
    "a number too large for a float": (classify({"text": ["sad"], "timestamp": [10**400]}), "Timeline 0…post 0…10"),
    "a post without time among others": (
        classify({"text": ["sad", "glad"], "timestamp": [1, None]}),
        "Timeline 0…post 1",
    ),
    "batches of no rows": (classify({"text": ["sad"]}, batch_size=0), "`batch_size`"),
    "rows of no targets": (classify({"text": ["sad"]}, targets_per_row=0), "`targets_per_row`"),
    "no labels asked for": (classify({"text": ["sad"]}, top_k=0), "`top_k`"),
    "calibration of a model that has none": (
        classify({"text": ["sad"]}, calibrated=True),
        "`calibrated=True`…`calibration`",
    ),
}
