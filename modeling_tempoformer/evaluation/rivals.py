"""Compares a model with cheap baselines, its rivals, on the same posts: the largest class, and boosted trees."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier

from ..timeline_tempoformer import Timeline
from .metrics import compute_scores
from .predictions import Predictions, all_labels
from .significance import paired_bootstrap


DAY, HOUR = 86_400, 3_600  # seconds
# Number of principal components of a post's vector that trees read
COMPONENTS = 48
# The member of timelines that are in no held-out fold
NOT_HELD_OUT = -1


def learn_rivals(
    timelines: Sequence[Timeline],
    num_labels: int,
    train: Sequence[Timeline] | None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """
    Trains rivals.

    Args:
        timelines (`Sequence[Timeline]`): The timelines that they predict.
        num_labels (`int`): Number of classes.
        train (`Sequence[Timeline]`, *optional*): The training timelines; without them there are no rivals.
        vectors (`tuple[np.ndarray, np.ndarray]`, *optional*): Vectors (posts, hidden) of the posts of `train` and of
            `timelines`, which boosted trees read.

    Returns the probabilities (posts, num_labels) of the labelled posts, and facts, of each rival by name.
    """
    if train is None or len(set(all_labels(train)) - {-100}) < 2:
        return {}
    labelled = all_labels(timelines) >= 0
    probabilities, features = position_and_time(train, timelines, num_labels)
    rivals = {"position_and_time": (probabilities[labelled], {"features": features})}
    if vectors is not None:
        rivals["trees"] = boosted_trees(train, timelines, *vectors, num_labels)[labelled], {}
    return rivals


def compare(posts: Predictions, rivals: Mapping[str, tuple[np.ndarray, dict[str, Any]]]) -> dict[str, Any]:
    """
    Compares the macro F1 of predictions with that of rivals, each by its most probable class.

    Args:
        posts ([`Predictions`]): Predictions of labelled posts.
        rivals (`dict[str, tuple[np.ndarray, dict]]`): The results of [`learn_rivals`] for the same posts.

    Returns:
        `macro_f1_interval`, and `compared_with`: of the larger class and of each rival the macro F1, its difference
        from the model's, and the interval of the difference. Intervals are over timelines, and are left out if only
        one timeline has labels.
    """
    larger = np.bincount(posts.labels).argmax()
    against = {
        "larger_class": {"class": posts.names[larger], **compare_with(posts, np.full(len(posts.labels), larger))}
    }
    against |= {name: facts | compare_with(posts, shares.argmax(-1)) for name, (shares, facts) in rivals.items()}
    # Without any prediction macro F1 is 0, so that the difference is the model's own score.
    alone = compare_with(posts, np.full(len(posts.labels), -1)).get("difference_interval")
    return ({} if alone is None else {"macro_f1_interval": alone}) | {"compared_with": against}


def compare_with(posts: Predictions, ids: np.ndarray) -> dict[str, Any]:
    """
    Returns the `macro_f1` of other class ids (posts,) of the same posts, the `difference` of the predictions' own
    from it, and, if several timelines have labels, the `difference_interval` over timelines.
    """
    ours, theirs = (
        compute_scores(Predictions(posts.labels, each, posts.names))["macro_f1"] for each in (posts.predictions, ids)
    )
    scores = {"macro_f1": theirs, "difference": ours - theirs}
    if len(set(posts.timelines)) > 1:
        test = paired_bootstrap(posts.labels, posts.predictions, ids, posts.timelines, len(posts.names))
        scores["difference_interval"] = test["interval"]
    return scores


def position_and_time(
    train: Sequence[Timeline], timelines: Sequence[Timeline], num_labels: int
) -> tuple[np.ndarray, list[str]]:
    """
    The probabilities (posts, num_labels) that small trees, which do not read texts, give to the posts of `timelines`,
    and the features that both splits have. Posts of a held-out fold are classified by trees that have not learned
    from this fold.
    """
    labels, train_features, features = all_labels(train), post_features(train), post_features(timelines)
    # If each timeline is a single post, no post has a previous one.
    present = train_features[labels >= 0].dropna(axis="columns", how="all").columns
    names = [name for name in features if name in present]
    train_members, members = held_out_posts(train), held_out_posts(timelines)
    probabilities = np.zeros((len(features), num_labels))
    for member in np.unique(members):
        asked, learned = members == member, (train_members != member) | (member == NOT_HELD_OUT)
        probabilities[asked] = fit_and_predict(
            train_features.loc[learned, names],
            labels[learned],
            features.loc[asked, names],
            num_labels,
            max_depth=2,
            max_iter=40,
            random_state=0,
        )
    return probabilities, names


def boosted_trees(
    train: Sequence[Timeline],
    timelines: Sequence[Timeline],
    train_vectors: np.ndarray,
    vectors: np.ndarray,
    num_labels: int,
    seed: int = 0,
) -> np.ndarray:
    """
    The probabilities (posts, num_labels) that trees, which read pairs of vectors (posts, hidden), give to the posts of
    `timelines`. A training vector of a post that no row classifies is 0.
    """
    present = train_vectors[train_vectors.any(axis=1)]
    components = PCA(min(COMPONENTS, *present.shape), random_state=seed).fit(present)
    train_features = pair_features(train, train_vectors, components)
    features = pair_features(timelines, vectors, components)
    return fit_and_predict(train_features, all_labels(train), features, num_labels, random_state=seed)


def fit_and_predict(
    train_features: Any, labels: np.ndarray, features: Any, num_labels: int, **settings: Any
) -> np.ndarray:
    """The probabilities (posts, num_labels) from trees that learn from the labelled training posts."""
    trees = HistGradientBoostingClassifier(class_weight="balanced", **settings)
    trees.fit(train_features[labels >= 0], labels[labels >= 0])
    probabilities = np.zeros((len(features), num_labels))
    # For a single class, scikit-learn returns two columns: that class, and an empty one.
    probabilities[:, trees.classes_] = trees.predict_proba(features)[:, : len(trees.classes_)]
    return probabilities


def pair_features(timelines: Sequence[Timeline], vectors: np.ndarray, components: PCA) -> np.ndarray:
    """
    The features of each post and the previous one: the principal components of both vectors, their difference, the
    cosine of the vector with the previous one and with the mean of all earlier ones, position and times. They are NaN
    where there is no previous post.
    """
    position_and_times = post_features(timelines)
    is_first = (position_and_times["position"] == 0).to_numpy()
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    sums = pd.DataFrame(units).groupby(is_first.cumsum()).cumsum().to_numpy() - units
    before = np.roll(units, 1, axis=0)
    cosines = [(units * before).sum(1), (units * sums).sum(1) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)]
    newest = components.transform(vectors)
    previous = np.roll(newest, 1, axis=0)
    steps = np.column_stack((previous, newest - previous, *cosines))
    steps[is_first] = np.nan
    return np.column_stack((newest, steps, position_and_times))


def held_out_posts(timelines: Sequence[Timeline]) -> np.ndarray:
    """The member that does not learn from each post (posts,), or [`NOT_HELD_OUT`]."""
    members = [NOT_HELD_OUT if timeline.held_out is None else timeline.held_out for timeline in timelines]
    return np.repeat(members, list(map(len, timelines)))


def post_features(timelines: Sequence[Timeline]) -> pd.DataFrame:
    """The features of each post without its text: `position`, and with times seconds and `hour` of the day (UTC)."""
    timed = timelines[0].timestamps is not None
    values = [timeline.timestamps if timed else timeline.labels for timeline in timelines]
    posts = pd.Series(values).explode().astype(np.float64)
    by_timeline = posts.groupby(level=0)
    features = pd.DataFrame({"position": by_timeline.cumcount()})
    if timed:
        features["seconds_since_previous"] = by_timeline.diff()
        features["seconds_since_first"] = posts - by_timeline.transform("first")
        features["hour"] = posts % DAY / HOUR
    return features.reset_index(drop=True)
