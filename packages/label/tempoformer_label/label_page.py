"""
The page on which a person labels posts: a stretch of posts with its context, and a key for each class. The page saves
a table that a training reads.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modeling_tempoformer import Timeline, are_since_start
from modeling_tempoformer.common.labelling_fields import ANNOTATOR
from modeling_tempoformer.common.pages import render_page
from modeling_tempoformer.common.silences import find_silences

from .disagreements import Agreement
from .label_files import CANNOT_SAY, NOTE, YES


# Posts before a stretch that the page shows at first
CONTEXT = 10
# The most posts between the first and the last one of a stretch that the page makes itself
LONGEST = 20
# Keys of the page that no class has
CANNOT_SAY_KEY, HELP_KEY = "-", "?"
DIGITS = "123456789"


def label_page(
    timelines: Sequence[Timeline],
    names: Sequence[str],
    stretches: Sequence[tuple[int, Sequence[int]]],
    title: str = "Label posts",
    name: str = "posts",
    guideline: str = "",
    agreement: Agreement | None = None,
) -> str:
    """
    Renders the page on which posts are labelled, as one HTML file that makes no request to any server.

    Args:
        timelines (`Sequence[Timeline]`): Posts, with [`Cells`] as metadata.
        names (`Sequence[str]`): The classes in the order of their ids.
        stretches (`Sequence[tuple[int, Sequence[int]]]`): What is labelled: the number of a timeline, and the
            positions of posts in it.
        title (`str`, *optional*, defaults to `"Label posts"`): Heading of the page.
        name (`str`, *optional*, defaults to `"posts"`): Begins the name of the file that the page saves.
        guideline (`str`, *optional*): A text that the page shows beside the posts.
        agreement ([`Agreement`], *optional*): How far annotators agree, where the page asks about their differences.
    """
    cells = {
        row: cells for timeline in timelines for row, cells in zip(timeline.input_rows, timeline.metadata, strict=True)
    }
    place = {row: index for index, row in enumerate(sorted(cells))}
    columns = dict.fromkeys(column for row in sorted(cells) for column in cells[row].cells)
    columns = [*columns, *(name for name in ("label", CANNOT_SAY, NOTE, ANNOTATOR) if name not in columns)]
    rows = [[cells[row].cells.get(column, "") for column in columns] for row in sorted(cells)]
    times = [time for timeline in timelines for time in timeline.timestamps or ()]
    data = {
        "name": name,
        "classes": [{"name": name, "keys": keys} for name, keys in zip(names, label_keys(names), strict=True)],
        "cannot_say": {"key": CANNOT_SAY_KEY, "cell": YES},
        "columns": columns,
        "rows": rows,
        "timelines": [pack_labelled(timeline, place) for timeline in timelines],
        "stretches": [{"timeline": number, "posts": list(posts)} for number, posts in stretches],
        "context": CONTEXT,
        "dated": bool(times) and not are_since_start(min(times), max(times)),
        "given": [] if agreement is None else given_labels(timelines, stretches, names, place),
    }
    # What a browser keeps of a page belongs to these posts, labels and classes.
    data["id"] = hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]
    values = {"title": title, "guideline": guideline, "agreement": agreement, "dated": data["dated"]}
    return render_page("label_page.html.jinja", data, None, Path(__file__).parent, **values)


def pack_labelled(timeline: Timeline, place: dict[int, int]) -> dict[str, Any]:
    """Packs a timeline for the page's script: the index of each post's row, and its time, in the order of time."""
    times = timeline.timestamps
    return {
        "id": str(timeline.timeline_id),
        "rows": [place[row] for row in timeline.input_rows],
        "speakers": timeline.speakers,
        "times": None if times is None else [round(time, 3) for time in times],
        "silences": [] if times is None else find_silences(times)[1],
    }


def given_labels(
    timelines: Sequence[Timeline],
    stretches: Sequence[tuple[int, Sequence[int]]],
    names: Sequence[str],
    place: dict[int, int],
) -> list[dict[str, Any]]:
    """Returns the row of each post to be labelled, with the label and the note of each annotator."""
    given = []
    for number, posts in stretches:
        for post in posts:
            cells = timelines[number].metadata[post]
            classes = {annotator: names[label] for annotator, label in cells.labels.items()}
            by = [
                {"annotator": annotator, "label": classes.get(annotator, ""), "note": cells.notes.get(annotator, "")}
                for annotator in sorted({*classes, *cells.notes})
            ]
            given.append({"row": place[timelines[number].input_rows[post]], "by": by})
    return given


def make_stretches(timelines: Sequence[Timeline], posts: Sequence[Sequence[int]]) -> list[tuple[int, list[int]]]:
    """
    Divides posts, given by their positions in each timeline, into stretches: a new one begins after many posts between
    two, and where it would be too long for a page.
    """
    stretches: list[tuple[int, list[int]]] = []
    for number in range(len(timelines)):
        current: list[int] = []
        for post in posts[number]:
            if not current or post - current[-1] > CONTEXT or post - current[0] >= LONGEST:
                current = []
                stretches.append((number, current))
            current.append(post)
    return stretches


def label_keys(names: Sequence[str]) -> list[list[str]]:
    """
    Returns the keys of each class: a digit, and its first letter if no other class begins with it. The key of a class
    that is named by one digit is that digit.
    """
    digit_names = {name for name in names if len(name) == 1 and name in f"0{DIGITS}"}
    digits = iter(sorted(set(DIGITS) - digit_names))
    first = [name[0].lower() for name in names]
    keys = []
    for name, letter in zip(names, first, strict=True):
        of_class = [name] if name in digit_names else [digit for digit in [next(digits, None)] if digit is not None]
        if letter.isalpha() and first.count(letter) == 1:
            of_class.append(letter)
        keys.append(of_class)
    return keys
