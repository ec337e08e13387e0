"""Checks that --cache_dir, --model_revision, --token and --trust_remote_code reach everything that a script loads."""

import json
import os
from pathlib import Path

import datasets
import pytest
import torch
from helpers import NAMES, ROOT, save_encoder, save_language_model, write_posts
from hub_server import TOKEN, HubServer
from huggingface_hub import HfApi
from safetensors.torch import load_file

import run_glue_style
from modeling_tempoformer.posts.synthetic import synthetic_posts
from research import run_baseline
from semantic_change.commands.temporal_mlm import main as train_dated


REPO = "me/encoder"
REMOTE_CODE = """
import os
from transformers import BertConfig, BertModel

os.environ["REMOTE_CODE_RAN"] = "yes"

class OwnConfig(BertConfig):
    pass

class OwnModel(BertModel):
    config_class = OwnConfig
"""


@pytest.fixture(autouse=True)
def in_root(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "embeddings")


def posts(folder: Path) -> list[str]:
    file = write_posts(folder / "posts.csv", list(synthetic_posts(10, seed=0, posts_per_timeline=5)))
    return ["--train_file", file, "--window", "2", "--do_predict"]


def texts(folder: Path) -> list[str]:
    files = [folder / "1815.txt", folder / "1990.txt"]
    for file in files:
        file.write_text("so sad\nso glad\n" * 4)
    return ["--train_files", *map(str, files), "--max_seq_length", "12"]


@pytest.mark.parametrize(
    ("script", "save", "data", "options"),
    [
        pytest.param(run_glue_style.main, save_encoder, posts, [], id="tempoformer"),
        pytest.param(
            run_baseline.main, save_encoder, posts, ["--method", "bilstm"], id="bilstm", marks=pytest.mark.slow
        ),
        pytest.param(
            run_baseline.main,
            save_language_model,
            posts,
            ["--method", "few_shot"],
            id="few_shot",
            marks=pytest.mark.slow,
        ),
        pytest.param(train_dated, save_encoder, texts, [], id="temporal_mlm"),
    ],
)
def test_an_old_revision_of_a_private_model_into_a_cache_of_its_own(
    tmp_path, monkeypatch, script, save, data, options
):
    with HubServer(private=True) as hub:
        hub.connect(monkeypatch, tmp_path / "home", has_token=False)
        api = HfApi(hub.url, token=TOKEN)
        api.create_repo(REPO)
        for seed in (1, 2):
            save(tmp_path / "encoder", seed)
            api.upload_folder(repo_id=REPO, folder_path=tmp_path / "encoder")
            if seed == 1:
                first, weights = hub.commits(REPO)[-1].sha, load_file(tmp_path / "encoder" / "model.safetensors")
        cache = tmp_path / "cache"
        model = ["--model_name_or_path", REPO, "--model_revision", first, "--cache_dir", str(cache), "--token", TOKEN]
        short = ["--do_train", "--max_steps", "1", "--learning_rate", "0", "--report_to", "none"]
        script([*model, *data(tmp_path), *short, *options, "--output_dir", str(tmp_path / "out")])
    snapshots = cache / "models--me--encoder" / "snapshots"
    assert [path.name for path in snapshots.iterdir()] == [first]
    # The default cache is empty, so every file was requested with these arguments.
    assert not list((tmp_path / "home" / "hub").glob("*/snapshots/*/*"))
    if (tmp_path / "out" / "model.safetensors").exists() and "bilstm" not in options:
        saved = load_file(tmp_path / "out" / "model.safetensors")
        name = "embeddings.word_embeddings.weight"
        (trained,) = (saved[other] for other in saved if other.endswith(name))
        assert torch.equal(trained[: len(weights[name])], weights[name])


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [False, True])
def test_code_of_a_model_runs_only_where_it_is_trusted(tmp_path, monkeypatch, trusted):
    monkeypatch.setenv("REMOTE_CODE_RAN", "no")
    encoder = Path(save_encoder(tmp_path / "encoder"))
    config = json.loads((encoder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own_code.OwnConfig", "AutoModel": "own_code.OwnModel"}
    (encoder / "config.json").write_text(json.dumps(config))
    (encoder / "own_code.py").write_text(REMOTE_CODE + f"# {tmp_path}\n")
    model = ["--model_name_or_path", str(encoder), *(["--trust_remote_code"] if trusted else [])]
    short = ["--do_train", "--max_steps", "1", "--report_to", "none", "--output_dir", str(tmp_path / "out")]
    run_glue_style.main([*model, *posts(tmp_path), *short, "--labels", *NAMES])
    assert os.environ["REMOTE_CODE_RAN"] == ("yes" if trusted else "no")
