"""Arranges the posts of a batch for an encoder: in padded groups of similar length, or packed without padding."""

import math
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.nn.functional import embedding, embedding_bag, pad
from transformers import AttentionInterface, PreTrainedModel
from transformers.utils import logging
from transformers.utils.generic import is_flash_attention_requested

from .checks_tempoformer import first_position


logger = logging.get_logger(__name__)

# The cost of one more group, in tokens of padding: on a CPU it reads the weights again, elsewhere it starts kernels.
CPU_COST, GPU_COST = 64, 4096
# The most tokens of a group, padding included, on a CPU and elsewhere
CPU_TOKENS, GPU_TOKENS = 2**13, 2**16
# The name of `varlen_attention` in the library
TORCH_VARLEN = "torch_varlen"


def varlen_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.IntTensor | None = None,
    max_length_q: int | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """
    Computes attention inside the posts of a packed sequence (1, heads, tokens, dimensions), by PyTorch's own kernel.
    Returns the context (1, tokens, heads, dimensions) and no weights. Raises a `ValueError` where there is no kernel.
    """
    if cu_seq_lens_q is None or query.device.type == "cpu" or query.dtype == torch.float32 or module.is_causal:
        raise ValueError(
            f"`{TORCH_VARLEN}` is attention of an encoder on a GPU in 16 bits, without `torch.compile`: load the "
            "model with `dtype=torch.bfloat16` and move it to the GPU, or with `attn_implementation='sdpa'`."
        )
    from torch.nn.attention.varlen import varlen_attn

    if dropout:
        logger.warning_once(f"`{TORCH_VARLEN}` drops out no attention weights.")
    # The library counts the token itself.
    window = -1 if sliding_window is None else sliding_window - 1
    tokens = (states[0].transpose(0, 1) for states in (query, key, value))
    bounds, longest = (cu_seq_lens_q,) * 2, (max_length_q,) * 2
    return varlen_attn(*tokens, *bounds, *longest, scale=scaling, window_size=(window, window)).unsqueeze(0), None


AttentionInterface.register(TORCH_VARLEN, varlen_attention)


def scatter(values: torch.Tensor, indices: torch.LongTensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Puts `values` (n, ...) at `indices` (n,) of a zero tensor on their device, whose leading axes get `shape`."""
    flat = values.new_zeros(math.prod(shape), *values.shape[1:])
    return flat.index_copy(0, indices.to(values.device), values).unflatten(0, shape)


def unmask_empty_rows(mask: torch.BoolTensor) -> torch.BoolTensor:
    """Sets the first value of rows without any True, so that no softmax is over nothing."""
    unmasked = mask.clone()
    unmasked[:, 0] |= ~mask.any(-1)
    return unmasked


def read(*tensors: torch.Tensor) -> list[Any]:
    """
    Copies tensors of one device to the host, in one transfer. Returns an array of NumPy for each, with which the host
    computes faster; None for each while compiling.
    """
    if torch.compiler.is_compiling():
        return [None] * len(tensors)
    values = torch.cat([tensor.flatten() for tensor in tensors]).cpu().numpy()
    ends = accumulate(tensor.numel() for tensor in tensors)
    pairs = zip(tensors, ends, strict=True)
    return [values[end - tensor.numel() : end].reshape(tuple(tensor.shape)) for tensor, end in pairs]


def to_device(values: Any, device: torch.device, dtype: torch.dtype = torch.long) -> torch.Tensor:
    """Copies numbers to a device without waiting for it, from pinned memory where there is a GPU."""
    numbers = torch.as_tensor(values, dtype=dtype)
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def group_by_length(lengths: list[int], cost: float, most: float) -> list[list[int]]:
    """
    Groups posts with tokens, longest first. A group ends where its padding would cost more than another group, or
    where it would have more than `most` tokens.
    """
    groups: list[list[int]] = []
    longest = padding = 0
    for post in sorted((post for post, length in enumerate(lengths) if length), key=lengths.__getitem__, reverse=True):
        padding += longest - lengths[post]
        if not groups or padding > cost or (len(groups[-1]) + 1) * longest > most:
            groups.append([])
            longest, padding = lengths[post], 0
        groups[-1].append(post)
    return groups


class PostGroups:
    """
    The posts of a batch in groups of similar length. Each group is an ordinary padded batch.

    Args:
        mask (`torch.BoolTensor` of shape `(num_posts, num_tokens)`):
            True for real tokens. A post without any is padding, and in no group.
        host_mask (`numpy.ndarray`, *optional*):
            The same mask on the host, as [`read`] returns it. If None, while compiling, all posts are one group, so
            that shapes do not depend on values.
        as_one (`bool`, *optional*, defaults to `False`): If True, all posts with tokens are one group.

    Attributes:
        order: The indices of the posts that are in groups, one group after the other.
        members: The indices of the posts in each group.
        masks: What layers need to know of each group's tokens: True for the real ones (posts, width), where the width
            is the length of the group's longest post.
    """

    def __init__(self, mask: torch.BoolTensor, host_mask: Any, as_one: bool = False):
        self.mask, self.host_mask, self.as_one = mask, host_mask, as_one
        if host_mask is None:
            self.order = torch.arange(mask.shape[0], device=mask.device)
            self.members, self.widths, self.masks = [self.order], [mask.shape[1]], [unmask_empty_rows(mask)]
            return
        # The position after each post's last real token
        lengths = ((mask.shape[1] - host_mask[:, ::-1].argmax(-1)) * host_mask.any(-1)).tolist()
        limits = (CPU_COST, CPU_TOKENS) if mask.device.type == "cpu" else (GPU_COST, GPU_TOKENS)
        limits = (math.inf, math.inf) if as_one else limits
        # Without any post, a padding post, so that no layer gets an empty batch.
        groups = group_by_length(lengths, *limits) or [[0]]
        self.widths = [max(1, lengths[group[0]]) for group in groups]
        self.order = to_device([post for group in groups for post in group], mask.device)
        self.members = self.order.split([len(group) for group in groups])
        self.masks = self.split(mask if any(lengths) else torch.ones_like(mask))

    def select(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Returns for each group its posts' part (posts, ...) of `values` (num_posts, ...)."""
        return [values.index_select(0, members.to(values.device)) for members in self.members]

    def spread(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Returns for each group its posts' part of `values` (num_posts,), in a shape that broadcasts to tokens."""
        return [part.unsqueeze(1) for part in self.select(values)]

    def split(self, values: torch.Tensor, source: torch.LongTensor | None = None) -> list[torch.Tensor]:
        """
        Returns for each group its posts' part (posts, width, ...) of `values` (num_posts, num_tokens, ...), or the
        part of the posts that `source` (num_posts,) names.
        """
        members = self.members if source is None else self.select(source)
        pairs = zip(members, self.widths, strict=True)
        return [values[:, :width].index_select(0, posts.to(values.device)) for posts, width in pairs]

    def split_positions(self, encoder: PreTrainedModel, input_ids: torch.LongTensor | None) -> list[dict[str, Any]]:
        """Returns for each group the encoder's argument `position_ids`, if the encoder does not find them itself."""
        return [{} for _ in self.members]

    def first(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the state of each post's first token (posts, hidden) in each group."""
        return [group[:, 0] for group in states]

    def replace_first(self, states: list[torch.Tensor], vectors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns states with other `vectors` (posts, hidden) at each post's first token, in the states' dtype."""
        pairs = zip(states, vectors, strict=True)
        return [torch.cat((new.unsqueeze(1).to(group), group[:, 1:]), dim=1) for group, new in pairs]

    def mean(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the mean over each post's tokens (posts, hidden) in each group."""
        pairs = [(group, mask.unsqueeze(-1).to(group)) for group, mask in zip(states, self.masks, strict=True)]
        return [(group * tokens).sum(1) / tokens.sum(1) for group, tokens in pairs]

    def to_groups(self, states: list[torch.Tensor]) -> tuple["PostGroups", list[torch.Tensor]]:
        """Returns the posts in padded groups, and their states."""
        return self, states

    def join(self, parts: list[torch.Tensor]) -> torch.Tensor:
        """Joins a tensor (posts, ...) of each group to one (num_posts, ...), 0 for padding posts."""
        return scatter(torch.cat(parts), self.order, self.mask.shape[:1])

    def join_states(self, states: list[torch.Tensor]) -> torch.Tensor:
        """Joins hidden states (posts, width, hidden) of each group to (num_posts, num_tokens, hidden)."""
        return self.join([pad(part, (0, 0, 0, self.mask.shape[1] - part.shape[1])) for part in states])

    def join_attentions(self, attentions: list[torch.Tensor]) -> torch.Tensor:
        """Joins weights (posts, heads, width, width) of groups to (num_posts, heads, tokens, tokens), 0 at padding."""
        rest = [self.mask.shape[1] - part.shape[-1] for part in attentions]
        parts = [pad(part, (0, count, 0, count)) for part, count in zip(attentions, rest, strict=True)]
        return self.join(parts) * self.mask[:, None, :, None].to(parts[0].device)


@dataclass
class Packing:
    """Boundaries and places of the tokens of a packed sequence, which layers need."""

    attention: dict[str, Any]  # the arguments of attention, by the library's names: where each post begins and ends
    places: torch.LongTensor  # the place of each token in its post (1, tokens)


class PackedPosts(PostGroups):
    """
    The posts of a batch without padding, for attention that takes boundaries. The one group is a sequence (1, tokens,
    ...) of the real tokens of all posts; `masks` has its [`Packing`]. Arguments and attributes as in [`PostGroups`].
    """

    def __init__(self, mask: torch.BoolTensor, host_mask: Any, as_one: bool = False):
        self.mask, self.host_mask, self.as_one = mask, host_mask, as_one
        if not host_mask.any():
            # A token of padding, so that no layer gets an empty batch.
            host_mask = host_mask.copy()
            host_mask[0, 0] = 1
        (rows, places), counts = host_mask.nonzero(), (host_mask != 0).sum(-1)
        (posts,) = counts.nonzero()
        ends, longest = counts[posts].cumsum(), int(counts.max())
        numbers = (rows, rows * mask.shape[1] + places, posts, ends - counts[posts], places)
        self.rows, self.flat, self.order, self.starts, places = (to_device(values, mask.device) for values in numbers)
        self.members = [self.order]
        bounds = to_device([0, *ends.tolist()], mask.device, torch.int32)
        attention = {"attention_mask": None, "cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
        self.masks = [Packing({**attention, "max_length_q": longest, "max_length_k": longest}, places.unsqueeze(0))]

    def spread(self, values: torch.Tensor) -> list[torch.Tensor]:
        return [values.index_select(0, self.rows.to(values.device)).unsqueeze(0)]

    def split(self, values: torch.Tensor, source: torch.LongTensor | None = None) -> list[torch.Tensor]:
        flat = self.flat if source is None else self.flat + (source[self.rows] - self.rows) * self.mask.shape[1]
        return [values.flatten(0, 1).index_select(0, flat.to(values.device)).unsqueeze(0)]

    def split_positions(self, encoder: PreTrainedModel, input_ids: torch.LongTensor | None) -> list[dict[str, Any]]:
        start = first_position(encoder)
        if not start or input_ids is None:
            return [{"position_ids": self.masks[0].places + start}]
        # Such families count the tokens that are not the padding's, whose own position is the one before.
        counted = input_ids != start - 1
        return [{"position_ids": self.split(counted.cumsum(1) * counted + (start - 1))[0]}]

    def first(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        return [group[0].index_select(0, self.starts.to(group.device)) for group in states]

    def replace_first(self, states: list[torch.Tensor], vectors: list[torch.Tensor]) -> list[torch.Tensor]:
        pairs = zip(states, vectors, strict=True)
        return [group.index_copy(1, self.starts.to(group.device), new.unsqueeze(0).to(group)) for group, new in pairs]

    def mean(self, states: list[torch.Tensor]) -> list[torch.Tensor]:
        tokens = [torch.arange(group.shape[1], device=group.device) for group in states]
        pairs = zip(tokens, states, strict=True)
        return [embedding_bag(all_of, group[0], self.starts.to(group.device), mode="mean") for all_of, group in pairs]

    def to_groups(self, states: list[torch.Tensor]) -> tuple[PostGroups, list[torch.Tensor]]:
        groups = PostGroups(self.mask, self.host_mask, self.as_one)
        numbers = scatter(torch.arange(len(self.flat), device=self.flat.device), self.flat, self.mask.shape)
        return groups, [embedding(chosen.to(states[0].device), states[0][0]) for chosen in groups.split(numbers)]

    def join_states(self, states: list[torch.Tensor]) -> torch.Tensor:
        return scatter(states[0][0], self.flat, self.mask.shape)


def arrangement(encoder: PreTrainedModel) -> type[PostGroups]:
    """
    Returns how an encoder reads posts: packed if its attention is flash or `TORCH_VARLEN`, in padded groups with any
    other attention and while compiling. Raises a `ValueError` if the family does not have such attention.
    """
    config = encoder.config
    takes_bounds = config._attn_implementation == TORCH_VARLEN or is_flash_attention_requested(config)
    if takes_bounds and not encoder._supports_flash_attn:
        raise ValueError(
            f"Encoders of type '{config.model_type}' do not have "
            f"`attn_implementation='{config._attn_implementation}'`: choose 'sdpa' or 'eager'."
        )
    return PackedPosts if takes_bounds and not torch.compiler.is_compiling() else PostGroups
