"""Speeches and addresses of presidents of the United States, sentence by sentence, 1790 to 2020."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path


def read_speeches(path: str | Path) -> Iterator[dict[str, str]]:
    """
    Sentences of a table with the columns `year` and `text` (`.tsv` or `.tsv.gz`, tabs, quotes are literal): their
    year as `time`, and `text`. Raises a `ValueError` that names the line of a year that is no number.
    """
    path = Path(path)
    csv.field_size_limit(2**31 - 1)
    with (
        gzip.open(path, "rt", encoding="utf-8", newline="")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8", newline="") as file
    ):
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if missing := {"year", "text"} - set(lines.fieldnames or ()):
            raise ValueError(f"{path} has no column {', '.join(sorted(missing))}.")
        for number, line in enumerate(lines, 2):
            if not line["year"].isdigit():
                raise ValueError(f"{path}, line {number}: the year {line['year']!r} is no number.")
            yield {"time": line["year"], "text": line["text"]}
