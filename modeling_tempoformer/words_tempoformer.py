"""The words of a post, which a frozen encoder's vector forgets in part: an expert of the post model."""

import torch
from torch import nn

from .configuration_post_tempoformer import ADDRESS_SIZE, PostTempoFormerConfig
from .trees_tempoformer import Grown


# Odd multipliers of a token and of the one before it: their sum, modulo 2^32, is scaled to the number of buckets
# (multiply-shift hashing; Dietzfelbinger et al., 1997).
MULTIPLIERS, HASHES = (2_654_435_761, 2_246_822_519), 2**32
# The most tokens of the name of the one to whom a post is addressed, after the token that begins the post
LONGEST_NAME = 8


class Words(Grown):
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
    Returns 1 where it is so and else 0 (streams, 4): the newest post of a stream is addressed to somebody, the post
    before it is, both to the same, the newest to somebody to whom an earlier one is. `codes` (posts, 16) are those of
    [`Words.addressees`]; `slot_post` and `slot_mask` are (streams, window).
    """
    # Padded on the left, since a window of one post has no slot before the newest.
    codes = nn.functional.pad(codes[slot_post] * slot_mask.unsqueeze(-1), (0, 0, 1, 0))
    is_addressed = (codes != 0).any(-1)
    is_same = (codes[:, :-1] * codes[:, -1:]).sum(-1) > ADDRESS_SIZE - 0.5
    found = is_addressed[:, -1], is_addressed[:, -2], is_same[:, -1], is_same.any(1)
    return torch.stack(found, dim=-1).float()
