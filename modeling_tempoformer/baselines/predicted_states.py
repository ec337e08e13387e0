"""A logistic regression that predicts the state of a post from its vector, and the change from two such states."""

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression

from ..evaluation.predictions import all_labels
from ..names_tempoformer import state_ids
from ..posts.states import StateNames, all_states, compared_places, count_changes
from ..timeline_tempoformer import Timeline
from .features import NOT_HELD_OUT, at_most, held_out_posts


MOST_ITERATIONS = 1000


def predict(
    train: Sequence[Timeline],
    timelines: Sequence[Timeline],
    num_labels: int,
    vectors: tuple[np.ndarray, np.ndarray],
    states: StateNames,
) -> np.ndarray:
    """
    Returns the probabilities (posts, num_labels) of classes that follow from predicted states. The class of a post is
    the most frequent one in training for its likeliest state and that of the post that it is compared with
    ([`Timeline.compared_posts`]): a change where the two differ, if labels are such changes. The class has half of the
    probability; the other half is divided by the probabilities of all pairs of states, and grades posts of one class.

    Args:
        train (`Sequence[Timeline]`): The timelines with states from which the regression learns, from 20,000 posts at
            most.
        timelines (`Sequence[Timeline]`): The timelines whose posts it classifies. Posts that are `held_out` in
            training are classified by a regression that has not learned from them.
        num_labels (`int`): Number of classes.
        vectors (`tuple[np.ndarray, np.ndarray]`): The vectors (posts, hidden) of the posts of `train`, 0 for a post
            that no row classifies, and of `timelines`.
        states ([`StateNames`]): The states to tell apart.
    """
    train_vectors, test_vectors = map(to_units, vectors)
    ids, labels = np.array(state_ids(all_states(train), *states)), all_labels(train)
    num_states = len(states.names)
    # The last state stands for no earlier post.
    train_pairs = np.column_stack((np.append(ids, num_states)[compared_places(train)], ids, labels))
    train_members, members, earlier = held_out_posts(train), held_out_posts(timelines), compared_places(timelines)
    known = (ids >= 0) & train_vectors.any(axis=1)
    probabilities = np.zeros((len(members), num_labels))
    for member in np.unique(members):
        is_held_out, learned = members == member, (train_members != member) | (member == NOT_HELD_OUT)
        posts = at_most(np.flatnonzero(learned & known))
        regression = LogisticRegression(max_iter=MOST_ITERATIONS).fit(train_vectors[posts], ids[posts])
        shares = np.zeros((len(members) + 1, num_states + 1))
        shares[:-1, regression.classes_] = regression.predict_proba(test_vectors)
        shares[-1, num_states] = 1
        table = count_changes(train_pairs[learned & (labels >= 0)], num_states, num_labels)
        previous, newest = shares[earlier][is_held_out], shares[:-1, :num_states][is_held_out]
        graded = np.einsum("pi,pj,ijc->pc", previous, newest, table)
        decided = table[previous.argmax(1), newest.argmax(1)].argmax(1)
        probabilities[is_held_out] = (np.eye(num_labels)[decided] + graded) / 2
    return probabilities


def to_units(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors (posts, hidden) with the length 1, and 0 for those that are 0."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
