"""Tells in which direction the rows of a file run, where there are no times, or several posts of one time."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from datasets import Dataset
from transformers.utils import logging

from ..common.columns import Columns, plain_name
from ..names_tempoformer import read_name, read_number
from ..timeline_tempoformer import Post


logger = logging.get_logger(__name__)

# Columns that number the posts of a timeline, or name the post that one answers
TURNS = ("turn", "turnid", "turnnumber", "turnindex", "utteranceindex", "messageindex", "position")
REPLIES = ("replyto", "inreplyto", "replytoid", "parentid")


def run_backwards(posts: Dataset, groups: Mapping[str, Sequence[Post]], columns: Columns) -> bool:
    """
    Tells whether the rows of a file run from the newest post to the oldest: some timelines do, by their times or
    else by a column of turns or of answers, and none runs forward. Warns of files that run both ways, with the number
    of posts whose place is then not known.

    Args:
        posts (`Dataset`): The rows.
        groups (`Mapping[str, Sequence[Post]]`): The posts of each timeline, in the order of their rows.
        columns ([`Columns`]): The columns that were found.
    """
    timed = any(post.timestamp is not None for group in groups.values() for post in group[:1])
    if timed:
        ways = [directions([post.timestamp for post in group]) for group in groups.values()]
        ties = 0
        for way, group in zip(ways, groups.values(), strict=True):
            if len(way) == 2:
                ties += len(group) - len({post.timestamp for post in group})
        if ties:
            logger.warning_once(
                f"{ties} posts have the time of another post of their timeline, whose rows are in no order of time: "
                "posts of one time keep the order of the file. Sort the file, or give times of day."
            )
        return {-1} in ways and {1} not in ways
    named = {plain_name(name): name for name in posts.column_names}
    turns, replies = (next((named[name] for name in names if name in named), None) for names in (TURNS, REPLIES))
    if turns is not None:
        values = posts[turns]
        numbers = [[read_number(read_name(values[post.row])) for post in group] for group in groups.values()]
        steps = [step for group in numbers if None not in group for step in pairwise(group)]
    elif replies is not None and (id_column := columns.get("id") or named.get("id")) is not None:
        ids, answered, steps = posts[id_column], posts[replies], []
        for group in groups.values():
            place = {read_name(ids[post.row]): number for number, post in enumerate(group)}
            known = [(place.get(read_name(answered[post.row])), number) for number, post in enumerate(group)]
            steps += [step for step in known if step[0] is not None]
    else:
        return False
    forward, back = (sum((one < other) == is_forward for one, other in steps if one != other) for is_forward in (1, 0))
    if back:
        sentence = (
            f"{back} of them are before an earlier one" if forward else "they are read from its end to its beginning"
        )
        logger.warning_once(
            f"The posts have no times, and by the column {turns or replies!r} they are not in the order of the file: "
            f"{sentence}{', and stay so: sort the file by it' if forward else ''}."
        )
    return bool(back) and not forward


def directions(times: Sequence[float]) -> set[int]:
    """Returns the directions, 1 and -1, in which times that follow each other change."""
    return {1 if other > one else -1 for one, other in pairwise(times) if one != other}
