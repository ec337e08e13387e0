"""Embeddings of posts against one text at a time, their cache, and streams of them."""

import logging

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import tiny_encoder
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, default_data_collator

from modeling_tempoformer.baselines.frozen_embeddings import EmbeddedStreams, embed_texts
from modeling_tempoformer.data.timelines import to_timelines


TEXTS = ["so happy today, at home again", "", "tired", "tired of it all again and again", "so happy today"]


def save_encoder(folder, seed: int = 0):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = {**tiny_encoder(), "vocab_size": len(tokenizer), "initializer_range": 0.5}
    torch.manual_seed(seed)
    AutoModel.from_config(AutoConfig.for_model(**settings)).save_pretrained(folder)


@pytest.fixture
def encoder(tmp_path, tokenization):
    """A folder with a tiny encoder that reads 24 tokens, and its tokenizer."""
    folder = tmp_path / "encoder"
    AutoTokenizer.from_pretrained(tokenization).save_pretrained(folder)
    save_encoder(folder)
    return folder


@pytest.fixture
def embed(encoder, tmp_path):
    """`embed_texts` with a cache of its own."""
    return lambda texts, **settings: embed_texts(texts, str(encoder), cache_dir=tmp_path / "cache", **settings)


def plain_embeddings(folder, texts: list[str], **settings) -> np.ndarray:
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.no_grad():
        for text in texts:
            states = model(**tokenizer(text, return_tensors="pt", **settings)).last_hidden_state
            rows.append(sum(states[0, token] for token in range(states.shape[1])) / states.shape[1])
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_mean_of_the_tokens_of_each_text(encoder, embed, batch_size, monkeypatch):
    monkeypatch.setattr("modeling_tempoformer.training.frozen_encoder.BATCH_SIZE", batch_size)
    found = embed(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, plain_embeddings(encoder, TEXTS), atol=1e-5)


def test_long_texts_are_truncated_and_counted(encoder, embed, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)
    found = embed(TEXTS, max_seq_length=5)
    expected = plain_embeddings(encoder, TEXTS, truncation=True, max_length=5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "Truncated 3 of 5 posts to 5 tokens" in caplog.text
    # The encoder has 24 positions.
    embed(["again " * 50])
    assert "Truncated 1 of 1 posts to 24 tokens" in caplog.text


def test_only_embeddings_of_the_same_tokens_and_weights_are_read_from_the_cache(encoder, embed, tmp_path):
    first = embed(TEXTS)
    (path,) = (tmp_path / "cache").iterdir()
    np.save(path, first + 100)
    assert np.array_equal(embed(TEXTS), first + 100)
    assert np.array_equal(embed(TEXTS, max_seq_length=20), first + 100)
    for texts, settings in ((TEXTS[::-1], {}), (TEXTS[:4], {}), (TEXTS, {"max_seq_length": 5})):
        assert np.abs(embed(texts, **settings)).max() < 50
    # Other weights in files of the same names and sizes.
    save_encoder(encoder, seed=1)
    np.testing.assert_allclose(embed(TEXTS), plain_embeddings(encoder, TEXTS), atol=1e-5)
    save_encoder(encoder, seed=0)
    assert np.array_equal(embed(TEXTS), first + 100)


def test_weights_that_a_checkpoint_lacks_change_nothing(encoder, tmp_path):
    """The pooler is drawn at each loading; neither the cache nor what is drawn next may depend on it."""
    weights = load_file(encoder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in weights.items() if "pooler" not in name},
        encoder / "model.safetensors",
        metadata={"format": "pt"},
    )
    drawn = []
    for _ in range(2):
        torch.manual_seed(7)
        embed_texts(TEXTS, str(encoder), cache_dir=tmp_path / "cache")
        drawn.append(torch.rand(3))
    torch.manual_seed(7)
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], torch.rand(3))
    assert len(list((tmp_path / "cache").iterdir())) == 1


POSTS = [
    {"timeline_id": "a", "timestamp": 1.7e9, "label": "x"},
    {"timeline_id": "b", "timestamp": 5, "label": "y"},
    {"timeline_id": "a", "timestamp": 1.7e9 + 3, "label": None},
    {"timeline_id": "a", "timestamp": 1.7e9 + 1, "label": "y"},
    {"timeline_id": "b", "timestamp": 65, "label": None},
]
# Timeline a has the posts 0, 3 and 2, in this order; timeline b has 1 and 4.
EMBEDDINGS = np.array([[10, 1], [13, 1], [12, 1], [21, 2], [24, 2]], dtype=np.float32)


def timelines(timed: bool = True) -> Dataset:
    left_out = () if timed else ("timestamp",)
    posts = [{**{k: v for k, v in post.items() if k not in left_out}, "text": ""} for post in POSTS]
    return to_timelines(Dataset.from_list(posts), ["x", "y"])


def test_each_post_ends_a_stream():
    streams = EmbeddedStreams(timelines(), EMBEDDINGS, window=2)
    assert streams.post_ids == ["0", "3", "2", "1", "4"]
    batch = default_data_collator([streams[item] for item in range(len(streams))])
    assert batch["embeddings"][..., 0].tolist() == [[0, 10], [10, 13], [13, 12], [0, 21], [21, 24]]
    assert batch["embeddings"][..., 1].tolist() == [[0, 1], [1, 1], [1, 1], [0, 2], [2, 2]]
    assert batch["mask"].tolist() == [[False, True], [True, True], [True, True], [False, True], [True, True]]
    # Seconds that float32 cannot tell apart in a date of today.
    assert batch["elapsed"].tolist() == [[0, 0], [1, 0], [2, 0], [0, 0], [60, 0]]
    assert batch["labels"].tolist() == [0, 1, -100, 1, -100]
    assert [batch[name].dtype for name in ("embeddings", "mask", "elapsed", "labels")] == [
        torch.float32,
        torch.bool,
        torch.float32,
        torch.int64,
    ]


def test_unlabelled_posts_are_context_in_training():
    streams = EmbeddedStreams(timelines(timed=False), EMBEDDINGS, window=4, only_labelled=True)
    # Without times the posts of timeline a are 0, 2, 3.
    assert streams.post_ids == ["0", "3", "1"]
    items = [streams[item] for item in range(3)]
    assert all("elapsed" not in item for item in items)
    assert [item["embeddings"][:, 0].tolist() for item in items] == [[0, 0, 0, 10], [0, 10, 13, 12], [0, 0, 0, 21]]
    assert [item["labels"].item() for item in items] == [0, 1, 1]


def test_window_of_one_and_no_look_ahead():
    alone = EmbeddedStreams(timelines(), EMBEDDINGS, window=1)
    assert [alone[item]["embeddings"].tolist() for item in range(5)] == [[row] for row in EMBEDDINGS.tolist()]
    streams = EmbeddedStreams(timelines(), EMBEDDINGS, window=3)
    changed = EMBEDDINGS.copy()
    changed[2] = 99
    later = EmbeddedStreams(timelines(), changed, window=3)
    same = [torch.equal(streams[item]["embeddings"], later[item]["embeddings"]) for item in range(5)]
    assert same == [True, True, False, True, True]
