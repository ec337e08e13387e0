"""Checks that data cannot run code, reach the network or take over a page, and that no token is written down."""

import pickle
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pytest
import torch
from helpers import dated_config, save_encoder, tiny_model
from helpers import make_trainer as make_stock_trainer
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    TempoFormerForStreamClassification,
    TempoFormerModel,
)
from modeling_tempoformer.evaluation.figures import confusion_figure
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments
from research.baselines.history import load_embedder
from research.conversion import main as convert
from semantic_change.report import plot_scores, ranked_table


class Bomb:
    """An object whose pickle creates a file in the process that reads it."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def exploded(tmp_path) -> Path:
    """Returns the path of the file that a malicious pickle creates when it is loaded."""
    return tmp_path / "exploded"


def plant(file: Path, exploded: Path):
    """Writes a malicious pickle, as torch.save does."""
    torch.save({"weight": Bomb(exploded)}, file)


def save_model(folder: Path):
    tiny_model().save_pretrained(folder)


def save_dated(folder: Path):
    BertWithTemporalAttentionForMaskedLM(dated_config()).save_pretrained(folder)


def remote(folder: Path):
    return AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)


LOADERS: dict[str, tuple[Callable, Callable]] = {
    "the model": (save_model, TempoFormerForStreamClassification.from_pretrained),
    "its base": (save_model, TempoFormerModel.from_pretrained),
    "remote code": (save_model, remote),
    "a model of dated texts": (save_dated, AutoModelForMaskedLM.from_pretrained),
    "a new model on an encoder": (save_encoder, TempoFormerForStreamClassification.from_encoder_pretrained),
    "an encoder given time": (
        save_encoder,
        lambda folder: BertWithTemporalAttentionForMaskedLM.from_pretrained(folder, times=["1"]),
    ),
    "frozen embeddings": (save_encoder, lambda folder: load_embedder(str(folder), {})),
}


@pytest.mark.parametrize(("save", "load"), LOADERS.values(), ids=LOADERS)
def test_weights_are_never_read_from_a_pickle(tmp_path, exploded, save, load):
    folder = tmp_path / "saved"
    save(folder)
    (folder / "model.safetensors").unlink()
    plant(folder / "pytorch_model.bin", exploded)
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        load(folder)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(exploded)))
    with pytest.raises(Exception, match="header"):
        load(folder)
    assert not exploded.exists()


def test_the_converter_runs_no_code_of_a_checkpoint(tmp_path, monkeypatch, exploded):
    plant(tmp_path / "published.pt", exploded)
    monkeypatch.setattr("sys.argv", ["conversion", str(tmp_path / "published.pt"), "out", "--encoder", "none"])
    with pytest.raises(UnpicklingError, match="weights_only"):
        convert()
    assert not exploded.exists()


# Texts with a line break and a terminal's command, a formula, table cells, and code for a browser.
NASTY = ["a\nb\x1b[31m", r"$\frac$", "| x |", "<script>alert(1)</script>"]


def test_figures_show_text_as_text(tmp_path):
    """Matplotlib would fail on a wrong formula and would typeset a right one."""
    words = ranked_table({"apd": dict.fromkeys(NASTY, 1.0)}, dict.fromkeys(NASTY, {}))
    plot_scores(words, NASTY[:2]).savefig(tmp_path / "changes.png")
    figure = confusion_figure([0, 1], [0, 1], [r"$\frac$", "$x$"])
    figure.savefig(tmp_path / "confusion.png")
    labels = [*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels()]
    assert [label.get_text() for label in labels] == [r"$\frac$", "$x$"] * 2
    assert not any(label.get_parse_math() for label in labels)


TOKEN, OTHER_TOKEN = "hf_ThisIsNoTokenOfAnyone12345678901", "hf_NorIsThisOneWhichIsInTheEnvironme"


def test_tokens_are_not_written_anywhere(tmp_path, tokenization, monkeypatch, caplog, capfd):
    monkeypatch.setenv("HF_TOKEN", OTHER_TOKEN)
    caplog.set_level("DEBUG")
    stock = make_stock_trainer(tmp_path / "stock", tokenization)
    settings: dict[str, Any] = {"hub_token": TOKEN, "logging_steps": 1, "log_level": "debug", "save_steps": 1}
    quick = {"max_steps": 1, "report_to": "none", "use_cpu": True}
    trainer = StreamTrainer(
        model=stock.model,
        args=StreamTrainingArguments(str(tmp_path / "out"), **settings, **quick),
        train_dataset=stock.train_dataset,
        processing_class=stock.processing_class,
        data_collator=stock.data_collator,
    )
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    files = {path.relative_to(tmp_path / "out"): path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    names = {"training_args.bin", "config.json", "README.md", "checkpoint-1/training_args.bin"}
    assert names <= {str(name) for name in files}
    args = trainer.args
    texts = [caplog.text, *capfd.readouterr(), str(args), repr(args), str(args.to_dict()), args.to_json_string()]
    texts += [str(args.to_sanitized_dict()), trainer.model.config.to_json_string()]
    for token in (TOKEN, OTHER_TOKEN):
        assert [name for name, path in files.items() if token.encode() in path.read_bytes()] == []
        assert not any(token in text for text in texts)
