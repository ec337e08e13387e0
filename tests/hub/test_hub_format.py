"""A saved folder loads, predicts and saves again in a process that does not have this package."""

import ast
import subprocess
import sys

import torch
from helpers import HUB_MODULES, PACKAGE, TOKENIZER_MODULES, tiny_batch, tiny_model
from safetensors.torch import load_file, save_file


ELSEWHERE = """
import sys
sys.modules["modeling_tempoformer"] = None  # an import of the package fails, as where it is not installed
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification

source, target, batch_file, logits_file = sys.argv[1:]
model = AutoModelForSequenceClassification.from_pretrained(source, trust_remote_code=True)
save_file({"logits": model(**load_file(batch_file)).logits.detach().contiguous()}, logits_file)
assert type(AutoModel.from_pretrained(source, trust_remote_code=True)).__name__ == "TempoFormerModel"
model.save_pretrained(target)
"""


def test_round_trip_without_the_package(tmp_path):
    model, batch = tiny_model(), tiny_batch()
    save_file(batch, tmp_path / "batch.safetensors")
    model.save_pretrained(tmp_path / "saved")
    source = tmp_path / "saved"
    # Twice: what was loaded as remote code must save its code again.
    for number in range(2):
        target, logits = tmp_path / f"again_{number}", tmp_path / f"logits_{number}.safetensors"
        command = [sys.executable, "-c", ELSEWHERE, source, target, tmp_path / "batch.safetensors", logits]
        done = subprocess.run([str(part) for part in command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert torch.equal(load_file(logits)["logits"], model(**batch).logits)
        assert {path.stem for path in target.glob("*.py")} == HUB_MODULES
        source = target


def test_the_modules_that_travel_are_those_with_such_names():
    named = {path.stem for path in PACKAGE.glob("*.py") if path.stem.endswith(("_tempoformer", "_temporal_bert"))}
    assert named | {"modeling_tempoformer_encoders"} == HUB_MODULES | TOKENIZER_MODULES


def test_hub_modules_import_only_what_every_user_has():
    allowed = {"torch", "transformers", "huggingface_hub", *sys.stdlib_module_names}
    for name in HUB_MODULES | TOKENIZER_MODULES:
        for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text())):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed, name
            elif isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1 and node.module in HUB_MODULES | TOKENIZER_MODULES, name
            elif isinstance(node, ast.ImportFrom):
                assert node.module.split(".")[0] in allowed, name
