"""Makes a Space of the app on the Hub."""

import logging
import sys
from importlib.metadata import version

from huggingface_hub import CommitOperationAdd, HfApi
from jinja2 import Template

from ..cards.markdown import markdown
from ..cards.model_cards import public_id
from ..data.files import PACKAGE, data_folder
from ..view.timelines import load_pipeline


# What runs and draws. The folder of a checkout may hold anything else beside it.
SOURCES = (".py", ".css", ".js", ".jinja")

logger = logging.getLogger(__name__)


def push_space(model: str, space: str) -> str:
    """
    Makes a Space that shows the timelines of a model, or renews it, with the token that `hf auth login` has stored. It
    is private if the model is.

    Args:
        model (`str`): Hub id of a TempoFormer. The Space's card names it, so its page on the Hub links to the Space.
        space (`str`): Hub id of the Space.

    Returns:
        `str`: The address of the Space. Raises a `ValueError` if `model` is not the id of a TempoFormer, and an
        `OSError` for what the Hub refuses.
    """
    if public_id(model) is None:
        raise ValueError(f"{model} is not the id of a model on the Hub: push it there first, by --push_to_hub.")
    # A model that does not load would leave a Space that does not start.
    load_pipeline(model)
    api = HfApi()
    is_private = api.model_info(model).private
    url = api.create_repo(space, repo_type="space", space_sdk="gradio", private=is_private, exist_ok=True)
    files = [CommitOperationAdd(path, content) for path, content in space_files(model).items()]
    api.create_commit(space, repo_type="space", operations=files, commit_message=f"Timelines of {model}")
    logger.info("The Space is being built: %s", url)
    return str(url)


def space_files(model: str) -> dict[str, bytes]:
    """
    What a Space for a model holds, by path: the app, its card, its requirements, and the package that it runs on.
    This package is in no registry, so its own files lie beside the app, where Python finds them first.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    values = {"model": model, "markdown": markdown, "python": python, "version": public_version}
    files = {
        path.name: Template(path.read_text(encoding="utf-8"), keep_trailing_newline=True).render(values).encode()
        for path in data_folder("hub_cards").glob("space/*.*")
    }
    for path in PACKAGE.rglob("*"):
        name = path.relative_to(PACKAGE.parent)
        if path.suffix in SOURCES and not any(part.startswith(".") for part in name.parts):
            files[name.as_posix()] = path.read_bytes()
    return files


def public_version(package: str) -> str:
    """The installed version of a package as registries have it: without the part that names a build, as in `+cpu`."""
    return version(package).partition("+")[0]
