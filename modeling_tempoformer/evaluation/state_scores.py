"""Scores a model's predictions of the states of posts, beside the most frequent state of training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig

from ..decisions_tempoformer import read_states
from ..names_tempoformer import read_number, state_ids
from ..posts.metadata import unit_of
from ..posts.states import all_states
from ..timeline_tempoformer import Timeline
from .baseline_scores import compare_with
from .metrics import compute_scores
from .people_scores import score_within_and_between, split_people
from .predictions import Predictions


def score_states(
    timelines: Sequence[Timeline], config: PreTrainedConfig, train: Sequence[Timeline] | None = None
) -> dict[str, Any]:
    """
    Scores the states that a model has predicted.

    Args:
        timelines (`Sequence[Timeline]`): The timelines.
        config (`PreTrainedConfig`): The model's configuration.
        train (`Sequence[Timeline]`, *optional*): The training timelines.

    Returns:
        The number of `posts` with a state that the model knows; their `accuracy` and `macro_f1`; `confusion`, for each
        given state by name how many of its posts are predicted as each state, in the same order; if states are
        numbers, the `mean_absolute_error` of the mean, its `correlation` if that is defined, and both
        [`score_within_and_between`] people; and `most_frequent`, the scores of the most frequent state of `train`,
        with [`compare_with`]. If some people are in the training and others are not ([`split_people`]), the scores of
        both follow, under `seen` and `unseen`. Empty if no post has a state.
    """
    given, names_and_values = all_states(timelines), (config.states, config.state_values)
    ids = np.array(state_ids(given, *names_and_values))
    logits = torch.cat([timeline.state_logits for timeline in timelines])
    # Context is of another part.
    of_part = np.concatenate([np.arange(len(timeline)) >= timeline.num_context for timeline in timelines])
    judged = (ids >= 0) & of_part & ~logits.isnan().any(-1).numpy()
    if not judged.any():
        return {}
    answers = read_states(logits[torch.from_numpy(judged)], config)
    posts = Predictions(
        labels=ids[judged],
        predictions=np.array([config.states.index(answer["label"]) for answer in answers]),
        names=config.states,
        timelines=np.repeat(np.arange(len(timelines)), list(map(len, timelines)))[judged],
    )

    def accuracy(predictions: np.ndarray) -> float:
        return float((predictions == posts.labels).mean())

    counts = np.zeros((len(config.states),) * 2, dtype=int)
    np.add.at(counts, (posts.labels, posts.predictions), 1)
    scores = {
        "posts": len(posts.labels),
        "accuracy": accuracy(posts.predictions),
        "macro_f1": compute_scores(posts)["macro_f1"],
        "confusion": dict(zip(config.states, counts.tolist(), strict=True)),
    }
    frequent: dict[str, Any] = {}
    known = np.array([] if train is None else state_ids(all_states(train), *names_and_values), dtype=int)
    if (known >= 0).any():
        state = np.bincount(known[known >= 0]).argmax()
        always = np.full(len(posts.labels), state)
        frequent = {"state": config.states[state], "accuracy": accuracy(always), **compare_with(posts, always)}
    if config.state_values is not None:
        # The error is from the exact number, not from the grade that the model learned.
        values = np.array([read_number(state) for state, counts in zip(given, judged, strict=True) if counts])
        means = np.array([answer["mean"] for answer in answers])
        scores["mean_absolute_error"] = float(np.abs(means - values).mean())
        if values.std() and means.std():
            scores["correlation"] = float(np.corrcoef(means, values)[0, 1])
        people = list(map(unit_of, timelines))
        scores |= score_within_and_between(values, means, [people[number] for number in posts.timelines])
        if frequent:
            frequent["mean_absolute_error"] = float(np.abs(config.state_values[state] - values).mean())
    if frequent:
        scores["most_frequent"] = frequent
    parts = {} if train is None else split_people(timelines, train)
    if len(parts) > 1:
        scores |= {name: score_states(theirs, config) for name, (_, theirs) in parts.items()}
    return scores
