"""The tables of the paper from runs that are there, and what is shown for those that are not."""

import csv
import json
import sys
from pathlib import Path

import pytest
import torch
from helpers import write_posts
from safetensors.torch import save_file
from sklearn.metrics import f1_score

from benchmarks import paper
from modeling_tempoformer.training.cross_validation import Run, collect
from modeling_tempoformer.training.recipes import parse
from modeling_tempoformer.training.stream_trainer import StreamTrainingArguments
from run_glue_style import DataTrainingArguments, ModelArguments


NAMES = ["No-Switch", "Switch"]
ACTUAL = [0, 1, 1, 0, 1, 0, 0, 1]
OURS, THEIRS = [0, 1, 1, 0, 1, 0, 1, 1], [0, 0, 1, 0, 0, 0, 1, 1]


def make_runs(output: Path, row: str, predicted: dict[int, list[int]]):
    """Two folds of two timelines under each seed, as if they had been run."""
    runs = []
    for seed, classes in predicted.items():
        for fold in (0, 1):
            run = Run(output / row, output / "folds.json", fold, "1e-4", seed, [], Path("script"), {})
            run.folder.mkdir(parents=True)
            rows = [
                {
                    "post_id": str(post),
                    "timeline_id": f"t{post // 2}",
                    "label": NAMES[ACTUAL[post]],
                    "prediction": NAMES[classes[post]],
                }
                for post in range(4 * fold, 4 * fold + 4)
            ]
            write_posts(run.folder / "_predictions.csv", rows)
            scores = {"eval_macro_f1": 0.5, "train_runtime": 10.0 + fold}
            (run.folder / "all_results.json").write_text(json.dumps(scores))
            save_file({"a": torch.zeros(300, 100), "b": torch.zeros(5000)}, run.folder / "model.safetensors")
            runs.append(run)
    collect(output / row, runs, NAMES)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Collects a table of the paper and reads its CSV, by row."""

    def call(number: int, *arguments: str) -> dict[str, dict[str, str]]:
        monkeypatch.setattr(
            sys,
            "argv",
            ["paper", "--table", str(number), "--corpus", "lrs", "--train_file", "none", "--output_dir", str(tmp_path)]
            + ["--collect", *arguments],
        )
        paper.main()
        with (tmp_path / f"table_{number}.csv").open(newline="") as file:
            return {row[""]: row for row in csv.DictReader(file)}

    return call


def macro(predicted: list[int]) -> float:
    return 100 * f1_score(ACTUAL, predicted, average="macro")


def test_methods_with_their_spread_and_their_difference_to_a_baseline(tmp_path, table):
    make_runs(tmp_path, "tempoformer", {0: OURS, 1: ACTUAL})
    make_runs(tmp_path, "bilstm", {0: THEIRS})
    rows = table(2)
    ours, theirs = rows["TempoFormer"], rows["BiLSTM"]
    mean, spread = (100 + macro(OURS)) / 2, (100 - macro(OURS)) / 2**0.5
    assert ours["macro F1"] == f"{mean:.1f} ± {spread:.1f}" and ours["seeds"] == "2"
    assert theirs["macro F1"] == f"{macro(THEIRS):.1f}"
    assert theirs["F1 Switch"] == f"{100 * f1_score(ACTUAL, THEIRS):.1f}"
    # Paired under the seed that both have.
    assert ours["less BiLSTM (95 %)"].startswith(f"{macro(OURS) - macro(THEIRS):+.1f} (")
    assert theirs["less BiLSTM (95 %)"] == ""
    assert (tmp_path / "tempoformer" / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")
    assert rows["SWNU"] == {**dict.fromkeys(rows["SWNU"], ""), "": "SWNU", "macro F1": "not run"}
    assert f"| TempoFormer | {ours['macro F1']} |" in (tmp_path / "table_2.md").read_text()


def test_training_time_is_that_of_a_fold(tmp_path, table):
    make_runs(tmp_path, "bilstm", {0: THEIRS})
    rows = table(6)
    assert rows["BiLSTM"] == {"": "BiLSTM", "parameters": "0.04 M", "training of a fold": "10 s"}
    assert rows["TempoFormer"]["parameters"] == "not run"
    results = json.loads((tmp_path / "bilstm" / "results.json").read_text())
    assert results["parameters"] == 35_000 and results["train_seconds"] == 10.5


def test_windows_and_their_figure(tmp_path, table):
    make_runs(tmp_path, "bilstm", {0: THEIRS})
    make_runs(tmp_path, "bilstm_window_5", {0: OURS})
    rows = table(8)
    assert rows["BiLSTM"] == {
        "": "BiLSTM",
        "w = 5": f"{macro(OURS):.1f}",
        "w = 10": "not run",
        "w = 20": f"{macro(THEIRS):.1f}",
    }
    assert (tmp_path / "figure_3.png").read_bytes().startswith(b"\x89PNG")


def test_every_recipe_of_a_row_is_there():
    recipes = {recipe for recipes, _ in paper.ROWS.values() for recipe in recipes}
    present = {path.stem for path in (paper.ROOT / "configuration").glob("*.yaml")}
    # Those of the paper's encoders differ by --model_name_or_path alone.
    assert recipes <= present
    rest = {name for name in present - recipes if name.startswith(("variant_", "baseline_"))}
    assert rest == {"variant_tempoformer_bert", "variant_tempoformer_roberta"}


def record(monkeypatch, codes: tuple[int, ...] = ()) -> list[list[str]]:
    """The commands that are run; the first ones end with these statuses, others with 0."""
    commands = []

    def call(command, **settings):
        commands.append(command[1:])
        return codes[len(commands) - 1] if len(commands) <= len(codes) else 0

    monkeypatch.setattr(paper, "call_process", call)
    return commands


def test_a_row_is_run_by_the_cross_validation_script(tmp_path, monkeypatch):
    commands = record(monkeypatch)
    arguments = [
        "--corpus",
        "lrs",
        "--train_file",
        "posts",
        "--model_name_or_path",
        "M",
        "--output_dir",
        str(tmp_path),
    ]
    monkeypatch.setattr(
        sys, "argv", ["paper", "--table", "2", *arguments, "--rows", "SWNU", "few-shot, post, 5 examples"]
    )
    paper.main()
    # Few-shot prompting has no LLM.
    (command,) = commands
    assert command[0].endswith("run_cross_validation.py")
    own, passed_on = command[: command.index("--")], command[command.index("--") + 1 :]
    assert own[own.index("--learning_rates") + 1 :] == ["5e-4", "3e-4"]
    assert passed_on[:2] == ["configuration/lrs_fast.yaml", "configuration/baseline_swnu.yaml"]
    assert passed_on[2:4] == ["--model_name_or_path", "M"]


def commands_of(monkeypatch, tmp_path, *arguments: str) -> dict[str, list[str]]:
    """The command of each row, by its output folder."""
    commands = record(monkeypatch)
    settings = ["--corpus", "moc", "--train_file", "posts", "--model_name_or_path", "M", "--output_dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["paper", *settings, *arguments])
    paper.main()
    return {Path(command[command.index("--output_dir") + 1]).name: command for command in commands}


def test_few_shot_prompting_has_rows_of_5_and_10_examples(tmp_path, monkeypatch):
    commands = commands_of(monkeypatch, tmp_path, "--table", "2", "--llm", "L")
    monkeypatch.chdir(paper.ROOT)
    found = set()
    for row, command in commands.items():
        if row.startswith("few-shot"):
            model, data = parse(
                [ModelArguments, DataTrainingArguments], command[command.index("--") + 1 :], only_these=False
            )
            assert model.model_name_or_path == "L" and f"{model.num_examples}_examples" in row
            found.add((data.window, model.num_examples))
    assert found == {(1, 5), (1, 10), (5, 5), (5, 10)}


def test_a_row_that_fails_stops_no_other(tmp_path, table, monkeypatch, capsys):
    make_runs(tmp_path, "robert", {0: OURS})
    make_runs(tmp_path, "tempoformer", {0: OURS})
    log = tmp_path / "robert" / "fold_0" / "run.log"
    log.write_text("out of memory")
    commands = record(monkeypatch, codes=(0, 3))
    arguments = ["--table", "4", "--corpus", "lrs", "--train_file", "none", "--output_dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["paper", *arguments, "--model_name_or_path", "M", "--baseline", "RoBERT"])
    with pytest.raises(SystemExit) as ended:
        paper.main()
    assert ended.value.code == 1 and len(commands) == 6
    assert f"RoBERT failed with exit status 3: see above and {log}" in capsys.readouterr().out.splitlines()
    with (tmp_path / "table_4.csv").open(newline="") as file:
        rows = {row[""]: row for row in csv.DictReader(file)}
    # Whatever it had reached before: that was by another command, or of other posts.
    assert rows["RoBERT"]["macro F1"] == "failed" and rows["post alone"]["macro F1"] == "not run"
    assert rows["TempoFormer"]["macro F1"] == f"{macro(OURS):.1f}"
    assert rows["TempoFormer"]["less RoBERT (95 %)"] == "failed"


def test_a_baseline_that_was_not_run_is_said(tmp_path, table):
    make_runs(tmp_path, "tempoformer", {0: OURS})
    assert table(2)["TempoFormer"]["less BiLSTM (95 %)"] == "not run"


def test_tables_that_share_a_row_run_it_by_the_same_command(tmp_path, monkeypatch):
    """TalkLife's recipe has a window of 10, which is one of table 8."""
    of_methods, of_windows = (commands_of(monkeypatch, tmp_path, "--table", table) for table in ("2", "8"))
    shared = of_methods.keys() & of_windows.keys()
    assert shared == {"bilstm", "robert", "tempoformer", "rotempoformer"} | {
        "tempoformer_stream_residual",
        "rotempoformer_stream_residual",
    }
    assert all(of_methods[row] == of_windows[row] for row in shared)
    assert of_windows["bilstm_window_5"][-6:-4] == ["--window", "5"]


def test_the_paper_s_settings_are_those_of_every_fine_tuned_row(tmp_path, monkeypatch):
    commands = commands_of(monkeypatch, tmp_path, "--table", "4", "--recipes", "paper", "--tune_on_first_fold")
    rates = {
        row: command[command.index("--learning_rates") + 1 : command.index("--tune_on_first_fold")]
        for row, command in commands.items()
    }
    assert rates["tempoformer"] == ["1e-5", "5e-6"] and rates["robert"] == ["1e-5", "5e-6", "1e-6"]
    for row, command in commands.items():
        arguments = command[command.index("--") + 1 :]
        monkeypatch.chdir(paper.ROOT)
        _, data, training = parse(
            [ModelArguments, DataTrainingArguments, StreamTrainingArguments],
            [*arguments, "--output_dir", str(tmp_path)],
        )
        assert training.per_device_train_batch_size * training.gradient_accumulation_steps == 3, row
        assert data.targets_per_row == 1 and data.max_seq_length == 512, row


def test_a_measured_table_5_is_shown_again(tmp_path, table):
    (tmp_path / "table_5.csv").write_text(",value\ncosine,0.42\n")
    (tmp_path / "table_5.md").write_text("| | value |\n")
    assert table(5) == {"cosine": {"": "cosine", "value": "0.42"}}


def test_counts_are_whole_numbers_and_means_are_not():
    rows = paper.listed({"posts": 5, "per_timeline": {"mean": 2.5, "most": 4}}, digits=2)
    assert rows == [
        {"": "posts", "value": "5"},
        {"": "per timeline, mean", "value": "2.50"},
        {"": "per timeline, most", "value": "4"},
    ]
