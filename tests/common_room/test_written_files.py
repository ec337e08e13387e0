"""Checks that files of results are written whole or not at all."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from modeling_tempoformer.common.files import lock_folder, write_json, written_whole
from modeling_tempoformer.evaluation.prediction_table import write_predictions


resource = pytest.importorskip("resource")


def write_half(table: pd.DataFrame, path: Path, **settings):
    path.write_text("post_id,predi")
    raise KeyboardInterrupt


def test_an_interrupted_write_leaves_the_file_before(tmp_path, monkeypatch):
    write_predictions(tmp_path, [{"post_id": "1", "prediction": "O"}])
    write_json(tmp_path / "all_results.json", {"test": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(pd.DataFrame, "to_csv", write_half)
        with pytest.raises(KeyboardInterrupt):
            write_predictions(tmp_path, [{"post_id": "2", "prediction": "IE"}])
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "all_results.json") as partial:
        partial.write_text("{")
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    "write",
    [
        lambda path: save_file({"weight": torch.zeros(100_000)}, path),
        lambda path: torch.save({"weight": torch.zeros(100_000)}, path),
        lambda path: np.save(path, np.zeros(100_000)),
    ],
    ids=["weights", "state of a training", "vectors"],
)
def test_a_full_disk_is_an_error_of_files_whoever_writes(tmp_path, write):
    """A limit of 1,000 bytes for a file stands in for a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match=f"{tmp_path}.*again"), lock_folder(tmp_path):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
            write(tmp_path / "new.npy")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    # An error of another kind is unchanged.
    with pytest.raises(KeyError), lock_folder(tmp_path):
        raise KeyError("text")
