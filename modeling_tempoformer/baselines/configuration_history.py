"""Configuration of the models over frozen post embeddings."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from ..checks_tempoformer import CheckedFields
from ..configuration_post_tempoformer import StreamFields


# The number of posts in a unit of Seq-Sig-Net, and by how many posts the next unit is later.
UNIT_WINDOW, UNIT_SHIFT = 5, 3

HIDDEN_SIZES = {"ffn_history": (128, 128), "bilstm": (), "swnu": (32, 32), "seq_sig_net": (32, 32)}


@strict
class HistoryConfig(CheckedFields, PreTrainedConfig):
    r"""
    Configuration of a [`HistoryForStreamClassification`], a baseline over frozen post embeddings from the TempoFormer
    paper (Tseriotou et al., 2024). SWNU and Seq-Sig-Net were introduced by Tseriotou et al. (2023).

    Args:
        architecture (`str`, *optional*, defaults to `"ffn_history"`):
            `"ffn_history"` reads the newest post and the mean of all posts, `"bilstm"` the sequence of posts, `"swnu"`
            the log-signatures of the stream, and `"seq_sig_net"` the log-signatures of a sequence of units, which are
            overlapping windows of 5 posts.
        embedding_size (`int`, *optional*, defaults to 384):
            Width of a post's embedding.
        window (`int`, *optional*, defaults to 20):
            The largest number of posts in a stream. Seq-Sig-Net reads as many units as fit, at least 1. n units cover
            the last `5 + 3 (n - 1)` posts.
        timed (`bool`, *optional*, defaults to `True`):
            Whether SWNU and Seq-Sig-Net read the seconds between posts. If not, posts are evenly spaced.
        hidden_sizes (`list[int]`, *optional*):
            Hidden widths of the classifier. Defaults to (128, 128) for FFN-History, (32, 32) for SWNU and Seq-Sig-Net,
            and none for BiLSTM.
        dropout (`float`, *optional*, defaults to 0.1):
            Dropout in the classifier: after each hidden layer, or before the output if there is no hidden layer.
        lstm_hidden_size (`int`, *optional*, defaults to 300):
            Width of each direction of the BiLSTM over posts (`"bilstm"`) or units (`"seq_sig_net"`).
        path_channels (`int`, *optional*, defaults to 10):
            Channels that SWNU reduces an embedding to. Time is added as one more channel.
        unit_hidden_size (`int`, *optional*, defaults to 12):
            Width of each direction of SWNU's BiLSTM over log-signatures.
        focal_gamma, class_weights: As in [`TempoFormerConfig`].
    """

    model_type = "post_history"

    architecture: Literal["ffn_history", "bilstm", "swnu", "seq_sig_net"] = "ffn_history"
    embedding_size: int = 384
    window: int = 20
    timed: bool = True
    hidden_sizes: list[int] | tuple[int, ...] | None = None
    dropout: float | int = 0.1
    lstm_hidden_size: int = 300
    path_channels: int = 10
    unit_hidden_size: int = 12
    focal_gamma: float | int = 2.0
    class_weights: list[float | int] | None = None
    calibration: dict[str, Any] | None = None

    def __post_init__(self, **kwargs):
        if self.hidden_sizes is None:
            self.hidden_sizes = HIDDEN_SIZES[self.architecture]
        super().__post_init__(**kwargs)

    def validate_sizes(self):
        """Widths must be at least 1."""
        for name in ("hidden_sizes", "path_channels", "unit_hidden_size"):
            value = getattr(self, name)
            if min([value] if isinstance(value, int) else value, default=1) < 1:
                raise ValueError(f"`{name}` must be at least 1, got {value}.")

    # The same loss, with the same fields.
    validate_classes = StreamFields.validate_classes

    @property
    def num_units(self) -> int:
        """The number of units of Seq-Sig-Net."""
        return 1 + max(0, self.window - UNIT_WINDOW) // UNIT_SHIFT


__all__ = ["HistoryConfig"]
