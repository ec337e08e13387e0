"""Speeches and addresses of presidents of the United States, sentence by sentence, 1790 to 2020."""

import csv
from collections.abc import Iterator
from pathlib import Path

from ..files import open_text


def read_speeches(path: str | Path) -> Iterator[dict[str, str]]:
    """
    Sentences of a table with the columns `year` and `text` (`.tsv` or `.tsv.gz`; quotes have no meaning): the year as
    `time`, and `text`. Raises a `ValueError` that names the line of a year that is not a number.
    """
    with open_text(path, newline="") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if missing := {"year", "text"} - set(lines.fieldnames or ()):
            raise ValueError(f"{path} has no column {', '.join(sorted(missing))}.")
        for number, line in enumerate(lines, 2):
            if not line["year"].isdigit():
                raise ValueError(f"{path}, line {number}: the year {line['year']!r} is not a number.")
            yield {"time": line["year"], "text": line["text"]}
