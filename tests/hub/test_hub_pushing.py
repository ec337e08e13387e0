"""Checks what the real client pushes over HTTP: single models, trainings, adapters and runs of the scripts."""

import json
import pickle
import re
import runpy
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from helpers import (
    CHANGES,
    PAPER_MODULES,
    ROOT,
    SIZES,
    TOKENIZER_MODULES,
    VOCABULARY,
    dated_bert,
    dated_config,
    tiny_reader,
    write_posts,
)
from hub_server import TOKEN, HubServer
from huggingface_hub import HfApi, ModelCard
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    CardContent,
    StreamClassificationPipeline,
    StreamCollator,
    write_card,
)
from modeling_tempoformer.evaluation.figures import FIGURES
from modeling_tempoformer.posts.synthetic import synthetic_posts
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments
from semantic_change.commands.temporal_mlm import main as train_dated
from semantic_change.temporal_mlm_collator import TemporalMlmCollator
from semantic_change.temporal_trainer import TemporalTrainer, TemporalTrainingArguments


DATED_CODE = {"configuration_temporal_bert", "modeling_temporal_bert"}
MODEL_CODE = {"stream": PAPER_MODULES, "dated": DATED_CODE}
TIMELINE = {"text": ["sad today", "so glad", "tired again"], "timestamp": [0, 60, 90000]}
TEXT, TIME = "the [MASK] flew", "1815"
QUICK = {"max_steps": 2, "report_to": "none", "use_cpu": True, "disable_tqdm": True}


def make(family: str):
    """Returns a model and its tokenizer, for streams or for dated texts."""
    config = dated_config(initializer_range=0.3)
    if family == "dated":
        torch.manual_seed(0)
        return BertWithTemporalAttentionForMaskedLM(config).eval(), dated_bert()
    return tiny_reader(**CHANGES)


def make_trainer(family: str, output_dir: Path, **settings):
    """Returns a Trainer of two steps that pushes at the end."""
    model, tokenizer = make(family)
    settings |= {**QUICK, "push_to_hub": True, "save_strategy": "steps", "save_steps": 1}
    settings |= {"eval_strategy": "steps", "eval_steps": 1, "load_best_model_at_end": True}
    if family == "dated":
        rows = Dataset.from_list([dict(tokenizer("the plane flew", time=1815)) for _ in range(8)])
        arguments = TemporalTrainingArguments(str(output_dir), **settings)
        collator = TemporalMlmCollator(tokenizer, mlm_probability=0.5)
        return TemporalTrainer(
            model, arguments, collator, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer
        )
    row = {"input_ids": tokenizer(TIMELINE["text"])["input_ids"], "timestamps": TIMELINE["timestamp"]}
    rows = Dataset.from_list([{**row, "labels": [0, 1, 2]}] * 8)
    collator = StreamCollator(tokenizer, model.config.window)
    arguments = StreamTrainingArguments(str(output_dir), **settings)
    return StreamTrainer(model, arguments, collator, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)


def whole(family: str) -> set[str]:
    """Returns the files that a repository needs to load."""
    modules = MODEL_CODE[family] | (TOKENIZER_MODULES if family != "stream" else set())
    files = {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    return files | {f"{name}.py" for name in modules}


def card_of(files: dict[str, bytes]) -> ModelCard:
    return ModelCard(files["README.md"].decode())


def answer(model, tokenizer) -> list[float]:
    """Returns the model's prediction."""
    if isinstance(model, BertWithTemporalAttentionForMaskedLM):
        with torch.no_grad():
            return model(**tokenizer(TEXT, time=TIME, return_tensors="pt")).logits.flatten().tolist()
    pipe = StreamClassificationPipeline(model=model.eval(), tokenizer=tokenizer)
    return [best["score"] for post in pipe(TIMELINE, top_k=3) for best in post]


def test_a_model_pushed_by_hand_with_its_card(hub, tmp_path):
    model, tokenizer = make("stream")
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "mine")
    write_card(model, tmp_path / "mine", CardContent(repo_id="me/mine", tags="own-tag"))
    HfApi().create_repo("me/mine")
    HfApi().upload_folder(folder_path=tmp_path / "mine", repo_id="me/mine")
    assert set(hub.files("me/mine")) >= whole("stream")
    # Later pushes of the weights alone keep the Hub's card.
    model.push_to_hub("me/mine")
    card = card_of(hub.files("me/mine"))
    assert "own-tag" in card.data.tags


# This text is in files that users put beside a model, and in files that scripts leave there.
SECRET = "secret of mine"
PRIVATE_FILES = ("posts.csv", "posts.json", "posts.txt", "posts.parquet", "_config.json", "train.log", "nohup.out")
PRIVATE_FILES += ("_predictions.csv", "_predictions.parquet", "_mistakes.csv", "screenshot.png", "_learning_curve.png")
PRIVATE_FILES += ("load_posts.py", "database_config.json", "vocab.txt", "notes.jinja", "old.model", "old.safetensors")
PRIVATE_FILES += ("new_patients/_predictions.csv", "new_patients/all_results.json", "new_patients/posts.csv")


def assert_nothing_leaks(hub: HubServer, folder: Path):
    """Checks that no commit has posts, predictions, tokens or paths of this machine."""
    for commit in hub.commits("me/mine"):
        assert not {"trainer_state.json", "training_args.bin"} & set(commit.files)
        assert not [path for path in commit.files if path.startswith("_") or "/" in path or "peft" in path]
        for secret in (SECRET, TOKEN, str(folder)):
            assert [path for path, content in commit.files.items() if secret.encode() in content] == []


@pytest.mark.parametrize("family", ["stream", "dated"])
@pytest.mark.parametrize("is_adapter", [False, True])
def test_the_push_of_a_training_is_whole_and_nothing_leaks(hub, tmp_path, family, is_adapter):
    out = tmp_path / "out"
    (out / "new_patients").mkdir(parents=True)
    for name in PRIVATE_FILES:
        (out / name).write_text(SECRET)
    trainer = make_trainer(family, out, hub_model_id="me/mine", hub_token=TOKEN)
    if is_adapter:
        # A local folder is not a base model.
        trainer.model.config.name_or_path = str(tmp_path)
        adapter = LoraConfig(r=2, init_lora_weights=False, target_modules=["query", "value"])
        trainer.model = trainer.model_wrapped = get_peft_model(trainer.model, adapter)
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    trainer.push_to_hub(language="en", license="mit", dataset="Mine")
    # The local folder keeps these files, so that the training can be resumed.
    assert str(tmp_path) in (out / "trainer_state.json").read_text() and (out / "training_args.bin").exists()
    assert_nothing_leaks(hub, tmp_path)
    weights = "adapter_model.safetensors" if is_adapter else "model.safetensors"
    commits = [commit for commit in hub.commits("me/mine") if weights in commit.files]
    assert [commit.message for commit in commits] == ["Model save", "End of training"]
    assert trainer.args.hub_token == TOKEN and pickle.loads(pickle.dumps(trainer.args)).hub_token is None
    if is_adapter:
        code = {f"{name}.py" for name in MODEL_CODE[family]}
        assert all(code | {"README.md", "adapter_config.json"} <= set(commit.files) for commit in commits)
        assert_gives_the_trained_predictions(hub, tmp_path / "pushed", trainer, *make(family))
        return
    for commit in commits:
        assert whole(family) <= set(commit.files)
        assert card_of(commit.files).data.tags
    card = card_of(hub.files("me/mine"))
    assert (card.data.language, card.data.license) == (["en"], "mit")


def assert_gives_the_trained_predictions(hub: HubServer, folder: Path, trainer, model, tokenizer):
    """Checks that the pushed adapter gives the trained predictions on its base model."""
    folder.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / name).write_bytes(hub.files("me/mine")[name])
    before = answer(model, tokenizer)
    merged = answer(PeftModel.from_pretrained(model, folder).merge_and_unload(), tokenizer)
    assert merged == pytest.approx(answer(trainer.model.merge_and_unload().eval(), tokenizer), abs=1e-5)
    assert merged != pytest.approx(before, abs=1e-3)


def glue(tmp_path: Path, *arguments: str):
    main = runpy.run_path(str(ROOT / "run_glue_style.py"))["main"]
    posts = write_posts(tmp_path / "posts.csv", list(synthetic_posts(10, seed=0, posts_per_timeline=5)))
    main(["configuration/demo.yaml", "--train_file", posts, *arguments])


def mlm(tmp_path: Path, *arguments: str):
    BertForMaskedLM(BertConfig(**SIZES)).save_pretrained(tmp_path / "bert")
    BertTokenizer(vocab=VOCABULARY, model_max_length=16).save_pretrained(tmp_path / "bert")
    texts = []
    for time, word in (("1810-1860", "tree"), ("1960-2010", "plane")):
        texts.append(str(tmp_path / f"{time}.txt"))
        Path(texts[-1]).write_text(f"the {word} flew\n" * 40)
    tasks = ["--do_train", "--do_eval", "--do_predict", "--train_files", *texts, "--test_files", texts[0]]
    short = ["--max_seq_length", "12", "--report_to", "none", "--prepend_time", "true", "--eval_strategy", "epoch"]
    train_dated(["--model_name_or_path", str(tmp_path / "bert"), *tasks, *short, *arguments])


@pytest.mark.slow
@pytest.mark.parametrize("script", [glue, mlm])
def test_a_dry_run_writes_and_lists_what_a_push_sends(hub, tmp_path, monkeypatch, capsys, script):
    monkeypatch.chdir(ROOT)
    out = tmp_path / "out"
    given = ["--output_dir", str(out), "--num_train_epochs", "1", "--hub_model_id", "me/mine", "--hub_token", TOKEN]
    script(tmp_path, *given, "--push_to_hub_dry_run")
    shown = capsys.readouterr().out
    written = {path.name: path.read_bytes() for path in (out / "_push_to_hub").iterdir()}
    with pytest.raises(KeyError):
        hub.files("me/mine")
    with pytest.raises(ValueError, match="--push_to_hub_dry_run"):
        script(tmp_path, *given, "--push_to_hub_dry_run", "--push_to_hub")
    # The same command with a push loads the model.
    script(tmp_path, *given, "--push_to_hub")
    sent = hub.files("me/mine")
    assert written.keys() == sent.keys() - {".gitattributes"}
    for name in written:
        assert re.search(rf"{len(written[name]) / 1e3:,.1f} kB  {re.escape(name)}$", shown, flags=re.MULTILINE), name
        if name.endswith((".py", ".safetensors")):
            assert written[name] == sent[name], name
    assert "me/mine" in written["README.md"].decode() and str(out) not in written["README.md"].decode()


@pytest.mark.parametrize(("script", "family"), [(glue, "stream"), (mlm, "dated")])
def test_a_script_pushes_all_but_predictions(hub, tmp_path, monkeypatch, script, family):
    monkeypatch.chdir(ROOT)
    content = json.dumps({"language": "en", "license": "cc-by-4.0", "dataset": "Made up"})
    push = ["--push_to_hub", "--hub_model_id", "me/mine", "--hub_token", TOKEN, "--model_card", content]
    script(tmp_path, "--output_dir", str(tmp_path / "out"), "--num_train_epochs", "1", *push)
    assert (tmp_path / "out" / "_predictions.csv").exists()
    assert_nothing_leaks(hub, tmp_path)
    for commit in hub.commits("me/mine"):
        assert "model.safetensors" not in commit.files or whole(family) <= set(commit.files)
    card = card_of(hub.files("me/mine"))
    figures = {path.name for path in (tmp_path / "out").glob("*.png")}
    assert figures == (set(FIGURES) if family == "stream" else {"learning_curve.png"})
    for name, content in hub.files("me/mine").items():
        if name.endswith(".png"):
            assert content == (tmp_path / "out" / name).read_bytes()
    # Each figure has a text for readers who cannot see it.
    assert set(re.findall(r"^!\[[A-Z][^\]]+\]\((.*)\)$", card.text, flags=re.MULTILINE)) == figures
    assert {name for name in hub.files("me/mine") if name.endswith(".png")} == figures
    assert (card.data.language, card.data.license) == (["en"], "cc-by-4.0")
    results = json.loads((tmp_path / "out" / "all_results.json").read_text())
    shown = {(result.dataset_split, result.metric_name): result.metric_value for result in card.data.eval_results}
    if family == "stream":
        assert shown["test", "Macro F1"] == results["test"]["macro_f1"]
        assert shown["test", "F1 (Switch)"] == results["test"]["classes"]["Switch"]["f1"]
    else:
        assert shown["test", "Macro F1"] == results["predict_macro_f1"]
        assert shown["validation", "Perplexity"] == results["eval_perplexity"]
        assert shown["test", "Accuracy"] == results["predict_accuracy"]
