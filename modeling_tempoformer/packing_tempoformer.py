"""Computing without padding: only real posts, grouped by length. While compiling, tensors keep their full shape."""

import math

import torch
from torch import nn


# The longest post of each group, in steps of an eighth to a quarter of the length, so that groups have little padding.
LENGTH_STEPS = (*range(4, 32, 4), *range(32, 64, 8), *range(64, 128, 16), *range(128, 256, 32), *range(256, 512, 64))
# Below this many posts use steps of 16 tokens: every extra group reads all weights again.
FEW_POSTS = 32


def select(mask: torch.BoolTensor) -> torch.LongTensor:
    """
    Indices of the True values of a 1-d mask. Without any, the first index, so that no layer gets an empty batch; while
    compiling, all indices, so that shapes stay static.
    """
    if torch.compiler.is_compiling():
        return torch.arange(mask.numel(), device=mask.device)
    indices = mask.nonzero().squeeze(-1)
    return indices if len(indices) else indices.new_zeros(1)


def scatter(values: torch.Tensor, indices: torch.LongTensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Puts `values` (n, ...) at `indices` (n,) of a zero tensor on their device, whose leading axes get `shape`."""
    flat = values.new_zeros(math.prod(shape), *values.shape[1:])
    return flat.index_copy(0, indices.to(values.device), values).unflatten(0, shape)


def unmask_empty_rows(mask: torch.BoolTensor) -> torch.BoolTensor:
    """Sets the first value of rows without any True, so that no softmax is over nothing."""
    unmasked = mask.clone()
    unmasked[:, 0] |= ~mask.any(-1)
    return unmasked


def split_by_group(group: torch.LongTensor, num_groups: int) -> tuple[torch.LongTensor, ...]:
    """The indices of the elements of each group, in order; `group` (n,) is the group of each element."""
    if num_groups == 1:
        return (torch.arange(group.shape[0], device=group.device),)
    counts = group.bincount(minlength=num_groups).tolist()
    return group.argsort(stable=True).split(counts)


class PostGroups:
    """
    The real posts of a batch, in groups of similar length.

    Args:
        mask (`torch.BoolTensor` of shape `(num_posts, num_tokens)`):
            True for real tokens. A post without real tokens is absent.
        time_ids (`torch.LongTensor` of shape `(num_posts, num_tokens)`, *optional*): Calendar time of the tokens.

    Attributes, each with one value for each group, but for `index`:
        members: The indices of its posts.
        widths: The length of its longest post.
        tokens: Its part of `mask`.
        times: Its part of `time_ids`, or None.
        index: The indices of all posts, group by group.
    """

    def __init__(self, mask: torch.BoolTensor, time_ids: torch.LongTensor | None = None):
        self.mask = mask
        posts = select(mask.any(-1))
        if torch.compiler.is_compiling():
            self.members, self.widths = [posts], [mask.shape[-1]]
        else:
            lengths = (mask[posts] * torch.arange(1, mask.shape[-1] + 1, device=mask.device)).amax(-1).clamp_min(1)
            steps = range(16, 512, 16) if len(posts) < FEW_POSTS else LENGTH_STEPS
            step = torch.bucketize(lengths, torch.tensor(steps, device=mask.device))
            parts = [part for part in split_by_group(step, len(steps) + 1) if len(part)]
            self.members = [posts[part] for part in parts]
            self.widths = torch.stack([lengths[part].amax() for part in parts]).tolist()
        self.index = torch.cat(self.members)
        self.tokens = [unmask_empty_rows(part) for part in self.cut(mask)]
        self.times = [None] * len(self.members) if time_ids is None else self.cut(time_ids)

    def cut(self, values: torch.Tensor) -> list[torch.Tensor]:
        """Each group's part of `values` (num_posts, num_tokens, ...)."""
        return [values[members, :width] for members, width in zip(self.members, self.widths, strict=True)]

    def join(self, values: list[torch.Tensor]) -> torch.Tensor:
        """Joins values of the groups (posts, ...) to one tensor (num_posts, ...), 0 for absent posts."""
        return scatter(torch.cat(values), self.index, self.mask.shape[:1])

    def join_states(self, states: list[torch.Tensor]) -> torch.Tensor:
        """Joins hidden states of the groups to one tensor (num_posts, num_tokens, hidden), 0 at padding."""
        missing = [self.mask.shape[-1] - width for width in self.widths]
        padded = [nn.functional.pad(part, (0, 0, 0, rest)) for part, rest in zip(states, missing, strict=True)]
        return self.join(padded) * self.mask.unsqueeze(-1).to(states[0].device)

    def join_attentions(self, attentions: list[torch.Tensor]) -> torch.Tensor:
        """Joins attention weights of the groups to (num_posts, heads, num_tokens, num_tokens), 0 at padding."""
        missing = [self.mask.shape[-1] - width for width in self.widths]
        padded = [nn.functional.pad(part, (0, rest, 0, rest)) for part, rest in zip(attentions, missing, strict=True)]
        return self.join(padded) * self.mask.any(-1)[:, None, None, None].to(attentions[0].device)

    def locate(self, posts: torch.LongTensor) -> list[tuple[torch.LongTensor, torch.LongTensor]]:
        """For each group: the indices in `posts` (n,) of the posts that it has, and their rows in the group."""
        group, row = self.mask.new_zeros(2, self.mask.shape[0], dtype=torch.long)
        for number, members in enumerate(self.members):
            group[members] = number
            row[members] = torch.arange(members.shape[0], device=members.device)
        return [(found, row[posts[found]]) for found in split_by_group(group[posts], len(self.members))]
