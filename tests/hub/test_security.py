"""No code from data: no pickles, no network, no text of a post taken for more than text, no token written down."""

import ast
import csv
import json
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pytest
import torch
from datasets import Dataset
from helpers import HUB_MODULES, PACKAGE, TOKENIZER_MODULES, tiny_encoder, tiny_model
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
)

from modeling_tempoformer import (
    BertWithTemporalAttentionForMaskedLM,
    StreamCollator,
    TempoFormerForStreamClassification,
    TempoFormerModel,
)
from modeling_tempoformer.baselines.configuration_history import HistoryConfig
from modeling_tempoformer.baselines.frozen_embeddings import embed_texts
from modeling_tempoformer.baselines.modeling_history import HistoryForStreamClassification
from modeling_tempoformer.conversion import main as convert
from modeling_tempoformer.data.rows import to_rows
from modeling_tempoformer.data.synthetic import synthetic_posts
from modeling_tempoformer.data.timelines import PostError, to_timelines
from modeling_tempoformer.evaluation.classification_report import confusion_figure
from modeling_tempoformer.evaluation.predictions import prediction_rows, write_predictions
from modeling_tempoformer.evaluation.text_tables import format_table
from modeling_tempoformer.semantic_change.report import plot_ranks
from modeling_tempoformer.training.stream_trainer import StreamTrainer, StreamTrainingArguments
from modeling_tempoformer.training.temporal_trainer import TemporalTrainingArguments


ROOT = PACKAGE.parent
SOURCES = sorted([*PACKAGE.rglob("*.py"), *ROOT.glob("*.py"), *(ROOT / "benchmarks").glob("*.py")])


class Bomb:
    """What a pickle of it does to whoever reads it: a file at `path`."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.fixture
def exploded(tmp_path) -> Path:
    """The file that is there once a planted pickle was run."""
    return tmp_path / "exploded"


def plant(file: Path, exploded: Path):
    """A malicious pickle, as torch.save writes it."""
    torch.save({"weight": Bomb(exploded)}, file)


def test_the_planted_pickles_would_run(tmp_path, exploded):
    plant(tmp_path / "model.bin", exploded)
    torch.load(tmp_path / "model.bin", weights_only=False)
    assert exploded.exists()


LOADERS: dict[str, Callable[[Path], Any]] = {
    "the model": TempoFormerForStreamClassification.from_pretrained,
    "its base": TempoFormerModel.from_pretrained,
    "an Auto class": AutoModelForSequenceClassification.from_pretrained,
    "remote code": lambda folder: AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True),
}
ENCODER_LOADERS: dict[str, Callable[[Path], Any]] = {
    "a new model on an encoder": TempoFormerForStreamClassification.from_encoder_pretrained,
    "an encoder given time": lambda folder: BertWithTemporalAttentionForMaskedLM.from_pretrained(folder, times=["1"]),
    "frozen embeddings": lambda folder: embed_texts(["sad"], str(folder), cache_dir=folder),
}


def save_model(folder: Path, tokenization: Path):
    tiny_model().save_pretrained(folder)


def save_encoder(folder: Path, tokenization: Path):
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    config = AutoConfig.for_model(**{**tiny_encoder(), "vocab_size": len(tokenizer)})
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_baseline(folder: Path, tokenization: Path):
    HistoryForStreamClassification(HistoryConfig(architecture="bilstm", embedding_size=4)).save_pretrained(folder)


CASES = [(save_model, load) for load in LOADERS.values()]
CASES += [(save_encoder, load) for load in ENCODER_LOADERS.values()]
CASES += [(save_baseline, HistoryForStreamClassification.from_pretrained)]


@pytest.mark.parametrize(("save", "load"), CASES, ids=[*LOADERS, *ENCODER_LOADERS, "a baseline"])
def test_weights_are_never_read_from_a_pickle(tmp_path, tokenization, exploded, save, load):
    folder = tmp_path / "saved"
    save(folder, tokenization)
    harmless = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    # Also one that would do no harm.
    torch.save(harmless, folder / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        load(folder)
    plant(folder / "pytorch_model.bin", exploded)
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        load(folder)
    (folder / "model.safetensors").write_bytes(pickle.dumps(Bomb(exploded)))
    with pytest.raises(Exception, match="header"):
        load(folder)
    assert not exploded.exists()


def test_an_index_that_leads_to_a_pickle_runs_nothing(tmp_path, exploded):
    """Transformers follows it, but with `weights_only=True`."""
    tiny_model().save_pretrained(tmp_path, max_shard_size="2KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    plant(tmp_path / "evil.bin", exploded)
    index["weight_map"] = dict.fromkeys(index["weight_map"], "evil.bin")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UnpicklingError, match="weights_only"):
        TempoFormerForStreamClassification.from_pretrained(tmp_path)
    assert not exploded.exists()


def test_the_converter_runs_no_code_of_a_checkpoint(tmp_path, monkeypatch, exploded):
    plant(tmp_path / "published.pt", exploded)
    monkeypatch.setattr("sys.argv", ["conversion", str(tmp_path / "published.pt"), "out", "--encoder", "none"])
    with pytest.raises(UnpicklingError, match="weights_only"):
        convert()
    assert not exploded.exists()


def make_trainer(folder: Path, tokenization: Path, **arguments) -> StreamTrainer:
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    posts = Dataset.from_list(list(synthetic_posts(3, seed=0, posts_per_timeline=4)))
    rows = to_rows(to_timelines(posts, ["No-Switch", "Switch"]), tokenizer, window=4)
    settings = {"remove_unused_columns": False, "report_to": "none", "use_cpu": True, "disable_tqdm": True}
    settings |= {"max_steps": 2, "save_steps": 1, **arguments}
    return StreamTrainer(
        model=tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)}, num_labels=2),
        args=StreamTrainingArguments(output_dir=str(folder), **settings),
        train_dataset=rows,
        processing_class=tokenizer,
        data_collator=StreamCollator(tokenizer, window=4),
    )


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_the_trainer_s_state_is_read_as_weights_only(tmp_path, tokenization, exploded, name):
    make_trainer(tmp_path / "out", tokenization).train()
    plant(tmp_path / "out" / "checkpoint-1" / name, exploded)
    with pytest.raises(UnpicklingError, match="weights_only"):
        make_trainer(tmp_path / "out", tokenization).train(str(tmp_path / "out" / "checkpoint-1"))
    assert not exploded.exists()


def test_training_arguments_are_written_and_never_read(tmp_path, tokenization, exploded):
    make_trainer(tmp_path / "out", tokenization).train()
    plant(tmp_path / "out" / "checkpoint-1" / "training_args.bin", exploded)
    trainer = make_trainer(tmp_path / "out", tokenization)
    trainer.train(str(tmp_path / "out" / "checkpoint-1"))
    assert trainer.state.global_step == 2 and not exploded.exists()


PICKLING = {"pickle", "cPickle", "dill", "joblib", "cloudpickle", "shelve", "marshal", "jsonpickle"}


def calls(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The calls of a file: what is called, and its keyword arguments as far as they are written out."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            settings = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            found.append((ast.unparse(node.func), settings))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_reads_pickles(path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module.split(".")[0])
    assert not imported & PICKLING
    for name, settings in calls(path):
        if name == "torch.load":
            assert settings["weights_only"] is True and path.stem == "conversion"
        if name in ("np.load", "numpy.load"):
            assert settings["allow_pickle"] is False
        if name.startswith("AutoModel") and name.endswith(".from_pretrained"):
            # Only ours refuse pickles themselves: `load` is told to, and a saved demo is ours.
            told = settings.get("use_safetensors") is True or path.stem in (
                "modeling_tempoformer_encoders",
                "demo_reload",
            )
            assert told, name
        assert name not in ("eval", "exec", "__import__", "os.system")


def test_hub_modules_take_little_of_the_standard_library():
    """What travels can open no file, start no process and reach no network by itself."""
    allowed = {"collections", "contextlib", "copy", "dataclasses", "datetime", "math", "numbers", "re", "typing"}
    for name in HUB_MODULES | TOKENIZER_MODULES:
        path = PACKAGE / f"{name}.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = {node.module.split(".")[0]}
            else:
                continue
            assert modules <= allowed | {"torch", "transformers", "huggingface_hub"}, name
        assert not {called for called, _ in calls(path)} & {"open", "eval", "exec", "compile", "__import__"}, name


ELSEWHERE = "192.0.2.1"  # Set aside for documentation: nobody has it.
ATTEMPTS = {
    "a connection": f"socket.create_connection(('{ELSEWHERE}', 80), timeout=1)",
    "a connection that returns its error": f"socket.socket().connect_ex(('{ELSEWHERE}', 80))",
    "a packet": f"socket.socket(type=socket.SOCK_DGRAM).sendto(b'?', ('{ELSEWHERE}', 53))",
    "a name": "socket.getaddrinfo('example.com', 80)",
    "a request of the Hub's client": "import huggingface_hub; huggingface_hub.HfApi().model_info('some/model')",
}


@pytest.mark.parametrize("code", ATTEMPTS.values(), ids=ATTEMPTS)
def test_other_machines_are_out_of_reach(tmp_path, monkeypatch, code):
    monkeypatch.setenv("REFUSED_CONNECTIONS", str(tmp_path / "refused.txt"))
    with pytest.raises(Exception, match="reach no other machine"):
        exec(f"import socket\n{code}")
    assert "test_other_machines_are_out_of_reach" in (tmp_path / "refused.txt").read_text()


def test_so_they_are_from_the_processes_of_tests(tmp_path, monkeypatch):
    monkeypatch.setenv("REFUSED_CONNECTIONS", str(tmp_path / "refused.txt"))
    command = [sys.executable, "-c", f"import socket\n{ATTEMPTS['a connection']}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "Tests reach no other machine" in done.stderr and ELSEWHERE in (tmp_path / "refused.txt").read_text()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_is_within_reach(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        server.bind((host, 0))
        server.listen()
        with socket.create_connection(server.getsockname()[:2], timeout=5) as client:
            client.sendall(b"hello")
            with server.accept()[0] as other:
                assert other.recv(5) == b"hello"


def test_nothing_is_asked_of_the_network_unless_it_is_named(tmp_path, tokenization):
    """Import, save, load by every class, the pipeline: all in a process that fails at the first attempt."""
    tokenizer = AutoTokenizer.from_pretrained(tokenization)
    model = tiny_model(encoder_config={**tiny_encoder(), "vocab_size": len(tokenizer)})
    model.save_pretrained(tmp_path / "saved")
    tokenizer.save_pretrained(tmp_path / "saved")
    code = """
import sys
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline
AutoTokenizer.from_pretrained(sys.argv[1])
AutoModelForSequenceClassification.from_pretrained(sys.argv[1], trust_remote_code=True).save_pretrained(sys.argv[2])
pipe = pipeline("stream-classification", model=sys.argv[1], trust_remote_code=True)
print(pipe({"text": ["sad", "glad"], "timestamp": [0, 60]}))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "saved"), str(tmp_path / "again")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    # That nobody asked is seen by the fixture `no_network`.
    assert done.returncode == 0, done.stderr


# A line break and a terminal's command; a formula; a table's border; what a spreadsheet would run, or a browser.
NASTY = ["a\nb\x1b[31m", r"$\frac$", "| x |", "=1+1", "<script>alert(1)</script>", '"quoted", twice']


def test_tables_show_text_as_text():
    lines = format_table([{"word": name, "n": 1} for name in NASTY]).split("\n")
    assert len(lines) == 1 + len(NASTY)
    assert all(line.isprintable() for line in lines)
    assert lines[1].startswith(r"a\nb\x1b[31m") and lines[2].startswith(r"$\frac$")


def test_figures_show_text_as_text(tmp_path):
    """A formula that cannot be read would fail, one that can would be shown as another text."""
    plot_ranks(tmp_path / "ranks.png", dict.fromkeys(NASTY, 1.0), dict(zip(NASTY, range(6), strict=True)), "ranks")
    figure = confusion_figure([0, 1], [0, 1], [r"$\frac$", "$x$"])
    figure.savefig(tmp_path / "confusion.png")
    labels = [*figure.axes[0].get_xticklabels(), *figure.axes[0].get_yticklabels()]
    assert [label.get_text() for label in labels] == [r"$\frac$", "$x$"] * 2
    assert not any(label.get_parse_math() for label in labels)


def test_errors_show_text_as_text():
    for number, name in enumerate(NASTY):
        posts = [
            {"timeline_id": name, "text": "", "timestamp": 1},
            {"timeline_id": name, "text": "", "timestamp": None},
        ]
        with pytest.raises(PostError) as error:
            to_timelines(Dataset.from_list(posts))
        assert str(error.value).isprintable() and repr(name) in str(error.value), number


def test_predictions_are_read_back_as_they_were(tmp_path):
    posts = [{"timeline_id": name, "text": name, "label": name, "id": f"{name} "} for name in NASTY]
    timelines = to_timelines(Dataset.from_list(posts), NASTY, id_column="id")
    probabilities = torch.eye(6).numpy()
    write_predictions(str(tmp_path), prediction_rows(timelines, probabilities.argmax(-1), probabilities, NASTY))
    with (tmp_path / "_predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["timeline_id"], row["label"], row["prediction"]) for row in rows] == [(name,) * 3 for name in NASTY]


TOKEN, OTHER_TOKEN = "hf_ThisIsNoTokenOfAnyone12345678901", "hf_NorIsThisOneWhichIsInTheEnvironme"


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tokens_are_not_written_anywhere(tmp_path, tokenization, monkeypatch, caplog, capfd):
    monkeypatch.setenv("HF_TOKEN", OTHER_TOKEN)
    caplog.set_level("DEBUG")
    trainer = make_trainer(tmp_path / "out", tokenization, hub_token=TOKEN, logging_steps=1, log_level="debug")
    trainer.train()
    trainer.save_model()
    trainer.save_state()
    trainer.create_model_card()
    assert trainer.args.hub_token == TOKEN
    files = everything_in(tmp_path / "out")
    assert {"training_args.bin", "config.json", "README.md", "checkpoint-1/training_args.bin"} <= set(files)
    said = [caplog.text, *capfd.readouterr(), str(trainer.args), repr(trainer.args)]
    said += [str(trainer.args.to_dict()), trainer.args.to_json_string(), str(trainer.args.to_sanitized_dict())]
    said += [trainer.model.config.to_json_string()]
    for token in (TOKEN, OTHER_TOKEN):
        assert [name for name, content in files.items() if token.encode() in content] == []
        assert not any(token in text for text in said)


@pytest.mark.parametrize("arguments", [StreamTrainingArguments, TemporalTrainingArguments])
def test_pickled_arguments_have_no_token(tmp_path, arguments):
    """The Trainer saves them beside the model, and pushes them with it."""
    given = arguments(output_dir=str(tmp_path), hub_token=TOKEN, learning_rate=0.125)
    copied = pickle.loads(pickle.dumps(given))
    assert copied.hub_token is None and copied.learning_rate == 0.125 and given.hub_token == TOKEN


def test_a_masked_language_model_is_read_from_safetensors_only(tmp_path, exploded):
    """A temporal model of its own folder, by its Auto class."""
    BertForMaskedLM(
        BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    ).save_pretrained(tmp_path)
    BertWithTemporalAttentionForMaskedLM.from_pretrained(tmp_path, times=["1815", "1990"]).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    plant(tmp_path / "pytorch_model.bin", exploded)
    with pytest.raises(OSError, match=r"no file named model\.safetensors"):
        AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert not exploded.exists()
