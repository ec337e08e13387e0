"""What costs nothing to compare a model with, on the same posts: the larger class, and boosted trees."""

from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier

from .metrics import compute_scores
from .predictions import Predictions, labels_of
from .significance import paired_bootstrap


DAY, HOUR = 86_400, 3_600  # seconds
# Principal components of a post's vector that trees read.
COMPONENTS = 48
# Instead of a member.
NOBODY = -1


def compare(
    posts: Predictions,
    timelines: Dataset,
    train: Dataset | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, Any]:
    """
    How sure a macro F1 is, and how far it is above what costs nothing. `posts` are the labelled ones of `timelines`,
    `vectors` (posts, hidden) are of the posts of `train` and of `timelines`. Intervals are over timelines, of which
    at least two must have labels.
    """
    num_labels, labelled = len(posts.names), labels_of(timelines) >= 0
    larger = np.bincount(posts.labels).argmax()
    rivals = {"larger_class": (np.full(len(posts.labels), larger), {"class": posts.names[larger]})}
    if train is not None and len(set(labels_of(train)) - {-100}) > 1:
        probabilities, features = position_and_time(train, timelines, num_labels)
        rivals["position_and_time"] = probabilities.argmax(-1)[labelled], {"features": features}
        if vectors is not None:
            probabilities = boosted_trees(train, timelines, *vectors, num_labels)
            rivals["trees"] = probabilities.argmax(-1)[labelled], {}

    def macro_f1(ids: np.ndarray) -> float:
        return compute_scores(Predictions(posts.labels, ids, posts.names))["macro_f1"]

    def interval(name: str, ids: np.ndarray) -> dict[str, tuple[float, float]]:
        """Where the model's macro F1 less that of `ids` lies, by bootstrap; empty with a single timeline."""
        if len(set(posts.timelines)) < 2:
            return {}
        return {name: paired_bootstrap(posts.labels, posts.predictions, ids, posts.timelines, num_labels)["interval"]}

    against = {}
    for name, (ids, facts) in rivals.items():
        scores = {"macro_f1": macro_f1(ids), "difference": macro_f1(posts.predictions) - macro_f1(ids)}
        against[name] = facts | scores | interval("difference_interval", ids)
    # Without any prediction macro F1 is 0, so the difference to it is the model's own score.
    return interval("macro_f1_interval", np.full(len(posts.labels), -1)) | {"compared_with": against}


def position_and_time(train: Dataset, timelines: Dataset, num_labels: int) -> tuple[np.ndarray, list[str]]:
    """
    What small trees without the texts say of `timelines` (posts, num_labels), and the features that both parts have.
    Posts that are `held_out` in training are classified by trees that have not learned from them.
    """
    labels, known, asked = labels_of(train), post_features(train), post_features(timelines)
    # No post has one before it where each timeline is a single post.
    present = known[labels >= 0].dropna(axis="columns", how="all").columns
    features = [name for name in asked if name in present]
    share_known, share_asked = held_out_posts(train), held_out_posts(timelines)
    probabilities = np.zeros((len(asked), num_labels))
    for share in np.unique(share_asked):
        own, learned = share_asked == share, (share_known != share) | (share == NOBODY)
        pair = known.loc[learned, features], labels[learned], asked.loc[own, features]
        probabilities[own] = ask_trees(*pair, num_labels, max_depth=2, max_iter=40, random_state=0)
    return probabilities, features


def boosted_trees(
    train: Dataset, timelines: Dataset, known: np.ndarray, asked: np.ndarray, num_labels: int, seed: int = 0
) -> np.ndarray:
    """What trees that read pairs of vectors (posts, hidden) say of `timelines`; a post that is not read has 0."""
    read = known[known.any(axis=1)]
    components = PCA(min(COMPONENTS, *read.shape), random_state=seed).fit(read)
    features = pair_features(train, known, components), pair_features(timelines, asked, components)
    return ask_trees(features[0], labels_of(train), features[1], num_labels, random_state=seed)


def ask_trees(known: Any, labels: np.ndarray, asked: Any, num_labels: int, **settings: Any) -> np.ndarray:
    """What trees that have learned from the labelled posts among `known` say of those `asked` (posts, num_labels)."""
    trees = HistGradientBoostingClassifier(class_weight="balanced", **settings)
    trees.fit(known[labels >= 0], labels[labels >= 0])
    probabilities = np.zeros((len(asked), num_labels))
    # For a single class scikit-learn returns two columns: that class, and nothing.
    probabilities[:, trees.classes_] = trees.predict_proba(asked)[:, : len(trees.classes_)]
    return probabilities


def pair_features(timelines: Dataset, vectors: np.ndarray, components: PCA) -> np.ndarray:
    """
    Principal components of a post's vector and of the previous one's, their difference, their cosine and that with the
    mean of all before, position and times; NaN where there is no post before it.
    """
    place = post_features(timelines)
    is_first = (place["position"] == 0).to_numpy()
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    sums = pd.DataFrame(units).groupby(is_first.cumsum()).cumsum().to_numpy() - units
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


def post_features(timelines: Dataset) -> pd.DataFrame:
    """What is known of each post without its text: `position`, and with times seconds and `hour` of the day (UTC)."""
    timed = "timestamps" in timelines.column_names
    posts = pd.Series(timelines["timestamps" if timed else "labels"]).explode().astype(np.float64)
    of_timeline = posts.groupby(level=0)
    features = pd.DataFrame({"position": of_timeline.cumcount()})
    if timed:
        features["seconds_since_previous"] = of_timeline.diff()
        features["seconds_since_first"] = posts - of_timeline.transform("first")
        features["hour"] = posts % DAY / HOUR
    return features.reset_index(drop=True)
