"""Fits the states of a post model: a regression for each member, and the classes that follow from two states."""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import torch
from datasets import Dataset

from ..configuration_post_tempoformer import PostTempoFormerConfig
from ..experts_tempoformer import States
from ..names_tempoformer import state_ids
from ..posts.states import count_changes
from .regressions import fit_regressions


# Inverse L2 penalties of the states' regression, for vectors whose numbers have about the size of 1
STRENGTHS = (0.001, 0.01, 0.1)
MOST_ITERATIONS = 1000


@dataclass
class PostsWithStates:
    """
    The states in rows.

    Args:
        vectors (`np.ndarray` of shape `(posts, hidden)`): The posts with a state, each once.
        ids (`np.ndarray` of shape `(posts,)`): Their states.
        held_out (`np.ndarray` of shape `(posts,)`): The member that has each in its held-out fold.
        pairs (`np.ndarray` of shape `(labelled posts, 4)`): The state of the post that each labelled one is compared
            with (the number of states where there is no such post) and its own state, -1 for one that is missing; its
            label; and the member that has it in its held-out fold.
    """

    vectors: np.ndarray
    ids: np.ndarray
    held_out: np.ndarray
    pairs: np.ndarray


def states_of_rows(rows: Dataset, config: PostTempoFormerConfig) -> PostsWithStates:
    """
    Reads the states of rows with vectors, as [`grow_experts`] takes them. A post without tokens is left out, since its
    vector says nothing.
    """
    found: dict[tuple[int, int], tuple[np.ndarray, int, int]] = {}
    pairs = []
    for row in rows:
        ids = state_ids(row["states"], config.states, config.state_values)
        held_out, older, context = int(row["held_out"]), row.get("num_older", 0), row["num_context"]
        vectors = np.asarray(row["post_embeds"], dtype=np.float32)[:, : config.encoder_config.hidden_size]
        for post in range(older, len(ids)):
            key = row["timeline"], row["num_before"] + post
            if ids[post] >= 0 and key not in found and vectors[post].any():
                found[key] = vectors[post], ids[post], held_out
        for target, label in enumerate(row["labels"]):
            if label >= 0:
                # The post before, unless it is in the row for a speaker alone.
                post = context + target
                compared = post - 1 if post > older else -1
                if config.reads_speakers:
                    compared = row["speaker_posts"][target][-1]
                previous = len(config.states) if compared < 0 else ids[compared]
                pairs.append((previous, ids[post], label, held_out))
    posts = (np.stack(values) for values in zip(*(found[key] for key in sorted(found)), strict=True))
    return PostsWithStates(*posts, np.array(pairs))


def fit_states(states: States, config: PostTempoFormerConfig, rows: Dataset) -> torch.Tensor:
    """
    Fits the regression of each member to its training posts, with the penalty that is best on the held-out folds, and
    counts which classes follow which states.

    Args:
        states ([`States`]): The part of the model, on the CPU.
        config ([`PostTempoFormerConfig`]): The model's configuration.
        rows (`Dataset`): As [`grow_experts`] takes them.

    Returns:
        The counted probabilities (members, members, states + 1, states, classes) for each pair of members, on the
        posts in the held-out fold of neither.
    """
    posts, members = states_of_rows(rows, config), range(config.num_members)
    center = posts.vectors.mean(0)
    scale = (posts.vectors - center).std(0).mean()
    inputs = (posts.vectors - center) / scale
    learned = [posts.held_out != member for member in members]
    if any(len(np.unique(posts.ids[part])) < 2 for part in learned):
        raise ValueError("A member learns from posts of one state alone: give more timelines, or leave states out.")
    shape = config.num_members, len(config.states)
    slopes, intercepts = fit_regressions(
        inputs, posts.ids, posts.held_out, *shape, STRENGTHS, max_iter=MOST_ITERATIONS
    )
    states.weight.copy_(torch.from_numpy(slopes / scale))
    states.bias.copy_(torch.from_numpy(intercepts))
    states.center.copy_(torch.from_numpy(center))
    counted = np.empty((config.num_members, *states.held_out_change.shape))
    for one, other in combinations_with_replacement(members, 2):
        neither = ~np.isin(posts.pairs[:, 3], (one, other))
        counted[one, other] = counted[other, one] = count_changes(posts.pairs[neither, :3], *counted.shape[-2:])
    tables = torch.from_numpy(counted).to(states.change)
    states.held_out_change.copy_(tables.diagonal().movedim(-1, 0))
    states.change.copy_(states.held_out_change.mean(0))
    states.class_weights.copy_(torch.tensor(config.class_weights or [1.0] * config.num_labels))
    return tables


def changes_for_members(
    states: States, tables: torch.Tensor, held_out: np.ndarray, probabilities: torch.Tensor, has_previous: torch.Tensor
) -> torch.Tensor:
    """
    Returns the class logits (members, posts, classes) from states, from which the trees of each member learn. To avoid
    leakage, they are counted without the member's held-out fold, and without the fold that the post is in.

    Args:
        states ([`States`]): The states that were fitted.
        tables (`torch.Tensor` of shape `(members, members, states + 1, states, classes)`): As [`fit_states`] returns.
        held_out (`np.ndarray` of shape `(posts,)`): The member that has not learned from each post.
        probabilities, has_previous (`torch.Tensor` of shapes `(posts, 2, states)` and `(posts,)`): As
            [`States.changes`] takes them.
    """
    states = states.cpu()
    changes = torch.empty(len(tables), len(held_out), tables.shape[-1])
    for fold in np.unique(held_out):
        posts = torch.from_numpy(held_out == fold)
        # The posts as the streams of one row for each member
        rows = (values[posts].expand(len(tables), *values[posts].shape) for values in (probabilities, has_previous))
        changes[:, posts] = states.changes(*rows, tables[:, fold])
    return changes
