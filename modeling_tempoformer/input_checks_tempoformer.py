"""What a model refuses before it computes: batches that do not fit it, and weights that are no safetensors."""

from typing import Any

import torch
from transformers import PreTrainedConfig


IDS = (torch.int64, torch.int32)
INTEGERS = (*IDS, torch.int16, torch.int8, torch.uint8)
NUMBERS = (torch.float32, torch.float64, torch.bfloat16, torch.float16, *INTEGERS)

# A tensor's name, its values, where they break a rule, and the rule.
Broken = tuple[str, torch.Tensor, torch.BoolTensor, str]


def refuse(broken: list[Broken]):
    """
    Raises a `ValueError` that names the first value that breaks a rule. All rules are looked at in one transfer from
    the device.
    """
    found = torch.stack([where.any() for _, _, where, _ in broken]).tolist() if broken else []
    if True in found:
        name, values, where, rule = broken[found.index(True)]
        place = where.nonzero()[0].tolist()
        raise ValueError(f"`{name}` must {rule}; at {place} it is {values[tuple(place)].item()}.")


def check_tensor(name: str, tensor: Any, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...], of: str):
    """Raises a `ValueError` for what is no tensor, and for another shape than that `of` others or another dtype."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"`{name}` must be a tensor, got a {type(tensor).__name__}.")
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"`{name}` must have the shape {tuple(shape)} as {of}, got {tuple(tensor.shape)}.")
    check_dtype(name, tensor, dtypes)


def check_dtype(name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...]):
    """Raises a `ValueError` for another dtype."""
    if tensor.dtype not in dtypes:
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        raise ValueError(f"`{name}` must be {allowed}, got {str(tensor.dtype).removeprefix('torch.')}.")


def check_tokens(
    config: PreTrainedConfig,
    num_axes: int,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None = None,
    time_ids: torch.Tensor | None = None,
    inputs_embeds: torch.Tensor | None = None,
) -> list[Broken]:
    """
    Tokens of texts, (texts, tokens) or (rows, posts, tokens) as `num_axes` says. Raises a `ValueError` for other
    shapes and dtypes, and returns the rules for the values.
    """
    name, tokens = ("input_ids", input_ids) if inputs_embeds is None else ("inputs_embeds", inputs_embeds)
    num_all = num_axes + (inputs_embeds is not None)
    shape = tuple(tokens.shape) if isinstance(tokens, torch.Tensor) else None
    if shape is None or len(shape) != num_all or 0 in shape[3 - num_axes :]:
        got = f"a {type(tokens).__name__}" if shape is None else f"the shape {shape}"
        raise ValueError(f"`{name}` must be a tensor of {num_all} axes with tokens in it, got {got}.")
    broken: list[Broken] = []
    if inputs_embeds is None:
        check_dtype(name, tokens, IDS)
        broken.append((name, tokens, *outside(tokens, 0, config.vocab_size - 1)))
    shape = shape[:num_axes]
    if attention_mask is not None:
        check_tensor("attention_mask", attention_mask, shape, (torch.bool, *INTEGERS), f"`{name}`")
        if attention_mask.dtype != torch.bool:
            broken.append(("attention_mask", attention_mask, *outside(attention_mask, 0, 1)))
    if token_type_ids is not None:
        check_tensor("token_type_ids", token_type_ids, shape, IDS, f"`{name}`")
        if types := getattr(config, "type_vocab_size", 0):
            broken.append(("token_type_ids", token_type_ids, *outside(token_type_ids, 0, types - 1)))
    if time_ids is not None:
        check_tensor("time_ids", time_ids, shape, IDS, f"`{name}`")
    return broken


def outside(values: torch.Tensor, first: int, last: int) -> tuple[torch.BoolTensor, str]:
    """Where `values` are not between two numbers, and the rule."""
    return (values < first) | (values > last), f"lie between {first} and {last}"


def check_first_tokens(attention_mask: torch.Tensor) -> Broken:
    """The rule that posts (..., tokens) are padded on the right: their first token is [CLS]."""
    first = attention_mask[..., 0]
    rule = "be 1 at the first token of a post, which is padded on the right"
    return "attention_mask", first, attention_mask.bool().any(-1) & (first == 0), rule


def check_streams(
    num_posts: int, stream_index: torch.Tensor, elapsed: torch.Tensor | None, batch_size: int
) -> list[Broken]:
    """
    Streams over rows of `num_posts` posts. Raises a `ValueError` for other shapes and dtypes, and returns the rules
    for the values.
    """
    shape = tuple(stream_index.shape) if isinstance(stream_index, torch.Tensor) else None
    if shape is None or len(shape) != 3 or shape[0] != batch_size or 0 in shape:
        got = f"a {type(stream_index).__name__}" if shape is None else f"the shape {shape}"
        raise ValueError(f"`stream_index` must be a tensor of shape ({batch_size}, streams, window), got {got}.")
    check_dtype("stream_index", stream_index, IDS)
    where, rule = outside(stream_index, -1, num_posts - 1)
    older, newer = stream_index[..., :-1], stream_index[..., 1:]
    is_real = older >= 0
    falls = torch.nn.functional.pad(is_real & (newer <= older), (1, 0))
    broken = [
        ("stream_index", stream_index, where, f"{rule}, as rows have {num_posts} posts"),
        ("stream_index", stream_index, falls, "rise from the oldest post to the newest, -1 on the left"),
    ]
    if elapsed is not None:
        check_tensor("elapsed", elapsed, shape, NUMBERS, "`stream_index`")
        newest, has_post = elapsed[..., -1], stream_index[..., -1] >= 0
        # As it is read: a float64 may be infinite in 32 bits. Also true of a NaN.
        wrong = ~((elapsed >= 0) & (elapsed.float() < float("inf")))
        rises = torch.nn.functional.pad(is_real & (elapsed[..., 1:] > elapsed[..., :-1]), (1, 0))
        broken += [
            ("elapsed", elapsed, wrong, "be finite and not negative"),
            ("elapsed", elapsed, rises, "fall from the oldest post of a stream to the newest"),
            ("elapsed", newest, has_post & (newest != 0), "be 0 at the newest post of a stream"),
        ]
    return broken


def check_labels(
    labels: torch.Tensor, shape: tuple[int, ...], num_labels: int, of: str, absent: torch.BoolTensor | None = None
):
    """
    Raises a `ValueError` for labels of another shape than that `of` others, that are no class and not -100, or that
    are not -100 where what they would label is `absent`.
    """
    check_tensor("labels", labels, shape, (torch.int64,), of)
    where, rule = outside(labels, 0, num_labels - 1)
    given = labels != -100
    broken: list[Broken] = [("labels", labels, where & given, f"{rule}, or be -100")]
    if absent is not None:
        broken.append(("labels", labels, absent.to(labels.device) & given, "be -100 where a stream is all -1"))
    refuse(broken)


def narrow_float(value: Any) -> Any:
    """The dtype of a number, tensor or array in floats of fewer than 64 bits; None of any other."""
    dtype = getattr(value, "dtype", None)
    # PyTorch's dtypes, and NumPy's.
    is_float = getattr(dtype, "is_floating_point", False) or getattr(dtype, "kind", "") == "f"
    return dtype if is_float and dtype.itemsize < 8 else None


def only_safetensors(settings: dict[str, Any]) -> dict[str, Any]:
    """
    Settings of a model's `from_pretrained`, so that it reads safetensors only: a pickle can hold code. Raises a
    `ValueError` where pickles are asked for.
    """
    if settings.get("use_safetensors") is False:
        raise ValueError("`use_safetensors=False` is refused: weights are read from safetensors only.")
    return {**settings, "use_safetensors": True}
