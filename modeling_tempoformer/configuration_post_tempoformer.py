"""Configuration of the post model, this project's default, and the fields that it shares with the paper's model."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from .checks_tempoformer import CheckedFields


# Fields that belong to the classes of a model, and do not fit a model with other classes.
CLASS_FIELDS = ("class_weights", "calibration", "tree_weights")


@dataclass(kw_only=True)
class StreamFields(CheckedFields):
    """The fields of all models of streams; see [`PostTempoFormerConfig`]."""

    sub_configs = {"encoder_config": AutoConfig}
    # Encoders that the Auto classes do not know where this code was loaded from the Hub.
    own_encoders: ClassVar[dict[str, type[PreTrainedConfig]]] = {}
    # What loads from a folder: for each Auto class the file and the name of ours.
    auto_classes: ClassVar[dict[str, str]] = {}

    encoder_config: PreTrainedConfig | dict[str, Any] | None = None
    window: int = 20
    stream_attention: Literal["temporal_rotary", "rotary", "full"] = "temporal_rotary"
    rope_theta: float | int = 10000.0
    head_hidden_sizes: list[int] | tuple[int, ...] = (64, 64)
    head_dropout: float | int = 0.1
    focal_gamma: float | int = 2.0
    class_weights: list[float | int] | None = None
    calibration: dict[str, Any] | None = None
    timed: bool | None = None

    def __post_init__(self, **kwargs):
        if self.encoder_config is None:
            self.encoder_config = AutoConfig.for_model("bert")
        elif isinstance(self.encoder_config, dict):
            if "model_type" not in self.encoder_config:
                raise ValueError("`encoder_config` given as a dict needs a `model_type`, for example 'bert'.")
            own_class = self.own_encoders.get(self.encoder_config["model_type"])
            if own_class is not None:
                self.encoder_config = own_class.from_dict(self.encoder_config)
            else:
                self.encoder_config = AutoConfig.for_model(**self.encoder_config)
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """As in the library, without the [`CLASS_FIELDS`] of `config_dict` if another number of classes is given."""
        given = {name: kwargs.pop(name) for name in (*CLASS_FIELDS, "id2label", "label2id") if name in kwargs}
        values = {**config_dict, **given}
        if "id2label" in given and "label2id" not in given:
            values["label2id"] = {label: int(index) for index, label in given["id2label"].items()}
        before, after = (len(fields.get("id2label") or ()) or 2 for fields in (config_dict, values))
        if kwargs.get("num_labels", after) != before:
            values |= {name: given.get(name) for name in CLASS_FIELDS if name in values}
        return super().from_dict(values, **kwargs)

    def validate_classes(self):
        """The loss is for one of several classes, with a positive weight each; decisions take a positive threshold."""
        if self.problem_type not in (None, "single_label_classification"):
            raise ValueError(f"The focal loss is for posts that have one class each, not for '{self.problem_type}'.")
        if self.num_labels < 2:
            raise ValueError(f"The focal loss needs at least 2 classes, got `num_labels={self.num_labels}`.")
        calibration = self.calibration or {}
        if unknown := sorted(set(calibration) - {"temperature", "thresholds"}):
            raise ValueError(f"`calibration` has 'temperature' and 'thresholds', got {', '.join(map(repr, unknown))}.")
        temperature = calibration.get("temperature")
        # Beyond these numbers and their inverses scores and losses would be 0 or infinite.
        for name, numbers, count, least in (
            ("class_weights", self.class_weights, self.num_labels, 1e-30),
            ("calibration['thresholds']", calibration.get("thresholds"), self.num_labels, 1e-100),
            ("calibration['temperature']", None if temperature is None else [temperature], 1, 1e-6),
        ):
            if numbers is None:
                continue
            if len(numbers) != count:
                raise ValueError(f"`{name}` has {len(numbers)} values for {count} labels.")
            if not all(least <= number <= 1 / least for number in numbers):
                raise ValueError(f"`{name}` must lie between {least:g} and {1 / least:g}, got {numbers}.")

    def validate_stream_width(self):
        """The stream layers must have whole heads, and whole pairs to rotate."""
        width, heads = self.stream_width, self.encoder_config.num_attention_heads
        rotates = self.num_stream_layers > 0 and self.stream_attention != "full"
        if width < 1 or width % (2 * heads if rotates else heads):
            raise ValueError(
                f"The stream layers' width must be {heads} heads times {'an even' if rotates else 'a whole'} head "
                f"dimension, got {width}, {heads} times {width / heads:g}."
            )

    def get_text_config(self, decoder=None, encoder=None) -> PreTrainedConfig:
        """The encoder's configuration, as it is the one with a vocabulary."""
        return self.encoder_config

    def to_diff_dict(self) -> dict[str, Any]:
        """As in the library, without the folder that the encoder was loaded from, which must not be published."""
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


@strict
class PostTempoFormerConfig(StreamFields, PreTrainedConfig):
    r"""
    Configuration of a [`PostTempoFormerModel`] or [`PostTempoFormerForStreamClassification`].

    Args:
        encoder_config (`PreTrainedConfig` or `dict`, *optional*):
            Configuration of the encoder that reads the posts, of any type that `AutoModel` knows; `BertConfig()` if
            omitted.
        window (`int`, *optional*, defaults to 20): The most posts in a stream (paper: 20 for LRS, 10 for TalkLife).
        post_pooling (`str`, *optional*, defaults to `"mean"`):
            A post's vector: the `"mean"` of its tokens in the encoder's last layer, or the first of them (`"cls"`).
        num_stream_layers (`int`, *optional*, defaults to 1): Layers over the vectors of a stream's posts, at least 1.
        num_members (`int`, *optional*, defaults to 5):
            Sets of stream layers and head, whose logits are averaged. Over a frozen encoder each is trained without
            another part of the timelines (`held_out`).
        num_trees (`int`, *optional*, defaults to 40):
            Decision trees of each member, a second expert ([`~trees_tempoformer.Trees`]); 0 for none.
        tree_weights (`list[float]`, *optional*):
            What a member's network and its trees count, as chosen on posts that neither has learned from. None where
            the trees are not grown yet, and count nothing.
        stream_hidden_size (`int`, *optional*, defaults to 192):
            Width of these layers, an even multiple of the number of their heads, which is the encoder's.
        stream_dropout (`float`, *optional*, defaults to 0.1): Dropout in these layers.
        stream_attention (`str`, *optional*, defaults to `"temporal_rotary"`):
            Attention across the posts of a stream: `"temporal_rotary"` rotates queries and keys by the logarithm of
            the seconds to the newest post, `"rotary"` by the distance in posts, `"full"` does not rotate.
        stream_position_initializer_range (`float`, *optional*, defaults to 1.0):
            Standard deviation of new embeddings of a post's position in the stream.
        rope_theta (`float`, *optional*, defaults to 10000.0): Base of the rotary frequencies.
        head_hidden_sizes (`list[int]`, *optional*, defaults to `(64, 64)`): Hidden widths of the classifier.
        head_dropout (`float`, *optional*, defaults to 0.1): Dropout in the classifier.
        focal_gamma (`float`, *optional*, defaults to 2.0): Exponent of the focal loss; 0 gives cross-entropy.
        class_weights (`list[float]`, *optional*): Weight of each class in the loss; 1 for all if omitted.
        calibration (`dict`, *optional*):
            What was tuned on posts that were not trained on, each positive: `"temperature"`, from 1e-6 to 1e6, divides
            the logits before the softmax; a post gets the class with the largest probability / `"thresholds"`. Either
            may be missing.
        timed (`bool`, *optional*):
            Whether the model was trained with the time between posts. Streams must match it, whatever the attention
            reads; if None, this is not checked.
        problem_type (`str`, *optional*):
            `"single_label_classification"`, which None stands for too: a post has one of at least 2 classes.

    Raises a validation error that names the field for a value outside its range; `from_pretrained` and `from_dict`
    make a `ValueError` of it.
    """

    model_type = "post_tempoformer"
    keys_to_ignore_at_inference = ["stream_attentions", "hidden_states"]
    auto_classes = {
        "AutoConfig": "configuration_post_tempoformer.PostTempoFormerConfig",
        "AutoModel": "modeling_post_tempoformer.PostTempoFormerModel",
        "AutoModelForSequenceClassification": "modeling_post_tempoformer.PostTempoFormerForStreamClassification",
    }

    post_pooling: Literal["mean", "cls"] = "mean"
    num_stream_layers: int = 1
    num_members: int = 5
    num_trees: int = 40
    tree_weights: list[float | int] | None = None
    stream_hidden_size: int = 192
    stream_dropout: float | int = 0.1
    stream_position_initializer_range: float | int = 1.0

    @property
    def stream_width(self) -> int:
        """The width of the stream layers."""
        return self.stream_hidden_size

    @property
    def head_width(self) -> int:
        """The width of what each member's head reads of a stream."""
        return 3 * self.stream_hidden_size + 2

    def validate_encoder(self):
        """The encoder must load where this package is not installed."""
        encoder = self.encoder_config
        if encoder.model_type not in self.own_encoders and not type(encoder).__module__.startswith("transformers."):
            raise ValueError(
                f"`encoder_config` must be of a type of Transformers, got '{encoder.model_type}'; for encoders with "
                "temporal attention there is `TemporalPostTempoFormerConfig`."
            )

    def validate_layers(self):
        """There must be a stream layer."""
        if self.num_stream_layers < 1:
            raise ValueError(f"`num_stream_layers` must be at least 1, got {self.num_stream_layers}.")

    def validate_trees(self):
        """There must be a weight for the network and one for the trees."""
        if self.tree_weights is not None and (not self.num_trees or len(self.tree_weights) != 2):
            raise ValueError(f"`tree_weights` are two numbers for a model with trees, got {self.tree_weights}.")


__all__ = ["PostTempoFormerConfig"]
