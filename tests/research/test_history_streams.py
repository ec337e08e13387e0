"""Checks the streams of frozen embeddings that the networks read."""

from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from helpers import save_encoder
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from modeling_tempoformer import StreamCollator
from modeling_tempoformer.common.hashes import hash_inputs
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.rows import to_rows
from modeling_tempoformer.posts.timelines import to_timelines
from modeling_tempoformer.timeline_tempoformer import Timeline
from research.baselines import find_baseline
from research.baselines.history import collate_streams, load_embedder


pytestmark = pytest.mark.slow


@pytest.fixture
def encoder(tmp_path) -> Path:
    """Returns the folder of an encoder that reads 24 tokens."""
    return Path(save_encoder(tmp_path / "encoder", initializer_range=0.5))


@pytest.fixture
def tokenizer(tokenization):
    return AutoTokenizer.from_pretrained(tokenization)


def test_posts_are_the_means_of_their_tokens_cut_to_what_the_encoder_reads(encoder):
    texts = ["so happy today, at home again", "", "tired", "again " * 50]
    posts = Dataset.from_list(
        [{"timeline_id": "a", "text": text, "label": label} for text, label in zip(texts, "xyxy")]
    )
    timelines = to_timelines(posts, ["x", "y"])
    method = find_baseline("bilstm")(method="bilstm", model_name_or_path=str(encoder))
    parts = dict.fromkeys(("train", "test"), timelines)
    prepared = method.prepare(parts, ["x", "y"], DataTrainingArguments(window=2))
    items = prepared.items["test"]
    vectors = prepared.collator([items[row] for row in range(4)])["embeddings"][:, -1]
    model, tokenizer = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    for vector, text in zip(vectors, texts, strict=True):
        with torch.no_grad():
            states = model(**tokenizer(text, truncation=True, max_length=24, return_tensors="pt")).last_hidden_state
        torch.testing.assert_close(vector, states[0].mean(0), atol=1e-5, rtol=0)
    assert [row["num_before"] + row["num_context"] for row in prepared.items["test"]] == [0, 1, 2, 3]


def test_weights_that_a_checkpoint_lacks_change_nothing(encoder):
    """The pooler is drawn at random at each loading. Neither the cache nor later draws may depend on it."""
    weights = load_file(encoder / "model.safetensors")
    save_file(
        {name: tensor for name, tensor in weights.items() if "pooler" not in name},
        encoder / "model.safetensors",
        metadata={"format": "pt"},
    )
    drawn, keys = [], set()
    for _ in range(2):
        torch.manual_seed(7)
        model, _ = load_embedder(str(encoder), {})
        drawn.append(torch.rand(3))
        keys.add(hash_inputs(model.base_model.encoder, []))
    torch.manual_seed(7)
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], torch.rand(3))
    assert len(keys) == 1


POSTS = [
    {"timeline_id": "a", "timestamp": 1.7e9, "label": "x"},
    {"timeline_id": "b", "timestamp": 5, "label": "y"},
    {"timeline_id": "a", "timestamp": 1.7e9 + 3, "label": None},
    {"timeline_id": "a", "timestamp": 1.7e9 + 1, "label": "y"},
    {"timeline_id": "b", "timestamp": 65, "label": None},
]
# Timeline a has the posts 0, 3 and 2, in this order; timeline b has 1 and 4.
EMBEDDINGS = {"0": [10, 1], "3": [13, 1], "2": [12, 1], "1": [21, 2], "4": [24, 2]}


def timelines(timed: bool = True) -> list[Timeline]:
    left_out = () if timed else ("timestamp",)
    posts = [{**{k: v for k, v in post.items() if k not in left_out}, "text": ""} for post in POSTS]
    return to_timelines(Dataset.from_list(posts), ["x", "y"])


def streams(tokenizer, window: int, timed: bool = True, embeddings: dict = EMBEDDINGS, **settings) -> dict:
    """Returns all streams in one batch, with these embeddings of the posts."""
    people, rows = timelines(timed), []
    for row in to_rows(people, tokenizer, window, targets_per_row=1, **settings):
        first = row["num_before"]
        ids = people[row["timeline"]].post_ids[first : first + len(row["input_ids"])]
        vectors = [embeddings[post] for post in ids]
        rows.append({**row, "post_embeds": np.array(vectors, dtype=np.float32)})
    return collate_streams(StreamCollator(tokenizer, window, timed=timed), rows)


def present(batch: dict) -> list[list[float]]:
    """Returns the first number of each embedding, 0 for padding."""
    return batch["embeddings"][..., 0].masked_fill(~batch["mask"], 0).tolist()


def test_each_post_ends_a_stream(tokenizer):
    batch = streams(tokenizer, window=2)
    assert present(batch) == [[0, 10], [10, 13], [13, 12], [0, 21], [21, 24]]
    assert batch["mask"].tolist() == [[False, True], [True, True], [True, True], [False, True], [True, True]]
    # The times are seconds of a present date, which float32 cannot distinguish.
    assert batch["elapsed"].tolist() == [[0, 0], [1, 0], [2, 0], [0, 0], [60, 0]]
    assert batch["labels"].tolist() == [0, 1, -100, 1, -100]
    assert batch["embeddings"].dtype == torch.float32


def test_unlabelled_posts_are_context_in_training(tokenizer):
    batch = streams(tokenizer, window=4, timed=False, only_labelled=True)
    # Without times the posts of timeline a are 0, 2, 3.
    assert "elapsed" not in batch and batch["labels"].tolist() == [0, 1, 1]
    assert present(batch) == [[0, 0, 0, 10], [0, 10, 12, 13], [0, 0, 0, 21]]


def test_no_look_ahead(tokenizer):
    before = present(streams(tokenizer, window=3))
    after = present(streams(tokenizer, window=3, embeddings={**EMBEDDINGS, "2": [99, 1]}))
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, True, False, True, True]
