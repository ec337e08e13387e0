"""Timelines to rows."""

import logging

import pytest
import torch
from datasets import Dataset
from helpers import VOCABULARY, assert_same, tiny_reader
from transformers import BertTokenizer, pipeline

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.timelines import to_timelines


CLS, SEP, SAD, GLAD = (VOCABULARY[word] for word in ("[CLS]", "[SEP]", "sad", "glad"))
POSTS = [
    {"timeline_id": "a", "timestamp": "60", "text": "sad", "label": "IS"},
    {"timeline_id": "a", "timestamp": "30", "text": "glad", "label": None},
    {"timeline_id": "a", "timestamp": "60", "text": "sad sad glad", "label": "O"},
    {"timeline_id": "b", "timestamp": "5", "text": "", "label": "O"},
]


@pytest.fixture
def tokenizer():
    return BertTokenizer(vocab=VOCABULARY)


def test_rows_hold_every_target_once_with_its_context(tokenizer):
    timelines = to_timelines(Dataset.from_list(POSTS), ["IS", "O"])
    rows = list(to_rows(timelines, tokenizer, window=2, targets_per_row=2, max_seq_length=4))
    assert [row["post_ids"] for row in rows] == [["1", "0"], ["2"], ["3"]]
    assert [row["num_context"] for row in rows] == [0, 1, 0]
    assert rows[1]["input_ids"] == [[CLS, SAD, SEP], [CLS, SAD, SAD, SEP]] and rows[1]["timestamps"] == [60.0, 60.0]
    assert rows[2]["input_ids"] == [[CLS, SEP]]
    training = list(to_rows(timelines, tokenizer, window=2, targets_per_row=2, only_labelled=True))
    assert [row["labels"] for row in training] == [[None, 0], [1], [1]]


def test_posts_that_are_cut_are_counted(tokenizer, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    timelines = to_timelines(Dataset.from_list(POSTS), ["IS", "O"])
    to_rows(timelines, tokenizer, window=2, max_seq_length=4)
    assert "1 posts to 4 tokens" in caplog.text


def test_a_post_of_100_000_tokens_is_cut_and_the_rest_of_its_timeline_stays():
    model, tokenizer = tiny_reader()
    long = "sad " * 99_998
    pipe = pipeline("stream-classification", model=model, tokenizer=tokenizer)
    expected = pipe({"text": ["glad", "sad " * 22, "so"]})
    assert_same(pipe({"text": ["glad", long, "so"]}), expected)
    posts = Dataset.from_list([{"timeline_id": "ann", "text": text} for text in ("glad", long, "so")])
    rows = to_rows(to_timelines(posts), tokenizer, window=4, max_seq_length=24)
    assert [len(ids) for ids in rows[0]["input_ids"]] == [3, 24, 3]
    with torch.no_grad():
        logits = model(**StreamCollator(tokenizer, 4, timed=False)(list(rows))).logits[0]
    scores = logits.softmax(-1).amax(-1).tolist()
    assert scores == pytest.approx([post["score"] for post in expected], abs=1e-5)
