"""Grows the trees of a post model over a frozen encoder, when its members are trained."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import RidgeCV

from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..trees_tempoformer import DEPTH, SPLITS, Trees


# Posts that go to a leaf at least, and the share of the features among which a split is chosen.
LEAST_POSTS, SHARE_OF_FEATURES = 3, 0.3
POSTS_AT_ONCE = 512
# A component counts nothing whose spread is less than this share of the largest one's, nor another feature whose
# spread is less than this: divided by the spread, rounding errors would be as large as what it says.
LEAST_SPREAD = 1e-2
# So finely a tree, which splits softly, tells posts apart: equal texts, read in other batches, are not split.
DECIMALS = 3
# Where the experts separate all posts, the likelihood has no maximum.
LARGEST_WEIGHT = 5.0
# Among which a cross-validation chooses how strongly the prediction of a level is held back.
PENALTIES = np.logspace(-2, 3, 11)


@torch.no_grad()
def grow_trees(
    model: PostTempoFormerForStreamClassification,
    batches: Iterable[Mapping[str, torch.Tensor]],
    seed: int,
    levels: np.ndarray | None = None,
):
    """
    Grows the trees of each member on the posts that it learns from, and weighs them against the members where neither
    has learned.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): Its members are trained; gets trees and `tree_weights`.
        batches (`Iterable[Mapping[str, torch.Tensor]]`): All training posts, with their `labels` and `held_out`.
        seed (`int`): Seed of the trees.
        levels (`np.ndarray` of shape `(posts,)`, *optional*): The level of each labelled post, NaN for none. The trees
            then read what a line through the vectors says of a post's level, in the place of the last component.
    """
    trees = model.trees
    model.config.tree_weights = None
    model.eval()
    read = [read_batch(model, {name: values.to(model.device) for name, values in batch.items()}) for batch in batches]
    pairs, cosines, position_and_gap, *rest = (torch.cat(parts).cpu() for parts in zip(*read, strict=True))
    logits, labels, held_out = (values.numpy() for values in rest)

    trees.cpu()
    newest = pairs[:, 1].numpy()
    components = PCA(min(len(trees.components), *newest.shape), random_state=seed).fit(newest)
    trees.mean.copy_(torch.from_numpy(components.mean_))
    trees.components.zero_()
    trees.components[: components.n_components_] = torch.from_numpy(components.components_)
    directions = None if levels is None else level_directions(newest, levels, held_out, model.config.num_members)
    trees.center.zero_()
    trees.scale.fill_(1)
    features = read_features(trees, pairs, cosines, position_and_gap, held_out, directions)
    trees.center.copy_(features.mean(0))
    spread = features.std(0)
    counts = spread > least_spread(trees, spread)
    trees.scale.copy_(torch.where(counts, spread, 1.0))
    features = ((features - trees.center) / trees.scale).masked_fill(~counts, 0.0).round(decimals=DECIMALS)
    for member in range(model.config.num_members):
        learned = held_out != member
        forest = ExtraTreesClassifier(
            model.config.num_trees,
            max_depth=DEPTH,
            min_samples_leaf=LEAST_POSTS,
            max_features=SHARE_OF_FEATURES,
            class_weight="balanced",
            random_state=seed + member,
        )
        forest.fit(features[learned].numpy(), labels[learned])
        trees.leaves[member] = 0
        for number, tree in enumerate(forest.estimators_):
            buffers = (values[member, number] for values in (trees.feature, trees.threshold, trees.leaves))
            copy_tree(tree.tree_, forest.classes_, *buffers)
    own = torch.cat([trees(part) for part in features.split(POSTS_AT_ONCE)], dim=1)[held_out, np.arange(len(labels))]
    model.config.tree_weights = weigh(logits, own.numpy(), labels, model.config.class_weights)
    model.to(model.device)


def least_spread(trees: Trees, spread: torch.Tensor) -> torch.Tensor:
    """The standard deviation from which each of the trees' features counts, from that of all of them."""
    # If all texts are the same, the largest component is nothing but rounding errors of their vector.
    largest = torch.maximum(spread[0], LEAST_SPREAD * trees.mean.norm())
    # A direction of levels has any length, those of components 1.
    of_components = (largest * trees.components.norm(dim=-1)).repeat(3)
    return LEAST_SPREAD * torch.cat((of_components, torch.ones(len(spread) - len(of_components))))


def level_directions(
    vectors: np.ndarray, levels: np.ndarray, held_out: np.ndarray, members: int
) -> torch.Tensor | None:
    """
    For each member the direction of vectors in which the level grows (members, hidden), learned from the posts that
    the member learns from; None where levels do not differ.
    """
    learned = [~np.isnan(levels) & (held_out != member) for member in range(members)]
    if min(len(np.unique(levels[of_member])) for of_member in learned) < 2:
        return None
    fits = (RidgeCV(PENALTIES).fit(vectors[of_member], levels[of_member]) for of_member in learned)
    return torch.from_numpy(np.stack([fit.coef_ for fit in fits]))


def read_features(
    trees: Trees,
    pairs: torch.Tensor,
    cosines: torch.Tensor,
    position_and_gap: torch.Tensor,
    held_out: np.ndarray,
    directions: torch.Tensor | None,
) -> torch.Tensor:
    """
    What the trees read of the training posts. The level of each post is predicted by a direction that was not learned
    from it, since the trees would trust it too much; that of new posts is by the mean of the directions.
    """
    if directions is None:
        return trees.read(pairs, cosines, position_and_gap)
    features = torch.empty(len(pairs), len(trees.center))
    for member, direction in enumerate(directions):
        of_member = torch.from_numpy(held_out == member)
        trees.components[-1] = direction
        features[of_member] = trees.read(pairs[of_member], cosines[of_member], position_and_gap[of_member])
    trees.components[-1] = directions.mean(0)
    return features


def read_batch(model: PostTempoFormerForStreamClassification, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """
    Returns, for each labelled post, the arguments of [`Trees.read`], its logits by the member that has not learned
    from it, its label and that member.
    """
    labels, held_out, timeline_position = (batch.pop(name) for name in ("labels", "held_out", "timeline_position"))
    outputs = model.base_model(**batch, return_dict=True)
    rows = torch.arange(len(held_out), device=held_out.device)
    arguments = (outputs, timeline_position, batch.get("elapsed"))
    logits = model.classify_streams(*arguments)[held_out, rows]
    values = (*model.tree_inputs(*arguments), logits, labels, held_out.unsqueeze(-1).expand_as(labels))
    return [tensor[labels >= 0] for tensor in values]


def copy_tree(grown: Any, classes: np.ndarray, feature: torch.Tensor, threshold: torch.Tensor, leaves: torch.Tensor):
    """Copies a tree of scikit-learn to a row of each buffer. A leaf above the last level is there for all below it."""
    waiting = [(0, 0)]
    while waiting:
        place, node = waiting.pop()
        left, right = grown.children_left[node], grown.children_right[node]
        if place >= SPLITS:
            leaves[place - SPLITS, classes] = torch.from_numpy(grown.value[node, 0]).to(leaves)
            continue
        if left == right:
            left = right = node
        else:
            feature[place], threshold[place] = int(grown.feature[node]), float(grown.threshold[node])
        waiting += [(2 * place + 1, left), (2 * place + 2, right)]


def weigh(
    network: np.ndarray, trees: np.ndarray, labels: np.ndarray, class_weights: list[float] | None
) -> list[float]:
    """
    The weights of two experts' logits, 0 to 5, that give the labels the largest likelihood.

    Args:
        network, trees (`np.ndarray` of shape `(posts, classes)`): Logits of posts that neither has learned from.
        labels (`np.ndarray` of shape `(posts,)`): Class ids.
        class_weights (`list[float]`, *optional*): What a post of each class counts, as in the loss; 1 if omitted.
    """
    counts = np.ones(len(labels)) if class_weights is None else np.asarray(class_weights)[labels]

    def loss(weights: np.ndarray) -> float:
        log_p = log_softmax(weights[0] * network + weights[1] * trees, axis=-1)
        return -np.average(log_p[np.arange(len(labels)), labels], weights=counts)

    return minimize(loss, (1.0, 0.3), bounds=[(0, LARGEST_WEIGHT)] * 2).x.tolist()
