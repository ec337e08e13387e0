"""Makes a Space of the app on the Hub."""

import logging
import sys
from importlib.metadata import version
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, ModelCard, SpaceCardData
from huggingface_hub.errors import HfHubHTTPError
from jinja2 import Template

from ..cards.markdown import markdown
from ..cards.model_cards import public_id
from ..data.files import PACKAGE, data_folder
from .timelines import check_kind


# What runs and draws. The folder of a checkout may hold anything else beside it.
SOURCES = (".py", ".css", ".js", ".jinja")
FORBIDDEN = 403

logger = logging.getLogger(__name__)


def push_space(model: str, space: str, token: str | None = None) -> str:
    """
    Makes a Space that shows the timelines of a model, or renews it. Its card names the model, and the model's card
    gets a line with a link to it. It is private if the model is.

    Args:
        model (`str`): Hub id of a TempoFormer.
        space (`str`): Hub id of the Space.
        token (`str`, *optional*): Token that may write both; the one that `hf auth login` has stored by default.

    Returns:
        `str`: The address of the Space. Raises a `ValueError` if `model` is not the id of a TempoFormer, and an
        `OSError` for what the Hub refuses.
    """
    if public_id(model) is None:
        raise ValueError(
            f"{model} is not the id of a model on the Hub, from where a Space loads it: push it there first, by "
            "--push_to_hub of run_glue_style.py."
        )
    check_kind(model, token)
    api = HfApi(token=token)
    card = ModelCard.load(model, token=token)
    is_private = api.model_info(model).private
    url = api.create_repo(space, repo_type="space", space_sdk="gradio", private=is_private, exist_ok=True)
    api.create_commit(
        space,
        repo_type="space",
        operations=[CommitOperationAdd(path, content) for path, content in space_files(model).items()],
        commit_message=f"Timelines of {model}",
    )
    try:
        link_space(card, model, space, token)
    except HfHubHTTPError as problem:
        if problem.response.status_code != FORBIDDEN:
            raise
        logger.warning("You may not change the card of %s: it gets no link to the Space.", model)
    logger.info("The Space is being built: %s", url)
    return str(url)


def space_files(model: str) -> dict[str, bytes]:
    """
    What a Space for a model holds, by path: the app, its card, its requirements, and the package that it runs on.
    This package is in no registry, so its own files lie beside the app, where Python finds them first.
    """
    card = SpaceCardData(
        title="Timelines of posts",
        emoji="📈",
        colorFrom="blue",
        colorTo="gray",
        sdk="gradio",
        sdk_version=version("gradio"),
        python_version=f"{sys.version_info.major}.{sys.version_info.minor}",
        app_file="app.py",
        models=[model],
        license="apache-2.0",
        tags=["tempoformer", "change-detection"],
    )
    values = {"model": model, "card_data": card.to_yaml(), "markdown": markdown, "version": public_version}
    files = {
        path.name: Template(path.read_text(encoding="utf-8"), keep_trailing_newline=True).render(values).encode()
        for path in data_folder("hub_cards").glob("space/*.*")
    }
    return files | {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in package_sources()}


def package_sources() -> list[Path]:
    """The files of this package that the app runs on."""
    found = (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.suffix in SOURCES)
    return sorted(PACKAGE / path for path in found if not any(part.startswith(".") for part in path.parts))


def public_version(package: str) -> str:
    """The installed version of a package as registries have it: without the part that names a build, as in `+cpu`."""
    return version(package).partition("+")[0]


def link_space(card: ModelCard, model: str, space: str, token: str | None):
    """Adds a line with a link to the Space to the card of a model, before its first section, unless it is there."""
    link = f"https://huggingface.co/spaces/{space}"
    if f"({link})" in card.content:
        return
    first, heading, rest = card.content.partition("\n## ")
    card.content = f"{first.rstrip()}\n\nSee what it says of posts of your own: [{space}]({link}).\n{heading}{rest}"
    card.push_to_hub(model, token=token, commit_message=f"Link the Space {space}")
