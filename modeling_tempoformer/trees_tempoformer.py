"""
The post model's second expert: trees that read a post, the post before it, and its position in the timeline. Where
labels follow the position, or are few, trees learn more than a network does.
"""

from collections.abc import Callable

import torch
from torch import nn

from .configuration_post_tempoformer import PostTempoFormerConfig


COMPONENTS = 48
# The number of splits from root to leaf of all trees, in the order of a heap: the children of i are 2i + 1, 2i + 2.
DEPTH = 6
NUM_SPLITS, NUM_LEAVES = 2**DEPTH - 1, 2**DEPTH
# Splits are soft: next to a threshold a post goes partly both ways, so that rounding errors stay small in the output.
SHARPNESS = 300.0
LEAST_PROBABILITY = 1e-3


class Grown(nn.Module):
    """
    A part that a script fits over a frozen encoder. Its buffers stay in float32 whatever the model's dtype: rounded to
    16 bits, a threshold could pass posts.
    """

    def add_zeros(self, name: str, *shape: int):
        """Adds a buffer of zeros."""
        self.register_buffer(name, torch.zeros(shape, dtype=torch.float32))

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True):
        """Moves the buffers for `to`, `half` and all others, but keeps their dtype."""

        def keep_dtype(values: torch.Tensor) -> torch.Tensor:
            changed = fn(values)
            return changed if changed.dtype == values.dtype else values.to(changed.device)

        return super()._apply(keep_dtype, recurse)


class Mixture(Grown):
    """
    Returns the weighted sum of the experts' logits. Until the other experts are fitted, only the network has a weight.

    Buffers: `weights` (experts,), and `held_out` (members, experts), the weights for the posts of a member's held-out
    fold, chosen on the held-out folds of the other members.
    """

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        self.add_zeros("weights", len(config.experts))
        self.add_zeros("held_out", config.num_members, len(config.experts))
        self.reset()

    def reset(self):
        """Gives the network the weight 1 and all others 0."""
        for weights in (self.weights, self.held_out):
            weights.zero_()
            weights[..., 0] = 1

    def reads_network(self) -> bool:
        """
        Whether the network, the first expert, has a weight. On another device than a CPU, and while compiling, it
        counts as having one, as values are not looked at there.
        """
        is_readable = self.weights.device.type == "cpu" and not torch.compiler.is_compiling()
        return not is_readable or bool(self.weights.numpy()[0])

    def forward(self, experts: torch.Tensor, held_out: torch.LongTensor | None = None) -> torch.Tensor:
        """
        Returns the logits (batch_size, num_streams, classes) from those of the `experts` (batch_size, num_streams,
        experts, classes), for rows from which the member `held_out` (batch_size,) has not learned.
        """
        weights = self.weights if held_out is None else self.held_out[held_out.to(self.weights.device), None]
        return (experts * weights.to(experts.device).unsqueeze(-1)).sum(-2)


class Trees(Grown):
    """
    Extremely randomised trees (Geurts et al., 2006) of each member. A script grows them ([`grow_trees`]).

    Buffers: `mean` (hidden,) and `components` (48, hidden) of the posts' vectors; `center` and `scale` (features,);
    `feature` and `threshold` (members, trees, splits); `leaves` (members, trees, leaves, classes), probabilities.
    """

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        hidden, shape = config.encoder_config.hidden_size, (config.num_members, config.num_trees)
        # `read` puts them together: components of the newest post and of each compared one, a difference and a cosine
        # for each compared one, the cosine with all earlier posts, with words four numbers of addressees, three of
        # position and time, and changes. With known states, the levels of a person follow.
        compared = config.num_compared
        features = (1 + 2 * compared) * COMPONENTS + compared + 4 + (4 if config.num_words else 0)
        features += (config.num_labels if config.states else 0) + config.num_levels
        self.add_zeros("mean", hidden)
        self.add_zeros("components", COMPONENTS, hidden)
        self.add_zeros("center", features)
        self.register_buffer("scale", torch.ones(features, dtype=torch.float32))
        self.register_buffer("feature", torch.zeros(*shape, NUM_SPLITS, dtype=torch.long))
        self.add_zeros("threshold", *shape, NUM_SPLITS)
        self.add_zeros("leaves", *shape, NUM_LEAVES, config.num_labels)
        self.leaves.fill_(1 / config.num_labels)

    def read(
        self,
        posts: torch.Tensor,
        cosines: torch.Tensor,
        addressed: torch.Tensor,
        position_and_gap: torch.Tensor,
        changes: torch.Tensor | None = None,
        levels: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Returns the features of streams (..., features), each with the mean 0 and the standard deviation 1: principal
        components of the newest post, of each post that it is compared with (0 if there is none) and of their
        differences, from `posts` (..., compared + 1, hidden), the newest last; `cosines` (..., compared + 1) of the
        newest post with its history; `addressed` (..., 4), to whom posts are addressed, (..., 0) for a model without
        words; the logarithms of `position_and_gap` (..., 3): how many posts came before, and
        the seconds since the first and the last of them. If the model has states, the `changes` (..., classes) of
        [`States.changes`] follow as they are, and if it reads known states the `levels` of [`States.levels`].
        """
        given = posts, cosines, addressed, position_and_gap
        posts, cosines, addressed, position_and_gap = (values.to(self.mean) for values in given)
        is_post = (posts[..., :-1, :] != 0).any(-1, keepdim=True)
        components = (posts - self.mean) @ self.components.T
        newest, compared = components[..., -1:, :], components[..., :-1, :] * is_post
        steps = (newest - compared) * is_post
        parts = [part.flatten(-2) for part in (newest, compared, steps)]
        parts += [cosines, addressed, position_and_gap.log1p()]
        parts += [part.to(self.mean) for part in (changes, levels) if part is not None]
        return (torch.cat(parts, dim=-1) - self.center) / self.scale

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Returns each member's log-probabilities (members, ..., classes) for the features that `read` returns."""
        # The streams come last, so that they lie side by side in memory.
        columns = features.flatten(0, -2).mT
        right = ((columns[self.feature] - self.threshold.unsqueeze(-1)) * SHARPNESS).sigmoid()
        # From the leaves to the root, each split mixes its two sides.
        values = self.leaves.movedim(-1, 0).unsqueeze(-1)
        for level in reversed(range(DEPTH)):
            split = right[:, :, 2**level - 1 : 2 ** (level + 1) - 1]
            values = torch.lerp(values[..., 0::2, :], values[..., 1::2, :], split)
        probabilities = values.squeeze(-2).mean(-2).movedim(0, -1)
        return probabilities.clamp_min(LEAST_PROBABILITY).log().unflatten(1, features.shape[:-1])
