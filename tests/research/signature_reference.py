"""Computes log-signatures plainly, as iterated integrals."""

from itertools import product

import numpy as np
from numpy.polynomial import Polynomial


Tensor = dict[tuple[int, ...], float]


def signature(points: np.ndarray, depth: int) -> Tensor:
    """Returns the iterated integral of each word over a piecewise linear path, by polynomials of time."""
    slopes = np.diff(points, axis=0)
    inner = {(): [Polynomial([1.0])] * len(slopes)}
    values = {(): 1.0}
    for length in range(1, depth + 1):
        for word in product(range(points.shape[1]), repeat=length):
            inner[word], total = [], 0.0
            for slope, before in zip(slopes, inner[word[:-1]], strict=True):
                inner[word].append((before * slope[word[-1]]).integ(k=total))
                total = inner[word][-1](1.0)
            values[word] = total
    return values


def multiply(left: Tensor, right: Tensor, depth: int) -> Tensor:
    result: Tensor = {}
    for (one, x), (other, y) in product(left.items(), right.items()):
        if len(one) + len(other) <= depth:
            result[one + other] = result.get(one + other, 0.0) + x * y
    return result


def plain_log_signature(points: np.ndarray, depth: int) -> np.ndarray:
    """
    Returns the coefficients of the Lyndon words (those before all their rotations) in the power series of the
    logarithm.
    """
    rest = signature(points, depth)
    rest[()] = 0.0
    logarithm, power = {}, {(): 1.0}
    for k in range(1, depth + 1):
        power = multiply(power, rest, depth)
        for word, value in power.items():
            logarithm[word] = logarithm.get(word, 0.0) - (-1) ** k * value / k
    words = [word for word in logarithm if word and all(word < word[i:] + word[:i] for i in range(1, len(word)))]
    return np.array([logarithm[word] for word in sorted(words, key=lambda word: (len(word), word))])
