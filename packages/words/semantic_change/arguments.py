"""Arguments of the script that trains on dated texts."""

from dataclasses import dataclass, field
from typing import Any, Literal

from transformers import TrainingArguments

from modeling_tempoformer.common.arguments import DatasetArguments, read_anywhere


@dataclass
class TextDataTrainingArguments(DatasetArguments):
    """The texts, and their time points."""

    train_files: list[str] | None = field(
        default=None, metadata={"help": "Text files named by time point, in any layout of corpora, or one table."}
    )
    validation_files: list[str] | None = None
    test_files: list[str] | None = field(
        default=None, metadata={"help": "Texts whose time is predicted, and scored if they have one."}
    )
    validation_fraction: float = field(
        default=0.05, metadata={"help": "Share of the training texts to validate on, without --validation_files."}
    )
    text_column: str = "text"
    time_column: str = "time"
    times: list[str] | None = field(
        default=None, metadata={"help": "Time points in order. Default: the checkpoint's, or the texts'."}
    )
    time_granularity: Literal["century", "decade", "year", "month", "day"] | None = None
    unknown_times: Literal["error", "unknown", "drop"] = field(
        default="error", metadata={"help": "What to do with texts outside all time points."}
    )
    line_by_line: bool = field(default=False, metadata={"help": "Put one text in a row, instead of packing several."})
    max_seq_length: int = field(default=128, metadata={"help": "Number of tokens in a row."})
    mlm_probability: float = 0.15
    time_mlm_probability: float = field(
        default=0.15, metadata={"help": "Share of time tokens to predict, with --prepend_time."}
    )


def read_of_texts(
    data: TextDataTrainingArguments, training: TrainingArguments, prepends_time: bool
) -> dict[str, tuple[Any, str]]:
    """Returns, for options about dated texts, whether this run reads them and words for the error if it does not."""
    trains, evaluates, predicts = training.do_train, training.do_eval, training.do_predict
    cuts = trains and evaluates and not data.validation_files and not data.streaming
    masks = (trains or evaluates, "without --do_train and --do_eval")
    return {
        **read_anywhere(data, training),
        "validation_files": (evaluates, "without --do_eval"),
        "test_files": (predicts, "without --do_predict"),
        "validation_fraction": (cuts, "without --do_train and --do_eval, with --validation_files or --streaming"),
        **dict.fromkeys(("max_seq_length", "line_by_line", "mlm_probability"), masks),
        "time_mlm_probability": (prepends_time and masks[0], f"by a model without --prepend_time, or {masks[1]}"),
        "time_learning_rate": (trains, "without --do_train"),
    }
