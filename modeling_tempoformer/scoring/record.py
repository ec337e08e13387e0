"""What an output folder was begun with: a run goes on only with the same model, the same posts and settings."""

import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ..modeling_tempoformer import TempoFormerForStreamClassification
from .folders import Folder, Table


RECORD = "_begun_with.json"
NOT_OF_THE_MODEL = ("_name_or_path", "transformers_version")


def make_record(
    model: TempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
    tables: list[Table],
    columns: dict[str, str | None],
) -> dict[str, Any]:
    """All that decides which predictions come out: the columns' names, the model as SHA-256, and the input files."""
    settings = {f"{role}_column": column for role, column in columns.items()}
    files = [[table.name, table.size, table.changed] for table in tables]
    return {**settings, "model": fingerprint(model, tokenizer), "input_files": files}


def check_record(output: Folder, record: dict[str, Any]) -> bool:
    """
    Whether the folder is new: it has no record before all posts are sorted. Raises a `ValueError` that names what
    differs if it was begun with another record, or that it has other files.
    """
    before = output.read_json(RECORD)
    if before is None:
        if present := sorted(name for name in output.files() if not name.startswith("_")):
            raise ValueError(f"--output_dir {output.name} has other files ({present[0]}): give a new one.")
        return True
    for name, value in record.items():
        if before.get(name) != value:
            what = {"model": "another model", "input_files": "other input files"}
            said = what.get(name, f"--{name} {before.get(name)}, not {value}")
            raise ValueError(
                f"--output_dir {output.name} was begun with {said}: give another one, or delete it to start anew."
            )
    return False


def fingerprint(model: TempoFormerForStreamClassification, tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of the weights, the configuration and the tokenizer."""
    digest = hashlib.sha256()
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.name.encode() + path.read_bytes())
    # Not where the model is, nor who wrote it.
    config = {name: value for name, value in model.config.to_dict().items() if name not in NOT_OF_THE_MODEL}
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode() + weight.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
