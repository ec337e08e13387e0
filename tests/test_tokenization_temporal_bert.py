"""Checks tokenizers that take the times of texts."""

import logging
import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import TIMES
from helpers import dated_bert as bert
from helpers import dated_roberta as roberta
from transformers import AutoTokenizer, BertTokenizer, RobertaTokenizer

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    TemporalBertConfig,
    TemporalBertTokenizer,
)
from modeling_tempoformer.time_points_temporal_bert import UnknownTimeError


TEXTS = ["The plane flew", "the trees", "plane"]


@pytest.mark.parametrize("make", [bert, roberta])
def test_a_text_s_tokens_are_those_of_the_plain_tokenizer_and_have_its_time(make):
    tokenizer = make()
    base = BertTokenizer if make is bert else RobertaTokenizer
    plain = base(vocab=tokenizer._vocab, **({} if make is bert else {"merges": []}))
    expected = plain(TEXTS, padding=True, return_tensors="pt")
    batch = tokenizer(TEXTS, time=["1960-2010", 1815, "1860-12-31"], padding=True, return_tensors="pt")
    for name in expected:
        assert torch.equal(batch[name], expected[name])
    text_ids = torch.tensor([[4], [3], [3]])
    assert torch.equal(batch["time_ids"], text_ids * expected["attention_mask"])


def test_one_text_and_one_time_for_all():
    tokenizer = bert()
    assert tokenizer("the plane", time=1815)["time_ids"] == [3, 3, 3, 3]
    assert tokenizer(["the", "plane"], time=1815)["time_ids"] == [[3, 3, 3], [3, 3, 3]]
    assert tokenizer("the", time=1815, return_tensors="pt")["time_ids"].tolist() == [[3, 3, 3]]
    assert tokenizer(["the", "trees"], time=1815, is_split_into_words=True)["time_ids"] == [3] * 5
    assert tokenizer("the", "plane", time=1815)["time_ids"] == [3] * 5
    # Any kind of sequence may hold the times.
    for years in ((1815, 1990), np.array([1815, 1990]), Dataset.from_dict({"y": [1815, 1990]})["y"]):
        assert tokenizer(["the", "plane"], time=years)["time_ids"] == [[3, 3, 3], [4, 4, 4]]


def test_a_time_token_is_neither_cut_off_nor_given_twice():
    tokenizer = bert(prepend_time=True)
    batch = tokenizer("the plane flew the plane", time=1990, truncation=True, max_length=5)
    assert len(batch["input_ids"]) == 5 and batch["input_ids"][1] == tokenizer.time_token_ids[1]
    names = ["[CLS]", "[1960-2010]", "the", "[SEP]", "plane", "[SEP]"]
    assert tokenizer("the", "plane", time=1990)["input_ids"] == tokenizer.convert_tokens_to_ids(names)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("make", [bert, roberta])
def test_what_an_encoding_says_of_its_tokens_is_what_the_model_reads(make, side):
    """A text begins with a time token, or with the mask token if its time is unknown. A pickled copy does the same."""
    tokenizer = make(prepend_time=True, unknown_times="unknown", padding_side=side)
    encoding = tokenizer(["the plane", "the"], time=[1990, "never"], padding=True)
    assert tokenizer.mask_token in encoding.tokens(1) and "[1960-2010]" in encoding.tokens(0)
    for read in (encoding, pickle.loads(pickle.dumps(encoding))):
        for index, ids in enumerate(encoding["input_ids"]):
            assert read.tokens(index) == tokenizer.convert_ids_to_tokens(ids)
            assert (read[index].ids, len(read[index])) == (ids, len(ids))
        assert read.word_ids(0) == tokenizer(["the plane", "the"], time="never", padding=True).word_ids(0)
        assert read.char_to_token(0, 4) == read.tokens(0).index("plane" if make is bert else "p")


def test_pieces_of_a_long_text_all_have_its_time():
    batch = bert()(TEXTS, time=[1815, 1990, 1815], max_length=4, truncation=True, return_overflowing_tokens=True)
    assert batch["overflow_to_sample_mapping"] == [0, 0, 1, 1, 2]
    assert [row[0] for row in batch["time_ids"]] == [3, 3, 4, 4, 3]


@pytest.mark.parametrize("side", ["left", "right"])
def test_pad_pads_times(side):
    tokenizer = bert(padding_side=side)
    rows = [tokenizer("the plane flew", time=1815), tokenizer("the", time=1990)]
    batch = tokenizer.pad(rows, return_tensors="pt")
    assert torch.equal(batch["time_ids"] > 0, batch["attention_mask"] > 0)
    assert batch["time_ids"][1].max() == 4


@pytest.mark.parametrize("make", [bert, roberta])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_time_token_is_prepended(make, side):
    tokenizer = make(prepend_time=True, unknown_times="unknown", padding_side=side)
    plain = make(unknown_times="unknown", padding_side=side)
    times = [1990, 1815, None]
    batch = tokenizer(TEXTS, time=times, padding=True, return_offsets_mapping=True, return_special_tokens_mask=True)
    expected = plain(TEXTS, time=times, padding=True, return_offsets_mapping=True)
    tokens = [*tokenizer.convert_tokens_to_ids(["[1960-2010]", "[1810-1860]"]), tokenizer.mask_token_id]
    assert tokenizer.time_token_ids == [tokens[1], tokens[0]]
    for row, token in enumerate(tokens):
        first = batch["attention_mask"][row].index(1)
        assert batch["input_ids"][row].pop(first + 1) == token
        assert batch["special_tokens_mask"][row][first + 1] == 1
        for name in ("offset_mapping", "time_ids"):
            batch[name][row].pop(first + 1)
    for name in ("input_ids", "offset_mapping", "time_ids"):
        assert batch[name] == expected[name]


def test_masked_tokens_can_lose_their_time():
    assert bert()("the [MASK] flew", time=1990)["time_ids"] == [4, 4, 4, 4, 4]
    assert bert(mask_token_time=True)("the [MASK] flew", time=1990)["time_ids"] == [4, 4, 1, 4, 4]


def test_a_time_outside_all_times_is_refused_or_unknown():
    for time in (1900, [None]):
        with pytest.raises(UnknownTimeError, match="1810-1860, 1960-2010"):
            bert()(["the plane"], time=time)
        assert bert(unknown_times="unknown")(["the plane"], time=time)["time_ids"] == [[2, 2, 2, 2]]


@pytest.mark.parametrize("make", [bert, roberta])
def test_a_text_without_a_time_is_one_of_unknown_time(make, caplog):
    """Its time is unknown in a single text, a batch and a pair, and one warning names `time=`."""
    tokenizer, unknown = make(), make(unknown_times="unknown")
    with caplog.at_level(logging.WARNING):
        for texts in (["the plane"], [["the plane", "the"]], ["the", "plane"]):
            assert tokenizer(*texts).data == unknown(*texts, time="never").data
    assert {time for row in tokenizer(["the", "plane"])["time_ids"] for time in row} == {2}
    assert sum("time=" in record.message for record in caplog.records) <= 1
    for given in ("never", ["never"], [None], [float("nan")], ""):
        with pytest.raises(ValueError):
            tokenizer(["the plane"], time=given)
    with pytest.raises(ValueError, match="no time"):
        make(unknown_times="error")("the plane")


@pytest.mark.parametrize("make", [bert, roberta])
def test_saving_and_loading(make, tmp_path):
    tokenizer = make(prepend_time=True, time_granularity=None, mask_token_time=True, unknown_times="unknown")
    tokenizer.save_pretrained(tmp_path)
    for loaded in (type(tokenizer).from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert type(loaded) is type(tokenizer)
        assert loaded.times == TIMES and loaded.mask_token_time and loaded.unknown_times == "unknown"
        assert len(loaded) == len(tokenizer)
        assert dict(loaded(TEXTS, time=[1815, 1990, None])) == dict(tokenizer(TEXTS, time=[1815, 1990, None]))


def test_more_times_can_be_given_on_loading(tmp_path):
    old = bert(prepend_time=True)
    old.save_pretrained(tmp_path)
    new = TemporalBertTokenizer.from_pretrained(tmp_path, times=["1700-1750", *TIMES])
    assert new("the", time=1815)["time_ids"] == [4, 4, 4, 4]
    assert new.time_token_ids[1:] == old.time_token_ids
    assert len(new) == len(old) + 1


def test_target_words_become_tokens_that_begin_as_the_mean_of_their_pieces():
    tokenizer = bert()
    torch.manual_seed(0)
    config = TemporalBertConfig(
        times=TIMES, vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    model = BertWithTemporalAttentionForMaskedLM(config)
    old = model.get_input_embeddings().weight.detach().clone()
    text = "The Airplane, airplanes"
    assert tokenizer.tokenize(text) == ["the", "air", "##plane", "[UNK]", "air", "##plane", "##s"]
    assert tokenizer.add_target_words(["airplane", "plane"], model) == ["airplane"]
    assert tokenizer.tokenize(text) == ["the", "airplane", "[UNK]", "air", "##plane", "##s"]
    new = model.get_input_embeddings().weight
    assert torch.equal(new[: len(old)], old)
    torch.testing.assert_close(new[tokenizer.convert_tokens_to_ids("airplane")], (old[10] + old[11]) / 2)
    assert model.config.vocab_size == len(new) == len(tokenizer) == len(old) + 1
    assert model.get_output_embeddings().weight is new
    assert tokenizer.add_target_words(["zebra", "airplane"], model) == ["zebra"]
    assert tokenizer.unk_token not in tokenizer.tokenize("the zebra")
    assert model.get_input_embeddings().num_embeddings == len(tokenizer) == len(old) + 2
    with pytest.raises(ValueError, match="'air plane'"):
        tokenizer.add_target_words(["air plane"], model)
