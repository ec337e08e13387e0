"""Checks vectors of usages in 8 bits against PyTorch's, and that the two are not mixed."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import SIZES, TIMES, VOCABULARY, dated_bert, read_table
from transformers import BertConfig, BertModel, BertTokenizer

from semantic_change.commands.words import main as rank_words


def rank(folder: Path, output: str, *more: str) -> tuple[list[str], np.ndarray, str]:
    """Returns the words in their order, the vectors of their usages, and the page."""
    given = ["--model_name_or_path", str(folder / "model"), "--targets", str(folder / "words.txt"), *more]
    corpora = [str(folder / f"{time}.csv") for time in TIMES]
    rank_words([*given, "--corpora", *corpora, "--output_dir", str(folder / output)])
    usages = pd.read_parquet(folder / output / "_usages.parquet")
    words = [row["word"] for row in read_table(folder / output / "changes.csv")]
    return words, np.stack(usages["vector"]), (folder / output / "_changes.html").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Returns an encoder of three layers, and texts in which `flew` changes its contexts, `air` half of them."""
    torch.manual_seed(0)
    config = BertConfig(**SIZES | {"num_hidden_layers": 3}, initializer_range=0.3)
    for part in (BertModel(config), BertTokenizer(vocab=VOCABULARY)):
        part.save_pretrained(tmp_path / "model")
    for time, new in zip(TIMES, ("plane", "sad"), strict=True):
        texts = [f"the {word} {'glad ' * (n % 5)}{new}" for n in range(24) for word in ("flew", "tree")[: 1 + n % 2]]
        texts += [f"the air {new if n % 2 else 'glad'} tree tree {'glad ' * (n % 3)}" for n in range(24)]
        (tmp_path / f"{time}.csv").write_text("\n".join(["text", *texts]), encoding="utf-8")
    (tmp_path / "words.txt").write_text("flew\nair\ntree\nglad\nthe\n", encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_vectors_of_8_bits_are_near_and_kept_apart(folder, monkeypatch):
    pytest.importorskip("onnxruntime")
    in_8_bits = ["--encoder_backend", "onnx-int8", "--num_last_layers", "2"]
    words, exact, page = rank(folder, "torch", "--num_last_layers", "2")
    order, vectors, said = rank(folder, "int8", *in_8_bits)
    # All vectors are kept, so that no encoder is exported again.
    monkeypatch.delattr(torch.onnx, "export")
    _, again, _ = rank(folder, "again", *in_8_bits)
    assert order == words
    assert "8 bits" in said and "8 bits" not in page
    cosines = torch.cosine_similarity(torch.tensor(vectors), torch.tensor(exact))
    assert 0.99 < cosines.min() and not np.allclose(vectors, exact, atol=1e-3)
    assert again == pytest.approx(vectors, abs=1e-6)


def test_what_is_refused(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else name)
        with pytest.raises(ImportError, match=r'onnxscript: pip install "modeling-tempoformer\[onnx\]"'):
            rank(folder, "refused", "--encoder_backend", "onnx-int8")
    pytest.importorskip("onnxscript")
    dated_bert().save_pretrained(folder / "model")
    with pytest.raises(ValueError, match="knows when a text was written"):
        rank(folder, "refused", "--encoder_backend", "onnx-int8")
