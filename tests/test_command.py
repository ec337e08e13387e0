"""Checks the command `tempoformer`: what it imports, and that its subcommands do what the scripts do."""

import os
import re
import runpy
import subprocess
import sys
from dataclasses import fields
from itertools import chain

import pytest
from helpers import NAMES, ROOT, read_json, read_table, save_encoder, write_posts, write_table
from transformers import HfArgumentParser, TrainingArguments

import tempoformer
from modeling_tempoformer.commands import compare, predict, train
from modeling_tempoformer.common.columns import read_columns
from modeling_tempoformer.common.command_line import find_recipe, parse
from modeling_tempoformer.common.renamed_options import RENAMED
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.training.fine_tuning import ARGUMENTS


POSTS = list(synthetic_posts(12, seed=0, posts_per_timeline=5))


def test_help_and_a_mistake_import_no_library():
    """They name each subcommand, and end before the seconds that the package takes."""
    code = "import sys, tempoformer\nsys.argv[1:] = {}\ntry:\n    tempoformer.main()\nfinally:\n    "
    code += "print(*[name for name in ('torch', 'transformers', 'modeling_tempoformer') if name in sys.modules])"
    names = [*tempoformer.COMMANDS, *chain.from_iterable(tempoformer.ELSEWHERE.values())]
    for arguments, status in ((["--help"], 0), (["fly"], 2), ([], 2)):
        command = [sys.executable, "-c", code.format(arguments)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        *lines, imported = done.stdout.split("\n")[:-1]
        assert done.returncode == status and imported == ""
        if arguments:
            assert all(name in "".join(lines) + done.stderr for name in names)


def test_the_help_of_a_training_is_two_screens_of_options_that_exist(monkeypatch, capsys):
    """It needs no library; `--help all` lists every option."""
    code = "import sys, tempoformer\nsys.argv[1:] = ['train', '--help']\ntempoformer.main()\n"
    code += "print(*[name for name in ('torch', 'transformers', 'modeling_tempoformer') if name in sys.modules])"
    *lines, imported = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")[:-1]
    assert imported == "" and len(lines) <= 48 and max(map(len, lines)) <= 80
    monkeypatch.setattr(sys, "argv", ["tempoformer", "train", "--help", "all"])
    with pytest.raises(SystemExit):
        tempoformer.main()
    everything = set(re.findall(r"--\w+", capsys.readouterr().out))
    shown = set(re.findall(r"--\w+", "\n".join(lines))) - {"--help"}
    assert len(shown) > 30 and shown <= everything and {"--bf16", "--targets_per_row"} <= everything


def test_an_option_that_was_renamed_is_one_sentence_with_the_new_spelling(tmp_path, capsys):
    """On the command line, in a recipe and after `--`; what is to be given exists."""
    given = ["--model_name_or_path", "x", "--train_file", "posts.csv", "--output_dir", str(tmp_path / "out")]
    parser = HfArgumentParser(ARGUMENTS, allow_abbrev=False)
    options = {option for action in parser._actions for option in action.option_strings}
    for name, instead in RENAMED.items():
        recipe = tmp_path / f"{name}.yaml"
        recipe.write_text(f"{name}: 1\n", encoding="utf-8")
        for command in ([*given, f"--{name}", "1"], [*given, f"--{name.replace('_', '-')}=1"], [str(recipe), *given]):
            with pytest.raises(ValueError, match=re.escape(f"--{name} is gone: {instead}.")):
                train.main(command)
        with pytest.raises(ValueError, match=re.escape(instead)):
            compare.main(["--output_dir", str(tmp_path / "out"), "--", *given, f"--{name}", "1"])
        assert f"--{name}" not in options
        if instead.startswith("give"):
            assert re.findall(r"--\w+", instead)[0] in options
    output_dir = ["--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match="--methods tempoformer is gone: give --methods default."):
        compare.main([*output_dir, "--methods", "trees", "tempoformer", "--", *given])
    assert not (tmp_path / "out").exists()


def test_a_training_has_at_most_so_many_options_of_its_own():
    library = {field.name for field in fields(TrainingArguments)}
    options = {field.name for kind in ARGUMENTS for field in fields(kind) if field.init} - library
    assert len(options) <= 44, sorted(options)


def test_a_command_whose_package_is_not_installed_says_which(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["tempoformer", "serve"])
    # No installed package is found.
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(SystemExit, match=r"pip install .*packages/live"):
        tempoformer.main()


def test_train_and_predict_take_the_steps_of_the_script_by_default(tmp_path, monkeypatch):
    """In another folder: the recipe is the package's."""
    encoder, posts = save_encoder(tmp_path / "encoder"), write_posts(tmp_path / "posts.csv", POSTS)
    monkeypatch.chdir(tmp_path)
    settings = ["--max_steps", "2", "--config_overrides", '{"num_trees": 2}', "--report_to", "none"]
    train.main(
        ["default.yaml", "--model_name_or_path", encoder, "--train_file", posts, "--output_dir", "out", *settings]
    )
    assert set(read_json(tmp_path / "out" / "all_results.json")) == {"train", "validation", "test"}
    write_posts(tmp_path / "new.csv", [{**post, "label": ""} for post in POSTS])
    given = ["--model_name_or_path", "out", "--test_file", "new.csv", "--report_to", "none"]
    predict.main([*given, "--output_dir", "new"])
    monkeypatch.setattr(sys, "argv", ["run_glue_style.py", *given, "--do_predict", "--output_dir", "same"])
    runpy.run_path(str(ROOT / "run_glue_style.py"), run_name="__main__")
    new, same = (read_table(tmp_path / name / "_predictions.csv") for name in ("new", "same"))
    assert [row["prediction"] for row in new] == [row["prediction"] for row in same]
    assert len(new) == len(POSTS) and {row["prediction"] for row in new} <= set(NAMES)
    for word in ("--do_train", "--do_train=true"):
        with pytest.raises(ValueError, match="tempoformer train"):
            predict.main([*given, word, "--output_dir", "new"])


def test_recipes_of_the_package_are_found_everywhere_and_own_files_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("lrs_paper.yaml", "configuration/lrs_paper.yaml"):
        (data,) = parse([DataTrainingArguments], [name], only_these=False)
        assert (read_columns(data.columns)["id"], data.window) == ("post_id", 20)
    (tmp_path / "lrs_paper.yaml").write_text("window: 7\n")
    (data,) = parse([DataTrainingArguments], ["lrs_paper.yaml"], only_these=False)
    assert (read_columns(data.columns), data.window) == ({}, 7)
    for name in ("no_such.yaml", "elsewhere/default.yaml", "bert_tiny.json"):
        with pytest.raises(ValueError, match=f"{name}.*default.yaml"):
            find_recipe(name)


def test_a_file_of_posts_may_stand_first(tmp_path, monkeypatch):
    """Also one of JSON, as other commands have recipes there."""
    posts = write_table(tmp_path / "posts.json", [{**post, "label": ""} for post in POSTS])
    output = tmp_path / "to_label.csv"
    arguments = ["select", posts, "--num", "3", "--stretch", "2", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["tempoformer", *arguments])
    tempoformer.main()
    assert sum(row["stretch"] != "" for row in read_table(output)) == 6


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_waiting_threads_spin_little_unless_the_environment_says_how(given, spins, tmp_path, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        # Set first, so that it is deleted again after the test.
        monkeypatch.setenv(name, given.get(name, ""))
        if name not in given:
            monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "argv", ["tempoformer", "convert", str(tmp_path / "none.csv"), "--output", "posts.csv"])
    with pytest.raises(SystemExit, match="none.csv"):
        tempoformer.main()
    assert os.environ.get("GOMP_SPINCOUNT") == spins
