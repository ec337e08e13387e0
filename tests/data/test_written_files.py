"""Files of results are whole or not there."""

from pathlib import Path

import pandas as pd
import pytest

from modeling_tempoformer.data.files import write_json, written_whole
from modeling_tempoformer.evaluation.predictions import write_predictions


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
