"""A saved folder loads, predicts and saves again in a process that does not have this package."""

import ast
import subprocess
import sys

import pytest
import torch
from helpers import (
    HUB_MODULES,
    MODELS,
    PACKAGE,
    POST_MODULES,
    TEMPORAL_MODULES,
    TOKENIZER_MODULES,
    dated_config,
    tiny_batch,
    tiny_encoder,
    tiny_model,
    tiny_reader,
)
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import pipeline
from transformers.pipelines import SUPPORTED_TASKS

from modeling_tempoformer import write_card


# Code that was loaded from a folder must be saved again: the second round loads what the first saved.
ELSEWHERE = """
import sys
sys.modules["modeling_tempoformer"] = None  # importing the package fails, as if it were not installed
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification

for case in sys.argv[1:]:
    batch = load_file(f"{case}/batch.safetensors")
    post = {name: batch[name][0, :1] for name in ("input_ids", "attention_mask", "time_ids") if name in batch}
    for source, target in ((f"{case}/saved", f"{case}/again_0"), (f"{case}/again_0", f"{case}/again_1")):
        model = AutoModelForSequenceClassification.from_pretrained(source, trust_remote_code=True)
        logits = model(**batch).logits
        base = AutoModel.from_pretrained(source, trust_remote_code=True)
        assert type(base).__name__ == type(model.base_model).__name__
        state = model.step(**post, timeline_ids=["ann"]).state
        restored = type(model).restore_state(state.state_dict())
        steps = [model.step(**post, timeline_ids=["ann"], state=one).logits for one in (state, restored)]
        torch.testing.assert_close(*steps, atol=1e-5, rtol=0)
        model.save_pretrained(target)
        save_file({"logits": logits.detach().contiguous()}, target + "/logits.safetensors")
"""


MODULES = {
    **dict.fromkeys(("token", "dated"), HUB_MODULES),
    **{"post": POST_MODULES, "dated post": {*POST_MODULES, *TEMPORAL_MODULES, "modeling_temporal_post_tempoformer"}},
}


def test_round_trip_without_the_package(tmp_path):
    """Streams of posts, and of posts whose encoder reads their calendar times."""
    plain, dated = tiny_encoder(), {**dated_config().to_dict(), "vocab_size": 60}
    cases = {"token": (plain, MODELS[0]), "post": (plain, MODELS[1])}
    cases |= {"dated": (dated, MODELS[0]), "dated post": (dated, MODELS[1])}
    expected = {}
    for case, (encoder, kind) in cases.items():
        model, batch = tiny_model(encoder_config=encoder, **kind), tiny_batch()
        if case.startswith("dated"):
            batch["time_ids"] = 3 * batch["attention_mask"]
        model.save_pretrained(tmp_path / case / "saved")
        save_file(batch, tmp_path / case / "batch.safetensors")
        expected[case] = model(**batch).logits
    command = [sys.executable, "-c", ELSEWHERE, *cases]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for case, logits in expected.items():
        for folder in (tmp_path / case / "again_0", tmp_path / case / "again_1"):
            found = load_file(folder / "logits.safetensors")["logits"]
            torch.testing.assert_close(found, logits, atol=1e-5, rtol=1e-5)
            assert {path.stem for path in folder.glob("*.py")} == MODULES[case]


ALL_MODULES = {*HUB_MODULES, *TOKENIZER_MODULES, *MODULES["dated post"]}


def test_the_modules_that_travel_are_those_with_such_names():
    named = {path.stem for path in PACKAGE.glob("*.py") if path.stem.endswith(("_tempoformer", "_temporal_bert"))}
    assert named | {"modeling_tempoformer_encoders"} == ALL_MODULES


@pytest.mark.parametrize("name", sorted(ALL_MODULES))
def test_a_hub_module_imports_only_harmless_modules_that_every_user_has(name):
    """None of them can open a file, start a process or reach the network by itself."""
    standard = {"collections", "contextlib", "copy", "dataclasses", "datetime", "functools", "itertools", "json"}
    standard |= {"math", "numbers", "re", "typing"}
    for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= standard | {"torch"}
        elif isinstance(node, ast.ImportFrom) and node.level:
            assert node.level == 1 and node.module in ALL_MODULES
        elif isinstance(node, ast.ImportFrom):
            assert node.module.split(".")[0] in standard | {"torch", "transformers", "huggingface_hub"}
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in ("open", "eval", "exec", "compile", "__import__")


def test_a_pipeline_for_single_texts_names_the_one_for_streams(tmp_path):
    model, _ = tiny_reader(tmp_path)
    write_card(model, tmp_path)
    tagged = ModelCard.load(tmp_path / "README.md").data
    assert tagged.pipeline_tag not in SUPPORTED_TASKS and "stream-classification" in tagged.tags
    with pytest.raises(ValueError, match="stream-classification"):
        pipeline("text-classification", model=str(tmp_path))("so sad")
    # Without a task, the model's own is taken.
    pipe = pipeline(model=str(tmp_path), trust_remote_code=True)
    assert len(pipe({"text": ["so sad", "so glad"], "timestamp": [0, 60]})) == 2
