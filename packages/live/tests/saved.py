"""Saves a model for the tests of the app, in a folder and on a Hub."""

from pathlib import Path

from helpers import CHANGES, ROOT, tiny_encoder, tiny_model
from huggingface_hub import HfApi
from transformers import AutoTokenizer

from modeling_tempoformer import CardContent, write_card


def save_model(folder: Path, **settings) -> str:
    """Saves a tiny model with its card, and returns the folder's name."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "tokenization")
    encoder = {**tiny_encoder(), "vocab_size": len(tokenizer), "initializer_range": 0.3}
    model = tiny_model(**CHANGES, encoder_config=encoder, **settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_card(model, folder, CardContent(repo_id="me/mine", license="mit"))
    return str(folder)


def push_folder(folder: Path | str, name: str):
    HfApi().create_repo(name)
    HfApi().upload_folder(folder_path=folder, repo_id=name)
