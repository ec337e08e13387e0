"""Makes a Space of the app on the Hub."""

import logging
import sys
from importlib.metadata import version

from huggingface_hub import CommitOperationAdd, HfApi
from jinja2 import Template

from ..cards.markdown import markdown
from ..data.files import PACKAGE, data_folder
from ..view.timelines import load_pipeline


# What runs and draws. The folder of a checkout may hold anything else beside it.
SOURCES = (".py", ".css", ".js", ".jinja")

logger = logging.getLogger(__name__)


def push_space(model: str, space: str) -> str:
    """
    Makes a Space, or renews it, with the token that `hf auth login` has stored, and returns its address. It is private
    if the model is.

    Args:
        model, space (`str`): Hub ids of a TempoFormer and of the Space.

    Raises a `ValueError` for what is no id or a model of another kind, and an `OSError` for what the Hub refuses.
    """
    api = HfApi()
    is_private = api.model_info(model).private
    # A model that does not load would leave a Space that does not start.
    load_pipeline(model)
    url = api.create_repo(space, repo_type="space", space_sdk="gradio", private=is_private, exist_ok=True)
    files = [CommitOperationAdd(path, content) for path, content in space_files(model).items()]
    api.create_commit(space, repo_type="space", operations=files, commit_message=f"Timelines of {model}")
    logger.info("The Space is being built: %s", url)
    return str(url)


def space_files(model: str) -> dict[str, bytes]:
    """What a Space holds, by path: the app, its card, its requirements, and this package, which is in no registry."""
    values = {"model": model, "markdown": markdown}
    values["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    # Registries do not have the name of a build, as in `+cpu`.
    values["version"] = lambda package: version(package).partition("+")[0]
    files = {
        path.name: Template(path.read_text(encoding="utf-8"), keep_trailing_newline=True).render(values).encode()
        for path in data_folder("hub_cards").glob("space/*.*")
    }
    for path in PACKAGE.rglob("*"):
        name = path.relative_to(PACKAGE.parent)
        if path.suffix in SOURCES and not any(part.startswith(".") for part in name.parts):
            files[name.as_posix()] = path.read_bytes()
    return files
