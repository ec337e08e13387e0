"""Checks that the collator of `examples/numpy_collator.py` makes the batches of `StreamCollator`."""

import runpy

import numpy as np
import pytest
from helpers import ROOT
from transformers import AutoTokenizer

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.timeline_tempoformer import cut_rows


TEXTS = ["sad today", "so glad that we met again", "tired", "home", "a long day in a small town", "sad"]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("window", [1, 3, 8])
def test_same_batches(tokenization, window, timed):
    """Timelines have different lengths. The last one is cut to rows, whose earlier posts are context or left out."""
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    rows = []
    for number in (1, 4, 6):
        columns = {"input_ids": tokenizer(TEXTS[:number])["input_ids"]}
        if timed:
            columns["timestamps"] = (1_714_554_000.5 + 40_000 * np.arange(number) ** 2).tolist()
        rows.append(columns)
    rows = [*rows, *cut_rows(rows.pop(), window, targets_per_row=2)]
    collate = runpy.run_path(str(ROOT / "examples" / "numpy_collator.py"))["collate"]
    batch = collate(rows, window, tokenizer.pad_token_id)
    expected = StreamCollator(tokenizer, window, timed=timed)(rows)
    assert set(expected) <= set(batch) <= {*expected, "token_type_ids"}
    for name, tensor in expected.items():
        assert batch[name].dtype == tensor.numpy().dtype, name
        np.testing.assert_array_equal(batch[name], tensor.numpy(), err_msg=name)
    assert not batch["token_type_ids"].any() and batch["token_type_ids"].shape == batch["input_ids"].shape


@pytest.mark.parametrize("name", ["states", "earlier_states", "speakers"])
def test_what_is_not_read_is_refused(name):
    """A model that reads known states would answer without them."""
    collate = runpy.run_path(str(ROOT / "examples" / "numpy_collator.py"))["collate"]
    rows = [{"input_ids": [[5, 6]]}, {"input_ids": [[5, 6]], name: ["calm"]}]
    with pytest.raises(ValueError, match=f" {name}[:,].*PyTorch"):
        collate(rows, 3)
    assert collate(rows[:1], 3)["stream_index"].tolist() == [[[-1, -1, 0]]]
