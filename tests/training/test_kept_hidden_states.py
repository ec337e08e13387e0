"""Checks that kept states of frozen layers change no answer but by their 16 bits."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import ENCODERS, MODELS, ROOT, read_table, save_encoder, tiny_encoder, tiny_model, write_posts
from transformers import AutoModel, AutoTokenizer

from modeling_tempoformer import fine_tune, freeze_layers
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.training.kept_hidden_states import keep_lower_states


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)


def posts_and_batch(pad: int) -> tuple[Dataset, dict[str, torch.Tensor]]:
    """Returns rows of posts, and a batch of them in which one post stands twice and one is absent."""
    posts = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14], [15, 16, 17, 18]]
    order = [posts[0], posts[2], posts[0], posts[1], posts[3], []]
    ids = torch.tensor([post + [pad] * (6 - len(post)) for post in order])[None]
    index = torch.tensor([[[-1, 0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4]]])
    batch = {
        "input_ids": ids,
        "attention_mask": (torch.arange(6) < torch.tensor([[len(p)] for p in order])).long()[None],
    }
    batch |= {"stream_index": index, "elapsed": torch.rand(1, 3, 4) * 1e4, "labels": torch.tensor([[0, 1, 2]])}
    return Dataset.from_dict({"input_ids": [posts]}), batch


@pytest.mark.parametrize("kind", MODELS, ids=str)
@pytest.mark.parametrize("family", list(ENCODERS))
def test_answers_and_gradients_are_those_of_the_whole_encoder(family, kind):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(ENCODERS[family]["pad_token_id"])
    model = tiny_model(family, **kind)
    model.config.focal_gamma = 0.0
    freeze_layers(model, 1)
    rows, batch = posts_and_batch(tokenizer.pad_token_id)

    def learn() -> list[torch.Tensor]:
        model.zero_grad()
        output = model(**batch)
        output.loss.backward()
        return [output.logits, *(each.grad for each in model.parameters() if each.grad is not None)]

    expected = learn()
    with keep_lower_states(model, 1, [rows], tokenizer):
        found = learn()
        # A convolution between the layers is not kept.
        with nullcontext() if "convolution" in family else pytest.raises(KeyError):
            model(**{**batch, "input_ids": batch["input_ids"].where(batch["input_ids"] != 6, 19)})
    again = learn()
    for kept, whole, after in zip(found, expected, again, strict=True):
        torch.testing.assert_close(kept, whole, atol=2e-2, rtol=2e-2)
        torch.testing.assert_close(after, whole)


def test_another_seed_reads_the_file(tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    rows, batch = posts_and_batch(tokenizer.pad_token_id)
    model = tiny_model(model_type="post_tempoformer")
    freeze_layers(model, 2)
    with keep_lower_states(model, 2, [rows], tokenizer):
        first = model(**batch).logits

    def written() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "lower_states").iterdir()}

    files = written()
    with keep_lower_states(model, 2, [rows], tokenizer):
        torch.testing.assert_close(model(**batch).logits, first)
    assert written() == files and len(files) == 1
    # Other layers, posts or weights are another file.
    with keep_lower_states(model, 1, [rows], tokenizer):
        assert len(written()) == 2
    with torch.no_grad():
        model.base_model.encoder.embeddings.word_embeddings.weight.mul_(2)
    with keep_lower_states(model, 2, [rows], tokenizer):
        assert len(written()) == 3


def test_what_is_too_large_is_computed_anew(tmp_path, caplog):
    """A post more, of so many tokens that the states of 1,024 numbers of two bytes are just above 8 GiB."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    rows, batch = posts_and_batch(tokenizer.pad_token_id)
    model = tiny_model(encoder_config={**tiny_encoder(), "hidden_size": 1024})
    freeze_layers(model, 1)
    expected = model(**batch).logits
    with keep_lower_states(model, 1, [rows, [{"input_ids": [[5] * 2**22]}]], tokenizer):
        torch.testing.assert_close(model(**batch).logits, expected)
    assert "anew" in caplog.text and not (tmp_path / "lower_states").exists()


@pytest.mark.parametrize("kind", MODELS, ids=str)
def test_a_training_with_frozen_layers(kind, tmp_path):
    encoder, posts = save_encoder(tmp_path / "encoder"), list(synthetic_posts(12, seed=0, posts_per_timeline=5))
    settings = {"train_file": write_posts(tmp_path / "posts.csv", posts), "window": 3, "max_steps": 4}
    settings |= {"report_to": "none", "freeze_layers": 1, "freeze_encoder": False, "use_cpu": True, **kind}
    settings |= {"load_best_model_at_end": False, "eval_strategy": "no", "save_strategy": "no", "warmup_steps": 0}
    model = fine_tune(encoder, **settings, output_dir=str(tmp_path / "out"))
    assert list(tmp_path.glob("lower_states/*.npy"))
    before = AutoModel.from_pretrained(encoder).encoder.layer
    for number, has_learned in ((0, False), (2, True)):
        now, old = (layers[number].output.dense.weight for layers in (model.base_model.encoder.encoder.layer, before))
        assert torch.equal(now, old) != has_learned
    # Predictions are made by all layers.
    rows = read_table(tmp_path / "out" / "_predictions.csv")
    again = {"do_train": False, "do_eval": False, "test_file": settings["train_file"]}
    fine_tune(str(tmp_path / "out"), **again, output_dir=str(tmp_path / "new"), report_to="none", use_cpu=True)
    others = {row["post_id"]: row for row in read_table(tmp_path / "new" / "_predictions.csv")}
    for row in rows:
        found, expected = (float(each["probability_Switch"]) for each in (row, others[row["post_id"]]))
        assert found == pytest.approx(expected, abs=1e-5)
