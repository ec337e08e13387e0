"""
Reads the tasks of `tempoformer select` as Label Studio, doccano and Prodigy export them, labelled or not.

A task has a stretch of posts to label (`posts`) and the posts before it (`context`). Label Studio has a task for each
stretch; in the other tools each post of the stretch has one of its own.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from transformers.utils import logging

from ..common.labelling_fields import (
    ACCEPTED,
    ANNOTATOR,
    CHOICE,
    CONTEXT,
    FIELDS,
    LABEL,
    NUMBER,
    POST_ID,
    POSTS,
    STRETCH,
    TIMELINE,
    TURN,
)
from ..names_tempoformer import read_name
from .export import Export
from .nested_json import CANCELLED


logger = logging.get_logger(__name__)


class Choice(NamedTuple):
    """The labels, hopefully one, that a person, if the tool names people, gave the post of this number in a task."""

    post: int
    person: str | None
    labels: list[str]


def is_mine(export: Export) -> bool:
    """Tells whether a file has tasks of `tempoformer select`, and the user names no other records."""
    return export.form.records is None and is_task(export.value)


def as_table(export: Export) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the posts of all tasks ([`read_tasks`])."""
    return read_tasks(export.items(), export.path)


def is_task(value: Any) -> bool:
    """Tells whether an object of JSON is a task of `tempoformer select`."""
    content = task_content(value)
    return isinstance(content, dict) and set(FIELDS) <= set(content) and isinstance(content[POSTS], list)


def task_content(value: Any) -> Any:
    """Returns the object with the fields of a task: in Label Studio it lies in `data`."""
    return value["data"] if isinstance(value, dict) and isinstance(value.get("data"), dict) else value


def read_tasks(values: Iterable[tuple[str, Any]], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """
    Yields the posts of all tasks of a file, timeline by timeline and in order: their place in the file, for errors,
    and their fields. A post is there once, in however many tasks it is, or once for each of its labels.

    Args:
        values (`Iterable[tuple[str, Any]]`): The place of each task in the file, and the task.
        path (`str`): The file.

    Raises a `ValueError` for an object that is no task.
    """
    posts: dict[tuple[str, str], dict[str, Any]] = {}
    places: dict[tuple[str, str], str] = {}
    answers: dict[tuple[str, str], list[tuple[str, str | None, list[str] | None]]] = {}
    left_out = 0
    for where, value in values:
        if not is_task(value):
            raise ValueError(f"{where}: this is no task of `tempoformer select`, as the first one is: {value!r:.80}.")
        content = task_content(value)
        for part in (CONTEXT, POSTS):
            for post in content[part]:
                key = post[TIMELINE], post[POST_ID]
                places.setdefault(key, where)
                stretch = {STRETCH: content[STRETCH]} if part == POSTS else {}
                posts[key] = {**post, STRETCH: "", **posts.get(key, {}), **stretch}
        given, number = read_choices(value)
        left_out += number
        for answer in given:
            post = content[POSTS][answer.post]
            named = (content[ANNOTATOR], answer.person, answer.labels)
            answers.setdefault((post[TIMELINE], post[POST_ID]), []).append(named)
    if left_out:
        logger.warning(f"{path}: {left_out} answers were cancelled, rejected or ignored, and are not read.")
    several = any(len(given) > 1 for given in answers.values())
    keys = list(posts)
    for number in sorted_rows([timeline for timeline, _ in keys], [post[NUMBER] for post in posts.values()]):
        key, post = keys[number], posts[keys[number]]
        row = {name: value for name, value in post.items() if name != TURN}
        for annotator, person, labels in answers.get(key, [("", None, None)]):
            # Where people have labelled the same posts of a file, the tool tells them apart.
            name = person if several and person is not None else annotator
            yield places[key], {**row, LABEL: labels, ANNOTATOR: name}


def in_order(table: pa.Table) -> pa.Table:
    """
    Returns the rows of files of `tempoformer select` with the posts of each timeline together, in their order, also
    where several files have posts of one timeline. Other tables are returned unchanged.
    """
    if not {TIMELINE, NUMBER, STRETCH} <= set(table.column_names):
        return table
    numbers = list(map(read_name, table[NUMBER].to_pylist()))
    return table.take(sorted_rows(table[TIMELINE].to_pylist(), numbers)) if all(map(str.isdecimal, numbers)) else table


def sorted_rows(timelines: Sequence[str], numbers: Sequence[str]) -> list[int]:
    """Returns the rows of posts by the first row of their timeline, and by their number in it."""
    first: dict[str, int] = {}
    keys = [
        (first.setdefault(timeline, len(first)), int(number))
        for timeline, number in zip(timelines, numbers, strict=True)
    ]
    return sorted(range(len(keys)), key=keys.__getitem__)


def read_choices(value: dict[str, Any]) -> tuple[list[Choice], int]:
    """Returns the answers to a task, and how many were cancelled, rejected or ignored."""
    if "data" in value:
        return read_label_studio(value)
    if "answer" in value:  # Prodigy
        if value["answer"] != ACCEPTED:
            return [], 1
        person, labels = value.get("_annotator_id"), value.get(ACCEPTED)
    else:  # doccano; before the import, a task has no id, and its labels are a model's
        person, labels = None, value.get(LABEL) if "id" in value else None
    return [Choice(0, person, labels)] if labels else [], 0


def read_label_studio(value: dict[str, Any]) -> tuple[list[Choice], int]:
    """Returns the answers to a task of Label Studio, and how many annotations were cancelled."""
    answers, left_out = [], 0
    for annotation in value.get("annotations") or []:
        if annotation.get(CANCELLED) is True:
            left_out += 1
            continue
        person = annotation.get("completed_by")
        if isinstance(person, dict):
            person = person.get("email") or person.get("id")
        for result in annotation.get("result") or []:
            name = str(result.get("from_name"))
            if result.get("type") == "choices" and name.startswith(CHOICE):
                answers.append(Choice(int(name.removeprefix(CHOICE)), person, result["value"]["choices"]))
    return answers, left_out
