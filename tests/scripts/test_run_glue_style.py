"""The script end to end, on a CSV of its own."""

import csv
import json
import os
import re
import runpy
import shutil
from argparse import ArgumentTypeError
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from helpers import ROOT, tiny_encoder, write_posts
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from modeling_tempoformer import TemporalRobertaConfig
from modeling_tempoformer.baselines import prompting
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.timelines import to_timelines
from modeling_tempoformer.evaluation.calibration import fit_temperature, tune_thresholds
from modeling_tempoformer.training.recipes import parse


@pytest.fixture
def script(monkeypatch):
    monkeypatch.chdir(ROOT)
    return runpy.run_path(str(ROOT / "run_glue_style.py"))["main"]


def test_own_csv_to_predictions(tmp_path, script):
    posts = list(synthetic_posts(10, seed=0, posts_per_timeline=5))
    posts = posts[::-1]
    posts[7]["label"] = ""
    write_posts(tmp_path / "posts.csv", posts)
    recipe = ["configuration/demo.yaml", "--train_file", str(tmp_path / "posts.csv"), "--output_dir", str(tmp_path)]
    script([*recipe, "--num_train_epochs", "1", "--window", "3", "--do_eval"])
    results = json.loads((tmp_path / "all_results.json").read_text())
    assert {"eval_macro_f1", "predict_macro_f1", "predict_f1_Switch", "train_loss"} <= set(results)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["window"] == 3 and len(config["class_weights"]) == 2
    assert (tmp_path / "modeling_tempoformer.py").exists() and (tmp_path / "tokenizer.json").exists()
    with (tmp_path / "_predictions.csv").open(newline="") as file:
        predictions = list(csv.DictReader(file))
    assert len(predictions) == 10 and len({row["post_id"] for row in predictions}) == 10
    for row in predictions:
        post = posts[int(row["post_id"])]
        assert row["timeline_id"] == post["timeline_id"] and row["label"] == post["label"]
        scores = {name: float(row[f"probability_{name}"]) for name in ("No-Switch", "Switch")}
        assert row["prediction"] == max(scores, key=scores.get)
        assert sum(scores.values()) == pytest.approx(1.0, abs=1e-5)


def test_streamed_training_and_prediction_of_unlabelled_posts(tmp_path, script):
    posts = list(synthetic_posts(6, seed=0, posts_per_timeline=5))
    files = [f"--{name}_file={write_posts(tmp_path / f'{name}.csv', posts)}" for name in ("train", "validation")]
    output = ["--output_dir", str(tmp_path / "out")]
    script(["configuration/demo.yaml", "--streaming", "--max_steps", "2", "--do_predict", "false", *files, *output])
    assert json.loads((tmp_path / "out" / "all_results.json").read_text())["train_loss"] > 0
    assert "# out" in (tmp_path / "out" / "README.md").read_text()

    columns = ["timeline_id", "timestamp", "text"]
    unlabelled = write_posts(tmp_path / "new.csv", posts, columns)
    saved = ["--model_name_or_path", str(tmp_path / "out"), "--output_dir", str(tmp_path / "new")]
    with pytest.raises(ValueError, match="--window 3 cannot be given with a TempoFormer checkpoint; it has 4"):
        script([*saved, "--test_file", unlabelled, "--do_predict", "--window", "3"])
    script([*saved, "--test_file", unlabelled, "--do_predict"])
    with (tmp_path / "new" / "_predictions.csv").open(newline="") as file:
        predictions = list(csv.DictReader(file))
    assert [row["post_id"] for row in predictions] == [str(i) for i in range(len(posts))]
    assert {row["label"] for row in predictions} == {""}
    assert {row["prediction"] for row in predictions} <= {"No-Switch", "Switch"}


@pytest.mark.parametrize(
    ("arguments", "columns", "problem"),
    [
        (["--streaming"], None, "--streaming needs a validation part"),
        (["--test_file", "TRAIN"], ["timeline_id", "text", "label"], "validation.*False|timestamps and others not"),
        ([], ["timeline_id", "timestamp", "text"], "no column 'label' for the label"),
        (["--task_name", "lrs"], None, "not in the original form of --task_name lrs"),
        (["--task_name", "annomi"], None, "form of --task_name annomi .KeyError: 'transcript_id'"),
        (["--dataset_name", "x"], None, "Give --dataset_name or --train_file, not both"),
        (["--do_train", "false"], None, "encoder_tiny.json is no TempoFormer but a 'bert': without --do_train"),
        (
            ["--early_stopping_patience", "2", "--load_best_model_at_end", "false", "--eval_strategy", "no"],
            None,
            "needs --metric_for_best_model and --eval_strategy",
        ),
        (["--text_column", "body"], None, "no column 'body' for the text"),
        (["--labels", "No-Switch"], None, "value 'Switch': not one of the labels"),
        (["--timestamp_column", "created"], None, "no column 'created' for the timestamp"),
        (["--validation_file", "TRAIN"], None, "There is no test part"),
        (["--validation_file", "EMPTY"], None, "empty.csv has no rows"),
        (["--validation_file", "UNLABELLED", "--do_predict", "false"], None, "validation part has no labelled post"),
    ],
)
def test_what_cannot_work_is_said_before_training(tmp_path, script, arguments, columns, problem):
    posts = list(synthetic_posts(6, seed=0, posts_per_timeline=5))
    full, part = write_posts(tmp_path / "full.csv", posts), write_posts(tmp_path / "part.csv", posts, columns)
    files = {"TRAIN": full, "EMPTY": str(tmp_path / "empty.csv")}
    files["UNLABELLED"] = write_posts(tmp_path / "unlabelled.csv", posts, ["timeline_id", "timestamp", "text"])
    Path(files["EMPTY"]).write_text("timeline_id,timestamp,text,label\n")
    arguments = [files.get(argument, argument) for argument in arguments]
    recipe = ["configuration/demo.yaml", "--train_file", part, "--output_dir", str(tmp_path / "out")]
    with pytest.raises(ValueError, match=problem):
        script([*recipe, *arguments])


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("streaming", [False, True])
def test_posts_from_any_table(tmp_path, script, suffix, streaming):
    posts = [
        {"timeline_id": "007", "timestamp": "2024-05-01T09:00:00Z", "text": 'so "glad",\ttoday', "label": "Switch"},
        {"timeline_id": "007", "timestamp": "2024-05-01T10:00:00Z", "text": "NA", "label": ""},
        {"timeline_id": "8", "timestamp": "2024-05-02", "text": "", "label": "No-Switch"},
    ]
    path, table = str(tmp_path / f"posts.{suffix}"), pd.DataFrame(posts)
    {
        "csv": lambda: table.to_csv(path, index=False),
        "tsv": lambda: table.to_csv(path, index=False, sep="\t"),
        "jsonl": lambda: table.to_json(path, orient="records", lines=True),
        "json": lambda: table.to_json(path, orient="records"),
        "parquet": lambda: table.to_parquet(path),
    }[suffix]()
    load_posts = script.__globals__["load_posts"]
    timelines = list(to_timelines(load_posts(path, None, streaming), ["No-Switch", "Switch"]))
    assert [timeline["timeline_id"] for timeline in timelines] == ["007", "8"]
    assert timelines[0]["texts"] == ['so "glad",\ttoday', "NA"] and timelines[1]["texts"] == [""]
    assert timelines[0]["labels"] == [1, -100] and timelines[1]["labels"] == [0]
    assert timelines[0]["timestamps"] == [1714554000.0, 1714557600.0]


def test_a_dataset_by_its_name(tmp_path, script):
    """A folder of split files is a dataset to `datasets`, as a Hub id is."""
    folder = tmp_path / "posts"
    folder.mkdir()
    for name in ("train", "validation", "test"):
        write_posts(folder / f"{name}.csv", list(synthetic_posts(6, seed=0, posts_per_timeline=5)))
    output = [
        "--output_dir",
        str(tmp_path / "out"),
        "--max_steps",
        "2",
        "--eval_strategy",
        "no",
        "--save_strategy",
        "no",
    ]
    script(["configuration/demo.yaml", "--dataset_name", str(folder), "--load_best_model_at_end", "false", *output])
    with (tmp_path / "out" / "_predictions.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 30


def test_predictions_come_in_the_order_of_the_input(tmp_path, script):
    posts = list(synthetic_posts(6, seed=0, posts_per_timeline=5))
    mixed = [posts[i] for i in torch.randperm(30, generator=torch.Generator().manual_seed(0)).tolist()]
    files = [f"--{name}_file={write_posts(tmp_path / 'mixed.csv', mixed)}" for name in ("train", "validation", "test")]
    output = ["--output_dir", str(tmp_path / "out"), "--max_steps", "1"]
    script(["configuration/demo.yaml", *files, *output])
    with (tmp_path / "out" / "_predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["post_id"] for row in rows] == [str(number) for number in range(30)]
    assert [row["label"] for row in rows] == [post["label"] for post in mixed]

    again = ["--model_name_or_path", str(tmp_path / "out"), "--output_dir", str(tmp_path / "again"), *files[2:]]
    with pytest.raises(ValueError, match="--config_overrides .* cannot be given with a TempoFormer checkpoint"):
        script([*again, "--do_predict", "--config_overrides", '{"focal_gamma": 0.5}'])
    with pytest.raises(ValueError, match="--labels .*a.* cannot be given .*No-Switch"):
        script([*again, "--do_predict", "--labels", "a", "b"])


@pytest.mark.parametrize("method", ["concatenated", "bilstm"])
@pytest.mark.parametrize(
    "settings", [{"temporal_attention": "scaled"}, {"temporal_attention": "none", "prepend_time": True}]
)
def test_baselines_take_no_encoder_that_reads_times(tmp_path, script, method, settings):
    TemporalRobertaConfig(times=["1815", "1990"], **settings).save_pretrained(tmp_path / "temporal")
    with pytest.raises(ValueError, match=f"--method {method} cannot read an encoder with temporal attention"):
        run(script, tmp_path, str(tmp_path / "temporal"), "out", "--method", method)


@pytest.mark.parametrize("line", ["task_name: lsr", "learning_rate: fast", "do_train: perhaps"])
def test_recipe_values_are_checked(tmp_path, script, line, capsys):
    (tmp_path / "recipe.yaml").write_text(f"output_dir: out\nmodel_name_or_path: x\n{line}\n")
    with pytest.raises((SystemExit, ArgumentTypeError)) as problem:
        script([str(tmp_path / "recipe.yaml")])
    assert line.split()[1] in capsys.readouterr().err + str(problem.value)


def test_of_several_recipes_the_later_ones_win(tmp_path, script):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text("config_name: a\nmodel_name_or_path: b\nconfig_overrides: {head: lstm, fusion: none}\n")
    second.write_text("config_name: null\nconfig_overrides: {fusion: gate, num_stream_layers: 3}\n")
    model = parse([script.__globals__["ModelArguments"]], [str(first), str(second)])[0]
    assert model.config_name is None and model.model_name_or_path == "b"
    assert model.config_overrides == {"head": "lstm", "fusion": "gate", "num_stream_layers": 3}
    overrides = ["--config_overrides", '{"num_stream_layers": 4}']
    model = parse([script.__globals__["ModelArguments"]], [str(first), str(second), *overrides])[0]
    assert model.config_overrides == {"num_stream_layers": 4}


def test_unknown_recipe_entries_are_named(tmp_path, script, capsys):
    (tmp_path / "recipe.yaml").write_text("windoww: 3\n")
    with pytest.raises(SystemExit):
        script(["configuration/demo.yaml", str(tmp_path / "recipe.yaml")])
    assert "recipe.yaml has unknown arguments: windoww" in capsys.readouterr().err


@pytest.fixture
def encoder(tmp_path, tokenization) -> str:
    """A tiny encoder with its tokenizer, as a checkpoint."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    config = AutoConfig.for_model(**{**tiny_encoder(), "vocab_size": len(tokenizer)})
    AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    tokenizer.save_pretrained(tmp_path / "encoder")
    return str(tmp_path / "encoder")


def predictions_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "_predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def run(script, tmp_path: Path, encoder: str, name: str, *arguments: str) -> tuple[list[dict[str, str]], dict]:
    """Predictions and results of a short training on synthetic posts."""
    file = write_posts(tmp_path / "posts.csv", list(synthetic_posts(12, seed=0, posts_per_timeline=5)))
    output = tmp_path / name
    recipe = [argument for argument in arguments if argument.endswith(".yaml")]
    script(
        [
            *recipe,
            *("--model_name_or_path", encoder, "--train_file", file, "--output_dir", str(output), "--window", "3"),
            *("--num_train_epochs", "1", "--do_train", "--do_eval", "--do_predict", "--report_to", "none"),
            *(argument for argument in arguments if argument not in recipe),
        ]
    )
    with (output / "_predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file)), json.loads((output / "all_results.json").read_text())


@pytest.mark.parametrize("method", ["post", "concatenated", "ffn_history", "bilstm", "swnu", "seq_sig_net"])
def test_a_baseline_is_one_recipe_and_sees_the_same_posts(tmp_path, script, encoder, monkeypatch, method):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    ours, _ = run(script, tmp_path, encoder, "tempoformer")
    theirs, results = run(script, tmp_path, encoder, method, f"configuration/baseline_{method}.yaml")
    for column in ("post_id", "timeline_id", "label"):
        assert [row[column] for row in ours] == [row[column] for row in theirs]
    assert results["predict_support_Switch"] == [row["label"] for row in ours].count("Switch")
    right = [row["label"] == row["prediction"] == "Switch" for row in theirs].count(True)
    assert results["predict_recall_Switch"] == pytest.approx(right / results["predict_support_Switch"])


def test_the_recipe_to_compare_on_own_posts_takes_the_best_epoch(tmp_path, script, encoder):
    page = (ROOT / "docs" / "recipes.md").read_text()
    (recipe,) = re.findall(r'```yaml title="compare.yaml"\n(.*?)```', page, flags=re.DOTALL)
    (tmp_path / "compare.yaml").write_text(recipe)
    recipes = [str(tmp_path / "compare.yaml"), "configuration/baseline_bilstm.yaml"]
    _, results = run(script, tmp_path, encoder, "out", *recipes, "--num_train_epochs", "40", "--learning_rate", "0.05")
    log = json.loads((tmp_path / "out" / "trainer_state.json").read_text())["log_history"]
    scores = [entry["eval_macro_f1"] for entry in log if "eval_macro_f1" in entry]
    # What is evaluated after training is the best epoch's, of which three others were no better.
    assert results["eval_macro_f1"] == max(scores) == scores[-4] and len(scores) < 40


def test_a_baseline_takes_no_unknown_field(tmp_path, script, encoder):
    fields = ["--config_overrides", '{"lstm_hiden_size": 10}']
    with pytest.raises(ValueError, match="--config_overrides has unknown fields: lstm_hiden_size"):
        run(script, tmp_path, encoder, "out", "configuration/baseline_bilstm.yaml", *fields)


def test_calibration_is_fitted_on_dev_saved_and_applied(tmp_path, script, encoder):
    plain, _ = run(script, tmp_path, encoder, "plain")
    calibrated, results = run(script, tmp_path, encoder, "calibrated", "--calibrate")
    config = json.loads((tmp_path / "calibrated" / "config.json").read_text())
    temperature, thresholds = config["calibration_temperature"], config["decision_thresholds"]
    assert temperature > 0 and sum(thresholds) == pytest.approx(1)
    for before, after in zip(plain, calibrated, strict=True):
        odds = [float(before[f"probability_{name}"]) ** (1 / temperature) for name in ("No-Switch", "Switch")]
        assert float(after["probability_Switch"]) == pytest.approx(odds[1] / sum(odds), abs=1e-4)
        switch = float(after["probability_Switch"]) > thresholds[1]
        assert after["prediction"] == ("Switch" if switch else "No-Switch")
    # A checkpoint that is trained on has none: they were of the weights before.
    run(script, tmp_path, str(tmp_path / "calibrated"), "further")
    config = json.loads((tmp_path / "further" / "config.json").read_text())
    assert config.get("calibration_temperature") is None and config.get("decision_thresholds") is None


def test_calibration_passes_over_posts_without_a_label(tmp_path, script, encoder):
    """Of every timeline's posts, some between labelled ones: judged by what the saved model predicts for them."""
    dev = list(synthetic_posts(8, seed=1, posts_per_timeline=9))
    dev = [post | {"label": "" if place % 3 == 1 else post["label"]} for place, post in enumerate(dev)]
    file = write_posts(tmp_path / "dev.csv", dev)
    run(script, tmp_path, encoder, "out", "--calibrate", "--validation_file", file, "--test_file", file)
    saved = ["--model_name_or_path", str(tmp_path / "out"), "--output_dir", str(tmp_path / "new")]
    script([*saved, "--test_file", file, "--do_predict", "--report_to", "none"])
    with (tmp_path / "new" / "_predictions.csv").open(newline="") as table:
        rows = [row for row in csv.DictReader(table) if row["label"]]
    assert len(rows) == 48
    names = ["No-Switch", "Switch"]
    logits = np.log([[float(row[f"probability_{name}"]) for name in names] for row in rows])
    labels = [names.index(row["label"]) for row in rows]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    temperature = fit_temperature(logits, labels)
    assert config["calibration_temperature"] == pytest.approx(temperature, rel=1e-2)
    probabilities = np.exp(logits / temperature)
    thresholds = tune_thresholds(probabilities / probabilities.sum(-1, keepdims=True), labels)
    assert config["decision_thresholds"] == pytest.approx(thresholds, abs=1e-2)


def test_a_saved_model_is_evaluated_on_the_part_that_its_training_held_back(tmp_path, script, encoder):
    _, trained = run(script, tmp_path, encoder, "out")
    saved = ["--model_name_or_path", str(tmp_path / "out"), "--train_file", str(tmp_path / "posts.csv")]
    script([*saved, "--output_dir", str(tmp_path / "again"), "--do_eval", "--report_to", "none"])
    again = json.loads((tmp_path / "again" / "all_results.json").read_text())
    for name in ("eval_loss", "eval_macro_f1", "eval_support_Switch"):
        assert again[name] == pytest.approx(trained[name])


def test_a_checkpoint_does_not_go_on_with_another_split(tmp_path, script, encoder):
    """The test posts of the second would be among those that the first was trained on."""
    run(script, tmp_path, encoder, "out")
    with pytest.raises(ValueError, match="checkpoint-.* was trained on other posts or texts, or on another split"):
        run(script, tmp_path, encoder, "out", "--seed", "2")
    run(script, tmp_path, encoder, "out")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--learning_rate", "0.5"], "--learning_rate .*, not 0.5"),
        (["--window", "5"], "--window 3, not 5"),
        (["--config_overrides", '{"fusion": "none"}'], "--config_overrides .*none"),
        (["--data_seed", "3"], "--data_seed None, not 3"),
        (["--bf16", "--use_cpu"], "--bf16 False, not True"),
        (["--neftune_noise_alpha", "5"], "--neftune_noise_alpha None, not 5.0"),
        (["--train_sampling_strategy", "sequential"], "--train_sampling_strategy random, not sequential"),
        (["--lr_scheduler_kwargs", '{"last_epoch": 3}'], "--lr_scheduler_kwargs None, not .'last_epoch': 3."),
        (["--dataloader_drop_last"], "--dataloader_drop_last False, not True"),
    ],
)
def test_a_finished_training_is_not_reported_for_other_settings(tmp_path, script, encoder, change, said):
    run(script, tmp_path, encoder, "out")
    with pytest.raises(ValueError, match=f"checkpoint-.* was trained with {said}"):
        run(script, tmp_path, encoder, "out", *change)
    # Where it is named, it is meant; what it was begun as stays known, and reports are none of it.
    checkpoint = next((tmp_path / "out").glob("checkpoint-*"))
    run(script, tmp_path, encoder, "out", "--learning_rate", "0.5", "--resume_from_checkpoint", str(checkpoint))
    with pytest.raises(ValueError, match="was trained with --learning_rate .*, not 0.5"):
        run(script, tmp_path, encoder, "out", "--learning_rate", "0.5")
    more = ["--logging_steps", "1", "--eval_strategy", "epoch", "--save_total_limit", "3", "--hub_token", "hf_secret"]
    run(script, tmp_path, os.path.relpath(encoder), "out", *more, "--label_column", "label")


def test_nothing_hidden_is_kept_of_the_settings(tmp_path, script, encoder):
    run(script, tmp_path, encoder, "out", "--hub_token", "hf_secret")
    content = (tmp_path / "out" / "_trained_on.json").read_text()
    assert "hf_secret" not in content and "max_grad_norm" in content


def test_fewer_steps_than_were_made_are_refused(tmp_path, script, encoder):
    """7 timelines in batches of 2, accumulated by 3: 4 batches and 2 steps in each epoch."""
    often = ["--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "3", "--save_strategy", "epoch"]
    often += ["--targets_per_row", "5"]
    run(script, tmp_path, encoder, "out", *often, "--num_train_epochs", "3")
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    assert state["global_step"] == 6 and state["epoch"] == 3
    before = {name: (tmp_path / "out" / name).read_bytes() for name in ("train_results.json", "model.safetensors")}
    for name, value, wanted in (("num_train_epochs", "2", 4), ("num_train_epochs", "2.4", 5), ("max_steps", "5", 5)):
        with pytest.raises(ValueError, match=f"checkpoint-6 has 6 steps, and --{name} {value}.* asks for {wanted}"):
            run(script, tmp_path, encoder, "out", *often, "--num_train_epochs", "3", f"--{name}", value)
    # Asked for as many, it has nothing left to do, and what was said of it stands.
    history = [entry for entry in state["log_history"] if "train_runtime" in entry]
    for same in (["--num_train_epochs", "3"], ["--num_train_epochs", "2.6"], ["--max_steps", "6"]):
        _, results = run(script, tmp_path, encoder, "out", *often, *same)
        assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
        assert results["train_loss"] == history[0]["train_loss"] > 0
        again = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
        assert [entry for entry in again["log_history"] if "train_runtime" in entry] == history
    assert f"{history[0]['train_loss']:.4g}" in (tmp_path / "out" / "README.md").read_text()
    # One that ends within an epoch has ended, too.
    for _ in range(2):
        run(
            script,
            tmp_path,
            encoder,
            "out",
            *often,
            "--max_steps",
            "7",
            "--save_strategy",
            "steps",
            "--save_steps",
            "7",
        )
        assert json.loads((tmp_path / "out" / "trainer_state.json").read_text())["global_step"] == 7


def test_a_checkpoint_without_its_optimizer_does_not_go_on_unless_it_is_named(tmp_path, script, encoder):
    light = ["--save_only_model", "--save_strategy", "steps", "--save_steps", "1", "--logging_steps", "1"]
    run(script, tmp_path, encoder, "out", *light, "--max_steps", "2")
    # As nothing is left to do.
    run(script, tmp_path, encoder, "out", *light, "--max_steps", "2")
    with pytest.raises(ValueError, match="checkpoint-2 has no optimizer, as saved with --save_only_model"):
        run(script, tmp_path, encoder, "out", *light, "--max_steps", "3")
    # Sharded weights have a folder of it.
    (tmp_path / "out" / "checkpoint-2" / "optimizer_0").mkdir()
    with pytest.raises(ValueError, match="checkpoint-2 has no scheduler"):
        run(script, tmp_path, encoder, "out", *light, "--max_steps", "3")
    (tmp_path / "out" / "checkpoint-2" / "optimizer_0").rmdir()
    named = ["--resume_from_checkpoint", str(tmp_path / "out" / "checkpoint-2")]
    run(script, tmp_path, encoder, "out", *light, "--max_steps", "3", *named)
    assert json.loads((tmp_path / "out" / "trainer_state.json").read_text())["global_step"] == 3


def test_a_copy_of_a_checkpoint_is_none_and_a_named_one_must_be_there(tmp_path, script, encoder):
    run(script, tmp_path, encoder, "out")
    (checkpoint,) = (tmp_path / "out").glob("checkpoint-*")
    shutil.copytree(checkpoint, f"{checkpoint}-backup")
    run(script, tmp_path, encoder, "out")
    named = ["--resume_from_checkpoint", str(tmp_path / "checkpoint-7")]
    with pytest.raises(
        ValueError, match="--resume_from_checkpoint .*checkpoint-7 is no checkpoint: it has no trainer_s"
    ):
        run(script, tmp_path, encoder, "out", *named)


def test_a_stream_that_goes_on_says_what_that_means(tmp_path, script, caplog):
    posts = list(synthetic_posts(6, seed=0, posts_per_timeline=5))
    files = [f"--{name}_file={write_posts(tmp_path / f'{name}.csv', posts)}" for name in ("train", "validation")]
    settings = ["--do_predict", "false", "--save_strategy", "steps", "--save_steps", "1", "--eval_strategy", "no"]
    settings += ["--load_best_model_at_end", "false", "--output_dir", str(tmp_path / "out"), "--streaming"]
    for max_steps, said in ((1, 0), (1, 0), (2, 1)):
        caplog.clear()
        script(["configuration/demo.yaml", *settings, *files, "--max_steps", str(max_steps)])
        assert caplog.text.count("A stream is passed over from its beginning") == said


def test_a_checkpoint_of_an_earlier_version_is_of_its_posts_too(tmp_path, script, encoder):
    run(script, tmp_path, encoder, "out")
    before = json.loads((tmp_path / "out" / "_trained_on.json").read_text())
    (tmp_path / "out" / "_trained_on.json").unlink()
    (tmp_path / "out" / "_trained_on.sha256").write_text("0" * 64)
    with pytest.raises(ValueError, match="checkpoint-.* was trained on other posts or texts"):
        run(script, tmp_path, encoder, "out")
    (tmp_path / "out" / "_trained_on.sha256").write_text(before["data"] + "\n")
    run(script, tmp_path, encoder, "out")


def test_scores_of_the_model_before_are_not_those_of_a_new_one(tmp_path, script, encoder):
    run(script, tmp_path, encoder, "out")
    for checkpoint in (tmp_path / "out").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    _, results = run(script, tmp_path, encoder, "out", "--seed", "2", "--do_predict", "false")
    assert "eval_macro_f1" in results and not any(name.startswith("predict_") for name in results)
    assert "On the test part" not in (tmp_path / "out" / "README.md").read_text()


def test_posts_with_and_without_times_are_not_mixed_up(tmp_path, script, encoder, caplog):
    run(script, tmp_path, encoder, "timed")
    assert json.loads((tmp_path / "timed" / "config.json").read_text())["timed"] is True
    posts = list(synthetic_posts(12, seed=0, posts_per_timeline=5))
    untimed = write_posts(tmp_path / "untimed.csv", posts, ["timeline_id", "text", "label"])
    saved = ["--model_name_or_path", str(tmp_path / "timed"), "--report_to", "none"]
    with pytest.raises(ValueError, match="trained with the time between posts .*, but no times are given"):
        script([*saved, "--test_file", untimed, "--do_predict", "--output_dir", str(tmp_path / "new")])
    # Trained further without times, it is a model without.
    with caplog.at_level("WARNING"):
        further = [*saved, "--train_file", untimed, "--do_train", "--output_dir", str(tmp_path / "further")]
        script([*further, "--num_train_epochs", "1"])
    assert "There is no column of times" in caplog.text
    saved[1] = str(tmp_path / "further")
    with pytest.raises(ValueError, match="trained without the time between posts .*, but times are given"):
        script([*saved, "--test_file", str(tmp_path / "posts.csv"), "--do_predict", "--output_dir", "none"])


def test_few_shot_answers_are_counted_where_they_are_no_label(tmp_path, script, tokenization, monkeypatch):
    tokenizer = AutoTokenizer.from_pretrained(tokenization, model_max_length=4096)
    llm = GPT2Config(
        vocab_size=len(tokenizer), n_positions=4096, n_embd=16, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=3
    )
    GPT2LMHeadModel(llm).save_pretrained(tmp_path / "llm")
    tokenizer.save_pretrained(tmp_path / "llm")
    answers = ["Switch", "no-switch.", "I cannot tell"]
    monkeypatch.setattr(
        prompting,
        "generate_texts",
        lambda model, tokenizer, prompts, *settings: [answers[place % 3] for place in range(len(prompts))],
    )
    recipe = "configuration/baseline_few_shot_stream.yaml"
    rows, results = run(script, tmp_path, str(tmp_path / "llm"), "out", recipe)
    # In the order of the timelines, which is that of the file.
    expected = [("Switch", "No-Switch", "")[place % 3] for place in range(len(rows))]
    assert [row["prediction"] for row in rows] == expected
    assert results["predict_unparsable"] == expected.count("")
    right = sum(row["label"] == row["prediction"] == "Switch" for row in rows)
    assert results["predict_precision_Switch"] == pytest.approx(right / expected.count("Switch"))


@pytest.mark.parametrize("method", ["tempoformer", "post"])
def test_what_is_new_has_a_learning_rate_of_its_own(tmp_path, script, encoder, method):
    still = ["--method", method, "--learning_rate", "0"]
    run(script, tmp_path, encoder, "still", *still)
    run(script, tmp_path, encoder, "head", *still, "--head_learning_rate", "0.1")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("still", "head"))
    pretrained = load_file(Path(encoder) / "model.safetensors")
    of_encoder = {name for name in after for part in pretrained if name.endswith(f".{part}")}
    assert len(of_encoder) == len(pretrained)
    for name, weights in after.items():
        assert torch.equal(weights, before[name]) == (name in of_encoder), name


def test_a_network_over_frozen_embeddings_has_one_learning_rate(tmp_path, script, encoder, monkeypatch):
    """It is new as a whole, and its rate is the one that a cross-validation chooses from."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    settings = ["configuration/baseline_bilstm.yaml", "--num_train_epochs", "1"]
    run(script, tmp_path, encoder, "one", *settings)
    run(script, tmp_path, encoder, "two", *settings, "--head_learning_rate", "0.5")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(weights, two[name]) for name, weights in one.items())


def test_a_training_that_stopped_early_is_not_taken_up_again(tmp_path, script, encoder):
    """Killed after its end, it has nothing left to train, and the same model is the best."""
    still = ["--learning_rate", "0", "--num_train_epochs", "6", "--early_stopping_patience", "2"]
    still += ["--eval_strategy", "epoch", "--save_strategy", "epoch", "--load_best_model_at_end"]
    still += ["--metric_for_best_model", "macro_f1"]
    states = []
    for _ in range(2):
        run(script, tmp_path, encoder, "out", *still)
        states.append(json.loads((tmp_path / "out" / "trainer_state.json").read_text()))
    # Nothing gets better after the first epoch, and two more are waited for.
    assert [state["epoch"] for state in states] == [3, 3]
    assert states[0]["global_step"] == states[1]["global_step"]
    assert states[0]["best_model_checkpoint"] == states[1]["best_model_checkpoint"]
    # A checkpoint that was not written to its end is none.
    (tmp_path / "out" / "checkpoint-999").mkdir()
    run(script, tmp_path, encoder, "out", *still)


def test_one_fold_of_a_file(tmp_path, script, encoder):
    names = list(dict.fromkeys(post["timeline_id"] for post in synthetic_posts(12, seed=0, posts_per_timeline=5)))
    folds = [{"train": names[4:], "validation": names[2:4], "test": names[:2]}]
    (tmp_path / "folds.json").write_text(json.dumps(folds))
    rows, _ = run(script, tmp_path, encoder, "out", "--folds_file", str(tmp_path / "folds.json"))
    assert {row["timeline_id"] for row in rows} == set(names[:2])
    with pytest.raises(ValueError, match="--fold 1: .*folds.json has the folds 0 to 0"):
        run(script, tmp_path, encoder, "out", "--folds_file", str(tmp_path / "folds.json"), "--fold", "1")
    with pytest.raises(ValueError, match="--folds_file splits --train_file: give no other file"):
        more = ["--test_file", str(tmp_path / "posts.csv")]
        run(script, tmp_path, encoder, "out", "--folds_file", str(tmp_path / "folds.json"), *more)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ["--method", "bilstm", "--config_name", "configuration/encoder_tiny.json"],
            "needs --model_name_or_path",
        ),
        (["--method", "class_prior"], "class_prior takes no --model_name_or_path"),
        (["--method", "few_shot", "--num_examples", "0"], "--num_examples must be at least 1, got 0"),
        (["--method", "few_shot", "--calibrate"], "--calibrate cannot be given with --method few_shot"),
        (["--method", "post", "--do_train", "false", "--do_eval", "false"], "--method post needs --do_train"),
        (["--method", "bilstm", "--window", "0"], "--window must be at least 1, got 0"),
        (["--method", "concatenated", "--window", "-1"], "--window must be at least 1, got -1"),
        (["--config_overrides", '{"timed": false}'], "cannot hold 'timed': the posts' times settle it"),
        (["--config_overrides", '{"encoder_config": {}}'], "cannot hold 'encoder_config': give --model_name_or_path"),
        (["--method", "post", "--config_overrides", '{"num_labels": 3}'], "cannot hold 'num_labels': give --labels"),
        (["--method", "swnu", "--config_overrides", '{"label2id": {}}'], "cannot hold 'label2id': give --labels"),
        (
            ["--method", "bilstm", "--config_overrides", '{"architecture": "swnu"}'],
            "cannot hold 'architecture': give --method",
        ),
        (
            ["--method", "ffn_history", "--config_overrides", '{"embedding_size": 3}'],
            "cannot hold 'embedding_size': it is that of --model_name_or_path",
        ),
        (["--method", "bilstm", "--tokenizer_name", "tokenization"], "--tokenizer_name cannot be given with --method"),
        (["--num_examples", "5"], "--num_examples cannot be given with --method tempoformer"),
        (["--method", "few_shot", "--config_overrides", "{}"], "--config_overrides cannot be given with --method few"),
        (["--method", "few_shot", "--do_predict", "false"], "--method few_shot needs --do_predict"),
        (
            ["--labels", "No-Switch", "Switch", "Other", "--calibrate"],
            "every class in the validation part; none of: Other",
        ),
    ],
)
def test_what_a_method_cannot_do_is_said_before_training(tmp_path, script, encoder, arguments, problem):
    with pytest.raises(ValueError, match=problem):
        run(script, tmp_path, encoder, "out", *arguments)
