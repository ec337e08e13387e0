"""Pushes to the Hub the files that load a model, its card, scores and figures, and nothing else of this machine."""

import json
import logging
import shutil
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi

from .model_cards import public_id


# Files that load a model and describe it. A folder may have other files beside them: posts, predictions, logs, and the
# Trainer's pickles and state, which hold local paths.
PUSHED = (
    *("*.safetensors", "*.safetensors.index.json", "*config.json", "*.py", "README.md"),
    *("tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt"),
    *("*.model", "*.jinja"),
)
ADAPTER = "adapter_config.json"
# A folder that holds what a push would send. Names that begin with an underscore are never pushed.
DRY_RUN = "_push_to_hub"

logger = logging.getLogger(__name__)


def pushed_files(folder: str | Path, results: Collection[str] = ()) -> list[Path]:
    """
    The files of a model's folder that a push sends: those that load a model, and `results`. Names that begin with `_`
    or `.` are notes of a run, and are not sent.
    """
    files = (path for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith(("_", ".")))
    return sorted(path for path in files if any(path.match(pattern) for pattern in (*PUSHED, *results)))


def upload(
    folder: str | Path,
    repo_id: str,
    token: str | None,
    revision: str | None,
    message: str | None,
    blocking: bool,
    results: Collection[str],
) -> CommitInfo | Future[CommitInfo]:
    """Sends [`pushed_files`] to a repository in one commit, and logs their names."""
    files = pushed_files(folder, results)
    logger.info("Pushing to %s: %s.", repo_id, ", ".join(path.name for path in files))
    return HfApi().create_commit(
        repo_id=repo_id,
        operations=[CommitOperationAdd(path.name, content_of(path)) for path in files],
        commit_message=message or "Upload",
        token=token,
        revision=revision,
        run_as_future=not blocking,
    )


def write_pushed(folder: str | Path, target: Path, results: Collection[str]) -> list[Path]:
    """Writes what [`upload`] would send into a folder, in the place of an older one. Returns the written files."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in pushed_files(folder, results):
        content = content_of(path)
        if isinstance(content, bytes):
            (target / path.name).write_bytes(content)
        else:
            shutil.copyfile(content, target / path.name)
    return sorted(target.iterdir())


def content_of(path: Path) -> Path | bytes:
    """The content of a file to send. If an adapter's configuration names a local base model, the name is left out."""
    if path.name != ADAPTER:
        return path
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = public_id(config.get("base_model_name_or_path"))
    return json.dumps(config, indent=2).encode()
