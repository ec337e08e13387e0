"""Checks training, evaluation and prediction in two processes against one, with both models, by DDP and by FSDP."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked import run_forked
from helpers import (
    CLASSES,
    MODELS,
    ROOT,
    assert_same,
    read_json,
    read_table,
    tiny_encoder,
    with_other_ids,
    write_posts,
    write_table,
)
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from modeling_tempoformer import load_table, to_timelines
from modeling_tempoformer.posts.synthetic import synthetic_posts


pytestmark = pytest.mark.slow
# No dropout, because processes draw different random numbers.
ENCODER = {**tiny_encoder(), "vocab_size": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def run(arguments: list, processes: int = 1, script: str = "run_glue_style.py", ends_well: bool = True) -> str:
    """Returns the output of a script that runs in its own process, or in several."""
    status, output = run_forked(script, [*map(str, arguments)], processes)
    assert (status == 0) is ends_well, output
    return output


def launch(arguments: list):
    """Runs the script in two processes by `accelerate launch`, without a GPU, at any free port."""
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    command += ["--main_process_port", "0", "run_glue_style.py", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, timeout=300, **streams)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """
    Returns arguments with the encoder and posts, whose last batch has one row. Some posts are long, so processes with
    different posts have different groups of similar length.
    """
    folder = tmp_path_factory.mktemp("posts")
    (folder / "config.json").write_text(json.dumps(ENCODER))
    posts = [post for number, post in enumerate(synthetic_posts(13, seed=0, posts_per_timeline=6)) if number % 7]
    posts = [
        {**post, "text": " ".join([post["text"]] * (1 + 4 * (number % 9 < 3)))} for number, post in enumerate(posts)
    ]
    parts = ("train", "validation", "test")
    files = {f"{name}_file": write_posts(folder / f"{name}.csv", with_other_ids(posts, name)) for name in parts}
    return {"config_name": str(folder / "config.json"), **files}


def training(files: dict[str, str], output: Path, **settings) -> list[str]:
    """Returns the arguments of a short training that logs the loss of every step."""
    settings = {
        **files,
        "output_dir": output,
        "config_overrides": '{"head_dropout": 0.0}',
        "max_seq_length": 24,
        "targets_per_row": 3,
        "warmup_steps": 0,
        "logging_steps": 1,
        "max_steps": 6,
        "eval_strategy": "no",
        "save_strategy": "no",
        "load_best_model_at_end": "false",
        "disable_tqdm": "true",
        **settings,
    }
    arguments = [argument for name, value in settings.items() for argument in (f"--{name}", str(value))]
    return ["configuration/demo.yaml", *arguments, "--do_eval", "--use_cpu"]


def assert_same_weights(folder: Path, other: Path):
    """
    Checks that two trainings end in the same weights. Rounding moves a weight by less than 2e-6, a step by up to 1e-3.
    """
    weights, others = (load_file(output / "model.safetensors") for output in (folder, other))
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, atol=1e-5, rtol=0, msg=name)


def assert_same_predictions(folder: Path, other: Path):
    actual, expected = (read_table(output / "_predictions.csv") for output in (folder, other))
    scores, others = (read_json(output / "all_results.json") for output in (folder, other))
    assert len(expected) == sum(class_scores["posts"] for class_scores in others["test"]["classes"].values())
    for name in ("post_id", "timeline_id", "label", "prediction"):
        assert [row[name] for row in actual] == [row[name] for row in expected], name
    for name in ("probability_No-Switch", "probability_Switch"):
        values = torch.tensor([[float(row[name]) for row in rows] for rows in (actual, expected)])
        torch.testing.assert_close(values[0], values[1], atol=1e-5, rtol=0)
    for part in ("validation", "test"):
        assert scores[part]["macro_f1"] == pytest.approx(others[part]["macro_f1"], abs=1e-12)
        assert_same(scores[part]["classes"], others[part]["classes"])


# The training is shorter than an epoch. Several processes fill up its last batch.
OFTEN = {"max_steps": 3, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}


OVERRIDES = {
    "tempoformer": {"head_dropout": 0.0},
    # Other fields have their defaults, such as five members.
    "post_tempoformer": {"head_dropout": 0.0, "stream_dropout": 0.0, "stream_hidden_size": 8},
}


@pytest.fixture(scope="module", params=MODELS, ids=str)
def often(request) -> dict[str, str]:
    """Returns the settings of a short training of each model, with two checkpoints."""
    return {**OFTEN, **request.param, "config_overrides": json.dumps(OVERRIDES[request.param["model_type"]])}


def halves(files: dict[str, str], output: Path, often: dict[str, str]) -> list[str]:
    """Returns the arguments for each of two processes, which reads half of the rows of each step."""
    return training(files, output, **often, per_device_train_batch_size=4, per_device_eval_batch_size=4)


@pytest.fixture(scope="module")
def one(tmp_path_factory, files, often) -> Path:
    """Returns the folder of a training in one process, with a page of timelines."""
    folder = tmp_path_factory.mktemp("one")
    run([*training(files, folder, **often, per_device_train_batch_size=8), "--view"])
    return folder


def test_two_processes_train_as_one_and_one_process_goes_on(tmp_path, files, often, one):
    run(halves(files, tmp_path / "two", often), 2)
    assert_same_weights(one, tmp_path / "two")
    assert_same_predictions(tmp_path / "two", one)
    first, second = (read_json(folder / "all_results.json")["train"] for folder in (one, tmp_path / "two"))
    assert second["loss"] == pytest.approx(first["loss"], abs=1e-5)
    resumed = training(files, tmp_path / "resumed", **often, per_device_train_batch_size=8)
    run([*resumed, "--resume_from_checkpoint", str(tmp_path / "two" / "checkpoint-2")])
    assert_same_weights(one, tmp_path / "resumed")
    again = training(files, tmp_path / "two", **often, per_device_train_batch_size=8)
    assert "--per_device_train_batch_size 4" in run(again, ends_well=False)


def test_two_processes_grow_the_trees_of_one(tmp_path, files):
    files = {name: path for name, path in files.items() if name != "validation_file"}
    frozen = {"model_type": "post_tempoformer", "freeze_encoder": "true", "max_steps": 1}
    frozen["config_overrides"] = '{"num_trees": 5, "stream_hidden_size": 8}'
    for processes in (1, 2):
        size = {"per_device_train_batch_size": 8 // processes}
        run(training(files, tmp_path / str(processes), **frozen, **size), processes)
    one, two = (load_file(tmp_path / folder / "model.safetensors") for folder in ("1", "2"))
    assert one["trees.leaves"].sum(-1).min() > 0.99
    for name in (name for name in one if name.startswith("trees.")):
        torch.testing.assert_close(two[name], one[name], atol=1e-5, rtol=0, msg=name)


# Runs the script that its first argument names.
ON_CPU = "tests/sharded_on_cpu.py"
FSDP = ["--fsdp", "--fsdp_config", '{"transformer_layer_cls_to_wrap": "BertLayer"}']


def shown_in(folder: Path) -> list[list[list[float]]]:
    """Returns the probabilities of the posts of each timeline on the script's page, rounded to four decimals."""
    page = (folder / "_timelines.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'id="page-data">(.*?)</script>', page, flags=re.DOTALL)
    return [timeline["probabilities"] for timeline in json.loads(data)["data"]["timelines"]]


def test_sharded_training_ends_as_one(tmp_path, files, often, one):
    """The whole model is saved with its own code. Only a run with FSDP can resume its checkpoint."""
    run(["run_glue_style.py", *halves(files, tmp_path / "two", often), *FSDP, "--view"], 2, ON_CPU)
    assert_same_weights(one, tmp_path / "two")
    assert_same_predictions(tmp_path / "two", one)
    for values, others in zip(shown_in(tmp_path / "two"), shown_in(one), strict=True):
        torch.testing.assert_close(torch.tensor(values), torch.tensor(others), atol=2, rtol=0)
    code = [sorted(path.name for path in folder.glob("*.py")) for folder in (one, tmp_path / "two")]
    assert code[0] == code[1]
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "two", trust_remote_code=True)
    assert type(loaded).__name__ == CLASSES[often["model_type"]].__name__

    checkpoint = ["--resume_from_checkpoint", str(tmp_path / "two" / "checkpoint-2")]
    run(["run_glue_style.py", *halves(files, tmp_path / "resumed", often), *FSDP, *checkpoint], 2, ON_CPU)
    assert_same_weights(one, tmp_path / "resumed")
    without = training(files, tmp_path / "without", **often, per_device_train_batch_size=8)
    assert "FSDP" in run([*without, *checkpoint], ends_well=False)
    # The training in `two` is complete.
    again = ["run_glue_style.py", *halves(files, tmp_path / "two", often), *FSDP]
    assert "has ended, and --fsdp shards a training: leave it out" in run(again, 2, ON_CPU, ends_well=False)


def test_weights_in_parts_are_refused(tmp_path, files):
    """`accelerate launch --use_fsdp` without `--fsdp` would save no model at the end."""
    parts = '{"transformer_layer_cls_to_wrap": "BertLayer", "state_dict_type": "SHARDED_STATE_DICT"}'
    arguments = ["run_glue_style.py", *training(files, tmp_path / "parts"), *FSDP[:-1], parts]
    assert "FULL_STATE_DICT" in run(arguments, 2, ON_CPU, ends_well=False)


def test_two_processes_predict_as_one(tmp_path, files, one):
    """Each post is predicted once and in order, for any size of the last batch in each process."""
    parts = ["--test_file", files["test_file"], "--validation_file", files["validation_file"], "--do_eval"]
    sizes = ["--targets_per_row", 3, "--per_device_eval_batch_size", 5]
    launch(["--model_name_or_path", one, *parts, *sizes, "--do_predict", "--use_cpu", "--output_dir", tmp_path])
    assert_same_predictions(tmp_path, one)


STREAM = """
import json, os, sys
from transformers import AutoTokenizer, Trainer, TrainingArguments
from datasets import load_dataset
from modeling_tempoformer import StreamCollator, TempoFormerConfig, TempoFormerForStreamClassification
from modeling_tempoformer import to_rows, to_timelines

pattern, encoder_file, output = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained("tokenization")
posts = load_dataset("json", data_files=pattern, split="train", streaming=True)
rows = to_rows(to_timelines(posts, ["No-Switch", "Switch"]), tokenizer, window=4, targets_per_row=3)
seen = []
collator = StreamCollator(tokenizer, window=4)

def collate(rows):
    seen.extend(time for row in rows for time in row["timestamps"][row["num_context"]:])
    return collator(rows)

config = TempoFormerConfig(encoder_config=json.load(open(encoder_file)), window=4, num_labels=2)
arguments = TrainingArguments(
    output_dir=output, max_steps=2, per_device_train_batch_size=4, remove_unused_columns=False, report_to="none",
    use_cpu=True, accelerator_config={"dispatch_batches": False}, save_strategy="no", disable_tqdm=True,
)
model = TempoFormerForStreamClassification(config)
trainer = Trainer(model, arguments, collate, train_dataset=rows, processing_class=tokenizer)
trainer.train()
with open(f"{output}/seen_{os.environ['RANK']}.json", "w") as file:
    json.dump(seen, file)
"""


def test_a_stream_is_shared_out_by_file_and_nothing_is_lost(tmp_path, files):
    """Two files of eight rows give two steps of four rows in each process, with every post once."""
    for number in range(2):
        posts = with_other_ids(list(synthetic_posts(4, seed=number, posts_per_timeline=6)), f"file {number}")
        write_table(tmp_path / f"{number}.jsonl", posts)
    script = tmp_path / "stream.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{STREAM}")
    run([str(tmp_path / "*.jsonl"), files["config_name"], str(tmp_path)], 2, str(script))
    for rank in (0, 1):
        timelines = to_timelines(load_table(tmp_path / f"{rank}.jsonl"))
        assert sorted(read_json(tmp_path / f"seen_{rank}.json")) == sorted(
            time for timeline in timelines for time in timeline.timestamps
        )


STREAM_FOR_ALL = """
import json, os, sys
import torch
from transformers import AutoTokenizer, BertConfig, Trainer, TrainingArguments
from datasets import load_dataset
import modeling_tempoformer as plugin

kind, pattern, encoder_file, output = sys.argv[1:]
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained("tokenization")

def rows():
    posts = load_dataset("json", data_files=pattern, split="train", streaming=True)
    timelines = plugin.to_timelines(posts, ["No-Switch", "Switch"])
    return plugin.to_rows(timelines, tokenizer, window=4, targets_per_row=3)

def count(predictions):
    labels = predictions.label_ids[predictions.label_ids != -100]
    scores = predictions.predictions[predictions.label_ids != -100]
    return {"posts": len(labels), "changes": int(labels.sum()), "scores": float(abs(scores).sum())}

fields = {"encoder_config": json.load(open(encoder_file)), "window": 4, "num_labels": 2, "head_dropout": 0.0}
config = getattr(plugin, f"{kind}Config")(**fields, **({"stream_dropout": 0.0} if kind.startswith("Post") else {}))
model = getattr(plugin, f"{kind}ForStreamClassification")(config)
arguments = TrainingArguments(
    output_dir=output, max_steps=4, per_device_train_batch_size=4, per_device_eval_batch_size=4, save_strategy="no",
    remove_unused_columns=False, report_to="none", use_cpu=True, disable_tqdm=True,
    accelerator_config={"split_batches": True},
)
collator = plugin.StreamCollator(tokenizer, window=4, pad_rows_to_multiple_of=int(os.environ.get("WORLD_SIZE", 1)))
data = {"train_dataset": rows(), "eval_dataset": rows()}
trainer = Trainer(model, arguments, collator, **data, processing_class=tokenizer, compute_metrics=count)
trainer.train()
counted = trainer.evaluate()
if trainer.is_world_process_zero():
    model.save_pretrained(output)
    json.dump(counted, open(f"{output}/counted.json", "w"))
"""


@pytest.mark.parametrize("kind", ["TempoFormer", "PostTempoFormer"])
def test_a_stream_that_processes_share_counts_every_row_once(tmp_path, files, kind):
    """
    Files have unequal numbers of rows, so that the last batch lacks a row. Trained and evaluated in two processes,
    they give the weights and the counts of one process.
    """
    changes = 0
    for number, timelines in enumerate((5, 1, 2)):
        posts = list(synthetic_posts(timelines, seed=number, posts_per_timeline=5 + (number == 1) * 2))
        changes += sum(post["label"] == "Switch" for post in posts)
        write_table(tmp_path / f"{number}.jsonl", with_other_ids(posts, f"file {number}"))
    script = tmp_path / "stream.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{STREAM_FOR_ALL}")
    counted = {}
    for processes in (1, 2):
        output = tmp_path / str(processes)
        output.mkdir()
        run([kind, str(tmp_path / "*.jsonl"), files["config_name"], str(output)], processes, str(script))
        counted[processes] = read_json(output / "counted.json")
        assert (counted[processes]["eval_posts"], counted[processes]["eval_changes"]) == (42, changes)
    assert counted[2]["eval_scores"] == pytest.approx(counted[1]["eval_scores"], rel=1e-4)
    assert_same_weights(tmp_path / "1", tmp_path / "2")


def test_a_streamed_training_in_two_processes_is_that_of_one(tmp_path, files):
    """
    Both processes read the one file, and each takes its own batches. A resumed training ends in the same weights.
    """
    stream = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "save_total_limit": 3}
    stream["streaming"] = "true"
    run([*training(files, tmp_path / "one", **stream, per_device_train_batch_size=4), "--do_predict"])
    settings = {**stream, "per_device_train_batch_size": 2}
    run([*training(files, tmp_path / "two", **settings), "--do_predict"], 2)
    assert_same_weights(tmp_path / "one", tmp_path / "two")
    for name in ("model.safetensors", "trainer_state.json"):
        (tmp_path / "two" / name).unlink()
    shutil.rmtree(tmp_path / "two" / "checkpoint-4")
    output = run([*training(files, tmp_path / "two", **settings), "--do_predict"], 2)
    assert "checkpoint-2" in output
    assert_same_weights(tmp_path / "one", tmp_path / "two")
    assert_same_predictions(tmp_path / "one", tmp_path / "two")
