"""Embeddings of posts against one text at a time, what is kept of them, and streams of them."""

import logging

import datasets
import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import tiny_encoder
from transformers import AutoConfig, AutoModel, AutoTokenizer, default_data_collator

from modeling_tempoformer.baselines import frozen_embeddings
from modeling_tempoformer.baselines.frozen_embeddings import EmbeddedStreams, embed_texts
from modeling_tempoformer.data.timelines import to_timelines


TEXTS = ["so happy today, at home again", "", "tired", "tired of it all again and again", "so happy today"]


@pytest.fixture(autouse=True)
def logs_reach_pytest(monkeypatch):
    monkeypatch.setattr(logging.getLogger("modeling_tempoformer"), "propagate", True)


def save_encoder(folder, seed: int):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    settings = {**tiny_encoder(), "vocab_size": len(tokenizer), "initializer_range": 0.5}
    torch.manual_seed(seed)
    AutoModel.from_config(AutoConfig.for_model(**settings)).save_pretrained(folder)


@pytest.fixture
def encoder(tmp_path, tokenization):
    """A folder with a tiny encoder that reads 24 tokens, and its tokenizer."""
    folder = tmp_path / "encoder"
    AutoTokenizer.from_pretrained(tokenization).save_pretrained(folder)
    save_encoder(folder, seed=0)
    return folder


@pytest.fixture
def embed(encoder, tmp_path, monkeypatch):
    """`embed_texts` with a cache of its own; `embed.runs` counts the times that the encoder was run."""
    mean_states = frozen_embeddings.mean_states

    def counted(*args):
        embed.runs += 1
        return mean_states(*args)

    def embed(texts, **settings):
        return embed_texts(texts, str(encoder), **{"cache_dir": tmp_path / "cache", **settings})

    embed.runs = 0
    monkeypatch.setattr(frozen_embeddings, "mean_states", counted)
    return embed


def plain_embeddings(folder, texts: list[str], **settings) -> np.ndarray:
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.no_grad():
        for text in texts:
            states = model(**tokenizer(text, return_tensors="pt", **settings)).last_hidden_state
            rows.append(sum(states[0, token] for token in range(states.shape[1])) / states.shape[1])
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_mean_of_the_tokens_of_each_text(encoder, embed, batch_size):
    found = embed(TEXTS, batch_size=batch_size)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, plain_embeddings(encoder, TEXTS), atol=1e-5)


def test_long_texts_are_cut_and_counted(encoder, embed, caplog):
    found = embed(TEXTS, max_seq_length=5)
    expected = plain_embeddings(encoder, TEXTS, truncation=True, max_length=5)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "Truncated 3 of 5 posts to 5 tokens" in caplog.text
    # The encoder has 24 positions.
    embed(["again " * 50])
    assert "Truncated 1 of 1 posts to 24 tokens" in caplog.text


def test_embeddings_are_kept(embed, caplog):
    first = embed(TEXTS)
    assert np.array_equal(embed(TEXTS), first) and embed.runs == 1
    assert np.array_equal(embed(TEXTS, batch_size=3), first) and embed.runs == 1
    assert not caplog.records


def test_embeddings_are_kept_beside_datasets(embed, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    first = embed(TEXTS, cache_dir=None)
    (path,) = (tmp_path / "datasets" / "post_embeddings").iterdir()
    assert np.array_equal(np.load(path, allow_pickle=False), first)


def test_embeddings_of_anything_else_are_made_anew(encoder, embed):
    first = embed(TEXTS)
    assert np.array_equal(embed(TEXTS[::-1]), embed(TEXTS[::-1])) and embed.runs == 2
    embed(TEXTS, max_seq_length=20)
    assert embed.runs == 3
    # Where one text ends and the next begins counts too.
    assert not np.array_equal(embed(["tired of", " it"]), embed(["tired", " of it"])) and embed.runs == 5
    save_encoder(encoder, seed=1)
    assert np.abs(embed(TEXTS) - first).max() > 0.1 and embed.runs == 6


def test_a_hub_id_is_known_by_its_commit(monkeypatch):
    commits = iter(["0" * 40, "0" * 40, "a" * 40])
    monkeypatch.setattr(
        frozen_embeddings, "cached_file", lambda name, file: f"/hub/models--{name}/snapshots/{next(commits)}/{file}"
    )
    first, same, other = (frozen_embeddings.encoder_fingerprint("me/encoder") for _ in range(3))
    assert first == same == ["me/encoder", "0" * 40] and other == ["me/encoder", "a" * 40]


def test_an_unreadable_file_is_made_anew(embed, tmp_path, caplog):
    first = embed(TEXTS)
    (path,) = (tmp_path / "cache").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    assert np.array_equal(embed(TEXTS), first) and "are made again" in caplog.text
    assert path.read_bytes() == whole
    for wrong in (first[1:], first.astype(np.float64), np.array([{}] * 5)):
        np.save(path, wrong, allow_pickle=True)
        caplog.clear()
        assert np.array_equal(embed(TEXTS), first) and "are made again" in caplog.text
    assert embed.runs == 5 and list(path.parent.iterdir()) == [path]


def test_texts_that_are_refused(embed):
    with pytest.raises(ValueError, match="`texts` must be strings, got None in row 1"):
        embed(["tired", None])
    with pytest.raises(ValueError, match="`max_seq_length` must be at least 3, got 2"):
        embed(TEXTS, max_seq_length=2)
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        embed(TEXTS, batch_size=0)
    assert embed([]).shape == (0, 16)


def test_encoders_that_read_times_are_refused(encoder, embed, tokenization):
    settings = {**tiny_encoder(), "model_type": "temporal_bert", "times": ["1815"], "initializer_range": 0.5}
    settings["vocab_size"] = len(AutoTokenizer.from_pretrained(tokenization))
    for times in ({"temporal_attention": "attention"}, {"temporal_attention": "none", "prepend_time": True}):
        AutoModel.from_config(AutoConfig.for_model(**settings, **times)).save_pretrained(encoder)
        with pytest.raises(ValueError, match="`model_name_or_path` .*encoder has temporal attention; use a plain"):
            embed(TEXTS)
    AutoModel.from_config(AutoConfig.for_model(**settings, temporal_attention="none")).save_pretrained(encoder)
    np.testing.assert_allclose(embed(TEXTS), plain_embeddings(encoder, TEXTS), atol=1e-5)


POSTS = [
    {"timeline_id": "a", "timestamp": 1.7e9, "label": "x"},
    {"timeline_id": "b", "timestamp": 5, "label": "y"},
    {"timeline_id": "a", "timestamp": 1.7e9 + 3, "label": None},
    {"timeline_id": "a", "timestamp": 1.7e9 + 1, "label": "y"},
    {"timeline_id": "b", "timestamp": 65, "label": None},
]
# Of the posts 0, 3, 2 of timeline a, then 1, 4 of timeline b.
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


def test_streams_that_are_refused():
    with pytest.raises(ValueError, match=r"`embeddings` has the shape \(4, 2\) for 5 posts"):
        EmbeddedStreams(timelines(), EMBEDDINGS[1:], window=2)
    with pytest.raises(ValueError, match="Row 3 of `embeddings` is not finite"):
        EmbeddedStreams(timelines(), np.where(EMBEDDINGS == 21, np.nan, EMBEDDINGS), window=2)
    with pytest.raises(ValueError, match="`window` must be at least 1, got 0"):
        EmbeddedStreams(timelines(), EMBEDDINGS, window=0)
    unsorted = timelines().map(lambda timeline: {"timestamps": timeline["timestamps"][::-1]})
    with pytest.raises(ValueError, match="timestamps of timeline 'a' are not in order"):
        EmbeddedStreams(unsorted, EMBEDDINGS, window=2)
    unlabelled = timelines().map(lambda timeline: {"labels": [-100] * len(timeline["labels"])})
    with pytest.raises(ValueError, match="no labelled post among the 5"):
        EmbeddedStreams(unlabelled, EMBEDDINGS, window=2, only_labelled=True)
