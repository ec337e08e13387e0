"""Files of results are whole or not there."""

from pathlib import Path

import pandas as pd
import pytest
import torch
from helpers import read_json

from modeling_tempoformer.data.files import write_json, written_whole
from modeling_tempoformer.evaluation.predictions import write_predictions
from modeling_tempoformer.semantic_change.report import ranked_table, write_report
from modeling_tempoformer.training.hub_trainer import HubTrainer, HubTrainingArguments


def write_half(table: pd.DataFrame, path: Path, **settings):
    path.write_text("post_id,predi")
    raise KeyboardInterrupt


def test_an_interrupted_write_leaves_the_file_before(tmp_path, monkeypatch):
    write_predictions(tmp_path, [{"post_id": "1", "prediction": "O"}])
    write_json(tmp_path / "all_results.json", {"test": 1})
    scores, counts = {"apd": {"plane": 0.5, "tree": 0.1}}, {word: {"old": 3, "new": 4} for word in ("plane", "tree")}
    times = ["old", "new"]
    write_report(tmp_path, ranked_table(scores, counts), times)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {"_predictions.csv", "all_results.json", "changes.csv", "results.json"} <= set(before)
    with monkeypatch.context() as patch:
        patch.setattr(pd.DataFrame, "to_csv", write_half)
        with pytest.raises(KeyboardInterrupt):
            write_predictions(tmp_path, [{"post_id": "2", "prediction": "IE"}])
        with pytest.raises(KeyboardInterrupt):
            write_report(tmp_path, ranked_table({"apd": {"plane": 0.9, "tree": 0.9}}, counts), times)
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "all_results.json") as partial:
        partial.write_text("{")
        raise KeyboardInterrupt
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("content", ["", '{"eval_loss": ', '{"predict_macro_f1": 0.99}'])
def test_results_of_an_earlier_run_neither_stay_nor_end_the_next(tmp_path, content):
    (tmp_path / "all_results.json").write_text(content)
    trainer = HubTrainer(torch.nn.Linear(1, 1), HubTrainingArguments(output_dir=str(tmp_path), use_cpu=True))
    trainer.save_metrics("eval", {"eval_loss": 0.5})
    assert read_json(tmp_path / "all_results.json") == {"eval_loss": 0.5}
