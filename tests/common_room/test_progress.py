"""Checks what the log says of a long work."""

import re

import pytest
import torch
from transformers import BertTokenizer

from modeling_tempoformer.common import progress
from modeling_tempoformer.common.batches import batches_by_length


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """Returns a list whose last number is the time in seconds."""
    times = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: times[-1])
    return times


def numbers_in(record) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", record.getMessage())]


def test_each_minute_the_log_has_the_share_that_is_done_and_the_minutes_left(clock, caplog):
    with caplog.at_level("INFO"):
        work = progress.Progress("Work", 30)
        for seconds in range(20, 601, 20):
            clock.append(seconds)
            work.add(1)
    # 30 parts of 20 seconds: a line each minute, but at the end.
    assert [numbers_in(record) for record in caplog.records] == [[10 * minute, 10 - minute] for minute in range(1, 10)]


def test_parts_of_an_unknown_number_are_counted(clock, caplog):
    with caplog.at_level("INFO"):
        work = progress.Progress("Work")
        for seconds in range(30, 151, 30):
            clock.append(seconds)
            work.add(2)
    assert [numbers_in(record) for record in caplog.records] == [[4], [8]]


def test_texts_are_counted_by_their_length(clock, caplog):
    tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "glad": 5})
    texts = [{"input_ids": [5] * length, "attention_mask": [1] * length} for length in (4, 2, 4, 2, 4, 2, 4, 2)]
    with caplog.at_level("INFO"):
        for number, _ in enumerate(batches_by_length(texts, tokenizer, 2, torch.device("cpu"), "Reading"), 1):
            clock.append(40 * number)
    # Eight texts, 80 more seconds after the first third of the tokens; then two thirds of them.
    assert [numbers_in(record) for record in caplog.records] == [[8, 1], [67, 1]]
