"""Arguments of all scripts that train: the dataset, the checkpoint, and what is asked of a run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelerate.utils import parse_flag_from_env
from transformers import TrainingArguments

from .command_line import check_positive, read_overrides


@dataclass
class DatasetArguments:
    """Arguments for both posts and texts."""

    dataset_name: str | None = field(default=None, metadata={"help": "Dataset on the Hub, instead of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of --dataset_name."})
    max_predict_samples: int | None = field(
        default=None, metadata={"help": "Predict at most this many timelines or texts, evenly spaced."}
    )
    streaming: bool = field(
        default=False,
        metadata={
            "help": "Read the training posts or texts as they are needed, without holding all in memory. Needs "
            "--max_steps."
        },
    )

    def __post_init__(self):
        check_positive(self, "window", "max_seq_length", "max_predict_samples")


@dataclass
class DownloadArguments:
    """Arguments of downloads from the Hub."""

    cache_dir: str | None = field(default=None, metadata={"help": "Folder for downloads from the Hub."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the model on the Hub."})
    token: str | None = field(
        default=None,
        repr=False,
        metadata={"help": "Token for downloads from the Hub. Default: the token of `hf auth login`."},
    )

    @property
    def downloads(self) -> dict[str, Any]:
        """Keyword arguments for every download."""
        return {"cache_dir": self.cache_dir, "revision": self.model_revision, "token": self.token}


@dataclass
class CheckpointArguments(DownloadArguments):
    """The checkpoint to start from, and how to download it."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "Checkpoint: a folder or a Hub id."})
    config_name: str | None = field(
        default=None, metadata={"help": "Configuration of an encoder, to train it from scratch."}
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "Tokenizer, if it is not the one of the checkpoint."}
    )
    config_overrides: dict | str | None = field(
        default=None, metadata={"help": "Fields of the model's configuration, as a JSON object."}
    )
    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run Python code from the model's repository on the Hub."}
    )

    def __post_init__(self):
        self.config_overrides = read_overrides(self.config_overrides)
        self.check_source()

    @property
    def source(self) -> str | None:
        """The checkpoint or configuration."""
        return self.model_name_or_path or self.config_name

    @property
    def download_settings(self) -> dict[str, Any]:
        """Keyword arguments for downloads of a model."""
        return {**self.downloads, "trust_remote_code": self.trust_remote_code}

    def check_source(self):
        """Raises a `ValueError` unless there is either a checkpoint or a configuration."""
        if (self.model_name_or_path is None) == (self.config_name is None):
            raise ValueError("Give exactly one of --model_name_or_path and --config_name.")


def read_anywhere(data: DatasetArguments, training: TrainingArguments) -> dict[str, tuple[Any, str]]:
    """Returns, for options of all scripts that train, whether this run reads them and words for the error if not."""
    only_test, only_training = (training.do_predict, "without --do_predict"), (training.do_train, "without --do_train")
    return {
        "dataset_config_name": (data.dataset_name, "without --dataset_name"),
        "max_predict_samples": only_test,
        "validation_fraction": only_training,
        "resume_from_checkpoint": only_training,
    }


def wanted_splits(training: TrainingArguments, calibrates: bool = False) -> list[str]:
    """Returns the splits that a run reads."""
    validates = training.do_eval or calibrates
    steps = {"train": training.do_train, "validation": validates, "test": training.do_predict}
    return [split for split, is_wanted in steps.items() if is_wanted]


def check_steps(training: TrainingArguments, calibrates: bool = False):
    """
    Raises a `ValueError` for a run that does nothing, that would overwrite the results of a trained model, or in which
    FSDP has nothing to shard.
    """
    uses_model = training.do_eval or training.do_predict or calibrates
    if not (training.do_train or uses_model or training.push_to_hub or training.push_to_hub_dry_run):
        raise ValueError("Nothing is asked for: give --do_train, --do_eval or --do_predict.")
    is_sharded = training.fsdp or parse_flag_from_env("ACCELERATE_USE_FSDP")
    if is_sharded and not training.do_train:
        raise ValueError("--fsdp shards a training: without --do_train leave it out, also in several processes.")
    if is_sharded and getattr(training, "freeze_encoder", False):
        raise ValueError("--fsdp shards what learns, and with --freeze_encoder that is little: leave one of them out.")
    if uses_model and not training.do_train and any(Path(training.output_dir).glob("*.safetensors")):
        raise ValueError(
            f"--output_dir {training.output_dir} has a model and the results of its training, which this run would "
            "change: give another one."
        )
