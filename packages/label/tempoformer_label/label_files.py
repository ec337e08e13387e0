"""Reads the files of posts that a page labels: the posts, and the labels, notes and stretches that they have."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from datasets import Dataset

from modeling_tempoformer import PostError, Timeline, check_labels, label_names, read_name, to_timelines
from modeling_tempoformer.common.columns import TIMELINE, USUAL, Columns, cells_of, is_missing
from modeling_tempoformer.common.files import name_of_timeline
from modeling_tempoformer.common.labelling_fields import ANNOTATOR, STRETCH
from modeling_tempoformer.common.table_arguments import PostArguments, columns_of


logger = logging.getLogger(__name__)

# Columns that the page writes beside the label. No training reads them, unless an option names one.
CANNOT_SAY, NOTE = "cannot_say", "note"
YES = "yes"
# The classes of posts that have no label yet, or only one of these
USUAL_CLASSES = ["No-Switch", "Switch"]
# The names of columns that are read without an option, by role
USUAL_COLUMNS = {"timeline": TIMELINE, "text": "text", **USUAL}


class Cells(NamedTuple):
    """
    Metadata of a post that is labelled.

    Attributes:
        cells (`dict[str, str]`): The cell of each column of the table that the page saves.
        labels (`dict[str, int]`): The class id that each annotator gave the post, if there are several annotators.
        notes (`dict[str, str]`): The note that each annotator gave it, likewise.
    """

    cells: dict[str, str]
    labels: Mapping[str, int] = {}
    notes: Mapping[str, str] = {}


class LabelFile(NamedTuple):
    """
    A file of posts that was read.

    Attributes:
        path (`str`): The file.
        annotator (`str`): Who labelled it: the only name that its column of annotators has at labels, else the name
            of the file.
        timelines (`list[Timeline]`): Its posts, with [`Cells`] as metadata.
    """

    path: str
    annotator: str
    timelines: list[Timeline]


def read_classes(posts: Sequence[Dataset], given: Sequence[str] | None, arguments: PostArguments) -> list[str]:
    """
    Returns the given classes, else the usual ones if they include all labels in the files, else these labels. Raises
    a `ValueError` for a single class.
    """
    if given:
        check_labels(given)
        names = list(dict.fromkeys(map(read_name, given)))
    else:
        columns = [columns_of(arguments).of("label", table.column_names) for table in posts]
        found = [label_names(table, column) for table, column in zip(posts, columns, strict=True) if column]
        names = list(dict.fromkeys(name for names in found for name in names))
        check_labels(names)
        names = USUAL_CLASSES if set(names) <= set(USUAL_CLASSES) else names
        logger.info("The classes are %s. --labels names others.", ", ".join(names))
    if len(names) < 2:
        raise ValueError(f"Labelling needs two classes or more, and there is only {names[0]!r}: name all by --labels.")
    return names


def read_label_file(path: str, posts: Dataset, names: Sequence[str], arguments: PostArguments) -> LabelFile:
    """
    Returns the timelines of a file, with the cells that the page saves.

    Args:
        path (`str`): The file, for errors and for the name of an annotator whom the file does not name.
        posts (`Dataset`): Its rows.
        names (`Sequence[str]`): The classes.
        arguments ([`PostArguments`]): The columns.

    Raises a `ValueError` that names the file for a post that cannot be read, as a training would.
    """
    timelines, cells = read_file_posts(path, posts, names, arguments), usual_cells(posts, columns_of(arguments))
    for timeline in timelines:
        # The labels of a column of annotators
        labels = [{} if cells is None else cells.labels for cells in timeline.metadata or [None] * len(timeline)]
        rows = [
            {**cells[row], **read_label_cells(timeline, post, names)} for post, row in enumerate(timeline.input_rows)
        ]
        timeline.metadata = list(map(Cells, rows, labels))
    labelled = [cells.cells for timeline in timelines for cells in timeline.metadata if cells.cells["label"]]
    annotators = {row.get(ANNOTATOR, "").strip() for row in labelled} - {""}
    annotator = annotators.pop() if len(annotators) == 1 else name_of_timeline(path)
    return LabelFile(path, annotator, timelines)


def read_file_posts(
    path: str, posts: Dataset, names: Sequence[str] | None, arguments: PostArguments
) -> list[Timeline]:
    """
    Returns the timelines of the rows of a file. Labels are read if the names of classes are given. Raises a
    `ValueError` that names the file for a post that cannot be read.
    """
    try:
        labels = None if names is None else list(names)
        return to_timelines(posts, labels, columns_of(arguments), arguments.drop_incomplete)
    except ValueError as problem:
        raise ValueError(str(problem) if str(problem).startswith(path) else f"{path}: {problem}") from None


def usual_cells(posts: Dataset, columns: Columns) -> list[dict[str, str]]:
    """
    Returns the cells of each row as texts, in columns that a training reads without options: those that options name
    get their usual names, and a column that had such a name is `original_…`.
    """
    found, batch = columns.find(posts.column_names), posts.to_dict()
    usual = {found[role]: name for role, name in USUAL_COLUMNS.items() if found.get(role) is not None}
    # Each of several annotators has a column of labels.
    left_out = {found["annotator"]} if found.get("annotator") else set()
    table: dict[str, list[Any]] = {}
    for column in (*posts.column_names, *(column for column in usual if column not in posts.column_names)):
        name = usual.get(column, column)
        while column not in usual and (name in USUAL_COLUMNS.values() or name in table):
            name = f"original_{name}"
        if column not in left_out:
            table[name] = cells_of(batch, column, len(posts))
    return [
        {name: label_cell_text(cell) for name, cell in zip(table, row, strict=True)}
        for row in zip(*table.values(), strict=True)
    ]


def label_cell_text(cell: Any) -> str:
    """Returns a cell as the text of a CSV file."""
    if isinstance(cell, str):
        return cell
    if is_missing(cell):
        return ""
    return json.dumps(cell, ensure_ascii=False, default=str) if isinstance(cell, (list, dict)) else str(cell)


def read_label_cells(timeline: Timeline, post: int, names: Sequence[str]) -> dict[str, str]:
    """Returns the cells of a post that were read, by their usual columns."""
    label = timeline.labels[post]
    read = {TIMELINE: str(timeline.timeline_id), "text": timeline.texts[post]}
    read["label"] = "" if label < 0 else names[label]
    for column, values in (("speaker", timeline.speakers), ("state", timeline.states)):
        read |= {} if values is None else {column: values[post]}
    return read


def given_stretches(file: LabelFile) -> list[tuple[int, list[int]]] | None:
    """
    Returns the stretches that a file's column `stretch` numbers, in the order of their numbers: each as the number of
    its timeline and the positions of its posts. None without such a column. Raises a `ValueError` for a cell that is
    not a number, and for a stretch in two timelines.
    """
    found: dict[int, tuple[int, list[int]]] = {}
    has_column = any(STRETCH in cells.cells for timeline in file.timelines for cells in timeline.metadata)
    for place, timeline in enumerate(file.timelines if has_column else ()):
        for post, cells in enumerate(timeline.metadata):
            if not (cell := cells.cells.get(STRETCH, "").strip()):
                continue
            number = cell.removesuffix(".0")
            if not (number.isascii() and number.isdecimal()):
                problem = "a stretch must be a whole number, or empty where a post is context"
                raise ValueError(f"{file.path}: {PostError(timeline.input_rows[post], STRETCH, cell, problem)}")
            first, posts = found.setdefault(int(number), (place, []))
            if first != place:
                problem = (
                    f"the stretch is also in timeline {file.timelines[first].timeline_id!r}: number each one anew"
                )
                raise ValueError(f"{file.path}: {PostError(timeline.input_rows[post], STRETCH, cell, problem)}")
            posts.append(post)
    if has_column and not found:
        raise ValueError(f"{file.path}: no post has a number in the column {STRETCH!r}, so there is nothing to label.")
    return [found[number] for number in sorted(found)] if has_column else None
