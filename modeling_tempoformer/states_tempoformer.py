"""The state of each post (a mood, a stance, a score), and the change that follows from two of them."""

import torch

from .configuration_post_tempoformer import PostTempoFormerConfig
from .experts_tempoformer import LEAST_PROBABILITY, FittedModule


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
