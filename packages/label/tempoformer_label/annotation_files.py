"""
Writes stretches of posts for people who label: a table, or tasks for Label Studio, doccano or Prodigy.
[`load_table`] reads all of them back.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

import pyarrow as pa
from datasets import Dataset

from modeling_tempoformer import Timeline
from modeling_tempoformer.common.columns import PLUS, TIMELINE, Columns
from modeling_tempoformer.common.files import written_whole
from modeling_tempoformer.common.labelling_fields import (
    ACCEPTED,
    ANNOTATOR,
    CHOICE,
    CONTEXT,
    LABEL,
    NUMBER,
    POST_ID,
    POSTS,
    STRETCH,
    TURN,
)

from .stretches import Stretch


# A later time, in seconds since 1970, is written as a date; else times are most likely counted from another moment.
FIRST_DATE = 1e8
TEXT, PREDICTION = "text", "prediction"
# The columns that are written. Other columns of these names are left out.
KNOWN = (TIMELINE, POST_ID, NUMBER, "timestamp", "speaker", "state", TEXT, LABEL, STRETCH, ANNOTATOR, PREDICTION, TURN)
QUESTION = "Does something change at this post?"


class Selection(NamedTuple):
    """
    Posts to label, and their classes.

    Attributes:
        stretches (`dict[int, Stretch]`): The stretches by their numbers.
        posts (`dict[int, list[dict[str, str]]]`): All posts of each timeline of a stretch, as [`describe_posts`]
            returns them, by the number of the timeline.
        labels (`list[str]`): The labels to choose from.
        annotator (`str`): Names whoever labels.
        predictions (`dict[int, list[str]]`): The label that a model gives each of the posts; empty without a model.
    """

    stretches: Mapping[int, Stretch]
    posts: Mapping[int, list[dict[str, str]]]
    labels: Sequence[str]
    annotator: str
    predictions: Mapping[int, list[str]]

    def tasks(self, context: int) -> Iterable[tuple[dict[str, Any], Stretch]]:
        """
        Yields for each stretch the fields of its task, with at most `context` posts before the stretch, and the
        stretch.
        """
        for number, stretch in self.stretches.items():
            posts = self.posts[stretch.timeline]
            yield (
                {
                    TIMELINE: posts[0][TIMELINE],
                    STRETCH: str(number),
                    ANNOTATOR: self.annotator,
                    CONTEXT: posts[max(0, stretch.first - context) : stretch.first],
                    POSTS: posts[stretch.first : stretch.end],
                },
                stretch,
            )

    def single_tasks(self, context: int) -> Iterable[tuple[dict[str, Any], str | None]]:
        """
        Yields for each post the fields of its task, in which all posts before it are context, and the label that a
        model gives it.
        """
        for task, stretch in self.tasks(context):
            for place, post in enumerate(task[POSTS]):
                before = [*task[CONTEXT], *task[POSTS][:place]]
                predicted = self.predictions.get(stretch.timeline)
                label = None if predicted is None else predicted[stretch.first + place]
                yield {**task, CONTEXT: before, POSTS: [post]}, label


def other_columns(posts: Dataset, columns: Columns) -> tuple[list[str], list[str]]:
    """
    Returns the columns of a table that are written beside ours, which are those that are read as a group and those
    that are not read; and those that are left out, because their cells are not single values or their name is one of
    ours.
    """
    read = {columns.of(role, posts.column_names) for role in columns if role != "group"}
    read |= {part for name in read for part in (name or "").split(PLUS)}
    others = [name for name in posts.column_names if name not in read]
    schema = posts.features.arrow_schema
    left_out = [name for name in others if name in KNOWN or pa.types.is_nested(schema.field(name).type)]
    return [name for name in others if name not in left_out], left_out


def describe_posts(timeline: Timeline, posts: Dataset, others: Sequence[str], has_dates: bool) -> list[dict[str, str]]:
    """
    Returns the fields of each post of a timeline, in its order.

    Args:
        timeline ([`Timeline`]): The timeline.
        posts (`Dataset`): The table that it was read from.
        others (`Sequence[str]`): Columns of the table that are kept.
        has_dates (`bool`): True if times are seconds since 1970, which are then written as dates.
    """
    kept = posts.select(timeline.input_rows).select_columns(list(others)).to_dict() if others else {}
    described = []
    for place, text in enumerate(timeline.texts):
        post = {TIMELINE: str(timeline.timeline_id), POST_ID: timeline.post_ids[place], NUMBER: str(place + 1)}
        if timeline.timestamps is not None:
            post["timestamp"] = write_time(timeline.timestamps[place], has_dates)
        if timeline.speakers is not None:
            post["speaker"] = timeline.speakers[place]
        if timeline.states is not None:
            post["state"] = timeline.states[place]
        post[TEXT] = text
        post |= {name: "" if cells[place] is None else str(cells[place]) for name, cells in kept.items()}
        described.append({**post, TURN: heading(post)})
    return described


def write_time(seconds: float, as_date: bool) -> str:
    """Returns a time as a date in UTC, or as seconds."""
    if not as_date:
        return f"{seconds:.6f}".rstrip("0").rstrip(".")
    # `datetime.fromtimestamp` fails for early years.
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


def heading(post: Mapping[str, str]) -> str:
    """Returns what people see above a post: its number in the timeline, its speaker and its time."""
    time = post.get("timestamp", "").replace("T", " ").removesuffix("+00:00")
    return " · ".join(filter(None, (post[NUMBER], post.get("speaker"), time)))


def write_csv(path: Path, selection: Selection, context: int):
    """
    Writes a table with all posts of the timelines from their first post to the end of their last stretch. `context` is
    not read.
    """
    numbers = {
        (stretch.timeline, place): str(number)
        for number, stretch in selection.stretches.items()
        for place in range(stretch.first, stretch.end)
    }
    ends: dict[int, int] = {}
    for stretch in selection.stretches.values():
        ends[stretch.timeline] = max(stretch.end, ends.get(stretch.timeline, 0))
    rows = []
    for timeline, end in ends.items():
        for place, post in enumerate(selection.posts[timeline][:end]):
            number = numbers.get((timeline, place), "")
            row = {name: value for name, value in post.items() if name != TURN}
            row |= {LABEL: "", STRETCH: number, ANNOTATOR: selection.annotator if number else ""}
            if selection.predictions:
                row[PREDICTION] = selection.predictions[timeline][place] if number else ""
            rows.append(row)
    with written_whole(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_label_studio(path: Path, selection: Selection, context: int):
    """Writes the tasks of Label Studio, one for each stretch, for the configuration of [`write_configuration`]."""
    tasks = []
    for task, stretch in selection.tasks(context):
        tasks.append({"data": task})
        if selection.predictions:
            labels = selection.predictions[stretch.timeline][stretch.first : stretch.end]
            results = [
                {
                    "id": f"{task[STRETCH]}-{place}",
                    "from_name": f"{CHOICE}{place}",
                    "to_name": f"post_{place}",
                    "type": "choices",
                    "value": {"choices": [label]},
                }
                for place, label in enumerate(labels)
            ]
            tasks[-1]["predictions"] = [{"model_version": "tempoformer", "result": results}]
    with written_whole(path) as partial:
        partial.write_text(json.dumps(tasks, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def write_configuration(path: Path, labels: Sequence[str]):
    """Writes a labelling configuration of Label Studio: a choice of one of the labels for each post of a stretch."""
    choices = "\n".join(f"        <Choice value={quoteattr(label)}/>" for label in labels)
    with written_whole(path) as partial:
        partial.write_text(
            f"""<View>
  <Header value="Timeline ${TIMELINE}, stretch ${STRETCH}"/>
  <Header value="Before" size="5"/>
  <Paragraphs name="before" value="${CONTEXT}" layout="dialogue" nameKey="{TURN}" textKey="{TEXT}"/>
  <Header value="{QUESTION}" size="5"/>
  <Repeater on="${POSTS}" indexFlag="{{{{idx}}}}">
    <View style="border-top: 1px solid; padding: 0.5em 0">
      <Header value="${POSTS}[{{{{idx}}}}].{TURN}" size="6"/>
      <Text name="post_{{{{idx}}}}" value="${POSTS}[{{{{idx}}}}].{TEXT}"/>
      <Choices name="{CHOICE}{{{{idx}}}}" toName="post_{{{{idx}}}}" choice="single" showInline="true">
{choices}
      </Choices>
    </View>
  </Repeater>
</View>
""",
            encoding="utf-8",
        )


def write_doccano(path: Path, selection: Selection, context: int):
    """Writes the tasks of doccano's text classification, one for each post: it ends the text, after those before."""
    write_lines(
        path,
        (
            {TEXT: as_text(task), LABEL: [label] if label else [], **task}
            for task, label in selection.single_tasks(context)
        ),
    )


def as_text(task: Mapping[str, Any]) -> str:
    """Returns the posts of a task as a text, with an arrow at the one to label."""
    before = [f"[{post[TURN]}]\n{post[TEXT]}" for post in task[CONTEXT]]
    (post,) = task[POSTS]
    return "\n\n".join([*before, f"→ [{post[TURN]}]\n{post[TEXT]}"])


def write_prodigy(path: Path, selection: Selection, context: int):
    """Writes the tasks of Prodigy's interface of choices, one for each post: it is large, below those before."""
    options = [{"id": label, "text": label} for label in selection.labels]
    write_lines(
        path,
        (
            {
                "html": as_html(task),
                "options": options,
                **({ACCEPTED: [label]} if label else {}),
                "meta": {TIMELINE: task[TIMELINE], STRETCH: task[STRETCH], POST_ID: task[POSTS][0][POST_ID]},
                **task,
            }
            for task, label in selection.single_tasks(context)
        ),
    )


def as_html(task: Mapping[str, Any]) -> str:
    """Returns the post of a task, below the posts before it in small letters."""
    before = "".join(f"<p><b>{escape(post[TURN])}</b><br>{escape(post[TEXT])}</p>" for post in task[CONTEXT])
    (post,) = task[POSTS]
    small = 'style="font-size: 0.7em; text-align: left; white-space: pre-wrap"'
    return f"<div {small}>{before}<b>{escape(post[TURN])}</b></div><div>{escape(post[TEXT])}</div>"


def write_lines(path: Path, tasks: Iterable[dict[str, Any]]):
    """Writes tasks as lines of JSON."""
    with written_whole(path) as partial, partial.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(task, ensure_ascii=False) + "\n" for task in tasks)


# By the name of the tool
WRITERS = {"csv": write_csv, "label-studio": write_label_studio, "doccano": write_doccano, "prodigy": write_prodigy}
