"""Checks the sequences of a stock classifier: a post, or a post and its history."""

import pytest
from datasets import Dataset
from helpers import VOCABULARY, make_timeline
from transformers import BertTokenizer

from modeling_tempoformer.timeline_tempoformer import Timeline
from research.baselines.concatenated import to_sequences


pytestmark = pytest.mark.slow


@pytest.fixture
def tokenizer() -> BertTokenizer:
    return BertTokenizer(vocab=VOCABULARY, model_max_length=64)


@pytest.fixture
def timelines() -> list[Timeline]:
    first = make_timeline([0, -100, 1], "a", ["the tree", "air", "the plane flew"])
    return [first, make_timeline([1], "b", ["flew"])]


def posts_of(sequences: Dataset) -> list[tuple[int, int]]:
    """Returns the timeline of each sequence, and the position of its post."""
    return list(zip(sequences["timeline"], sequences["num_before"], strict=True))


def decoded(sequences: Dataset, tokenizer) -> list[str]:
    return [tokenizer.decode(tokens) for tokens in sequences["input_ids"]]


def test_history_is_the_second_text_of_a_pair_oldest_first(timelines, tokenizer):
    alone = to_sequences(timelines, tokenizer, window=1)
    texts = ("the tree", "air", "the plane flew", "flew")
    assert decoded(alone, tokenizer) == [f"[CLS] {text} [SEP]" for text in texts]
    assert alone["labels"] == [0, -100, 1, 1] and posts_of(alone) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    sequences = to_sequences(timelines, tokenizer, window=3, only_labelled=True)
    assert posts_of(sequences) == [(0, 0), (0, 2), (1, 0)]
    assert decoded(sequences, tokenizer) == [
        "[CLS] the tree [SEP]",
        "[CLS] the plane flew [SEP] the tree [SEP] air [SEP]",
        "[CLS] flew [SEP]",
    ]
    assert sequences["token_type_ids"][1] == [0] * 5 + [1] * 5
    shorter = to_sequences(timelines, tokenizer, window=2)
    assert decoded(shorter, tokenizer)[2] == "[CLS] the plane flew [SEP] air [SEP]"


def test_the_oldest_tokens_of_a_long_history_go_and_are_counted(timelines, tokenizer, caplog):
    sequences = to_sequences(timelines, tokenizer, window=3, max_seq_length=8)
    assert decoded(sequences, tokenizer)[2] == "[CLS] the plane flew [SEP] [SEP] air [SEP]"
    assert "Truncated 1 of 4 sequences to 8 tokens" in caplog.text
    # Without room for any history the post loses its end.
    for window in (1, 3):
        tight = to_sequences(timelines, tokenizer, window=window, max_seq_length=4)
        assert decoded(tight, tokenizer)[2] == "[CLS] the plane [SEP]"
    assert tokenizer.truncation_side == "right"
