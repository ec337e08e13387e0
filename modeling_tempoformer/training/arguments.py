"""Arguments that several scripts share."""

from dataclasses import dataclass, field
from typing import Any, Literal

from transformers import TrainingArguments

from ..common.arguments import CheckpointArguments, read_anywhere
from ..evaluation.alarm_goals import AlarmGoal
from ..posts.arguments import DataTrainingArguments


@dataclass
class ModelArguments(CheckpointArguments):
    """The model of streams of posts that `run_glue_style.py` fine-tunes, evaluates or predicts with."""

    model_type: Literal["post_tempoformer", "tempoformer"] | None = field(
        default=None,
        metadata={
            "help": "A new model: post_tempoformer reads one vector for each post, tempoformer is the paper's. "
            "Default: post_tempoformer. Baselines ignore it."
        },
    )
    encoder_backend: Literal["torch", "onnx", "onnx-int8"] | None = field(
        default=None,
        metadata={
            "help": "How a frozen encoder is computed: torch, or by ONNX Runtime on the CPU, onnx in float32 or "
            "onnx-int8 in 8 bits, which a new model is trained on. Default: the model's; torch for a new one. "
            "Baselines ignore it."
        },
    )
    calibrate: bool = field(
        default=False, metadata={"help": "Fit a temperature and decision thresholds on the validation split."}
    )
    alarm: str | None = field(
        default=None,
        metadata={
            "help": "Choose which posts are alarms of the class to watch (--watch) by the validation split: "
            "precision=0.8, so that this share of the alarms is right; recall=0.7, so that this share of its posts "
            "are alarms; rate=0.05, so that at most this share of new timelines without it has an alarm, or with "
            "rate=0.05/30d of their stretches of 30 days; missed=0.2, so that at most this share of a new timeline's "
            "runs of it is missed, in the mean. Calibrates."
        },
    )
    view: bool = field(
        default=False,
        metadata={"help": "After --do_predict, write _timelines.html, a page to look at the test split."},
    )
    watch: str | None = field(
        default=None,
        metadata={
            "help": "The class that matters, on which pages and tables of the model open. Default: the model's; for a "
            "new one the rarest class of the training posts that is not the class of no change."
        },
    )

    def __post_init__(self):
        super().__post_init__()
        self.calibrate = self.calibrate or self.goal is not None

    @property
    def goal(self) -> AlarmGoal | None:
        """The goal of `--alarm`, None without one."""
        return None if self.alarm is None else AlarmGoal.read(self.alarm)


def read_of_posts(
    data: DataTrainingArguments, training: TrainingArguments, calibrates: bool
) -> dict[str, tuple[Any, str]]:
    """Returns, for options about posts, whether this run reads them and words for the error if it does not."""
    trains, predicts, validates = training.do_train, training.do_predict, training.do_eval or calibrates
    only_training = (trains, "without --do_train")
    return {
        **read_anywhere(data, training),
        "no_text": (predicts, "without --do_predict"),
        "validation_file": (trains or validates, "without --do_train, --do_eval and --calibrate"),
        "test_file": (trains or predicts, "without --do_train and --do_predict"),
        **dict.fromkeys(("test_fraction", "split_by", "split_seed"), only_training),
        **dict.fromkeys(("new_parameters_learning_rate", "freeze_layers"), only_training),
        "early_stopping_patience": (
            trains and training.finds_best,
            "without --do_train, --eval_strategy and --metric_for_best_model",
        ),
        "min_steps": (trains and training.max_steps <= 0, "with --max_steps or without --do_train"),
    }
