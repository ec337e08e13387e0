"""Groups posts of similar length. Each group is an ordinary padded batch."""

import math

import torch
from torch.nn.functional import pad


# The cost of one more group, in tokens of padding: on a CPU it reads the weights again, elsewhere it starts kernels.
CPU_COST, GPU_COST = 64, 4096


def scatter(values: torch.Tensor, indices: torch.LongTensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Puts `values` (n, ...) at `indices` (n,) of a zero tensor on their device, whose leading axes get `shape`."""
    flat = values.new_zeros(math.prod(shape), *values.shape[1:])
    return flat.index_copy(0, indices.to(values.device), values).unflatten(0, shape)


def unmask_empty_rows(mask: torch.BoolTensor) -> torch.BoolTensor:
    """Sets the first value of rows without any True, so that no softmax is over nothing."""
    unmasked = mask.clone()
    unmasked[:, 0] |= ~mask.any(-1)
    return unmasked


def read(*tensors: torch.Tensor) -> list[list | None]:
    """Returns the values of tensors on one device, in one transfer; None for each while compiling."""
    if torch.compiler.is_compiling():
        return [None] * len(tensors)
    values = iter(torch.cat([tensor.flatten() for tensor in tensors]).tolist())
    return [[next(values) for _ in range(tensor.numel())] for tensor in tensors]


def to_device(values: list[int], device: torch.device) -> torch.LongTensor:
    """Copies numbers to a device without waiting for it, from pinned memory where there is a GPU."""
    numbers = torch.tensor(values)
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def group_by_length(lengths: list[int], cost: float) -> list[list[int]]:
    """Groups posts with tokens, longest first. A group ends where its padding would cost more than another group."""
    groups: list[list[int]] = []
    longest = padding = 0
    for post in sorted((post for post, length in enumerate(lengths) if length), key=lengths.__getitem__, reverse=True):
        padding += longest - lengths[post]
        if not groups or padding > cost:
            groups.append([])
            longest, padding = lengths[post], 0
        groups[-1].append(post)
    return groups


class PostGroups:
    """
    The posts of a batch in groups of similar length.

    Args:
        mask (`torch.BoolTensor` of shape `(num_posts, num_tokens)`):
            True for real tokens. A post without any is padding, and in no group.
        lengths (`list[int]`, *optional*):
            The position after the last real token of each post. If omitted, while compiling, all posts are one group,
            so that shapes do not depend on values.
        as_one (`bool`, *optional*, defaults to `False`): If True, all posts with tokens are one group.

    Attributes:
        order: The indices of the posts that are in groups, one group after the other.
        members: The indices of the posts in each group.
        widths: The number of tokens of each group's longest post.
        masks: True for the real tokens of each group (posts, width).
    """

    def __init__(self, mask: torch.BoolTensor, lengths: list[int] | None, as_one: bool = False):
        self.mask, self.lengths, self.as_one = mask, lengths, as_one
        if lengths is None:
            self.order = torch.arange(mask.shape[0], device=mask.device)
            self.members, self.widths, self.masks = [self.order], [mask.shape[1]], [unmask_empty_rows(mask)]
            return
        cost = math.inf if as_one else CPU_COST if mask.device.type == "cpu" else GPU_COST
        # Without any post, a padding post, so that no layer gets an empty batch.
        groups = group_by_length(lengths, cost) or [[0]]
        self.widths = [max(1, lengths[group[0]]) for group in groups]
        self.order = to_device([post for group in groups for post in group], mask.device)
        self.members = self.order.split([len(group) for group in groups])
        self.masks = self.split(mask if any(lengths) else torch.ones_like(mask))

    def select(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Returns for each group its posts' part (posts, ...) of `values` (num_posts, ...)."""
        return [values.index_select(0, members.to(values.device)) for members in self.members]

    def split(self, values: torch.Tensor, source: torch.LongTensor | None = None) -> list[torch.Tensor]:
        """
        Returns for each group its posts' part (posts, width, ...) of `values` (num_posts, num_tokens, ...), or the
        part of the posts that `source` (num_posts,) names.
        """
        members = self.members if source is None else self.select(source)
        pairs = zip(members, self.widths, strict=True)
        return [values[:, :width].index_select(0, posts.to(values.device)) for posts, width in pairs]

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
