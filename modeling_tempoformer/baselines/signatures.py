"""Log-signatures of paths, with gradients (Chen, 1957; Chevyrev and Kormilitzin, 2016)."""

from functools import lru_cache
from itertools import product

import torch


def log_signature_size(channels: int, depth: int) -> int:
    """
    Width of a log-signature: the number of Lyndon words of up to `depth` letters in an alphabet of `channels` (Witt's
    formula).
    """
    sizes: dict[int, int] = {}
    for length in range(1, depth + 1):
        # Each word is a power of a rotation of exactly one Lyndon word.
        shorter = sum(part * size for part, size in sizes.items() if length % part == 0)
        sizes[length] = (channels**length - shorter) // length
    return sum(sizes.values())


@lru_cache
def lyndon_words(channels: int, length: int) -> tuple[int, ...]:
    """Positions of the Lyndon words among all words of `length` letters, in alphabetical order."""
    words = enumerate(product(range(channels), repeat=length))
    return tuple(position for position, word in words if all(word < word[start:] for start in range(1, length)))


def outer(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The tensor product over the first axis."""
    return (left.unsqueeze(1) * right).flatten(0, 1)


def log_signatures(paths: torch.Tensor, depth: int = 3) -> torch.Tensor:
    """
    Log-signatures over expanding windows: row t belongs to the piecewise linear path through the points 0 to t.

    Chen's identity extends a signature by a segment: `S(0, t) = S(0, t-1) exp(x_t - x_(t-1))`. What it adds to a level
    depends on lower levels only, so each level is one cumulative sum over the segments.

    Args:
        paths (`torch.Tensor` of shape `(num_paths, length, channels)`): Points of each path, in floating point.
        depth (`int`, *optional*, defaults to 3): Highest level, at least 1.

    Returns:
        `torch.Tensor` of shape `(num_paths, length, log_signature_size(channels, depth))`: the coefficients of the
        Lyndon words in the logarithm of the signature, by length and then alphabetically. Row 0 is 0.
    """
    channels = paths.shape[-1]
    # The axis of words comes first, so that selecting words copies whole rows.
    points = paths.permute(2, 0, 1)
    steps = points.diff(dim=-1, prepend=points[..., :1])
    # For each level below the highest, the signature up to each point, and up to the point before.
    signatures, earlier = {}, {}
    # log(1 + x) = x (1 - x (1/2 - x (1/3 - ...))): `brackets[k, level]` is a level of the k-th bracket, with its sign.
    brackets = {}
    logarithms = []
    for level in range(1, depth + 1):
        # What the segment adds to each word, but for the word's last letter: its exponential in Horner's form.
        prefix = torch.ones_like(steps[:1])
        for lower in range(1, level):
            prefix = earlier[lower] + outer(prefix, steps / (level - lower + 1))
        words = torch.tensor(lyndon_words(channels, level), dtype=torch.long, device=paths.device)
        if level < depth:
            signatures[level] = outer(prefix, steps).cumsum(-1)
            earlier[level] = torch.nn.functional.pad(signatures[level][..., :-1], (1, 0))
            logarithm = signatures[level].index_select(0, words)
        else:
            letters = steps.index_select(0, words % channels)
            logarithm = (prefix.index_select(0, words // channels) * letters).cumsum(-1)
        for head in range(1, level):
            tails = channels ** (level - head)
            first = signatures[head].index_select(0, words // tails)
            logarithm = logarithm + first * brackets[1, level - head].index_select(0, words % tails)
        logarithms.append(logarithm)
        for k in range(1, depth - level + 1):
            brackets[k, level] = signatures[level] * ((-1) ** k / (k + 1))
            for head in range(1, level):
                brackets[k, level] = brackets[k, level] + outer(signatures[head], brackets[k + 1, level - head])
    return torch.cat(logarithms).permute(1, 2, 0)
