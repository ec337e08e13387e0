"""
The post model's experts beside the network: trees, which read a post, the post before it and its position in the
timeline, and words, which a frozen encoder's vector forgets in part. Where labels follow the position, or are few,
both learn more than a network does.
"""

from collections.abc import Callable

import torch
from torch import nn

from .configuration_post_tempoformer import ADDRESS_SIZE, PostTempoFormerConfig


COMPONENTS = 48
# The number of splits from root to leaf of all trees, in the order of a heap: the children of i are 2i + 1, 2i + 2.
DEPTH = 6
NUM_SPLITS, NUM_LEAVES = 2**DEPTH - 1, 2**DEPTH
# Splits are soft: next to a threshold a post goes partly both ways, so that rounding errors stay small in the output.
SHARPNESS = 300.0
LEAST_PROBABILITY = 1e-3
# Odd multipliers of a token and of the one before it: their sum, modulo 2^32, is scaled to the number of buckets
# (multiply-shift hashing; Dietzfelbinger et al., 1997).
MULTIPLIERS, HASHES = (2_654_435_761, 2_246_822_519), 2**32
# The most tokens of the name of the one to whom a post is addressed, after the token that begins the post
LONGEST_NAME = 8


class FittedModule(nn.Module):
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


class Mixture(FittedModule):
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
        Returns the mixed logits (batch_size, num_streams, classes) of the `experts` (batch_size, num_streams, experts,
        classes), for rows from which the member `held_out` (batch_size,) has not learned.
        """
        weights = self.weights if held_out is None else self.held_out[held_out.to(self.weights.device), None]
        return (experts * weights.to(experts.device).unsqueeze(-1)).sum(-2)


class Trees(FittedModule):
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


class Words(FittedModule):
    """
    Predicts the class of a post from its tokens and pairs of neighbouring tokens, hashed to `config.num_words` buckets
    (Weinberger et al., 2009), by one logistic regression for each member of the ensemble, and reads to whom a post is
    addressed: the name with which it begins, as in "ann: yes" and "ann, yes". A script fits them ([`fit_words`]).

    Buffers: `weight` (buckets, members * classes), `bias` (members * classes,), and `marks` (2,), the ids of the
    tokens that end a name, -1 for none.
    """

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        self.add_zeros("weight", config.num_words, config.num_members * config.num_labels)
        self.add_zeros("bias", config.num_members * config.num_labels)
        self.register_buffer("marks", torch.full((2,), -1))

    def find(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor
    ) -> tuple[torch.LongTensor, torch.FloatTensor]:
        """
        Returns the buckets of the tokens and pairs of tokens of posts, (posts, 2 * tokens), and the share of each,
        1 divided by the square root of their number, 0 at padding. `input_ids` and `attention_mask` are (posts,
        tokens).
        """
        first, second = MULTIPLIERS
        is_token = attention_mask.bool()
        before, is_before = (nn.functional.pad(values, (1, 0))[:, :-1] for values in (input_ids, is_token))
        # A token alone has no other, number 0, before it.
        hashes = torch.cat((first * input_ids, first * input_ids + second * (before + 1)), dim=1)
        is_there = torch.cat((is_token, is_token & is_before), dim=1)
        shares = is_there / is_there.sum(1, keepdim=True).clamp_min(1).sqrt()
        return hashes % HASHES * len(self.weight) // HASHES, shares

    def addressees(self, input_ids: torch.LongTensor, attention_mask: torch.Tensor) -> torch.FloatTensor:
        """
        Returns a code of -1 and 1 of the name with which each post begins (posts, 16); 0 for a post without one. Equal
        names have equal codes, and so has one pair of other names in 65,536. `input_ids` and `attention_mask` are
        (posts, tokens), padded on the right.
        """
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        is_mark = (
            (input_ids.unsqueeze(-1) == self.marks).any(-1) & attention_mask.bool() & (places <= LONGEST_NAME + 1)
        )
        is_before = is_mark.cumsum(1) == 0
        # The first token only begins the post.
        has_name = is_mark.any(1, keepdim=True) & (is_before.sum(1, keepdim=True) >= 2)
        # A token counts by the upper bits of its hash, and each place by another odd multiplier.
        tokens, places = MULTIPLIERS[0] * input_ids % HASHES // 2**16, MULTIPLIERS[1] * (2 * places + 1) % HASHES
        hashes = (tokens * places * (is_before & has_name)).sum(1, keepdim=True) % HASHES
        # The upper bits depend on all bits of the factors, the lower ones on few.
        bits = 2 ** torch.arange(32 - ADDRESS_SIZE, 32, device=input_ids.device)
        return (hashes // bits % 2 * 2 - 1) * has_name.float()

    def forward(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor, **kwargs: torch.Tensor
    ) -> torch.Tensor:
        """
        Returns the logits of posts by each member, side by side, and the code of their addressees (posts, members *
        classes + 16); 0 for a post without real tokens. `input_ids` and `attention_mask` are (posts, tokens); other
        outputs of a tokenizer are not read.
        """
        input_ids, attention_mask = input_ids.to(self.bias.device), attention_mask.to(self.bias.device)
        buckets, shares = self.find(input_ids, attention_mask)
        logits = (self.weight[buckets] * shares.unsqueeze(-1)).sum(1) + self.bias
        logits = logits * shares.amax(1, keepdim=True).gt(0)
        return torch.cat((logits, self.addressees(input_ids, attention_mask)), dim=-1)


def compare_addressees(
    codes: torch.Tensor, slot_post: torch.LongTensor, slot_mask: torch.BoolTensor
) -> torch.FloatTensor:
    """
    Returns four 0/1 features of each stream (streams, 4): the newest post names an addressee; the post before it does;
    both name the same one; an earlier post names the newest post's addressee. `codes` (posts, 16) stand for the
    addressees of posts; `slot_post` (streams, window) says which post is in each slot, `slot_mask` whether one is.
    """
    # Padded on the left, since a window of one post has no slot before the newest.
    codes = nn.functional.pad(codes[slot_post] * slot_mask.unsqueeze(-1), (0, 0, 1, 0))
    is_addressed = (codes != 0).any(-1)
    is_same = (codes[:, :-1] * codes[:, -1:]).sum(-1) > ADDRESS_SIZE - 0.5
    found = is_addressed[:, -1], is_addressed[:, -2], is_same[:, -1], is_same.any(1)
    return torch.stack(found, dim=-1).float()
