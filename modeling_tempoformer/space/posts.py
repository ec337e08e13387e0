"""Posts as a person gives them to the app: a table, or one post on each line after its time."""

import csv
import io
import re

from datasets import Dataset

from ..data.files import cells_of_any_length


# What a page shows well and a small server computes in a minute or two.
MOST_POSTS = 2000
MOST_CHARACTERS = 1_000_000
# More than so many characters take in a request, whatever they are. What is longer is cut in the browser: it has too
# many characters nevertheless.
MOST_BYTES = 8 * MOST_CHARACTERS
SEPARATORS = "\t;,"
COLUMNS = ("timeline_id", "timestamp", "text", "label")
# More times than the reader of times takes: what it refuses must not become part of a text.
TIMED_LINE = re.compile(r"(\d{4}-\d\d?-\d\d?(?:[T ]+\d\d?:\d\d[\d:.]*(?: ?[+-]\d\d:?\d\d|Z)?)?)(?:[\s,;]+(.*))?")
FORMS = (
    "Write one post on each line after its time (2024-05-01 09:00 so happy today), or give a table whose first line "
    f"names its columns: text and, where there are any, {', '.join(name for name in COLUMNS if name != 'text')}"
)


@cells_of_any_length()
def parse_posts(text: str) -> Dataset:
    """
    The posts in a text, as rows for [`to_timelines`].

    Args:
        text (`str`): A table, separated by tabs, as a spreadsheet copies it, by semicolons or by commas. Its first
            line names the columns, with `text` among them; `timeline_id`, `timestamp` and `label` are read if they are
            there. Or one post on each line, after its time in ISO-8601. Without timeline ids all posts are one
            timeline.

    Returns:
        `Dataset`: One row for each post, with the columns that were named. Raises a `ValueError` for more than 2,000
        posts or 1,000,000 characters, and one that names the line for posts in neither form.
    """
    if len(text) > MOST_CHARACTERS:
        raise too_many(f"more than {MOST_CHARACTERS:,} characters")
    if "\ufffd" in text:
        raise ValueError('The file is not UTF-8: save it again as UTF-8 (in a spreadsheet: "CSV UTF-8").')
    text = text.removeprefix("\ufeff").strip("\r\n")
    if not text.strip():
        raise ValueError("There are no posts yet: open a file, or paste posts.")
    header = next(io.StringIO(text, newline=None))
    separator = next((mark for mark in SEPARATORS if mark in header), ",")
    names = [name.strip().lower() for name in next(csv.reader([header], delimiter=separator))]
    posts = read_table(text, separator, names) if "text" in names else read_lines(text)
    if len(posts) > MOST_POSTS:
        raise too_many(f"{len(posts):,} posts")
    return Dataset.from_list([{"timeline_id": "your posts", **post} for post in posts])


def too_many(found: str) -> ValueError:
    return ValueError(
        f"There are {found}; this page takes at most {MOST_POSTS:,} posts and {MOST_CHARACTERS:,} characters. For "
        "more, run run_timeline_view.py on your own machine."
    )


def read_table(text: str, separator: str, names: list[str]) -> list[dict[str, str]]:
    """The rows below the line of names; blank lines are left out."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    next(lines)
    if twice := sorted({name for name in names if names.count(name) > 1}.intersection(COLUMNS)):
        raise ValueError(f"The first line names the column {twice[0]} twice.")
    posts = []
    try:
        for cells in lines:
            if cells and len(cells) != len(names):
                raise ValueError(
                    f"Line {lines.line_num} has {len(cells)} cells and the first line names {len(names)} columns: "
                    "a text that holds the separator or a line break must be in double quotes."
                )
            if cells:
                posts.append({name: cell for name, cell in zip(names, cells, strict=True) if name in COLUMNS})
    except csv.Error as problem:
        raise ValueError(
            f"Line {lines.line_num}: {problem}; a text that holds double quotes must be in double quotes, its own "
            "written twice."
        ) from None
    if not posts:
        raise ValueError("The table has a first line and no posts below it.")
    return posts


def read_lines(text: str) -> list[dict[str, str]]:
    """The posts of lines that begin with a time; blank lines are left out."""
    posts = []
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if match := TIMED_LINE.fullmatch(line.strip()):
            posts.append({"timestamp": match[1], "text": match[2] or ""})
        elif line.strip():
            raise ValueError(f"Line {number} does not begin with a time. {FORMS}.")
    return posts
