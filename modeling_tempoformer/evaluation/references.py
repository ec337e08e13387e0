"""What costs nothing to compare a model with, on the same posts: the larger class, and boosted trees."""

from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score

from .predictions import labelled_posts, labels_of
from .significance import macro_f1_interval, paired_bootstrap


DAY, HOUR = 86_400, 3_600  # seconds
# Principal components of a post's vector that trees read.
COMPONENTS = 48
# Instead of a member.
NOBODY = -1


def compare(
    timelines: Dataset,
    predictions: np.ndarray,
    names: list[str],
    train: Dataset | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Any]:
    """
    How sure a macro F1 is, and how far it is above what costs nothing, on the labelled posts.

    Args:
        timelines, predictions, names: As of [`labelled_posts`]; at least one post has a label.
        train (`Dataset`, *optional*): The training part, from which position and time are learned.
        vectors (`tuple[np.ndarray, np.ndarray]`, *optional*):
            The vectors (posts, hidden) of the posts of `train` and of `timelines`, for [`boosted_trees`].

    Returns:
        `macro_f1_interval`, and `compared_with`: for `larger_class`, `position_and_time` and with `vectors` for
        `trees` the `macro_f1`, the `difference` (macro F1 of `predictions` less it) and `difference_interval`.
        Intervals are of 95 % over timelines; there are none if only one timeline has labels.
    """
    posts = labelled_posts(timelines, predictions, names)
    larger = np.bincount(posts.labels).argmax()
    references = {"larger_class": (np.full(len(posts.labels), larger), {"class": names[larger]})}
    if train is not None and len(set(labels_of(train)) - {-100}) > 1:
        learned, features = position_and_time(train, timelines, len(names))
        ids = learned.argmax(-1)[labels_of(timelines) >= 0]
        references["position_and_time"] = (ids, {"features": features})
        if vectors is not None:
            ids = boosted_trees(train, timelines, *vectors, len(names)).argmax(-1)[labels_of(timelines) >= 0]
            references["trees"] = (ids, {})

    def macro_f1(ids: np.ndarray) -> float:
        return float(f1_score(posts.labels, ids, labels=range(len(names)), average="macro", zero_division=0.0))

    groups, num_labels = posts.timelines, len(names)
    has_interval = len(set(groups)) > 1
    found: dict[str, Any] = {}
    if has_interval:
        found["macro_f1_interval"] = macro_f1_interval(posts.labels, posts.predictions, groups, num_labels)
    found["compared_with"] = {}
    for name, (ids, facts) in references.items():
        score = facts | {"macro_f1": macro_f1(ids), "difference": macro_f1(posts.predictions) - macro_f1(ids)}
        if has_interval:
            paired = paired_bootstrap(posts.labels, posts.predictions, ids, groups, num_labels)
            score["difference_interval"] = paired["interval"]
        found["compared_with"][name] = score
    return found


def position_and_time(train: Dataset, timelines: Dataset, num_labels: int) -> tuple[np.ndarray, list[str]]:
    """
    Classifies posts without their texts, by small boosted trees with balanced classes.

    Args:
        train (`Dataset`): As [`to_timelines`] returns it. It has labelled posts, which are learned from.
        timelines (`Dataset`): Those whose posts are classified. Timelines that are `held_out` in training are
            classified by trees that have not learned from them.
        num_labels (`int`): The number of classes.

    Returns:
        The probability of each class, shape `(posts, num_labels)`, and the names of the [`post_features`] that it
        follows from: those of both parts that some labelled post of `train` has.
    """
    labels, known, asked = labels_of(train), post_features(train), post_features(timelines)
    # No post has one before it where each timeline is a single post.
    present = known[labels >= 0].dropna(axis="columns", how="all").columns
    features = [name for name in asked if name in present]
    share_known, share_asked = held_out_posts(train), held_out_posts(timelines)
    probabilities = np.zeros((len(asked), num_labels))
    for share in np.unique(share_asked):
        learned = (labels >= 0) & ((share_known != share) | (share == NOBODY))
        own = share_asked == share
        trees = HistGradientBoostingClassifier(max_depth=2, max_iter=40, class_weight="balanced", random_state=0)
        trees.fit(known.loc[learned, features], labels[learned])
        probabilities[own] = class_probabilities(trees, asked.loc[own, features], num_labels)
    return probabilities, features


def boosted_trees(
    train: Dataset, timelines: Dataset, known: np.ndarray, asked: np.ndarray, num_labels: int, seed: int = 0
) -> np.ndarray:
    """
    Classifies posts by gradient-boosted trees with balanced classes. They read the first 48 principal components of a
    post's vector and of the previous post's, their difference, the cosines of the post with the previous one and with
    the mean of all before it, and its position and times.

    Args:
        train (`Dataset`): The timelines that are learned from.
        timelines (`Dataset`): Those whose posts are classified.
        known, asked (`np.ndarray` of shape `(posts, hidden)`): The vectors of their posts, 0 for one not read.
        num_labels (`int`): The number of classes.
        seed (`int`, *optional*, defaults to 0): Of components and trees.

    Returns:
        The probability of each class, shape `(posts, num_labels)`.
    """
    labels = labels_of(train)
    read = known[known.any(axis=1)]
    components = PCA(min(COMPONENTS, *read.shape), random_state=seed).fit(read)
    trees = HistGradientBoostingClassifier(class_weight="balanced", random_state=seed)
    trees.fit(pair_features(train, known, components)[labels >= 0], labels[labels >= 0])
    return class_probabilities(trees, pair_features(timelines, asked, components), num_labels)


def pair_features(timelines: Dataset, vectors: np.ndarray, components: PCA) -> np.ndarray:
    """What boosted trees read of each post; NaN where there is no post before it."""
    place = post_features(timelines)
    is_first = (place["position"] == 0).to_numpy()
    timeline = is_first.cumsum()
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    sums = pd.DataFrame(units).groupby(timeline).cumsum().to_numpy() - units
    before = np.roll(units, 1, axis=0)
    cosines = [(units * before).sum(1), (units * sums).sum(1) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)]
    newest = components.transform(vectors)
    previous = np.roll(newest, 1, axis=0)
    steps = np.column_stack((previous, newest - previous, *cosines))
    steps[is_first] = np.nan
    return np.column_stack((newest, steps, place))


def held_out_posts(timelines: Dataset) -> np.ndarray:
    """The member that does not learn from each post (posts,); [`NOBODY`] for timelines that are not held out."""
    shares = timelines["held_out"] if "held_out" in timelines.column_names else [NOBODY] * len(timelines)
    return np.repeat(shares, [len(labels) for labels in timelines["labels"]])


def class_probabilities(trees: HistGradientBoostingClassifier, posts: np.ndarray, num_labels: int) -> np.ndarray:
    """The probability of each class (posts, num_labels); 0 for one that was not in training."""
    probabilities = np.zeros((len(posts), num_labels))
    # For a single class scikit-learn returns two columns: that class, and nothing.
    probabilities[:, trees.classes_] = trees.predict_proba(posts)[:, : len(trees.classes_)]
    return probabilities


def post_features(timelines: Dataset) -> pd.DataFrame:
    """
    What is known of each post without its text, in a row for each: its `position` in the timeline, from 0; and with
    times `seconds_since_previous` (NaN for the first post), `seconds_since_first`, and the `hour` of the day (UTC).
    """
    timed = "timestamps" in timelines.column_names
    posts = pd.DataFrame(timelines.select_columns(["timestamps"] if timed else ["labels"]).to_dict())
    posts = posts.explode(posts.columns[0]).astype(np.float64)
    of_timeline = posts.groupby(level=0)
    features = pd.DataFrame({"position": of_timeline.cumcount()})
    if timed:
        times = posts["timestamps"]
        features["seconds_since_previous"] = of_timeline["timestamps"].diff()
        features["seconds_since_first"] = times - of_timeline["timestamps"].transform("first")
        features["hour"] = times % DAY / HOUR
    return features.reset_index(drop=True)
