"""The configuration fields that both stream models share, and their checks."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from transformers import AutoConfig, PreTrainedConfig

from .checks_tempoformer import CheckedFields, at_least_1, dropout, not_negative, positive


# Fields that belong to the classes of a model, and do not fit a model with other classes.
CLASS_FIELDS = ("class_weights", "calibration", "no_change", "watched")


@dataclass(kw_only=True)
class StreamFields(CheckedFields):
    """The fields of all models of streams; see [`PostTempoFormerConfig`]."""

    sub_configs = {"encoder_config": AutoConfig}
    # The file and the name of our class for each Auto class.
    auto_classes: ClassVar[dict[str, str]] = {}
    # The type of `custom_pipelines`, which the package replaces where it is imported.
    pipelines_type: ClassVar[type[dict]] = dict

    encoder_config: PreTrainedConfig | dict[str, Any] | None = None
    window: int = at_least_1(default=20)
    stream_attention: Literal["temporal_rotary", "rotary", "full"] = "temporal_rotary"
    rope_theta: float | int = positive(default=10000.0)
    head_hidden_sizes: list[int] | tuple[int, ...] = (64, 64)
    head_dropout: float | int = dropout(default=0.1)
    focal_gamma: float | int = not_negative(default=2.0)
    class_weights: list[float | int] | None = None
    calibration: dict[str, Any] | None = None
    timed: bool | None = None
    first_posts: Literal["timeline", "speaker"] | None = None
    no_change: int | None = None
    watched: int | None = None
    change_step: float | int | None = None
    # Models that read speakers, or learn states, have fields in place of these.
    reads_speakers: ClassVar[bool] = False
    reads_known_states: ClassVar[bool] = False
    states: ClassVar[list[str] | None] = None

    def __post_init__(self, **kwargs):
        if self.encoder_config is None:
            self.encoder_config = AutoConfig.for_model("bert")
        elif isinstance(self.encoder_config, dict):
            if "model_type" not in self.encoder_config:
                raise ValueError("`encoder_config` given as a dict needs a `model_type`, for example 'bert'.")
            self.encoder_config = AutoConfig.for_model(**self.encoder_config)
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """Reads a configuration, but drops its [`CLASS_FIELDS`] if another number of classes is given."""
        given = {name: kwargs.pop(name) for name in (*CLASS_FIELDS, "id2label", "label2id") if name in kwargs}
        values = {**config_dict, **given}
        if "custom_pipelines" in values:
            values["custom_pipelines"] = cls.pipelines_type(values["custom_pipelines"])
        if "id2label" in given and "label2id" not in given:
            values["label2id"] = {label: int(index) for index, label in given["id2label"].items()}
        before, after = (len(fields.get("id2label") or ()) or 2 for fields in (config_dict, values))
        if kwargs.get("num_labels", after) != before:
            values |= {name: given.get(name) for name in CLASS_FIELDS if name in values}
        return super().from_dict(values, **kwargs)

    def validate_classes(self):
        """Checks that there are at least 2 classes, and that weights, thresholds and temperature are positive."""
        if self.problem_type not in (None, "single_label_classification"):
            raise ValueError(f"The focal loss is for posts that have one class each, not for '{self.problem_type}'.")
        if self.num_labels < 2:
            raise ValueError(f"The focal loss needs at least 2 classes, got `num_labels={self.num_labels}`.")
        calibration = self.calibration or {}
        if unknown := sorted(set(calibration) - {"temperature", "thresholds", "alarm"}):
            raise ValueError(
                f"`calibration` has 'temperature', 'thresholds' and 'alarm', got {', '.join(map(repr, unknown))}."
            )
        temperature = calibration.get("temperature")
        # Float32 holds such numbers and their inverses, so that neither losses nor scores become 0 or infinite.
        tiny = torch.finfo(torch.float32).tiny
        for name, numbers, count, least in (
            ("class_weights", self.class_weights, self.num_labels, tiny),
            ("calibration['thresholds']", calibration.get("thresholds"), self.num_labels, tiny),
            ("calibration['temperature']", None if temperature is None else [temperature], 1, 1e-6),
        ):
            if numbers is None:
                continue
            if len(numbers) != count:
                raise ValueError(f"`{name}` has {len(numbers)} values for {count} labels.")
            if not all(least <= number <= 1 / least for number in numbers):
                raise ValueError(f"`{name}` must lie between {least:g} and {1 / least:g}, got {numbers}.")

    def validate_alarm(self):
        """Checks that an alarm has the id of a class, and a probability as threshold."""
        if (alarm := (self.calibration or {}).get("alarm")) is None:
            return
        label, threshold, name = alarm.get("label"), alarm.get("threshold"), "calibration['alarm']"
        if not isinstance(label, int) or not 0 <= label < self.num_labels:
            raise ValueError(f"`{name}['label']` must be one of {self.num_labels} class ids, got {label}.")
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
            raise ValueError(f"`{name}['threshold']` must lie between 0 and 1, got {threshold}.")

    def validate_first_posts(self):
        """Checks that `first_posts` comes with `no_change`, and "speaker" only with `reads_speakers`."""
        if (self.first_posts is None) != (self.no_change is None):
            raise ValueError(
                "`first_posts` needs `no_change`, the class that these posts get, and the other way round."
            )
        if self.first_posts == "speaker" and not self.reads_speakers:
            raise ValueError("`first_posts` can be 'speaker' only in a model that `reads_speakers`.")

    def validate_change_step(self):
        """Checks that `change_step` is a finite number of at least 0."""
        if self.change_step is not None and not 0 <= self.change_step < math.inf:
            raise ValueError(f"`change_step` must be a finite number from 0, got {self.change_step}.")

    def validate_class_ids(self):
        """Checks that `no_change` and `watched` are ids of classes."""
        for name in ("no_change", "watched"):
            label = getattr(self, name)
            if label is not None and not 0 <= label < self.num_labels:
                raise ValueError(f"`{name}` must be one of {self.num_labels} class ids, got {label}.")

    def validate_head(self):
        """Checks that the classifier's hidden layers are at least 1 wide."""
        if not all(size >= 1 for size in self.head_hidden_sizes):
            raise ValueError(f"`head_hidden_sizes` must be at least 1, got {self.head_hidden_sizes}.")

    def validate_stream_width(self):
        """Checks that the heads of the stream layers have whole dimensions, even ones if they are rotated in pairs."""
        width, heads = self.stream_width, self.encoder_config.num_attention_heads
        rotates = self.num_stream_layers > 0 and self.stream_attention != "full"
        if width < 1 or width % (2 * heads if rotates else heads):
            raise ValueError(
                f"The stream layers' width must be {heads} heads times {'an even' if rotates else 'a whole'} head "
                f"dimension, got {width}, {heads} times {width / heads:g}."
            )

    def get_text_config(self, decoder=None, encoder=None) -> PreTrainedConfig:
        """Returns the encoder's configuration, which has the vocabulary."""
        return self.encoder_config

    def to_diff_dict(self) -> dict[str, Any]:
        """Returns the fields that differ from the defaults, without the encoder's local folder, for publishing."""
        values = super().to_diff_dict()
        values.get("encoder_config", {}).pop("_name_or_path", None)
        return values

    def save_pretrained(self, save_directory, **kwargs):
        """Saves the configuration, with the Auto classes and the pipeline that load from the folder."""
        self.auto_map = dict(self.auto_classes)
        self.custom_pipelines = {
            "stream-classification": {
                "impl": "pipeline_tempoformer.StreamClassificationPipeline",
                "pt": ["AutoModelForSequenceClassification"],
                "type": "text",
            }
        }
        super().save_pretrained(save_directory, **kwargs)
