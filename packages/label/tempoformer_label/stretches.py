"""Chooses which posts to label: stretches of consecutive posts over many timelines."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np

from modeling_tempoformer import StreamClassificationPipeline, Timeline, class_names, decide_posts


logger = logging.getLogger(__name__)


class Stretch(NamedTuple):
    """
    Consecutive posts of a timeline that are to be labelled.

    Attributes:
        timeline (`int`): The number of the timeline.
        first, end (`int`): The position of its first post in the timeline, and that after its last post.
        by_model (`bool`): True if a model chose it, False if it was drawn at random.
    """

    timeline: int
    first: int
    end: int
    by_model: bool


def unlabelled_posts(timeline: Timeline) -> np.ndarray:
    """Returns a mask (posts,) of the posts that nobody has labelled."""
    metadata = timeline.metadata or [None] * len(timeline)
    return np.array(
        [label < 0 and not (one and one.labels) for label, one in zip(timeline.labels, metadata, strict=True)]
    )


def open_posts(timeline: Timeline) -> np.ndarray:
    """
    Returns a mask (posts,) of the posts that may be chosen: those that nobody has labelled, but the first post of the
    timeline, which cannot be a change.
    """
    return unlabelled_posts(timeline) & (np.arange(len(timeline)) > 0)


def group_of(timeline: Timeline) -> str:
    """Returns the most frequent group of a timeline's posts; empty without groups."""
    groups = Counter(metadata.group or "" for metadata in timeline.metadata or ())
    return max(sorted(groups), key=groups.__getitem__, default="")


def choose_stretches(
    posts: Sequence[np.ndarray],
    number: int,
    length: int,
    seed: int,
    groups: Sequence[str] | None = None,
    scores: Sequence[np.ndarray] | None = None,
    share_by_model: float = 0.0,
) -> list[Stretch]:
    """
    Chooses stretches. No timeline has two before each has one, if possible, and so on.

    Args:
        posts (`Sequence[np.ndarray]`): For each timeline a mask (posts,) of the posts that may be chosen.
        number (`int`): How many stretches are wanted; fewer are returned if there are no more.
        length (`int`): Posts in a stretch. Only the first one of a timeline may be shorter, if the timeline has
            nowhere as many posts in a row that may be chosen: then it is the longest run of them.
        seed (`int`): Seed of all that is drawn.
        groups (`Sequence[str]`, *optional*): The group of each timeline. Of each group the same share of the timelines
            is drawn.
        scores (`Sequence[np.ndarray]`, *optional*): For each timeline a number (posts,) for each post.
        share_by_model (`float`, *optional*, defaults to 0): Share of the stretches that are not drawn, but have the
            largest mean of the scores.

    Returns:
        `list[Stretch]` in an order that is drawn, so that whoever labels only a part labels a random part.
    """
    generator = np.random.default_rng(seed)
    left = [mask.copy() for mask in posts]
    counts = np.zeros(len(left), dtype=int)
    names = np.array([""] * len(left) if groups is None else list(groups), dtype=object)
    chosen: list[Stretch] = []

    def choose(wanted: int, by_model: bool):
        for before in count(counts.min(initial=0)):
            ready = {
                timeline: windows
                for timeline in np.flatnonzero(counts == before).tolist()
                if len(windows := windows_of(left[timeline], length, is_first=before == 0))
            }
            if by_model:
                best = {timeline: best_stretches(windows, scores[timeline]) for timeline, windows in ready.items()}
                order = sorted(ready, key=lambda timeline: (-best[timeline][0], timeline))
            else:
                members = np.array(list(ready), dtype=int)
                order = members[drawn_order(names[members], generator)].tolist()
            for timeline in order[: wanted - len(chosen)]:
                first, end = best[timeline][1] if by_model else generator.choice(ready[timeline]).tolist()
                left[timeline][first:end] = False
                counts[timeline] += 1
                chosen.append(Stretch(timeline, first, end, by_model))
            if len(chosen) == wanted or not (counts > before).any():
                return

    if scores is not None:
        choose(round(number * share_by_model), by_model=True)
    choose(number, by_model=False)
    return [chosen[place] for place in generator.permutation(len(chosen))]


def windows_of(mask: np.ndarray, length: int, is_first: bool) -> np.ndarray:
    """
    Returns the first position of each window of `length` posts that may all be chosen, and the position after it
    (windows, 2). If there is none, and a shorter one may be chosen because it `is_first`, returns the longest run.
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    begins, ends = edges[::2], edges[1::2]
    lengths = ends - begins
    if is_first and len(lengths) and lengths.max() < length:
        longest = lengths.argmax()
        return np.array([[begins[longest], ends[longest]]])
    starts = [np.arange(begin, end - length + 1) for begin, end in zip(begins, ends, strict=True)]
    starts = np.concatenate([np.empty(0, dtype=int), *starts])
    return np.stack([starts, starts + length], axis=1)


def best_stretches(windows: np.ndarray, scores: np.ndarray) -> tuple[float, list[int]]:
    """Returns the largest mean score (posts,) of windows (windows, 2), and the first such window."""
    sums = np.concatenate([[0], np.cumsum(scores)])
    means = (sums[windows[:, 1]] - sums[windows[:, 0]]) / (windows[:, 1] - windows[:, 0])
    return float(means.max()), windows[means.argmax()].tolist()


def drawn_order(groups: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Draws an order (members,) whose first members, however many, take about the same share of every group."""
    place = np.empty(len(groups))
    for group in sorted(set(groups)):
        members = generator.permutation(np.flatnonzero(groups == group))
        place[members] = (np.arange(len(members)) + generator.random()) / len(members)
    return np.argsort(place, kind="stable")


def change_scores(pipe: StreamClassificationPipeline, timelines: Sequence[Timeline]) -> list[np.ndarray]:
    """
    Asks a model where it expects a change.

    Args:
        pipe (`StreamClassificationPipeline`): The pipeline of the model, which has a watched class.
        timelines (`Sequence[Timeline]`): The posts.

    Returns:
        For each timeline the largest probability (posts,) of the watched class that one of the model's members gives:
        it is high where the model expects a change, and where its members disagree about one. A model without members
        gives its own.
    """
    config = pipe.model.config
    members = range(getattr(config, "num_members", 1))
    if len(members) > 1:
        read_vectors(pipe, timelines)
    members_timelines = [
        replace(timeline, held_out=member if len(members) > 1 else None)
        for timeline in timelines
        for member in members
    ]
    for _ in pipe(iter(members_timelines)):
        pass
    scores = []
    for start in range(0, len(members_timelines), len(members)):
        _, probabilities = decide_posts(members_timelines[start : start + len(members)], config.calibration)
        scores.append(probabilities[:, config.watched].reshape(len(members), -1).max(axis=0))
    return scores


def read_vectors(pipe: StreamClassificationPipeline, timelines: Sequence[Timeline]):
    """Attaches their posts' vectors to timelines, so that all members of a model read what was encoded once."""
    num_cut = 0
    for timeline in timelines:
        row, cut = timeline.tokenize(pipe.tokenizer, pipe.max_tokens)
        pipe.encode([row])
        timeline.vectors = row["post_embeds"]
        num_cut += cut
    if num_cut:
        num_posts = sum(map(len, timelines))
        logger.warning("Truncated %d of %d posts to %d tokens.", num_cut, num_posts, pipe.max_tokens)


def predict_labels(pipe: StreamClassificationPipeline, timelines: Sequence[Timeline]) -> list[list[str]]:
    """Returns for each timeline the label that a model gives each post, in the order of time."""
    for _ in pipe(iter(timelines)):
        pass
    names = class_names(pipe.model.config)
    return [
        [names[label] for label in decide_posts([timeline], pipe.model.config.calibration)[0]]
        for timeline in timelines
    ]
