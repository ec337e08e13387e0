"""The words of a post, which a frozen encoder's vector forgets in part: an expert of the post model."""

import torch

from .configuration_post_tempoformer import PostTempoFormerConfig
from .trees_tempoformer import Grown


# Odd multipliers of a token and of the one before it: their sum, modulo 2^32, is scaled to the number of buckets
# (multiply-shift hashing; Dietzfelbinger et al., 1997).
MULTIPLIERS, HASHES = (2_654_435_761, 2_246_822_519), 2**32


class Words(Grown):
    """
    Predicts the class of a post from its tokens and pairs of neighbouring tokens, hashed to `config.num_words` buckets
    (Weinberger et al., 2009), by one logistic regression for each member of the ensemble. A script fits them
    ([`fit_words`]).

    Buffers: `weight` (buckets, members * classes) and `bias` (members * classes,).
    """

    def __init__(self, config: PostTempoFormerConfig):
        super().__init__()
        self.add_zeros("weight", config.num_words, config.num_members * config.num_labels)
        self.add_zeros("bias", config.num_members * config.num_labels)

    def find(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor
    ) -> tuple[torch.LongTensor, torch.FloatTensor]:
        """
        Returns the buckets of the tokens and pairs of tokens of posts, (posts, 2 * tokens - 1), and the share of each,
        1 divided by the square root of their number, 0 at padding. `input_ids` and `attention_mask` are (posts,
        tokens).
        """
        first, second = MULTIPLIERS
        is_token = attention_mask.bool()
        # A token alone has no other, number 0, before it.
        hashes = torch.cat((first * input_ids, first * input_ids[:, 1:] + second * (input_ids[:, :-1] + 1)), dim=1)
        is_there = torch.cat((is_token, is_token[:, 1:] & is_token[:, :-1]), dim=1)
        shares = is_there / is_there.sum(1, keepdim=True).clamp_min(1).sqrt()
        return hashes % HASHES * len(self.weight) // HASHES, shares

    def forward(
        self, input_ids: torch.LongTensor, attention_mask: torch.Tensor, **kwargs: torch.Tensor
    ) -> torch.Tensor:
        """
        Returns the logits of posts by each member, side by side (posts, members * classes); 0 for a post without real
        tokens. `input_ids` and `attention_mask` are (posts, tokens); other outputs of a tokenizer are not read.
        """
        buckets, shares = self.find(input_ids.to(self.bias.device), attention_mask.to(self.bias.device))
        logits = (self.weight[buckets] * shares.unsqueeze(-1)).sum(1) + self.bias
        return logits * shares.amax(1, keepdim=True).gt(0)
