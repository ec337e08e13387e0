"""Arguments that several scripts share."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from transformers import TrainingArguments

from ..data.files import data_folder
from .recipes import read_overrides


@dataclass
class CheckpointArguments:
    """Which checkpoint to start from, and how to download it."""

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
    cache_dir: str | None = field(default=None, metadata={"help": "Folder for downloads from the Hub."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the model on the Hub."})
    token: str | None = field(
        default=None,
        repr=False,
        metadata={"help": "Token for downloads from the Hub. Default: the one that `hf auth login` has stored."},
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
        """Keyword arguments for every `from_pretrained`."""
        return {
            "cache_dir": self.cache_dir,
            "revision": self.model_revision,
            "token": self.token,
            "trust_remote_code": self.trust_remote_code,
        }

    def check_source(self):
        if (self.model_name_or_path is None) == (self.config_name is None):
            raise ValueError("Give exactly one of --model_name_or_path and --config_name.")


@dataclass
class ModelArguments(CheckpointArguments):
    """Which model of streams of posts `run_glue_style.py` fine-tunes, evaluates or predicts with."""

    calibrate: bool = field(
        default=False, metadata={"help": "Fit a temperature and decision thresholds on the validation part."}
    )
    view: bool = field(
        default=False, metadata={"help": "After --do_predict, write _timelines.html, a page to look at the test part."}
    )


def recipe_path(name: str) -> str:
    """A recipe of this package."""
    return str(data_folder("configuration") / f"{name}.yaml")


@dataclass
class DatasetArguments:
    """A dataset on the Hub in place of files, and how much of the data to take."""

    dataset_name: str | None = field(default=None, metadata={"help": "Dataset on the Hub, instead of files."})
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of --dataset_name."})
    max_train_samples: int | None = field(
        default=None,
        metadata={"help": "Train on at most this many timelines or texts, evenly spaced (of a stream the first)."},
    )
    max_eval_samples: int | None = field(
        default=None, metadata={"help": "Evaluate on at most this many timelines or texts, evenly spaced."}
    )
    max_predict_samples: int | None = field(
        default=None, metadata={"help": "Predict at most this many timelines or texts, evenly spaced."}
    )
    text_column: str = "text"
    streaming: bool = field(default=False, metadata={"help": "Read the training data anew in each pass."})

    def __post_init__(self):
        check_positive(
            self, "window", "max_seq_length", "max_train_samples", "max_eval_samples", "max_predict_samples"
        )


@dataclass
class DataTrainingArguments(DatasetArguments):
    """Which posts, and how they are cut into streams."""

    task_name: Literal["lrs", "moc", "topic_shift", "annomi"] | None = field(
        default=None, metadata={"help": "The files are in the original form of this corpus. Default: tables of posts."}
    )
    train_file: str | None = field(default=None, metadata={"help": "Table of posts: CSV, TSV, JSON lines or Parquet."})
    validation_file: str | None = None
    test_file: str | None = None
    validation_fraction: float = field(
        default=0.25, metadata={"help": "Share of --train_file to validate on, after the test part is taken."}
    )
    test_fraction: float = field(
        default=0.2, metadata={"help": "Share of --train_file to test on, if it is the only file."}
    )
    folds_file: str | None = field(
        default=None, metadata={"help": "Split of --train_file by timeline, as run_cross_validation.py writes it."}
    )
    fold: int = field(default=0, metadata={"help": "Which fold of --folds_file, counting from 0."})
    timeline_column: str = "timeline_id"
    timestamp_column: str | None = field(default=None, metadata={"help": "Default: 'timestamp', if it exists."})
    label_column: str | None = field(default=None, metadata={"help": "Default: 'label', if it exists."})
    id_column: str | None = None
    labels: list[str] | None = field(default=None, metadata={"help": "Label names. Default: those in the posts."})
    window: int | None = field(
        default=None, metadata={"help": "Posts in a stream. Default: the checkpoint's, or 20 (few_shot: 1)."}
    )
    targets_per_row: int = field(default=16, metadata={"help": "Posts that one row of a training batch classifies."})
    max_seq_length: int | None = field(
        default=None, metadata={"help": "Tokens of a post. Default: the checkpoint's, or 128."}
    )
    no_text: bool = field(default=False, metadata={"help": "Leave the texts of posts out of the predictions."})


@dataclass
class TextDataTrainingArguments(DatasetArguments):
    """Which texts, and which time points."""

    task_name: Literal["speeches"] | None = field(
        default=None, metadata={"help": "The files are in the original form of this corpus."}
    )
    train_files: list[str] | None = field(
        default=None, metadata={"help": "Text files named by time point, or one table (CSV, JSON lines, Parquet)."}
    )
    validation_files: list[str] | None = None
    test_files: list[str] | None = field(
        default=None, metadata={"help": "Texts whose time is predicted, and scored where it is known."}
    )
    validation_fraction: float = field(
        default=0.05, metadata={"help": "Share of the training texts to validate on, without --validation_files."}
    )
    time_column: str = "time"
    times: list[str] | None = field(
        default=None, metadata={"help": "Time points in order. Default: the checkpoint's, or those of the texts."}
    )
    time_granularity: Literal["century", "decade", "year", "month", "day"] | None = None
    unknown_times: Literal["error", "unknown", "drop"] = field(
        default="error", metadata={"help": "What to do with texts outside all time points."}
    )
    line_by_line: bool = field(default=False, metadata={"help": "One text in a row, instead of packing several."})
    max_seq_length: int = field(default=128, metadata={"help": "Tokens of a row."})
    mlm_probability: float = 0.15
    time_mlm_probability: float = field(
        default=0.15, metadata={"help": "Share of time tokens to predict, with --prepend_time."}
    )


def check_asked(training: TrainingArguments, calibrates: bool = False):
    """Raises a `ValueError` for a run that does nothing, or that would leave a model with scores of another."""
    uses_model = training.do_eval or training.do_predict or calibrates
    if not (training.do_train or uses_model or training.push_to_hub):
        raise ValueError("Nothing is asked for: give --do_train, --do_eval or --do_predict.")
    if uses_model and not training.do_train and any(Path(training.output_dir).glob("*.safetensors")):
        raise ValueError(
            f"--output_dir {training.output_dir} has a model and the results of its training, which this run would "
            "change: give another one."
        )


def check_positive(arguments: Any, *names: str):
    """Raises a `ValueError` for a number below 1."""
    for name in names:
        if (value := getattr(arguments, name, None)) is not None and value < 1:
            raise ValueError(f"--{name} must be at least 1, got {value}.")
