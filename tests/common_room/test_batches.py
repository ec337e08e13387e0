"""Checks batches of texts of similar length."""

import torch
from transformers import BertTokenizer

from modeling_tempoformer.common.batches import batches_by_length


def test_each_text_is_in_one_batch_and_long_ones_come_first():
    tokenizer = BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "glad": 5})
    lengths = [3, 9, 1, 4, 9, 2, 7]
    texts = [{"input_ids": [5] * length, "attention_mask": [1] * length} for length in lengths]
    batches = list(batches_by_length(texts, tokenizer, 3, torch.device("cpu"), "Reading"))
    read = [index for indices, _ in batches for index in indices]
    assert sorted(read) == list(range(7)) and [lengths[index] for index in read] == sorted(lengths, reverse=True)
    for indices, batch in batches:
        assert batch["attention_mask"].sum(-1).tolist() == [lengths[index] for index in indices]
        assert batch["input_ids"].shape[1] == max(lengths[index] for index in indices)
    assert not list(batches_by_length([], tokenizer, 3, torch.device("cpu"), "Reading"))
