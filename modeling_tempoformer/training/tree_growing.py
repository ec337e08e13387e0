"""Grows the experts of a post model over a frozen encoder, after its members are trained: trees and states."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

from ..configuration_post_tempoformer import PostTempoFormerConfig
from ..data.states import all_states, compared_posts, state_ids
from ..evaluation.predictions import all_labels
from ..evaluation.rivals import held_out_posts
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..states_tempoformer import States
from ..timeline_tempoformer import Timeline
from ..trees_tempoformer import DEPTH, NUM_SPLITS, Trees


# Fewest posts of a leaf, and the share of the features among which a split is chosen
MIN_SAMPLES_LEAF, SHARE_OF_FEATURES = 3, 0.3
POSTS_AT_ONCE = 512
# Smallest spread of a feature that counts; of a component, as a share of the spread of the largest one. Features are
# divided by their spread, and with a smaller one rounding errors would be as large as the feature.
LEAST_SPREAD = 1e-2
# Decimals to which features are rounded, so that no split separates equal texts that were read in other batches
DECIMALS = 3
# Largest weight of an expert. If the experts separate all posts, the likelihood has no maximum.
LARGEST_WEIGHT = 5.0
# Inverse L2 penalties of the states' regression, for vectors whose numbers have about the size of 1
STRENGTHS = (0.001, 0.01, 0.1)
MOST_ITERATIONS = 1000
# The logit of a state that a member has not seen
NEVER = -30.0


@torch.no_grad()
def grow_experts(
    model: PostTempoFormerForStreamClassification,
    batches: Iterable[Mapping[str, torch.Tensor]],
    seed: int,
    timelines: Sequence[Timeline] | None = None,
    vectors: np.ndarray | None = None,
):
    """
    Fits the states and grows the trees of each member on the posts from which it learns, and weighs the experts on
    posts from which they have not learned; those of a post that is held out, on posts that other members hold out.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model, whose members are trained. It gets its other
            experts and `expert_weights`.
        batches (`Iterable[Mapping[str, torch.Tensor]]`): All training posts, with their `labels` and `held_out`.
        seed (`int`): Seed of the trees.
        timelines (`Sequence[Timeline]`, *optional*): The training timelines, for a model with states.
        vectors (`np.ndarray` of shape `(posts, hidden)`, *optional*): The vectors of their posts.
    """
    config = model.config
    config.expert_weights = None
    model.eval()
    if model.states is not None:
        tables = fit_states(model.states, config, timelines, vectors)
        model.states.to(model.device)
    read = [read_batch(model, {name: values.to(model.device) for name, values in batch.items()}) for batch in batches]
    logits, labels, held_out, *rest = (torch.cat(parts).cpu() for parts in zip(*read, strict=True))
    tree_inputs, states = rest[:3], rest[3:]
    labels, members = labels.numpy(), held_out.numpy()
    changes = changes_for_members(model.states, tables, members, *states) if states else None
    experts = [logits.numpy()]
    if model.trees is not None:
        experts.append(grow_trees(model, labels, members, seed, changes, *tree_inputs))
    if changes is not None:
        experts.append(changes[members, np.arange(len(labels))].numpy())
    config.expert_weights = weigh(experts, labels, config.class_weights)
    for member, weights in enumerate(model.mixture.held_out):
        others = members != member
        chosen = weigh([expert[others] for expert in experts], labels[others], config.class_weights)
        weights.copy_(torch.tensor(chosen))
    model.to(model.device)


def fit_states(
    states: States, config: PostTempoFormerConfig, timelines: Sequence[Timeline], vectors: np.ndarray
) -> torch.Tensor:
    """
    Fits the states of each member to the posts from which it learns, with the penalty that is best on the posts from
    which it does not, and counts which classes follow which states. The arguments are those of [`grow_experts`].

    Returns the counted probabilities (members, members, states + 1, states, classes) of the posts that neither of two
    members holds out.
    """
    ids = state_ids(all_states(timelines), config.states, config.state_values)
    # A post in no stream has no vector.
    ids[~vectors.any(-1)] = -1
    held_out, posts = held_out_posts(timelines), np.flatnonzero(ids >= 0)
    center = vectors[posts].mean(0)
    scale = (vectors[posts] - center).std(0).mean()
    inputs = (vectors - center) / scale
    learned = [posts[held_out[posts] != member] for member in range(config.num_members)]
    if any(len(np.unique(ids[part])) < 2 for part in learned):
        raise ValueError("A member learns from posts of one state alone: give more timelines, or leave states out.")
    best = np.inf
    for strength in STRENGTHS:
        fits = [
            LogisticRegression(C=strength, max_iter=MOST_ITERATIONS).fit(inputs[part], ids[part]) for part in learned
        ]
        slopes, intercepts = (np.stack(parts) for parts in zip(*(by_state(fit, len(config.states)) for fit in fits)))
        losses = []
        for member in range(config.num_members):
            unseen = posts[held_out[posts] == member]
            log_p = log_softmax(inputs[unseen] @ slopes[member] + intercepts[member], axis=-1)
            losses += (-log_p[np.arange(len(unseen)), ids[unseen]]).tolist()
        loss = np.mean(losses)
        if loss < best:
            best = loss
            states.weight.copy_(torch.from_numpy(slopes / scale))
            states.bias.copy_(torch.from_numpy(intercepts))
    states.center.copy_(torch.from_numpy(center))
    counted = np.empty((config.num_members, *states.held_out_change.shape))
    for one, other in combinations_with_replacement(range(config.num_members), 2):
        learned = (held_out != one) & (held_out != other)
        counted[one, other] = counted[other, one] = count_changes(ids, timelines, learned, *counted.shape[-2:])
    tables = torch.from_numpy(counted).to(states.change)
    states.held_out_change.copy_(tables.diagonal().movedim(-1, 0))
    states.change.copy_(states.held_out_change.mean(0))
    states.class_weights.copy_(torch.tensor(config.class_weights or [1.0] * config.num_labels))
    return tables


def by_state(fit: LogisticRegression, num_states: int) -> tuple[np.ndarray, np.ndarray]:
    """The slopes (hidden, states) and intercepts (states,) of a regression, also for states that it has not seen."""
    slopes, intercepts = fit.coef_, fit.intercept_
    if len(fit.classes_) == 2:
        slopes, intercepts = np.outer([-0.5, 0.5], slopes), np.outer([-0.5, 0.5], intercepts)[:, 0]
    every_slope, every_intercept = np.zeros((slopes.shape[1], num_states)), np.full(num_states, NEVER)
    every_slope[:, fit.classes_], every_intercept[fit.classes_] = slopes.T, intercepts
    return every_slope, every_intercept


def count_changes(
    ids: np.ndarray, timelines: Sequence[Timeline], learned: np.ndarray, num_states: int, num_labels: int
) -> np.ndarray:
    """
    The probability of each class (states + 1, states, classes) after a state, or as the last one after no post, and
    before another: its share of the labelled posts that are `learned` (posts,), and of one post more that has the
    classes' shares of all these.
    """
    first_posts = np.cumsum([0, *map(len, timelines)])
    compared = np.concatenate(
        [
            np.where((posts := np.array(compared_posts(timeline))) < 0, -1, posts + first)
            for timeline, first in zip(timelines, first_posts, strict=False)
        ]
    )
    labels, previous = all_labels(timelines), np.where(compared < 0, num_states, ids[compared])
    labelled = learned & (labels >= 0)
    counted = labelled & (ids >= 0) & (previous >= 0)
    counts = np.zeros((num_states + 1, num_states, num_labels))
    np.add.at(counts, (previous[counted], ids[counted], labels[counted]), 1)
    # Two members of two hold out all posts.
    shares = np.bincount(labels[labelled], minlength=num_labels) / max(1, labelled.sum())
    counts += shares if labelled.any() else 1 / num_labels
    return counts / counts.sum(-1, keepdims=True)


def changes_for_members(
    states: States, tables: torch.Tensor, held_out: np.ndarray, probabilities: torch.Tensor, has_previous: torch.Tensor
) -> torch.Tensor:
    """
    Returns the logits of the change of states (members, posts, classes) from which each member may learn: those of a
    post are counted without the posts that the member holds out, and without those that are held out with the post.

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


def grow_trees(
    model: PostTempoFormerForStreamClassification,
    labels: np.ndarray,
    held_out: np.ndarray,
    seed: int,
    changes: torch.Tensor | None,
    compared: torch.Tensor,
    *others: torch.Tensor,
) -> np.ndarray:
    """
    Grows the trees of each member. Returns the logits (posts, classes) that each labelled post gets from the member
    that has not learned from it. `changes` are those of [`changes_for_members`], if the model has states; `compared`
    and `others` are the other arguments of [`Trees.read`].
    """
    trees, posts = model.trees.cpu(), np.arange(len(labels))
    newest = compared[:, -1].numpy()
    components = PCA(min(len(trees.components), *newest.shape), random_state=seed).fit(newest)
    trees.mean.copy_(torch.from_numpy(components.mean_))
    trees.components.zero_()
    trees.components[: components.n_components_] = torch.from_numpy(components.components_)
    trees.center.zero_()
    trees.scale.fill_(1)

    # Center and scale are the same for all members, so that they are not those of changes, which tell of labels.
    features = trees.read(compared, *others, None if changes is None else torch.zeros_like(changes[0]))
    trees.center.copy_(features.mean(0))
    spread = features.std(0)
    counts = spread > least_spread(trees, spread, compared.shape[1] - 1)
    trees.scale.copy_(torch.where(counts, spread, 1.0))
    if changes is not None:
        counts[-changes.shape[-1] :] = True

    def read(*changes: torch.Tensor) -> torch.Tensor:
        return trees.read(compared, *others, *changes).masked_fill(~counts, 0.0).round(decimals=DECIMALS)

    for member in range(model.config.num_members):
        learned = held_out != member
        features = read() if changes is None else read(changes[member])
        forest = ExtraTreesClassifier(
            model.config.num_trees,
            max_depth=DEPTH,
            min_samples_leaf=MIN_SAMPLES_LEAF,
            max_features=SHARE_OF_FEATURES,
            class_weight="balanced",
            random_state=seed + member,
        )
        forest.fit(features[learned].numpy(), labels[learned])
        trees.leaves[member] = 0
        for number, tree in enumerate(forest.estimators_):
            buffers = (values[member, number] for values in (trees.feature, trees.threshold, trees.leaves))
            copy_tree(tree.tree_, forest.classes_, *buffers)
    features = read() if changes is None else read(changes[held_out, posts])
    by_member = torch.cat([trees(part) for part in features.split(POSTS_AT_ONCE)], dim=1)
    return by_member[held_out, posts].numpy()


def least_spread(trees: Trees, spread: torch.Tensor, num_compared: int) -> torch.Tensor:
    """The standard deviation from which each of the trees' features counts. `spread` is that of each feature."""
    # If all texts are the same, the largest component holds only the rounding errors of their vector.
    largest = torch.maximum(spread[0], LEAST_SPREAD * trees.mean.norm())
    scales = (largest * trees.components.norm(dim=-1)).repeat(1 + 2 * num_compared)
    return LEAST_SPREAD * torch.cat((scales, torch.ones(len(spread) - len(scales))))


def read_batch(model: PostTempoFormerForStreamClassification, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """
    Returns, for each labelled post, its logits by the member that has not learned from it, its label and that member,
    the arguments of [`Trees.read`] but the changes, and if the model has states
    [`~PostTempoFormerForStreamClassification.compared_states`].
    """
    labels, held_out, timeline_position = (batch.pop(name) for name in ("labels", "held_out", "timeline_position"))
    if not model.config.reads_speakers:
        batch.pop("speaker_posts", None)
    outputs = model.base_model(**batch, return_dict=True)
    rows = torch.arange(len(held_out), device=held_out.device)
    elapsed = batch.get("elapsed")
    logits, _ = model.classify_streams(outputs, timeline_position, elapsed, held_out)
    inputs = model.tree_inputs(outputs, timeline_position, elapsed)[:3]
    states = () if model.states is None else model.compared_states(outputs, held_out)
    values = (logits[held_out, rows], labels, held_out.unsqueeze(-1).expand_as(labels), *inputs, *states)
    return [tensor[labels >= 0] for tensor in values]


def copy_tree(grown: Any, classes: np.ndarray, feature: torch.Tensor, threshold: torch.Tensor, leaves: torch.Tensor):
    """
    Copies a tree of scikit-learn to a row of each buffer, and a leaf above the last level to all leaves below it.
    """
    # The index of a node in our heap, and in the grown tree
    waiting = [(0, 0)]
    while waiting:
        index, node = waiting.pop()
        left, right = grown.children_left[node], grown.children_right[node]
        if index >= NUM_SPLITS:
            leaves[index - NUM_SPLITS, classes] = torch.from_numpy(grown.value[node, 0]).to(leaves)
            continue
        if left == right:
            left = right = node
        else:
            feature[index], threshold[index] = int(grown.feature[node]), float(grown.threshold[node])
        waiting += [(2 * index + 1, left), (2 * index + 2, right)]


def weigh(experts: Sequence[np.ndarray], labels: np.ndarray, class_weights: list[float] | None) -> list[float]:
    """
    The weights of experts' logits, from 0 to 5, that give the labels the largest likelihood.

    Args:
        experts (`Sequence[np.ndarray]` of shape `(posts, classes)`): Logits of posts from which no expert has learned.
        labels (`np.ndarray` of shape `(posts,)`): Class ids.
        class_weights (`list[float]`, *optional*): The weight of a post of each class, as in the loss. Default: 1.
    """
    counts = np.ones(len(labels)) if class_weights is None else np.asarray(class_weights)[labels]

    def loss(weights: np.ndarray) -> float:
        scores = sum(weight * expert for weight, expert in zip(weights, experts, strict=True))
        return -np.average(log_softmax(scores, axis=-1)[np.arange(len(labels)), labels], weights=counts)

    start = [1.0, *[0.3] * (len(experts) - 1)]
    return minimize(loss, start, bounds=[(0, LARGEST_WEIGHT)] * len(experts)).x.tolist()
