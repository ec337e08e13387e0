"""Configuration of the paper's model."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from .checks_tempoformer import at_least_1, positive
from .configuration_streams_tempoformer import StreamFields


@strict
class TempoFormerConfig(StreamFields, PreTrainedConfig):
    r"""
    Configuration of a [`TempoFormerModel`] or [`TempoFormerForStreamClassification`] (Tseriotou, Tsakalidis and
    Liakata, 2024). The variants of the paper are values of these fields, not different classes.

    Args:
        encoder_config (`PreTrainedConfig` or `dict`, *optional*):
            Configuration of the encoder that reads the posts; `BertConfig()` if omitted.
        num_stream_layers (`int`, *optional*, defaults to 2):
            The number of the encoder's top layers that let posts attend to their stream. 0 leaves a plain encoder.
        stream_position_embeddings (`bool` or `list[bool]`, *optional*, defaults to `True`):
            If True, the stream layers add a learned embedding of a post's position in the stream; one value for each
            stream layer, or one for all.
        stream_position_initializer_range (`float`, *optional*, defaults to 0.02):
            Standard deviation of new position embeddings; 0.02 as in the published code, which is small compared with
            hidden states of a scale near 1.
        stream_residual (`bool`, *optional*, defaults to `False`):
            If True, a stream layer adds the context to a post's own vector, `c' = c + attention(c)`, instead of
            replacing the vector (paper, section 4.2). The attention's output projection then starts at 0, so that
            training starts from the pretrained encoder's own [CLS].
        fusion (`str`, *optional*, defaults to `"gate"`):
            How the last stream layer joins a post's own vector and its context: `"gate"` (Gate&Norm) or `"none"` (the
            context alone).
        head (`str`, *optional*, defaults to `"mlp"`):
            `"mlp"` reads the newest post; `"lstm"` reads all posts of the stream in turn (RoTempoFormer, or RoBERT
            with `num_stream_layers=0`).
        lstm_hidden_size (`int`, *optional*, defaults to 100):
            Width of the LSTM of `head="lstm"`.
        recurrent_order (`str`, *optional*, defaults to `"forward"`):
            The LSTM reads from the oldest post to the newest (`"forward"`), or from the newest to the oldest
            (`"reverse"`, as in the published code).
        window, stream_attention, rope_theta, head_hidden_sizes, head_dropout: Fields of [`PostTempoFormerConfig`].
        focal_gamma, class_weights, calibration, timed, watched, problem_type: Fields of [`PostTempoFormerConfig`].
        change_step: Fields of [`PostTempoFormerConfig`].
        first_posts, no_change: Fields of [`PostTempoFormerConfig`]. As this model does not read speakers, the first
            posts are timelines' first posts.

    Raises a validation error that names the field for a value outside its range; `from_pretrained` and `from_dict`
    raise it as a `ValueError`.
    """

    model_type = "tempoformer"
    keys_to_ignore_at_inference = ["stream_attentions", "hidden_states", "attentions"]
    auto_classes = {
        "AutoConfig": "configuration_tempoformer.TempoFormerConfig",
        "AutoModel": "modeling_tempoformer.TempoFormerModel",
        "AutoModelForSequenceClassification": "modeling_tempoformer.TempoFormerForStreamClassification",
    }

    num_stream_layers: int = 2
    stream_position_embeddings: bool | list[bool] = True
    stream_position_initializer_range: float | int = positive(default=0.02)
    stream_residual: bool = False
    fusion: Literal["gate", "none"] = "gate"
    head: Literal["mlp", "lstm"] = "mlp"
    lstm_hidden_size: int = at_least_1(default=100)
    recurrent_order: Literal["forward", "reverse"] = "forward"

    def validate_layers(self):
        """Checks that stream layers are layers of the encoder, and that a list of values for them fits."""
        num_layers = self.encoder_config.num_hidden_layers
        if not 0 <= self.num_stream_layers <= num_layers:
            raise ValueError(
                f"`num_stream_layers` must be between 0 and the encoder's {num_layers} layers, "
                f"got {self.num_stream_layers}."
            )
        positions = self.stream_position_embeddings
        if isinstance(positions, list) and len(positions) != self.num_stream_layers:
            raise ValueError(
                f"`stream_position_embeddings` has {len(positions)} values for {self.num_stream_layers} stream layers."
            )

    @property
    def stream_width(self) -> int:
        """The width of the attention across posts."""
        return self.encoder_config.hidden_size

    @property
    def position_embeddings_per_layer(self) -> list[bool]:
        """One value for each stream layer, also where `stream_position_embeddings` is one for all."""
        if isinstance(self.stream_position_embeddings, list):
            return self.stream_position_embeddings
        return [self.stream_position_embeddings] * self.num_stream_layers


__all__ = ["TempoFormerConfig"]
