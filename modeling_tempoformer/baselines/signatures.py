"""Log-signatures of paths, with gradients (Chen, 1957; Chevyrev and Kormilitzin, 2016)."""

from functools import lru_cache
from itertools import product

import torch


def log_signature_size(channels: int, depth: int) -> int:
    """
    Width of a log-signature: the number of Lyndon words of up to `depth` letters from `channels` (Witt's formula).
    Raises a `ValueError` unless both are at least 1.
    """
    for name, value in (("channels", channels), ("depth", depth)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    sizes: dict[int, int] = {}
    for length in range(1, depth + 1):
        # Every word is a power of a rotation of one Lyndon word.
        shorter = sum(part * size for part, size in sizes.items() if length % part == 0)
        sizes[length] = (channels**length - shorter) // length
    return sum(sizes.values())


@lru_cache
def lyndon_words(channels: int, length: int) -> tuple[int, ...]:
    """Places of the Lyndon words among all words of `length` letters, both in alphabetical order."""
    words = enumerate(product(range(channels), repeat=length))
    return tuple(place for place, word in words if all(word < word[start:] for start in range(1, length)))


def outer(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The tensor product along the first axis."""
    return (left.unsqueeze(1) * right).flatten(0, 1)


def log_signatures(paths: torch.Tensor, depth: int = 3) -> torch.Tensor:
    """
    Log-signatures over expanding windows: row t is that of the piecewise linear path through the points 0 to t.

    Signatures grow by a segment as Chen's identity says, `S(0, t) = S(0, t-1) exp(x_t - x_(t-1))`. What is added to a
    level depends on lower levels alone, so that each level is one running sum over the steps.

    Args:
        paths (`torch.Tensor` of shape `(num_paths, length, channels)`): Points of each path; floating point.
        depth (`int`, *optional*, defaults to 3): Highest level, at least 1.

    Returns:
        `torch.Tensor` of shape `(num_paths, length, log_signature_size(channels, depth))`: the coefficients of the
        Lyndon words in the logarithm of the signature, by length and then alphabetically; 0 in row 0. Raises a
        `ValueError` for another shape or depth.
    """
    if paths.dim() != 3 or 0 in paths.shape[1:]:
        raise ValueError(f"`paths` must have the shape (num_paths, length, channels), got {tuple(paths.shape)}.")
    if depth < 1:
        raise ValueError(f"`depth` must be at least 1, got {depth}.")
    channels = paths.shape[-1]
    # Words first, so that picking some of them copies whole rows.
    points = paths.permute(2, 0, 1)
    steps = points.diff(dim=-1, prepend=points[..., :1])
    # Of each level below the highest: the signature of every word up to each point, and up to the one before.
    signatures, earlier = {}, {}
    # Levels of log(1 + x) = x (1 - x (1/2 - x (1/3 - ...))): of the k-th bracket, with its sign.
    brackets = {}
    logarithms = []
    for level in range(1, depth + 1):
        # The words but for their last letter, in Horner's form: of the new segment's exponential, letter by letter.
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
