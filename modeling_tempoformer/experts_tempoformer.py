"""
The post model's experts beside the network: trees, which read a post, the post before it and its position in the
timeline; words, which a frozen encoder's vector forgets in part; and states (a mood, a stance, a score), two of which
are a change or none. Where labels follow the position, or are few, the first two learn more than a network does.
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
        True if the network, the first expert, has a weight. On another device than a CPU, and while compiling, it
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


class States(FittedModule):
    """
    Predicts the state of a post from its vector, by one logistic regression for each member of the ensemble. A script
    fits them ([`fit_states`]).

    Buffers: `center` (hidden,) of the posts' vectors; `weight` (members, hidden, states) and `bias` (members, states);
    `held_out_change` (members, states + 1, states, classes), the probability of each class for a pair of states, the
    earlier post's (the last one stands for no earlier post) and the newest post's, counted on the posts from which a
    member learns; `change`, the mean of the members; `class_weights` (classes,) of the loss.
    """

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        states, self.state_values = len(config.states), config.state_values
        self.add_zeros("center", config.encoder_config.hidden_size)
        self.add_zeros("weight", config.num_members, config.encoder_config.hidden_size, states)
        self.add_zeros("bias", config.num_members, states)
        self.add_zeros("held_out_change", config.num_members, states + 1, states, config.num_labels)
        self.add_zeros("change", states + 1, states, config.num_labels)
        self.add_zeros("class_weights", config.num_labels)
        self.held_out_change.fill_(1 / config.num_labels)
        self.change.fill_(1 / config.num_labels)
        self.class_weights.fill_(1)

    def forward(self, vectors: torch.Tensor, held_out: torch.LongTensor | None = None) -> torch.Tensor:
        """
        Returns the probabilities of the states (batch_size, ..., states) of posts, from their vectors (batch_size,
        ..., hidden): the members' mean, or the answer of the member that has not learned from a row (`held_out`).
        """
        rows = (vectors.to(self.center) - self.center).flatten(0, -2).expand(len(self.weight), -1, -1)
        logits = torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight)
        members = logits.softmax(-1).unflatten(1, vectors.shape[:-1])
        if held_out is None:
            return members.mean(0)
        return members[held_out.to(members.device), torch.arange(len(held_out), device=members.device)]

    def tables(self, held_out: torch.LongTensor | None = None) -> torch.Tensor:
        """
        Returns the probabilities of the classes (states + 1, states, classes), or with `held_out` (batch_size,) for
        each row by the member that has not learned from it (batch_size, states + 1, states, classes).
        """
        return self.change if held_out is None else self.held_out_change[held_out.to(self.change.device)]

    def changes(self, states: torch.Tensor, has_previous: torch.BoolTensor, tables: torch.Tensor) -> torch.Tensor:
        """
        Returns the log-probability of each class (batch_size, num_streams, classes), plus the logarithm of its weight
        in the loss. The states of the newest post and of the one it is compared with, `states` (batch_size,
        num_streams, 2, states), count as independent, and the sum is over all pairs. `has_previous` (batch_size,
        num_streams) is where there is such a post, and `tables` come from [`States.tables`].
        """
        previous, newest = states.unbind(-2)
        known = has_previous.to(states).unsqueeze(-1)
        previous = torch.cat((previous * known, 1 - known), dim=-1)
        both = (previous.unsqueeze(-1) * newest.unsqueeze(-2)).flatten(-2)
        probabilities = both @ tables.flatten(-3, -2)
        return probabilities.clamp_min(LEAST_PROBABILITY).log() + self.class_weights.log()

    def with_known(self, states: torch.Tensor, earlier_states: torch.Tensor | None) -> torch.Tensor:
        """
        Returns the states of the newest post and of the one it is compared with (..., 2, states), the latter as it is
        known by `earlier_states` (..., 3, states) where it is.
        """
        if earlier_states is None:
            return states
        given = earlier_states[..., 0, :].to(states)
        previous = given.where(given.any(-1, keepdim=True), states[..., 0, :])
        return torch.stack((previous, states[..., 1, :]), dim=-2)

    def levels(self, states: torch.Tensor, earlier_states: torch.Tensor) -> torch.Tensor:
        """
        Returns what trees read of a person's own level (..., `config.num_levels`): whether the previous state is
        known, and the logarithm of how many are; for classes the newest state, the previous and the last known one,
        and the share of each among those that are known; for numbers the newest, the previous, the last known one, the
        mean and the standard deviation of those that are known, and the differences of the newest from the previous
        and the last one and from the mean. Where none is known, the previous state as the model reads it stands for
        the last one and the mean.

        Args:
            states (`torch.Tensor` of shape `(..., 2, states)`): As [`with_known`] returns them.
            earlier_states (`torch.Tensor` of shape `(..., 3, states)`): As [`states_before`] returns them.
        """
        previous, newest = states.unbind(-2)
        given, last, counts = earlier_states.to(states).unbind(-2)
        number = counts.sum(-1, keepdim=True)
        is_known = number > 0
        last = last.where(is_known, previous)
        shares = (counts / number.clamp_min(1)).where(is_known, previous)
        parts = [given.sum(-1, keepdim=True), number.log1p()]
        if self.state_values is None:
            return torch.cat([*parts, newest, previous, last, shares], dim=-1)
        values = torch.tensor(self.state_values, dtype=torch.float32, device=states.device)
        newest, previous, last, mean = ((part @ values).unsqueeze(-1) for part in (newest, previous, last, shares))
        spread = (shares * (values - mean).square()).sum(-1, keepdim=True).sqrt() * is_known
        steps = [newest - earlier for earlier in (previous, last, mean)]
        return torch.cat([*parts, newest, previous, last, mean, spread, *steps], dim=-1)
