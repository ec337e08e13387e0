"""Checks that several Hub modules share: shapes, precision of times, and the format and names of weights."""

from collections.abc import Mapping
from typing import Any

import torch


# Names of tensors that an error lists.
MOST_NAMES = 5


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
