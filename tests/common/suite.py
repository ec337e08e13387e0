"""
Loads the common tests of Transformers, which all its models and tokenizers pass. They come from the source
distribution of the installed version. `make test-slow` downloads it beside the installed packages. It lacks the tests
of pipelines.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


FOLDER = Path(sys.prefix) / "common_tests" / "tests"
PACKAGE = "transformers_common_tests"
# Base classes that the common tests import, but the source distribution lacks.
MISSING = {"exporters.test_export": "ExportTesterMixin", "generation.test_utils": "GenerationTesterMixin"}
MARKERS = ("accelerate_tests", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "torch_compile_test")

# Common tests that our models fail, each with the reason.
KNOWN_FAILURES = {
    "PaperModelTest.test_can_load_ignoring_mismatched_shapes": "The layer of the classes is looked for among the "
    "direct children of the head; ours is in its `mlp`. tests/test_model_common.py loads other classes.",
    "PostModelTest.test_can_load_ignoring_mismatched_shapes": "The layer of the classes is looked for among PyTorch's "
    "layers; ours has the weights of all members. tests/test_model_common.py loads other classes.",
    "StreamTests.test_load_with_mismatched_shapes": "The second axis of the logits is for the streams, and not for "
    "the classes.",
    "StreamTests.test_problem_types": "A post has one class of several: `problem_type` is refused for other problems.",
    "StreamTests.test_retain_grad_hidden_states_attentions": "Attention weights are returned for each post of a row, "
    "copied from groups of posts of similar length, and so get no gradient. Hidden states do "
    "(tests/test_as_transformers_expects.py).",
    "TemporalTests.test_load_with_mismatched_shapes": "The model is called without `time_ids`, which it refuses.",
}


def load(name: str) -> ModuleType:
    """Returns a module of the common tests. Skips the calling module if the common tests are not downloaded."""
    if not FOLDER.exists():
        pytest.skip("`make test-slow` fetches the common tests of Transformers", allow_module_level=True)
    if PACKAGE not in sys.modules:
        sys.modules[PACKAGE] = ModuleType(PACKAGE)
        sys.modules[PACKAGE].__path__ = [str(FOLDER)]
        for path, mixin in MISSING.items():
            parent = path.partition(".")[0]
            sys.modules[f"{PACKAGE}.{parent}"] = ModuleType(parent)
            sys.modules[f"{PACKAGE}.{path}"] = SimpleNamespace(**{mixin: type(mixin, (), {})})
    return importlib.import_module(f"{PACKAGE}.{name}")
