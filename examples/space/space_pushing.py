"""Pushes the app to the Hub as a Space."""

import logging
import sys
from importlib.metadata import version
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi
from jinja2 import Template

from modeling_tempoformer.common.files import PACKAGE, data_folder
from modeling_tempoformer.common.markdown import markdown
from modeling_tempoformer.view.timelines import load_pipeline


# The app, which lies beside the package in a Space.
APP = ("space_app.py", "space_app.css", "space_posts.py")
# The files of the package that the app needs. The folder of a checkout may hold others.
SOURCES = (".py", ".typed", ".css", ".js", ".jinja", ".txt")

logger = logging.getLogger(__name__)


def push_space(model: str, space: str) -> str:
    """
    Creates or updates a Space with the token that `hf auth login` has stored, and returns its address. The Space is
    private if the model is.

    Args:
        model, space (`str`): Hub ids of a TempoFormer and of the Space.

    Raises a `ValueError` for a malformed id or another kind of model, and an `OSError` if the Hub refuses.
    """
    api = HfApi()
    is_private = api.model_info(model).private
    # Checks that the model loads: otherwise the Space would not start.
    config = load_pipeline(model).model.config
    computes_onnx = getattr(config, "encoder_backend", "torch") != "torch"
    url = api.create_repo(space, repo_type="space", space_sdk="gradio", private=is_private, exist_ok=True)
    files = [CommitOperationAdd(path, content) for path, content in space_files(model, computes_onnx).items()]
    api.create_commit(space, repo_type="space", operations=files, commit_message=f"Timelines of {model}")
    logger.info("The Space is being built: %s", url)
    return str(url)


def space_files(model: str, computes_onnx: bool = False) -> dict[str, bytes]:
    """
    Returns the files of a Space by path: the app, its card, its requirements, of which ONNX Runtime is one if the
    model's encoder is in the format of ONNX, and this package.
    """
    values = {"model": model, "markdown": markdown, "more": ["onnxruntime"] if computes_onnx else []}
    values["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    # Registries do not know local versions such as `+cpu`.
    values["version"] = lambda package: version(package).partition("+")[0]
    files = {
        path.name: Template(path.read_text(encoding="utf-8"), keep_trailing_newline=True).render(values).encode()
        for path in data_folder("hub_cards").glob("space/*.*")
    }
    files |= {name: Path(__file__).with_name(name).read_bytes() for name in APP}
    for path in PACKAGE.rglob("*"):
        name = path.relative_to(PACKAGE.parent)
        if path.suffix in SOURCES and not any(part.startswith(".") for part in name.parts):
            files[name.as_posix()] = path.read_bytes()
    return files
