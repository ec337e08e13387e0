"""The tables of the paper, and the commands of their runs."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from helpers import NAMES, write_posts

from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.training.arguments import ModelArguments
from modeling_tempoformer.training.recipes import parse
from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments
from research import paper_tables
from research.baselines.base import with_own_recipe
from research.cross_validation import Run, collect


pytestmark = pytest.mark.slow


def test_a_table_compares_its_rows_with_the_first(tmp_path, monkeypatch, capsys):
    def cross_validate(command: list[str], **settings) -> subprocess.CompletedProcess:
        folder = Path(command[command.index("--output_dir") + 1])
        run = Run(folder, 0, "1e-4", 0)
        run.folder.mkdir(parents=True)
        guess = NAMES[folder.name == "bilstm"]
        rows = [
            {"post_id": post, "timeline_id": post // 2, "label": NAMES[post % 2], "prediction": guess}
            | {f"probability_{name}": 0.5 for name in NAMES}
            for post in range(8)
        ]
        write_posts(run.folder / "_predictions.csv", rows)
        (run.folder / "all_results.json").write_text('{"train": {"seconds": 10, "parameters": 35000}, "test": {}}')
        collect(folder, [run], NAMES)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", cross_validate)
    settings = ["--corpus", "lrs", "--train_file", "none", "--model_name_or_path", "M", "--output_dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["paper_tables", "--table", "2", *settings, "--rows", "BiLSTM", "TempoFormer"])
    paper_tables.main()
    found = pd.read_csv(tmp_path / "comparison.csv", index_col="method")
    assert list(found.index) == ["bilstm", "tempoformer"]
    assert found.loc["tempoformer", "parameters"] == 35000
    assert "less bilstm (95 %)" in capsys.readouterr().out


@pytest.fixture
def runs_of(tmp_path, monkeypatch):
    """What the command of a row gives to each run, parsed, and the cross-validation's own arguments."""
    monkeypatch.chdir(paper_tables.ROOT)

    def call(row: str, *arguments: str, window: int | None = None):
        settings = ["--table", "2", "--corpus", "moc", "--train_file", "posts", "--model_name_or_path", "M"]
        args = paper_tables.parse_args([*settings, "--output_dir", str(tmp_path), *arguments])
        command = paper_tables.command(args, row, window)
        assert command[1:3] == ["-m", "research.run_cross_validation"]
        place = command.index("--")
        run = [*command[place + 1 :], "--output_dir", str(tmp_path)]
        kind = with_own_recipe(run)[0] if any("baselines/" in part for part in command) else ModelArguments
        return command[3:place], *parse([kind, DataTrainingArguments, StreamTrainingArguments], run)

    return call


@pytest.mark.parametrize("recipes", ["fast", "paper"])
def test_the_command_of_every_row_parses(runs_of, recipes):
    for row, (_, kind) in paper_tables.ROWS.items():
        own, model, data, training = runs_of(row, "--recipes", recipes, "--llm", "L", "--tune_on_first_fold")
        assert data.task_name == "moc"
        assert ("--learning_rates" in own) == (kind is not None)
        if row in paper_tables.FEW_SHOT:
            _, number = paper_tables.FEW_SHOT[row]
            assert (model.model_name_or_path, model.num_examples) == ("L", number)
            assert data.window == (5 if "stream" in row else 1)
        elif row != "class prior":
            assert model.model_name_or_path == "M"
        if kind in ("tempoformer", "encoder"):
            assert training.num_train_epochs == 4, row
        if recipes == "paper" and kind in ("tempoformer", "encoder"):
            # The paper's settings are those of every fine-tuned row.
            assert training.per_device_train_batch_size * training.gradient_accumulation_steps == 3, row
            assert data.targets_per_row == 1 and data.max_seq_length == 512, row
            rates = own[own.index("--learning_rates") + 1 : own.index("--tune_on_first_fold")]
            assert rates == ["1e-5", "5e-6"] + (["1e-6"] if kind == "encoder" else [])


def test_tables_that_share_a_row_run_it_by_the_same_command(runs_of):
    """TalkLife's recipe has a window of 10, which is one of table 8."""
    assert runs_of("BiLSTM", window=10) == runs_of("BiLSTM")
    own, _, data, _ = runs_of("BiLSTM", window=5)
    assert data.window == 5 and own[own.index("--output_dir") + 1].endswith("bilstm_window_5")
