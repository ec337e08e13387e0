"""Finds names in the columns of posts that look alike, and so are likely two spellings of one name."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from transformers.utils import logging

from ..names_tempoformer import ALIKE, appearance, look_alike, read_name, read_number
from ..timeline_tempoformer import NO_LABEL, Timeline
from .metadata import unit_of
from .post_errors import PostError


logger = logging.get_logger(__name__)

# The names that are compared, by the role of their column
PLURALS = {
    "timeline": "timelines",
    "speaker": "speakers",
    "state": "states",
    "group": "groups",
    "split": "values of the split column",
    "annotator": "annotators",
}
# The most names of a role that are remembered, so that a stream without an end does not fill the memory.
MOST_NAMES = 1_000_000
MOST_SHOWN = 5


class Spellings:
    """
    Compares the names of posts as they are read, within each role of a column. It warns of timelines, speakers,
    groups, units and annotators that look alike, because ids may differ in case alone; states are refused, as labels
    are. A stream is compared as far as it has been read, and up to a million different names of a role.
    """

    def __init__(self):
        self.names: dict[str, dict[str, str]] = {role: {} for role in PLURALS}
        self.alike: dict[str, dict[tuple[str, str], None]] = {role: {} for role in PLURALS}
        self.last: dict[str, str] = dict.fromkeys(PLURALS, "")

    def add(self, role: str, name: str, row: int, column: str):
        """Adds the name that a post has in a role. Raises a [`PostError`] for a state that looks like another one."""
        if name == self.last[role] or not name or (role == "state" and read_number(name) is not None):
            return
        self.last[role], names = name, self.names[role]
        look = appearance(name)
        first = names.get(look)
        if first is None and len(names) < MOST_NAMES:
            names[look] = name
        elif first is not None and first != name:
            if role == "state":
                raise PostError(row, column, name, f"it and {first!r}, an earlier state, {ALIKE}: write them alike")
            self.alike[role][first, name] = None

    def warn(self):
        """Warns of the names that look alike."""
        for role, pairs in self.alike.items():
            warn_of_pairs(PLURALS[role], list(pairs))


def warn_of_pairs(names: str, pairs: Sequence[tuple[str, str]]):
    """Warns of pairs of names that look alike, if there are any. `names` is their plural, such as timelines."""
    if pairs:
        shown = "; ".join(f"{one!r} and {other!r}" for one, other in pairs[:MOST_SHOWN])
        logger.warning_once(
            f"{names.upper()} COUNT AS DIFFERENT THAT {ALIKE}: {shown} ({len(pairs)} such pairs in all). If they are "
            "the same, write them alike in all files."
        )


def compare_splits(timelines: Mapping[str, Sequence[Timeline]]):
    """
    Compares the names of the timelines of several files, such as the ids in training and in test. Warns of names
    that look alike, and raises a `ValueError` for such states. Names of one file were compared when it was read.
    """
    for role in ("timeline", "split", "state"):
        splits_of: dict[str, set[str]] = defaultdict(set)
        for split, timelines_of_split in timelines.items():
            for name in {name for timeline in timelines_of_split for name in names_of(timeline, role)}:
                splits_of[name].add(split)
        groups = look_alike(splits_of)
        pairs = [pair for group in groups for pair in combinations(group, 2)]
        pairs = [(one, other) for one, other in pairs if splits_of[one].isdisjoint(splits_of[other])]
        if pairs and role == "state":
            one, other = pairs[0]
            where = " and ".join(min(splits_of[name]) for name in (one, other))
            raise ValueError(f"The states {one!r} and {other!r} (in {where}) {ALIKE}: write them alike.")
        warn_of_pairs(PLURALS[role], pairs)


def names_of(timeline: Timeline, role: str) -> Iterable[str]:
    """Returns the names that a timeline has in a role."""
    if role == "state":
        return [state for state in timeline.states or () if read_number(state) is None]
    kind, unit = unit_of(timeline)
    return [timeline.timeline_id] if role == "timeline" else [unit] * (kind == "unit")


def read_label(value: object) -> str:
    """Returns a label as [`read_name`] does; -100 is a missing label, too, and gives an empty text."""
    name = read_name(value)
    return "" if name == str(NO_LABEL) else name


def check_labels(names: Iterable[str]):
    """
    Raises a `ValueError` for names of classes that mean no label, or that are hard to tell apart.

    Args:
        names (`Iterable[str]`): The names.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        if not (label := read_label(name)):
            raise ValueError(f"A class cannot be named {name!r}, which means that a post has no label: rename it.")
        groups.setdefault(appearance(label), []).append(name)
    if same := [", ".join(map(repr, group)) for group in groups.values() if len(group) > 1]:
        raise ValueError(
            f"Labels that {ALIKE} are two classes: {'; '.join(same)}. Write them alike in all files, and name each "
            "once in --labels."
        )
