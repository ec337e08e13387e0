"""Reads posts, one in each row, and groups them to timelines."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from datasets import ClassLabel, Dataset, IterableDataset
from transformers.utils import logging

from ..common.columns import (
    NEEDED,
    NO_COLUMN,
    ROLES,
    USUAL,
    Columns,
    cells_of,
    column_names,
    is_missing,
    read_columns,
    require_column,
)
from ..common.files import ROWS_AT_ONCE
from ..common.markup import is_marked_up, warn_of_markup
from ..importers.convokit import IN_PICKLE, PICKLE_MARK
from ..names_tempoformer import read_name
from ..timeline_tempoformer import NO_LABEL, BadValue, Post, Timeline, read_post, read_role
from ..times_tempoformer import NO_TIME, TimeColumn, to_seconds
from .metadata import Metadata, check_units, merge_annotators
from .missing_codes import USUAL as USUAL_CODES
from .missing_codes import NameCounts
from .orders import run_backwards
from .post_errors import PostError, name_row
from .spellings import PLURALS, Spellings, check_labels, read_label


logger = logging.get_logger(__name__)

# Ids that programs write for an unknown person, in lower case.
NOBODY = ("none", "na", "n/a", "unknown", "[deleted]", "[removed]")
IN_JSON = (
    " In JSON, --records names the list of posts in an object, and a path such as author.name a value in an object."
)
# A list of several values, or an object, as JSON and Python write them
WRITTEN = re.compile(r"""\[\s*(?:["'{\[].*|[-\d.]+\s*,.*)?\]|\{\s*(?:["'].*)?\}""", re.DOTALL)
# Floats of fewer than 64 bits
NARROW = (pa.float16(), pa.float32())
# More labels than this are no classes if most posts have one of their own.
MOST_CLASSES = 10
# Roles whose values are names
NAMES = ("timeline", "id", "label", "speaker", "state", "group", "split", "annotator")
# Roles whose columns no model reads
METADATA_ROLES = ("group", "split", "annotator")
# Roles without which a row is no post, if there is a column of them
COMPLETE = ("timeline", "id", "text", "timestamp")
# For those who can change a column, as the senders of single posts cannot
OTHER_DATES = (
    "give a column of other dates the format yyyy-mm-dd hh:mm:ss in a spreadsheet, or convert it by "
    "pd.to_datetime(column), with dayfirst=True if the day comes before the month"
)
SAY_MISSING = "if it says that there is no label, give --missing"
DROPPED = "--drop_incomplete (in Python `drop_incomplete=True`) leaves out rows without text, time or id"


def single(value: Any, row: int, column: str, role: str) -> Any:
    """
    Returns the value of a cell, and None for an empty list. Raises a [`PostError`] for a list of several values, also
    one that is written as a text in a column of labels, states or speakers, and for a mark of ConvoKit.
    """
    if isinstance(value, list) and len(value) < 2:
        value = value[0] if value else None
    is_written = role in ("label", "state", "speaker") and isinstance(value, str) and WRITTEN.fullmatch(value.strip())
    if is_written or isinstance(value, (list, dict)):
        raise PostError(row, column, value, "a cell must have one value: choose one of these")
    if isinstance(value, str) and PICKLE_MARK.fullmatch(value):
        raise PostError(row, column, value, IN_PICKLE)
    return value


def declared_names(posts: Dataset | IterableDataset, column: str) -> list[str] | None:
    """Returns the class names of a `ClassLabel` column, None for a column of another or an unknown type."""
    feature = (posts.features or {}).get(column)
    # A list has the type of its values.
    feature = getattr(feature, "feature", feature)
    return list(feature.names) if isinstance(feature, ClassLabel) else None


def label_names(posts: Dataset | IterableDataset, column: str = "label") -> list[str]:
    """
    Returns the names of the classes.

    Args:
        posts (`Dataset` or `IterableDataset`): One row for each post; all rows are read.
        column (`str`, *optional*, defaults to `"label"`): The column of labels.

    Returns:
        `list[str]`: The names of a `ClassLabel` column in their order. For another column, the distinct labels, in
        numeric order if all are integers, else in alphabetical order. They are read by
        [`~names_tempoformer.read_name`]; empty cells, -100, NaN and null, also as text, are missing labels. A list of
        one label is that label. Raises a `ValueError` without such a column, for a list of several labels, for
        labels that are hard to tell apart, and for more than ten labels that are nearly as many as the posts.
    """
    column = require_column(column_names(posts), column, "label", IN_JSON)
    if (declared := declared_names(posts, column)) is not None:
        check_labels(declared)
        return list(map(read_name, declared))
    counts: Counter[str] = Counter()
    for row, value in enumerate(posts[column]):
        try:
            counts[read_label(read_role("label", single(value, row, column, "label")))] += 1
        except BadValue as bad:
            raise PostError(row, column, bad.value, bad.problem) from None
    names, labelled = set(counts) - {""}, counts.total() - counts[""]
    check_labels(sorted(names))
    if len(names) > MOST_CLASSES and 2 * len(names) > labelled:
        shown = ", ".join(map(repr, sorted(names)[:3]))
        raise ValueError(
            f"The column {column!r} has {len(names)} different values on {labelled} posts, such as {shown}: is it the "
            f"column of labels? Name another one by --columns label=NAME ({NO_COLUMN} for posts without labels), or "
            "these classes by --labels."
        )
    whole = all(name.removeprefix("-").isdecimal() for name in names)
    return sorted(names, key=lambda name: (int(name), name) if whole else name)


@dataclass
class Rows:
    """Rows of a stream, with the interface of a table. Types may differ by row; `schema` has the declared ones."""

    columns: dict[str, list]
    schema: Sequence[pa.Field]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def to_pydict(self) -> dict[str, list]:
        return self.columns


def each_table(posts: Dataset | IterableDataset) -> Iterator[pa.Table | Rows]:
    """Yields posts in pieces."""
    if isinstance(posts, Dataset):
        yield from posts.with_format("arrow").iter(ROWS_AT_ONCE)
        return
    schema = list(posts.features.arrow_schema) if posts.features else ()
    for columns in posts.iter(ROWS_AT_ONCE):
        yield Rows(columns, schema)


def read_posts(
    tables: Iterable[pa.Table | Rows],
    labels: Sequence[str] | None,
    columns: Columns,
    times: TimeColumn | None = None,
    names: Sequence[str] | None = None,
    spellings: Spellings | None = None,
    drop_incomplete: bool = False,
) -> Iterator[tuple[str, Post]]:
    """
    Reads posts one by one, and checks all but whether ids are unique.

    Args:
        tables (`Iterable[pyarrow.Table]`): The rows in pieces, such as [`read_tables`] yields.
        labels (`Sequence[str]`, *optional*): The classes in the order of their ids. Without them no post has a label.
        columns ([`~common.columns.Columns`]): The names of the columns by role.
        times ([`TimeColumn`], *optional*): Reads the times. By default a new one.
        names (`Sequence[str]`, *optional*): The names of a column of class ids, in which ids below 0 mean no label.
        spellings ([`~posts.spellings.Spellings`], *optional*): Compares the names of all posts. By default a new one.
        drop_incomplete (`bool`, *optional*, defaults to `False`): If True, rows without text, time or id are left out
            and counted.

    Yields the id of a timeline and its [`Post`], which has `metadata` if there is a column of them. Raises a
    [`PostError`] for a cell that cannot be read. At the end, warnings say what may be a mistake.
    """
    given, columns = columns, None
    present: dict[str, None] = {}
    class_ids = {read_label(name): label for label, name in enumerate(labels or ())}
    times, spellings, row = times or TimeColumn(), spellings or Spellings(), -1
    num_read, num_marked, untimed, counts = 0, 0, None, NameCounts()
    lacking: Counter[str] = Counter()
    for table in tables:
        columns = given.find(table.column_names, columns, IN_JSON)
        present.update(dict.fromkeys(table.column_names))
        exact = [columns.get(role) for role in ("timeline", "id", "timestamp")]
        for field in table.schema:
            if field.name in exact and field.type in NARROW:
                raise ValueError(f"Column '{field.name}' has floats of fewer than 64 bits, which are too coarse.")
        batch, has_metadata = table.to_pydict(), any(columns.get(role) is not None for role in METADATA_ROLES)
        for field in table.schema:
            if field.name in columns.values() and field.type in NARROW:
                # As Python's floats they would have other decimals: 0.7 would be 0.699999988079071.
                as_narrow = field.type.to_pandas_dtype()
                batch[field.name] = [None if cell is None else as_narrow(cell) for cell in batch[field.name]]
        complete = [role for role in COMPLETE if drop_incomplete and columns.get(role) is not None]
        for cells in zip(*(cells_of(batch, column, len(table)) for column in columns.values()), strict=True):
            row += 1
            values = dict(zip(columns, cells, strict=True))
            if missing := [role for role in complete if lacks(values[role], role)]:
                lacking[missing[0]] += 1
                continue
            num_read += 1
            try:
                found, post = read_row(values, row, columns, times, labels, class_ids, names, untimed)
                counts.add(found, post.text)
                for role in PLURALS:
                    spellings.add(role, found.get(role, ""), row, columns.get(role))
            except PostError as bad:
                raise with_option(bad, given, columns) from None
            num_marked += is_marked_up(post.text)
            if untimed is None and columns.get("timestamp") is not None and post.timestamp is None:
                untimed = row
            if has_metadata:
                post = post._replace(metadata=read_metadata(post, found, values, columns))
            yield found["timeline"], post
    if lacking:
        report_dropped(lacking, row + 1, columns, num_read)
    if columns is not None:
        warn_of_markup(num_marked, num_read, columns["text"])
        given.warn_of_times(present, times.first is not None and times.first[0] != "missing")
    times.warn()
    spellings.warn()
    counts.warn()


def lacks(cell: Any, role: str) -> bool:
    """Tells whether a cell is empty; in columns of names, also if it is a text such as `nan`."""
    try:
        if is_missing(cell) or (role == "timestamp" and to_seconds(cell) is None):
            return True
        return role in NAMES and not read_name(cell)
    except ValueError:  # It is there, and cannot be read.
        return False


def read_row(
    values: dict[str, Any],
    row: int,
    columns: Columns,
    times: TimeColumn,
    labels: Sequence[str] | None,
    class_ids: Mapping[str, int],
    names: Sequence[str] | None,
    untimed: int | None,
) -> tuple[dict[str, str], Post]:
    """
    Reads the names of a row by role, and its post. `values` has its cells by role, and `columns` the columns; `times`
    reads its time, and `untimed` is the first row that had none. `class_ids` are the ids of the `labels`, None if no
    label is read; `names` are the names of a column of class ids. Raises a [`PostError`].
    """
    for role, cell in values.items():
        values[role] = single(cell, row, columns[role], role)
    if names is not None and "label" in values:
        values["label"] = None if values["label"] is None or values["label"] < 0 else names[values["label"]]
    time = values.get("timestamp")
    try:
        found = {role: read_role(role, values[role]) for role in NAMES if columns.get(role) is not None}
        for role in ("timeline", "id"):
            if found.get(role) == "":
                raise BadValue(role, values[role], f"an id must not be missing; {DROPPED}")
        post = read_post(times, row, f"row {row}", values["text"], time)
    except BadValue as bad:
        column = columns[bad.field]
        if bad.field == "timestamp" and untimed is not None and is_time(time):
            problem = f"the time is missing, while row {row} has one ({time!r})"
            raise PostError(untimed, column, None, f"{problem}; {DROPPED}") from None
        hint = f"; {DROPPED}" if bad.field in ("text", "timestamp") and is_missing(bad.value) else ""
        hint = f"; {OTHER_DATES}" if bad.problem == NO_TIME else hint
        raise PostError(row, column, bad.value, bad.problem + hint) from None
    label = read_label(found.get("label"))
    if labels is not None and label and label not in class_ids:
        is_code = label.casefold() in USUAL_CODES
        problem = f"the label is not one of {', '.join(labels)}" + (f"; {SAY_MISSING} {label}" if is_code else "")
        raise PostError(row, columns["label"], values["label"], problem)
    post = post._replace(
        post_id=found.get("id", str(row)),
        label=class_ids.get(label, NO_LABEL),
        speaker=found.get("speaker"),
        state=found.get("state"),
    )
    return found, post


def is_time(value: Any) -> bool:
    """Tells whether a value is a time that can be read."""
    try:
        return to_seconds(value) is not None
    except ValueError:
        return False


def with_option(bad: PostError, given: Columns, columns: Columns) -> PostError:
    """Returns the error, with the option that leaves its column out if nobody has named the column."""
    for role, column in columns.items():
        if column == bad.column and role in USUAL and given[role] is None:
            hint = f"if the column has no {role}s, leave it out by --columns {role}={NO_COLUMN}"
            return PostError(bad.row, bad.column, bad.value, f"{bad.problem}; {hint}")
    return bad


def report_dropped(lacking: Mapping[str, int], num_rows: int, columns: Columns, num_read: int):
    """Logs how many rows lack a value. Raises a `ValueError` if none is left. `lacking` counts the rows by role."""
    counts = ", ".join(f"{count} have nothing in the column {columns[role]!r}" for role, count in lacking.items())
    sentence = f"{sum(lacking.values())} of {num_rows} rows are no posts: {counts}."
    if not num_read:
        raise ValueError(f"--drop_incomplete leaves nothing: {sentence}")
    logger.warning_once(f"Left out by --drop_incomplete: {sentence}")


def read_metadata(post: Post, names: Mapping[str, str], values: Mapping[str, Any], columns: Columns) -> Metadata:
    """
    Returns the metadata of a post, from its `names` and cells (`values`) by role. Raises a [`PostError`] for a label
    without an annotator, if there is a column of annotators.
    """
    group, unit, annotator = (names.get(role, "") for role in METADATA_ROLES)
    labels = {}
    if columns.get("annotator") is not None and post.label != NO_LABEL:
        if not annotator:
            raise PostError(post.row, columns["annotator"], values["annotator"], "a label must have an annotator")
        labels = {annotator: post.label}
    return Metadata(group if columns.get("group") is not None else None, unit, labels)


def watched(timelines: Iterable[tuple[str, list[Post]]]) -> Iterator[tuple[str, list[Post]]]:
    """
    Yields the id and the posts of each timeline unchanged. Warns at the end of likely mistakes: posts that occur
    twice, and timelines whose id means an unknown person.
    """
    nobody = UnknownPeople()
    number, equal, differing, first_equal, first_differing = 0, 0, 0, "", ""
    for timeline_id, posts in timelines:
        number += len(posts)
        nobody.add(timeline_id, len(posts))
        for one, other in find_equal(posts):
            rows = f"the first in row {other.row} (counting from 0), as in row {one.row}, of timeline {timeline_id!r}"
            equal, first_equal = equal + 1, first_equal or rows
            if NO_LABEL not in (one.label, other.label) and one.label != other.label:
                differing, first_differing = differing + 1, first_differing or rows
        yield timeline_id, posts
    nobody.warn()
    if equal:
        logger.warning_once(
            f"{equal} of {number} posts have the timeline, the time and the text of another ({first_equal}), and "
            "are in their streams beside it. If they were not written twice, leave one of the rows out."
        )
    if differing:
        logger.warning_once(
            f"THE LABELS CONTRADICT EACH OTHER: {differing} of {number} posts have another label than the post that "
            f"they are equal to ({first_differing}), as where two annotators have a row each. A model learns both "
            "labels, and is scored against both. If several annotators have labelled a post, name their column by "
            "--columns annotator=NAME; else give each post one row."
        )


def find_equal(posts: list[Post]) -> Iterator[tuple[Post, Post]]:
    """Yields pairs of posts with equal time and text, the earlier one first. Yields none without times."""
    first: dict[tuple[float, str], Post] = {}
    for post in posts:
        if post.timestamp is None:
            return
        key = (post.timestamp, post.text)
        if (earlier := first.setdefault(key, post)) is not post:
            yield earlier, post
            if earlier.label == NO_LABEL:
                first[key] = post


class UnknownPeople(Counter[str]):
    """Counts the posts of timelines whose id most likely means an unknown person, such as `unknown` or `[deleted]`."""

    def add(self, timeline_id: str, num_posts: int = 1):
        """
        Counts posts of a timeline, if its id means an unknown person.

        Args:
            timeline_id (`str`): The id.
            num_posts (`int`, *optional*, defaults to 1): The number of posts.
        """
        if timeline_id.casefold() in NOBODY:
            self[timeline_id] += num_posts

    def warn(self):
        """Warns, once a run, of each such timeline of several posts."""
        for timeline_id, number in self.items():
            if number > 1:
                logger.warning_once(
                    f"{number} posts are of the timeline {timeline_id!r}, and so of one person, but such an id most "
                    "likely stands for many. Leave them out, or give each an id of its own."
                )


class TimelineStream:
    """
    Timelines of a stream of posts, read one at a time and anew in each pass.

    Args:
        shards (`list[tuple[int | None, IterableDataset]]`): Posts, with the number of their shard; None for a single
            one.
        labels, columns, names, drop_incomplete: How [`read_posts`] reads them.
    """

    def __init__(
        self,
        shards: list[tuple[int | None, IterableDataset]],
        labels: Sequence[str] | None,
        columns: Columns,
        names: Sequence[str] | None,
        drop_incomplete: bool = False,
    ):
        self.shards, self.labels, self.columns, self.names = shards, labels, columns, names
        self.drop_incomplete = drop_incomplete
        # The times, the names and the first rows of timelines that were read. They are the same in each pass.
        self.times, self.spellings = TimeColumn(), Spellings()
        self.begun: dict[str, tuple[int, int | None]] = {}

    def __iter__(self) -> Iterator[Timeline]:
        return self.read(self.shards)

    def read(self, shards: list[tuple[int | None, IterableDataset]]) -> Iterator[Timeline]:
        """Yields the timelines of some of the shards, such as one worker or process has."""
        for shard, posts in shards:
            try:
                form = (self.times, self.names, self.spellings, self.drop_incomplete)
                rows = read_posts(each_table(posts), self.labels, self.columns, *form)
                groups = groupby(rows, itemgetter(0))
                checked = ((name, [post for _, post in check_ids(group, self.columns)]) for name, group in groups)
                for timeline_id, group in watched(checked):
                    self.check_begin(timeline_id, group[0].row, shard)
                    if shard is not None and self.columns["id"] is None:
                        group = [post._replace(post_id=f"{shard}:{post.row}") for post in group]
                    yield Timeline.from_posts(timeline_id, group)
            except PostError as problem:
                problem.shard = shard
                raise

    def check_begin(self, timeline_id: str, row: int, shard: int | None):
        """Raises a [`PostError`] for a timeline that began before at another row."""
        began = self.begun.setdefault(timeline_id, (row, shard))
        if began != (row, shard):
            problem = (
                f"the timeline began at {name_row(*began).lower()}, but in a stream its posts must stand together, in "
                "one file: sort the posts by timeline"
            )
            raise PostError(row, self.columns["timeline"], timeline_id, problem)


def to_timelines(
    posts: Dataset | IterableDataset,
    labels: list[str] | None = None,
    columns: Mapping[str, str] | None = None,
    drop_incomplete: bool = False,
) -> list[Timeline] | TimelineStream:
    """
    Groups posts to timelines.

    Args:
        posts (`Dataset` or `IterableDataset`): One row for each post. In a stream, such as
            `load_dataset(..., streaming=True)`, the posts of a timeline must follow each other.
        labels (`list[str]`, *optional*): The label names, in the order of their class ids. Without them, all posts are
            unlabelled. With them, single posts may be.
        columns (`Mapping[str, str]`, *optional*): The names of columns by what they are, where they have not the usual
            names:

            - `"timeline"` ("timeline_id") and `"text"` ("text"), which each post has.
            - `"timestamp"` ("timestamp"): times are all ISO-8601, all numbers of seconds, or all missing (see
              [`to_seconds`]). "date+time" names two columns, of dates and of times of day. Without times, timelines
              keep the order of their posts.
            - `"label"` ("label").
            - `"id"`: by default a post's id is its row; in a stream of several shards the number of the shard precedes
              it. Ids must be unique within their timeline.
            - `"speaker"` ("speaker") and `"state"` ("state"): writers of posts, and states, which are classes or
              numbers. Both may be missing in single posts.
            - `"annotator"`: posts have a row for each annotator's label, and are merged ([`merge_annotators`]).
            - `"group"` and `"split"`: the group by which a post is scored, and the unit of its timeline, which no
              split divides. Both may be missing in single posts. They become the `metadata` of timelines.
        drop_incomplete (`bool`, *optional*, defaults to `False`):
            True to leave out rows without timeline id, post id, time or text, as far as there are such columns. A
            warning counts them.

    A column is also found by nearly its name ("Timestamp", " text"), with a warning, if no other one is as close.
    "none" as a name leaves out the column that would be read by default; if a column is named so, that is an error.

    Returns:
        `list[Timeline]` in the order of their first posts. For a stream, a [`TimelineStream`], which has the shards of
        its posts, is read anew in each pass, and holds one timeline at a time.

        Raises a [`PostError`] for the first bad cell, and for a timeline of a stream whose posts do not follow each
        other. Raises a `ValueError` for labels that are hard to tell apart, for floats of too few bits, and for a
        stream with annotators. A stream raises what is wrong with its posts when it is read. It notices a timeline
        that comes back only among the shards that one worker or process reads; [`survey`] reads all shards.
    """
    if not isinstance(columns, Columns):
        columns = Columns({**dict.fromkeys(ROLES), **NEEDED, **read_columns(columns or {})})
    return group_posts(posts, labels, columns, drop_incomplete)


def group_posts(
    posts: Dataset | IterableDataset, labels: list[str] | None, columns: Columns, drop_incomplete: bool = False
) -> list[Timeline] | TimelineStream:
    """Groups posts to timelines, as [`to_timelines`] does, by the names of all their columns."""
    check_labels(labels or ())
    present = posts.column_names or ()
    names = declared_names(posts, columns.of("label", present) or "")
    if isinstance(posts, IterableDataset):
        if columns["annotator"] is not None:
            raise ValueError("The labels of several annotators are merged in memory: a stream cannot have them.")
        count = posts.num_shards
        shards = [(number, posts.shard(count, number)) for number in range(count)] if count > 1 else [(None, posts)]
        return TimelineStream(shards, labels, columns, names, drop_incomplete)
    groups: dict[str, list[Post]] = {}
    rows = read_posts(each_table(posts), labels, columns, names=names, drop_incomplete=drop_incomplete)
    columns = columns.find(present, hint=IN_JSON)
    for timeline_id, post in rows if columns["annotator"] else check_ids(rows, columns):
        groups.setdefault(timeline_id, []).append(post)
    if columns["annotator"]:
        groups = {timeline_id: merge_annotators(group, columns) for timeline_id, group in groups.items()}
        list(check_ids(((timeline_id, post) for timeline_id, group in groups.items() for post in group), columns))
    if columns["split"] is not None:
        for timeline_id, group in groups.items():
            check_units(timeline_id, group, columns)
    backwards = run_backwards(posts, groups, columns)
    return [Timeline.from_posts(*group, backwards) for group in watched(groups.items())]


def check_ids(posts: Iterable[tuple[str, Post]], columns: Columns) -> Iterator[tuple[str, Post]]:
    """Yields timeline ids and posts unchanged. Raises a [`PostError`] for the second post of an id in a timeline."""
    seen: set[tuple[str, str]] = set()
    for timeline_id, post in posts:
        key = timeline_id, post.post_id
        if key in seen:
            raise PostError(post.row, columns["id"], post.post_id, "a post id must be unique in its timeline")
        seen.add(key)
        yield timeline_id, post
