"""Reads the posts that a person gives to the app: a table, or one post on each line after its time."""

import re

from datasets import Dataset

from modeling_tempoformer.common.columns import find_column
from modeling_tempoformer.common.files import find_separator
from modeling_tempoformer.posts.tables import TIMELINE, read_pasted


MOST_POSTS = 2000  # what a page shows well and a small server computes in a minute or two
# Accepts more than the reader of times, so that a time that is refused does not become part of a text.
TIMED_LINE = re.compile(
    r"((?:\d{4}-\d\d?-\d\d?|\d\d?\.\d\d?\.\d{4})(?:[T ]+\d\d?:\d\d[\d:.]*(?: ?[+-]\d\d:?\d\d|Z)?)?)(?:[\s,;]+(.*))?"
)


def parse_posts(text: str) -> Dataset:
    """
    Returns the posts in a text, as rows for [`read_timelines`].

    Args:
        text (`str`): A table, or one post on each line after its time. The first line of a table names the columns,
            `text` among them, separated as in a CSV file. Without timeline ids, all posts are one
            timeline.

    Raises a `ValueError` without posts, for more than 2,000 posts, and for a line that is in neither form.
    """
    header = text.strip().partition("\n")[0]
    if find_column(header.split(find_separator(header)), "text", "text") is not None:
        posts = [row for table in read_pasted(text.lstrip("\r\n"), "the table") for row in table.to_pylist()]
    else:
        posts = read_lines(text)
    if not posts:
        raise ValueError("There are no posts yet: paste some.")
    if len(posts) > MOST_POSTS:
        raise ValueError(
            f"There are {len(posts):,} posts, and this page takes at most {MOST_POSTS:,}: for more, run "
            "tempoformer view on your own machine."
        )
    if find_column(posts[0], TIMELINE, "timeline") is None:
        posts = [{TIMELINE: "your posts", **post} for post in posts]
    return Dataset.from_list(posts)


def read_lines(text: str) -> list[dict[str, str]]:
    """Returns the posts of lines that begin with a time. Blank lines are skipped."""
    posts = []
    for number, line in enumerate(text.split("\n"), 1):
        if match := TIMED_LINE.fullmatch(line.strip()):
            posts.append({"timestamp": match[1], "text": match[2] or ""})
        elif line.strip():
            raise ValueError(
                f"Line {number} does not begin with a time, as in 2024-05-01 09:00 so happy today, and the first line "
                "does not name the columns of a table, with text among them."
            )
    return posts
