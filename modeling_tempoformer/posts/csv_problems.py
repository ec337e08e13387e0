"""Says why the rows of a CSV file do not fit its first line."""

import csv
import re
from collections.abc import Sequence

from ..common.files import find_separator


QUOTED = (
    "a text with the separator, a quote or a line break must be quoted and its quotes doubled, not put after a "
    "backslash; or the file was cut short"
)
ROW_NAMES = "R leaves out its row names by row.names = FALSE, in write.csv and write.table"
# Lines that are looked at, and among them those that may stand before the names of the columns
LOOKED_AT, BEFORE = 1000, 30


def explain(lines: Sequence[str], separator: str, before: int = 0) -> str:
    """
    Returns what to do about a table in which a row differs from the first one in its number of cells, or a quote
    stands within a cell.

    Args:
        lines (`Sequence[str]`): The first lines of the table, at most [`LOOKED_AT`].
        separator (`str`): The separator of its cells.
        before (`int`, *optional*, defaults to 0): The number of lines before the table.
    """
    names, *rows = read_shape(lines, separator) or [[]]
    if re.search(rf'{re.escape(separator)} +"', "".join(lines)) and len(sizes(lines, separator)) == 1:
        return "a space stands before a quote, which is then no quote: write none after a separator"
    blanks = sizes(lines, " ") or {0}
    if len(names) == 1 and min(blanks) > 1 and max(blanks) - min(blanks) < 2:
        return (
            "the cells seem to be separated by blanks: separate them by commas or tabs, in R by write.csv(posts, "
            "path, row.names = FALSE)"
        )
    excess = {len(row) - len(names) for row in rows}
    if len(names) > 1 and excess == {1}:
        if not any(row[-1] for row in rows):
            return "each row ends with a separator, and the first line does not: delete it at the end of the rows"
        if len(rows) > 1 or rows[0][0] == "1":
            return (
                f"each row has one cell more than the first line has names: if it is the first, {ROW_NAMES}; else "
                f"{QUOTED}"
            )
    for start in range(1, min(BEFORE, len(lines) - 1)):
        if lines[start].strip() and begins_table(lines, start, len(names)):
            return f"the names of the columns seem to stand in line {before + start + 1}: delete the lines before it"
    return QUOTED


def begins_table(lines: Sequence[str], start: int, before: int) -> bool:
    """
    Tells whether a table seems to begin in one of the first lines of a file, whose first one has another number
    (`before`) of cells.
    """
    separator = find_separator(lines[start])
    names, *rows = read_shape(lines[start:], separator)
    are_names = len(set(names)) == len(names) and all(name and not name[0].isdigit() for name in names)
    if not rows or len(names) in (1, before) or not are_names or any(len(row) != len(names) for row in rows):
        return False
    return len(rows) >= start or not lines[start - 1].strip()


def sizes(lines: Sequence[str], separator: str) -> set[int]:
    """Returns the numbers of cells of rows, in which spaces after a separator do not count."""
    return set(map(len, read_shape(lines, separator, skips_spaces=True)))


def read_shape(lines: Sequence[str], separator: str, skips_spaces: bool = False) -> list[list[str]]:
    """Returns the rows that have cells, but for the last one of many lines, which may go on."""
    rows = list(csv.reader(lines, delimiter=separator, skipinitialspace=skips_spaces))
    return [row for row in (rows if len(lines) < LOOKED_AT - BEFORE else rows[:-1]) if row]
