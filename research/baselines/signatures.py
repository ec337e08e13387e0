"""Computes log-signatures of paths, with gradients (Chen, 1957; Chevyrev and Kormilitzin, 2016)."""

from functools import lru_cache
from itertools import product

import torch
from torch.nn.functional import pad


DEPTH = 3


@lru_cache
def lyndon_words(channels: int, length: int) -> tuple[int, ...]:
    """Returns the positions of the Lyndon words among all words of `length` letters in alphabetical order."""
    words = enumerate(product(range(channels), repeat=length))
    return tuple(position for position, word in words if all(word < word[start:] for start in range(1, length)))


def log_signature_size(channels: int) -> int:
    """Returns the width of a log-signature."""
    return sum(len(lyndon_words(channels, length)) for length in range(1, DEPTH + 1))


def outer(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Returns the tensor product over the first axis."""
    return (left.unsqueeze(1) * right).flatten(0, 1)


def choose(words: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    return words.index_select(0, positions)


def until_before(signatures: torch.Tensor) -> torch.Tensor:
    """Returns the signatures shifted by one point: each up to the previous point."""
    return pad(signatures[..., :-1], (1, 0))


def log_signatures(paths: torch.Tensor) -> torch.Tensor:
    """
    Returns log-signatures (paths, length, size) of depth 3 of `paths` (paths, length, channels) over expanding
    windows. Row t belongs to the piecewise linear path through the points 0 to t, and row 0 is 0. The values are the
    coefficients of the Lyndon words in the logarithm of the signature, by length and then alphabetically.

    Chen's identity extends a signature by a segment: `S(0, t) = S(0, t-1) exp(x_t - x_(t-1))`. Its increment of a
    level depends on lower levels only, so each level is one cumulative sum over the segments.
    """
    channels = paths.shape[-1]
    # The axis of words is first, so that selecting words copies whole rows.
    points = paths.permute(2, 0, 1)
    steps = points.diff(dim=-1, prepend=points[..., :1])
    first = steps.cumsum(-1)
    second = outer(until_before(first) + steps / 2, steps).cumsum(-1)
    # The increment of each word of three letters by a segment, without the factor of its last letter.
    prefix = until_before(second) + outer(until_before(first) + steps / 3, steps / 2)

    pairs, triples = (torch.tensor(lyndon_words(channels, n), dtype=torch.long, device=paths.device) for n in (2, 3))
    third = (choose(prefix, triples // channels) * choose(steps, triples % channels)).cumsum(-1)
    # log(1 + S) = S - S²/2 + S³/3, level by level: S (1 - S (1/2 - S/3)).
    inner = first * (-1 / 2)
    pair_terms = choose(second, pairs) + choose(first, pairs // channels) * choose(inner, pairs % channels)
    pair_inner = second * (-1 / 2) + outer(first, first * (1 / 3))
    triple_terms = (
        third
        + choose(first, triples // channels**2) * choose(pair_inner, triples % channels**2)
        + choose(second, triples // channels) * choose(inner, triples % channels)
    )
    return torch.cat((first, pair_terms, triple_terms)).permute(1, 2, 0)
