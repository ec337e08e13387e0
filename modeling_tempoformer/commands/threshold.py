"""
Sets the threshold of a model's alarms: the smallest probability of the watched class that makes a post an alarm.

    tempoformer threshold --model_name_or_path outputs/mine --watch Switch --threshold 0.62

The weights stay as they are, and so does the memory of a live service. Scores are not computed again: predict posts
with labels to see the new threshold's.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import AutoConfig
from transformers.utils import CONFIG_NAME

from ..cards.model_cards import update_alarm
from ..common.command_line import class_named, parse
from ..common.files import written_whole
from ..configuration_streams_tempoformer import StreamFields
from ..decisions_tempoformer import class_names
from ..evaluation.alarms import alarm_sentence


@dataclass(kw_only=True)
class ThresholdArguments:
    """The model, its class to watch, and the threshold."""

    model_name_or_path: str = field(metadata={"help": "The folder of a TempoFormer, whose config.json is changed."})
    watch: str = field(metadata={"help": "The class whose posts are alarms."})
    threshold: float = field(
        metadata={"help": "The probability from which on a post is an alarm, more than 0, at most 1."}
    )

    def __post_init__(self):
        if not 0 < self.threshold <= 1:
            raise ValueError(
                f"--threshold must be more than 0 and at most 1, got {self.threshold}; from 0 on all posts are alarms."
            )


def main(arguments: list[str]):
    (args,) = parse([ThresholdArguments], arguments)
    config = load_stream_config(args.model_name_or_path)
    label = class_named(args.watch, class_names(config), "watch")
    set_alarm(args.model_name_or_path, config, {"label": label, "threshold": args.threshold})


def load_stream_config(folder: str) -> StreamFields:
    """Loads the configuration in the folder of a TempoFormer. Raises a `ValueError` for another folder."""
    if not Path(folder).is_dir():
        raise ValueError(f"--model_name_or_path {folder} is no folder: download the model first.")
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if not isinstance(config, StreamFields):
        raise ValueError(f"{folder} is not a TempoFormer: its kind is '{config.model_type}'.")
    return config


def set_alarm(folder: str, config: StreamFields, alarm: dict[str, Any]):
    """Writes an alarm to the configuration and the card in the folder of a model, and prints its sentence."""
    config.watched, config.calibration = alarm["label"], {**(config.calibration or {}), "alarm": alarm}
    config.validate()
    # Nothing else of the file changes, as it would if the library wrote it.
    path = Path(folder) / CONFIG_NAME
    values = json.loads(path.read_text(encoding="utf-8"))
    values |= {"watched": config.watched, "calibration": config.calibration}
    with written_whole(path) as partial:
        partial.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sentence = alarm_sentence(config)
    update_alarm(folder, config.id2label[config.watched], sentence)
    print(f"Alarms of {folder}: {sentence}")
