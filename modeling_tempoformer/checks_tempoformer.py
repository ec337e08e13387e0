"""Checks that several Hub modules share: fields and labels of configurations, shapes, precision, missing weights."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import __version__ as transformers_version
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.utils.type_validators import interval
from transformers.utils.versions import require_version


# Fields of configurations: `window: int = at_least_1(default=20)`. NaN is in none of these intervals.
at_least_1 = interval(min=1)
positive = interval(min=0, exclude_min=True, max=math.inf, exclude_max=True)
not_negative = interval(min=0, max=math.inf, exclude_max=True)
dropout = interval(min=0, max=1, exclude_max=True)

# The versions that the code of a model needs, which its configuration says where it is saved. setup.cfg has the same.
NEEDS = {"torch": "2.6", "transformers": "5.11"}


@dataclass(kw_only=True)
class CheckedFields:
    """
    Checks the labels of a configuration and the versions that its code needs, and raises the library's validation
    errors as a `ValueError`.
    """

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs):
        """Reads a configuration as the library does, also checks `kwargs`, and raises a `ValueError` for a bad one."""
        for package in NEEDS:
            if needed := config_dict.get(f"needs_{package}"):
                check_version(package, needed)
        try:
            loaded = super().from_dict(config_dict, **kwargs)
            (loaded[0] if isinstance(loaded, tuple) else loaded).validate()
        except StrictDataclassError as problem:
            raise ValueError(f"Configuration of a '{cls.model_type}': {' '.join(str(problem).split())}") from None
        return loaded

    def save_pretrained(self, save_directory, **kwargs):
        """Saves the configuration, with the versions that the code beside it needs."""
        for package, version in NEEDS.items():
            setattr(self, f"needs_{package}", version)
        super().save_pretrained(save_directory, **kwargs)

    def validate_labels(self):
        """Checks that labels have different names, and are numbered from 0 without gaps."""
        if len(set((self.id2label or {}).values())) < len(self.id2label or ()):
            raise ValueError(f"`id2label` must give each class a name of its own, got {self.id2label}.")
        for name, ids in (("id2label", self.id2label or ()), ("label2id", (self.label2id or {}).values())):
            if sorted(ids) != list(range(len(ids))):
                raise ValueError(f"`{name}` must number the labels from 0 without gaps, got {getattr(self, name)}.")


def check_version(package: str, needed: str):
    """Raises a `ValueError` if an older version of a package is installed than a saved model needs."""
    try:
        require_version(f"{package}>={needed}")
    except ImportError:
        found = {"torch": torch.__version__, "transformers": transformers_version}[package]
        raise ValueError(
            f"The code of this model needs {package} {needed} or a newer one, and {found} is installed: "
            f"`pip install -U {package}`."
        ) from None


def own_class(model_class: type, folder: Any, config: PreTrainedConfig | None) -> type:
    """
    Returns the class of a model in the code of its own folder. Of two folders that have one name and the same
    configuration code, Transformers runs the code of the first that a process loads.

    Args:
        model_class (`type`): The class that Transformers has chosen.
        folder (`str` or `Path`): The folder of the model, or its name on the Hub.
        config (`PreTrainedConfig`, *optional*): The model's configuration, whose `auto_map` names the code.
    """
    # Code of the Hub is kept by its commit, which may be pinned.
    if re.match(r"transformers_modules\.(?!.*\.[0-9a-f]{40}\.)", model_class.__module__):
        for auto_class, reference in (getattr(config, "auto_map", None) or {}).items():
            if reference.rpartition(".")[2] == model_class.__name__ and "--" not in reference:
                model_class = get_class_from_dynamic_module(reference, folder)
                model_class.register_for_auto_class(auto_class)
                break
    return model_class


def check_shape(name: str, tensor: torch.Tensor | None, *shape: int | None):
    """Raises a `ValueError` that names a tensor without this shape, in which None stands for any length."""
    if tensor is None:
        return
    lengths = tuple(tensor.shape)
    if len(lengths) != len(shape) or any(want not in (None, have) for want, have in zip(shape, lengths, strict=True)):
        expected = ", ".join("any" if want is None else str(want) for want in shape)
        raise ValueError(f"`{name}` must have the shape ({expected}), got {lengths}.")


def narrow_float(value: Any) -> Any:
    """Returns the dtype of a number, tensor or array if that is a float of fewer than 64 bits, else None."""
    dtype = getattr(value, "dtype", None)
    # PyTorch's dtypes, and NumPy's.
    is_float = getattr(dtype, "is_floating_point", False) or getattr(dtype, "kind", "") == "f"
    return dtype if is_float and dtype.itemsize < 8 else None


def check_whole(source: Any, missing: Iterable[str], unexpected: Iterable[str] = ()):
    """
    Raises a `ValueError` that names the weights that are `missing` in a checkpoint, and would be random, or that are
    `unexpected` in the model.
    """
    for problem, names in (("lack", sorted(missing)), ("also have", sorted(unexpected))):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise ValueError(
                f"The weights of {source} do not fit its configuration: they {problem} "
                f"{', '.join(names[:5])}{more}. Save or download the model again; "
                "`tempoformer upgrade` converts one of 0.2.0."
            )


def check_indices(source: Any, name: str, indices: torch.Tensor, count: int):
    """Raises a `ValueError` for an index outside of 0 to `count - 1`: a negative one would count from the end."""
    if indices.is_meta:
        return
    wrong = indices[(indices < 0) | (indices >= count)]
    if len(wrong):
        raise ValueError(
            f"`{name}` of {source} has the index {wrong[0]}, and must have those from 0 to {count - 1}. Save or "
            "download the model again."
        )


def find_positions(encoder: PreTrainedModel) -> nn.Embedding | None:
    """Returns the table of an encoder's absolute positions, None where there is none."""
    for name, table in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            return table
    return None


def first_position(encoder: PreTrainedModel) -> int:
    """Returns the position of the first token: the one after the padding's, if that has one, else 0."""
    padding = getattr(find_positions(encoder), "padding_idx", None)
    return 0 if padding is None else padding + 1


def longest_input(encoder: PreTrainedModel) -> int:
    """
    Returns the largest number of tokens that an encoder has positions for; 1e30 without a limit.

    Args:
        encoder (`PreTrainedModel`): The encoder, or a model that contains it.
    """
    if (table := find_positions(encoder)) is not None:
        return table.num_embeddings - first_position(encoder)
    most = getattr(encoder.config, "max_position_embeddings", None) or -1
    return most if most > 0 else int(1e30)
