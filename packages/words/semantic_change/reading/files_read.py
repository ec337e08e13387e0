"""A table of the files of a corpus: the date of each, where it was found, and the time that it belongs to."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from modeling_tempoformer import read_date
from modeling_tempoformer.common.files import written_whole
from modeling_tempoformer.common.markdown import escape_control_characters

from .passages import Origin, Passage


FILES = "files.csv"
# The period of texts that are left out, and the place of a date that was not found
NONE = "none"
# The number of files that are named in a line, and of the places of dates
NUM_NAMED = 5


def age(date: str) -> tuple[bool, tuple[int, ...], str]:
    """A key that sorts dates, those that cannot be read last."""
    parts = read_date(date)
    return parts is None, parts or (), date


class FilesRead:
    """
    Counts the texts of each file, work and time, and keeps their first and last date.

    Args:
        paths (`Iterable[str | Path]`): The corpora. Files of one name in several folders keep the folders' names.
    """

    def __init__(self, paths: Iterable[str | Path]):
        folders = {path: os.path.abspath(path if Path(path).is_dir() else Path(path).parent) for path in paths}
        around = os.path.commonpath(folders.values())
        self.folders = {path: Path(os.path.relpath(folder, around)) for path, folder in folders.items()}
        self.counts: Counter[tuple[str | Path, Origin, str | None]] = Counter()
        self.dates: dict[tuple[str | Path, Origin, str | None], set[str]] = {}

    def add(self, path: str | Path, passage: Passage, time: str | None):
        """Counts a text of a corpus, which belongs to a time or to none."""
        key = path, passage.origin, time
        self.counts[key] += 1
        self.dates.setdefault(key, set()).add(passage.date)

    def table(self) -> pd.DataFrame:
        """
        Returns a row for each file, work and time, in the order of reading: `file`, `first_date` and `last_date` (as
        they are written; empty if there is none), `date_found` (where), `author`, `title`, `period` and `texts`.
        """
        rows = []
        for key, count in self.counts.items():
            (path, origin, time), dates = key, sorted(self.dates[key], key=age)
            found = {"date_found": origin.date_found or NONE, "author": origin.author, "title": origin.title}
            file = (self.folders[path] / origin.file).as_posix()
            named = {"file": file, "first_date": dates[0], "last_date": dates[-1]}
            rows.append(named | found | {"period": NONE if time is None else time, "texts": count})
        return pd.DataFrame(rows)


def write_files(folder: Path, table: pd.DataFrame):
    """Writes the table of [`FilesRead`] to `files.csv`."""
    with written_whole(folder / FILES) as partial:
        table.to_csv(partial, index=False)


def describe_files(table: pd.DataFrame) -> str:
    """Describes the table of [`FilesRead`] in a line for the files, one for the places of dates, and one for times."""
    number, texts = table["file"].nunique(), table["texts"].sum()
    lines = [f"Read {count(number, 'file')} with {count(texts, 'text')}; {FILES} has the date and period of each."]
    places = table.groupby("date_found")["file"].nunique().sort_values(ascending=False, kind="stable")
    parts = [f"{place}: {count(files, 'file')}" for place, files in places.items() if place != NONE]
    parts = [*parts[:NUM_NAMED], *([f"{len(parts) - NUM_NAMED} other places"] if len(parts) > NUM_NAMED else [])]
    if undated := table.loc[table["date_found"] == NONE, "file"].unique().tolist():
        parts.append(f"{NONE}: {count(len(undated), 'file')} ({first_few(undated)})")
    lines.append(f"Places of dates: {'; '.join(parts)}.")
    parts = []
    for period, rows in table.groupby("period", sort=False):
        named = ""
        if period == NONE:
            spans = (f"{row.file} {row.first_date}".strip() for row in rows.itertuples())
            named = f" ({first_few(list(spans))})"
        parts.append(f"{period}: {count(rows['file'].nunique(), 'file')}, {count(rows['texts'].sum(), 'text')}{named}")
    lines.append(f"Periods: {'; '.join(parts)}.")
    return "\n".join(map(escape_control_characters, lines))


def count(number: int, name: str) -> str:
    """Returns a number with what it counts."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def first_few(names: Iterable[str]) -> str:
    """Joins the first few names."""
    names = list(names)
    return ", ".join([*names[:NUM_NAMED], *(["…"] if len(names) > NUM_NAMED else [])])
