"""Configuration of TempoFormer."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict, validated_field
from transformers import AutoConfig, PreTrainedConfig

from .configuration_temporal_bert import CheckedFields, TemporalBertConfig, TemporalRobertaConfig, check_bounds


# Fields that belong to the classes of a model, and do not fit a model with other classes.
CLASS_FIELDS = ("class_weights", "calibration")
# Built without the Auto classes, which do not know them where this code was loaded from the Hub.
OWN_ENCODERS = {config.model_type: config for config in (TemporalBertConfig, TemporalRobertaConfig)}


def check_problem_type(problem_type: str | None):
    """Raises a `ValueError` for a problem that the focal loss is not for."""
    if problem_type not in (None, "single_label_classification"):
        raise ValueError(f"The focal loss is for posts that have one class each, not for '{problem_type}'.")


@strict
class TempoFormerConfig(CheckedFields, PreTrainedConfig):
    r"""
    Configuration of a [`TempoFormerModel`] or [`TempoFormerForStreamClassification`] (Tseriotou, Tsakalidis and
    Liakata, 2024). The variants of the paper are values of these fields, not different classes.

    Args:
        encoder_config (`PreTrainedConfig` or `dict`, *optional*):
            Configuration of the encoder that reads the posts; `BertConfig()` if omitted.
        window (`int`, *optional*, defaults to 20):
            The largest number of posts in a stream (paper, section 5: 20 for LRS, 10 for TalkLife).
        stream_form (`str`, *optional*, defaults to `"token"`):
            `"token"` is the paper's form: the encoder's own top layers are the stream layers, and read all tokens of
            each post in the light of its stream. In the `"post"` form, this project's own, the whole encoder reads
            each post once, and new stream layers read one vector for each post.
        num_stream_layers (`int`, *optional*, defaults to 2):
            How many of the encoder's top layers, or how many new layers, read posts in the light of their stream. 0
            leaves a plain encoder.
        stream_attention (`str`, *optional*, defaults to `"temporal_rotary"`):
            Attention across the posts of a stream: `"temporal_rotary"` rotates queries and keys by the logarithm of
            the seconds to the newest post, `"rotary"` by the distance in posts, `"full"` does not rotate.
        stream_position_embeddings (`bool` or `list[bool]`, *optional*, defaults to `True`):
            Whether the stream layers add a learned embedding of a post's position in the stream; one value for each
            stream layer, or one for all.
        stream_position_initializer_range (`float`, *optional*, defaults to 0.02):
            Standard deviation of new position embeddings; 0.02 as in the published code, which is small compared with
            hidden states of a scale near 1.
        stream_residual (`bool`, *optional*, defaults to `False`):
            Whether a stream layer adds the context to a post's own vector, `c' = c + attention(c)`, instead of putting
            it in its place (paper, section 4.2). The attention's output projection then starts at 0, so that training
            starts from the pretrained encoder's own [CLS].
        fusion (`str`, *optional*, defaults to `"gate"`):
            How the last stream layer joins a post's own vector and its context: `"gate"` (Gate&Norm) or `"none"`
            (the context alone).
        post_pooling (`str`, *optional*, defaults to `"mean"`):
            A post's vector in the post form: the `"mean"` of its tokens in the encoder's last layer, or `"cls"`.
        stream_hidden_size (`int`, *optional*):
            Width of the stream layers in the post form. They have as many heads as the encoder, and the width must
            be an even multiple of that number. Default: the encoder's width.
        head (`str`, *optional*, defaults to `"mlp"`):
            `"mlp"` reads the newest post; `"lstm"` reads all posts of the stream in turn (RoTempoFormer, or RoBERT
            with `num_stream_layers=0`).
        head_hidden_sizes (`list[int]`, *optional*, defaults to `(64, 64)`):
            Hidden widths of the classifier.
        head_dropout (`float`, *optional*, defaults to 0.1):
            Dropout in the classifier.
        lstm_hidden_size (`int`, *optional*, defaults to 100):
            Width of the LSTM of `head="lstm"`.
        recurrent_order (`str`, *optional*, defaults to `"forward"`):
            The LSTM reads from the oldest post to the newest (`"forward"`), or from the newest to the oldest
            (`"reverse"`, as in the published code).
        rope_theta (`float`, *optional*, defaults to 10000.0):
            Base of the rotary frequencies.
        focal_gamma (`float`, *optional*, defaults to 2.0):
            Focusing exponent of the focal loss; 0 gives cross-entropy.
        class_weights (`list[float]`, *optional*):
            Weight of each class in the loss, in the order of `id2label`; 1 for all if omitted.
        calibration (`dict`, *optional*):
            What was tuned on posts that were not trained on; the pipeline and the scripts apply it. Either key may be
            missing. `"temperature"`, a positive number, divides the logits before the softmax; above 1 it makes the
            model less confident (`fit_temperature`). `"thresholds"`, a positive number for each class in the order of
            `id2label`: a post gets the class with the largest probability / threshold, so only their ratios count
            (`tune_thresholds`).
        timed (`bool`, *optional*):
            Whether the model was trained with the time between posts. If the stream layers read time
            (`stream_attention="temporal_rotary"`), streams must match it. If None, this is not checked.
        problem_type (`str`, *optional*):
            `"single_label_classification"`, which None stands for too: a post has one of at least 2 classes.

    Raises a validation error that names the field for a value outside its range; `from_pretrained` and `from_dict`
    make a `ValueError` of it.
    """

    model_type = "tempoformer"
    sub_configs = {"encoder_config": AutoConfig}
    keys_to_ignore_at_inference = ["stream_attentions", "hidden_states", "attentions"]

    encoder_config: PreTrainedConfig | dict[str, Any] | None = None
    window: int = 20
    stream_form: Literal["token", "post"] = "token"
    num_stream_layers: int = 2
    stream_attention: Literal["temporal_rotary", "rotary", "full"] = "temporal_rotary"
    stream_position_embeddings: bool | list[bool] = True
    stream_position_initializer_range: float | int = 0.02
    stream_residual: bool = False
    fusion: Literal["gate", "none"] = "gate"
    post_pooling: Literal["mean", "cls"] = "mean"
    stream_hidden_size: int | None = None
    head: Literal["mlp", "lstm"] = "mlp"
    head_hidden_sizes: list[int] | tuple[int, ...] = (64, 64)
    head_dropout: float | int = 0.1
    lstm_hidden_size: int = 100
    recurrent_order: Literal["forward", "reverse"] = "forward"
    rope_theta: float | int = 10000.0
    focal_gamma: float | int = 2.0
    class_weights: list[float | int] | None = None
    calibration: dict[str, Any] | None = None
    timed: bool | None = None
    problem_type: str | None = validated_field(check_problem_type, default=None)

    def __post_init__(self, **kwargs):
        if self.encoder_config is None:
            self.encoder_config = AutoConfig.for_model("bert")
        elif isinstance(self.encoder_config, dict):
            if "model_type" not in self.encoder_config:
                raise ValueError("`encoder_config` given as a dict needs a `model_type`, for example 'bert'.")
            own_class = OWN_ENCODERS.get(self.encoder_config["model_type"])
            if own_class is not None:
                self.encoder_config = own_class.from_dict(self.encoder_config)
            else:
                self.encoder_config = AutoConfig.for_model(**self.encoder_config)
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs) -> "TempoFormerConfig":
        """
        As in the library, but `class_weights` and `calibration` of `config_dict` are dropped if another number of
        classes is given.
        """
        given = {name: kwargs.pop(name) for name in (*CLASS_FIELDS, "id2label", "label2id") if name in kwargs}
        values = {**config_dict, **given}
        if "id2label" in given and "label2id" not in given:
            values["label2id"] = {label: int(index) for index, label in given["id2label"].items()}
        before, after = (len(fields.get("id2label") or ()) or 2 for fields in (config_dict, values))
        if kwargs.get("num_labels", after) != before:
            values |= {name: given.get(name) for name in CLASS_FIELDS}
        return super().from_dict(values, **kwargs)

    def validate_bounds(self):
        """Numbers must lie within their bounds, also the encoder's."""
        super().validate_bounds()
        check_bounds(self.encoder_config, "encoder_config.")

    def validate_stream(self):
        """The stream layers must fit the encoder."""
        num_layers = self.encoder_config.num_hidden_layers
        if self.stream_form == "post":
            if self.num_stream_layers < 1:
                raise ValueError("The post form needs `num_stream_layers` of at least 1.")
        elif self.stream_hidden_size is not None:
            raise ValueError("`stream_hidden_size` is for the post form; the token form has the encoder's width.")
        elif not 0 <= self.num_stream_layers <= num_layers:
            raise ValueError(
                f"`num_stream_layers` must be between 0 and the encoder's {num_layers} layers, "
                f"got {self.num_stream_layers}."
            )
        positions = self.stream_position_embeddings
        if isinstance(positions, list) and len(positions) != self.num_stream_layers:
            raise ValueError(
                f"`stream_position_embeddings` has {len(positions)} values for {self.num_stream_layers} stream layers."
            )
        head_dim, rest = divmod(self.stream_width, self.encoder_config.num_attention_heads)
        if rest or head_dim < 1:
            raise ValueError(
                f"The stream layers' width must be a positive multiple of their "
                f"{self.encoder_config.num_attention_heads} heads, got {self.stream_width}."
            )
        if self.num_stream_layers and self.stream_attention != "full" and head_dim % 2:
            raise ValueError(
                f"`stream_attention='{self.stream_attention}'` needs an even head dimension, not {head_dim}."
            )

    def validate_classes(self):
        """The loss needs two classes and a positive weight for each, decisions a positive threshold."""
        if self.num_labels < 2:
            raise ValueError(f"The focal loss needs at least 2 classes, got `num_labels={self.num_labels}`.")
        calibration = self.calibration or {}
        if unknown := sorted(set(calibration) - {"temperature", "thresholds"}):
            raise ValueError(f"`calibration` has 'temperature' and 'thresholds', got {', '.join(map(repr, unknown))}.")
        temperature = calibration.get("temperature")
        for name, numbers, count in (
            ("class_weights", self.class_weights, self.num_labels),
            ("calibration['thresholds']", calibration.get("thresholds"), self.num_labels),
            ("calibration['temperature']", None if temperature is None else [temperature], 1),
        ):
            if numbers is None:
                continue
            if len(numbers) != count:
                raise ValueError(f"`{name}` has {len(numbers)} values for {count} labels.")
            if not all(0 < number < float("inf") for number in numbers):
                raise ValueError(f"`{name}` must be positive and finite, got {numbers}.")

    @property
    def stream_width(self) -> int:
        """The width of the stream layers and of what the head reads."""
        return self.encoder_config.hidden_size if self.stream_hidden_size is None else self.stream_hidden_size

    @property
    def position_embeddings_per_layer(self) -> list[bool]:
        """One value for each stream layer, also where `stream_position_embeddings` is one for all."""
        if isinstance(self.stream_position_embeddings, list):
            return self.stream_position_embeddings
        return [self.stream_position_embeddings] * self.num_stream_layers

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
        self.auto_map = {
            "AutoConfig": "configuration_tempoformer.TempoFormerConfig",
            "AutoModel": "modeling_tempoformer.TempoFormerModel",
            "AutoModelForSequenceClassification": "modeling_tempoformer.TempoFormerForStreamClassification",
        }
        self.custom_pipelines = {
            "stream-classification": {
                "impl": "pipeline_tempoformer.StreamClassificationPipeline",
                "pt": ["AutoModelForSequenceClassification"],
                "type": "text",
            }
        }
        super().save_pretrained(save_directory, **kwargs)


__all__ = ["TempoFormerConfig"]
