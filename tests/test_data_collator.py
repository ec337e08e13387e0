"""Rows of posts to batches of streams."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import MODELS, VOCABULARY, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.data_collator_tempoformer import elapsed_seconds, stream_windows


TOKENIZER = BertTokenizer(vocab=VOCABULARY)
ROWS = [
    {"input_ids": [[2, 5, 3], [2, 6, 6, 3], [2, 3]], "timestamps": [1.7e9, 1.7e9 + 1, 1.7e9 + 61], "num_context": 1,
     "labels": [0, 1]},
    {"input_ids": [[2, 6, 3], [2, 5, 3]], "timestamps": [0, 0], "num_context": 0, "labels": [None, -100]},
]  # fmt: skip


def test_worked_batch():
    batch = StreamCollator(TOKENIZER, window=2)(ROWS)
    assert batch["input_ids"].tolist() == [
        [[2, 5, 3, 0], [2, 6, 6, 3], [2, 3, 0, 0]],
        [[2, 6, 3, 0], [2, 5, 3, 0], [0, 0, 0, 0]],
    ]
    assert batch["attention_mask"].sum(-1).tolist() == [[3, 4, 2], [3, 3, 0]]
    assert batch["stream_index"].tolist() == [[[0, 1], [1, 2]], [[0, 1], [-1, -1]]]
    # One second apart at a date whose seconds float32 cannot tell apart.
    assert batch["elapsed"].tolist() == [[[1, 0], [60, 0]], [[0, 0], [0, 0]]]
    assert batch["labels"].tolist() == [[0, 1], [-100, -100]]
    assert batch["elapsed"].dtype == torch.float32 and batch["stream_index"].dtype == torch.int64


def test_rows_may_lack_times_labels_and_context():
    rows = [{"input_ids": row["input_ids"]} for row in ROWS]
    batch = StreamCollator(TOKENIZER, window=2, timed=False)(rows)
    assert set(batch) == {"input_ids", "attention_mask", "stream_index", "place"}
    assert batch["place"].tolist() == [[[0, 0], [1, 0], [2, 0]], [[0, 0], [1, 0], [0, 0]]]
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
    streams = ("stream_index", "elapsed", "place", "labels")
    assert all(torch.equal(batch[name], tokens[name]) for name in streams)
    assert set(batch) == {"post_embeds", "attention_mask", *streams}


def test_a_row_may_have_no_target():
    batch = StreamCollator(TOKENIZER, window=2)([ROWS[0], {**ROWS[1], "labels": [None, None]}])
    assert batch["labels"].tolist() == [[0, 1], [-100, -100]] and (batch["stream_index"][1] == -1).all()


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


def test_posts_are_padded_on_the_right_whatever_the_tokenizer_says():
    left = BertTokenizer(vocab=VOCABULARY, padding_side="left")
    ids = [StreamCollator(tokenizer, window=2)(ROWS)["input_ids"] for tokenizer in (left, TOKENIZER)]
    assert torch.equal(*ids)


@given(st.integers(1, 12), st.integers(1, 8), st.data())
def test_windows_are_the_posts_before(num_posts, window, data):
    times = sorted(data.draw(st.lists(st.integers(0, 2**40), min_size=num_posts, max_size=num_posts)))
    index = stream_windows(torch.arange(num_posts), window)
    elapsed = elapsed_seconds(torch.tensor(times), index)
    for target in range(num_posts):
        expected = list(range(max(0, target - window + 1), target + 1))
        absent = window - len(expected)
        assert index[target].tolist() == [-1] * absent + expected
        seconds = [0.0] * absent + [float(times[target] - times[post]) for post in expected]
        torch.testing.assert_close(elapsed[target], torch.tensor(seconds))


@pytest.mark.parametrize("kind", MODELS, ids=str)
@settings(max_examples=30, deadline=None)
@given(num_posts=st.integers(1, 9), window=st.integers(1, 4), data=st.data())
def test_chunks_of_a_timeline_give_the_same_logits(kind, num_posts, window, data):
    """A timeline as one row, and cut anywhere with the context that each piece needs."""
    model = tiny_model(window=4, **kind)
    word = st.lists(st.sampled_from([5, 6]), max_size=5).map(lambda ids: [2, *ids, 3])
    posts = data.draw(st.lists(word, min_size=num_posts, max_size=num_posts))
    times = sorted(data.draw(st.lists(st.integers(0, 10**8), min_size=num_posts, max_size=num_posts)))
    cut = data.draw(st.integers(0, num_posts - 1))
    start = max(0, cut - window + 1)
    whole = [{"input_ids": posts, "timestamps": times}]
    pieces = [{"input_ids": posts[start:], "timestamps": times[start:], "num_context": cut - start}]
    if cut:
        pieces.append({"input_ids": posts[:cut], "timestamps": times[:cut]})
    collator = StreamCollator(TOKENIZER, window)
    with torch.no_grad():
        logits, parts = model(**collator(whole)).logits[0], model(**collator(pieces)).logits
    torch.testing.assert_close(parts[0, : num_posts - cut], logits[cut:], atol=1e-5, rtol=0)
    if cut:
        torch.testing.assert_close(parts[1, :cut], logits[:cut], atol=1e-5, rtol=0)
