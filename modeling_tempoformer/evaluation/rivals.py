"""Compares a model with rivals that cost nothing, on the same posts: the larger class, trees, and words alone."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_union
from transformers import PreTrainedConfig

from ..timeline_tempoformer import Timeline
from .metrics import compute_scores
from .predictions import Predictions, all_labels, timeline_numbers
from .significance import paired_bootstrap


DAY, HOUR = 86_400, 3_600  # seconds
# Number of principal components of a post's vector that trees read
COMPONENTS = 48
# The member of timelines that are in no held-out fold
NOT_HELD_OUT = -1
# Words with single letters, signs and emoji
WORD = r"\w+|[^\w\s]"
WORDS, LETTERS = (1, 2), (2, 5)  # lengths of sequences
STRENGTHS = (0.1, 1.0, 10.0)  # inverse L2 penalties
WORD_FOLDS = 3
# With more posts, the regression of words would take longer than the training of the model
MOST_POSTS = 20_000


def learn_rivals(
    timelines: Sequence[Timeline],
    num_labels: int,
    train: Sequence[Timeline] | None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
    config: PreTrainedConfig | None = None,
) -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    """
    Trains rivals.

    Args:
        timelines (`Sequence[Timeline]`): The timelines that they predict.
        num_labels (`int`): Number of classes.
        train (`Sequence[Timeline]`, *optional*): The training timelines; without them there are no rivals.
        vectors (`tuple[np.ndarray, np.ndarray]`, *optional*): Vectors (posts, hidden) of the posts of `train` and of
            `timelines`, which boosted trees read.
        config (`PreTrainedConfig`, *optional*): That of the model. If it reads known states, so does one more rival.

    Returns the probabilities (posts, num_labels) of the labelled posts, and facts, of each rival by name.
    """
    if train is None or len(set(all_labels(train)) - {-100}) < 2:
        return {}
    labelled = all_labels(timelines) >= 0
    probabilities, features = position_and_time(train, timelines, num_labels)
    rivals = {"position_and_time": (probabilities[labelled], {"features": features})}
    # The later timelines of a stream keep no texts.
    with_texts = [timeline for timeline in train if timeline.texts]
    if len(set(all_labels(with_texts)) - {-100}) > 1:
        rivals["words"] = words_alone(with_texts, timelines, num_labels)[labelled], {}
    if getattr(config, "reads_known_states", False):
        rivals["history"] = position_and_time(train, timelines, num_labels, config)[0][labelled], {}
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
    train: Sequence[Timeline],
    timelines: Sequence[Timeline],
    num_labels: int,
    config: PreTrainedConfig | None = None,
) -> tuple[np.ndarray, list[str]]:
    """
    The probabilities (posts, num_labels) that small trees, which do not read texts, give to the posts of `timelines`,
    and the features that both splits have. With the `config` of a model that reads known states, so do the trees.
    Posts that are `held_out` in training are classified by trees that have not learned from them.
    """
    labels, train_features, features = all_labels(train), post_features(train), post_features(timelines)
    if config is not None:
        train_features, features = (
            pd.concat((part, history_features(posts, config)), axis=1)
            for part, posts in ((train_features, train), (features, timelines))
        )
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


def words_alone(train: Sequence[Timeline], timelines: Sequence[Timeline], num_labels: int) -> np.ndarray:
    """
    Returns the probabilities (posts, num_labels) that a logistic regression of each post's words, without its
    timeline, gives to the posts of `timelines`: of tf-idf of words and pairs of words, and of two to five letters
    within words. Its penalty is chosen for macro F1 on timelines that are held out of `train`. It learns from
    20,000 posts at most. Posts that are `held_out` in training are classified by a regression that has not learned
    from them.
    """
    labels, texts, numbers = all_labels(train), texts_of(train), timeline_numbers(train)
    learned = np.flatnonzero(labels >= 0)
    if len(learned) > MOST_POSTS:
        learned = np.random.default_rng(0).choice(learned, MOST_POSTS, replace=False)
    words = make_union(
        TfidfVectorizer(token_pattern=WORD, ngram_range=WORDS, sublinear_tf=True),
        TfidfVectorizer(analyzer="char_wb", ngram_range=LETTERS, sublinear_tf=True),
    )
    # The texts alone tell nothing about labels, so that all members share them.
    features, asked = words.fit_transform(texts[learned]).tocsr(), words.transform(texts_of(timelines)).tocsr()
    labels, numbers, train_members = labels[learned], numbers[learned], held_out_posts(train)[learned]
    members = held_out_posts(timelines)
    probabilities = np.zeros((asked.shape[0], num_labels))
    for member in np.unique(members):
        part, own = np.flatnonzero((train_members != member) | (member == NOT_HELD_OUT)), members == member
        regression = fit_words(features[part], labels[part], numbers[part])
        probabilities[np.ix_(own, regression.classes_)] = regression.predict_proba(asked[own])
    return probabilities


def fit_words(features: csr_matrix, labels: np.ndarray, numbers: np.ndarray) -> LogisticRegression:
    """
    Fits a logistic regression with the penalty that has the largest macro F1 on held-out timelines. `numbers` (posts,)
    are those of the timelines.
    """

    def fit(strength: float, posts: np.ndarray) -> LogisticRegression:
        regression = LogisticRegression(C=strength, class_weight="balanced", max_iter=200, tol=1e-3)
        return regression.fit(features[posts], labels[posts])

    parts = min(WORD_FOLDS, len(np.unique(numbers)))
    folds = list(StratifiedGroupKFold(parts).split(labels, labels, numbers)) if parts > 1 else []
    # A fold without one of two classes cannot teach.
    folds = [(learned, held_out) for learned, held_out in folds if len(np.unique(labels[learned])) > 1]

    def score(strength: float) -> float:
        scores = [
            f1_score(labels[held_out], fit(strength, learned).predict(features[held_out]), average="macro")
            for learned, held_out in folds
        ]
        return float(np.mean(scores)) if scores else 0.0

    return fit(max(STRENGTHS, key=score), np.arange(len(labels)))


def texts_of(timelines: Sequence[Timeline]) -> np.ndarray:
    """Returns the texts of all posts (posts,)."""
    return np.array([text for timeline in timelines for text in timeline.texts], dtype=object)


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


def history_features(timelines: Sequence[Timeline], config: PreTrainedConfig) -> pd.DataFrame:
    """
    The known states of earlier posts ([`Timeline.known_states`]) as features of each post: how many are known; the
    previous and the last one, the mean and the standard deviation; of classes the share of each.
    """
    known = np.concatenate([timeline.known_states(config).numpy() for timeline in timelines])
    counts, number = known[:, 2], known[:, 2].sum(1, keepdims=True)
    # Divisions by 0 give NaN, which trees read as missing.
    with np.errstate(invalid="ignore"):
        previous, last, shares = (part / part.sum(1, keepdims=True) for part in (known[:, 0], known[:, 1], counts))
    if config.state_values is None:
        return pd.DataFrame(np.concatenate((number, previous, last, shares), axis=1)).add_prefix("state_")
    values = np.array(config.state_values)
    mean = shares @ values
    spread = np.sqrt((shares * np.square(values - mean[:, None])).sum(1))
    columns = {"known": number[:, 0], "previous_state": previous @ values, "last_state": last @ values}
    return pd.DataFrame({**columns, "mean_state": mean, "spread_of_states": spread})


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
