"""Checks the tables of the paper, and the commands of their runs."""

import pytest

from modeling_tempoformer.common.columns import read_columns
from modeling_tempoformer.common.command_line import parse
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.training.arguments import ModelArguments
from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments
from research import paper_tables
from research.baselines.base import PAPER_BASELINES


pytestmark = pytest.mark.slow


@pytest.fixture
def runs_of(tmp_path, monkeypatch):
    """Returns the arguments of the cross-validation in a row's command, and the parsed arguments of its runs."""
    monkeypatch.chdir(paper_tables.ROOT)

    def call(row: str, *arguments: str, window: int | None = None):
        settings = ["--table", "2", "--corpus", "moc", "--train_file", "posts", "--model_name_or_path", "M"]
        args = paper_tables.parse_args([*settings, "--output_dir", str(tmp_path), *arguments])
        command = paper_tables.command(args, row, window)
        assert command[1:3] == ["-m", "research.run_cross_validation"]
        separator = command.index("--")
        run = [*command[separator + 1 :], "--output_dir", str(tmp_path)]
        kind = PAPER_BASELINES.read(run)[0] if any("baselines/" in part for part in command) else ModelArguments
        return command[3:separator], *parse([kind, DataTrainingArguments, StreamTrainingArguments], run)

    return call


@pytest.mark.parametrize("recipes", ["fast", "paper"])
def test_the_command_of_every_row_parses(runs_of, recipes):
    for row, (_, kind) in paper_tables.ROWS.items():
        options, model, data, training = runs_of(row, "--recipes", recipes, "--llm", "L", "--tune_on_first_fold")
        assert read_columns(data.columns)["id"] == "post_id"
        assert ("--learning_rates" in options) == (kind is not None)
        if row in paper_tables.FEW_SHOT:
            _, number = paper_tables.FEW_SHOT[row]
            assert (model.model_name_or_path, model.num_examples, model.corpus) == ("L", number, "moc")
            assert data.window == (5 if "stream" in row else 1)
        elif row != "class prior":
            assert model.model_name_or_path == "M"
        if kind in ("tempoformer", "encoder"):
            assert training.num_train_epochs == 4, row
        if recipes == "paper" and kind in ("tempoformer", "encoder"):
            # Every fine-tuned row has the paper's settings.
            assert training.per_device_train_batch_size * training.gradient_accumulation_steps == 3, row
            assert data.targets_per_row == 1 and data.max_seq_length == 512, row
            rates = options[options.index("--learning_rates") + 1 : options.index("--tune_on_first_fold")]
            assert rates == ["1e-5", "5e-6"] + (["1e-6"] if kind == "encoder" else [])


def test_tables_that_share_a_row_run_it_by_the_same_command(runs_of):
    """The window of TalkLife's recipe, 10, is one of table 8."""
    assert runs_of("BiLSTM", window=10) == runs_of("BiLSTM")
    options, _, data, _ = runs_of("BiLSTM", window=5)
    assert data.window == 5 and options[options.index("--output_dir") + 1].endswith("bilstm_window_5")
