"""Grows the trees of a post model (Geurts et al., 2006), and copies them to its buffers."""

from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier

from ..experts_tempoformer import DEPTH, NUM_SPLITS, Trees
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification


# Fewest posts of a leaf, and the share of the features among which a split is chosen
MIN_SAMPLES_LEAF, SHARE_OF_FEATURES = 3, 0.3
# A model that reads known states learns from each post with all that is known, with half of it, and with nothing.
KNOWLEDGES = 3
POSTS_AT_ONCE = 512
# Smallest spread of a feature that counts; of a component, as a share of the spread of the largest one. Features are
# divided by their spread, and with a smaller one rounding errors would be as large as the feature.
LEAST_SPREAD = 1e-2
# Decimals to which features are rounded, so that no split separates equal texts that were read in other batches
DECIMALS = 3


def grow_trees(
    model: PostTempoFormerForStreamClassification,
    labels: np.ndarray,
    held_out: np.ndarray,
    seed: int,
    inputs: dict[str, torch.Tensor],
    changes: torch.Tensor | None,
    levels: torch.Tensor | None,
) -> np.ndarray:
    """
    Grows the trees of each member. Returns the logits (posts, classes) that each labelled post gets from the member
    that has not learned from it. `inputs` has what [`Trees.read`] takes, by name, but for states; `changes` come from
    [`changes_for_members`], if the model has states, and `levels` from [`States.levels`], if it reads known states.
    """
    trees, posts = model.trees.cpu(), np.arange(len(labels))
    # Posts that are learned from several times do not fill a leaf by themselves.
    copies = 1 if levels is None else KNOWLEDGES
    newest = inputs["posts"][:, -1].numpy()
    components = PCA(min(len(trees.components), *newest.shape), random_state=seed).fit(newest)
    trees.mean.copy_(torch.from_numpy(components.mean_))
    trees.components.zero_()
    trees.components[: components.n_components_] = torch.from_numpy(components.components_)
    trees.center.zero_()
    trees.scale.fill_(1)

    # Center and scale are the same for all members, so they leave out changes, which tell of labels.
    no_changes = None if changes is None else torch.zeros_like(changes[0])
    features = trees.read(**inputs, changes=no_changes, levels=levels)
    trees.center.copy_(features.mean(0))
    spread = features.std(0)
    counts = spread > least_spread(trees, spread, inputs["posts"].shape[1] - 1)
    trees.scale.copy_(torch.where(counts, spread, 1.0))
    if changes is not None:
        end = len(counts) - model.config.num_levels
        counts[end - changes.shape[-1] : end] = True

    def read(changes: torch.Tensor | None = None) -> torch.Tensor:
        features = trees.read(**inputs, changes=changes, levels=levels)
        return features.masked_fill(~counts, 0.0).round(decimals=DECIMALS)

    for member in range(model.config.num_members):
        learned = held_out != member
        features = read() if changes is None else read(changes[member])
        forest = ExtraTreesClassifier(
            model.config.num_trees,
            max_depth=DEPTH,
            min_samples_leaf=MIN_SAMPLES_LEAF * copies,
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
    """Returns the smallest standard deviation of each feature that counts. `spread` has the features' own."""
    # If all texts are the same, the largest component holds only the rounding errors of their vector.
    largest = torch.maximum(spread[0], LEAST_SPREAD * trees.mean.norm())
    scales = (largest * trees.components.norm(dim=-1)).repeat(1 + 2 * num_compared)
    return LEAST_SPREAD * torch.cat((scales, torch.ones(len(spread) - len(scales))))


def copy_tree(tree: Any, classes: np.ndarray, feature: torch.Tensor, threshold: torch.Tensor, leaves: torch.Tensor):
    """
    Copies a tree of scikit-learn to a row of each buffer, and a leaf above the last level to all leaves below it.
    """
    # The index of a node in our heap, and in the grown tree
    waiting = [(0, 0)]
    while waiting:
        index, node = waiting.pop()
        left, right = tree.children_left[node], tree.children_right[node]
        if index >= NUM_SPLITS:
            leaves[index - NUM_SPLITS, classes] = torch.from_numpy(tree.value[node, 0]).to(leaves)
            continue
        if left == right:
            left = right = node
        else:
            feature[index], threshold[index] = int(tree.feature[node]), float(tree.threshold[node])
        waiting += [(2 * index + 1, left), (2 * index + 2, right)]
