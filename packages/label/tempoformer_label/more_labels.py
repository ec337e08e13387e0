"""
Tells what more labels would be worth, from the scores of models that have learned from parts of the timelines. All
scores are of timelines from which the model that predicts them has not learned.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


RESAMPLES = 2_000
# The ends of the intervals
LOW, HIGH = 0.025, 0.975
# The score falls short of its limit with endless timelines by a multiple of the number of timelines to this power.
# With -0.5 gains were overestimated (docs/more_labels.md).
POWER = -1.0


def expect_more(whole: np.ndarray, parts: Mapping[int, np.ndarray]) -> dict[str, Any]:
    """
    Expects the macro F1 of a model that learns from twice as many timelines of the same kind.

    The parts' macro F1 is fitted by `a - b / timelines` (least squares, `b` at least 0), and the model's own
    changes as this formula does. Intervals of 95 % are by a bootstrap over timelines, the same for all scores; the
    expected score also has the spread between fits ([`spread_of_fits`]), and of a score on twice as many timelines.

    Args:
        whole (`np.ndarray` of shape `(timelines, 2, classes)`): Counts of [`f1_counts`] of the model itself.
        parts (`Mapping[int, np.ndarray]`): The counts (fits, timelines, 2, classes) of stand-ins of the model, of the
            same posts, by the part of the timelines that each has learned from: 1 for all, 2 for a half and so on.

    Returns:
        `timelines`, `macro_f1` and `macro_f1_interval` of the model; `guessing`, the expected macro F1 of guessing
        each class by its share; `has_learned`, whether the interval is above it; the `stand_in`: for each number of
        `timelines` the mean `macro_f1` of its `fits`, and its interval; `more_timelines`, and the `expected_macro_f1`
        and `expected_interval` with so many more; `gains`, whether 97.5 % of the samples of the timelines have a
        higher score then.
    """
    number, counts = len(whole), sorted(parts, reverse=True)
    sizes = number / np.array(counts)
    drawn = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=RESAMPLES)
    # The first row is the timelines as they are.
    drawn = np.concatenate((np.ones((1, number)), drawn))
    whole_scores = macro_f1(drawn, whole[None])
    scores = np.stack([macro_f1(drawn, parts[count]) for count in counts], axis=-1)
    gain = expected_gain(sizes, scores, number)
    # Other timelines to learn from would make another model, which is then scored on twice as many.
    spread = np.hypot(spread_of_fits(parts), whole_scores[1:].std() / 2**0.5)
    chance = spread * np.random.default_rng(1).standard_normal(RESAMPLES)
    # No score is more than 1, whatever the formula says.
    expected = np.clip(whole_scores + gain + np.concatenate(([0], chance)), 0, 1)
    guessing = 1 / whole.shape[-1]
    return {
        "timelines": number,
        "macro_f1": float(whole_scores[0]),
        "macro_f1_interval": interval(whole_scores),
        "guessing": guessing,
        "has_learned": interval(whole_scores)[0] > guessing,
        "stand_in": [
            {
                "timelines": round(sizes[at]),
                "fits": len(parts[count]),
                "macro_f1": float(scores[0, at]),
                "macro_f1_interval": interval(scores[:, at]),
            }
            for at, count in enumerate(counts)
        ],
        "more_timelines": number,
        "expected_macro_f1": float(expected[0]),
        "expected_interval": interval(expected),
        "gains": bool(np.quantile(gain[1:], 1 - HIGH) > 0),
    }


def f1_counts(labels: np.ndarray, predictions: np.ndarray, timelines: np.ndarray, num_labels: int) -> np.ndarray:
    """
    Returns counts (timelines, 2, classes) from class ids (posts,) and the numbers of the posts' timelines, in the
    order of these numbers: twice the hits of each class, and its labels plus its predictions. F1 is the first divided
    by the second, and both are sums.
    """
    numbers, timelines = np.unique(timelines, return_inverse=True)
    counts, is_right = np.zeros((len(numbers), 2, num_labels)), labels == predictions
    np.add.at(counts[:, 0], (timelines[is_right], labels[is_right]), 2)
    for classes in (labels, predictions):
        np.add.at(counts[:, 1], (timelines, classes), 1)
    return counts


def macro_f1(drawn: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """
    Returns the macro F1 (samples,), the mean over fits, of samples that hold each timeline so often (samples,
    timelines), from the counts (fits, timelines, 2, classes). A class that a sample lacks has an F1 of 0.
    """
    hits, sizes = np.moveaxis(np.tensordot(drawn, counts, axes=(1, 1)), -2, 0)
    return np.divide(hits, sizes, out=np.zeros(hits.shape), where=sizes > 0).mean((-2, -1))


def expected_gain(sizes: np.ndarray, scores: np.ndarray, number: int) -> np.ndarray:
    """
    Returns how much more a model of twice the `number` of timelines scores (samples,), by the `scores` (samples,
    sizes) of models of parts with these `sizes`.
    """
    shortfall = sizes**POWER
    centred = shortfall - shortfall.mean()
    slopes = np.maximum(-(scores @ centred) / (centred @ centred), 0)
    return slopes * number**POWER * (1 - 2**POWER)


def spread_of_fits(parts: Mapping[int, np.ndarray]) -> float:
    """
    Returns the standard deviation of the scores of models that learn from other timelines, as many as these are. The
    fits to parts tell it: their spread is taken to shrink with the size of a part, as the shortfall does.
    """
    squares, degrees = 0.0, 0
    for count, fits in parts.items():
        scores = [macro_f1(np.ones((1, fits.shape[1])), fit[None])[0] for fit in fits]
        squares += np.square(scores - np.mean(scores)).sum() * count ** (2 * POWER)
        degrees += len(fits) - 1
    return float((squares / degrees) ** 0.5)


def interval(samples: np.ndarray) -> list[float]:
    """Returns the percentile interval of 95 % of samples, whose first one is the score itself."""
    return np.quantile(samples[1:], [LOW, HIGH]).tolist()


def more_labels_sentence(curve: Mapping[str, Any]) -> str:
    """Says what [`expect_more`] expects."""
    number, score = curve["more_timelines"], f"{curve['macro_f1']:.2f}"
    if not curve["has_learned"]:
        return (
            f"Held out in turn, these {curve['timelines']} timelines do not tell the model from guessing (macro F1 "
            f"{score}, {words(curve['macro_f1_interval'])}; guessing {curve['guessing']:.2f}), nor can they tell what "
            "more of their kind would be worth."
        )
    then = f"{curve['expected_macro_f1']:.2f} ({words(curve['expected_interval'])})"
    sentence = f"{number} more timelines of this kind: macro F1 {score} to about {then}"
    return f"{sentence}." if curve["gains"] else f"{sentence}; that they would help at all is not sure."


def words(ends: Sequence[float]) -> str:
    """Returns an interval in words."""
    return " to ".join(f"{end:.2f}" for end in ends)
