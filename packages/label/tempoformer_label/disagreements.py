"""Compares the labels that several annotators gave the same posts, and finds the posts on which they differ."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from modeling_tempoformer import Post, Timeline, krippendorff_alpha
from modeling_tempoformer.common.labelling_fields import ANNOTATOR

from .label_files import CANNOT_SAY, NOTE, YES, Cells, LabelFile


class Agreement(NamedTuple):
    """
    Measures of how far annotators agree.

    Attributes:
        annotators (`list[str]`): Their names.
        posts (`int`): The number of posts with several labels.
        same (`int`): The number of these whose labels are all the same.
        alpha (`float`, *optional*): Krippendorff's alpha of the labels, None if all are of one class.
    """

    annotators: list[str]
    posts: int
    same: int
    alpha: float | None

    def __str__(self) -> str:
        measured = "" if self.alpha is None else f"; Krippendorff's alpha is {self.alpha:.2f}"
        return (
            f"{', '.join(self.annotators)}: {self.posts} posts have several labels, and on {self.same} of them "
            f"({100 * self.same / self.posts:.0f} %) these are the same{measured}."
        )


def merge_files(files: Sequence[LabelFile], by_id: bool = False) -> list[Timeline]:
    """
    Returns the posts of all files as timelines, each post once, with the labels and notes of all annotators in its
    metadata. Posts are the same in two files if timeline and id are, or without `by_id` timeline, time and text; the
    second of the same ones in a file is the second in the others.
    """
    names = name_annotators(files)
    merged: dict[str, dict[tuple, Post]] = {}
    offset = 0
    for file, annotator in zip(files, names, strict=True):
        for timeline in file.timelines:
            known, seen = merged.setdefault(timeline.timeline_id, {}), Counter()
            times = timeline.timestamps or [None] * len(timeline)
            for post, (time, text) in enumerate(zip(times, timeline.texts, strict=True)):
                key = (timeline.post_ids[post],) if by_id else (time, text)
                seen[key] += 1
                key = (*key, seen[key])
                row, given = offset + timeline.input_rows[post], of_annotator(timeline, post, annotator)
                if (first := known.get(key)) is not None:
                    # Columns that the first file has not stand behind its own.
                    cells = {**first.metadata.cells, **given.cells, **first.metadata.cells}
                    given = Cells(cells, first.metadata.labels | given.labels, first.metadata.notes | given.notes)
                    row, text, time = first.row, first.text, first.timestamp
                known[key] = Post(row, text, time, speaker=given.cells.get("speaker"), metadata=given)
        offset += 1 + max((row for timeline in file.timelines for row in timeline.input_rows), default=0)
    return [Timeline.from_posts(timeline_id, list(posts.values())) for timeline_id, posts in merged.items()]


def name_annotators(files: Sequence[LabelFile]) -> list[str]:
    """Returns a name for the annotator of each file: the paths of the files if two have the same name."""
    names = [file.annotator for file in files]
    return names if len(set(names)) == len(names) else [file.path for file in files]


def of_annotator(timeline: Timeline, post: int, annotator: str) -> Cells:
    """Returns the cells of a post, with the label and the note of the only annotator of its file, or of several."""
    cells, labels, _ = timeline.metadata[post]
    if not labels and timeline.labels[post] >= 0:
        labels = {annotator: timeline.labels[post]}
    notes = [cells[NOTE]] if cells.get(NOTE) else []
    notes = ["cannot say", *notes] if cells.get(CANNOT_SAY) == YES else notes
    return Cells(cells, labels, {annotator: "; ".join(notes)} if notes else {})


def compare_annotators(timelines: Sequence[Timeline], names: Sequence[str]) -> Agreement:
    """
    Measures how far annotators agree, and gives each post the label that all of them gave.

    Args:
        timelines (`Sequence[Timeline]`): Posts with [`Cells`]. Their cells get a column of labels and one of notes for
            each annotator, no own note, and those who gave the label as annotators.
        names (`Sequence[str]`): The classes.

    Raises a `ValueError` if no post has several labels.
    """
    posts = [post for timeline in timelines for post in timeline.metadata]
    annotators = sorted({name for post in posts for name in (*post.labels, *post.notes)})
    noted = [name for name in annotators if any(name in post.notes for post in posts)]
    votes = np.zeros((len(posts), len(names)), dtype=int)
    for post, counts in zip(posts, votes, strict=True):
        np.add.at(counts, list(post.labels.values()), 1)
        agreed = is_agreed(post)
        post.cells.update({f"label_{name}": class_of(post, name, names) for name in annotators})
        post.cells.update({f"note_{name}": post.notes.get(name, "") for name in noted})
        post.cells.update(
            {
                "label": names[next(iter(post.labels.values()))] if agreed else "",
                CANNOT_SAY: YES if not post.labels and post.cells.get(CANNOT_SAY) == YES else "",
                NOTE: "",
                ANNOTATOR: ", ".join(post.labels) if agreed else "",
            }
        )
    several = votes.sum(axis=-1) > 1
    if not several.any():
        raise ValueError(
            "No post has labels of several annotators, so there is nothing to compare: posts are the same in two "
            "files if their timeline, time and text are."
        )
    same = int((votes[several].max(axis=-1) == votes[several].sum(axis=-1)).sum())
    return Agreement(annotators, int(several.sum()), same, krippendorff_alpha(votes))


def is_agreed(post: Cells) -> bool:
    """Tells whether a post has a label, and all annotators who labelled it gave the same."""
    return len(set(post.labels.values())) == 1


def class_of(post: Cells, annotator: str, names: Sequence[str]) -> str:
    """Returns the class that an annotator gave a post, an empty text for none."""
    return names[post.labels[annotator]] if annotator in post.labels else ""


def differing_posts(timelines: Sequence[Timeline]) -> list[list[int]]:
    """Returns the positions of the posts of each timeline on which annotators differ."""
    return [
        [post for post, cells in enumerate(timeline.metadata) if len(set(cells.labels.values())) > 1]
        for timeline in timelines
    ]
