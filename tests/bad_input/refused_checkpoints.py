"""Saved models that are refused; each function gets an empty folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from helpers import tiny_encoder, tiny_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from modeling_tempoformer import BertWithTemporalAttention, TempoFormerForStreamClassification


def saved(change: Callable[[Path], Any], load: Callable[[Path], Any] | None = None) -> Callable[[Path], Any]:
    """Loads a saved model whose folder was changed."""

    def run(folder: Path):
        tiny_model().save_pretrained(folder)
        change(folder)
        (load or AutoModelForSequenceClassification.from_pretrained)(folder)

    return run


def change_weights(change: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    def rewrite(folder: Path):
        path = folder / "model.safetensors"
        path.write_bytes(change(path.read_bytes()))

    return rewrite


def other_shape(folder: Path):
    weights = load_file(folder / "model.safetensors")
    name = "classifier.mlp.0.weight"
    save_file({**weights, name: weights[name][:, 1:].contiguous()}, folder / "model.safetensors", {"format": "pt"})


def to_pickle(folder: Path):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def change_config(**fields) -> Callable[[Path], Any]:
    def rewrite(folder: Path):
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return rewrite


def pickled_encoder(load: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Loads an encoder whose weights are a pickle."""

    def run(folder: Path):
        AutoModel.from_config(AutoConfig.for_model(**tiny_encoder())).save_pretrained(folder)
        to_pickle(folder)
        load(folder)

    return run


CHECKPOINTS = {
    "safetensors cut short": (
        saved(change_weights(lambda content: content[: len(content) // 2])),
        "",
        "SafetensorError",
    ),
    "a tensor of another shape": (saved(other_shape), "", "RuntimeError"),
    "a pickle in the place of safetensors": (saved(to_pickle), "", "OSError"),
    "pickles asked for": (
        lambda folder: TempoFormerForStreamClassification.from_pretrained(folder, use_safetensors=False),
        "`use_safetensors=False`",
    ),
    "a pickled encoder": (pickled_encoder(TempoFormerForStreamClassification.from_encoder_pretrained), "", "OSError"),
    "a pickled encoder to give time to": (
        pickled_encoder(lambda folder: BertWithTemporalAttention.from_pretrained(folder, times=["1815", "1990"])),
        "",
        "OSError",
    ),
    "a configuration with a value that there is none of": (
        saved(change_config(stream_attention="causal")),
        "'stream_attention'…'temporal_rotary'…'rotary'",
    ),
    "a configuration whose values do not fit together": (
        saved(change_config(num_stream_layers=9)),
        "'validate_stream'…`num_stream_layers`",
    ),
    "a configuration of another family of encoders": (
        saved(change_config(encoder_config={"model_type": "gpt2"})),
        "'gpt2'",
    ),
    "a configuration of a decoder": (
        saved(change_config(encoder_config={**tiny_encoder(), "is_decoder": True})),
        "'bert'…`is_decoder=True`",
    ),
    "a configuration of an encoder that reads another's output": (
        saved(change_config(encoder_config={**tiny_encoder(), "add_cross_attention": True})),
        "'bert'…`add_cross_attention=True`",
    ),
}
