"""The tables of the paper from runs that are there, and the commands of runs that are not."""

import csv
import json
import sys
from pathlib import Path

import pytest
from helpers import NAMES, write_posts
from sklearn.metrics import f1_score

from benchmarks import paper
from modeling_tempoformer.baselines.base import with_own_recipe
from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.training.arguments import ModelArguments
from modeling_tempoformer.training.cross_validation import Run, collect
from modeling_tempoformer.training.recipes import parse
from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments


ACTUAL = [0, 1, 1, 0, 1, 0, 0, 1]
OURS, THEIRS = [0, 1, 1, 0, 1, 0, 1, 1], [0, 0, 1, 0, 0, 0, 1, 1]


def make_runs(output: Path, row: str, predicted: dict[int, list[int]]):
    """Two folds of two timelines under each seed, as if they had been run."""
    runs = []
    for seed, classes in predicted.items():
        for fold in (0, 1):
            run = Run(output / row, fold, "1e-4", seed)
            run.folder.mkdir(parents=True)
            rows = [
                {"post_id": post, "timeline_id": post // 2, "label": NAMES[ACTUAL[post]]}
                | {"prediction": NAMES[classes[post]]}
                | {f"probability_{name}": 0.5 for name in NAMES}
                for post in range(4 * fold, 4 * fold + 4)
            ]
            write_posts(run.folder / "_predictions.csv", rows)
            train = {"seconds": 10.0 + fold, "parameters": 35000}
            scores = {"validation": {"macro_f1": 0.5}, "train": train, "test": {}}
            (run.folder / "all_results.json").write_text(json.dumps(scores))
            runs.append(run)
    collect(output / row, runs, NAMES)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Makes a table of the paper and reads its CSV, by row."""

    def call(number: int, *arguments: str) -> dict[str, dict[str, str]]:
        settings = ["--corpus", "lrs", "--train_file", "none", "--output_dir", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["paper", "--table", str(number), *settings, *arguments])
        paper.main()
        with (tmp_path / f"table_{number}.csv").open(newline="") as file:
            return {row[""]: row for row in csv.DictReader(file)}

    return call


def macro(predicted: list[int]) -> float:
    return 100 * f1_score(ACTUAL, predicted, average="macro")


def test_methods_with_their_spread_and_their_difference_to_a_baseline(tmp_path, table):
    make_runs(tmp_path, "tempoformer", {0: OURS, 1: ACTUAL})
    make_runs(tmp_path, "bilstm", {0: THEIRS})
    rows = table(2, "--collect")
    ours, theirs = rows["TempoFormer"], rows["BiLSTM"]
    mean, spread = (100 + macro(OURS)) / 2, (100 - macro(OURS)) / 2**0.5
    assert ours["macro F1"] == f"{mean:.1f} ± {spread:.1f}" and ours["seeds"] == "2"
    assert theirs["macro F1"] == f"{macro(THEIRS):.1f}" and theirs["learning rate"] == "1e-4"
    assert theirs["F1 Switch"] == f"{100 * f1_score(ACTUAL, THEIRS):.1f}"
    # Paired under the seed that both have.
    assert ours["less BiLSTM (95 %)"].startswith(f"{macro(OURS) - macro(THEIRS):+.1f} (")
    assert theirs["less BiLSTM (95 %)"] == ""
    assert (tmp_path / "tempoformer" / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")
    assert rows["SWNU"] == {**dict.fromkeys(rows["SWNU"], ""), "": "SWNU", "macro F1": "not run"}
    assert f"| TempoFormer | {ours['macro F1']} |" in (tmp_path / "table_2.md").read_text()
    assert table(2, "--collect", "--baseline", "SWNU")["TempoFormer"]["less SWNU (95 %)"] == "not run"


def test_training_time_is_that_of_a_fold_and_windows_have_a_figure(tmp_path, table):
    make_runs(tmp_path, "bilstm", {0: THEIRS})
    make_runs(tmp_path, "bilstm_window_5", {0: OURS})
    rows = table(6, "--collect")
    # The folds took 10 and 11 seconds.
    assert rows["BiLSTM"] == {"": "BiLSTM", "parameters": "0.04 M", "training of a fold": "10 s"}
    assert rows["TempoFormer"]["parameters"] == "not run"
    cells = {"w = 5": f"{macro(OURS):.1f}", "w = 10": "not run", "w = 20": f"{macro(THEIRS):.1f}"}
    assert table(8, "--collect")["BiLSTM"] == {"": "BiLSTM", **cells}
    assert (tmp_path / "figure_3.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_row_that_fails_stops_no_other(tmp_path, table):
    make_runs(tmp_path, "robert", {0: OURS})
    make_runs(tmp_path, "tempoformer", {0: OURS})
    with pytest.raises(SystemExit) as ended:
        table(4, "--model_name_or_path", "M", "--baseline", "RoBERT", "--rows", "RoBERT")
    assert ended.value.code == 1
    with (tmp_path / "table_4.csv").open(newline="") as file:
        rows = {row[""]: row for row in csv.DictReader(file)}
    # Its results are of another command.
    assert rows["RoBERT"]["macro F1"] == "failed" and rows["post alone"]["macro F1"] == "not run"
    assert rows["TempoFormer"]["macro F1"] == f"{macro(OURS):.1f}"
    assert rows["TempoFormer"]["less RoBERT (95 %)"] == "failed"


@pytest.fixture
def runs_of(tmp_path, monkeypatch):
    """What the command of a row gives to each run, parsed, and the cross-validation's own arguments."""
    monkeypatch.chdir(paper.ROOT)

    def call(row: str, *arguments: str, window: int | None = None):
        settings = ["--table", "2", "--corpus", "moc", "--train_file", "posts", "--model_name_or_path", "M"]
        args = paper.parse_args([*settings, "--output_dir", str(tmp_path), *arguments])
        command = paper.Paper(args).command(row, window)
        assert command[1].endswith("run_cross_validation.py")
        place = command.index("--")
        run = [*command[place + 1 :], "--output_dir", str(tmp_path)]
        kind = with_own_recipe(run)[0] if any("baseline_" in part for part in command) else ModelArguments
        return command[2:place], *parse([kind, DataTrainingArguments, StreamTrainingArguments], run)

    return call


@pytest.mark.parametrize("recipes", ["fast", "paper"])
def test_the_command_of_every_row_parses(runs_of, recipes):
    for row, (_, kind) in paper.ROWS.items():
        own, model, data, training = runs_of(row, "--recipes", recipes, "--llm", "L", "--tune_on_first_fold")
        assert data.task_name == "moc"
        assert ("--learning_rates" in own) == (kind is not None)
        if row in paper.FEW_SHOT:
            _, number = paper.FEW_SHOT[row]
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
