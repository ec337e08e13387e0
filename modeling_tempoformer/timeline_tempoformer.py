"""A timeline: the posts of one person or conversation, read once, sorted once, and cut into rows for a model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import logging

from .names_tempoformer import ALIKE, look_alike, read_id, read_name, state_ids
from .streams_tempoformer import posts_before, states_before
from .times_tempoformer import TimeColumn


logger = logging.get_logger(__name__)

# The label of a post that has none.
NO_LABEL = -100


class BadValue(ValueError):
    """
    A value of a post that cannot be read.

    Args:
        field (`str`): "text", "timestamp" or another role of a column.
        value: The value.
        problem (`str`): What is wrong, in words that do not repeat the value.
    """

    def __init__(self, field: str, value: Any, problem: str):
        super().__init__(f"{field} {value!r}: {problem}")
        self.field, self.value, self.problem = field, value, problem


class Post(NamedTuple):
    """
    A post that was read.

    Attributes:
        row (`int`): Its row in the input.
        text (`str`): May be empty.
        timestamp (`float`, *optional*): Seconds since 1970-01-01 UTC, or since any other moment.
        post_id (`str`): Its name in predictions.
        label (`int`): Its class; -100 for none.
        speaker (`str`, *optional*): The writer of the post; empty if that is not known.
        state (`str`, *optional*): The post's state, a class or a number; empty if it is missing.
        metadata (*optional*): What else its table says of it. No model reads it.
    """

    row: int
    text: str
    timestamp: float | None
    post_id: str = ""
    label: int = NO_LABEL
    speaker: str | None = None
    state: str | None = None
    metadata: Any = None


def read_message(values: Any) -> Any:
    """
    Returns a message of a chat as the values of a post: its `role` is the `speaker`, and its `content` the `text`.

    Args:
        values: A dict with a `role`, a string, and a `content`: a string; a list of parts, whose texts come each on
            a line of its own; or None, an empty text, as of a message that only calls a tool.

    Returns:
        A dict with `speaker`, `text` and the other keys; `values` unchanged if they are no message, or have a `text`
        or a `speaker`.
    """
    if not is_message(values):
        return values
    content = values["content"]
    if isinstance(content, (list, tuple)):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        content = "\n".join(text for text in texts if isinstance(text, str))
    others = {name: value for name, value in values.items() if name not in ("role", "content")}
    return {"speaker": values["role"], "text": "" if content is None else content, **others}


def is_message(values: Any) -> bool:
    """Tells whether an object is a message of a chat."""
    if not isinstance(values, Mapping) or "content" not in values or "text" in values or "speaker" in values:
        return False
    return isinstance(values.get("role"), str)


def read_post(times: TimeColumn, row: int, name: str, text: Any, timestamp: Any) -> Post:
    """Reads the text and the time of a post, which `name` names in errors. Raises a [`BadValue`]."""
    if not isinstance(text, str):
        raise BadValue("text", text, "a text must be a string; it may be empty")
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        half = text[problem.start]
        raise BadValue(
            "text", text, f"it has {half!r}, half of a surrogate pair, as of an emoji that was cut"
        ) from None
    try:
        return Post(row, text, times.read(name, timestamp), str(row))
    except ValueError as problem:
        raise BadValue("timestamp", timestamp, str(problem)) from None


def read_role(role: str, value: Any) -> str:
    """Reads a name in the role of a label, a state, or an id such as a speaker. Raises a [`BadValue`]."""
    try:
        return read_name(value) if role in ("label", "state") else read_id(value)
    except ValueError as problem:
        raise BadValue(role, value, str(problem)) from None


def number_states(states: Sequence[str], config: PreTrainedConfig, names: Sequence[str]) -> list[int]:
    """
    Returns the index of each state among a model's states.

    Args:
        states (`Sequence[str]`): The state of each post, as [`~names_tempoformer.read_name`] returns it; empty where
            it is not known.
        config (`PreTrainedConfig`): The model's configuration, which has the `states`, and for numbers the
            `state_values`: the nearest value counts.
        names (`Sequence[str]`): The name of each post in errors.

    Returns:
        `list[int]`: -1 where the state is empty. Raises a [`BadValue`] for one that the model has not learned.
    """
    ids = state_ids(states, config.states, config.state_values)
    for state, number, name in zip(states, ids, names, strict=True):
        if state and number < 0:
            learned = f"it is none of the model's states, {', '.join(config.states)}"
            raise BadValue(f"{name}: state", state, f"{learned}; leave it empty where it is not known")
    return ids


def warn_of_speakers(speakers: Iterable[str], timeline_id: str | int | None = None):
    """
    Warns, once a run, of speakers whose names look alike.

    Args:
        speakers (`Iterable[str]`): The names of the speakers of a timeline.
        timeline_id (`str` or `int`, *optional*): The timeline. Without it the warning names neither the timeline nor
            the speakers, which may be private.
    """
    if alike := look_alike(dict.fromkeys(speakers)):
        named = "" if timeline_id is None else f" of timeline {timeline_id!r}: {', '.join(map(repr, alike[0]))}"
        logger.warning_once(f"SPEAKERS COUNT AS DIFFERENT PEOPLE THAT {ALIKE}{named}. Write each alike.")


@dataclass
class Timeline:
    """
    The posts of one person or conversation in the order of time, or without times in the order of the input. The lists
    have a value for each post.

    Args:
        timeline_id (`str` or `int`): The person or conversation of the posts, or the number of the timeline.
        input_rows (`list[int]`): The row of each post in the input.
        texts (`list[str]`): The posts.
        timestamps (`list[float]`, *optional*): Seconds, never decreasing.
        post_ids (`list[str]`): Names of the posts in predictions.
        labels (`list[int]`): Class ids; -100 for none.
        speakers (`list[str]`, *optional*): The writer of each post; empty if that is not known.
        states (`list[str]`, *optional*): The state of each post, a class or a number; empty where it is missing.
        metadata (`list`, *optional*): What else their table says of each post, such as its group. No model reads it.
        held_out (`int`, *optional*): The member of the model that does not learn from the timeline.
        num_context (`int`, *optional*, defaults to 0): The number of first posts that are context only: streams read
            them, and a split does not ask about them.
        logits (`torch.Tensor` of shape `(posts, classes)`, *optional*):
            A model's answer, in float32; NaN for a post that it was not asked about.
        state_logits (`torch.Tensor` of shape `(posts, states)`, *optional*):
            A model's answer about states, likewise.
        expert_logits (`torch.Tensor` of shape `(posts, experts, classes)`, *optional*):
            The answer of each of a model's experts, likewise.
        explanations (`list[dict]`, *optional*): The result of the pipeline's `explain` for each post.
        vectors (`torch.Tensor` of shape `(posts, vector_size)`, *optional*):
            The posts' vectors from a post model's encoder (`embed_posts`), which its pipeline reads instead of texts.
    """

    timeline_id: str | int
    input_rows: list[int]
    texts: list[str]
    timestamps: list[float] | None
    post_ids: list[str]
    labels: list[int]
    speakers: list[str] | None = None
    states: list[str] | None = None
    metadata: list[Any] | None = None
    held_out: int | None = None
    num_context: int = 0
    logits: torch.Tensor | None = field(default=None, repr=False, compare=False)
    state_logits: torch.Tensor | None = field(default=None, repr=False, compare=False)
    expert_logits: torch.Tensor | None = field(default=None, repr=False, compare=False)
    explanations: list[dict[str, Any]] | None = field(default=None, repr=False, compare=False)
    vectors: torch.Tensor | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_posts(cls, timeline_id: str | int, posts: Sequence[Post], backwards: bool = False) -> "Timeline":
        """
        Returns the timeline of posts that were read. They are sorted by time, with one warning if they are not in
        order. Posts of one time, and posts without times, keep the order of the input, or are turned round where the
        input runs from the newest to the oldest.

        Args:
            timeline_id (`str` or `int`): The person or conversation of the posts, or the number of the timeline.
            posts (`Sequence[Post]`): All with a time, or none.
            backwards (`bool`, *optional*, defaults to `False`): Whether posts run so whose times do not tell.
        """
        timed = bool(posts) and all(post.timestamp is not None for post in posts)
        changes = ((post.timestamp, later.timestamp) for post, later in pairwise(posts))
        steps = {later > earlier for earlier, later in changes if later != earlier}
        ordered = list(reversed(posts) if steps == {False} or (backwards and True not in steps) else posts)
        ordered = sorted(ordered, key=lambda post: post.timestamp) if timed else ordered
        if timed and ordered != list(posts):
            logger.warning_once("Sorting the posts of timelines by time.")
        has_speakers = any(post.speaker is not None for post in ordered)
        has_states = any(post.state is not None for post in ordered)
        has_metadata = any(post.metadata is not None for post in ordered)
        return cls(
            timeline_id=timeline_id,
            input_rows=[post.row for post in ordered],
            texts=[post.text for post in ordered],
            timestamps=[post.timestamp for post in ordered] if timed else None,
            post_ids=[post.post_id for post in ordered],
            labels=[post.label for post in ordered],
            speakers=[post.speaker or "" for post in ordered] if has_speakers else None,
            states=[post.state or "" for post in ordered] if has_states else None,
            metadata=[post.metadata for post in ordered] if has_metadata else None,
        )

    @classmethod
    def read(
        cls,
        timeline_id: str | int,
        texts: Sequence[Any],
        timestamps: Sequence[Any] | None = None,
        name_post: Callable[[int], str] = "post {}".format,
        shows_values: bool = True,
        speakers: Sequence[Any] | None = None,
        states: Sequence[Any] | None = None,
    ) -> "Timeline":
        """
        Reads the posts of a timeline.

        Args:
            timeline_id (`str` or `int`): The person or conversation of the posts, or the number of the timeline.
            texts (`Sequence`): Strings.
            timestamps (`Sequence`, *optional*): As [`~times_tempoformer.to_seconds`] takes them, all of one kind.
            name_post (`Callable[[int], str]`, *optional*): Names a post in errors by its row; "post 0" by default.
            shows_values (`bool`, *optional*, defaults to `True`): If True, errors repeat values, which may be private.
            speakers (`Sequence`, *optional*): The writer of each post, for [`~names_tempoformer.read_id`]; None or
                empty where it is not known. Names that are hard to tell apart are warned of.
            states (`Sequence`, *optional*): The state of each post, a class or a number; None or empty where it is
                not known.

        Returns:
            [`Timeline`]. Raises a `ValueError` that names the post for a text that is not a string or has half of a
            surrogate pair, and for a time, a speaker or a state that cannot be read; and one for other numbers of
            times, speakers or states than of texts.
        """
        for name, values in (("times", timestamps), ("speakers", speakers), ("states", states)):
            if values is not None and len(values) != len(texts):
                raise ValueError(f"there are {len(values)} {name} for {len(texts)} posts.")
        missing = [None] * len(texts)
        values = zip(texts, timestamps or missing, speakers or missing, states or missing, strict=True)
        times, posts = TimeColumn(shows_values), []
        for row, (text, timestamp, speaker, state) in enumerate(values):
            try:
                post = read_post(times, row, name_post(row), text, timestamp)
                post = post if speakers is None else post._replace(speaker=read_role("speaker", speaker))
                posts.append(post if states is None else post._replace(state=read_role("state", state)))
            except BadValue as bad:
                value = f" {bad.value!r}" if shows_values else ""
                raise ValueError(f"{name_post(row)}: {bad.field}{value}: {bad.problem}.") from None
        times.warn()
        warn_of_speakers((post.speaker or "" for post in posts), timeline_id if shows_values else None)
        return cls.from_posts(timeline_id, posts)

    def __len__(self) -> int:
        return len(self.input_rows)

    def tokenize(self, tokenizer: PreTrainedTokenizerBase, limit: int) -> tuple[dict[str, list], int]:
        """
        Tokenizes the posts, each truncated to `limit` tokens. Returns the columns that [`cut_rows`] takes, with
        `timestamps` if there are times, and how many posts were truncated.
        """
        columns, num_cut = tokenize_posts(tokenizer, self.texts, limit)
        return columns if self.timestamps is None else {**columns, "timestamps": self.timestamps}, num_cut

    @property
    def input_positions(self) -> list[int]:
        """The position of each post among the timeline's posts in the order of the input."""
        position = {row: position for position, row in enumerate(sorted(self.input_rows))}
        return [position[row] for row in self.input_rows]

    def speaker_posts(self, count: int = 1) -> list[list[int]]:
        """
        Returns the positions of each post's speaker's last `count` posts before it ([`posts_before`]). Raises a
        `ValueError` for a timeline without speakers.
        """
        if self.speakers is None:
            raise ValueError(
                f"Timeline {self.timeline_id!r} has no speakers, but the model reads who speaks: give each post one."
            )
        return posts_before(range(len(self)), self.speakers, count)

    def earlier_states(self, config: PreTrainedConfig) -> torch.FloatTensor:
        """
        Returns what is known of the earlier states when each post arrives ([`states_before`]), for a model with this
        configuration. Raises a [`BadValue`] that names the post for a state that the model has not learned.
        """
        names = [f"Timeline {self.timeline_id!r}, post {row}" for row in self.input_rows]
        ids = number_states(self.states or [""] * len(self), config, names)
        return states_before(ids, self.speakers if config.reads_speakers else None, len(config.states))

    def compared_posts(self) -> list[int]:
        """
        Returns the position of the post that each post is compared with: its speaker's last one; without speakers the
        one before it; -1 where there is none.
        """
        speakers = [""] * len(self) if self.speakers is None else self.speakers
        return [post for (post,) in posts_before(range(len(self)), speakers)]

    def in_input_order(self, values: Iterable[Any]) -> list[Any]:
        """Returns values, one for each post, in the order of the input."""
        return [value for _, value in sorted(zip(self.input_rows, values, strict=True), key=lambda pair: pair[0])]


def tokenize_posts(tokenizer: PreTrainedTokenizerBase, texts: list[str], limit: int) -> tuple[dict[str, list], int]:
    """
    Tokenizes posts.

    Args:
        tokenizer (`PreTrainedTokenizerBase`): The tokenizer.
        texts (`list[str]`): The posts.
        limit (`int`): The most tokens of a post. A longer one is truncated.

    Returns:
        The tokenizer's columns but the mask, which the collator makes: `input_ids` and others, each a list of tokens
        for each post; and how many posts were truncated.
    """

    def tokenize(posts: list[str], **settings) -> dict[str, list]:
        if not posts:
            return {"input_ids": []}
        tokens = tokenizer(posts, **settings)
        return {name: tokens[name] for name in tokenizer.model_input_names if name in tokens and "mask" not in name}

    columns = tokenize(texts, verbose=False)
    too_long = [post for post, ids in enumerate(columns["input_ids"]) if len(ids) > limit]
    for name, values in tokenize([texts[post] for post in too_long], truncation=True, max_length=limit).items():
        for post, tokens in zip(too_long, values, strict=True):
            columns[name][post] = tokens
    return columns, len(too_long)


def row_bounds(num_posts: int, window: int, targets_per_row: int) -> Iterator[tuple[int, int, int]]:
    """
    Yields (start, first, end) for each row of a timeline: it has the posts from `start` to `end`; the posts before
    `first` are the context of the first target.
    """
    for first in range(0, num_posts, targets_per_row):
        yield max(0, first - window + 1), first, min(first + targets_per_row, num_posts)


def cut_rows(
    columns: dict[str, Any], window: int, targets_per_row: int, speaker_posts: list[list[int]] | None = None
) -> Iterator[dict[str, Any]]:
    """
    Yields the rows of a timeline for [`StreamCollator`], by [`row_bounds`], from the columns of its posts, which are
    lists or tensors. With `speaker_posts` ([`Timeline.speaker_posts`]), those that are older than the row's own posts
    are put in front of them.
    """
    start_time = {"start_time": columns["timestamps"][0]} if columns.get("timestamps") else {}
    num_posts = len(next(iter(columns.values())))
    for start, first, end in row_bounds(num_posts, window, targets_per_row):
        earlier = None if speaker_posts is None else speaker_posts[first:end]
        older = sorted({post for posts in earlier or () for post in posts if 0 <= post < start})
        posts = [*older, *range(start, end)]
        row = {
            name: values[posts] if isinstance(values, torch.Tensor) else [values[post] for post in posts]
            for name, values in columns.items()
        }
        row |= {"num_context": first - start + len(older), "num_before": start - len(older), **start_time}
        if earlier is not None:
            position = {post: number for number, post in enumerate(posts)}
            row["speaker_posts"] = [[position.get(post, -1) for post in posts_of] for posts_of in earlier]
            row["num_older"] = len(older)
        yield row
