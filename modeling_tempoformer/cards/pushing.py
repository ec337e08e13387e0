"""What a push to the Hub sends: what loads the model, its card, scores and figures, and nothing of this machine."""

import json
import logging
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi

from .model_cards import public_id


# What loads a model and says what it is. A folder may have anything else beside it: posts, predictions, logs, and the
# Trainer's pickles and state, which hold local paths.
PUSHED = (
    *("*.safetensors", "*.safetensors.index.json", "*config.json", "*.py", "README.md"),
    *("tokenizer.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt"),
    *("*.model", "*.jinja"),
)
ADAPTER = "adapter_config.json"

logger = logging.getLogger(__name__)


def pushed_files(folder: str | Path, results: Collection[str] = ()) -> list[Path]:
    """What a push sends of a model's folder, and `results`; names that begin with `_` or `.` are notes of a run."""
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
    """Sends [`pushed_files`] to a repository in one commit, and says which they are."""
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


def content_of(path: Path) -> Path | bytes:
    """What is sent of a file. An adapter's configuration may name a local folder as its base model: it is left out."""
    if path.name != ADAPTER:
        return path
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = public_id(config.get("base_model_name_or_path"))
    return json.dumps(config, indent=2).encode()
