"""Grows the trees of a post model over a frozen encoder, after its members are trained."""

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
# Ridge penalties of the prediction of a level, among which a cross-validation chooses
PENALTIES = np.logspace(-2, 3, 11)


@torch.no_grad()
def grow_trees(
    model: PostTempoFormerForStreamClassification,
    batches: Iterable[Mapping[str, torch.Tensor]],
    seed: int,
    levels: np.ndarray | None = None,
):
    """
    Grows the trees of each member on the posts from which it learns, and weighs trees and members on the posts from
    which neither has learned.

    Args:
        model ([`PostTempoFormerForStreamClassification`]): The model, whose members are trained. It gets trees and
            `tree_weights`.
        batches (`Iterable[Mapping[str, torch.Tensor]]`): All training posts, with their `labels` and `held_out`.
        seed (`int`): Seed of the trees.
        levels (`np.ndarray` of shape `(posts,)`, *optional*): The level of each labelled post, NaN for none. With
            levels, the trees read a level that is predicted from a post's vector, in the place of the last component.
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
    own = torch.cat([trees(part) for part in features.split(POSTS_AT_ONCE)], dim=1)[held_out, np.arange(len(labels))]
    model.config.tree_weights = weigh(logits, own.numpy(), labels, model.config.class_weights)
    model.to(model.device)


def least_spread(trees: Trees, spread: torch.Tensor) -> torch.Tensor:
    """The standard deviation from which each of the trees' features counts. `spread` is that of each feature."""
    # If all texts are the same, the largest component holds only the rounding errors of their vector.
    largest = torch.maximum(spread[0], LEAST_SPREAD * trees.mean.norm())
    # The direction of levels may have any length, and those of components have length 1.
    scales = (largest * trees.components.norm(dim=-1)).repeat(3)
    return LEAST_SPREAD * torch.cat((scales, torch.ones(len(spread) - len(scales))))


def level_directions(
    vectors: np.ndarray, levels: np.ndarray, held_out: np.ndarray, members: int
) -> torch.Tensor | None:
    """
    The direction of vectors in which the level grows (members, hidden), fitted to the posts from which each member
    learns; None if their levels do not differ.
    """
    learned = [~np.isnan(levels) & (held_out != member) for member in range(members)]
    if min(len(np.unique(levels[posts])) for posts in learned) < 2:
        return None
    fits = (RidgeCV(PENALTIES).fit(vectors[posts], levels[posts]) for posts in learned)
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
    The features of the training posts that the trees read. The level of a training post is predicted by the direction
    of the member that does not learn from it, because trees would trust another one too much. The level of a new post
    is predicted by the mean of the directions.
    """
    if directions is None:
        return trees.read(pairs, cosines, position_and_gap)
    features = torch.empty(len(pairs), len(trees.center))
    for member, direction in enumerate(directions):
        posts = torch.from_numpy(held_out == member)
        trees.components[-1] = direction
        features[posts] = trees.read(pairs[posts], cosines[posts], position_and_gap[posts])
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


def weigh(
    network: np.ndarray, trees: np.ndarray, labels: np.ndarray, class_weights: list[float] | None
) -> list[float]:
    """
    The weights of two experts' logits, from 0 to 5, that give the labels the largest likelihood.

    Args:
        network, trees (`np.ndarray` of shape `(posts, classes)`): Logits of posts from which neither has learned.
        labels (`np.ndarray` of shape `(posts,)`): Class ids.
        class_weights (`list[float]`, *optional*): The weight of a post of each class, as in the loss. Default: 1.
    """
    counts = np.ones(len(labels)) if class_weights is None else np.asarray(class_weights)[labels]

    def loss(weights: np.ndarray) -> float:
        log_p = log_softmax(weights[0] * network + weights[1] * trees, axis=-1)
        return -np.average(log_p[np.arange(len(labels)), labels], weights=counts)

    return minimize(loss, (1.0, 0.3), bounds=[(0, LARGEST_WEIGHT)] * 2).x.tolist()
