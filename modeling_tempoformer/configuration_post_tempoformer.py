"""Configuration of the post model, this project's default."""

import math
from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .checks_tempoformer import at_least_1, dropout, not_negative, positive
from .configuration_streams_tempoformer import StreamFields


MOST_WORDS = 2**20
# The width of the code of the one to whom a post is addressed
ADDRESS_SIZE = 16


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
        encoder_backend (`str`, *optional*, defaults to `"torch"`):
            The form of the encoder: `"torch"`, or for ONNX Runtime `"onnx"`, in float32, or `"onnx-int8"`, in 8 bits,
            on whose vectors the other parts must have been fitted ([`convert_encoder`]).
        encoder_bytes (`int`, *optional*, defaults to 0): The size of the encoder's file in the format of ONNX.
        num_stream_layers (`int`, *optional*, defaults to 1): Layers over the vectors of a stream's posts, at least 1.
        num_members (`int`, *optional*, defaults to 5):
            Members of the ensemble: each has its own stream layers and head, and their logits are averaged. Over a
            frozen encoder each member has a held-out fold, timelines that it does not learn from (`held_out`).
        num_trees (`int`, *optional*, defaults to 40):
            Decision trees of each member, an expert beside the network ([`~experts_tempoformer.Trees`]); 0 for none.
        num_words (`int`, *optional*, defaults to 0):
            Buckets to which the tokens of a post and their pairs are hashed, for an expert that reads them
            ([`~experts_tempoformer.Words`]), up to 2^20; 0 for none. Its trees then read to whom posts are addressed.
            Such a model reads `input_ids`, not `inputs_embeds`. Over a frozen encoder a script gives a new one 16,384.
        reads_speakers (`bool`, *optional*, defaults to `False`):
            If True, the newest post is compared with its speaker's own previous post, and with the post before it.
        states (`list[str]`, *optional*): Names of the posts' states, which the model predicts.
        state_values (`list[float]`, *optional*): The number that each state stands for.
        reads_known_states (`bool`, *optional*, defaults to `False`):
            True if a post is read with the states of earlier posts, as far as they are known when it arrives.
        change_step (`float`, *optional*):
            If the labels were derived from the states: the smallest difference of `state_values` that is a change; 0
            if any other state is a change.
        stream_hidden_size (`int`, *optional*, defaults to 192):
            Width of the stream layers, an even multiple of the number of attention heads, which is the encoder's.
        stream_dropout (`float`, *optional*, defaults to 0.1): Dropout in the stream layers.
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
            Values that were tuned on posts outside the training set; each may be missing. `"temperature"`, from 1e-6
            to 1e6, divides the logits before the softmax. `"thresholds"`, a positive number for each class: a post
            gets the class with the largest probability / threshold. `"alarm"`, a dict, changes no label: a post is an
            alarm if the probability of the class with the id `"label"` is at least `"threshold"`, from 0 to 1; its
            `"wanted"` and `"measured"` document how the threshold was chosen.
        timed (`bool`, *optional*):
            Whether the model was trained with the times of posts. Its inputs must have times if and only if it was,
            with any `stream_attention`; if None, this is not checked.
        first_posts (`str`, *optional*):
            `"timeline"` or `"speaker"` if the first post of each timeline, or of each speaker, cannot be a change
            because no first post had a label in training. First posts get the class `no_change`.
        no_change (`int`, *optional*): The id of this class.
        watched (`int`, *optional*):
            The id of the class of interest: pages and tables show it first, and answers say whether a post is an alarm
            for it. It does not change the logits.
        problem_type (`str`, *optional*):
            `"single_label_classification"` or None, which means the same: a post has one of at least 2 classes.

    Raises a validation error that names the field for a value outside its range; `from_pretrained` and `from_dict`
    raise it as a `ValueError`.
    """

    model_type = "post_tempoformer"
    keys_to_ignore_at_inference = ["expert_logits", "stream_attentions", "hidden_states"]

    post_pooling: Literal["mean", "cls"] = "mean"
    encoder_backend: Literal["torch", "onnx", "onnx-int8"] = "torch"
    encoder_bytes: int = not_negative(default=0)
    num_stream_layers: int = at_least_1(default=1)
    num_members: int = at_least_1(default=5)
    num_trees: int = not_negative(default=40)
    num_words: int = not_negative(default=0)
    reads_speakers: bool = False
    states: list[str] | None = None
    state_values: list[float | int] | None = None
    reads_known_states: bool = False
    stream_hidden_size: int = 192
    stream_dropout: float | int = dropout(default=0.1)
    stream_position_initializer_range: float | int = positive(default=1.0)

    @property
    def auto_classes(self) -> dict[str, str]:
        """The file and the name of our class for each Auto class: of ONNX's encoder, the file that has its code."""
        module = "modeling_post_tempoformer" if self.encoder_backend == "torch" else "onnx_encoder_tempoformer"
        return {
            "AutoConfig": "configuration_post_tempoformer.PostTempoFormerConfig",
            "AutoModel": f"{module}.PostTempoFormerModel",
            "AutoModelForSequenceClassification": f"{module}.PostTempoFormerForStreamClassification",
        }

    @property
    def stream_width(self) -> int:
        """The width of the stream layers."""
        return self.stream_hidden_size

    @property
    def num_compared(self) -> int:
        """The number of earlier posts that the newest one is compared with."""
        return 1 + self.reads_speakers

    @property
    def vector_size(self) -> int:
        """The width of `post_embeds`: the encoder's, and with words the logits of each member and a name's code."""
        words = self.num_members * self.num_labels + ADDRESS_SIZE
        return self.encoder_config.hidden_size + bool(self.num_words) * words

    @property
    def num_levels(self) -> int:
        """The number of features that trees read of a person's known states ([`States.levels`])."""
        if not self.reads_known_states:
            return 0
        return 10 if self.state_values is not None else 2 + 4 * len(self.states)

    @property
    def head_width(self) -> int:
        """The width of the input of each member's head."""
        return (1 + 2 * self.num_compared) * self.stream_hidden_size + self.num_compared + 1

    @property
    def experts(self) -> list[str]:
        """The names of the experts whose logits are added."""
        built = {"trees": self.num_trees, "states": self.states, "words": self.num_words}
        return ["network", *(name for name, value in built.items() if value)]

    def validate_encoder(self):
        """Checks that the encoder is one of Transformers, which loads where this package is not installed."""
        encoder = self.encoder_config
        if not type(encoder).__module__.startswith("transformers."):
            raise ValueError(f"`encoder_config` must be of a type of Transformers, got '{encoder.model_type}'.")

    def validate_words(self):
        """Checks that the hashes of words can be scaled to `num_words` in 64 bits."""
        if self.num_words > MOST_WORDS:
            raise ValueError(f"`num_words` must be at most {MOST_WORDS}, got {self.num_words}.")

    def validate_states(self):
        """Checks that states have different names, and that `state_values`, if given, has a finite number for each."""
        if self.states is not None and len(set(self.states)) != len(self.states) or self.states == []:
            raise ValueError(f"`states` are different names, got {self.states}.")
        if self.reads_known_states and not self.states:
            raise ValueError("A model without `states` cannot have `reads_known_states`.")
        values = self.state_values
        if values is not None and not (len(values) == len(self.states or ()) and all(map(math.isfinite, values))):
            raise ValueError(f"`state_values` are numbers for {len(self.states or ())} states, got {values}.")


__all__ = ["PostTempoFormerConfig"]
