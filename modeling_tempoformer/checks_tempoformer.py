"""
Checks that several Hub modules share: numbers and labels of configurations, shapes, precision of times, and the format
and names of weights.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig


# Names of tensors that an error lists.
MOST_NAMES = 5
# What the numbers of a configuration must be, and in which fields: ours, and those of encoders. NaN is none of these.
BOUNDS: dict[str, tuple[Callable[[float], bool], list[str]]] = {
    "at least 1": (
        lambda number: number >= 1,
        [
            *(
                "window",
                "num_members",
                "head_hidden_sizes",
                "lstm_hidden_size",
                "vocab_size",
                "embedding_size",
                "hidden_size",
            ),
            *("num_hidden_layers", "num_attention_heads", "intermediate_size"),
        ],
    ),
    "positive and finite": (
        lambda number: 0 < number < math.inf,
        [
            *("rope_theta", "stream_position_initializer_range", "time_initializer_range"),
            *("initializer_range", "layer_norm_eps", "norm_eps"),
        ],
    ),
    "at least 0 and finite": (lambda number: 0 <= number < math.inf, ["focal_gamma", "num_trees", "tree_weights"]),
    "at least 0 and below 1": (
        lambda number: 0 <= number < 1,
        [
            *("head_dropout", "stream_dropout", "dropout", "hidden_dropout_prob", "attention_probs_dropout_prob"),
            *("classifier_dropout", "embedding_dropout", "attention_dropout", "mlp_dropout"),
        ],
    ),
}


def check_bounds(config: PreTrainedConfig, prefix: str = ""):
    """Raises a `ValueError` for a number outside its bounds; `prefix` comes before the names of the fields."""
    for rule, (holds, names) in BOUNDS.items():
        for name in names:
            value = getattr(config, name, None)
            numbers = value if isinstance(value, (list, tuple)) else [value]
            if not all(number is None or holds(number) for number in numbers):
                raise ValueError(f"`{prefix}{name}` must be {rule}, got {value}.")


@dataclass(kw_only=True)
class CheckedFields:
    """What all our configurations check: their numbers and labels."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """
        As in the library, but the fields in `kwargs` are checked too, and any value that is refused is a `ValueError`.
        """
        try:
            loaded = super().from_dict(config_dict, **kwargs)
            (loaded[0] if isinstance(loaded, tuple) else loaded).validate()
        except StrictDataclassError as problem:
            raise ValueError(f"Configuration of a '{cls.model_type}': {' '.join(str(problem).split())}") from None
        return loaded

    # The library runs `validate_` methods in the order of the alphabet; others rely on these numbers.
    def validate_bounds(self):
        """Numbers must lie within their bounds."""
        check_bounds(self)

    def validate_labels(self):
        """Labels must be numbered from 0 without gaps."""
        for name, ids in (("id2label", self.id2label or ()), ("label2id", (self.label2id or {}).values())):
            if sorted(ids) != list(range(len(ids))):
                raise ValueError(f"`{name}` must number the labels from 0 without gaps, got {getattr(self, name)}.")


def check_shape(name: str, tensor: torch.Tensor | None, *shape: int | None, hint: str = ""):
    """
    Raises a `ValueError` that names a tensor of another shape.

    Args:
        name (`str`): Of the argument.
        tensor (`torch.Tensor`, *optional*): None has any shape.
        shape (`int`): The expected length of each axis; None for any length.
        hint (`str`, *optional*): What the error says at its end.
    """
    if tensor is None:
        return
    lengths = tuple(tensor.shape)
    if len(lengths) != len(shape) or any(want not in (None, have) for want, have in zip(shape, lengths, strict=True)):
        expected = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"`{name}` must have the shape ({expected}), got {lengths}.{hint}")


def narrow_float(value: Any) -> Any:
    """The dtype of a number, tensor or array in floats of fewer than 64 bits; None for anything else."""
    dtype = getattr(value, "dtype", None)
    # PyTorch's dtypes, and NumPy's.
    is_float = getattr(dtype, "is_floating_point", False) or getattr(dtype, "kind", "") == "f"
    return dtype if is_float and dtype.itemsize < 8 else None


def only_safetensors(settings: dict[str, Any]) -> dict[str, Any]:
    """
    The keyword arguments of a model's `from_pretrained`, changed to read safetensors only, since a pickle can hold
    code. Raises a `ValueError` for `use_safetensors=False`.
    """
    if settings.get("use_safetensors") is False:
        raise ValueError("`use_safetensors=False` is refused: weights are read from safetensors only.")
    return {**settings, "use_safetensors": True}


def check_whole(source: Any, loading_info: Mapping[str, Any]):
    """
    Raises a `ValueError` that names the tensors in which a checkpoint and its model differ: tensors that are missing
    would be random numbers.

    Args:
        source (`str` or `Path`): The checkpoint.
        loading_info (`dict[str, Any]`): As `from_pretrained` returns it with `output_loading_info=True`.
    """
    missing, unexpected = (sorted(loading_info[f"{kind}_keys"]) for kind in ("missing", "unexpected"))
    found = [
        f"{what} {', '.join(names[:MOST_NAMES])}" + f" and {len(names) - MOST_NAMES} more" * (len(names) > MOST_NAMES)
        for what, names in (("lack", missing), ("have besides", unexpected))
        if names
    ]
    if found:
        raise ValueError(
            f"The weights of {source} are not those of its configuration: they {', and '.join(found)}. Save or "
            "download the model again."
        )
