"""Checks the collation of rows of posts to batches of streams."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import VOCABULARY
from transformers import BertTokenizer

from modeling_tempoformer import StreamCollator


TOKENIZER = BertTokenizer(vocab=VOCABULARY)
ROWS = [
    {"input_ids": [[2, 5, 3], [2, 6, 6, 3], [2, 3]], "timestamps": [1.7e9, 1.7e9 + 1, 1.7e9 + 61], "num_context": 1,
     "labels": [0, 1]},
    {"input_ids": [[2, 6, 3], [2, 5, 3]], "timestamps": [0, 0], "num_context": 0, "labels": [1, -100],
     "is_target": [False, True]},
]  # fmt: skip


@pytest.mark.parametrize("side", ["right", "left"])
def test_worked_batch(side):
    """Posts are padded on the right, whatever the tokenizer's side is."""
    batch = StreamCollator(BertTokenizer(vocab=VOCABULARY, padding_side=side), window=2)(ROWS)
    assert batch["input_ids"].tolist() == [
        [[2, 5, 3, 0], [2, 6, 6, 3], [2, 3, 0, 0]],
        [[2, 6, 3, 0], [2, 5, 3, 0], [0, 0, 0, 0]],
    ]
    assert batch["attention_mask"].sum(-1).tolist() == [[3, 4, 2], [3, 3, 0]]
    assert batch["stream_index"].tolist() == [[[0, 1], [1, 2]], [[0, 1], [-1, -1]]]
    # The times are one second apart, at a date at which float32 cannot represent a second.
    assert batch["elapsed"].tolist() == [[[1, 0], [60, 0]], [[0, 0], [0, 0]]]
    assert batch["labels"].tolist() == [[0, 1], [-100, -100]]
    assert batch["elapsed"].dtype == torch.float32 and batch["stream_index"].dtype == torch.int64


def test_rows_may_lack_times_labels_and_context():
    rows = [{"input_ids": row["input_ids"]} for row in ROWS]
    batch = StreamCollator(TOKENIZER, window=2, timed=False)(rows)
    assert set(batch) == {"input_ids", "attention_mask", "stream_index", "timeline_position"}
    assert batch["timeline_position"].tolist() == [[[0, 0], [1, 0], [2, 0]], [[0, 0], [1, 0], [0, 0]]]
    assert batch["stream_index"].tolist() == [[[-1, 0], [0, 1], [1, 2]], [[-1, 0], [0, 1], [-1, -1]]]


def test_rows_may_have_vectors_of_posts_in_place_of_tokens():
    tokens = StreamCollator(TOKENIZER, window=2)(ROWS)
    vectors = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0], [9.0, 0.0]]]
    rows = [
        {**{name: values for name, values in row.items() if name != "input_ids"}, "post_embeds": posts}
        for row, posts in zip(ROWS, (vectors[0], torch.tensor(vectors[1])), strict=True)
    ]
    batch = StreamCollator(TOKENIZER, window=2)(rows)
    assert batch["post_embeds"].tolist() == [vectors[0], [*vectors[1], [0, 0]]]
    assert batch["attention_mask"].tolist() == [[[1], [1], [1]], [[1], [1], [0]]]
    streams = ("stream_index", "elapsed", "timeline_position", "labels")
    assert all(torch.equal(batch[name], tokens[name]) for name in streams)
    assert set(batch) == {"post_embeds", "attention_mask", *streams}


def test_rows_without_posts_fill_a_batch():
    """They have no post, no stream and no label; what is before them is as it is without them."""
    rows = [{**row, "speaker_posts": [[0]] * len(row["labels"]), "held_out": 1} for row in ROWS[:1] * 2 + ROWS[:1]]
    batch = StreamCollator(TOKENIZER, window=2)(rows)
    filled = StreamCollator(TOKENIZER, window=2, pad_rows_to_multiple_of=4)(rows)
    assert set(filled) == set(batch) and all(torch.equal(filled[name][:3], batch[name]) for name in batch)
    last = {name: set(tensor[3].flatten().tolist()) for name, tensor in filled.items()}
    assert last["attention_mask"] == {0} and last["stream_index"] == {-1} and last["labels"] == {-100}
    assert last["input_ids"] == {TOKENIZER.pad_token_id} and last["speaker_posts"] == {-1} == last["held_out"]
    assert len(StreamCollator(TOKENIZER, window=2, pad_rows_to_multiple_of=3)(rows)["labels"]) == 3


@pytest.mark.parametrize(
    ("make", "exact"),
    [
        (lambda times: torch.tensor(times), False),
        (lambda times: np.array(times, dtype=np.float32), False),
        (lambda times: [*times[:-1], np.float16(0.0)], False),
        (lambda times: Dataset.from_dict({"timestamps": [times]}).with_format("numpy")[0]["timestamps"], False),
        (lambda times: torch.tensor(times, dtype=torch.float64), True),
        (lambda times: np.array(times, dtype=np.int32), True),
        (lambda times: [np.float64(time) for time in times], True),
        (lambda times: [int(time) for time in times], True),
    ],
)
def test_times_are_read_if_they_are_exact(make, exact):
    rows = [{**ROWS[0], "timestamps": make(ROWS[0]["timestamps"])}]
    if exact:
        assert StreamCollator(TOKENIZER, window=2)(rows)["elapsed"].tolist() == [[[1, 0], [60, 0]]]
    else:
        with pytest.raises(ValueError, match="Row 0 of the batch .*float.*float64"):
            StreamCollator(TOKENIZER, window=2)(rows)
