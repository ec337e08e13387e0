"""Attaches logits to timelines, and turns them into the decisions that scores and files need."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset

from ..decisions_tempoformer import check_finite, decide, find_alarms
from ..timeline_tempoformer import Timeline


@dataclass
class Predictions:
    """
    Predictions of posts, timeline after timeline, each in its order.

    Attributes:
        labels (`np.ndarray` of shape `(posts,)`): Class ids; -100 without a label.
        predictions (`np.ndarray` of shape `(posts,)`): Predicted class ids.
        names (`list[str]`): Names of the classes in the order of their ids.
        probabilities (`np.ndarray` of shape `(posts, classes)`, *optional*): The probability of each class.
        timelines (`np.ndarray` of shape `(posts,)`, *optional*): The number of each post's timeline.
        times (`np.ndarray` of shape `(posts,)`, *optional*): Seconds.
    """

    labels: np.ndarray
    predictions: np.ndarray
    names: list[str]
    probabilities: np.ndarray | None = None
    timelines: np.ndarray | None = None
    times: np.ndarray | None = None

    def of(self, chosen: np.ndarray) -> "Predictions":
        """Returns the posts that are chosen (posts,)."""
        values = {name: value[chosen] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **values)


def labelled_posts(
    timelines: Sequence[Timeline], predictions: np.ndarray, names: list[str], probabilities: np.ndarray
) -> Predictions:
    """
    Selects the labelled posts from the predictions (posts,) and probabilities (posts, classes) of [`decide_posts`].
    """
    labels = all_labels(timelines)
    labelled = labels >= 0
    numbers = timeline_numbers(timelines)
    times = None
    if timelines[0].timestamps is not None:
        times = np.array(list(chain.from_iterable(timeline.timestamps for timeline in timelines)))[labelled]
    return Predictions(
        labels=labels[labelled],
        predictions=predictions[labelled],
        names=names,
        probabilities=probabilities[labelled],
        timelines=numbers[labelled],
        times=times,
    )


def all_labels(timelines: Iterable[Timeline]) -> np.ndarray:
    """Returns the class ids (posts,) in the order of the timelines, -100 without a label."""
    return np.array(list(chain.from_iterable(timeline.labels for timeline in timelines)))


def timeline_numbers(timelines: Sequence[Timeline]) -> np.ndarray:
    """Returns the number of each post's timeline (posts,)."""
    return np.repeat(np.arange(len(timelines)), list(map(len, timelines)))


def attach_logits(
    timelines: Sequence[Timeline],
    items: Dataset,
    logits: np.ndarray,
    state_logits: np.ndarray | None = None,
    expert_logits: np.ndarray | None = None,
):
    """
    Attaches logits to timelines, in float32, NaN for posts that no item asks about.

    Args:
        timelines (`Sequence[Timeline]`): The timelines.
        items (`Dataset`): Rows from [`to_rows`], or items of one post with the same columns, whose label is a number.
        logits (`np.ndarray` of shape `(items, posts, classes)`): The logits of each item's targets, in order;
            padding may follow.
        state_logits (`np.ndarray` of shape `(items, posts, states)`, *optional*): The logits of their states.
        expert_logits (`np.ndarray` of shape `(items, posts, experts, classes)`, *optional*): Each expert's logits.

    Raises a `ValueError` that names the first post with a logit that is NaN or infinite.
    """
    answers = {"logits": logits, "state_logits": state_logits, "expert_logits": expert_logits}
    answers = {name: values for name, values in answers.items() if values is not None}
    for timeline, (name, values) in product(timelines, answers.items()):
        setattr(timeline, name, torch.full((len(timeline), *values.shape[2:]), math.nan))
    columns = ["timeline", "num_before", "num_context", "labels", "is_target"]
    items = items.with_format(None).select_columns([name for name in columns if name in items.column_names])
    for number, item in enumerate(items):
        timeline, first = timelines[item["timeline"]], item["num_before"] + item["num_context"]
        labels = item["labels"] if isinstance(item["labels"], list) else [item["labels"]]
        is_target = item.get("is_target", [True] * len(labels))
        posts = [first + offset for offset, is_wanted in enumerate(is_target) if is_wanted]
        for name, values in answers.items():
            getattr(timeline, name)[posts] = torch.from_numpy(values[number, : len(posts)]).float()
        names = [f"Post {timeline.post_ids[post]!r}" for post in posts]
        check_finite(timeline.logits[posts], names.__getitem__)


def decide_posts(timelines: Sequence[Timeline], calibration: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """
    Decides on the logits of timelines ([`decide`]).

    Args:
        timelines (`Sequence[Timeline]`): Timelines with `logits`, as the pipeline or [`attach_logits`] leaves them.
        calibration (`dict`, *optional*): The field of the model's configuration; without it the largest logit wins.

    Returns:
        Two arrays, timeline after timeline in the order of their posts: the class ids (posts,), and the probabilities
        (posts, classes) in float64. A post that the model was not asked about has -1 and 0.
    """
    return decide_logits(torch.cat([timeline.logits for timeline in timelines]), calibration)


def decide_logits(logits: torch.Tensor, calibration: dict[str, Any] | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the decisions of [`decide_posts`] on logits (posts, classes), NaN where the model was not asked."""
    is_answered = ~logits.isnan().any(-1)
    decided, ranked = decide(logits[is_answered], calibration)
    predictions, probabilities = np.full(len(logits), -1), np.zeros(logits.shape)
    predictions[is_answered.numpy()], probabilities[is_answered.numpy()] = ranked[:, 0].numpy(), decided.numpy()
    return predictions, probabilities


class ExpertDecisions(NamedTuple):
    """
    Decisions of one of a model's experts.

    Attributes:
        weight (`float`): Its weight in the sum, which was chosen on held-out posts.
        alone (`np.ndarray` of shape `(posts,)`, *optional*): The class ids of its largest logits. A network without a
            weight is not computed, and has none.
        without (`np.ndarray` of shape `(posts,)`, *optional*): The class ids that the others decide on without it, by
            their weights. Of an expert without a weight, and where no other has one, there are none.
    """

    weight: float
    alone: np.ndarray | None
    without: np.ndarray | None


def decide_experts(
    timelines: Sequence[Timeline], weights: Mapping[str, float], calibration: dict[str, Any] | None = None
) -> dict[str, ExpertDecisions] | None:
    """
    Returns what each of a model's experts decides, by name; -1 for a post that the model was not asked about. None if
    only the network has a weight, and that is 1, as before the other experts are fitted. `calibration` is the field of
    the model's configuration.
    """
    network, *others = weights.values()
    if network == 1 and not any(others):
        return None
    logits = torch.cat([timeline.expert_logits for timeline in timelines])
    best = logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1).numpy()
    experts = {}
    for number, (name, weight) in enumerate(weights.items()):
        rest = torch.tensor(list(weights.values()))
        rest[number] = 0
        without = None
        if weight and rest.any():
            without = decide_logits((logits * rest[:, None].to(logits)).sum(1), calibration)[0]
        alone = best[:, number] if weight or name != "network" else None
        experts[name] = ExpertDecisions(weight, alone, without)
    return experts


def alarms_of(
    predictions: np.ndarray, probabilities: np.ndarray, watched: int, calibration: dict[str, Any] | None
) -> np.ndarray:
    """
    Returns a mask (posts,) of the alarms among the posts of [`decide_posts`] ([`find_alarms`]). A post that the model
    was not asked about is none.
    """
    decided = torch.from_numpy(probabilities), torch.from_numpy(predictions)
    return find_alarms(*decided, watched, calibration).numpy() & (predictions >= 0)
