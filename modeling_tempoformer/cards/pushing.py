"""Pushes to the Hub the files that a run has written for it, and no others."""

import json
import logging
from concurrent.futures import Future
from pathlib import Path

from huggingface_hub import CommitInfo, HfApi

from .model_cards import public_id


ADAPTER = "adapter_config.json"
# A folder that holds what a push sends. It is written anew each time, so that no file is in it that a user put beside
# the model. Names that begin with an underscore are never pushed.
PUSHED = "_push_to_hub"

logger = logging.getLogger(__name__)


def upload(
    folder: Path, repo_id: str, token: str | None, revision: str | None, message: str | None, blocking: bool
) -> CommitInfo | Future[CommitInfo]:
    """Sends all files of a folder to a repository in one commit, and logs their names."""
    logger.info("Pushing to %s: %s.", repo_id, ", ".join(sorted(path.name for path in folder.iterdir())))
    return HfApi(token=token).upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        commit_message=message or "Upload",
        revision=revision,
        run_as_future=not blocking,
    )


def drop_local_base(folder: Path):
    """Leaves the name of the base model out of an adapter's configuration, if it is a local folder."""
    for path in folder.glob(ADAPTER):
        config = json.loads(path.read_text(encoding="utf-8"))
        config["base_model_name_or_path"] = public_id(config.get("base_model_name_or_path"))
        path.write_text(json.dumps(config, indent=2), encoding="utf-8")
