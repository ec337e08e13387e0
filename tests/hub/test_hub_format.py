"""Checks that saved folders load, predict and save again in a process without this package."""

import ast

import pytest
import torch
from helpers import (
    ENCODERS,
    MODELS,
    OTHER_ENCODERS,
    PACKAGE,
    PAPER_MODULES,
    POST_MODULES,
    TEMPORAL_MODULES,
    TIMES,
    TINY,
    TOKENIZER_MODULES,
    WITH_STATES,
    dated_bert,
    dated_roberta,
    read_json,
    run_without_package,
    tiny_batch,
    tiny_encoder,
    tiny_model,
    tiny_reader,
)
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import pipeline
from transformers.pipelines import SUPPORTED_TASKS

import modeling_tempoformer
from modeling_tempoformer import modeling_temporal_bert, write_card


# The arguments are folders. Each contains a folder `0`, which the Auto class in the folder's name loads. Code that was
# loaded from a folder must be saved again: the second round loads the files that the first round saved.
ELSEWHERE = """
import json
from pathlib import Path
import torch, transformers
from safetensors.torch import load_file, save_file

for folder in map(Path, sys.argv[1:]):
    auto_class = getattr(transformers, folder.name.split("-")[0])
    for number in range(2):
        source = folder / str(number)
        loaded = auto_class.from_pretrained(source, trust_remote_code=True)
        loaded.save_pretrained(folder / str(number + 1))
        if folder.name.startswith("AutoTokenizer"):
            found = loaded(["the plane", "trees"], time=["1815", "1999-12-31"], padding=True)
            (source / "found.json").write_text(json.dumps(found.data))
            continue
        batch = load_file(folder / "batch.safetensors")
        save_file({"found": loaded(**batch)[0].detach().contiguous()}, source / "found.safetensors")
        base = transformers.AutoModel.from_pretrained(source, trust_remote_code=True)
        assert type(base).__name__ == type(loaded.base_model).__name__
"""


def streams(**settings) -> tuple:
    """Returns an Auto class, a stream classifier, a batch for it, and the modules that are saved with it."""
    model = tiny_model(**settings)
    batch = tiny_batch(pad=model.config.encoder_config.pad_token_id)
    del batch["labels"]
    if model.config.reads_speakers:
        batch["speaker_posts"] = (batch["stream_index"][..., -1:] - 2).clamp_min(-1)
        batch["timeline_position"] = batch["elapsed"][..., :2].contiguous()
    modules = PAPER_MODULES if model.config.model_type == "tempoformer" else POST_MODULES
    return "AutoModelForSequenceClassification", model, batch, modules


def texts(name: str, **settings) -> tuple:
    """Returns an Auto class, a model of dated texts, a batch for it, and the modules that are saved with it."""
    model_class = getattr(modeling_tempoformer, name)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(times=TIMES, **{**TINY, "initializer_range": 0.3, **settings})).eval()
    batch = {name: tiny_batch()[name][1, :4] for name in ("input_ids", "attention_mask")}
    batch["time_ids"] = 3 * batch["attention_mask"]
    _, head, task = name.partition("For")
    return f"AutoModel{head}{task}", model, batch, TEMPORAL_MODULES


def first_models() -> list[tuple]:
    kinds = [*MODELS, {**WITH_STATES, "first_posts": "timeline", "no_change": 2}]
    return [streams(encoder_config=tiny_encoder(), **kind) for kind in kinds]


def every_family() -> list[tuple]:
    others = [{"model_type": name, "pad_token_id": 0, **fields} for name, fields in OTHER_ENCODERS.items()]
    made = [streams(encoder_config=encoder, model_type="post_tempoformer") for encoder in others]
    return made + [streams(family=family) for family in ENCODERS if family != "bert"]


def every_head() -> list[tuple]:
    """Returns a model for each head of the temporal BERT, and for each mode of its attention."""
    heads = [name for name in modeling_temporal_bert.__all__ if "WithTemporalAttention" in name]
    modes = [{"temporal_residual": True}, {"temporal_attention": "scaled"}, {"temporal_attention": "none"}]
    return [texts(name) for name in heads] + [texts(heads[0], **mode) for mode in modes]


@pytest.mark.parametrize(
    "make", [first_models, *(pytest.param(make, marks=pytest.mark.slow) for make in (every_family, every_head))]
)
def test_models_round_trip_without_the_package(tmp_path, make):
    expected, folders = {}, {}
    for number, (auto_class, model, batch, modules) in enumerate(make()):
        folder = tmp_path / f"{auto_class}-{number}"
        model.save_pretrained(folder / "0")
        save_file(batch, folder / "batch.safetensors")
        expected[folder], folders[folder] = model(**batch)[0], modules
    run_without_package(ELSEWHERE, *expected)
    for folder, logits in expected.items():
        for number in range(2):
            actual = load_file(folder / str(number) / "found.safetensors")["found"]
            torch.testing.assert_close(actual, logits, atol=1e-5, rtol=1e-5)
            assert {path.stem for path in (folder / str(number + 1)).glob("*.py")} == folders[folder]


@pytest.mark.slow
def test_tokenizers_round_trip_without_the_package(tmp_path):
    expected = {}
    for make in (dated_bert, dated_roberta):
        folder, tokenizer = tmp_path / f"AutoTokenizer-{make.__name__}", make(prepend_time=True)
        tokenizer.save_pretrained(folder / "0")
        expected[folder] = tokenizer(["the plane", "trees"], time=["1815", "1999-12-31"], padding=True).data
    run_without_package(ELSEWHERE, *expected)
    for folder, data in expected.items():
        assert [read_json(folder / str(number) / "found.json") for number in range(2)] == [data, data]


# The last one travels with a model that has such an encoder alone.
ALL_MODULES = {*POST_MODULES, *PAPER_MODULES, *TEMPORAL_MODULES, *TOKENIZER_MODULES, "onnx_encoder_tempoformer"}


def test_the_modules_that_travel_are_those_with_such_names():
    named = {path.stem for path in PACKAGE.glob("*.py") if path.stem.endswith(("_tempoformer", "_temporal_bert"))}
    assert named | {"modeling_tempoformer_encoders"} == ALL_MODULES


@pytest.mark.parametrize("name", sorted(ALL_MODULES))
def test_a_hub_module_imports_only_harmless_modules_that_every_user_has(name):
    """
    The allowed modules cannot open a file, start a process or reach the network. ONNX Runtime, which computes a graph
    of numbers, is imported where a model needs it.
    """
    standard = {"collections", "contextlib", "copy", "dataclasses", "datetime", "functools", "itertools", "json"}
    standard |= {"decimal", "hashlib", "math", "numbers", "re", "typing", "unicodedata"}
    packages = {"torch", "transformers", "huggingface_hub"} | ({"onnxruntime"} if name.startswith("onnx_") else set())
    for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= standard | {"torch"}
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1 and node.module in ALL_MODULES
        elif isinstance(node, ast.ImportFrom):
            assert node.module.split(".")[0] in standard | packages
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in ("open", "eval", "exec", "compile", "__import__")


def test_a_pipeline_for_single_texts_names_the_one_for_streams(tmp_path):
    model, _ = tiny_reader(tmp_path)
    write_card(model, tmp_path)
    tagged = ModelCard.load(tmp_path / "README.md").data
    # The Hub finds it under a task of its own.
    assert tagged.pipeline_tag in SUPPORTED_TASKS and "stream-classification" in tagged.tags
    with pytest.raises(ValueError, match="stream-classification"):
        pipeline(tagged.pipeline_tag, model=str(tmp_path))("so sad")
    # Without a task, the pipeline takes the model's own.
    pipe = pipeline(model=str(tmp_path), trust_remote_code=True)
    assert len(pipe({"text": ["so sad", "so glad"], "timestamp": [0, 60]})) == 2
