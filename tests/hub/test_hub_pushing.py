"""What is pushed, by the real client over HTTP, can be loaded by id and revision where this package is not."""

import json
import pickle
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import (
    CHANGES,
    HUB_MODULES,
    ROOT,
    SIZES,
    TOKENIZER_MODULES,
    VOCABULARY,
    dated_config,
    tiny_encoder,
    tiny_model,
    write_posts,
)
from helpers import dated_bert as dated_tokenizer
from hub_server import READ_TOKEN, TOKEN, HubServer, card_problems
from huggingface_hub import HfApi, ModelCard
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.lfs import UploadInfo
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizer

from modeling_tempoformer import BertWithTemporalAttentionForMaskedLM, StreamClassificationPipeline, StreamCollator
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.temporal_mlm_collator import TemporalMlmCollator
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments
from modeling_tempoformer.training.temporal_trainer import TemporalTrainer, TemporalTrainingArguments


DATED_CODE = {"configuration_temporal_bert", "modeling_temporal_bert"}
MODEL_CODE = {"stream": HUB_MODULES, "both": HUB_MODULES, "dated": DATED_CODE}
TIMELINE = {"text": ["sad today", "so glad", "tired again"], "timestamp": [0, 60, 90000]}
TEXT, TIME = "the [MASK] flew", "1815"
QUICK = {"max_steps": 2, "report_to": "none", "use_cpu": True, "disable_tqdm": True, "remove_unused_columns": False}


@pytest.fixture(scope="module")
def hub():
    with HubServer() as server:
        yield server


@pytest.fixture
def connected(hub, monkeypatch, tmp_path):
    """The Hub, to which this process's client talks."""
    hub.connect(monkeypatch, tmp_path / "home")
    return hub


def make(family: str, tokenization: Path, seed: int = 0):
    """A model and its tokenizer: of streams, of dated texts, or of streams of dated posts."""
    config = dated_config(initializer_range=0.3)
    if family == "dated":
        torch.manual_seed(seed)
        return BertWithTemporalAttentionForMaskedLM(config).eval(), dated_tokenizer()
    tokenizer = dated_tokenizer() if family == "both" else AutoTokenizer.from_pretrained(tokenization)
    plain = {**tiny_encoder(), "vocab_size": len(tokenizer), "initializer_range": 0.3}
    encoder = config.to_dict() if family == "both" else plain
    return tiny_model(**CHANGES, encoder_config=encoder, seed=seed), tokenizer


def make_trainer(family: str, tokenization: Path, output_dir: Path, **settings):
    model, tokenizer = make(family, tokenization)
    if family == "dated":
        rows = Dataset.from_list([dict(tokenizer("the plane flew", time=1815)) for _ in range(8)])
        arguments = TemporalTrainingArguments(str(output_dir), **QUICK, **settings)
        collator = TemporalMlmCollator(tokenizer, mlm_probability=0.5)
        return TemporalTrainer(model, arguments, collator, train_dataset=rows, processing_class=tokenizer)
    row = {"input_ids": tokenizer(TIMELINE["text"])["input_ids"], "timestamps": TIMELINE["timestamp"]}
    rows = Dataset.from_list([{**row, "labels": [0, 1, 2]}] * 8)
    arguments = StreamTrainingArguments(str(output_dir), **QUICK, **settings)
    collator = StreamCollator(tokenizer, model.config.window)
    return StreamTrainer(model, arguments, collator, train_dataset=rows, processing_class=tokenizer)


def whole(family: str) -> set[str]:
    """The files that make a repository that loads."""
    modules = MODEL_CODE[family] | (TOKENIZER_MODULES if family != "stream" else set())
    files = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    return files | {f"{name}.py" for name in modules}


def answer(model, tokenizer) -> list:
    """What a model says, as the process elsewhere asks it."""
    if isinstance(model, BertWithTemporalAttentionForMaskedLM):
        with torch.no_grad():
            return model(**tokenizer(TEXT, time=TIME, return_tensors="pt")).logits.flatten().tolist()
    pipe = StreamClassificationPipeline(model=model.eval(), tokenizer=tokenizer)
    return [best["score"] for post in pipe(TIMELINE, top_k=3) for best in post]


# The package is not there. Wanted are (repository, revision); printed is what each model says.
ELSEWHERE = f"""
import json, sys
sys.modules["modeling_tempoformer"] = None
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer, pipeline

answers = []
for repo_id, revision in json.loads(sys.argv[1]):
    where = {{"trust_remote_code": True, "revision": revision}}
    if AutoConfig.from_pretrained(repo_id, **where).model_type == "tempoformer":
        pipe = pipeline("stream-classification", model=repo_id, **where)
        answers.append([best["score"] for post in pipe({TIMELINE!r}, top_k=3) for best in post])
    else:
        tokenizer = AutoTokenizer.from_pretrained(repo_id, **where)
        model = AutoModelForMaskedLM.from_pretrained(repo_id, **where)
        batch = tokenizer({TEXT!r}, time={TIME!r}, return_tensors="pt")
        answers.append(model(**batch).logits.flatten().tolist())
print("ANSWERS", json.dumps(answers))
"""


def elsewhere(wanted: list[tuple[str, str]], environment: dict[str, str], folder: Path) -> list[list[float]]:
    """What models say in a process without this package, which has only the Hub's address."""
    command = [sys.executable, "-c", ELSEWHERE, json.dumps(wanted)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.split("ANSWERS")[1])


def test_what_is_pushed_loads_elsewhere_by_revision_from_the_cache_and_offline(connected, tmp_path, tokenization):
    expected, wanted = [], []
    for family in ("stream", "dated", "both"):
        repo = f"me/{family}"
        for seed in range(1 if family == "both" else 2):
            model, tokenizer = make(family, tokenization, seed)
            tokenizer.push_to_hub(repo)
            wanted.append((repo, model.push_to_hub(repo).oid))
            expected.append(answer(model, tokenizer))
        wanted[-1] = (repo, "main")
        assert set(connected.files(repo)) >= whole(family)
    connected.requests.clear()
    home = tmp_path / "elsewhere"
    online = elsewhere(wanted * 2, connected.environment(home), tmp_path)
    downloads = [path for method, path in connected.requests if method == "GET" and re.search("/resolve/|/cdn/", path)]
    # The second time all is there.
    assert downloads and len(downloads) == len(set(downloads))
    connected.requests.clear()
    offline = elsewhere(wanted, connected.environment(home, HF_HUB_OFFLINE="1"), tmp_path)
    assert connected.requests == []
    for found, want in zip(online + offline, expected * 3, strict=True):
        assert found == pytest.approx(want, abs=1e-5)
    # Two revisions are two models.
    assert expected[0] != pytest.approx(expected[1], abs=1e-2) and expected[2] != pytest.approx(expected[3], abs=1e-2)


@pytest.mark.parametrize("family", ["stream", "dated"])
def test_model_and_tokenizer_each_push_one_commit(connected, tokenization, family):
    model, tokenizer = make(family, tokenization)
    repo = f"me/single-{family}"
    model.push_to_hub(repo, tags=["mine"])
    tokenizer.push_to_hub(repo)
    of_model, of_tokenizer = connected.commits(repo)
    code = {f"{name}.py" for name in MODEL_CODE[family]}
    assert {"README.md", "config.json", "model.safetensors"} | code <= set(of_model.changed)
    assert {"tokenizer.json", "tokenizer_config.json"} <= set(of_tokenizer.changed)
    assert "README.md" not in of_tokenizer.changed
    card = ModelCard(connected.files(repo)["README.md"].decode())
    assert "## Intended use and limits" in card.text and "mine" in card.data.tags and f'"{repo}"' in card.text
    assert set(connected.files(repo)) >= whole(family)


def test_a_card_on_the_hub_is_kept(connected, tokenization):
    model, _ = make("stream", tokenization)
    HfApi().create_repo("me/described")
    HfApi().upload_file(path_or_fileobj=b"# As I want it", path_in_repo="README.md", repo_id="me/described")
    model.push_to_hub("me/described")
    assert b"# As I want it" in connected.files("me/described")["README.md"]


@pytest.mark.parametrize("family", ["stream", "dated"])
def test_a_trainer_pushes_everything_in_one_commit(connected, tmp_path, tokenization, family):
    trainer = make_trainer(family, tokenization, tmp_path / "out", hub_model_id=f"me/trainer-{family}")
    trainer.train()
    (tmp_path / "out" / "_predictions.csv").write_text("post_id,prediction\n1,IS\n")
    trainer.push_to_hub(language="en", license="mit", dataset="Mine")
    (commit,) = connected.commits(f"me/trainer-{family}")
    assert whole(family) <= set(commit.files)
    assert not [path for path in commit.files if path.startswith(("_", "checkpoint"))]
    card = ModelCard(commit.files["README.md"].content.decode())
    assert (card.data.language, card.data.license) == (["en"], "mit") and "- Dataset: Mine" in card.text
    assert "| epoch | step |" in card.text or "Training took" in card.text


@pytest.mark.parametrize("family", ["stream", "dated"])
def test_an_adapter_is_pushed_during_a_training_with_the_code_of_its_model(connected, tmp_path, tokenization, family):
    repo = f"me/adapter-{family}"
    settings = {"push_to_hub": True, "hub_model_id": repo, "save_steps": 1, "hub_always_push": True}
    trainer = make_trainer(family, tokenization, tmp_path / "out", **settings)
    adapter = LoraConfig(r=2, init_lora_weights=False, target_modules=["query", "value"])
    trainer.model.config.name_or_path = str(tmp_path)
    trainer.model = trainer.model_wrapped = get_peft_model(trainer.model, adapter)
    trainer.train()
    trainer.push_to_hub()
    commits = [commit for commit in connected.commits(repo) if "adapter_model.safetensors" in commit.files]
    assert len(commits) >= 2 and commits[0].message.startswith("Training in progress")
    code = {f"{name}.py" for name in MODEL_CODE[family]}
    for commit in commits:
        assert code | {"README.md", "adapter_config.json"} <= set(commit.files)
        assert not [path for path in commit.files if "peft" in path or path.startswith(("_", "checkpoint"))]
        # A folder of this machine is no base model.
        assert str(tmp_path) not in commit.files["README.md"].content.decode()
    (tmp_path / "pushed").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / "pushed" / name).write_bytes(connected.files(repo)[name])
    # On the model that it was made for it says what was trained.
    model, tokenizer = make(family, tokenization)
    before = answer(model, tokenizer)
    merged = PeftModel.from_pretrained(model, tmp_path / "pushed").merge_and_unload()
    trained = trainer.model.merge_and_unload().eval()
    assert answer(merged, tokenizer) == pytest.approx(answer(trained, tokenizer), abs=1e-5)
    assert answer(merged, tokenizer) != pytest.approx(before, abs=1e-3)


@pytest.mark.parametrize("family", ["stream", "dated"])
def test_every_push_during_a_training_loads(connected, tmp_path, tokenization, family):
    """The stock Trainer pushes checkpoints without code and card."""
    repo = f"me/during-{family}"
    settings = {"push_to_hub": True, "hub_model_id": repo, "save_steps": 1, "hub_always_push": True}
    trainer = make_trainer(family, tokenization, tmp_path / "out", hub_token=TOKEN, **settings)
    trainer.train()
    trainer.push_to_hub()
    commits = [commit for commit in connected.commits(repo) if "model.safetensors" in commit.files]
    assert len(commits) >= 2 and commits[0].message.startswith("Training in progress")
    for commit in commits:
        assert whole(family) <= set(commit.files)
        assert card_problems(commit.files["README.md"].content.decode()) == []
        assert not [path for path, blob in commit.files.items() if TOKEN.encode() in blob.content]
    assert trainer.args.hub_token == TOKEN and pickle.loads(pickle.dumps(trainer.args)).hub_token is None


def glue(tmp_path: Path, *arguments: str):
    main = runpy.run_path(str(ROOT / "run_glue_style.py"))["main"]
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(10, seed=0, posts_per_timeline=5)))
    main(["configuration/demo.yaml", "--train_file", posts, "--output_dir", str(tmp_path / "out"), *arguments])


def mlm(tmp_path: Path, *arguments: str):
    main = runpy.run_path(str(ROOT / "run_temporal_mlm.py"))["main"]
    BertForMaskedLM(BertConfig(**SIZES)).save_pretrained(tmp_path / "bert")
    BertTokenizer(vocab=VOCABULARY, model_max_length=16).save_pretrained(tmp_path / "bert")
    texts = []
    for time, word in (("1810-1860", "tree"), ("1960-2010", "plane")):
        texts.append(str(tmp_path / f"{time}.txt"))
        Path(texts[-1]).write_text(f"the {word} flew\n" * 40)
    model = ["--model_name_or_path", str(tmp_path / "bert"), "--output_dir", str(tmp_path / "out")]
    tasks = ["--do_train", "--do_eval", "--do_predict", "--test_files", texts[0]]
    short = ["--max_seq_length", "12", "--report_to", "none", "--prepend_time", "true", "--eval_strategy", "epoch"]
    main([*model, "--train_files", *texts, *tasks, *short, *arguments])


@pytest.mark.parametrize(("script", "family", "label"), [(glue, "stream", "Switch"), (mlm, "dated", None)])
def test_a_script_pushes_all_but_predictions(connected, tmp_path, monkeypatch, script, family, label):
    monkeypatch.chdir(ROOT)
    repo = f"me/script-{family}"
    card = json.dumps({"language": "en", "license": "cc-by-4.0", "dataset": "Made up"})
    arguments = ["--num_train_epochs", "1", "--hub_token", TOKEN, "--model_card", card]
    script(tmp_path, "--push_to_hub", "--hub_model_id", repo, *arguments)
    assert (tmp_path / "out" / "_predictions.csv").exists()
    for commit in connected.commits(repo):
        if "model.safetensors" in commit.files:
            assert whole(family) <= set(commit.files)
        assert not [path for path in commit.files if "predictions" in path or path.startswith("checkpoint")]
        for path, blob in commit.files.items():
            assert TOKEN.encode() not in blob.content, path
    card = ModelCard(connected.files(repo)["README.md"].decode())
    assert card_problems(card.content) == []
    assert (card.data.language, card.data.license) == (["en"], "cc-by-4.0") and "- Dataset: Made up" in card.text
    assert str(tmp_path) not in card.content
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    shown = {(result.dataset_split, result.metric_name): result.metric_value for result in card.data.eval_results}
    if label is not None:
        assert shown["test", f"F1 ({label})"] == results[f"predict_f1_{label}"]
        assert shown["test", "Macro F1"] == results["predict_macro_f1"]
    else:
        assert shown["validation", "Perplexity"] == results["eval_perplexity"]
        assert shown["test", "Accuracy"] == results["predict_accuracy"]
        assert f"| Macro F1 | {results['predict_macro_f1']:.4f} |" in card.text and "| class |" not in card.text


@pytest.mark.parametrize(
    ("token", "repo", "problem"),
    [
        (None, "me/refused", "401[^$]*Invalid username or password"),
        ("hf_wrong", "me/refused", "401[^$]*Invalid credentials"),
        (READ_TOKEN, "me/refused", "403[^$]*rights to create a model"),
        (TOKEN, "you/refused", '403[^$]*namespace "you"'),
    ],
)
def test_who_may_not_push_is_told_before_training(hub, monkeypatch, tmp_path, tokenization, token, repo, problem):
    hub.connect(monkeypatch, tmp_path / "home", token)
    with pytest.raises(HfHubHTTPError, match=problem):
        make_trainer("stream", tokenization, tmp_path / "out", push_to_hub=True, hub_model_id=repo)
    model, tokenizer = make("stream", tokenization)
    for part in (model, tokenizer):
        with pytest.raises(HfHubHTTPError, match=problem):
            part.push_to_hub(repo)
    assert repo not in hub.repositories


@pytest.mark.parametrize("method", ["class_prior", "bilstm"])
def test_what_nobody_could_load_is_not_pushed(connected, tmp_path, monkeypatch, method):
    monkeypatch.chdir(ROOT)
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(6, seed=0, posts_per_timeline=5)))
    model = [] if method == "class_prior" else ["--model_name_or_path", str(ROOT / "configuration/encoder_tiny.json")]
    main = runpy.run_path(str(ROOT / "run_glue_style.py"))["main"]
    output = ["--output_dir", str(tmp_path / "out"), "--push_to_hub", "--hub_model_id", "me/own"]
    with pytest.raises(ValueError, match=f"--push_to_hub: what --method {method} makes"):
        main(["--train_file", posts, "--method", method, *model, *output, "--do_train", "--do_predict"])
    assert "me/own" not in connected.repositories


def test_weights_that_arrive_damaged_are_refused(connected, tokenization, monkeypatch):
    model, _ = make("stream", tokenization)
    honest = UploadInfo.from_path.__func__

    def damaged(cls, path):
        info = honest(cls, path)
        info.sha256 = bytes(32)
        return info

    monkeypatch.setattr(UploadInfo, "from_path", classmethod(damaged))
    with pytest.raises(RuntimeError, match="Error while uploading 'model.safetensors'") as problem:
        model.push_to_hub("me/damaged")
    assert "sha256 of the content is not the one" in str(problem.value.__cause__)
    assert connected.commits("me/damaged") == []


@pytest.mark.parametrize(
    ("repo", "revision", "token", "problem"),
    [
        ("me/nowhere", "main", TOKEN, "is not a valid model identifier"),
        ("me/there", "other", TOKEN, "other is not a valid git identifier"),
        ("me/there", "main", TOKEN, "no file named model.safetensors|does not appear to have a file named"),
        ("me/hidden", "main", None, "is not a valid model identifier"),
    ],
)
def test_what_cannot_be_loaded_is_named(hub, monkeypatch, tmp_path, tokenization, repo, revision, token, problem):
    hub.connect(monkeypatch, tmp_path / "home")
    model, _ = make("stream", tokenization)
    model.config.push_to_hub("me/there")
    model.push_to_hub("me/hidden", private=True)
    hub.connect(monkeypatch, tmp_path / "other", token)
    with pytest.raises(OSError, match=problem):
        AutoModelForSequenceClassification.from_pretrained(repo, revision=revision)
