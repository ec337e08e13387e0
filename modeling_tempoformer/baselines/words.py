"""A logistic regression of the words and letters of the post alone, without its timeline."""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_union

from ..evaluation.predictions import all_labels, timeline_numbers
from ..timeline_tempoformer import Timeline
from .features import NOT_HELD_OUT, at_most, held_out_posts


# Words with single letters, signs and emoji
WORD = r"\w+|[^\w\s]"
WORDS, LETTERS = (1, 2), (2, 5)  # lengths of sequences
STRENGTHS = (0.1, 1.0, 10.0)  # inverse L2 penalties
WORD_FOLDS = 3


def predict(train: Sequence[Timeline], timelines: Sequence[Timeline], num_labels: int) -> np.ndarray:
    """
    Returns the probabilities (posts, num_labels) that a logistic regression of each post's words, without its
    timeline, gives to the posts of `timelines`: of tf-idf of words and pairs of words, and of two to five letters
    within words. Its penalty is chosen for macro F1 on timelines that are held out of `train`. It learns from
    20,000 posts at most. Posts that are `held_out` in training are classified by a regression that has not learned
    from them.
    """
    labels, texts, numbers = all_labels(train), texts_of(train), timeline_numbers(train)
    learned = at_most(np.flatnonzero(labels >= 0))
    words = make_union(
        TfidfVectorizer(token_pattern=WORD, ngram_range=WORDS, sublinear_tf=True),
        TfidfVectorizer(analyzer="char_wb", ngram_range=LETTERS, sublinear_tf=True),
    )
    # The texts alone tell nothing about labels, so that all members share them.
    features, given = (
        words.fit_transform(texts[learned]).tocsr(),
        words.transform(texts_of(timelines)).tocsr(),
    )
    labels, numbers, train_members = labels[learned], numbers[learned], held_out_posts(train)[learned]
    members = held_out_posts(timelines)
    probabilities = np.zeros((given.shape[0], num_labels))
    for member in np.unique(members):
        part, is_held_out = np.flatnonzero((train_members != member) | (member == NOT_HELD_OUT)), members == member
        regression = fit_regression(features[part], labels[part], numbers[part])
        probabilities[np.ix_(is_held_out, regression.classes_)] = regression.predict_proba(given[is_held_out])
    return probabilities


def fit_regression(features: csr_matrix, labels: np.ndarray, numbers: np.ndarray) -> LogisticRegression:
    """
    Fits a logistic regression with the penalty that has the largest macro F1 on held-out timelines. `numbers` (posts,)
    tell the timeline of each post.
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
