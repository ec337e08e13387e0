"""Posts as a person gives them to the app: a table, or one post on each line after its time."""

import re

from datasets import Dataset

from ..data.tables import find_separator, read_csv


# What a page shows well and a small server computes in a minute or two.
MOST_POSTS = 2000
MOST_CHARACTERS = 1_000_000
# More times than the reader of times takes: what it refuses must not become part of a text.
TIMED_LINE = re.compile(
    r"((?:\d{4}-\d\d?-\d\d?|\d\d?\.\d\d?\.\d{4})(?:[T ]+\d\d?:\d\d[\d:.]*(?: ?[+-]\d\d:?\d\d|Z)?)?)(?:[\s,;]+(.*))?"
)


def parse_posts(text: str) -> Dataset:
    """
    The posts in a text, as rows for [`to_timelines`].

    Args:
        text (`str`): A table, separated by tabs, as a spreadsheet copies it, by semicolons or by commas. Its first
            line names the columns, with `text` among them; `timeline_id`, `timestamp`, `label` and `speaker` are read
            if they are there. Or one post on each line, after its time in ISO-8601. Without timeline ids all posts are
            one timeline.

    Returns:
        `Dataset`: One row for each post, with the columns that were named. Raises a `ValueError` for no posts, more
        than 2,000 posts or 1,000,000 characters, and one that names the line for posts in neither form.
    """
    header = text.strip().partition("\n")[0].lower()
    is_table = "text" in (name.strip(' "') for name in header.split(find_separator(header)))
    posts = read_table(text) if is_table else read_lines(text)
    if not posts:
        raise ValueError("There are no posts yet: paste some.")
    if len(posts) > MOST_POSTS or len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"There are {len(posts):,} posts of {len(text):,} characters together, and this page takes at most "
            f"{MOST_POSTS:,} and {MOST_CHARACTERS:,}: for more, run run_timeline_view.py on your own machine."
        )
    return Dataset.from_list([{"timeline_id": "your posts", **post} for post in posts])


def read_table(text: str) -> list[dict[str, str]]:
    """The rows below the line of names."""
    rows = [row for table in read_csv("the table", text.lstrip("\r\n")) for row in table.to_pylist()]
    return [{name.strip().lower(): cell for name, cell in row.items()} for row in rows]


def read_lines(text: str) -> list[dict[str, str]]:
    """The posts of lines that begin with a time; blank lines are left out."""
    posts = []
    for number, line in enumerate(text.split("\n"), 1):
        if match := TIMED_LINE.fullmatch(line.strip()):
            posts.append({"timestamp": match[1], "text": match[2] or ""})
        elif line.strip():
            raise ValueError(
                f"Line {number} does not begin with a time. Write one post on each line after its time (2024-05-01 "
                "09:00 so happy today), or give a table whose first line names its columns: text and, where there are "
                "any, timeline_id, timestamp, label."
            )
    return posts
