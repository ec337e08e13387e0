"""Training, prediction and streaming in two processes against one, and processes that are killed or in the way."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers import ROOT, read_json, read_table, tiny_encoder, write_posts
from safetensors.torch import load_file

from modeling_tempoformer.data.synthetic import synthetic_posts


pytestmark = pytest.mark.slow
# Without dropout, whose random numbers no two processes share.
ENCODER = {**tiny_encoder(), "vocab_size": 128, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def launch(
    arguments: list[str], processes: int = 1, script: str = "run_glue_style.py", **settings
) -> subprocess.Popen:
    """A script in its own process, or in several."""
    command = [sys.executable]
    if processes > 1:
        # Several processes without a GPU: the scripts say `--use_cpu`. At any free port.
        command += ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", str(processes)]
        command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
        command += ["--main_process_port", "0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return subprocess.Popen([*command, script, *arguments], cwd=ROOT, env=environment, text=True, **settings)


def run(arguments: list[str], processes: int = 1, script: str = "run_glue_style.py") -> str:
    """What a script says when it has ended well."""
    process = launch(arguments, processes, script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """The encoder, and posts whose last batch has one row; as arguments."""
    folder = tmp_path_factory.mktemp("posts")
    (folder / "config.json").write_text(json.dumps(ENCODER))
    posts = [post for number, post in enumerate(synthetic_posts(13, seed=0, posts_per_timeline=6)) if number % 7]
    files = {f"{name}_file": write_posts(folder / f"{name}.csv", posts) for name in ("train", "validation", "test")}
    return {"config_name": str(folder / "config.json"), **files}


def training(files: dict[str, str], output: Path, **settings) -> list[str]:
    """The arguments of a short training whose loss is logged in every step."""
    settings = {
        **files,
        "output_dir": output,
        "config_overrides": '{"head_dropout": 0.0}',
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


def test_two_processes_train_as_one(tmp_path, files):
    """Each process has half of the rows of each step: the same weights and scores after it."""
    for processes in (1, 2):
        # Less than an epoch, whose last batch is filled up where there are several processes.
        settings = {"max_steps": 3, "per_device_train_batch_size": 8 // processes}
        run(training(files, tmp_path / str(processes), **settings), processes)
    weights, others = (load_file(tmp_path / name / "model.safetensors") for name in ("1", "2"))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, atol=1e-5, rtol=0, msg=name)
    first, second = (read_json(tmp_path / name / "all_results.json") for name in ("1", "2"))
    for name in ("train_loss", "eval_macro_f1", "predict_macro_f1"):
        assert second[name] == pytest.approx(first[name], abs=1e-5), name


def test_two_processes_predict_as_one(tmp_path, files):
    """Every post once and in order, whatever remains for the last batch of each process."""
    run(training(files, tmp_path / "model"))
    for processes, size in ((1, 4), (2, 4), (2, 5)):
        saved = {
            "model_name_or_path": tmp_path / "model",
            "test_file": files["test_file"],
            "validation_file": files["validation_file"],
            "targets_per_row": 3,
            "per_device_eval_batch_size": size,
            "output_dir": tmp_path / f"{processes}_{size}",
        }
        arguments = [argument for name, value in saved.items() for argument in (f"--{name}", str(value))]
        run([*arguments, "--do_eval", "--do_predict", "--use_cpu"], processes)
    expected = read_table(tmp_path / "1_4" / "_predictions.csv")
    scores = read_json(tmp_path / "1_4" / "all_results.json")
    assert len(expected) == scores["predict_support_No-Switch"] + scores["predict_support_Switch"]
    for other in ("2_4", "2_5"):
        found = read_table(tmp_path / other / "_predictions.csv")
        for name in ("post_id", "timeline_id", "label", "prediction"):
            assert [row[name] for row in found] == [row[name] for row in expected], name
        for name in ("probability_No-Switch", "probability_Switch"):
            values = torch.tensor([[float(row[name]) for row in rows] for rows in (found, expected)])
            torch.testing.assert_close(values[0], values[1], atol=1e-5, rtol=0)
        others = read_json(tmp_path / other / "all_results.json")
        for name in scores:
            if "_f1" in name or "_support_" in name:
                assert others[name] == pytest.approx(scores[name], abs=1e-12), name


def test_a_killed_training_ends_in_the_same_weights(tmp_path, files):
    """Killed twice, at steps drawn at random, and begun again by the same command."""
    often = {"save_strategy": "steps", "save_steps": 1, "max_steps": 30, "do_predict": "false"}
    run(training(files, tmp_path / "whole", **often))
    killed = training(files, tmp_path / "killed", **often)
    generator = random.Random(0)
    for step in (generator.randint(1, 12), generator.randint(13, 24)):
        process = launch(killed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # At that step, or while its checkpoint is written.
        while not (tmp_path / "killed" / f"checkpoint-{step}").exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    assert "Resuming from" in run(killed)
    weights, others = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed"))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, atol=1e-6, rtol=0, msg=name)


def test_a_second_run_in_a_folder_ends_at_once(tmp_path, files):
    """With one line, and the first run goes on; two processes of one run are not in each other's way."""
    arguments = training(files, tmp_path / "out", max_steps=200)
    process = launch(arguments, 2, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while not (tmp_path / "out" / "_trained_on.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    second = launch(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    _, said = second.communicate(timeout=300)
    assert second.returncode == 1 and "Traceback" not in said
    (line,) = (line for line in said.splitlines() if line.startswith("error: "))
    assert str(tmp_path / "out") in line
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said


def test_two_processes_share_a_stream(tmp_path, files):
    arguments = training(files, tmp_path / "out", max_steps=2, streaming="true", do_predict="false")
    run(arguments, 2)
    assert read_json(tmp_path / "out" / "all_results.json")["train_loss"] > 0


SHARDED = """
import torch
import torch.distributed as dist
from helpers import tiny_batch, tiny_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
whole, model = tiny_model(stream_residual=True), tiny_model(stream_residual=True)
# What FSDP wraps unless it is told otherwise.
blocks = set(model._no_split_modules) | set(model.tempoformer.encoder._no_split_modules)
wrapped = [module for module in model.modules() if type(module).__name__ in blocks]
for module in wrapped:
    fully_shard(module, mesh=mesh)
fully_shard(model, mesh=mesh)
batch = tiny_batch(seed=dist.get_rank())
output, expected = model(**batch), whole(**batch)
torch.testing.assert_close(output.logits, expected.logits, atol=1e-5, rtol=0)
output.loss.backward()
expected.loss.backward()
for (name, parameter), own in zip(whole.named_parameters(), model.parameters(), strict=True):
    dist.all_reduce(parameter.grad)
    torch.testing.assert_close(own.grad.full_tensor(), parameter.grad / 2, atol=1e-5, rtol=1e-4, msg=name)
print(f"{len(wrapped)} blocks agree", flush=True)
dist.destroy_process_group()
"""


def test_sharded_weights_compute_the_same(tmp_path):
    """FSDP: the blocks that may not be split, and the rest, half of every weight in each process."""
    script = tmp_path / "sharded.py"
    script.write_text(f"import sys\nsys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n{SHARDED}")
    assert run([], 2, str(script)).count(" blocks agree") == 2
