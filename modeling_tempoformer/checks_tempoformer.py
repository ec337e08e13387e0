"""Checks that several Hub modules share: numbers and labels of configurations, shapes, precision, missing weights."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import PreTrainedModel


# What the numbers of our configurations must be, and in which fields. NaN is none of these.
BOUNDS: dict[str, tuple[Callable[[float], bool], list[str]]] = {
    "at least 1": (lambda number: number >= 1, ["window", "num_members", "head_hidden_sizes", "lstm_hidden_size"]),
    "positive and finite": (
        lambda number: 0 < number < math.inf,
        ["rope_theta", "stream_position_initializer_range", "time_initializer_range"],
    ),
    "at least 0 and finite": (lambda number: 0 <= number < math.inf, ["focal_gamma", "num_trees", "tree_weights"]),
    "at least 0 and below 1": (lambda number: 0 <= number < 1, ["head_dropout", "stream_dropout"]),
}


@dataclass(kw_only=True)
class CheckedFields:
    """What all our configurations check: their numbers and labels."""

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """As in the library, but the fields in `kwargs` are checked too, and what is refused is a `ValueError`."""
        try:
            loaded = super().from_dict(config_dict, **kwargs)
            (loaded[0] if isinstance(loaded, tuple) else loaded).validate()
        except StrictDataclassError as problem:
            raise ValueError(f"Configuration of a '{cls.model_type}': {' '.join(str(problem).split())}") from None
        return loaded

    # The library runs `validate_` methods in the order of the alphabet; others rely on these numbers.
    def validate_bounds(self):
        """Numbers must lie within their bounds."""
        for rule, (holds, names) in BOUNDS.items():
            for name in names:
                value = getattr(self, name, None)
                numbers = value if isinstance(value, (list, tuple)) else [value]
                if not all(number is None or holds(number) for number in numbers):
                    raise ValueError(f"`{name}` must be {rule}, got {value}.")

    def validate_labels(self):
        """Labels must be numbered from 0 without gaps."""
        for name, ids in (("id2label", self.id2label or ()), ("label2id", (self.label2id or {}).values())):
            if sorted(ids) != list(range(len(ids))):
                raise ValueError(f"`{name}` must number the labels from 0 without gaps, got {getattr(self, name)}.")


def check_shape(name: str, tensor: torch.Tensor | None, *shape: int | None):
    """Raises a `ValueError` that names a tensor of another shape, in which None stands for any length."""
    if tensor is None:
        return
    lengths = tuple(tensor.shape)
    if len(lengths) != len(shape) or any(want not in (None, have) for want, have in zip(shape, lengths, strict=True)):
        expected = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"`{name}` must have the shape ({expected}), got {lengths}.")


def narrow_float(value: Any) -> Any:
    """The dtype of a number, tensor or array in floats of fewer than 64 bits; None for anything else."""
    dtype = getattr(value, "dtype", None)
    # PyTorch's dtypes, and NumPy's.
    is_float = getattr(dtype, "is_floating_point", False) or getattr(dtype, "kind", "") == "f"
    return dtype if is_float and dtype.itemsize < 8 else None


def check_whole(source: Any, missing: Iterable[str]):
    """Raises a `ValueError` that names weights that a checkpoint lacks: they would be random numbers."""
    if missing := sorted(missing):
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise ValueError(
            f"The weights of {source} are not those of its configuration: they lack {', '.join(missing[:5])}{more}. "
            "Save or download the model again."
        )


def longest_input(encoder: PreTrainedModel) -> int:
    """The largest number of tokens in a text that an encoder has positions for; 1e30 without a limit."""
    for name, table in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            # With an id for padding, positions start behind it.
            return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    most = getattr(encoder.config, "max_position_embeddings", None) or -1
    return most if most > 0 else int(1e30)
